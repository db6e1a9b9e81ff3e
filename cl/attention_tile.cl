/* Attention for GPU-class devices: a work-group owns TILE_Q queries of one head and walks over the keys
 * in tiles of TILE_K with an online softmax; scores never leave the chip.
 *
 *   S[i,j] = scale * sum_d Q[b,h,i,d] K[b,g,j,d] (+ mask[b,h,i,j]),   g = h / group
 *   O[b,h,i,e] = sum_j softmax_j(S[i,:]) V[b,g,j,e],    lse[b,h,i] = ln sum_j exp(S[i,j])
 *
 * Buffers, in the order of the arguments (an array4 `t` of attention_args places each):
 *   query   Q[b,h,i,d]  offset + b*batch + h*head + i*row + d*col        d < D_K
 *   key     K[b,g,j,d]  the same with g for the head and j for the row
 *   value   V[b,g,j,e]  the same                                         e < D_V
 *   mask    (MASK) mask[b,h,i,j], j < mask_keys; later keys are not attended
 *   output  O[b,h,i,e]
 *   lse     (LSE) lse[b,h,i], natural logarithm
 *
 * Parameter       meaning                                   allowed
 * D_K, D_V        head sizes of key and of value            1 .. 256, odd ones too
 * TILE_Q          queries of a work-group                   multiple of 4 * ITEMS_Y, and of ITEMS / 8
 * TILE_K          keys of a tile                            multiple of 4 * ITEMS_X, and of ITEMS / 8
 * ITEMS_X         work-items along keys and columns of V    power of two to 32
 * ITEMS_Y         work-items along queries                  power of two to 32
 * CHUNK           columns of Q and K staged at a time       multiple of 8
 * VALUE_ROWS      rows of V staged at a time                divides TILE_K, multiple of ITEMS_Y / 4
 * KEEP_QUERY      1: stage Q once, not for each tile        0, 1
 * MASK, MASK_TYPE a mask is given; its type                 0, 1; BOOL (true = attend), F32, F16, BF16
 * CAUSAL          query i attends key j <= i + position     0, 1
 * LSE             write lse                                 0, 1
 * POSITIVE_SCALE  the scale is known to lie in              0, 1
 *                 [1e-30, 1e30]; saves an operation a score
 * Q_TYPE, K_TYPE, V_TYPE, O_TYPE                            F32, F16, BF16; lse is float
 * Tested sets (TILE_Q x TILE_K, ITEMS_X x ITEMS_Y, CHUNK, VALUE_ROWS, KEEP_QUERY), each with every
 * combination of MASK (none, BOOL, F32), CAUSAL and POSITIVE_SCALE, half of them with LSE; types F32:
 *   6 KiB    16 x 16,  4 x 4,   8, 4, 0      (software rasterisers, whose compilers are slow)
 *   16 KiB   32 x 32,  8 x 8,   16, 8, 0
 *   32 KiB   64 x 64,  16 x 16, 16, 8, 0
 *   48 KiB   128 x 64, 16 x 16, 16, 8, 0;  for D_K <= 64 also 64 x 64, 16 x 16, 16, 8, 1
 *
 * NDRange: local (ITEMS_X, ITEMS_Y, 1); global (ITEMS_X * ceil(query_length / TILE_Q), ITEMS_Y * heads,
 * batch).  Causal work-groups take the last, longest tiles of queries first.
 *
 * Item (x, y) owns the queries y*ROWS .. y*ROWS + ROWS-1 of the tile throughout (ROWS = TILE_Q/ITEMS_Y),
 * of the scores the keys 4*x + 4*ITEMS_X*g + c, and of the output the columns of the same pattern
 * (c < 4).  A float4 in a register always holds one key or column for four queries.
 *
 * Local memory, in bytes (no other is used):
 *   4 * TILE_K * (TILE_Q + 4)                                                      the probabilities
 * + 4 * max(CHUNK * (TILE_K + 4 + (KEEP_QUERY ? 0 : TILE_Q + 4)),                  K and Q staged,
 *           VALUE_ROWS * roundup(D_V, 4 * ITEMS_X), ITEMS_X * (TILE_Q + 4))        V, row reductions
 * + (KEEP_QUERY ? 4 * roundup(D_K, CHUNK) * (TILE_Q + 4) : 0)                      Q kept
 * Rows of Q, K and P are stored by column, TILE + 4 floats apart: 32 neighbouring items store to 32
 * different banks while each 8 of them read 32 neighbouring bytes of global memory, and the inner loops
 * read whole aligned float4s, broadcast along one axis and consecutive along the other.
 *
 * Barriers: every loop that holds one has a trip count that is the same for the whole work-group, and no
 * barrier is inside a condition.  `stage` is free for writing whenever a barrier has passed since it
 * was last read; `prob` is written between the two barriers of a tile's softmax only.
 *
 * State: scores, maximum, sum and accumulators are float.  A score that is not attended is replaced by
 * -inf, which makes its probability exactly +0.  A row with nothing attended gives +0 and lse -inf; NaN
 * or +inf in an attended score makes the row NaN (the maximum drops NaN, the probabilities carry it).
 * K and V from key_length on, and Q from query_length on, are never read.
 *
 * Needs OpenCL C 1.2 and the local memory above; else attention_generic takes over.  On llvmpipe (Mesa
 * 22.3), which stops all loops of a work-item silently after 65,535 iterations in total, a tile takes up
 * to CHUNKS * (CHUNK + CHUNK / 8 * 4) + TILE_K * 2 + 64 of them; more keys than that allows go elsewhere. */
#include "inc/args.h"
#include "inc/storage.h"
#include "inc/exp2.h"

#ifndef D_K
#define D_K 64
#endif
#ifndef D_V
#define D_V 64
#endif
#ifndef TILE_Q
#define TILE_Q 32
#endif
#ifndef TILE_K
#define TILE_K 32
#endif
#ifndef ITEMS_X
#define ITEMS_X 8
#endif
#ifndef ITEMS_Y
#define ITEMS_Y 8
#endif
#ifndef CHUNK
#define CHUNK 16
#endif
#ifndef VALUE_ROWS
#define VALUE_ROWS 8
#endif
#ifndef KEEP_QUERY
#define KEEP_QUERY 0
#endif
#ifndef MASK
#define MASK 0
#endif
#ifndef MASK_TYPE
#define MASK_TYPE F32
#endif
#ifndef CAUSAL
#define CAUSAL 0
#endif
#ifndef LSE
#define LSE 0
#endif
#ifndef POSITIVE_SCALE
#define POSITIVE_SCALE 0
#endif
#ifndef Q_TYPE
#define Q_TYPE F32
#endif
#ifndef K_TYPE
#define K_TYPE F32
#endif
#ifndef V_TYPE
#define V_TYPE F32
#endif
#ifndef O_TYPE
#define O_TYPE F32
#endif

#define ITEMS (ITEMS_X * ITEMS_Y)
#define ROWS (TILE_Q / ITEMS_Y)
#define QUADS (ROWS / 4)                            /* float4s of queries that an item owns */
#define KEYS (TILE_K / ITEMS_X)
#define COLUMN_QUADS ((D_V + 4 * ITEMS_X - 1) / (4 * ITEMS_X))
#define COLUMNS (4 * COLUMN_QUADS)
#define BLOCK (4 * ITEMS_X)                         /* columns or keys that a row of items covers at once */
#define VALUE_STRIDE (COLUMNS * ITEMS_X)
#define CHUNKS ((D_K + CHUNK - 1) / CHUNK)
#define Q_STRIDE (TILE_Q + 4)
#define K_STRIDE (TILE_K + 4)
#define STAGE_QUERY (KEEP_QUERY ? 0 : CHUNK * Q_STRIDE)
#define LARGER(a, b) ((a) > (b) ? (a) : (b))
#define STAGE_FLOATS \
    LARGER(CHUNK * K_STRIDE + STAGE_QUERY, LARGER(VALUE_ROWS * VALUE_STRIDE, ITEMS_X * Q_STRIDE))

#define ADDS_BOOL 0
#define ADDS_F32 1
#define ADDS_F16 1
#define ADDS_BF16 1
#define MASK_ADDS (MASK && JOIN(ADDS_, MASK_TYPE))
/* Scores stay unscaled and the scale enters in the exponent only, unless a negative scale would turn the
 * maximum round or a float mask is added. */
#define RAW_SCORES (POSITIVE_SCALE && !MASK_ADDS)

#if D_K < 1 || D_K > 256 || D_V < 1 || D_V > 256
#error "D_K and D_V must be 1 to 256"
#endif
#if LANES != 4
#error "this kernel works on float4: LANES must be 4"
#endif
#if (ITEMS_X & (ITEMS_X - 1)) || (ITEMS_Y & (ITEMS_Y - 1))
#error "ITEMS_X and ITEMS_Y must be powers of two"
#endif
#if TILE_Q % (4 * ITEMS_Y) || TILE_K % (4 * ITEMS_X) || ITEMS % 8 || ITEMS > 1024
#error "TILE_Q and TILE_K must be multiples of 4 items, ITEMS_X * ITEMS_Y one of 8"
#endif
#if (TILE_Q * 8) % ITEMS || (TILE_K * 8) % ITEMS || CHUNK % 8
#error "TILE_Q and TILE_K must be multiples of ITEMS / 8, CHUNK one of 8"
#endif
#if TILE_K % VALUE_ROWS || (VALUE_ROWS * 4) % ITEMS_Y
#error "VALUE_ROWS must divide TILE_K and be a multiple of ITEMS_Y / 4"
#endif

/* Stages CHUNK columns from d0 of TILE rows of p, the first at element `first`, as to[d][i]; rows from
 * `count` and columns from D_K on become 0 and are not read.  Eight items cover 8 columns of a row. */
#define STAGE_BY_COLUMN(TYPE, p, first, layout, count, d0, TILE, to, item)                                  \
    for (int n_ = 0; n_ < CHUNK / 8; n_++) {                                                                \
        int d_ = 8 * n_ + (int)((item) % 8);                                                                \
        for (int m_ = 0; m_ < TILE * 8 / ITEMS; m_++) {                                                     \
            int i_ = (int)((item) / 8) + m_ * (ITEMS / 8);                                                  \
            bool inside_ = i_ < (count) && (d0) + d_ < D_K;                                                 \
            args_long at_ = (first) + i_ * (layout).row + ((d0) + d_) * (layout).col;                       \
            (to)[d_ * (TILE + 4) + i_] = inside_ ? LOAD(TYPE, p, at_) : 0.0f;                               \
        }                                                                                                   \
    }

/* The four components of a float4 of neighbouring keys or columns, each times four queries. */
static inline void add_products(float4 to[4][QUADS], const float4 queries[QUADS], float4 b)
{
    #pragma unroll
    for (int r = 0; r < QUADS; r++) {
        to[0][r] = FMA(queries[r], b.xxxx, to[0][r]);
        to[1][r] = FMA(queries[r], b.yyyy, to[1][r]);
        to[2][r] = FMA(queries[r], b.zzzz, to[2][r]);
        to[3][r] = FMA(queries[r], b.wwww, to[3][r]);
    }
}

/* to[4g + c][r] += a[k][y*QUADS + r] * b[k][x + g*ITEMS_X].c for every row k < depth; strides in float4s. */
#define ADD_TILE(to, a, a_stride, b, b_stride, depth, groups)                                               \
    _Pragma("unroll 4")                                                                                     \
    for (int k_ = 0; k_ < (depth); k_++) {                                                                  \
        float4 queries_[QUADS];                                                                             \
        _Pragma("unroll")                                                                                   \
        for (int r_ = 0; r_ < QUADS; r_++)                                                                  \
            queries_[r_] = (a)[k_ * (a_stride) + y * QUADS + r_];                                           \
        _Pragma("unroll")                                                                                   \
        for (int g_ = 0; g_ < (groups); g_++)                                                               \
            add_products(&(to)[4 * g_], queries_, (b)[k_ * (b_stride) + x + g_ * ITEMS_X]);                 \
    }

kernel __attribute__((reqd_work_group_size(ITEMS_X, ITEMS_Y, 1)))
void attention_tile(global const ELEMENT(Q_TYPE) *query, global const ELEMENT(K_TYPE) *key,
                    global const ELEMENT(V_TYPE) *value,
#if MASK
                    global const ELEMENT(MASK_TYPE) *mask,
#endif
                    global ELEMENT(O_TYPE) *output,
#if LSE
                    global float *lse,
#endif
                    attention_args a)
{
    local float4 stage[STAGE_FLOATS / 4];
    local float4 prob[TILE_K * Q_STRIDE / 4];
#if KEEP_QUERY
    local float4 kept[CHUNKS * CHUNK * Q_STRIDE / 4];
#endif
    if (a.batch == 0)
        return;

    const int x = (int)get_local_id(0), y = (int)get_local_id(1);
    const uint item = (uint)(y * ITEMS_X + x);
    const args_long b = (args_long)get_group_id(2), h = (args_long)get_group_id(1), g = h / a.group;
    const int tile = CAUSAL ? (int)(get_num_groups(0) - 1 - get_group_id(0)) : (int)get_group_id(0);
    const int q0 = tile * TILE_Q;                   /* the work-group's first query */
    const int queries = min(TILE_Q, a.query_length - q0);
    const int own = q0 + y * ROWS;                  /* this item's first query */
    const args_long query_at = a.query.offset + b * a.query.batch + h * a.query.head + q0 * a.query.row;
    const args_long key_at = a.key.offset + b * a.key.batch + g * a.key.head;
    const args_long value_at = a.value.offset + b * a.value.batch + g * a.value.head;
    local float *stage_key = (local float *)stage;
    local float *stage_query = stage_key + CHUNK * K_STRIDE;

    /* Keys below `full` are attended by every query of the tile, those from `end` on by none. */
    int end = a.key_length;
#if MASK
    const args_long mask_at = a.mask.offset + b * a.mask.batch + h * a.mask.head;
    args_long mask_row[ROWS];                       /* of each own query; past the last one, the last's */
    #pragma unroll
    for (int r = 0; r < ROWS; r++)
        mask_row[r] = mask_at + min(own + r, a.query_length - 1) * a.mask.row;
    end = min(end, a.mask_keys);
#endif
    /* Without causality every query stands behind the last key.  (Written as one case also because Oclgrind
     * 21.10 applies a scalar condition to the first component of a vector only, and equal limits of four
     * queries would be folded into one.) */
    const args_long position = CAUSAL ? a.position : a.key_length, none = 0, all = end;
    int4 limit[QUADS];                              /* the first key that each own query does not attend */
    #pragma unroll
    for (int r = 0; r < QUADS; r++) {
        args_long first = position + own + 4 * r + 1;
        limit[r] = (int4)((int)clamp(first, none, all), (int)clamp(first + 1, none, all),
                          (int)clamp(first + 2, none, all), (int)clamp(first + 3, none, all));
    }
    const int full = (int)clamp(position + q0 + 1, none, all);
    end = (int)clamp(position + q0 + queries, none, all);

    float4 out[COLUMNS][QUADS], top[QUADS], sum[QUADS];
    #pragma unroll
    for (int r = 0; r < QUADS; r++) {
        top[r] = (float4)(-INFINITY);
        sum[r] = (float4)(0.0f);
        #pragma unroll
        for (int c = 0; c < COLUMNS; c++)
            out[c][r] = (float4)(0.0f);
    }
    /* The exponent is (s - m) * exponent, subtracted first: m * log2(e) alone would overflow for masks
     * like -FLT_MAX, and lose the score's low bits on devices that do not fuse. */
    const float exponent = RAW_SCORES ? a.scale * LOG2E : LOG2E;
#if KEEP_QUERY
    for (int chunk = 0; chunk < CHUNKS; chunk++) {
        local float *to = (local float *)kept + chunk * CHUNK * Q_STRIDE;
        STAGE_BY_COLUMN(Q_TYPE, query, query_at, a.query, queries, chunk * CHUNK, TILE_Q, to, item)
    }
#endif

    for (int k0 = 0; k0 < end; k0 += TILE_K) {
        const int keys = min(TILE_K, a.key_length - k0);
        const args_long tile_at = key_at + k0 * a.key.row;
        float4 s[KEYS][QUADS];
        #pragma unroll
        for (int k = 0; k < KEYS; k++)
            for (int r = 0; r < QUADS; r++)
                s[k][r] = (float4)(0.0f);

        for (int chunk = 0; chunk < CHUNKS; chunk++) {
            STAGE_BY_COLUMN(K_TYPE, key, tile_at, a.key, keys, chunk * CHUNK, TILE_K, stage_key, item)
#if KEEP_QUERY
            const local float4 *from = kept + chunk * CHUNK * Q_STRIDE / 4;
#else
            const local float4 *from = (const local float4 *)stage_query;
            STAGE_BY_COLUMN(Q_TYPE, query, query_at, a.query, queries, chunk * CHUNK, TILE_Q, stage_query,
                            item)
#endif
            barrier(CLK_LOCAL_MEM_FENCE);
            ADD_TILE(s, from, Q_STRIDE / 4, stage, K_STRIDE / 4, CHUNK, KEYS / 4)
            barrier(CLK_LOCAL_MEM_FENCE);
        }

#if !RAW_SCORES
        #pragma unroll
        for (int k = 0; k < KEYS; k++)
            for (int r = 0; r < QUADS; r++)
                s[k][r] *= a.scale;
#endif
#if MASK
        #pragma unroll
        for (int k = 0; k < KEYS; k++) {
            args_long at = min(k0 + 4 * x + k / 4 * BLOCK + k % 4, end - 1) * a.mask.col;
            #pragma unroll
            for (int r = 0; r < QUADS; r++) {
                float4 m = (float4)(LOAD(MASK_TYPE, mask, mask_row[4 * r] + at),
                                    LOAD(MASK_TYPE, mask, mask_row[4 * r + 1] + at),
                                    LOAD(MASK_TYPE, mask, mask_row[4 * r + 2] + at),
                                    LOAD(MASK_TYPE, mask, mask_row[4 * r + 3] + at));
#if MASK_ADDS
                s[k][r] = select(s[k][r] + m, (float4)(-INFINITY), m == (float4)(-INFINITY));
#else
                s[k][r] = select(s[k][r], (float4)(-INFINITY), m == (float4)(0.0f));
#endif
            }
        }
#endif
        /* Only a tile on the diagonal, or the last one, pays for this select; keys from `end` on, for which
         * the mask's last one stood in above, are always among those that it replaces. */
        if (k0 + TILE_K > full) {
            #pragma unroll
            for (int k = 0; k < KEYS; k++) {
                int4 j = (int4)(k0 + 4 * x + k / 4 * BLOCK + k % 4);
                for (int r = 0; r < QUADS; r++)
                    s[k][r] = select(s[k][r], (float4)(-INFINITY), j >= limit[r]);
            }
        }

        /* The row maximum over the tile: each item's own, then all items of the row, in the same order. */
        #pragma unroll
        for (int r = 0; r < QUADS; r++) {
            float4 m = s[0][r];
            #pragma unroll
            for (int k = 1; k < KEYS; k++)
                m = fmax(m, s[k][r]);
            stage[x * (Q_STRIDE / 4) + y * QUADS + r] = m;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        #pragma unroll
        for (int r = 0; r < QUADS; r++) {
            float4 m = top[r];
            for (int t = 0; t < ITEMS_X; t++)
                m = fmax(m, stage[t * (Q_STRIDE / 4) + y * QUADS + r]);
            /* While nothing has been attended the maximum is -inf, and 0 stands in for it: -inf - -inf
             * is NaN.  The sum stays an item's own share; the shares are added up once, at the end. */
            float4 safe = select(m, (float4)(0.0f), m == (float4)(-INFINITY));
            float4 factor = exp2v((top[r] - safe) * exponent);
            float4 share = (float4)(0.0f);
            #pragma unroll
            for (int k = 0; k < KEYS; k++) {
                float4 p = exp2v((s[k][r] - safe) * exponent);
                share += p;
                prob[(k * ITEMS_X + x) * (Q_STRIDE / 4) + y * QUADS + r] = p;
            }
            top[r] = m;
            sum[r] = FMA(sum[r], factor, share);
            #pragma unroll
            for (int c = 0; c < COLUMNS; c++)
                out[c][r] *= factor;
        }
        barrier(CLK_LOCAL_MEM_FENCE);

        /* Row p of `prob` is key 4 * (p % ITEMS_X) + p / ITEMS_X % 4 + p / ITEMS_X / 4 * BLOCK: the order
         * in which the items' stores above go to different banks.  V is staged in that order. */
        for (int p0 = 0; p0 < TILE_K; p0 += VALUE_ROWS) {
            #pragma unroll
            for (int n = 0; n < VALUE_ROWS * 4 / ITEMS_Y; n++) {
                const uint row = (item + n * ITEMS) / BLOCK, column = (item + n * ITEMS) % BLOCK;
                const uint p = p0 + row;
                const int j = (int)(4 * (p % ITEMS_X) + p / ITEMS_X % 4 + p / ITEMS_X / 4 * BLOCK);
                #pragma unroll
                for (int c = 0; c < COLUMN_QUADS; c++) {
                    int e = (int)column + c * BLOCK;
                    bool inside = j < keys && e < D_V;
                    args_long at = value_at + (k0 + j) * a.value.row + e * a.value.col;
                    stage_key[row * VALUE_STRIDE + e] = inside ? LOAD(V_TYPE, value, at) : 0.0f;
                }
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            ADD_TILE(out, prob + p0 * (Q_STRIDE / 4), Q_STRIDE / 4, stage, VALUE_STRIDE / 4, VALUE_ROWS,
                     COLUMN_QUADS)
            barrier(CLK_LOCAL_MEM_FENCE);
        }
    }

    #pragma unroll
    for (int r = 0; r < QUADS; r++)
        stage[x * (Q_STRIDE / 4) + y * QUADS + r] = sum[r];
    barrier(CLK_LOCAL_MEM_FENCE);
    #pragma unroll
    for (int r = 0; r < QUADS; r++) {
        float4 total = (float4)(0.0f);
        for (int t = 0; t < ITEMS_X; t++)
            total += stage[t * (Q_STRIDE / 4) + y * QUADS + r];
        int4 nothing = total == (float4)(0.0f);
        float4 inverse = 1.0f / total;
        #pragma unroll
        for (int c = 0; c < COLUMNS; c++)
            out[c][r] = select(out[c][r] * inverse, (float4)(0.0f), nothing);
        sum[r] = select(top[r] * (RAW_SCORES ? a.scale : 1.0f) + log(total), (float4)(-INFINITY), nothing);
    }

    /* The output leaves through `prob`, so that neighbouring items store neighbouring columns. */
    const args_long output_at = a.output.offset + b * a.output.batch + h * a.output.head + q0 * a.output.row;
    #pragma unroll
    for (int c4 = 0; c4 < COLUMN_QUADS; c4++) {
        #pragma unroll
        for (int c = 0; c < 4; c++)
            for (int r = 0; r < QUADS; r++)
                prob[(c * ITEMS_X + x) * (Q_STRIDE / 4) + y * QUADS + r] = out[4 * c4 + c][r];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int n = 0; n < TILE_Q * 4 / ITEMS_Y; n++) {
            const uint c = (item + n * ITEMS) % BLOCK;
            int i = (int)((item + n * ITEMS) / BLOCK), e = (int)c + c4 * BLOCK;
            float o = ((local float *)prob)[(c % 4 * ITEMS_X + c / 4) * Q_STRIDE + i];
            if (i < queries && e < D_V)
                STORE(O_TYPE, output, output_at + i * a.output.row + e * a.output.col, o);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
#if LSE
    const args_long lse_at = a.lse.offset + b * a.lse.batch + h * a.lse.head + q0 * a.lse.row;
    #pragma unroll
    for (int r = 0; r < QUADS; r++)
        if (x == 0)
            prob[y * QUADS + r] = sum[r];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int n = 0; n < (TILE_Q + ITEMS - 1) / ITEMS; n++) {
        int i = n * ITEMS + (int)item;
        if (i < queries)
            lse[lse_at + i * a.lse.row] = ((local float *)prob)[i];
    }
#endif
}
