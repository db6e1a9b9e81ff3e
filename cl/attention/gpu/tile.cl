/* Attention for GPU-class devices: a work-group owns TILE_Q queries of one head and walks over the keys
 * in tiles of TILE_K with an online softmax; scores never leave the chip.
 *
 *   O[i,:] = sum_j keep_ij p_ij V[j,:] / sum_j p_ij,   p_ij = exp(s_ij - max_j s_ij),   s_ij: attention/core.h
 *   lse[i] = log sum_j exp(s_ij),   entropy[i] = -sum_j P_ij log P_ij
 *
 * Arrays, strides and macros: attention/core.h, all of it but DOUBLE; geometry: attention/gpu/shape.h.
 *                                          keys, TILE_K ->
 *                          |        4 * ITEMS_X             |  again, KEYS / 4 times
 *            +---------+   +------+------+-----+------------+-
 *  queries   |    y    |   | x=0  | x=1  | ... | ITEMS_X - 1|      Item (x, y) owns ROWS queries, below each other, times
 *  TILE_Q    |  ROWS   |   | 4 of | 4 of |     |            |      4 keys in each group of 4 * ITEMS_X: these are its
 *    |       +---------+   | them | them |     |            |      scores and, behind the softmax, its probabilities.
 *    v       |  y + 1  |   +------+------+-----+------------+-     Of the output it owns the same rows times columns in the
 *            +---------+                                           same pattern, COLUMN_QUADS groups of 4 * ITEMS_X.
 *
 *   for each tile of keys:  S = Q K^T, CHUNK columns at a time through `stage`  ->  prob  ->  online softmax in place
 *                           O = O * rescale + P V, VALUE_ROWS rows of V at a time through `stage`
 *
 * Tested sets (TILE_Q x TILE_K, ITEMS_X x ITEMS_Y, CHUNK, VALUE_ROWS): those of src/ops/attention/solver_tile.c.  Software
 * rasterisers, whose compilers are slow, take 16 x 32, 8 x 4, 8, 4.  SUB_GROUPS 0; 1 and 4 with some of them.
 *
 * NDRange: local (ITEMS_X, ITEMS_Y, 1); global (ITEMS_X * ceil(query_length / TILE_Q), ITEMS_Y * heads,
 * batch).  With PACK_HEADS there are query_length * group rows and a work-group for each key/value head, which reads
 * K and V once for all of its query heads.  Causal work-groups take the last, longest tiles of queries first.
 *
 * Local memory, in bytes:
 *   4 * TILE_K * (TILE_Q + 4)                                              the probabilities
 * + 4 * max(2 * CHUNK * (TILE_K + 4 + TILE_Q + 4),                         K and Q staged, two halves of each,
 *           V + max(V, ITEMS_X * (TILE_Q + 4)))                            or V, and row reductions in its second half,
 *                                                                          V = VALUE_ROWS * roundup(D_V, 4 * ITEMS_X)
 * + WHOLE_QUERY: 4 * roundup(D_K, CHUNK) * (TILE_Q + 4)                    all of Q, which then has no part in the maximum
 * + 4 * TILE_Q * ITEMS_X * (2, or 3 with ENTROPY)                          the state of each item's rows
 * + 8 * TILE_Q                                                             the keys that rows attend
 * + INDIRECT: 8 * TILE_K * (2 + a scale of keys + a scale of values)       where a tile's rows lie
 * + 8 * CHUNK (ADDITIVE) + 16 + 24 + 40                                    the vector, flags, where results and heads lie
 * Columns of Q and K and the probabilities of a key are TILE + 4 floats apart: 32 neighbouring items store to 32
 * different banks while each 8 of them read 32 neighbouring bytes of global memory, and the inner loops read whole
 * aligned float4s, broadcast along one axis and consecutive along the other.
 *
 * Barriers: every loop that holds one has a trip count that is the same for the whole work-group, and all items leave a
 * pass early or none does.  `stage` may be written once a barrier has passed since it was last read; other items' elements
 * of `prob` are read between the softmax's last barrier and the pass's.  With sub-groups that hold whole rows of items the
 * softmax has one barrier less.
 *
 * Tiles of keys that no row attends by lengths, causality or window are not visited.  If a mask, a bias or mask_mod could
 * exclude the whole tile, the items evaluate these first, and a tile that no row attends is left before K and V are read.
 * Tiles that all rows attend need no comparison.
 *
 * State: scores, maximum, sum and accumulators are float.  A score that is not attended is replaced by
 * -inf, which makes its probability exactly +0.  A row with nothing attended gives +0 and lse -inf; NaN
 * or +inf in an attended score makes the row NaN (the maximum drops NaN, the probabilities carry it).
 * K and V beyond the item's lengths, or no longer in a ring, and Q beyond its length are never read.
 *
 * Needs OpenCL C 1.2 and the local memory above; else attention_generic takes over.  On llvmpipe (Mesa
 * 22.3), which stops all loops of a work-item silently after 65,535 iterations in total, fewer keys fit: the host's
 * src/ops/attention counts. */
#include "attention/core.h"
#include "attention/gpu/shape.h"
#include "attention/gpu/rows.h"
#include "attention/gpu/load.h"
#include "attention/gpu/product.h"
#include "attention/gpu/softmax.h"

/* Nothing has been attended, and the output is 0. */
static inline void tile_clear(float4 out[COLUMNS][QUADS], local tile_state *state, uint item)
{
#pragma unroll
    for (int r = 0; r < QUADS; r++) {
        state->row_max[r][item] = (float4)(-INFINITY);
        state->row_sum[r][item] = (float4)(0.0f);
#if ENTROPY
        state->row_moment[r][item] = (float4)(0.0f);
#endif
#pragma unroll
        for (int c = 0; c < COLUMNS; c++)
            out[c][r] = (float4)(0.0f);
    }
}

/* Multiplies the output by the factors of its rows. */
static inline void tile_rescale(float4 out[COLUMNS][QUADS], const float4 rescale[QUADS])
{
#pragma unroll
    for (int r = 0; r < QUADS; r++) {
#pragma unroll
        for (int c = 0; c < COLUMNS; c++)
            out[c][r] *= rescale[r];
    }
}

/* Multiplies the output by the rows' factors from tile_finish; 0 for rows that attend nothing, whatever the output holds. */
static inline void tile_scale_output(float4 out[COLUMNS][QUADS], const local float4 *factors)
{
#pragma unroll
    for (int r = 0; r < QUADS; r++) {
        const float4 factor = factors[r];
#pragma unroll
        for (int c = 0; c < COLUMNS; c++)
            out[c][r] = select(out[c][r] * factor, (float4)(0.0f), factor == (float4)(0.0f));
    }
}

#if ADDITIVE
/* Copies CHUNK elements of the vector, from d0 on. */
static inline void tile_stage_vector(local float *to, uint item, int d0, const tile_rows *t, const attention_args *a,
                                     const optional_arrays *arrays)
{
    const int d = d0 + (int)item;
    if (item < CHUNK)
        to[item] = d < D_K ? arrays->vector[a->vector.offset + t->item.h * a->vector.row + d * a->vector.col] : 0.0f;
}
#endif

/* Stores four columns of each group of the output from local memory, so that neighbouring items store neighbouring columns. */
static inline void tile_store(global ELEMENT(O_TYPE) *output, const local float *from, long base, int c4, uint item,
                              const tile_rows *t, const attention_args *a)
{
    for (int n = 0; n < TILE_Q * 4 / ITEMS_Y; n++) {
        const uint c = (item + n * ITEMS) % BLOCK;
        const int i = (int)((item + n * ITEMS) / BLOCK), e = (int)c + c4 * BLOCK;
        tile_row row;
        tile_find_row(&row, i, t, a);
        const float o = from[(c % 4 * ITEMS_X + c / 4) * Q_STRIDE + i];
        if (row.stored && e < D_V)
            STORE(O_TYPE, output, base + tile_result_row(&a->output, &row) + e * a->output.col, o);
    }
}

SUB_GROUP_KERNEL
GROUP_SIZE(ITEMS_X, ITEMS_Y, 1)
kernel void attention_tile(ATTENTION_PARAMETERS)
{
    local float4 stage[STAGE_QUADS];
    local float4 prob[TILE_K * Q_QUADS];
#if WHOLE_QUERY
    local float4 query_stage[QUERY_CHUNKS * QUERY_HALF];
#else
    local float4 *query_stage = stage + 2 * KEY_HALF;
#endif
    local tile_ranges ranges;
    local tile_places places;
    local tile_results results;
    local tile_state state;
#if ADDITIVE
    local float weight[2 * CHUNK];
#endif
#if SELECTIVE
    local int attended[3]; /* whether any item attends anything of the tile; tiles use the three flags by turns */
#endif
    optional_arrays arrays = OPTIONAL_ARRAYS;
    const int x = (int)get_local_id(0), y = (int)get_local_id(1);
    const int partial = x / ROW_ITEMS;
    const uint item = (uint)(y * ITEMS_X + x);
    if (a.batch == 0)
        return;

    const int tile = CAUSAL ? last_group_first(&a.part) : (int)group_id(&a.part, 0);
    tile_rows t;
    tile_find_rows(&t, tile, &a, &arrays);
    tile_find_scales(&arrays, &t, &a);
    const bool quads = tile_all_have_quads(query, key, value, &a);
    tile_queries queries;
    tile_find_queries(&queries, item, &t, &a);
    float4 out[COLUMNS][QUADS];
    tile_clear(out, &state, item);
    if (item == 0) {
        tile_find_heads(&places, &t, &a);
        tile_find_results(&results, &t, &a);
    }
    for (int n = x; n < ROWS; n += ITEMS_X)
        tile_find_range(&ranges, y * ROWS + n, &t, &a);
#if SELECTIVE
    int flag = 0;
    if (item == 0)
        attended[0] = 0;
#endif
    barrier(CLK_LOCAL_MEM_FENCE);
#if WHOLE_QUERY
#pragma unroll 1
    for (int c = 0; c < QUERY_CHUNKS; c++) {
        float4 next_query[LOADS(TILE_Q)];
        tile_load_query(next_query, query, &queries, &places, item, c * CHUNK, quads);
        tile_put((local float *)(query_stage + c * QUERY_HALF), next_query, item, TILE_Q);
    }
#endif

    for (int k0 = t.begin / TILE_K * TILE_K; k0 < t.end; k0 += TILE_K) {
        const bool mixed = tile_is_mixed(&t, k0);
        const uint mask = mixed ? tile_mask(&ranges, &t, x, y, k0, &a, &arrays) : ~0u;
#if INDIRECT
        tile_look_up(&places, item, k0, &t, &a, &arrays);
#endif
#if SELECTIVE
        /* The next tile's flag was last read before this tile's barrier, and is first set after it. */
        const int next = flag == 2 ? 0 : flag + 1;
        if (mask)
            atomic_or(&attended[flag], 1);
        if (item == 0)
            attended[next] = 0;
#endif
#if INDIRECT || SELECTIVE
        barrier(CLK_LOCAL_MEM_FENCE);
#endif
#if SELECTIVE
        const int any_attended = attended[flag];
        flag = next;
        if (!any_attended)
            continue;
#endif

        float4 s[KEYS][QUADS], row_max[QUADS], rescale[QUADS];
#pragma unroll
        for (int k = 0; k < KEYS; k++)
            for (int r = 0; r < QUADS; r++)
                s[k][r] = (float4)(0.0f);
        tile_keys keys;
        float4 next_key[LOADS(TILE_K)], next_value[VALUE_LOADS];
        tile_find_keys(&keys, &places, item, k0, &t, &a, &arrays);
#if !WHOLE_QUERY
        float4 next_query[LOADS(TILE_Q)];
#endif
        /* The next chunk is on its way while the products of one are computed; the first one's turn has no products, and behind the
         * last are zeros and no reads. */
#pragma unroll 1
        for (int d0 = -CHUNK, now = 1; d0 < D_K; d0 += CHUNK, now = 1 - now) {
            tile_load_key(next_key, key, &keys, &places, item, d0 + CHUNK, quads, &a, &arrays);
#if WHOLE_QUERY
            const local float4 *chunk = query_stage + d0 / CHUNK * QUERY_HALF;
#else
            const local float4 *chunk = query_stage + now * QUERY_HALF;
            tile_load_query(next_query, query, &queries, &places, item, d0 + CHUNK, quads);
#endif
#if ADDITIVE
            if (d0 >= 0)
                tile_add_tanh(s, chunk, stage + now * KEY_HALF, weight + now * CHUNK, x, y);
            tile_stage_vector(weight + (1 - now) * CHUNK, item, d0 + CHUNK, &t, &a, &arrays);
#else
            if (d0 >= 0)
                tile_multiply(s, chunk + y * QUADS, Q_QUADS, stage + now * KEY_HALF + x, K_STRIDE / 4, CHUNK, KEYS / 4);
#endif
            tile_put((local float *)(stage + (1 - now) * KEY_HALF), next_key, item, TILE_K);
#if !WHOLE_QUERY
            tile_put((local float *)(query_stage + (1 - now) * QUERY_HALF), next_query, item, TILE_Q);
#endif
            barrier(CLK_LOCAL_MEM_FENCE);
        }

        tile_load_value(next_value, value, &places, item, k0, 0, quads, &t, &a, &arrays);
        tile_scores(prob, s, row_max, mixed, mask, &t, x, y, k0, &a, &arrays);
/* The row maximum over the tile: of each item's own keys, of a sub-group's, then of all partial maxima in the same order. */
#pragma unroll
        for (int r = 0; r < QUADS; r++)
            row_max[r] = tile_row_max(row_max[r], (int)item, stage + VALUE_HALF);
#if PARTIALS > 1
#pragma unroll
        for (int r = 0; r < QUADS; r++)
            if (partial * ROW_ITEMS == x)
                stage[PARTIALS_AT + partial * Q_QUADS + y * QUADS + r] = row_max[r];
        barrier(CLK_LOCAL_MEM_FENCE);
#endif
#if DROPOUT
        const uint keeps = tile_dropout(&t, x, y, k0, &a);
#else
        const uint keeps = ~0u;
#endif
        tile_softmax(prob, stage + PARTIALS_AT, row_max, &state, rescale, keeps, x, y, &a);
        tile_rescale(out, rescale);
        tile_put_value(stage, next_value, item);
        barrier(CLK_LOCAL_MEM_FENCE);

#pragma unroll 1
        for (int p0 = 0, now = 0; p0 < TILE_K; p0 += VALUE_ROWS, now = 1 - now) {
            tile_load_value(next_value, value, &places, item, k0, p0 + VALUE_ROWS, quads, &t, &a, &arrays);
            tile_multiply(out, prob + p0 * Q_QUADS + y * QUADS, Q_QUADS, stage + now * VALUE_HALF + x, VALUE_QUADS,
                          VALUE_ROWS, COLUMN_QUADS);
            tile_put_value(stage + (1 - now) * VALUE_HALF, next_value, item);
            barrier(CLK_LOCAL_MEM_FENCE);
        }
    }

    tile_publish_rows(stage, prob, &state, x, y);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item < TILE_Q)
        tile_finish((local float *)stage, (const local float *)prob, &results, item, &t, lse, entropy, &a, &arrays);
    barrier(CLK_LOCAL_MEM_FENCE);
    tile_scale_output(out, stage + y * QUADS);

/* The output is stored through `prob`. */
#pragma unroll
    for (int c4 = 0; c4 < COLUMN_QUADS; c4++) {
#pragma unroll
        for (int c = 0; c < 4; c++)
            for (int r = 0; r < QUADS; r++)
                prob[(c * ITEMS_X + x) * Q_QUADS + y * QUADS + r] = out[4 * c4 + c][r];
        barrier(CLK_LOCAL_MEM_FENCE);
        tile_store(output, (const local float *)prob, results.output, c4, item, &t, &a);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
