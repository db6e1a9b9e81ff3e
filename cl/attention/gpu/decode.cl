/* Attention of few queries for GPU-class devices: K and V are read once, 16 bytes an item, for all rows of a key/value head.
 *
 *   O[i,:] = sum_j p_ij V[j,:] / sum_j p_ij,   p_ij = exp(s_ij - max_j s_ij),   s_ij: attention/core.h
 *   lse[i] = log sum_j exp(s_ij)
 *
 * A row is a query of one query head, the heads of a key/value head being neighbours.  A work-group owns ROWS rows and walks
 * over the keys; each of its TEAMS teams of 32 items takes 32 of them at a time and has an online softmax of its own, and the
 * teams' results are added up at the end.
 *
 *         KEY_ITEMS items to a key            an item to a key             VALUE_ITEMS items to a value
 *        +----+----+-----+----+              +----+----+-----+            +----+----+-----+----+
 *  32 /  | 16 bytes of K each |   parts of   | scores, and   |  weights   | 16 bytes of V each |    each item adds to
 *  KEY_  +----+----+-----+----+  q.k through | maxima, of    |  through   +----+----+-----+----+    ROWS * VALUE_VECTOR
 *  ITEMS |   the next key     |    `part`    | ROWS rows     |  `weight`  |   the next key     |    columns of O
 *  keys  +----+----+-----+----+              +----+----+-----+            +----+----+-----+----+
 *
 * Arrays, strides and macros: attention/core.h; not DOUBLE, ADDITIVE, DROPOUT, ENTROPY or groups of integers.  Besides:
 *   ROWS          rows of a work-group                                      1 and up          tested: 1 2 4
 *   TEAMS         of 32 items                                               power of two      1 4
 *   LOADS         of 16 bytes that an item has under way at a time          powers of two, at most KEY_ITEMS and VALUE_ITEMS   1 2
 *   KEY_ITEMS     items that share a row of K, VALUE_ITEMS one of V         powers of two up to 32, with 16 bytes each
 * Any strides and any alignment: rows that are no aligned pieces of 16 bytes are read one element at a time.
 *
 * NDRange: local (32, TEAMS, 1); groups (ceil(query_length * group / ROWS), key/value heads, batch).
 * Local memory, in bytes: 4 * TEAMS * (max(ROWS * CHUNK_KEYS * (KEY_ITEMS + 1), 32 * VALUE_VECTOR) + 33 * ROWS), and 68 * ROWS.
 * Barriers: in loops whose trip counts are the same for the whole work-group.  `weight` is written behind the first barrier of
 * the next tile's scores, which nobody passes before all have read it.
 *
 * State is float.  A score that is not attended is -inf and its weight exactly +0; K and V outside of the keys that the
 * work-group's rows attend are not read: the last of these stands in.  A row that attends nothing gives +0 and lse -inf, NaN
 * or +inf among attended scores NaN.  Needs OpenCL C 1.2 and the local memory above; else attention_tile. */
#include "attention/core.h"

#ifndef ROWS
#define ROWS 4
#endif
#ifndef TEAMS
#define TEAMS 4
#endif
#ifndef LOADS
#define LOADS 2
#endif
#if IS_F32(K_TYPE)
#define KEY_VECTOR 4
#define KEY_WORD uint
#define ASK_KEY ask_4
#else
#define KEY_VECTOR 8
#define KEY_WORD ushort
#define ASK_KEY ask_8
#endif
#if IS_F32(V_TYPE)
#define VALUE_VECTOR 4
#define VALUE_WORD uint
#define ASK_VALUE ask_4
#else
#define VALUE_VECTOR 8
#define VALUE_WORD ushort
#define ASK_VALUE ask_8
#endif
#ifndef KEY_ITEMS
#define KEY_ITEMS 16
#endif
#ifndef VALUE_ITEMS
#define VALUE_ITEMS 16
#endif

/* Stands before loops over registers.  A CPU's compiler does better with little code. */
#if LOADS > 2
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("nounroll")
#endif
#define TEAM 32
#define KEYS_AT_ONCE (TEAM / KEY_ITEMS)
#define VALUES_AT_ONCE (TEAM / VALUE_ITEMS)
#define LARGER(x, y) ((x) > (y) ? (x) : (y))
#define CHUNK_KEYS (LOADS * KEYS_AT_ONCE)
#define CHUNK_VALUES (LOADS * VALUES_AT_ONCE)
#define PART LARGER(ROWS *CHUNK_KEYS *(KEY_ITEMS + 1), TEAM *VALUE_VECTOR)

#if DOUBLE || ADDITIVE || DROPOUT || ENTROPY || KEY_GROUPS || VALUE_GROUPS
#error "this kernel has float states, scaled products and arrays without groups only"
#endif
#if KEY_ITEMS * KEY_VECTOR < D_K || VALUE_ITEMS * VALUE_VECTOR < D_V || KEY_ITEMS > TEAM || VALUE_ITEMS > TEAM
#error "a team's items must hold a row"
#endif
#if LOADS > KEY_ITEMS || LOADS > VALUE_ITEMS
#error "more loads than a team has keys for"
#endif
#if (KEY_ITEMS & (KEY_ITEMS - 1)) || (VALUE_ITEMS & (VALUE_ITEMS - 1)) || (TEAMS & (TEAMS - 1))
#error "KEY_ITEMS, VALUE_ITEMS and TEAMS must be powers of two"
#endif

/* Whether all of a head's rows consist of aligned pieces of 16 bytes. */
#define IS_ALIGNED(from, array, vector, size) \
    ((array)->col == 1 && ((array)->row & ((vector) - 1)) == 0 && ((size_t)(from) & 15) == 0 && \
     (size) % (vector) == 0 && PIECES_OF_PAGES(array, vector))
#if GIVEN(PAGED)
#define PIECES_OF_PAGES(array, vector) (((array)->batch & ((vector) - 1)) == 0)
#else
#define PIECES_OF_PAGES(array, vector) 1
#endif

/* Sixteen bytes as floats. */
#define FROM_F32(to, raw) vstore4(as_float4(raw), 0, to)
#define FROM_BF16(to, raw) \
    do { \
        vstore4(as_float4((uint4)((raw).x << 16, (raw).x & 0xffff0000u, (raw).y << 16, (raw).y & 0xffff0000u)), 0, \
                to); \
        vstore4(as_float4((uint4)((raw).z << 16, (raw).z & 0xffff0000u, (raw).w << 16, (raw).w & 0xffff0000u)), 1, \
                to); \
    } while (0)
#define FROM_F16(to, raw) \
    do { \
        ushort halves[8]; \
        vstore8(as_ushort8(raw), 0, halves); \
        for (int e = 0; e < 8; e++) \
            (to)[e] = vload_half(e, (const half *)halves); \
    } while (0)
#define FROM(TYPE, to, raw) JOIN(FROM_, TYPE)(to, raw)

/* Elements first ... of a row, 0 beyond `size`. */
#define DEFINE_ROW_PIECE(NAME, TYPE, VECTOR) \
    static inline void NAME(float to[VECTOR], const global ELEMENT(TYPE) *from, long at, long col, int first, \
                            int size) \
    { \
        for (int e = 0; e < VECTOR; e++) \
            to[e] = first + e < size ? LOAD(TYPE, from, at + (first + e) * col) : 0.0f; \
    }
DEFINE_ROW_PIECE(query_piece, Q_TYPE, KEY_VECTOR)

/* A row of the work-group: its item has the row's own head. */
typedef struct decode_row {
    attention_item item;
    int i;
    bool stored, attends;
} decode_row;

static inline void find_row(decode_row *row, const attention_item *first, int number, const attention_args *a)
{
    const int query = (int)((uint)number / (uint)a->group);
    row->item = *first;
    row->item.h += number - mul24(query, a->group);
    row->i = query;
    row->stored = query < min(a->query_length, first->rows);
    row->attends = row->stored && row->i < first->queries;
}

/* Where key j's row begins, from its head; one that nobody attends is read from the nearest that somebody does. */
static inline long row_place(const array4 *array, int j, int begin, int end, const attention_item *item,
                             const attention_args *a, const optional_arrays *arrays)
{
    return attention_row_of_head(array, item, clamp(j, begin, end - 1), a, arrays);
}

/* An item's part of a key's scores, for every row. */
static inline void multiply_piece(local float *part, float q[ROWS][KEY_VECTOR], const float k[KEY_VECTOR], int key)
{
    UNROLL
    for (int r = 0; r < ROWS; r++) {
        float sum = 0.0f;
        UNROLL
        for (int e = 0; e < KEY_VECTOR; e++)
            sum = FMA(q[r][e], k[e], sum);
        part[(r * CHUNK_KEYS + key) * (KEY_ITEMS + 1)] = sum;
    }
}

/* Sixteen bytes moved down by an element of 4 or of 2 bytes, with another one on top. */
static inline uint4 push_4(uint4 piece, uint word)
{
    return (uint4)(piece.yzw, word);
}

static inline uint4 push_8(uint4 piece, uint word)
{
    /* Not by shifts, of which LLVM makes a funnel shift, nor by shuffles of 2-byte elements: Oclgrind 21.10 does not know the
     * former, and crashes at the latter. */
    return (uint4)(upsample((ushort)piece.y, (ushort)(piece.x >> 16)),
                   upsample((ushort)piece.z, (ushort)(piece.y >> 16)),
                   upsample((ushort)piece.w, (ushort)(piece.z >> 16)), upsample((ushort)word, (ushort)(piece.w >> 16)));
}

/* Asks for pieces of LOADS rows of K, or of V, `apart` keys from one to the next; `head` is where the item's piece begins in
 * its head's row 0, and `count` the elements that it has.  Where elements lie apart the loop over them is not unrolled, whose
 * addresses would take most of the registers. */
#define DEFINE_ASK(NAME, WORD, VECTOR, PUSH) \
    static inline __attribute__((always_inline)) void NAME( \
        uint4 raw[LOADS], const global WORD *head, bool aligned, const array4 *array, int count, int key, int apart, \
        int begin, int end, const attention_item *item, const attention_args *a, const optional_arrays *arrays) \
    { \
        const global WORD *from[LOADS]; \
        UNROLL \
        for (int u = 0; u < LOADS; u++) { \
            from[u] = head + row_place(array, key + u * apart, begin, end, item, a, arrays); \
            raw[u] = (uint4)(0); \
            if (aligned && count > 0) \
                raw[u] = *(const global uint4 *)from[u]; \
        } \
        if (aligned) \
            return; \
        _Pragma("nounroll") \
        for (int e = 0; e < VECTOR; e++) { \
            UNROLL \
            for (int u = 0; u < LOADS; u++) \
                raw[u] = PUSH(raw[u], e < count ? (uint)from[u][e * array->col] : 0); \
        } \
    }
DEFINE_ASK(ask_4, uint, 4, push_4)
DEFINE_ASK(ask_8, ushort, 8, push_8)

/* The kernel asks by these for a team's next keys, or values, from that one on. */
#define ASK_KEYS(from) \
    ASK_KEY(next, key_piece, aligned, &a.key, key_count, (from) + own_key, KEYS_AT_ONCE, begin, end, &head, &a, &arrays)
#define ASK_VALUES(from) \
    ASK_VALUE(next, value_piece, aligned, &a.value, value_count, (from) + own_value, VALUES_AT_ONCE, begin, end, \
              &head, &a, &arrays)

/* The sums of what a team's items have of each score of CHUNK_KEYS keys, into weight[row][key]. */
static inline void add_parts(local float *weight, const local float *part, int lane)
{
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint n = (uint)lane; n < ROWS * CHUNK_KEYS; n += TEAM) {
        float sum = 0.0f;
        UNROLL
        for (int e = 0; e < KEY_ITEMS; e++)
            sum += part[n * (KEY_ITEMS + 1) + e];
        weight[n / CHUNK_KEYS * TEAM + n % CHUNK_KEYS] = sum;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* out += weight * V, of one key. */
static inline void add_piece(float out[ROWS][VALUE_VECTOR], const local float *weight, const float v[VALUE_VECTOR])
{
    UNROLL
    for (int r = 0; r < ROWS; r++) {
        UNROLL
        for (int e = 0; e < VALUE_VECTOR; e++)
            out[r][e] = FMA(weight[r * TEAM], v[e], out[r][e]);
    }
}

GROUP_SIZE(TEAM, TEAMS, 1)
kernel void attention_decode_rows(ATTENTION_PARAMETERS)
{
    local float parts[TEAMS * PART], weights[TEAMS * ROWS * TEAM], team_max[TEAMS * ROWS], factors[ROWS];
    local decode_row rows[ROWS]; /* here, since they would fill scalar registers */
    optional_arrays arrays = OPTIONAL_ARRAYS;
    const int lane = (int)get_local_id(0), team = (int)get_local_id(1), item = team * TEAM + lane;
    if (a.batch == 0)
        return;

    /* The first query head of the key/value head, and the keys that some row attends. */
    const int row0 = (int)group_id(&a.part, 0) * ROWS;
    attention_item head;
    attention_item_of(&head, (int)group_id(&a.part, 2), (int)group_id(&a.part, 1) * a.group, &a, &arrays);
    const int first = row0 / a.group;
    const int last = min((min(row0 + ROWS, a.query_length * a.group) - 1) / a.group, head.queries - 1);
    int begin = 0, end = 0;
    if (first <= last)
        attention_keys(&head, first, last, &a, &begin, &end);

    const global ELEMENT(K_TYPE) *head_key = key + attention_head(&a.key, &head, &a);
    const global ELEMENT(V_TYPE) *head_value = value + attention_head(&a.value, &head, &a);
    const bool aligned =
        IS_ALIGNED(head_key, &a.key, KEY_VECTOR, D_K) && IS_ALIGNED(head_value, &a.value, VALUE_VECTOR, D_V);
    const int key_item = lane & (KEY_ITEMS - 1), own_key = lane / KEY_ITEMS, key_column = key_item * KEY_VECTOR;
    const int own_value = lane / VALUE_ITEMS, value_column = (lane & (VALUE_ITEMS - 1)) * VALUE_VECTOR;
    const int key_count = clamp(D_K - key_column, 0, KEY_VECTOR);
    const int value_count = clamp(D_V - value_column, 0, VALUE_VECTOR);
    const global KEY_WORD *key_piece = (const global KEY_WORD *)head_key + key_column * a.key.col;
    const global VALUE_WORD *value_piece = (const global VALUE_WORD *)head_value + value_column * a.value.col;
    local float *part = parts + team * PART, *weight = weights + team * (ROWS * TEAM);
    float q[ROWS][KEY_VECTOR], out[ROWS][VALUE_VECTOR], row_max[ROWS], row_sum[ROWS];
    /* The last items find the rows, since PoCL 3.1 loses the second of two branches on one condition with barriers between them. */
    const int found = TEAMS * TEAM - 1 - item;
    if (found < ROWS) {
        decode_row row;
        find_row(&row, &head, row0 + found, &a);
        rows[found] = row;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    UNROLL
    for (int r = 0; r < ROWS; r++) {
        const decode_row row = rows[r];
        query_piece(q[r], query, row.attends ? attention_query_row(&a.query, &row.item, row.i) : 0, a.query.col,
                    key_column, row.attends ? D_K : 0);
        row_max[r] = -INFINITY;
        row_sum[r] = 0.0f;
        UNROLL
        for (int e = 0; e < VALUE_VECTOR; e++)
            out[r][e] = 0.0f;
    }

    /* What is asked for is used in the next step: rows of K, then of V, then those of the next tile. */
    uint4 next[LOADS];
    if (begin < end)
        ASK_KEYS(begin / TEAM * TEAM + team * TEAM);
    for (int tile = begin / TEAM * TEAM; tile < end; tile += TEAMS * TEAM) {
        const int k0 = tile + team * TEAM, j = k0 + lane;
#pragma unroll 1
        for (int c = 0; c < TEAM; c += CHUNK_KEYS) {
            uint4 raw[LOADS];
            UNROLL
            for (int u = 0; u < LOADS; u++)
                raw[u] = next[u];
            if (c + CHUNK_KEYS < TEAM)
                ASK_KEYS(k0 + c + CHUNK_KEYS);
            else
                ASK_VALUES(k0);
            UNROLL
            for (int u = 0; u < LOADS; u++) {
                float k[KEY_VECTOR];
                FROM(K_TYPE, k, raw[u]);
                multiply_piece(part + key_item, q, k, u * KEYS_AT_ONCE + own_key);
            }
            add_parts(weight + c, part, lane);
        }
        /* Not unrolled: all that may change a score would take registers for each row. */
#pragma unroll 1
        for (int r = 0; r < ROWS; r++) {
            const decode_row row = rows[r];
            float s = -INFINITY;
            if (row.attends && j >= begin && j < end && !attention_excludes(&row.item, row.i, j, &a, &arrays))
                s = attention_biased(attention_capped(weight[r * TEAM + lane] * a.scale, &a), &row.item, row.i, j, &a,
                                     &arrays);
            weight[r * TEAM + lane] = s;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        float tile_max[ROWS];
        UNROLL
        for (int r = 0; r < ROWS; r++) {
            tile_max[r] = -INFINITY;
            for (int n = 0; n < TEAM; n++)
                tile_max[r] = fmax(tile_max[r], weight[r * TEAM + n]);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        UNROLL
        for (int r = 0; r < ROWS; r++) {
            const float m = fmax(row_max[r], tile_max[r]);
            /* While nothing has been attended the maximum is -inf, and 0 stands in for it: -inf - -inf is NaN. */
            const float subtracted = m == -INFINITY ? 0.0f : m;
            const float rescale = exp2s((row_max[r] - subtracted) * LOG2E),
                        p = exp2s((weight[r * TEAM + lane] - subtracted) * LOG2E);
            row_max[r] = m;
            row_sum[r] = FMA(row_sum[r], rescale, p);
            weight[r * TEAM + lane] = p;
            UNROLL
            for (int e = 0; e < VALUE_VECTOR; e++)
                out[r][e] *= rescale;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll 1
        for (int c = 0; c < TEAM; c += CHUNK_VALUES) {
            uint4 raw[LOADS];
            UNROLL
            for (int u = 0; u < LOADS; u++)
                raw[u] = next[u];
            if (c + CHUNK_VALUES < TEAM)
                ASK_VALUES(k0 + c + CHUNK_VALUES);
            else
                ASK_KEYS(k0 + TEAMS * TEAM);
            UNROLL
            for (int u = 0; u < LOADS; u++) {
                float v[VALUE_VECTOR];
                FROM(V_TYPE, v, raw[u]);
                add_piece(out, weight + c + u * VALUES_AT_ONCE + own_value, v);
            }
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);

    /* The teams' maxima and the items' sums, of which an item finishes each row. */
    UNROLL
    for (int r = 0; r < ROWS; r++) {
        weight[r * TEAM + lane] = row_sum[r];
        if (lane == 0)
            team_max[team * ROWS + r] = row_max[r];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item < ROWS) {
        const decode_row row = rows[item];
        float total_max = -INFINITY, total = 0.0f, row_lse;
        for (int t = 0; t < TEAMS; t++)
            total_max = fmax(total_max, team_max[t * ROWS + item]);
        const float subtracted = total_max == -INFINITY ? 0.0f : total_max;
        for (int t = 0; t < TEAMS; t++) {
            float sum = 0.0f;
            for (int n = 0; n < TEAM; n++)
                sum += weights[(t * ROWS + item) * TEAM + n];
            total += sum * exp2s((team_max[t * ROWS + item] - subtracted) * LOG2E);
        }
        factors[item] =
            attention_finish(total == 0.0f ? -INFINITY : total_max, total, &row.item, &a, &arrays, &row_lse);
#if LSE
        if (row.stored)
            lse[attention_result_row(&a.lse, &row.item, row.i)] = row_lse;
#endif
    }
#pragma unroll 1
    for (int r = 0; r < ROWS; r++) {
        float total_max = -INFINITY;
        for (int t = 0; t < TEAMS; t++)
            total_max = fmax(total_max, team_max[t * ROWS + r]);
        const float rescale = exp2s((team_max[team * ROWS + r] - (total_max == -INFINITY ? 0.0f : total_max)) * LOG2E);
        UNROLL
        for (int own = 0; own < ROWS; own++) {
            UNROLL
            for (int e = 0; e < VALUE_VECTOR && own == r; e++) /* registers cannot be told by a number */
                parts[e * (TEAMS * TEAM) + item] = out[own][e] * rescale;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        const decode_row row = rows[r];
        const float factor = factors[r];
        const long at = row.stored ? attention_result_row(&a.output, &row.item, row.i) : 0;
        for (uint d = (uint)item; d < D_V && row.stored; d += TEAMS * TEAM) {
            float o = 0.0f;
            for (uint n = d / VALUE_VECTOR; n < TEAMS * TEAM; n += VALUE_ITEMS)
                o += parts[d % VALUE_VECTOR * (TEAMS * TEAM) + n];
            STORE(O_TYPE, output, at + (long)d * a.output.col, factor == 0.0f ? 0.0f : o * factor);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
