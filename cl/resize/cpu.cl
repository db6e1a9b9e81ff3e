/* Resizing on CPU devices: formula, arrays and storage types as resize/resize.h says.
 *
 *            a row of x   a row of x   ...
 *                 \       /                 sums over rows: lanes are neighbouring elements
 *   line 0   s0 s1 s2 s3 ...                        span:   s0 t0 u0 v0 ...
 *   line 1   t0 t1 t2 t3 ...       transposed to            s1 t1 u1 v1 ...
 *   ...                                                        \    /       sums over columns: lanes are lines of y
 *                                                           y0 of all lines  ...   transposed again and stored
 *
 * If y has more rows than x, rows of x go this way one by one, widened, and are summed behind: each serves several lines.
 *
 * So neither sum gathers anything, whatever the ratio, and a piece finds the taps of its columns once for all its lines.
 *
 * Parameter  meaning             allowed
 * LANES      vector width        4, 8, 16
 * AHEAD      prefetches lines    0, 1
 * Tested: LANES 4, 16; AHEAD.
 *
 * NDRange: (work-groups of 1 item); an item owns pieces / groups neighbouring pieces and takes LANES lines of them at a time.
 * Either depth is 1, or channels are neighbours in x and in y, and columns are, too, if depth is `channels`; if it is less, it is
 * a multiple of LANES, and a piece is a column.  Private memory: 106 KiB with LANES 16.  Local memory: none.  Barriers: none.
 *
 * Needs OpenCL C 1.2.  resize_generic takes over if a piece exceeds the limits of resize/args.h or the device limits loops. */
#include "resize/resize.h"
#include "lib/gather.h"
#include "lib/rows.h"

#ifndef AHEAD
#define AHEAD 0
#endif

DEFINE_GATHER(gather_x, X_TYPE)
DEFINE_SCATTER(scatter_y, Y_TYPE)

#define KEPT (2 * LANES)   /* widened rows; any RESIZE_KEPT_TAPS neighbours are among them */
#define RESIZE_KEPT_TAPS 4 /* the most that rows have unless y has fewer rows than x */

/* Taps whose weights are 0 are left out, and a single one is taken for two halves, so that each sum has two or more. */

/* What a piece knows of its elements.  Those behind the last one, up to a whole vector, are copies of it. */
typedef struct resize_tile {
    int count;
    int begin, columns;     /* which columns of x the span has */
    int stride;             /* places for an element's taps */
    int taps[RESIZE_TILE];  /* of each element */
    int at[RESIZE_WEIGHTS]; /* [e * stride + n]: where a tap lies in the span */
    float weight[RESIZE_WEIGHTS];
} resize_tile;

/* What a piece knows of LANES lines of y, of which the last may be copies. */
typedef struct resize_lines {
    args_long y[LANES]; /* where the line lies */
    int taps[LANES];
    args_long at[LANES][RESIZE_ROWS]; /* where a tap's row of x lies */
    float weight[LANES][RESIZE_ROWS];
    floatv span[RESIZE_SPAN + LANES]; /* lane l: of line l */
} resize_lines;

/* Finds the taps of `count` elements from `first` on. */
static inline void find_columns(resize_tile *t, int first, int count, const resize_args *a)
{
    int before = -1;
    float norm = 1.0f;
    resize_place place = {0, 0.0f};

    t->count = count;
    t->stride = max(a->cols.taps, 2);
    for (int e = 0; e < (count + LANES - 1) / LANES * LANES; e++) {
        const int element = first + min(e, count - 1), column = element / a->depth;
        int *at = t->at + e * t->stride, begin, n = 0;
        float *weight = t->weight + e * t->stride;
        if (column != before) {
            place = resize_find(&a->cols, column, a);
            norm = resize_norm(&a->cols, place, a);
        }
        before = column;
        if (e == 0)
            t->begin = place.first;
        for (const int end = resize_taps(&a->cols, place, &begin, a); begin < end; begin++) {
            weight[n] = norm * resize_weight((place.distance + (float)begin) * a->cols.shrink, a);
            at[n] = (place.first + begin - t->begin) * a->depth + element - column * a->depth;
            n += weight[n] != 0.0f;
        }
        if (n == 1) {
            weight[0] = weight[1] = 0.5f * weight[0];
            at[1] = at[0];
        }
        t->taps[e] = max(n, 2);
    }
    t->columns = place.first - t->begin + a->cols.taps;
}

/* Finds `count` lines from `first` on, and their taps. */
static inline void find_lines(resize_lines *t, args_long first, int count, int channel, const resize_args *a)
{
    for (int l = 0; l < LANES; l++) {
        const picture_line line = resize_line_of(first + min(l, count - 1), channel, a);
        const resize_place place = resize_find(&a->rows, line.row, a);
        const float norm = resize_norm(&a->rows, place, a);
        args_long *at = t->at[l];
        float *weight = t->weight[l];
        int begin, n = 0;
        for (const int end = resize_taps(&a->rows, place, &begin, a); begin < end; begin++) {
            weight[n] = norm * resize_weight((place.distance + (float)begin) * a->rows.shrink, a);
            at[n] = line.x + clamp(place.first + begin, 0, a->rows.source - 1) * a->x.row;
            n += weight[n] != 0.0f;
        }
        if (n == 1) {
            weight[0] = weight[1] = 0.5f * weight[0];
            at[1] = at[0];
        }
        t->taps[l] = max(n, 2);
        t->y[l] = line.y;
    }
}

/* Sums of LANES neighbours over the rows of x that each line needs, which begin at x + at.  `whole`: all of them, side by side. */
INLINE void sum_rows(floatv *sum, const resize_lines *t, const global ELEMENT(X_TYPE) *x, args_long step, bool whole,
                     int count, const resize_args *a)
{
    if (whole) {
#pragma unroll
        for (int l = 0; l < LANES; l++)
            sum[l] = FMA((floatv)(t->weight[l][1]), LOADV(X_TYPE, x, t->at[l][1]),
                         (floatv)(t->weight[l][0]) * LOADV(X_TYPE, x, t->at[l][0]));
        for (int l = 0; l < LANES && a->rows.taps > 2; l++)
            for (int n = 2; n < t->taps[l]; n++)
                sum[l] = FMA((floatv)(t->weight[l][n]), LOADV(X_TYPE, x, t->at[l][n]), sum[l]);
        return;
    }
    for (int l = 0; l < LANES; l++) {
        sum[l] = (floatv)(0.0f);
        for (int n = 0; n < t->taps[l]; n++)
            sum[l] = FMA((floatv)(t->weight[l][n]), gather_x(x + t->at[l][n], 0, step, false, count), sum[l]);
    }
}

/* Sums over taps of LANES elements from e on. */
INLINE void sum_columns(floatv *sum, const resize_lines *t, const resize_tile *tile, int e)
{
    const int *at = tile->at + e * tile->stride;
    const float *weight = tile->weight + e * tile->stride;

    if (tile->stride == 2) {
#pragma unroll
        for (int i = 0; i < LANES; i++)
            sum[i] =
                FMA((floatv)(weight[2 * i + 1]), t->span[at[2 * i + 1]], (floatv)(weight[2 * i]) * t->span[at[2 * i]]);
        return;
    }
    for (int i = 0; i < LANES; i++, at += tile->stride, weight += tile->stride) {
        floatv s = (floatv)(weight[0]) * t->span[at[0]];
        for (int n = 1; n < tile->taps[e + i]; n++)
            s = FMA((floatv)(weight[n]), t->span[at[n]], s);
        sum[i] = s;
    }
}

/* Fills the span from index `to` on with `count` elements of x from `from` on in each line's channel, summed over rows. */
static inline void fill_part(resize_lines *t, int to, const global ELEMENT(X_TYPE) *x, args_long from, args_long step,
                             int count, const resize_args *a)
{
    for (int next = 0; next < count; next += LANES) {
        /* The last vector overlaps the one before, if there is one. */
        const int e = max(min(next, count - LANES), 0);
        floatv sum[LANES];
        sum_rows(sum, t, x + from + e * step, step, step == 1 && count - e >= LANES, count - e, a);
        transpose(sum);
#pragma unroll
        for (int l = 0; l < LANES; l++)
            t->span[to + e + l] = sum[l];
    }
}

/* Fills the span with what the tile needs of x: sums over rows, with the edge repeated. */
static inline void fill_span(resize_lines *t, const resize_tile *tile, const global ELEMENT(X_TYPE) *x,
                             const resize_args *a)
{
    const int begin = tile->begin, end = begin + tile->columns, depth = a->depth;
    const int first = clamp(begin, 0, a->cols.source - 1), last = max(min(end, a->cols.source), first + 1);
    const args_long step = depth == 1 ? a->x.col : 1;

    if (a->x.col == depth * step) {
        fill_part(t, (first - begin) * depth, x, first * a->x.col, step, (last - first) * depth, a);
    } else {
        for (int c = first; c < last; c++)
            fill_part(t, (c - begin) * depth, x, c * a->x.col, step, tile->count, a);
    }
    for (int e = (first - begin) * depth - 1; e >= 0; e--)
        t->span[e] = t->span[e + depth];
    for (int e = (last - begin) * depth; e < (end - begin) * depth; e++)
        t->span[e] = t->span[e - depth];
}

/* Sums taps of the span and stores the first `lines` lines; y begins with the tile's first element. */
static inline void store_lines(const resize_lines *t, const resize_tile *tile, int lines, global ELEMENT(Y_TYPE) *y,
                               const resize_args *a)
{
    const args_long step = a->depth == 1 ? a->y.col : 1;

    for (int next = 0; next < tile->count; next += LANES) {
        const int e = max(min(next, tile->count - LANES), 0);
        floatv sum[LANES];
        sum_columns(sum, t, tile, e);
        transpose(sum);
        for (int l = 0; l < lines; l++)
            scatter_y(y + t->y[l] + e * step, 0, step, step == 1, tile->count - e, sum[l]);
    }
}

/* Widens LANES rows of x from `row` on, those behind the last one as it: sums over taps alone. */
static inline void widen(resize_lines *t, const resize_tile *tile, float *wide, const global ELEMENT(X_TYPE) *x,
                         args_long plane, int row, const resize_args *a)
{
    for (int l = 0; l < LANES; l++) {
        t->taps[l] = 2;
        t->at[l][0] = t->at[l][1] = plane + min(row + l, a->rows.source - 1) * a->x.row;
        t->weight[l][0] = t->weight[l][1] = 0.5f;
    }
    fill_span(t, tile, x, a);
    for (int e = 0; e < tile->count; e += LANES) {
        floatv sum[LANES];
        sum_columns(sum, t, tile, e);
        transpose(sum);
        for (int l = 0; l < LANES; l++)
            VSTORE(sum[l], 0, wide + (row + l) % KEPT * RESIZE_TILE + e);
    }
}

/* Makes a piece of more rows than x has there: rows of x are widened first, and then summed, each for several lines. */
static inline void widen_piece(resize_lines *t, const resize_tile *tile, const global ELEMENT(X_TYPE) *x,
                               global ELEMENT(Y_TYPE) *y, int channel, args_long first, args_long end,
                               const resize_args *a)
{
    const args_long step = a->depth == 1 ? a->y.col : 1;
    const int last = a->rows.source - 1;
    float wide[KEPT * RESIZE_TILE]; /* row r of x at r % KEPT */
    int next = 0;                   /* the next row to be widened */

    picture_line line = resize_line_of(first, channel, a);
    for (args_long number = first; number < end; number++, line.row++, line.y += a->y.row) {
        const float *from[RESIZE_KEPT_TAPS];
        float weight[RESIZE_KEPT_TAPS];
        int k, taps = 0;
        if (line.row == a->rows.target)
            line = resize_line_of(number, channel, a);
        const resize_place place = resize_find(&a->rows, line.row, a);
        const float norm = resize_norm(&a->rows, place, a);
        if (number == first || line.row == 0)
            next = clamp(place.first, 0, last);
        for (; next <= min(place.first + a->rows.taps - 1, last); next += LANES)
            widen(t, tile, wide, x, line.x, next, a);
        for (const int stop = resize_taps(&a->rows, place, &k, a); k < stop; k++) {
            weight[taps] = norm * resize_weight((place.distance + (float)k) * a->rows.shrink, a);
            from[taps] = wide + clamp(place.first + k, 0, last) % KEPT * RESIZE_TILE;
            taps += weight[taps] != 0.0f;
        }
        if (taps == 1) {
            weight[0] = weight[1] = 0.5f * weight[0];
            from[1] = from[0];
        }
        global ELEMENT(Y_TYPE) *to = y + line.y;
        for (int e = 0; e < tile->count; e += LANES) {
            floatv sum = FMA((floatv)(weight[1]), VLOAD(0, from[1] + e), (floatv)(weight[0]) * VLOAD(0, from[0] + e));
            for (int n = 2; n < taps; n++)
                sum = FMA((floatv)(weight[n]), VLOAD(0, from[n] + e), sum);
#if AHEAD
            PREFETCH((size_t)(to + a->y.row + e));
#endif
            if (step == 1 && e + LANES <= tile->count)
                STOREV(Y_TYPE, to, e, sum);
            else
                scatter_y(to + e * step, 0, step, false, tile->count - e, sum);
        }
    }
}

ITEM_FUNCTION resize_piece(const global ELEMENT(X_TYPE) *x, global ELEMENT(Y_TYPE) *y, resize_args a, int channel,
                           int first, int count, args_long line, args_long end)
{
    resize_tile tile;
    resize_lines lines;

    find_columns(&tile, first, count, &a);
    if (a.rows.source < a.rows.target) {
        widen_piece(&lines, &tile, x, y, channel, line, end, &a);
        return;
    }
    for (; line < end; line += LANES) {
        const int now = (int)min(end - line, (args_long)LANES);
        find_lines(&lines, line, now, channel, &a);
        fill_span(&lines, &tile, x, &a);
        store_lines(&lines, &tile, now, y, &a);
    }
}

GROUP_SIZE(1, 1, 1)
kernel void resize_cpu(const global ELEMENT(X_TYPE) *x, global ELEMENT(Y_TYPE) *y, resize_args a)
{
    if (a.pieces == 0)
        return;

    const int length = a.cols.target * a.depth, tiles = (length - 1) / a.tile + 1;
    const args_long bands = (a.lines - 1) / a.band + 1;
    args_long end;
    for (args_long piece = share_of_group(&a.part, a.pieces, &end); piece < end; piece++) {
        const args_long above = piece / tiles, chunk = above / bands, line = (above - chunk * bands) * a.band;
        const int first = (int)(piece - above * tiles) * a.tile, column = first / a.depth;
        const int channel = (int)chunk * a.depth, in_pixel = first - column * a.depth;
        const int count = a.depth > 1 && a.depth < a.channels ? a.channels - channel : length - first;
        resize_piece(x, y + column * a.y.col + in_pixel, a, channel, first, min(a.tile, count), line,
                     min(line + a.band, a.lines));
    }
}
