/* Resizing on CPU devices: formula, arrays and storage types as resize/resize.h says.
 *
 *          row of x        -- columns' weights -->   widened row: `tile` elements     KEPT of these are kept
 *          row of x        -- columns' weights -->   widened row                      rows' weights: element by element
 *          ...                                                                            |
 *          row of y        <---------------------------------------------------------------
 *
 * Parameter  meaning             allowed
 * LANES      vector width        4, 8, 16
 * Tested: LANES 4, 16.
 *
 * NDRange: (work-groups of 1 item); an item owns pieces / groups neighbouring pieces, its lanes neighbouring elements of a run.
 * Each piece finds places and norms of its columns once, and widens a row of x once as long as the row is kept: between
 * neighbouring rows of y it is, unless they have more than KEPT taps.
 * Private memory: 4 * TILE * (KEPT + 5) bytes.  Local memory: none.  Barriers: none.
 *
 * Needs OpenCL C 1.2.  resize_generic takes over if a row of x reaches further than an int, or the device limits loops. */
#include "resize/resize.h"
#include "lib/gather.h"

#define TILE 256
#define KEPT 8

DEFINE_SCATTER(scatter_y, Y_TYPE)
DEFINE_WEIGHT(weights_of, floatv)

/* The elements of a tile, up to a whole vector.  Those behind the last one are copies of it. */
typedef struct resize_tile {
    int count;
    int first[TILE], channel[TILE]; /* the first tap's column, and where the element's channel begins */
    float distance[TILE], norm[TILE];
    int whole[TILE / 4]; /* of each vector: whether its lanes are neighbours in x */
    float kept[KEPT][TILE];
    int kept_row[KEPT]; /* which rows of x these are; -1: none */
} resize_tile;

static inline void begin_tile(resize_tile *t, int first, int count, const resize_args *a)
{
    const int end = (count + LANES - 1) / LANES * LANES;

    t->count = count;
    for (int e = 0; e < end; e++) {
        const int element = first + min(e, count - 1), column = element / a->run_channels;
        const resize_place place = resize_find(&a->cols, column, a);
        t->first[e] = place.first;
        t->distance[e] = place.distance;
        t->norm[e] = resize_norm(&a->cols, place, a);
        t->channel[e] = (element - column * a->run_channels) * (int)a->x.head;
    }
    for (int e = 0; e < end; e += LANES) {
        const int before = (first + e) / a->run_channels, last = (first + e + LANES - 1) / a->run_channels;
        t->whole[e / LANES] = a->x.head == 1 && before == last && e + LANES <= count;
    }
    for (int k = 0; k < KEPT; k++)
        t->kept_row[k] = -1;
}

static inline floatv gather_at(const global ELEMENT(X_TYPE) *x, intv at)
{
    int index[LANES];
    float lane[LANES];

    VSTORE(at, 0, index);
    for (int l = 0; l < LANES; l++)
        lane[l] = LOAD(X_TYPE, x, index[l]);
    return VLOAD(0, lane);
}

/* Widens a row of x. */
static inline void widen(const global ELEMENT(X_TYPE) *from, float *to, const resize_tile *t, const resize_args *a)
{
    const int col = (int)a->x.col, last = a->cols.source - 1, taps = a->cols.taps;

    for (int e = 0; e < t->count; e += LANES) {
        const intv first = VLOAD(0, t->first + e), channel = VLOAD(0, t->channel + e);
        const floatv distance = VLOAD(0, t->distance + e);
        const bool whole = t->whole[e / LANES];
        floatv sum = (floatv)(0.0f);
        for (int k = 0; k < taps; k++) {
            const intv column = first + k, inside = min(max(column, (intv)(0)), (intv)(last));
            floatv weight = weights_of((distance + (float)k) * a->cols.shrink, a);
            if (a->clips)
                weight = select((floatv)(0.0f), weight, column == inside);
            const floatv value = whole ? LOADV(X_TYPE, from, clamp(t->first[e] + k, 0, last) * col + t->channel[e])
                                       : gather_at(from, inside * col + channel);
            sum = select(FMA(weight, value, sum), sum, weight == 0.0f);
        }
        VSTORE(sum * VLOAD(0, t->norm + e), 0, to + e);
    }
}

ITEM_FUNCTION resize_piece(const global ELEMENT(X_TYPE) *x, global ELEMENT(Y_TYPE) *y, resize_args a, int first, int row,
                           int end)
{
    resize_tile tile;
    float sum[TILE];

    begin_tile(&tile, first, min(a.tile, a.run - first), &a);
    for (; row < end; row++) {
        const resize_place place = resize_find(&a.rows, row, &a);
        const float norm = resize_norm(&a.rows, place, &a);
        global ELEMENT(Y_TYPE) *to = y + row * a.y.row + first * a.run_step;
        int k;
        for (int e = 0; e < tile.count; e += LANES)
            VSTORE((floatv)(0.0f), 0, sum + e);
        for (const int last = resize_taps(&a.rows, place, &k, &a); k < last; k++) {
            const int from = clamp(place.first + k, 0, a.rows.source - 1), slot = from % KEPT;
            const float weight = norm * resize_weight((place.distance + (float)k) * a.rows.shrink, &a);
            if (weight == 0.0f)
                continue;
            if (tile.kept_row[slot] != from) {
                widen(x + from * a.x.row, tile.kept[slot], &tile, &a);
                tile.kept_row[slot] = from;
            }
            for (int e = 0; e < tile.count; e += LANES)
                VSTORE(FMA((floatv)(weight), VLOAD(0, tile.kept[slot] + e), VLOAD(0, sum + e)), 0, sum + e);
        }
        for (int e = 0; e < tile.count; e += LANES)
            scatter_y(to + e * a.run_step, 0, a.run_step, a.run_step == 1, tile.count - e, VLOAD(0, sum + e));
    }
}

GROUP_SIZE(1, 1, 1)
kernel void resize_cpu(const global ELEMENT(X_TYPE) *x, global ELEMENT(Y_TYPE) *y, resize_args a)
{
    if (a.pieces == 0)
        return;

    const int tiles = (a.run - 1) / a.tile + 1, bands = (a.rows.target - 1) / a.band + 1;
    args_long end;
    for (args_long piece = share_of_group(a.pieces, &end); piece < end; piece++) {
        const args_long line = piece / tiles, plane = line / bands, item = plane / a.planes_of_item;
        const int row = (int)(line - plane * bands) * a.band, channel = (int)(plane - item * a.planes_of_item);
        resize_piece(x + a.x.offset + item * a.x.batch + channel * a.x.head,
                     y + a.y.offset + item * a.y.batch + channel * a.y.head, a, (int)(piece - line * tiles) * a.tile, row,
                     min(row + a.band, a.rows.target));
    }
}
