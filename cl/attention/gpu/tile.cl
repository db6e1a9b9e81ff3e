/* Attention for GPU-class devices: a work-group owns TILE_Q queries of one head and walks over the keys
 * in tiles of TILE_K with an online softmax; scores never leave the chip.
 *
 *   O[i,:] = sum_j keep_ij p_ij V[j,:] / sum_j p_ij,   p_ij = exp(s_ij - max_j s_ij),   s_ij: attention/core.h
 *   lse[i] = log sum_j exp(s_ij),   entropy[i] = -sum_j P_ij log P_ij
 *
 * Arrays, strides and macros: attention/core.h, all of it but DOUBLE; geometry: attention/gpu/shape.h.
 * Tested sets (TILE_Q x TILE_K, ITEMS_X x ITEMS_Y, CHUNK, VALUE_ROWS), each with every feature:
 *   6 KiB    16 x 32,  8 x 4,   16, 8      (software rasterisers, whose compilers are slow)
 * SUB_GROUPS 0; 1 and 4 with some of them.
 *
 * NDRange: local (ITEMS_X, ITEMS_Y, 1); global (ITEMS_X * ceil(launch_queries / TILE_Q), ITEMS_Y * launch_heads,
 * batch).  With PACK_HEADS there are launch_queries * group rows and a work-group for each key/value head, which reads
 * K and V once for all of its query heads.  Causal work-groups take the last, longest tiles of queries first.
 *
 * Local memory, in bytes:
 *   4 * TILE_K * (TILE_Q + 4)                                              the probabilities
 * + 4 * max(CHUNK * (TILE_K + 4 + TILE_Q + 4),                             K and Q staged,
 *           VALUE_ROWS * roundup(D_V, 4 * ITEMS_X), ITEMS_X * (TILE_Q + 4))  V, row reductions
 * + 8 * TILE_Q                                                           the keys that rows attend
 * + INDIRECT: 8 * TILE_K * (2 + a scale of keys + a scale of values)       where a tile's rows lie
 * + 4 * CHUNK (ADDITIVE) + 16 + 24                                         the vector, flags, where results lie
 * Columns of Q and K and the probabilities of a key are TILE + 4 floats apart: 32 neighbouring items store to 32
 * different banks while each 8 of them read 32 neighbouring bytes of global memory, and the inner loops read whole
 * aligned float4s, broadcast along one axis and consecutive along the other.
 *
 * Barriers: every loop that holds one has a trip count that is the same for the whole work-group, and what leaves a
 * pass early is decided by values that all items share.  `stage` is free for writing whenever a barrier has
 * passed since it was last read; others' parts of `prob` are read between the softmax's last barrier and the pass's.  With
 * sub-groups that hold whole rows of items the softmax has one barrier less.
 *
 * Tiles of keys that no row attends by lengths, causality or window are not visited; where a mask, a bias or mask_mod
 * could exclude the whole tile, the items look first, and one that nobody attends is left before K and V are read.
 * Tiles that are attended whole pay for no comparison.
 *
 * State: scores, maximum, sum and accumulators are float.  A score that is not attended is replaced by
 * -inf, which makes its probability exactly +0.  A row with nothing attended gives +0 and lse -inf; NaN
 * or +inf in an attended score makes the row NaN (the maximum drops NaN, the probabilities carry it).
 * K and V beyond the item's lengths, or no longer in a ring, and Q beyond its length are never read.
 *
 * Needs OpenCL C 1.2 and the local memory above; else attention_generic takes over.  On llvmpipe (Mesa
 * 22.3), which stops all loops of a work-item silently after 65,535 iterations in total, fewer keys fit: the host's
 * attention_tile.c counts. */
#include "attention/args.h"
#include "attention/user.h"
#include "attention/core.h"
#include "attention/gpu/shape.h"
#include "attention/gpu/rows.h"
#include "attention/gpu/load.h"
#include "attention/gpu/product.h"
#include "attention/gpu/softmax.h"

SUB_GROUP_KERNEL
GROUP_SIZE(ITEMS_X, ITEMS_Y, 1)
kernel void attention_tile(const global ELEMENT(Q_TYPE) *query, const global ELEMENT(K_TYPE) *key,
                           const global ELEMENT(V_TYPE) *value,
                           ATTENTION_SIDE_PARAMETERS global ELEMENT(O_TYPE) *output,
                           ATTENTION_RESULT_PARAMETERS attention_args a)
{
    local float4 stage[STAGE_FLOATS / 4];
    local float4 prob[TILE_K * Q_QUADS];
    local tile_ranges ranges;
    local tile_places places;
    local tile_results results;
#if ADDITIVE
    local float weight[CHUNK];
#endif
#if SELECTIVE
    local int some[3]; /* by turns: whether any item attends anything of the tile */
#endif
#if CANCEL
    local int idle;
#endif
    attention_side side = ATTENTION_SIDE;
    const int x = (int)get_local_id(0), y = (int)get_local_id(1);
    const int part = x / TOGETHER;
    const uint item = (uint)(y * ITEMS_X + x);
    if (a.batch == 0)
        return;
#if CANCEL
    /* One item looks, for the flag may change between two looks. */
    if (item == 0)
        idle = attention_idle(&a, &side);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (idle)
        return;
#endif

    const int tile = CAUSAL ? (int)(get_num_groups(0) - 1 - get_group_id(0)) : (int)get_group_id(0);
    tile_rows t;
    tile_find_rows(&t, tile, &a, &side);
    tile_find_scales(&side, &t, &a);
    local float *stage_key = (local float *)stage;
    local float *stage_query = stage_key + CHUNK * K_STRIDE;
    tile_state state;
    float4 out[COLUMNS][QUADS];
#pragma unroll
    for (int r = 0; r < QUADS; r++) {
        state.top[r] = (float4)(-INFINITY);
        state.sum[r] = (float4)(0.0f);
#if ENTROPY
        state.moment[r] = (float4)(0.0f);
#endif
#pragma unroll
        for (int c = 0; c < COLUMNS; c++)
            out[c][r] = (float4)(0.0f);
    }
    if (item == 0)
        tile_find_results(&results, &t, &a);
    for (int n = x; n < ROWS; n += ITEMS_X)
        tile_find_range(&ranges, y * ROWS + n, &t, &a);
#if SELECTIVE
    int turn = 0;
    if (item == 0)
        some[0] = 0;
#endif
    barrier(CLK_LOCAL_MEM_FENCE);

    for (int k0 = t.begin / TILE_K * TILE_K; k0 < t.end; k0 += TILE_K) {
        const bool mixed = tile_is_mixed(&t, k0);
        const uint bits = mixed ? tile_attended(&ranges, &t, x, y, k0, &a, &side) : ~0u;
#if INDIRECT
        tile_look_up(&places, item, k0, &t, &a, &side);
#endif
#if SELECTIVE
        /* The next turn's flag was last read before this turn's barrier, and is first set after it. */
        const int next = turn == 2 ? 0 : turn + 1;
        if (bits)
            atomic_or(&some[turn], 1);
        if (item == 0)
            some[next] = 0;
#endif
#if INDIRECT || SELECTIVE
        barrier(CLK_LOCAL_MEM_FENCE);
#endif
#if SELECTIVE
        const int any = some[turn];
        turn = next;
        if (!any)
            continue;
#endif

        float4 s[KEYS][QUADS], highest[QUADS], factor[QUADS];
#pragma unroll
        for (int k = 0; k < KEYS; k++)
            for (int r = 0; r < QUADS; r++)
                s[k][r] = (float4)(0.0f);
        for (int d0 = 0; d0 < D_K; d0 += CHUNK) {
            tile_stage_key(stage_key, key, &places, item, k0, d0, &t, &a, &side);
            tile_stage_query(stage_query, query, item, d0, &t, &a);
#if ADDITIVE
            if (item < CHUNK)
                weight[item] =
                    d0 + (int)item < D_K
                        ? side.vector[a.vector.offset + t.item.h * a.vector.head + (d0 + (int)item) * a.vector.col]
                        : 0.0f;
#endif
            barrier(CLK_LOCAL_MEM_FENCE);
#if ADDITIVE
            tile_add_tanh(s, (const local float4 *)stage_query, stage, weight, x, y);
#else
            const local float4 *rows = (const local float4 *)stage_query;
            ADD_TILE(s, rows, Q_QUADS, stage, K_STRIDE / 4, CHUNK, KEYS / 4)
#endif
            barrier(CLK_LOCAL_MEM_FENCE);
        }

        tile_scores(prob, s, highest, mixed, bits, &t, x, y, k0, &a, &side);
/* The row maximum over the tile: each item's own, a sub-group's, then all parts of the row, in the same order. */
#pragma unroll
        for (int r = 0; r < QUADS; r++)
            highest[r] = tile_highest(highest[r], (int)item, stage);
#if PARTS > 1
#pragma unroll
        for (int r = 0; r < QUADS; r++)
            if (part * TOGETHER == x)
                stage[PARTS_AT + part * Q_QUADS + y * QUADS + r] = highest[r];
        barrier(CLK_LOCAL_MEM_FENCE);
#endif
#if DROPOUT
        const uint kept = tile_kept(&t, x, y, k0, &a);
#else
        const uint kept = ~0u;
#endif
        tile_softmax(prob, stage + PARTS_AT, highest, &state, factor, kept, x, y, &a);
#pragma unroll
        for (int r = 0; r < QUADS; r++) {
#pragma unroll
            for (int c = 0; c < COLUMNS; c++)
                out[c][r] *= factor[r];
        }
        barrier(CLK_LOCAL_MEM_FENCE);

        for (int p0 = 0; p0 < TILE_K; p0 += VALUE_ROWS) {
            tile_stage_value((local float *)stage, value, &places, item, k0, p0, &t, &a, &side);
            barrier(CLK_LOCAL_MEM_FENCE);
            ADD_TILE(out, prob + p0 * Q_QUADS, Q_QUADS, stage, VALUE_STRIDE / 4, VALUE_ROWS, COLUMN_QUADS)
            barrier(CLK_LOCAL_MEM_FENCE);
        }
    }

    tile_share(stage, prob, &state, x, y);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item < TILE_Q)
        tile_finish((local float *)stage, (const local float *)prob, &results, item, &t, ATTENTION_RESULT_ARGUMENTS & a,
                    &side);
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
    for (int r = 0; r < QUADS; r++) {
        const float4 factor = stage[y * QUADS + r];
#pragma unroll
        for (int c = 0; c < COLUMNS; c++)
            out[c][r] = select(out[c][r] * factor, (float4)(0.0f), factor == (float4)(0.0f));
    }

/* The output leaves through `prob`, so that neighbouring items store neighbouring columns. */
#pragma unroll
    for (int c4 = 0; c4 < COLUMN_QUADS; c4++) {
#pragma unroll
        for (int c = 0; c < 4; c++)
            for (int r = 0; r < QUADS; r++)
                prob[(c * ITEMS_X + x) * Q_QUADS + y * QUADS + r] = out[4 * c4 + c][r];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int n = 0; n < TILE_Q * 4 / ITEMS_Y; n++) {
            const uint c = (item + n * ITEMS) % BLOCK;
            const int i = (int)((item + n * ITEMS) / BLOCK), e = (int)c + c4 * BLOCK;
            tile_row row;
            tile_find_row(&row, i, &t, &a);
            const float o = ((local float *)prob)[(c % 4 * ITEMS_X + c / 4) * Q_STRIDE + i];
            if (row.stored && e < D_V)
                STORE(O_TYPE, output, results.output + tile_result_row(&a.output, &row) + e * a.output.col, o);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
