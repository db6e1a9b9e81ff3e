/* Resizing on CPU devices: formula, arrays and storage types as resize/resize.h says.
 *
 *            a row of x   a row of x   ...
 *                 \       /                 sums over rows: lanes are neighbouring elements
 *   line 0   s0 s1 s2 s3 ...                        span:   s0 t0 u0 v0 ...
 *   line 1   t0 t1 t2 t3 ...       transposed to            s1 t1 u1 v1 ...
 *   ...                                                        \    /       sums over columns: lanes are lines of y
 *                                                           y0 of all lines  ...   transposed again and stored
 *
 * So neither sum gathers anything, whatever the ratio, and a piece finds the taps of its columns once for all its lines.
 *
 * Parameter  meaning             allowed
 * LANES      vector width        4, 8, 16
 * Tested: LANES 4, 16.
 *
 * NDRange: (work-groups of 1 item); an item owns pieces / groups neighbouring pieces and takes LANES lines of them at a time.
 * Either depth is 1, or channels are neighbours in x and in y, and columns are, too, if depth is `channels`; if it is less, it is
 * a multiple of LANES, and a piece is a column.  Private memory: 52 KiB with LANES 16.  Local memory: none.  Barriers: none.
 *
 * Needs OpenCL C 1.2.  resize_generic takes over if a piece exceeds the limits of resize/args.h or the device limits loops. */
#include "resize/resize.h"
#include "lib/gather.h"
#include "lib/rows.h"

DEFINE_GATHER(gather_x, X_TYPE)
DEFINE_SCATTER(scatter_y, Y_TYPE)

/* What a piece knows of its elements.  Those behind the last one, up to a whole vector, are copies of it. */
typedef struct resize_tile {
    int count;
    int begin, columns;           /* which columns of x the span has */
    int at[RESIZE_TILE];          /* where the first tap lies in the span */
    float weight[RESIZE_WEIGHTS]; /* [e * taps + k]: of tap k of element e */
} resize_tile;

/* What a piece knows of LANES lines of y, of which the last may be copies. */
typedef struct resize_lines {
    resize_line line[LANES];
    resize_place place[LANES];
    int begin[LANES], end[LANES];      /* which taps count */
    float weight[LANES][RESIZE_ROWS];
    floatv span[RESIZE_SPAN + LANES];  /* lane l: of line l */
} resize_lines;

/* Finds the taps of `count` elements from `first` on. */
static inline void find_columns(resize_tile *t, int first, int count, const resize_args *a)
{
    const int taps = a->cols.taps;
    int before = -1;
    float norm = 1.0f;
    resize_place place = {0, 0.0f};

    t->count = count;
    for (int e = 0; e < (count + LANES - 1) / LANES * LANES; e++) {
        const int element = first + min(e, count - 1), column = element / a->depth;
        if (column != before) {
            place = resize_find(&a->cols, column, a);
            norm = resize_norm(&a->cols, place, a);
        }
        before = column;
        if (e == 0)
            t->begin = place.first;
        t->at[e] = (place.first - t->begin) * a->depth + element - column * a->depth;
        for (int k = 0; k < taps; k++) {
            const bool counts = !a->clips || (place.first + k >= 0 && place.first + k < a->cols.source);
            t->weight[e * taps + k] =
                counts ? norm * resize_weight((place.distance + (float)k) * a->cols.shrink, a) : 0.0f;
        }
    }
    t->columns = place.first - t->begin + taps;
}

/* Finds `count` lines from `first` on, and their taps. */
static inline void find_lines(resize_lines *t, args_long first, int count, int channel, const resize_args *a)
{
    for (int l = 0; l < LANES; l++) {
        t->line[l] = resize_line_of(first + min(l, count - 1), channel, a);
        const resize_place place = resize_find(&a->rows, t->line[l].row, a);
        const float norm = resize_norm(&a->rows, place, a);
        t->place[l] = place;
        t->end[l] = resize_taps(&a->rows, place, &t->begin[l], a);
        for (int k = t->begin[l]; k < t->end[l]; k++)
            t->weight[l][k] = norm * resize_weight((place.distance + (float)k) * a->rows.shrink, a);
    }
}

/* Sums rows of x into `span`, `count` elements that lie `step` apart from `from` on in each line's channel. */
static inline void sum_rows(floatv *span, const resize_lines *t, const global ELEMENT(X_TYPE) *x, args_long from,
                            args_long step, int count, const resize_args *a)
{
    for (int e = 0; e < count; e += LANES) {
        floatv sum[LANES];
        for (int l = 0; l < LANES; l++) {
            const global ELEMENT(X_TYPE) *line = x + t->line[l].x + from + e * step;
            sum[l] = (floatv)(0.0f);
            for (int k = t->begin[l]; k < t->end[l]; k++) {
                const int row = clamp(t->place[l].first + k, 0, a->rows.source - 1);
                const float weight = t->weight[l][k];
                if (weight != 0.0f)
                    sum[l] = FMA((floatv)(weight), gather_x(line + row * a->x.row, 0, step, step == 1, count - e), sum[l]);
            }
        }
        transpose(sum);
        for (int l = 0; l < LANES; l++)
            span[e + l] = sum[l];
    }
}

/* Fills the span with what the tile needs of x: sums over rows, with the edge repeated. */
static inline void fill_span(resize_lines *t, const resize_tile *tile, const global ELEMENT(X_TYPE) *x, const resize_args *a)
{
    const int begin = tile->begin, end = begin + tile->columns, depth = a->depth;
    const int first = clamp(begin, 0, a->cols.source - 1), last = max(min(end, a->cols.source), first + 1);
    const args_long step = depth == 1 ? a->x.col : 1;

    if (a->x.col == depth * step) {
        sum_rows(t->span + (first - begin) * depth, t, x, first * a->x.col, step, (last - first) * depth, a);
    } else {
        for (int c = first; c < last; c++)
            sum_rows(t->span + (c - begin) * depth, t, x, c * a->x.col, step, tile->count, a);
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
    const int taps = a->cols.taps;

    for (int e = 0; e < tile->count; e += LANES) {
        floatv sum[LANES];
        for (int i = 0; i < LANES; i++) {
            const floatv *span = t->span + tile->at[e + i];
            const float *weight = tile->weight + (e + i) * taps;
            sum[i] = (floatv)(0.0f);
            for (int k = 0; k < taps; k++)
                if (weight[k] != 0.0f)
                    sum[i] = FMA((floatv)(weight[k]), span[k * a->depth], sum[i]);
        }
        transpose(sum);
        for (int l = 0; l < lines; l++)
            scatter_y(y + t->line[l].y + e * step, 0, step, step == 1, tile->count - e, sum[l]);
    }
}

ITEM_FUNCTION resize_piece(const global ELEMENT(X_TYPE) *x, global ELEMENT(Y_TYPE) *y, resize_args a, int channel, int first,
                           int count, args_long line, args_long end)
{
    resize_tile tile;
    resize_lines lines;

    find_columns(&tile, first, count, &a);
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
    for (args_long piece = share_of_group(a.pieces, &end); piece < end; piece++) {
        const args_long above = piece / tiles, chunk = above / bands, line = (above - chunk * bands) * a.band;
        const int first = (int)(piece - above * tiles) * a.tile, column = first / a.depth;
        const int channel = (int)chunk * a.depth, in_pixel = first - column * a.depth;
        const int count = a.depth > 1 && a.depth < a.channels ? a.channels - channel : length - first;
        resize_piece(x, y + column * a.y.col + in_pixel, a, channel, first, min(a.tile, count), line,
                     min(line + a.band, a.lines));
    }
}
