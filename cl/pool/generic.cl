/* Pooling on every device and for every layout: formula, arrays and storage types as pool/pool.h says.
 *
 * NDRange: (pieces * W), local (W), W a power of two up to POOL_ITEMS.  A piece is up to W / share neighbouring elements of one line.
 * `share` items, a power of two, share each element and take turns at its window; items that run together read neighbours.
 * Local memory: 4 * POOL_ITEMS bytes.  Barriers: log2(share) + 1, which all items reach.  Needs OpenCL C 1.2. */
#include "pool/pool.h"

static inline float combine(float x, float y, const pool_args *a)
{
    if (a->average)
        return x + y;
    return y > x || isnan(y) ? y : x;
}

kernel void pool_generic(const global ELEMENT(X_TYPE) *x, global ELEMENT(Y_TYPE) *y, pool_args a)
{
    local float shared[POOL_ITEMS];
    if (a.pieces == 0)
        return;

    const int length = a.cols.target * a.depth, tiles = (length - 1) / a.tile + 1, item = (int)get_local_id(0);
    const args_long piece = (args_long)group_id(&a.part, 0), line = piece / tiles;
    /* There is no remainder: LLVM would freeze what is divided, which Oclgrind 21.10 does not know. */
    const int group = a.depth == 1 ? a.share : a.tile, outer = item / group, inner = item - outer * group;
    const int own = a.depth == 1 ? outer : inner, turn = a.depth == 1 ? inner : outer;
    const int e = min((int)(piece - line * tiles) * a.tile + own, length - 1), column = e / a.depth;
    const picture_line at = pool_line_of(line, e - column * a.depth, &a);
    const pool_window rows = pool_find(&a.rows, at.row, &a), columns = pool_find(&a.cols, column, &a);
    const int width = columns.end - columns.begin, count = max(rows.end - rows.begin, 0) * max(width, 0);
    float value = pool_nothing(&a);
    for (int n = turn; n < count; n += a.share) {
        const int k = n / width, row = rows.first + (rows.begin + k) * a.rows.dilation;
        const int from = columns.first + (columns.begin + n - k * width) * a.cols.dilation;
        value = combine(value, LOAD(X_TYPE, x, at.x + row * a.x.row + from * a.x.col), &a);
    }
    shared[own * a.share + turn] = value;
    for (int step = a.share / 2; step > 0; step /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (turn < step)
            shared[own * a.share + turn] =
                combine(shared[own * a.share + turn], shared[own * a.share + turn + step], &a);
    }
    if (turn == 0 && (int)(piece - line * tiles) * a.tile + own < length) {
        value = shared[own * a.share];
        STORE(Y_TYPE, y, at.y + column * a.y.col, a.average ? value / (rows.divisor * columns.divisor) : value);
    }
}
