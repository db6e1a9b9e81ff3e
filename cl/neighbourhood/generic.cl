/* Neighbourhood attention for every device and every shape.
 *
 *   O[y,x,:]  = sum_(i,j) p_ij V[i,j,:] / sum_(i,j) p_ij over the window of (y,x), p = exp(s - max s),
 *   s_ij      = scale * Q[y,x,:] . K[i,j,:]  (+ bias[i,j]; -inf drops the key)
 *   lse[y,x]  = log sum_(i,j) exp(s_ij)
 *
 * Arrays are indexed as map5 says (neighbourhood/args.h), key and value with head h / a.group; any strides.
 * The query (y, x) stands at key position (a.query_y + y, a.query_x + x); neighbourhood/neighbourhood.h has its window.
 *
 * Parameters
 *   Q_TYPE K_TYPE V_TYPE O_TYPE   storage of each array: F32 F16 BF16   (F32)
 *   D_K, D_V    sizes of a query and of a value: 1 and more             (32)
 *   D_V_CHUNK   output columns of one work-item: 1 and more             (8)
 *   BIAS, LSE   1: such an array is present, 0: the parameter is unused (0)
 * Tested: types, BIAS x LSE, D_K and D_V 1 to 300.
 *
 * NDRange: (query_width, query_height, chunks of columns * heads * batch), rounded up at will in the first two; any
 * work-group.  An item owns D_V_CHUNK output columns of one query; the item of chunk 0 writes the lse.
 *
 * Local memory: none.  Barriers: none.  State is float.  Keys outside the window are not read, nor are K and V of those
 * that the bias drops.  Needs OpenCL C 1.2 and nothing else. */
#include "neighbourhood/args.h"
#include "neighbourhood/neighbourhood.h"
#include "lib/storage.h"
#include "lib/exp2.h"

#ifndef D_V_CHUNK
#define D_V_CHUNK 8
#endif

#if D_K < 1 || D_V < 1 || D_V_CHUNK < 1
#error "D_K, D_V and D_V_CHUNK must be positive"
#endif

#define CHUNKS ((D_V + D_V_CHUNK - 1) / D_V_CHUNK)

DEFINE_DOT_PRODUCT(dot_product, Q_TYPE, K_TYPE, D_K)

kernel void neighbourhood_generic(const global ELEMENT(Q_TYPE) *query, const global ELEMENT(K_TYPE) *key,
                                  const global ELEMENT(V_TYPE) *value, const global float *bias,
                                  global ELEMENT(O_TYPE) *output, global float *lse, neighbourhood_args a)
{
    if (a.batch == 0)
        return;

    const int x = (int)global_id(&a.part, 0), y = (int)global_id(&a.part, 1);
    const int rest = (int)global_id(&a.part, 2) / CHUNKS, b = rest / a.heads, h = rest - b * a.heads;
    const int first = ((int)global_id(&a.part, 2) - rest * CHUNKS) * D_V_CHUNK;
    if (x >= a.query_width || y >= a.query_height || b >= a.batch)
        return;

    const int columns = min(D_V_CHUNK, D_V - first);
    const key_window keys = find_keys(a.query_y + y, a.query_x + x, &a);
    query += map5_at(&a.query, b, h, y, x);
    output += map5_at(&a.output, b, h, y, x) + first * a.output.size;

    float o[D_V_CHUNK];
    float row_max = -INFINITY;
    float row_sum = 0.0f;
    for (int c = 0; c < D_V_CHUNK; c++)
        o[c] = 0.0f;

    for (int i = keys.first_y; i <= keys.last_y; i += a.dilation_y)
        for (int j = keys.first_x; j <= keys.last_x; j += a.dilation_x) {
            const float addend = bias_of(bias, b, h, i, j, &a);
            if (addend == -INFINITY)
                continue;
            const global ELEMENT(K_TYPE) *k = key + map5_at(&a.key, b, h / a.group, i, j);
            const float s = a.scale * dot_product(query, a.query.size, k, a.key.size) + addend;
            float rescale;
            const float p = next_weight(s, &row_max, &rescale);
            row_sum = row_sum * rescale + p;
            for (int c = 0; c < D_V_CHUNK && rescale != 1.0f; c++)
                o[c] *= rescale;
            const global ELEMENT(V_TYPE) *v = value + map5_at(&a.value, b, h / a.group, i, j) + first * a.value.size;
            /* Columns past the last one repeat it: a branch for each column would keep a mask for each in scalar
             * registers, which spilled on gfx90a. */
            for (int c = 0; c < D_V_CHUNK; c++)
                o[c] = FMA(p, LOAD(V_TYPE, v, min(c, columns - 1) * a.value.size), o[c]);
        }

    for (int c = 0; c < D_V_CHUNK; c++)
        if (c < columns)
            STORE(O_TYPE, output, c * a.output.size, row_sum == 0.0f ? 0.0f : o[c] / row_sum);
#if LSE
    if (first == 0)
        lse[map5_at(&a.lse, b, h, y, x)] = row_sum == 0.0f ? -INFINITY : row_max + log(row_sum);
#endif
}
