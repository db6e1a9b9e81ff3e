/* The score matrix written out on CPU devices: what attention/scores.cl does, with queries across vector lanes and the tiles of
 * attention_cpu.
 *
 *                QUERY_VECTORS * LANES queries
 *              +-------------------------------+
 *   KEY_TILE   | S^T, then what W gets of it   |  -> transposed, LANES x LANES at a time, into rows of W
 *   keys       +-------------------------------+
 *
 * Formula and macros: attention/score_element.h.  Arrays, strides and the description's macros: attention/core.h, all of it
 * except DOUBLE, packed sequences and rings.  W (`a.scores`) and lse as attention/scores.cl says.
 *
 * Parameters: D_K, LANES, QUERY_VECTORS, KEY_TILE, KEY_STEP, UNIT_STRIDE, PACK, PREFETCHES as in attention/cpu/lanes.cl, and
 *   KEYS_PER_ITEM   keys of a work-item, a multiple of KEY_TILE   (960)
 *
 * NDRange: (ceil(a.key_length / KEYS_PER_ITEM), ceil(a.query_length / (QUERY_VECTORS * LANES)), a.batch * a.heads,
 * or a.batch when averaged) work-groups of one item, which owns those rows and keys of W.
 *
 * Private memory, in floats: QUERY_VECTORS * LANES * (D_K + 2 KEY_TILE), and attention/cpu/tile.h's scratch.  Local memory:
 * none.  Barriers: none.  K and mask are read at keys within the item's lengths only.
 *
 * Probabilities of a row whose lse is NaN are made one by one, because a score of -inf does not tell whether its key was
 * excluded.  Needs OpenCL C 1.2 and nothing else. */
#include "attention/core.h"
#include "attention/score_element.h"

#ifndef QUERY_VECTORS
#define QUERY_VECTORS 2
#endif
#ifndef KEY_TILE
#define KEY_TILE 96
#endif
#ifndef KEY_STEP
#define KEY_STEP 6
#endif
#ifndef KEYS_PER_ITEM
#define KEYS_PER_ITEM 960
#endif
#ifndef UNIT_STRIDE
#define UNIT_STRIDE 0
#endif
#define COLUMN_STEP 1 /* for the values, which nobody reads */
#define UNROLLED
#define PAIRS 0
#define GROUPED 0
/* Scores are wanted, not products: attention/cpu/mask.h multiplies by the scale at once. */
#undef POSITIVE_SCALE
#define POSITIVE_SCALE 0

#if DOUBLE
#error "the state is float"
#endif
#if KEY_STEP < 1 || KEY_TILE < 1 || KEY_TILE % KEY_STEP != 0 || KEYS_PER_ITEM % KEY_TILE != 0
#error "KEY_TILE must be a multiple of KEY_STEP, and KEYS_PER_ITEM of KEY_TILE"
#endif

#include "attention/cpu/keys.h"
#include "attention/cpu/lanes.h"
#include "attention/cpu/mask.h"
#include "attention/cpu/tile.h"

#define NOTHING (SCORES_MODE == 2 ? -INFINITY : 0.0f) /* of a key that is not attended, or lies beyond the lengths */

/* A block of rows of one head. */
typedef struct scores_work {
    attention_block block;
    int begin, end; /* keys of which some row's element is more than NOTHING */
    floatv q[ROUND_UP(D_K, LANES) * QUERY_VECTORS];
#if ADDITIVE
    floatv weight[ROUND_UP(D_K, LANES) * QUERY_VECTORS];
#else
    floatv weight[1];
#endif
    float lse[BLOCK];
} scores_work;

INLINE void begin_head(scores_work *w, const global ELEMENT(Q_TYPE) *query, const global float *lse, int b, int h,
                       int index, const attention_args *a, const optional_arrays *arrays)
{
    block_of(&w->block, b, h, index, a, arrays);
    w->begin = w->end = 0;
    if (PROBABILITIES)
        for (int r = 0; r < w->block.rows; r++)
            w->lse[r] = lse[attention_result_row(&a->lse, &w->block.item, w->block.first) + r * a->lse.row];
    if (w->block.live <= 0)
        return;
    if (SCORES_MODE < 2)
        w->end = w->block.item.keys;
    else
        attention_keys(&w->block.item, w->block.first, w->block.first + w->block.last, a, &w->begin, &w->end);
    load_queries(w->q, query, &w->block, a);
#if ADDITIVE
    load_weights(w->weight, &w->block, a, arrays);
#endif
}

/* Scores of keys j < n become exp(s - lse). */
INLINE void weigh_scores(floatv *s, int n, const scores_work *w)
{
    for (int v = 0; v < QUERY_VECTORS; v++) {
        float lane[LANES];
        for (int l = 0; l < LANES; l++)
            lane[l] = w->lse[min(v * LANES + l, w->block.rows - 1)];
        const floatv row_lse = VLOAD(0, lane);
        for (int j = 0; j < n; j++) {
            const floatv p = exp2v((s[j * QUERY_VECTORS + v] - row_lse) * LOG2E);
            s[j * QUERY_VECTORS + v] = select(p, (floatv)(0.0f), row_lse == -INFINITY);
        }
    }
}

/* Elements of rows whose lse is NaN. */
INLINE void weigh_nan_rows(floatv *s, const global ELEMENT(Q_TYPE) *query, const global ELEMENT(K_TYPE) *key, int start,
                           int n, const scores_work *w, const attention_args *a, const optional_arrays *arrays)
{
    for (int r = 0; r < w->block.live; r++)
        if (isnan(w->lse[r]))
            for (int j = 0; j < n; j++)
                ((float *)(s + j * QUERY_VECTORS))[r] =
                    score_element(query, key, w->lse[r], &w->block.item, (int)w->block.first + r, start + j, a, arrays);
}

/* s[j * QUERY_VECTORS + v]: what W gets for keys start ... start + n - 1. */
INLINE void write_tile(floatv *s, SCRATCH_TYPE *scratch, const global ELEMENT(Q_TYPE) *query,
                       const global ELEMENT(K_TYPE) *key, int start, int n, const scores_work *w,
                       const attention_args *a, const optional_arrays *arrays)
{
    const int low = clamp(w->begin - start, 0, n), high = clamp(w->end - start, low, n);
    floatv *x = s + low * QUERY_VECTORS;

    if (low < high) {
        scores_of(x, w->q, w->weight, key, scratch, start + low, high - low, a->scale, &w->block.item, a, arrays);
#if SCORES_MODE >= 2
        modify_tile(x, false, start + low, high - low, &w->block, a, arrays);
#elif SCORES_MODE == 1 && SOFTCAP
        cap_scores(x, (high - low) * QUERY_VECTORS, a->softcap);
#endif
        if (PROBABILITIES)
            weigh_scores(x, high - low, w);
    }
    for (int j = 0; j < n; j++)
        if (j < low || j >= high)
            for (int v = 0; v < QUERY_VECTORS; v++)
                s[j * QUERY_VECTORS + v] = (floatv)(NOTHING);
    if (PROBABILITIES)
        weigh_nan_rows(s, query, key, start, n, w, a, arrays);
    if (w->block.live < w->block.rows)
        for (int j = 0; j < n; j++)
            for (int v = 0; v < QUERY_VECTORS; v++)
                s[j * QUERY_VECTORS + v] =
                    select(s[j * QUERY_VECTORS + v], (floatv)(NOTHING), LANE_INDEX + v * LANES >= w->block.live);
}

/* Stores n keys of the block's rows, the first of which begins at `at`. */
INLINE void store_tile(global ELEMENT(W_TYPE) *scores, const floatv *s, long at, int n, int rows,
                       const attention_args *a)
{
    const long row = a->scores.row, col = a->scores.col;

    for (int v = 0; v < QUERY_VECTORS; v++)
        for (int j = 0; j < n; j += LANES) {
            floatv x[LANES];
            for (int c = 0; c < LANES; c++)
                x[c] = s[min(j + c, n - 1) * QUERY_VECTORS + v];
            transpose(x);
            for (int r = 0; r < LANES && v * LANES + r < rows; r++)
                STORE_ROW(W_TYPE, scores, at + (v * LANES + r) * row + j * col, col, n - j, x[r]);
        }
}

ITEM_FUNCTION write_scores(SCORES_PARAMETERS, int x, int y, int index)
{
    const optional_arrays arrays = OPTIONAL_ARRAYS;
    if (a.batch == 0)
        return;

    const int heads = AVERAGE ? 1 : a.heads, b = index / heads;
    const int first = AVERAGE ? 0 : index - b * heads, summed = AVERAGE ? a.heads : 1;
    const int from = x * KEYS_PER_ITEM, to = min(from + KEYS_PER_ITEM, a.key_length);
    const int row = y * BLOCK;
    const int rows = min(a.query_length - row, BLOCK);
    const long at = a.scores.offset + b * a.scores.batch + first * a.scores.head + row * a.scores.row;
    scores_work work;
    SCRATCH_TYPE scratch[SCRATCH];
    floatv total[(KEY_TILE + KEY_STEP) * QUERY_VECTORS]; /* a tile's products end with a whole step */
#if AVERAGE
    floatv s[(KEY_TILE + KEY_STEP) * QUERY_VECTORS];
#endif

    for (int start = from; start < to; start += KEY_TILE) {
        const int n = min(KEY_TILE, to - start);
        for (int h = 0; h < summed; h++) {
            if (AVERAGE || start == from)
                begin_head(&work, query, lse, b, first + h, y, &a, &arrays);
#if AVERAGE
            write_tile(s, scratch, query, key, start, n, &work, &a, &arrays);
            for (int i = 0; i < n * QUERY_VECTORS; i++)
                total[i] = h == 0 ? s[i] : total[i] + s[i];
#else
            write_tile(total, scratch, query, key, start, n, &work, &a, &arrays);
#endif
        }
#if AVERAGE
        for (int i = 0; i < n * QUERY_VECTORS; i++)
            total[i] /= (float)a.heads;
#endif
        store_tile(scores, total, at + start * a.scores.col, n, rows, &a);
    }
}

GROUP_SIZE(1, 1, 1)
kernel void attention_cpu_scores(SCORES_PARAMETERS)
{
    write_scores(SCORES_ARGUMENTS, (int)group_id(&a.part, 0), (int)group_id(&a.part, 1), (int)group_id(&a.part, 2));
}
