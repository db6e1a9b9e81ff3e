/* Neighbourhood attention for CPU devices: neighbouring queries of a row across vector lanes.
 *
 *   O[y,x,:]  = sum_(i,j) p_ij V[i,j,:] / sum_(i,j) p_ij over the window of (y,x), p = exp(s - max s),
 *   s_ij      = scale * Q[y,x,:] . K[i,j,:]  (+ bias[i,j]; -inf drops the key)
 *   lse[y,x]  = log sum_(i,j) exp(s_ij)
 *
 * neighbourhood_pack lays K and V (and the bias) out as planes of floats in the workspace: for each batch item, head
 * and row of keys, D_K + D_V lines of packed_width floats, line d having column x at LANES + x, and zeros around
 *   packed[a.packed_offset + (((b*kv_heads + h)*height + y)*(D_K + D_V) + d)*packed_width + LANES + x]
 *   packed[a.packed_offset + a.packed_bias + b*.._batch + h*.._head + y*packed_width + LANES + x]
 * so that the keys which LANES neighbouring queries have at the same distance are one vector load, whatever the strides
 * and types of the arrays, and conversions happen once.
 *
 *          x0            x0 + LANES          A work-item has LANES columns and ROWS rows of queries, these `dilation_y`
 *     ......[== Q ==]...........            apart, so that they share rows of keys.  For each such row of keys it
 *   ..[== K ==]..............  distance -r  computes a register tile of KEY_STEP distances x ROWS queries: KEY_STEP + ROWS
 *   ...[== K ==].............  ...          loads for KEY_STEP * ROWS fused multiply-adds.  No lane computes a score that it
 *   ............[== K ==]....  distance +r  does not need, except at the map's left and right edge.
 *
 * Parameters
 *   Q_TYPE K_TYPE V_TYPE O_TYPE   storage of each array: F32 F16 BF16                    (F32)
 *   D_K, D_V       sizes of a query and of a value: 1 to 256                             (32)
 *   LANES          floats in a vector: 4 8 16                                            (lib/vector.h)
 *   ROWS           rows of queries of an item: 1 to 4                                    (2)
 *   KEY_STEP       distances of the register tile of scores: 1 to 8                      (7)
 *   COLUMN_STEP    columns of the register tile of the output: 1 to 8                    (6)
 *   SCORE_TILE     scores for each rescaling, a multiple of KEY_STEP and at least twice  (10 KEY_STEP)
 *   BIAS, LSE      1: such an array is present, otherwise the parameter is unused: 0 1   (0)
 * Tested: types; ROWS 1, 2, 3; KEY_STEP 1 to 8; LANES 4, 8, 16; BIAS x LSE; windows 1 to 35, dilations 1 to 5, both edges.
 *
 * NDRange: neighbourhood_pack (ceil(width / LANES) + 2, height, max(batch * kv_heads, bias items)) work-groups of one
 * item, each packing LANES columns of one row (the outer two: the zeros around); neighbourhood_cpu
 * (ceil(query_width / LANES), dilation_y * ceil(ceil(query_height / dilation_y) / ROWS), heads * batch) work-groups of one
 * item, which owns the outputs of its queries.
 *
 * Private memory, in vectors: ROWS * (D_K + D_V + SCORE_TILE + KEY_STEP).  Local memory: none.  Barriers: none.
 *
 * State is float.  A lane at whose distance no key of its window lies has the score -inf and takes no V; rows of queries
 * to which a row of keys does not belong are not computed, so a key outside a window cannot leak.  Lanes beyond the last
 * query compute anything and store nothing.  Needs OpenCL C 1.2; neighbourhood_generic takes larger sizes. */
#include "neighbourhood/args.h"
#include "neighbourhood/neighbourhood.h"
#include "lib/storage.h"
#include "lib/vector.h"
#include "lib/exp2.h"
#include "lib/rows.h"

#ifndef ROWS
#define ROWS 2
#endif
#ifndef KEY_STEP
#define KEY_STEP 7
#endif
#ifndef COLUMN_STEP
#define COLUMN_STEP 6
#endif
#ifndef SCORE_TILE
#define SCORE_TILE (10 * KEY_STEP)
#endif

#if D_K < 1 || D_V < 1 || D_K > 256 || D_V > 256
#error "D_K and D_V must be 1 to 256"
#endif
#if ROWS < 1 || ROWS > 4
#error "ROWS must be 1 to 4"
#endif
#if KEY_STEP < 1 || KEY_STEP > 8 || COLUMN_STEP < 1 || COLUMN_STEP > 8
#error "KEY_STEP and COLUMN_STEP must be 1 to 8"
#endif
#if SCORE_TILE % KEY_STEP != 0 || SCORE_TILE < 2 * KEY_STEP
#error "SCORE_TILE must be a multiple of KEY_STEP, at least twice"
#endif

#include "neighbourhood/cpu.h"

/* Packs LANES columns from x0 on of one row of a map: line d of `packed`, packed_width apart, gets column x at x -
 * x0. Columns from `columns` on are 0. */
#define PACK_COLUMNS(TYPE, map, size_count, packed, columns, m) \
    do { \
        for (int d_ = 0; d_ < (size_count); d_ += LANES) { \
            floatv x_[LANES]; \
            for (int r_ = 0; r_ < LANES; r_++) { \
                if (r_ < (columns)) \
                    LOAD_ROW(TYPE, x_[r_], map, r_ *(m).col + d_ * (m).size, (m).size, (size_count) - d_, 0.0f); \
                else \
                    x_[r_] = (floatv)(0.0f); \
            } \
            transpose(x_); \
            for (int c_ = 0; c_ < LANES && d_ + c_ < (size_count); c_++) \
                STORE_WHOLE(global whole_floatv, (packed) + (d_ + c_) * (long)a.packed_width, x_[c_]); \
        } \
    } while (0)

GROUP_SIZE(1, 1, 1)
kernel void neighbourhood_pack(const global ELEMENT(K_TYPE) *key, const global ELEMENT(V_TYPE) *value,
                               const global float *bias, global float *packed, neighbourhood_args a)
{
    if (a.batch == 0)
        return;

    const int line_x = (int)group_id(&a.part, 0) * LANES, x = line_x - LANES;
    const int y = (int)group_id(&a.part, 1), item = (int)group_id(&a.part, 2);
    const int columns = x < 0 ? 0 : clamp(a.width - x, 0, LANES);
    const int kv_heads = a.heads / a.group;
    packed += a.packed_offset;
    if (item < a.batch * kv_heads) {
        const long b = item / kv_heads, h = item - b * kv_heads;
        global float *lines = packed + ((long)item * a.height + y) * LINES * a.packed_width + line_x;
        key += a.key.offset + b * a.key.batch + h * a.key.head + y * a.key.row + x * a.key.col;
        value += a.value.offset + b * a.value.batch + h * a.value.head + y * a.value.row + x * a.value.col;
        PACK_COLUMNS(K_TYPE, key, D_K, lines, columns, a.key);
        PACK_COLUMNS(V_TYPE, value, D_V, lines + (long)D_K * a.packed_width, columns, a.value);
    }
#if BIAS
    if (item < a.bias_batch * a.bias_heads) {
        const long b = item / a.bias_heads, h = item - b * a.bias_heads;
        global float *line = packed + a.packed_bias + b * a.packed_bias_batch + h * a.packed_bias_head +
                             y * (long)a.packed_width + line_x;
        bias += a.bias.offset + b * a.bias.batch + h * a.bias.head + y * a.bias.row + x * a.bias.col;
        float lane[LANES];
        for (int l = 0; l < LANES; l++)
            lane[l] = l < columns ? bias[l * a.bias.col] : 0.0f;
        VSTORE(VLOAD(0, lane), 0, line);
    }
#endif
}

/* `block` of `blocks` blocks of rows, `column` in vectors, `head` among those of all items. */
ITEM_FUNCTION attend_block(const global ELEMENT(Q_TYPE) *query, const global float *packed,
                           global ELEMENT(O_TYPE) *output, global float *lse, neighbourhood_args a, int column,
                           int block, int blocks, long head)
{
    /* The rows of one remainder mod dilation_y, and which of them are this item's. */
    const int remainder = block / blocks;
    const int skipped = (remainder + a.dilation_y - a.query_y % a.dilation_y) % a.dilation_y;
    const int y0 = skipped + (block - remainder * blocks) * ROWS * a.dilation_y;
    const int x0 = column * LANES;
    if (y0 >= a.query_height || x0 >= a.query_width)
        return;
    const int rows = min(ROWS, (a.query_height - y0 + a.dilation_y - 1) / a.dilation_y);
    const int columns = min(LANES, a.query_width - x0);
    const long b = head / a.heads, h = head - b * a.heads;
    const int kv_heads = a.heads / a.group;

    floatv q[D_K * ROWS];
    floatv o[D_V * ROWS];
    floatv s[(SCORE_TILE + KEY_STEP) * ROWS];
    row_state state;
    for (int n = 0; n < ROWS; n++) {
        state.row_max[n] = (floatv)(-INFINITY);
        state.row_sum[n] = (floatv)(0.0f);
    }
    for (int c = 0; c < D_V * ROWS; c++)
        o[c] = (floatv)(0.0f);
    load_queries(q, query + a.query.offset + b * a.query.batch + h * a.query.head + y0 * a.query.row + x0 * a.query.col,
                 rows, columns, a.dilation_y * a.query.row, &a.query);

    const columns_of c = find_columns(a.query_x + x0, columns, &a);
    /* Rows of keys are counted in members of the group, as the windows are. */
    const int member = (a.query_y + y0) / a.dilation_y;
    int low[ROWS], high[ROWS];
    for (int n = 0; n < ROWS; n++) {
        const int y = a.query_y + y0 + min(n, rows - 1) * a.dilation_y;
        low[n] = member + min(n, rows - 1) + window_low(y, a.height, a.window_y, a.dilation_y, a.clip);
        high[n] = member + min(n, rows - 1) + window_high(y, a.height, a.window_y, a.dilation_y, a.clip);
    }
    const long line_step = (long)a.dilation_y * LINES * a.packed_width;
    const global float *lines = packed + a.packed_offset +
                                ((b * kv_heads + h / a.group) * a.height + remainder) * LINES * a.packed_width + LANES +
                                a.query_x + x0;
#if BIAS
    const long bias_step = (long)a.dilation_y * a.packed_width;
    const global float *bias = packed + a.packed_offset + a.packed_bias + b * a.packed_bias_batch +
                               h * a.packed_bias_head + (long)remainder * a.packed_width + LANES + a.query_x + x0;
#else
    const long bias_step = 0;
    const global float *bias = packed;
#endif
    /* The score tile holds `most` rows of keys, which share a rescaling. */
    const int most = max(1, SCORE_TILE / (c.last - c.first + 1));

    for (int t = low[0]; t <= high[ROWS - 1];) {
        /* Windows of later rows begin and end later, so the rows whose windows have row t are neighbours; they stay the same
         * until a window begins or ends. */
        int from = ROWS, to = 0, end = min(t + most - 1, high[ROWS - 1]);
        for (int n = 0; n < rows; n++) {
            const bool inside = t >= low[n] && t <= high[n];
            from = inside ? min(from, n) : from;
            to = inside ? n + 1 : to;
            end = inside ? min(end, high[n]) : t < low[n] ? min(end, low[n] - 1) : end;
        }
        const int count = end - t + 1;
        const global float *line = lines + t * line_step, *addends = bias + t * bias_step;
        /* Rows at the map's edges of every kind are computed one at a time: two copies of this code are enough to
         * compile. */
        if (from == 0 && to == ROWS && !c.mixed)
            attend_rows(ROWS, 0, 0, s, q, o, &state, line, count, line_step, addends, bias_step, &c, &a);
        else
            for (int n = from; n < to; n++)
                attend_rows(1, 1, n, s, q, o, &state, line, count, line_step, addends, bias_step, &c, &a);
        t = end + 1;
    }

    output += a.output.offset + b * a.output.batch + h * a.output.head + y0 * a.output.row + x0 * a.output.col;
    for (int n = 0; n < rows; n++)
        store_row(output + n * a.dilation_y * a.output.row, o + n, state.row_sum[n], columns, &a.output);
#if LSE
    lse += a.lse.offset + b * a.lse.batch + h * a.lse.head + y0 * a.lse.row + x0 * a.lse.col;
    for (int n = 0; n < rows; n++) {
        float lane[LANES];
        VSTORE(select(state.row_max[n] + log(state.row_sum[n]), (floatv)(-INFINITY), state.row_sum[n] == 0.0f), 0,
               lane);
        for (int l = 0; l < columns; l++)
            lse[n * a.dilation_y * a.lse.row + l * a.lse.col] = lane[l];
    }
#endif
}

GROUP_SIZE(1, 1, 1)
kernel void neighbourhood_cpu(const global ELEMENT(Q_TYPE) *query, const global float *packed,
                              global ELEMENT(O_TYPE) *output, global float *lse, neighbourhood_args a)
{
    if (a.batch != 0)
        attend_block(query, packed, output, lse, a, (int)group_id(&a.part, 0), (int)group_id(&a.part, 1),
                     (int)a.part.groups[1] / a.dilation_y, (long)group_id(&a.part, 2));
}
