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
 *   LANES          floats in a vector: 4 8 16                                            (inc/vector.h)
 *   ROWS           rows of queries of an item: 1 to 4                                    (2)
 *   KEY_STEP       distances of the register tile of scores: 1 to 8                      (7)
 *   COLUMN_STEP    columns of the register tile of the output: 1 to 8                    (6)
 *   SCORE_TILE     scores for each rescaling, a multiple of KEY_STEP and at least twice  (10 KEY_STEP)
 *   BIAS, LSE      1: such an argument: 0 1                                              (0)
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
#include "inc/neighbourhood_args.h"
#include "inc/neighbourhood.h"
#include "inc/storage.h"
#include "inc/vector.h"
#include "inc/exp2.h"
#include "inc/rows.h"

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
#ifndef D_K
#define D_K 32
#endif
#ifndef D_V
#define D_V 32
#endif
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
#ifndef BIAS
#define BIAS 0
#endif
#ifndef LSE
#define LSE 0
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

#define ROUND_UP(n, step) (((n) + (step) - 1) / (step) * (step))
#define LINES (D_K + D_V)
#define COLUMN_REST (D_V % COLUMN_STEP)

/* LANES columns from x0 of one row of a map become columns of lines: line d of `packed`, packed_width apart, gets
 * column x at x - x0.  Columns from `columns` on are 0. */
#define PACK_COLUMNS(TYPE, map, size_count, packed, columns, m) \
    do { \
        for (int d_ = 0; d_ < (size_count); d_ += LANES) { \
            floatv x_[LANES]; \
            for (int r_ = 0; r_ < LANES; r_++) { \
                if (r_ < (columns)) \
                    LOAD_ROW(TYPE, x_[r_], map, r_ * (m).col + d_ * (m).size, (m).size, (size_count) - d_, 0.0f); \
                else \
                    x_[r_] = (floatv)(0.0f); \
            } \
            transpose(x_); \
            for (int c_ = 0; c_ < LANES && d_ + c_ < (size_count); c_++) \
                VSTORE(x_[c_], 0, (packed) + (d_ + c_) * (long)a.packed_width); \
        } \
    } while (0)

kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void neighbourhood_pack(const global ELEMENT(K_TYPE) *key, const global ELEMENT(V_TYPE) *value,
#if BIAS
                        const global float *bias,
#endif
                        global float *packed, neighbourhood_args a)
{
    if (a.batch == 0)
        return;

    const int line_x = (int)get_group_id(0) * LANES, x = line_x - LANES;
    const int y = (int)get_group_id(1), item = (int)get_group_id(2);
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
        global float *line = packed + a.packed_bias + b * a.packed_bias_batch + h * a.packed_bias_head
                             + y * (long)a.packed_width + line_x;
        bias += a.bias.offset + b * a.bias.batch + h * a.bias.head + y * a.bias.row + x * a.bias.col;
        float lane[LANES];
        for (int l = 0; l < LANES; l++)
            lane[l] = l < columns ? bias[l * a.bias.col] : 0.0f;
        VSTORE(VLOAD(0, lane), 0, line);
    }
#endif
}

/* What a work-item knows of its columns: where each lane's window lies, and all of them together. */
typedef struct columns_of {
    intv low, high;    /* each lane's first and last distance */
    int first, last;   /* the lanes' together */
    int mixed;         /* lanes differ */
} columns_of;

/* The queries beyond the last have the last one's window: what they compute is not stored. */
INLINE columns_of find_columns(int at_x, int count, const neighbourhood_args *a)
{
    int low[LANES], high[LANES];
    columns_of c;

    c.first = 0x7fffffff;
    c.last = -0x7fffffff;
    c.mixed = 0;
    for (int l = 0; l < LANES; l++) {
        const int x = at_x + min(l, count - 1);
        low[l] = window_low(x, a->width, a->window_x, a->dilation_x, a->clip);
        high[l] = window_high(x, a->width, a->window_x, a->dilation_x, a->clip);
        c.first = min(c.first, low[l]);
        c.last = max(c.last, high[l]);
        c.mixed |= low[l] != low[0] || high[l] != high[0];
    }
    c.low = JOIN(vload, LANES)(0, low);
    c.high = JOIN(vload, LANES)(0, high);
    return c;
}

/* Q^T of the rows: q[d * ROWS + n]; rows and lanes past the last repeat it. */
INLINE void load_queries(floatv *q, const global ELEMENT(Q_TYPE) *query, int rows, int columns, long row_step,
                         const map5 *m)
{
    for (int n = 0; n < ROWS; n++)
        for (int d = 0; d < D_K; d += LANES) {
            floatv x[LANES];
            for (int r = 0; r < LANES; r++)
                LOAD_ROW(Q_TYPE, x[r], query,
                         min(n, rows - 1) * row_step + min(r, columns - 1) * m->col + d * m->size, m->size, D_K - d,
                         0.0f);
            transpose(x);
            for (int c = 0; c < LANES && d + c < D_K; c++)
                q[(d + c) * ROWS + n] = x[c];
        }
}

/* Scores of `rows` (a literal) rows of queries, from q, with the `count` keys whose first lane lies at
 * line[0], line[dilation], ...: s[j * ROWS + n]; up to the next multiple of KEY_STEP copies of the last. */
INLINE void score_keys(floatv *s, const floatv *q, const int rows, const global float *line, int count, int dilation,
                       const global float *bias, const neighbourhood_args *a)
{
    for (int j = 0; j < count; j += KEY_STEP) {
        floatv acc[KEY_STEP][ROWS];
        int at[KEY_STEP];
#pragma unroll
        for (int r = 0; r < KEY_STEP; r++) {
            at[r] = min(j + r, count - 1) * dilation;
#pragma unroll
            for (int n = 0; n < rows; n++)
                acc[r][n] = (floatv)(0.0f);
        }
        const global float *p = line;
        for (int d = 0; d < D_K; d++) {
#pragma unroll
            for (int r = 0; r < KEY_STEP; r++) {
                const floatv k = VLOAD(0, p + at[r]);
#pragma unroll
                for (int n = 0; n < rows; n++)
                    acc[r][n] = FMA(k, q[d * ROWS + n], acc[r][n]);
            }
            p += a->packed_width;
        }
#pragma unroll
        for (int r = 0; r < KEY_STEP; r++) {
#if BIAS
            const floatv addend = VLOAD(0, bias + at[r]);
#endif
#pragma unroll
            for (int n = 0; n < rows; n++) {
#if BIAS
                /* A dropped key's score is -inf even where the product is NaN. */
                s[(j + r) * ROWS + n] =
                    select(acc[r][n] * a->scale + addend, (floatv)(-INFINITY), addend == -INFINITY);
#else
                s[(j + r) * ROWS + n] = acc[r][n] * a->scale;
#endif
            }
        }
    }
}

/* Drops the distances that are not in a lane's window. */
INLINE void drop_outside(floatv *s, const int rows, int distance, int count, const columns_of *c)
{
    for (int j = 0; j < count; j++) {
        const intv outside = ((intv)(distance + j) < c->low) | ((intv)(distance + j) > c->high);
#pragma unroll
        for (int n = 0; n < rows; n++)
            s[j * ROWS + n] = select(s[j * ROWS + n], (floatv)(-INFINITY), outside);
    }
}

/* Scores become weights for `count` keys; `highest` and `sum` take them in, and `shrink` tells what the accumulators are
 * to be multiplied by.  `highest` takes no NaN (the comparison is false): the score's own subtraction carries it on.
 * Where all scores so far are -inf, 0 is subtracted: -inf - -inf would be a NaN. */
INLINE void softmax_keys(floatv *s, const int rows, int count, floatv *highest, floatv *sum, floatv *shrink)
{
    floatv top[ROWS], total[ROWS];

#pragma unroll
    for (int n = 0; n < rows; n++)
        top[n] = highest[n];
    for (int j = 0; j < count; j++)
#pragma unroll
        for (int n = 0; n < rows; n++) {
            const floatv x = s[j * ROWS + n];
            top[n] = select(top[n], x, x > top[n]);
        }
#pragma unroll
    for (int n = 0; n < rows; n++) {
        const floatv safe = select(top[n], (floatv)(0.0f), top[n] == -INFINITY);
        shrink[n] = exp2v((highest[n] - safe) * LOG2E);
        highest[n] = top[n];
        top[n] = safe;
        total[n] = (floatv)(0.0f);
    }
    for (int j = 0; j < count; j++)
#pragma unroll
        for (int n = 0; n < rows; n++) {
            const floatv p = exp2v((s[j * ROWS + n] - top[n]) * LOG2E);
            s[j * ROWS + n] = p;
            total[n] += p;
        }
#pragma unroll
    for (int n = 0; n < rows; n++)
        sum[n] = FMA(sum[n], shrink[n], total[n]);
}

/* o = shrink * o + P V for `columns` <= COLUMN_STEP lines of V from `line` (both literals, as `rows`), over `lines` rows of
 * keys, line_step apart, of `count` keys each.  With `mixed` lanes, what a lane has no weight for is not looked at. */
INLINE void value_keys(floatv *o, const int columns, const int rows, const floatv *s, const global float *line, int lines,
                       long line_step, int count, int dilation, const int mixed, const floatv *shrink, int width)
{
    floatv acc[COLUMN_STEP][ROWS];

#pragma unroll
    for (int c = 0; c < columns; c++)
#pragma unroll
        for (int n = 0; n < rows; n++)
            acc[c][n] = o[c * ROWS + n] * shrink[n];
    for (int g = 0; g < lines; g++) {
        const global float *p = line;
        for (int j = 0; j < count; j++) {
#pragma unroll
            for (int c = 0; c < columns; c++) {
                const floatv v = VLOAD(0, p + (long)c * width);
#pragma unroll
                for (int n = 0; n < rows; n++) {
                    const floatv weight = s[j * ROWS + n];
                    acc[c][n] = FMA(mixed ? select(v, (floatv)(0.0f), weight == 0.0f) : v, weight, acc[c][n]);
                }
            }
            p += dilation;
        }
        s += count * ROWS;
        line += line_step;
    }
#pragma unroll
    for (int c = 0; c < columns; c++)
#pragma unroll
        for (int n = 0; n < rows; n++)
            o[c * ROWS + n] = acc[c][n];
}

/* All lines of V; o[c * ROWS + n]. */
INLINE void all_values(floatv *o, const int rows, const floatv *s, const global float *line, int lines, long line_step,
                       int count, int dilation, const int mixed, const floatv *shrink, int width)
{
    for (int c = 0; c + COLUMN_STEP <= D_V; c += COLUMN_STEP)
        value_keys(o + c * ROWS, COLUMN_STEP, rows, s, line + (long)c * width, lines, line_step, count, dilation, mixed,
                   shrink, width);
#if COLUMN_REST > 0
    const int rest = D_V - COLUMN_REST;
    value_keys(o + rest * ROWS, COLUMN_REST, rows, s, line + (long)rest * width, lines, line_step, count, dilation, mixed,
               shrink, width);
#endif
}

/* What the item keeps for its queries. */
typedef struct row_state {
    floatv highest[ROWS], sum[ROWS], shrink[ROWS];
} row_state;

/* `rows` rows of queries, from row n on, attend `lines` rows of keys, line_step apart, at all distances of the item's
 * columns.  `line` is where the first lane's key at distance 0 lies.  `mixed`, a literal, must be 1 where lanes have
 * different windows. */
INLINE void attend_rows(const int rows, const int mixed, int n, floatv *s, const floatv *q, floatv *o, row_state *state,
                        const global float *line, int lines, long line_step, const global float *bias, long bias_step,
                        const columns_of *c, const neighbourhood_args *a)
{
    const int dilation = a->dilation_x;

    for (int first = c->first; first <= c->last; first += SCORE_TILE) {
        const int count = min(SCORE_TILE, c->last - first + 1);
        const long at = (long)first * dilation;
        for (int g = 0; g < lines; g++) {
            floatv *scores = s + g * count * ROWS + n;
            score_keys(scores, q + n, rows, line + g * line_step + at, count, dilation, bias + g * bias_step + at, a);
            if (mixed && c->mixed)
                drop_outside(scores, rows, first, count, c);
        }
        softmax_keys(s + n, rows, lines * count, state->highest + n, state->sum + n, state->shrink + n);
        const global float *values = line + at + (long)D_K * a->packed_width;
        all_values(o + n, rows, s + n, values, lines, line_step, count, dilation, mixed, state->shrink + n,
                   a->packed_width);
    }
}

/* One row of outputs from lines o[c * ROWS]; lanes whose sum is 0 have attended nothing and get +0. */
INLINE void store_row(global ELEMENT(O_TYPE) *output, const floatv *o, floatv sum, int columns, const map5 *m)
{
    const floatv inverse = 1.0f / sum;
    for (int d = 0; d < D_V; d += LANES) {
        floatv x[LANES];
        for (int c = 0; c < LANES; c++)
            x[c] = d + c < D_V ? select(o[(d + c) * ROWS] * inverse, (floatv)(0.0f), sum == 0.0f) : (floatv)(0.0f);
        transpose(x);
        for (int r = 0; r < LANES && r < columns; r++) {
            const long at = r * m->col + d * m->size;
            if (D_V - d >= LANES && m->size == 1) {
                STOREV(O_TYPE, output, at, x[r]);
            } else {
                float lane[LANES];
                VSTORE(x[r], 0, lane);
                for (int c = 0; c < LANES && d + c < D_V; c++)
                    STORE(O_TYPE, output, at + c * m->size, lane[c]);
            }
        }
    }
}

kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void neighbourhood_cpu(const global ELEMENT(Q_TYPE) *query, const global float *packed,
                       global ELEMENT(O_TYPE) *output,
#if LSE
                       global float *lse,
#endif
                       neighbourhood_args a)
{
    if (a.batch == 0)
        return;

    /* The rows of one remainder mod dilation_y, and which of them are this item's. */
    const int blocks = (int)get_num_groups(1) / a.dilation_y;
    const int remainder = (int)get_group_id(1) / blocks;
    const int skipped = (remainder + a.dilation_y - a.query_y % a.dilation_y) % a.dilation_y;
    const int y0 = skipped + ((int)get_group_id(1) - remainder * blocks) * ROWS * a.dilation_y;
    const int x0 = (int)get_group_id(0) * LANES;
    if (y0 >= a.query_height || x0 >= a.query_width)
        return;
    const int rows = min(ROWS, (a.query_height - y0 + a.dilation_y - 1) / a.dilation_y);
    const int columns = min(LANES, a.query_width - x0);
    const long b = (long)get_group_id(2) / a.heads, h = (long)get_group_id(2) - b * a.heads;
    const int kv_heads = a.heads / a.group;

    floatv q[D_K * ROWS];
    floatv o[D_V * ROWS];
    floatv s[(SCORE_TILE + KEY_STEP) * ROWS];
    row_state state;
    for (int n = 0; n < ROWS; n++) {
        state.highest[n] = (floatv)(-INFINITY);
        state.sum[n] = (floatv)(0.0f);
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
    const global float *lines = packed + a.packed_offset
                                + ((b * kv_heads + h / a.group) * a.height + remainder) * LINES * a.packed_width + LANES
                                + a.query_x + x0;
#if BIAS
    const long bias_step = (long)a.dilation_y * a.packed_width;
    const global float *bias = packed + a.packed_offset + a.packed_bias + b * a.packed_bias_batch
                               + h * a.packed_bias_head + (long)remainder * a.packed_width + LANES + a.query_x + x0;
#else
    const long bias_step = 0;
    const global float *bias = packed;
#endif
    /* As many rows of keys at once as the score tile has room for: a rescaling for each is what that saves. */
    const int most = max(1, SCORE_TILE / (c.last - c.first + 1));

    for (int t = low[0]; t <= high[ROWS - 1];) {
        /* Windows of later rows begin and end later, so those that have row t are neighbours, and stay the same until
         * one begins or ends. */
        int from = ROWS, to = 0, end = min(t + most - 1, high[ROWS - 1]);
        for (int n = 0; n < rows; n++) {
            const bool inside = t >= low[n] && t <= high[n];
            from = inside ? min(from, n) : from;
            to = inside ? n + 1 : to;
            end = inside ? min(end, high[n]) : t < low[n] ? min(end, low[n] - 1) : end;
        }
        const int count = end - t + 1;
        const global float *line = lines + t * line_step, *addends = bias + t * bias_step;
        /* One row at a time at the map's edges of every kind: two copies of this code are enough to compile. */
        if (from == 0 && to == ROWS && !c.mixed)
            attend_rows(ROWS, 0, 0, s, q, o, &state, line, count, line_step, addends, bias_step, &c, &a);
        else
            for (int n = from; n < to; n++)
                attend_rows(1, 1, n, s, q, o, &state, line, count, line_step, addends, bias_step, &c, &a);
        t = end + 1;
    }

    output += a.output.offset + b * a.output.batch + h * a.output.head + y0 * a.output.row + x0 * a.output.col;
    for (int n = 0; n < rows; n++)
        store_row(output + n * a.dilation_y * a.output.row, o + n, state.sum[n], columns, &a.output);
#if LSE
    lse += a.lse.offset + b * a.lse.batch + h * a.lse.head + y0 * a.lse.row + x0 * a.lse.col;
    for (int n = 0; n < rows; n++) {
        float lane[LANES];
        VSTORE(select(state.highest[n] + log(state.sum[n]), (floatv)(-INFINITY), state.sum[n] == 0.0f), 0, lane);
        for (int l = 0; l < columns; l++)
            lse[n * a.dilation_y * a.lse.row + l * a.lse.col] = lane[l];
    }
#endif
}
