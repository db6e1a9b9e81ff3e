/* Pooling on CPU devices: formula, arrays and storage types as pool/pool.h says.
 *
 * If channels are neighbours and at least LANES, an item combines the windows of vectors of channels.  Otherwise
 *
 *            a row of x   a row of x   ...
 *                 \       /                 rows combined: lanes are neighbouring elements
 *   line 0   s0 s1 s2 s3 ...                        span:   s0 t0 u0 v0 ...
 *   line 1   t0 t1 t2 t3 ...       transposed to            s1 t1 u1 v1 ...
 *   ...                                                        \    /       columns combined: lanes are lines of y
 *                                                           y0 of all lines  ...   transposed again and stored
 *
 * Parameter  meaning             allowed
 * LANES      vector width        4, 8, 16
 * Tested: LANES 4, 16.
 *
 * NDRange: (work-groups of 1 item); an item owns pieces / groups neighbouring pieces and takes LANES lines of them at a time.
 * depth is 1; or at most LANES - 1 and `channels`, which then are neighbours in x and in y, as columns are; or a multiple of LANES
 * up to POOL_BLOCK vectors, if channels are neighbours; tiles are whole columns.  Private memory: 46 KiB with LANES 16.
 * Local memory: none.  Barriers: none.
 *
 * Needs OpenCL C 1.2.  pool_generic takes over if the device limits loops. */
#include "pool/pool.h"
#include "lib/gather.h"
#include "lib/rows.h"

DEFINE_GATHER(gather_x, X_TYPE)
DEFINE_SCATTER(scatter_y, Y_TYPE)
DEFINE_COMBINE(combine, floatv)

/* What a piece knows of LANES lines of y.  Lanes of the vectors from `count` on hold nothing. */
typedef struct pool_lines {
    int count;
    args_long x[LANES], y[LANES]; /* where a line's first row of x and where its channel in y lie */
    int rows[LANES];              /* how many rows of x the window has */
    float divisor[LANES];
    floatv span[POOL_SPAN + LANES];  /* lane l: of line l */
    floatv value[POOL_TILE + LANES]; /* of the tile's elements */
} pool_lines;

static inline void find_lines(pool_lines *t, args_long first, int count, const pool_args *a)
{
    t->count = count;
    for (int l = 0; l < LANES; l++) {
        const picture_line line = pool_line_of(first + min(l, count - 1), 0, a);
        const pool_window rows = pool_find(&a->rows, line.row, a);
        t->x[l] = line.x + (rows.first + rows.begin * a->rows.dilation) * a->x.row;
        t->y[l] = line.y;
        t->rows[l] = rows.end - rows.begin;
        t->divisor[l] = rows.divisor;
    }
}

/* Combines `rows` rows of `vectors` whole vectors from x on: several, so that one need not wait for the other. */
INLINE void combine_rows(floatv *value, const int vectors, const global ELEMENT(X_TYPE) *x, int rows,
                         const pool_args *a)
{
    const args_long down = a->rows.dilation * a->x.row;

#pragma unroll
    for (int v = 0; v < vectors; v++)
        value[v] = (floatv)(pool_nothing(a));
    for (; rows > 0; rows--, x += down)
#pragma unroll
        for (int v = 0; v < vectors; v++)
            value[v] = combine(value[v], LOADV(X_TYPE, x, v * LANES), a);
}

/* Combines `rows` rows of up to LANES elements that lie `step` apart from x on, `count` of them. */
static inline floatv combine_elements(const global ELEMENT(X_TYPE) *x, int rows, args_long step, int count,
                                      const pool_args *a)
{
    floatv value = (floatv)(pool_nothing(a));

    if (step == 1 && count >= LANES) {
        combine_rows(&value, 1, x, rows, a);
        return value;
    }
    for (int k = 0; k < rows; k++)
        value = combine(value, gather_x(x + k * (a->rows.dilation * a->x.row), 0, step, false, count), a);
    return value;
}

/* Fills the span with `columns` columns of x from column `first` on, of which those outside of x hold nothing. */
static inline void fill_span(pool_lines *t, const global ELEMENT(X_TYPE) *x, int first, int columns, const pool_args *a)
{
    const int depth = a->depth, begin = clamp(-first, 0, columns), end = clamp(a->cols.source - first, begin, columns);
    const args_long step = depth == 1 ? a->x.col : 1;
    const floatv nothing = (floatv)(pool_nothing(a));

    for (int e = 0; e < begin * depth; e++)
        t->span[e] = nothing;
    for (int next = begin * depth; next < end * depth; next += POOL_BLOCK * LANES) {
        /* The last vectors overlap those before, if there are so many. */
        const int e = max(min(next, end * depth - POOL_BLOCK * LANES), begin * depth), count = end * depth - e;
        const bool whole = step == 1 && count >= POOL_BLOCK * LANES;
        const global ELEMENT(X_TYPE) *from = x + first * a->x.col + e * step;
        floatv part[POOL_BLOCK][LANES];
        for (int l = 0; l < LANES; l++) {
            floatv value[POOL_BLOCK];
            if (l < t->count && whole)
                combine_rows(value, POOL_BLOCK, from + t->x[l], t->rows[l], a);
            for (int v = 0; v < POOL_BLOCK; v++) {
                const int at = max(min(v * LANES, count - LANES), 0);
                if (l < t->count && !whole && v * LANES < count)
                    value[v] = combine_elements(from + t->x[l] + at * step, t->rows[l], step, count - at, a);
                part[v][l] = l < t->count && (whole || v * LANES < count) ? value[v] : nothing;
            }
        }
        for (int v = 0; v < POOL_BLOCK && v * LANES < count; v++) {
            const int at = max(min(v * LANES, count - LANES), 0);
            transpose(part[v]);
#pragma unroll
            for (int l = 0; l < LANES; l++)
                t->span[e + at + l] = part[v][l];
        }
    }
    for (int e = end * depth; e < columns * depth; e++)
        t->span[e] = nothing;
}

/* Pools `count` elements from `first` on of up to LANES lines. */
static inline void pool_lines_of(pool_lines *t, const global ELEMENT(X_TYPE) *x, global ELEMENT(Y_TYPE) *y, int first,
                                 int count, const pool_args *a)
{
    const int depth = a->depth, column = first / depth, columns = (count - 1) / depth;
    const args_long step = depth == 1 ? a->y.col : 1;
    const floatv divisor = VLOAD(0, t->divisor);

    for (int e = 0; e < count + LANES; e++)
        t->value[e] = (floatv)(pool_nothing(a));
    for (int k = 0; k < a->cols.window; k += a->share) {
        const int taps = min(a->share, a->cols.window - k), reach = (taps - 1) * a->cols.dilation + 1;
        fill_span(t, x, column * a->cols.stride - a->cols.before + k * a->cols.dilation,
                  columns * a->cols.stride + reach, a);
        for (int c = 0, e = 0; e < count; c++)
            for (int d = 0; d < depth; d++, e++) {
                const floatv *span = t->span + c * a->cols.stride * depth + d;
                floatv value = t->value[e];
                for (int l = 0; l < taps; l++)
                    value = combine(value, span[l * a->cols.dilation * depth], a);
                t->value[e] = value;
            }
    }
    for (int c = 0, e = 0; e < count && a->average; c++) {
        const floatv elements = divisor * pool_find(&a->cols, column + c, a).divisor;
        for (int d = 0; d < depth; d++, e++)
            t->value[e] /= elements;
    }
    for (int next = 0; next < count; next += LANES) {
        const int e = max(min(next, count - LANES), 0);
        floatv value[LANES];
#pragma unroll
        for (int l = 0; l < LANES; l++)
            value[l] = t->value[e + l];
        transpose(value);
        for (int l = 0; l < t->count; l++)
            scatter_y(y + t->y[l] + column * a->y.col + e * step, 0, step, step == 1, count - e, value[l]);
    }
}

/* Pools one element of y, of `vectors` vectors of channels. */
INLINE void pool_channels(const global ELEMENT(X_TYPE) *x, global ELEMENT(Y_TYPE) *y, pool_window rows,
                          pool_window columns, const int vectors, int count, const pool_args *a)
{
    floatv value[POOL_BLOCK];

#pragma unroll
    for (int v = 0; v < vectors; v++)
        value[v] = (floatv)(pool_nothing(a));
    for (int k = rows.begin; k < rows.end; k++)
        for (int l = columns.begin; l < columns.end; l++) {
            const global ELEMENT(X_TYPE) *from =
                x + (rows.first + k * a->rows.dilation) * a->x.row + (columns.first + l * a->cols.dilation) * a->x.col;
#pragma unroll
            for (int v = 0; v < vectors; v++)
                value[v] = combine(value[v], gather_x(from, v * LANES, 1, true, count - v * LANES), a);
        }
#pragma unroll
    for (int v = 0; v < vectors; v++)
        scatter_y(y, v * LANES, 1, true, count - v * LANES,
                  a->average ? value[v] / (rows.divisor * columns.divisor) : value[v]);
}

ITEM_FUNCTION pool_piece(const global ELEMENT(X_TYPE) *x, global ELEMENT(Y_TYPE) *y, pool_args a, int channel,
                         int first, int count, args_long line, args_long end)
{
    if (a.depth < LANES) {
        pool_lines lines;
        for (; line < end; line += LANES) {
            find_lines(&lines, line, (int)min(end - line, (args_long)LANES), &a);
            pool_lines_of(&lines, x, y, first, count, &a);
        }
        return;
    }
    const int channels = min(a.depth, a.channels - channel);
    for (; line < end; line++) {
        const picture_line at = pool_line_of(line, channel, &a);
        const pool_window rows = pool_find(&a.rows, at.row, &a);
        for (int c = first / a.depth; c < (first + count) / a.depth; c++) {
            const pool_window columns = pool_find(&a.cols, c, &a);
            global ELEMENT(Y_TYPE) *to = y + at.y + c * a.y.col;
            if (channels == POOL_BLOCK * LANES)
                pool_channels(x + at.x, to, rows, columns, POOL_BLOCK, channels, &a);
            else
                for (int v = 0; v < channels; v += LANES)
                    pool_channels(x + at.x + v, to + v, rows, columns, 1, channels - v, &a);
        }
    }
}

GROUP_SIZE(1, 1, 1)
kernel void pool_cpu(const global ELEMENT(X_TYPE) *x, global ELEMENT(Y_TYPE) *y, pool_args a)
{
    if (a.pieces == 0)
        return;

    const int length = a.cols.target * a.depth, tiles = (length - 1) / a.tile + 1;
    const args_long bands = (a.lines - 1) / a.band + 1;
    args_long end;
    for (args_long piece = share_of_group(&a.part, a.pieces, &end); piece < end; piece++) {
        const args_long above = piece / tiles, chunk = above / bands, line = (above - chunk * bands) * a.band;
        const int first = (int)(piece - above * tiles) * a.tile;
        pool_piece(x, y, a, (int)chunk * a.depth, first, min(a.tile, length - first), line,
                   min(line + a.band, a.lines));
    }
}
