/* neighbourhood_cpu's work-item: its columns and their windows, its queries, and a line of keys for rows of queries.
 *
 *   ROWS, KEY_STEP, COLUMN_STEP, SCORE_TILE, ...   as neighbourhood/cpu.cl says */
#ifndef CLATTN_CL_NEIGHBOURHOOD_CPU_H
#define CLATTN_CL_NEIGHBOURHOOD_CPU_H

#include "lib/exp2.h"
#include "neighbourhood/neighbourhood.h"
#include "lib/rows.h"

#define LINES (D_K + D_V)
#define COLUMN_REST (D_V % COLUMN_STEP)

/* A work-item's columns: where each lane's window lies, and all of them together. */
typedef struct columns_of {
    intv low, high;  /* each lane's first and last distance */
    int first, last; /* the first and last distance of all lanes */
    int mixed;       /* lanes have different windows */
} columns_of;

/* Finds the windows of the item's columns.  Lanes beyond the last query get its window; their results are not
 * stored. */
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

/* Loads Q^T of the rows: q[d * ROWS + n]; rows and lanes past the last repeat it. */
INLINE void load_queries(floatv *q, const global ELEMENT(Q_TYPE) *query, int rows, int columns, long row_step,
                         const map5 *m)
{
    for (int n = 0; n < ROWS; n++)
        for (int d = 0; d < D_K; d += LANES) {
            floatv x[LANES];
            for (int r = 0; r < LANES; r++)
                LOAD_ROW(Q_TYPE, x[r], query, min(n, rows - 1) * row_step + min(r, columns - 1) * m->col + d * m->size,
                         m->size, D_K - d, 0.0f);
            transpose(x);
            for (int c = 0; c < LANES && d + c < D_K; c++)
                q[(d + c) * ROWS + n] = x[c];
        }
}

/* Computes the scores s[j * ROWS + n] of `rows` (a literal) rows of queries, from q, with the `count` keys whose
 * first lane lies at line[0], line[dilation], ...; scores up to the next multiple of KEY_STEP are copies of the
 * last. */
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
                /* A dropped key's score is -inf even if the product is NaN. */
                s[(j + r) * ROWS + n] = select(acc[r][n] * a->scale + addend, (floatv)(-INFINITY), addend == -INFINITY);
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

/* Turns the scores of `count` keys into weights, updates `row_max` and `row_sum`, and stores in `rescale` the factor
 * of the accumulators.  `row_max` takes no NaN (the comparison is false): the score's own subtraction carries it on.
 * If all scores so far are -inf, 0 is subtracted, because -inf - -inf would be a NaN. */
INLINE void softmax_keys(floatv *s, const int rows, int count, floatv *row_max, floatv *row_sum, floatv *rescale)
{
    floatv top[ROWS], total[ROWS];

#pragma unroll
    for (int n = 0; n < rows; n++)
        top[n] = row_max[n];
    for (int j = 0; j < count; j++)
#pragma unroll
        for (int n = 0; n < rows; n++) {
            const floatv x = s[j * ROWS + n];
            top[n] = select(top[n], x, x > top[n]);
        }
#pragma unroll
    for (int n = 0; n < rows; n++) {
        const floatv safe = select(top[n], (floatv)(0.0f), top[n] == -INFINITY);
        rescale[n] = exp2v((row_max[n] - safe) * LOG2E);
        row_max[n] = top[n];
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
        row_sum[n] = FMA(row_sum[n], rescale[n], total[n]);
}

/* o = rescale * o + P V for `columns` <= COLUMN_STEP lines of V from `line` (both literals, as `rows`), over `lines`
 * rows of keys, line_step apart, of `count` keys each.  If lanes are `mixed`, a lane ignores values for which it has
 * no weight. */
INLINE void value_keys(floatv *o, const int columns, const int rows, const floatv *s, const global float *line,
                       int lines, long line_step, int count, int dilation, const int mixed, const floatv *rescale,
                       int width)
{
    floatv acc[COLUMN_STEP][ROWS];

#pragma unroll
    for (int c = 0; c < columns; c++)
#pragma unroll
        for (int n = 0; n < rows; n++)
            acc[c][n] = o[c * ROWS + n] * rescale[n];
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

/* Does value_keys for all lines of V; the accumulators are o[c * ROWS + n]. */
INLINE void all_values(floatv *o, const int rows, const floatv *s, const global float *line, int lines, long line_step,
                       int count, int dilation, const int mixed, const floatv *rescale, int width)
{
    for (int c = 0; c + COLUMN_STEP <= D_V; c += COLUMN_STEP)
        value_keys(o + c * ROWS, COLUMN_STEP, rows, s, line + (long)c * width, lines, line_step, count, dilation, mixed,
                   rescale, width);
#if COLUMN_REST > 0
    const int rest = D_V - COLUMN_REST;
    value_keys(o + rest * ROWS, COLUMN_REST, rows, s, line + (long)rest * width, lines, line_step, count, dilation,
               mixed, rescale, width);
#endif
}

/* The state of the online softmax of each row of queries. */
typedef struct row_state {
    floatv row_max[ROWS], row_sum[ROWS], rescale[ROWS];
} row_state;

/* Computes the attention of `rows` rows of queries, from row n on, to `lines` rows of keys, line_step apart, at all
 * distances of the item's columns.  `line` is where the first lane's key at distance 0 lies.  `mixed`, a literal,
 * must be 1 if lanes have different windows. */
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
        softmax_keys(s + n, rows, lines * count, state->row_max + n, state->row_sum + n, state->rescale + n);
        const global float *values = line + at + (long)D_K * a->packed_width;
        all_values(o + n, rows, s + n, values, lines, line_step, count, dilation, mixed, state->rescale + n,
                   a->packed_width);
    }
}

/* Stores one row of outputs from lines o[c * ROWS]; lanes whose row_sum is 0 have attended nothing and get +0. */
INLINE void store_row(global ELEMENT(O_TYPE) *output, const floatv *o, floatv row_sum, int columns, const map5 *m)
{
    const floatv inverse = 1.0f / row_sum;
    for (int d = 0; d < D_V; d += LANES) {
        floatv x[LANES];
        for (int c = 0; c < LANES; c++)
            x[c] = d + c < D_V ? select(o[(d + c) * ROWS] * inverse, (floatv)(0.0f), row_sum == 0.0f) : (floatv)(0.0f);
        transpose(x);
        for (int r = 0; r < LANES && r < columns; r++)
            STORE_ROW(O_TYPE, output, r * m->col + d * m->size, m->size, D_V - d, x[r]);
    }
}

#endif
