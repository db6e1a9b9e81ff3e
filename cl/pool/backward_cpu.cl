/* Gradients of pooling on CPU devices; formulas, arrays and parameters as pool/backward.h says.
 *
 * An item sums a row of x_gradient in private memory, window by window in their order:
 *
 *   y_gradient   g0 g1 g2 ...            lanes are neighbouring windows (depth 1), or channels of one window
 *                |\\ |\\ |\\
 *   sum          s0 s1 s2 s3 s4 ...      g / divisor is added to the row's elements of a window, or g to its largest
 *
 * Parameter  meaning             allowed
 * LANES      vector width        4, 8, 16
 * Tested: LANES 4, 16.
 *
 * NDRange: (work-groups of 1 item); an item owns pieces / groups neighbouring pieces.  depth is 1, or a multiple of LANES up to
 * POOL_BLOCK vectors, if channels are neighbours in all arrays; a tile is whole columns, at most POOL_ROW elements.
 * Local memory: none.  Barriers: none.  Private memory: 4 KiB.
 *
 * Needs OpenCL C 1.2.  pool_backward_generic takes over if the device limits loops, or windows of max are large. */
#include "pool/backward.h"
#include "lib/gather.h"

DEFINE_GATHER(gather_x, X_TYPE)
DEFINE_GATHER(gather_y_gradient, Y_TYPE)
DEFINE_SCATTER(scatter_x_gradient, X_GRADIENT_TYPE)

/* What lanes stand for: `count` windows from j on, or channels of window j. */
typedef struct pool_lanes {
    int j, count;
    bool windows;
} pool_lanes;

/* Whether tap l of all lanes' windows lies in x. */
static inline bool lies_inside(const pool_lanes *lanes, int l, const pool_axis *axis)
{
    const int first = lanes->j * axis->stride - axis->before + l * axis->dilation;

    return first >= 0 && first + (lanes->windows ? (lanes->count - 1) * axis->stride : 0) < axis->source;
}

/* The columns of the windows that an average counts. */
static inline floatv find_divisors(const pool_lanes *lanes, const pool_args *a)
{
    float lane[LANES];

    if (lies_inside(lanes, 0, &a->cols) && lies_inside(lanes, a->cols.window - 1, &a->cols))
        return (floatv)((float)a->cols.window);
    for (int n = 0; n < LANES; n++)
        lane[n] = pool_find(&a->cols, lanes->j + (lanes->windows ? min(n, lanes->count - 1) : 0), a).divisor;
    return VLOAD(0, lane);
}

/* Tap l of the lanes' windows in one row of x, and in which lanes it lies there. */
static inline floatv load_taps(const global ELEMENT(X_TYPE) *x, const pool_lanes *lanes, int l, intv *inside,
                               const pool_args *a)
{
    const int first = lanes->j * a->cols.stride - a->cols.before + l * a->cols.dilation;
    float value[LANES];
    int is_inside[LANES];

    *inside = (intv)(-1);
    if (!lanes->windows)
        return gather_x(x + first * a->x.col, 0, 1, true, lanes->count);
    if (lies_inside(lanes, l, &a->cols))
        return gather_x(x + first * a->x.col, 0, a->cols.stride * a->x.col, false, lanes->count);
    for (int n = 0; n < LANES; n++) {
        const int c = first + n * a->cols.stride;
        is_inside[n] = n < lanes->count && c >= 0 && c < a->cols.source ? -1 : 0;
        value[n] = is_inside[n] != 0 ? LOAD(X_TYPE, x, c * a->x.col) : 0.0f;
    }
    *inside = VLOAD(0, is_inside);
    return VLOAD(0, value);
}

/* The first largest taps of the lanes' windows, as k * cols.window + l; -1 if a window has no element. */
static inline intv find_largest(const global ELEMENT(X_TYPE) *x, pool_window rows, const pool_lanes *lanes,
                                const pool_args *a)
{
    intv found = (intv)(-1), inside;
    floatv largest = (floatv)(0.0f);

    for (int k = rows.begin; k < rows.end; k++)
        for (int l = 0; l < a->cols.window; l++) {
            if (!lanes->windows && !lies_inside(lanes, l, &a->cols))
                continue;
            const floatv value = load_taps(x + (rows.first + k * a->rows.dilation) * a->x.row, lanes, l, &inside, a);
            const intv larger = (found < 0) | (value > largest) | ((value != value) & (largest == largest));
            largest = select(largest, value, larger & inside);
            found = select(found, (intv)(k * a->cols.window + l), larger & inside);
        }
    return found;
}

/* Adds the lanes to the sums of their windows' tap l; sum[0] is of column `first`, and there are columns up to `last`. */
static inline void add_taps(float *sum, int first, int last, const pool_lanes *lanes, int l, floatv value,
                            const pool_args *a)
{
    const int column = lanes->j * a->cols.stride - a->cols.before + l * a->cols.dilation;
    float lane[LANES];

    if (!lanes->windows) {
        float *at = sum + (column - first) * a->depth;
        if (column >= first && column < last)
            VSTORE(VLOAD(0, at) + value, 0, at);
        return;
    }
    VSTORE(value, 0, lane);
    for (int n = 0; n < lanes->count; n++) {
        const int c = column + n * a->cols.stride;
        if (c >= first && c < last)
            sum[c - first] += lane[n];
    }
}

/* Adds row `row` of the gradients of the windows of row i to the sums of columns from `first` up to `last`; x and y_gradient begin
 * with the channel of sum[0]. */
static inline void add_windows(float *sum, const global ELEMENT(X_TYPE) *x, const global ELEMENT(Y_TYPE) *y_gradient,
                               int row, int i, int first, int last, int channels, const pool_args *a)
{
    const pool_window rows = pool_find(&a->rows, i, a);
    const int tap = (row - rows.first) / a->rows.dilation * a->cols.window;
    int begin, end, unused;

    find_windows(&a->cols, first, &begin, &unused);
    find_windows(&a->cols, last - 1, &unused, &end);
    y_gradient += i * a->y.row;
    for (pool_lanes lanes = {begin, 0, a->depth == 1}; lanes.j <= end; lanes.j += lanes.windows ? LANES : 1)
        for (int v = 0; v < channels; v += LANES) {
            const args_long step = lanes.windows ? a->y.col : 1;
            lanes.count = min(lanes.windows ? end - lanes.j + 1 : channels - v, LANES);
            floatv gradient = gather_y_gradient(y_gradient + lanes.j * a->y.col + v, 0, step, step == 1, lanes.count);
            intv largest = (intv)(0);
            if (a->average)
                gradient /= rows.divisor * find_divisors(&lanes, a);
            else
                largest = find_largest(x + v, rows, &lanes, a);
            for (int l = a->cols.window - 1; l >= 0; l--)
                add_taps(sum + v, first, last, &lanes, l,
                         a->average ? gradient : select((floatv)(0.0f), gradient, largest == (intv)(tap + l)), a);
        }
}

ITEM_FUNCTION pool_backward_piece(const global ELEMENT(X_TYPE) *x, const global ELEMENT(Y_TYPE) *y_gradient,
                                  global ELEMENT(X_GRADIENT_TYPE) *x_gradient, pool_backward_args args, int channel,
                                  args_long line, int first, int last)
{
    const pool_args a = args.forward;
    const pool_place at = pool_place_of(line, channel, &a);
    const int channels = a.depth == 1 ? 1 : min(a.depth, a.channels - channel), columns = last - first;
    const args_long step = a.depth == 1 ? args.x_gradient.col : 1;
    float sum[POOL_ROW + LANES];
    int begin, end;

    if (!a.average)
        x += a.x.offset + at.n * a.x.batch + at.channel * a.x.head;
    y_gradient += a.y.offset + at.n * a.y.batch + at.channel * a.y.head;
    x_gradient += args.x_gradient.offset + at.n * args.x_gradient.batch + at.channel * args.x_gradient.head +
                  at.row * args.x_gradient.row + first * args.x_gradient.col;
    for (int e = 0; e < columns * a.depth; e++)
        sum[e] = 0.0f;
    find_windows(&a.rows, at.row, &begin, &end);
    for (int i = begin; i <= end; i++)
        if (window_has(&a.rows, i, at.row))
            add_windows(sum, x, y_gradient, at.row, i, first, last, channels, &a);
    if (a.depth == 1)
        for (int c = 0; c < columns; c += LANES)
            scatter_x_gradient(x_gradient, c, step, step == 1, columns - c, VLOAD(0, sum + c));
    else
        for (int c = 0; c < columns; c++)
            for (int v = 0; v < channels; v += LANES)
                scatter_x_gradient(x_gradient + c * args.x_gradient.col, v, 1, true, channels - v,
                                   VLOAD(0, sum + c * a.depth + v));
}

GROUP_SIZE(1, 1, 1)
kernel void pool_backward_cpu(const global ELEMENT(X_TYPE) *x, const global ELEMENT(Y_TYPE) *y_gradient,
                              global ELEMENT(X_GRADIENT_TYPE) *x_gradient, pool_backward_args args)
{
    const pool_args a = args.forward;
    if (a.pieces == 0)
        return;

    const int tile = a.tile / a.depth, tiles = (a.cols.source - 1) / tile + 1;
    args_long end;
    for (args_long piece = share_of_group(&a.part, a.pieces, &end); piece < end; piece++) {
        const args_long above = piece / tiles, chunk = above / a.lines;
        const int first = (int)(piece - above * tiles) * tile;
        pool_backward_piece(x, y_gradient, x_gradient, args, (int)chunk * a.depth, above - chunk * a.lines, first,
                            min(first + tile, a.cols.source));
    }
}
