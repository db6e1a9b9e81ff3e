/* Attention by a GPU's matrix engine, for float16 or bfloat16 arrays: a sub-group owns 16 or 32 queries of one head, a
 * work-group WARPS times as many, and walks over the keys in tiles of TILE_K with an online softmax in registers.
 *
 *   O[i,:] = sum_j p_ij V[j,:] / sum_j p_ij,   p_ij = exp(s_ij - max_j s_ij),   s_ij = scale * q_i . k_j
 *   lse[i] = log sum_j exp(s_ij)
 *
 * Arrays, strides and macros: attention/core.h, of it LSE, SINKS, CAUSAL, WINDOW, BOTTOM_RIGHT, QUERY_LENGTHS, KEY_LENGTHS,
 * and POSITIONS; the engine and its macros: engine/fragment.h.  Besides:
 *   WARPS     sub-groups of a work-group                    1 and up                    tested: 1 2 4
 *   SQUARES_Q squares of 16 queries that a sub-group owns   1 2                         1 2
 *   TILE_K    keys of a tile                                16 32 64                    32 64
 *   WIDTH     elements of a row in local memory             64 128 256; at least D_K, D_V   each
 * Only MATRIX_MMA, whose C has the map of A, so that scores become the second product's operand where they are.
 *
 * NDRange: local (MATRIX_LANES, WARPS, 1); groups (ceil(query_length / TILE_Q), heads, batch), TILE_Q being
 * 16 * SQUARES_Q * WARPS.  Causal
 * work-groups take the last, longest rows first.
 * Who owns what: lane l of a sub-group has, of each 16 x 16 square of scores and of each 16 columns of its rows' output,
 * the floats that matrix_c_row and matrix_c_column name: two rows of each square, l/4 and l/4 + 8.  The four lanes of a row
 * find its maximum and its sum by two exchanges.  What is loaded of K and V serves all squares of the sub-group.
 *
 *                           keys, TILE_K ->                        columns ->
 *               +----+   +----+----+----+----+                  +----+----+----+
 *   sub-group 0 | Q  |   | S  | 16 |    |    |   -> softmax,    | O  | 16 |    |     Each sub-group has all of its S
 *     rows      +----+   +----+ x16+----+----+      then as A   +----+ x16+----+     and O in registers; Q, K and V lie
 *   sub-group 1 |    |   |    |    |    |    |      times V     |    |    |    |     in local memory for all of them.
 *               +----+   +----+----+----+----+                  +----+----+----+
 *
 * Local memory: 2 * WIDTH * (TILE_Q + 4 * TILE_K) bytes: Q, two tiles of K and two of V.
 * Barriers: one a tile: behind it the tile's copies are there, and the tile before it, whose
 * place the next one's copies take, has been read by all.  The emulation's exchanges add their own.  All are in control
 * flow that the whole work-group shares.
 *
 * Accumulators, maxima and sums are float.  p is rounded to the arrays' type before it meets V, the sum is of p as it was.
 * A score that is not attended is -inf and its p exactly +0; rows of K and V outside of what the work-group's queries
 * attend are 0 and are not read.  A row that attends nothing gives +0 and lse -inf, NaN or +inf among attended scores NaN.
 * Without a matrix engine: attention_tile. */
#include "attention/core.h"
#include "engine/fragment.h"
#include "engine/copy.h"

#ifndef WARPS
#define WARPS 4
#endif
#ifndef SQUARES_Q
#define SQUARES_Q 1
#endif
#ifndef TILE_K
#define TILE_K 64
#endif
#ifndef WIDTH
#define WIDTH 64
#endif

#if MATRIX_ENGINE != MATRIX_MMA
#error "only for the engine whose C is laid out as its A"
#endif
#if WIDTH < D_K || WIDTH < D_V || WIDTH % 64 || TILE_K % 16 || SQUARES_Q < 1
#error "WIDTH must be a multiple of 64 and hold a row, TILE_K a multiple of 16"
#endif
#if MASK || BIAS || ALIBI || SOFTCAP || SCORE_MOD || MASK_MOD || ADDITIVE || DROPOUT || ENTROPY || RING || SPLIT || \
    GIVEN(PAGED)
#error "this kernel has scaled products and ranges of keys only"
#endif

#define LANES_ALL (MATRIX_LANES * WARPS)
#define TILE_Q (16 * SQUARES_Q * WARPS)
#if LANES_ALL % (WIDTH / 8) || TILE_K * (WIDTH / 8) % LANES_ALL || TILE_Q * (WIDTH / 8) % LANES_ALL
#error "the items must make up whole rows, and whole copies a tile"
#endif
#define SQUARES (TILE_K / 16)
#define DEPTHS ((D_K + 15) / 16)
#define COLUMNS ((D_V + 15) / 16)
#define SCRATCH MATRIX_SCRATCH(SQUARES_Q, 1)
#define ROWS (2 * SQUARES_Q)                    /* that a lane has floats of: two of each of its sub-group's squares */
#define ROW_OF(i, n) (2 * (i) + ((n) >> 1 & 1)) /* the one of these that float number n of square i belongs to */

/* Whether rows that begin at `from` consist of aligned pieces of 16 bytes. */
static inline bool is_aligned(const global ushort *from, const array4 *array)
{
    return array->col == 1 && (array->row & 7) == 0 && ((size_t)from & 15) == 0;
}

/* Copies rows first .. first + rows - 1 of a head into a tile; those outside [begin, end) become 0.  An item copies the same
 * eight columns of each of its rows. */
static inline void stage_rows(local ushort *tile, const global ushort *from, const array4 *array, int first, int rows,
                              int begin, int end, int size, int item, bool aligned)
{
    const int column = (item & (WIDTH / 8 - 1)) * 8, count = clamp(size - column, 0, 8);
    const int own_row = item / (WIDTH / 8), copies = rows * (WIDTH / 8) / LANES_ALL;
    from += count ? column * array->col : 0;
    if (aligned && first >= begin && first + rows <= end) {
        const global ushort *at = from + (first + own_row) * array->row;
        MATRIX_UNROLL
        for (int m = 0; m < copies; m++) {
            const int row = own_row + m * (LANES_ALL / (WIDTH / 8));
            matrix_copy((local uint4 *)(tile + MATRIX_AT(row, column, WIDTH)), at, 2 * count);
            at += LANES_ALL / (WIDTH / 8) * array->row;
        }
        return;
    }
    if (aligned) {
        MATRIX_UNROLL
        for (int m = 0; m < copies; m++) {
            const int row = own_row + m * (LANES_ALL / (WIDTH / 8)), j = first + row;
            const bool inside = j >= begin && j < end;
            matrix_copy((local uint4 *)(tile + MATRIX_AT(row, column, WIDTH)), inside ? from + j * array->row : from,
                        inside ? 2 * count : 0);
        }
        return;
    }
    _Pragma("unroll 1")
    for (int n = 0; n < copies * 8; n++) {
        const int row = own_row + (n >> 3) * (LANES_ALL / (WIDTH / 8)), j = first + row;
        ushort x = 0;
        if (j >= begin && j < end && (n & 7) < count)
            x = from[j * array->row + (n & 7) * array->col];
        tile[MATRIX_AT(row, column, WIDTH) + (n & 7)] = x;
    }
}

/* The maximum, or the sum, over the four lanes that share a row. */
static inline float reduce_max(float x, int lane, local uint *scratch)
{
    x = fmax(x, matrix_swap(x, 1, lane, scratch));
    return fmax(x, matrix_swap(x, 2, lane, scratch));
}

static inline float reduce_sum(float x, int lane, local uint *scratch)
{
    x += matrix_swap(x, 1, lane, scratch);
    return x + matrix_swap(x, 2, lane, scratch);
}

/* The state of the online softmax of a lane's rows. */
typedef struct lane_rows {
    float row_max[ROWS], subtracted[ROWS]; /* `subtracted` is the rounded row_max * exponent, or 0 before any key */
    float row_sum[ROWS], rescale[ROWS];
} lane_rows;

/* S = Q K^T for one tile of keys; row0 is the sub-group's first in the tile of Q. */
static inline void score_tile(matrix_c s[SQUARES][SQUARES_Q], const local ushort *queries, int row0,
                              const local ushort *keys, int lane, local uint *scratch)
{
    MATRIX_UNROLL
    for (int j = 0; j < SQUARES; j++) {
        MATRIX_UNROLL
        for (int i = 0; i < SQUARES_Q; i++) {
            MATRIX_UNROLL
            for (int n = 0; n < MATRIX_C; n++)
                s[j][i].sum[n] = 0.0f;
        }
    }
    MATRIX_UNROLL
    for (int d = 0; d < DEPTHS; d++) {
        matrix_a of_q[SQUARES_Q];

        MATRIX_UNROLL
        for (int i = 0; i < SQUARES_Q; i++)
            matrix_load_a(&of_q[i], queries, WIDTH, row0 + i * 16, d * 16, lane);
        MATRIX_UNROLL
        for (int j = 0; j < SQUARES; j++) {
            matrix_b of_k;

            matrix_load_b(&of_k, keys, WIDTH, j * 16, d * 16, lane);
            matrix_multiply(s[j], of_q, SQUARES_Q, &of_k, 1, lane, scratch);
        }
    }
}

/* Which of the work-group's rows a lane's row r is; row0 is the sub-group's first. */
static inline int row_of(int row0, int r, int lane)
{
    return row0 + (r >> 1) * 16 + matrix_c_row(lane, 2 * (r & 1));
}

/* Replaces the scores of keys that a row does not attend by -inf; k0 is the tile's first key, q0 the work-group's first query
 * of `attending`.  What a row attends is found anew for each tile that needs it: kept, it would take registers from all. */
static inline void mask_tile(matrix_c s[SQUARES][SQUARES_Q], int k0, int q0, int attending, int row0, int lane,
                             const attention_item *of, const attention_args *a)
{
    MATRIX_UNROLL
    for (int r = 0; r < ROWS; r++) {
        const int row = row_of(row0, r, lane);
        int begin = 0, end = 0;

        if (row < attending)
            attention_keys(of, q0 + row, q0 + row, a, &begin, &end);
        MATRIX_UNROLL
        for (int j = 0; j < SQUARES; j++) {
            MATRIX_UNROLL
            for (int n = 0; n < MATRIX_C; n++) {
                const int at = k0 + j * 16 + matrix_c_column(lane, n);

                if (ROW_OF(r >> 1, n) == r && (at < begin || at >= end))
                    s[j][r >> 1].sum[n] = -INFINITY;
            }
        }
    }
}

/* Turns scores into probabilities, and updates the rows' state. */
static inline void softmax_tile(matrix_c s[SQUARES][SQUARES_Q], lane_rows *rows, float exponent, int lane,
                                local uint *scratch)
{
    float row_max[ROWS], row_sum[ROWS];

    MATRIX_UNROLL
    for (int r = 0; r < ROWS; r++) {
        row_max[r] = rows->row_max[r];
        row_sum[r] = 0.0f;
    }
    MATRIX_UNROLL
    for (int j = 0; j < SQUARES; j++) {
        MATRIX_UNROLL
        for (int i = 0; i < SQUARES_Q; i++) {
            MATRIX_UNROLL
            for (int n = 0; n < MATRIX_C; n++)
                row_max[ROW_OF(i, n)] = fmax(row_max[ROW_OF(i, n)], s[j][i].sum[n]);
        }
    }
    MATRIX_UNROLL
    for (int r = 0; r < ROWS; r++) {
        row_max[r] = reduce_max(row_max[r], lane, scratch);
        /* While nothing has been attended the maximum is -inf, and 0 stands in for it: -inf - -inf is NaN.  The rounded
         * product is subtracted in both places, so that its rounding cancels. */
        const float subtracted = row_max[r] == -INFINITY ? 0.0f : row_max[r] * exponent;
        rows->rescale[r] = rows->row_max[r] == -INFINITY ? 0.0f : matrix_exp2(rows->subtracted[r] - subtracted);
        rows->row_max[r] = row_max[r];
        rows->subtracted[r] = subtracted;
    }
    MATRIX_UNROLL
    for (int j = 0; j < SQUARES; j++) {
        MATRIX_UNROLL
        for (int i = 0; i < SQUARES_Q; i++) {
            MATRIX_UNROLL
            for (int n = 0; n < MATRIX_C; n++) {
                const int r = ROW_OF(i, n);

                s[j][i].sum[n] = matrix_exp2(fma(s[j][i].sum[n], exponent, -rows->subtracted[r]));
                row_sum[r] += s[j][i].sum[n];
            }
        }
    }
    MATRIX_UNROLL
    for (int r = 0; r < ROWS; r++)
        rows->row_sum[r] = fma(rows->row_sum[r], rows->rescale[r], row_sum[r]);
}

/* O = O * rescale + P V for one tile of keys. */
static inline void add_values(matrix_c out[COLUMNS][SQUARES_Q], matrix_c s[SQUARES][SQUARES_Q], const lane_rows *rows,
                              const local ushort *values, int lane, local uint *scratch)
{
    bool rescales = false;

    MATRIX_UNROLL
    for (int r = 0; r < ROWS; r++)
        rescales = rescales || rows->rescale[r] != 1.0f;
    if (rescales) { /* seldom after the first tiles */
        MATRIX_UNROLL
        for (int c = 0; c < COLUMNS; c++) {
            MATRIX_UNROLL
            for (int i = 0; i < SQUARES_Q; i++) {
                MATRIX_UNROLL
                for (int n = 0; n < MATRIX_C; n++)
                    out[c][i].sum[n] *= rows->rescale[ROW_OF(i, n)];
            }
        }
    }
    MATRIX_UNROLL
    for (int j = 0; j < SQUARES; j++) {
        matrix_a of_p[SQUARES_Q];

        MATRIX_UNROLL
        for (int i = 0; i < SQUARES_Q; i++)
            matrix_chain(&of_p[i], &s[j][i], lane, scratch);
        MATRIX_UNROLL
        for (int c = 0; c < COLUMNS; c++) {
            matrix_b of_v;

            matrix_load_b_transposed(&of_v, values, WIDTH, j * 16, c * 16, lane);
            matrix_multiply(out[c], of_p, SQUARES_Q, &of_v, 1, lane, scratch);
        }
    }
}

GROUP_SIZE(MATRIX_LANES, WARPS, 1)
kernel void attention_matrix(ATTENTION_PARAMETERS)
{
    local uint4 query_tile[TILE_Q * WIDTH / 8], key_tiles[2 * TILE_K * WIDTH / 8], value_tiles[2 * TILE_K * WIDTH / 8];
    local uint all_scratch[WARPS * SCRATCH + 1];
    optional_arrays arrays = OPTIONAL_ARRAYS;
    if (a.batch == 0)
        return;

    int lane = (int)get_local_id(0);
    const int warp = (int)get_local_id(1), item = warp * MATRIX_LANES + lane;
    local uint *scratch = all_scratch + warp * SCRATCH;
    local ushort *queries = (local ushort *)query_tile;
    local ushort *key_tile = (local ushort *)key_tiles, *value_tile = (local ushort *)value_tiles;
    const int tile = CAUSAL ? last_group_first(&a.part) : (int)group_id(&a.part, 0);
    const int first_row = tile * TILE_Q, h = (int)group_id(&a.part, 1);
    attention_item of;
    attention_item_of(&of, (int)group_id(&a.part, 2), h, &a, &arrays);

    /* The rows, those of them that attend, and the keys that any or all of these attend. */
    const int q0 = first_row, rows = min(a.query_length, of.rows) - q0;
    const int attending = min(rows, of.queries - q0);
    int begin = 0, end = 0, all_begin = 0, all_end = 0, unused;
    if (attending > 0) {
        const int last = q0 + min(attending, TILE_Q) - 1;
        attention_keys(&of, q0, last, &a, &begin, &end);
        attention_keys(&of, last, last, &a, &all_begin, &unused);
        attention_keys(&of, q0, q0, &a, &unused, &all_end);
    }
    const global ushort *of_key = (const global ushort *)key + attention_head(&a.key, &of, &a);
    const global ushort *of_value = (const global ushort *)value + attention_head(&a.value, &of, &a);
    const global ushort *of_query = (const global ushort *)query + attention_query_row(&a.query, &of, 0);
    const bool key_aligned = is_aligned(of_key, &a.key), value_aligned = is_aligned(of_value, &a.value);

    stage_rows(queries, of_query, &a.query, q0, TILE_Q, q0, q0 + attending, D_K, item, is_aligned(of_query, &a.query));

    const int row0 = warp * 16 * SQUARES_Q;
    matrix_c out[COLUMNS][SQUARES_Q];
    lane_rows own;
    MATRIX_UNROLL
    for (int c = 0; c < COLUMNS; c++) {
        MATRIX_UNROLL
        for (int i = 0; i < SQUARES_Q; i++) {
            MATRIX_UNROLL
            for (int n = 0; n < MATRIX_C; n++)
                out[c][i].sum[n] = 0.0f;
        }
    }
    MATRIX_UNROLL
    for (int r = 0; r < ROWS; r++) {
        own.row_max[r] = -INFINITY;
        own.subtracted[r] = own.row_sum[r] = own.rescale[r] = 0.0f;
    }

    const float exponent = a.scale * LOG2E;
    int half_tile = 0;
    stage_rows(key_tile, of_key, &a.key, begin / TILE_K * TILE_K, TILE_K, begin, end, D_K, item, key_aligned);
    stage_rows(value_tile, of_value, &a.value, begin / TILE_K * TILE_K, TILE_K, begin, end, D_V, item, value_aligned);
    matrix_commit();

    for (int k0 = begin / TILE_K * TILE_K; k0 < end; k0 += TILE_K) {
        const local ushort *keys = key_tile + half_tile, *values = value_tile + half_tile;
        half_tile = TILE_K * WIDTH - half_tile;
        matrix_wait(0);
        barrier(CLK_LOCAL_MEM_FENCE);
        stage_rows(key_tile + half_tile, of_key, &a.key, k0 + TILE_K, TILE_K, begin, end, D_K, item, key_aligned);
        stage_rows(value_tile + half_tile, of_value, &a.value, k0 + TILE_K, TILE_K, begin, end, D_V, item,
                   value_aligned);
        matrix_commit();

        MATRIX_FORGET(lane);
        matrix_c s[SQUARES][SQUARES_Q];
        score_tile(s, queries, row0, keys, lane, scratch);
        if (k0 < all_begin || k0 + TILE_K > all_end) /* not all rows attend all of it */
            mask_tile(s, k0, q0, attending, row0, lane, &of, &a);
        softmax_tile(s, &own, exponent, lane, scratch);
        add_values(out, s, &own, values, lane, scratch);
    }
    matrix_wait(0);

    MATRIX_UNROLL
    for (int r = 0; r < ROWS; r++)
        own.row_sum[r] = reduce_sum(own.row_sum[r], lane, scratch);
    MATRIX_UNROLL
    for (int r = 0; r < ROWS; r++) {
        const int i = row_of(row0, r, lane);
        const bool any = i < attending && own.row_sum[r] != 0.0f;
        float row_lse;
        const float factor = attention_finish(any ? own.row_max[r] * a.scale : -INFINITY, any ? own.row_sum[r] : 0.0f,
                                              &of, &a, &arrays, &row_lse);
        if (i >= rows)
            continue;
#if LSE
        if ((lane & 3) == 0)
            lse[attention_result_row(&a.lse, &of, q0 + i)] = row_lse;
#endif
        global ELEMENT(O_TYPE) *to = output + attention_result_row(&a.output, &of, q0 + i);
        MATRIX_UNROLL
        for (int c = 0; c < COLUMNS; c++) {
            MATRIX_UNROLL
            for (int n = 0; n < MATRIX_C; n++) {
                const int e = c * 16 + matrix_c_column(lane, n);
                if (ROW_OF(r >> 1, n) == r && e < D_V)
                    STORE(O_TYPE, to, e * a.output.col, factor == 0.0f ? 0.0f : out[c][r >> 1].sum[n] * factor);
            }
        }
    }
}
