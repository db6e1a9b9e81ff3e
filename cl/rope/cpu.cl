/* Rotary position embedding on CPU devices: formula, arrays and storage types as rope/rope.h says.
 *
 * Parameter    meaning                                          allowed
 * UNIT_STRIDE  the cols of x and y are 1                        0, 1
 * INTERLEAVED  pairs are neighbours: step 2, distance 1         0, 1
 * LANES        vector width                                     4, 8, 16
 * Tested: UNIT_STRIDE x INTERLEAVED x LANES 4, 16.
 *
 * NDRange: (work-groups of 1 item); an item owns batch * length / groups neighbouring places (b, s), its lanes neighbouring
 * pairs.  For each LANES pairs it walks all its places, so that a pair's angle is found once, and all heads of a place, so
 * that its sines and cosines are, too; the host gives an item so few places that they stay in the cache.
 * Local memory: none.  Barriers: none.
 *
 * Needs OpenCL C 1.2.  rope_generic takes over if the device limits loops and the heads are too many or too large. */
#include "rope/rotations.h"
#include "lib/gather.h"
#include "lib/shuffle.h"

#ifndef UNIT_STRIDE
#define UNIT_STRIDE 0
#endif
#ifndef INTERLEAVED
#define INTERLEAVED 0
#endif

DEFINE_GATHER(gather_x, X_TYPE)
DEFINE_GATHER(gather_cache, CACHE_TYPE)
DEFINE_SCATTER(scatter_y, Y_TYPE)

/* Reads the cosines and sines of LANES pairs from pair i on at one place; NaN if the table has no such row. */
static inline void read_rotations(rope_rotations *r, int i, int b, int s, args_long position,
                                  const global ELEMENT(CACHE_TYPE) *cosines, const global ELEMENT(CACHE_TYPE) *sines,
                                  const rope_args *a)
{
    const int count = a->pairs - i;

    r->cosines = r->sines = (floatv)(NAN);
    if (rope_misses(position, a))
        return;
    r->cosines = gather_cache(cosines + rope_row(&a->cos, b, s, position, a), i, a->cos.col, a->cos.col == 1, count);
    r->sines = gather_cache(sines + rope_row(&a->sin, b, s, position, a), i, a->sin.col, a->sin.col == 1, count);
}

/* Rotates `count` pairs from pair i on of one head. */
static inline void rotate(const global ELEMENT(X_TYPE) *from, global ELEMENT(Y_TYPE) *to, int i, int count,
                          const rope_rotations *r, const rope_args *a)
{
    const int one = i * a->step, two = one + a->distance;
    floatv x1, x2;

#if INTERLEAVED
    if (UNIT_STRIDE && count >= LANES) {
        const floatv low = LOADV(X_TYPE, from, one), high = LOADV(X_TYPE, from, one + LANES);
        x1 = even_lanes(low, high);
        x2 = odd_lanes(low, high);
        const floatv y1 = FMA(x1, r->cosines, -(x2 * r->sines)), y2 = FMA(x1, r->sines, x2 * r->cosines);
        STOREV(Y_TYPE, to, one, zip_low(y1, y2));
        STOREV(Y_TYPE, to, one + LANES, zip_high(y1, y2));
        return;
    }
#endif
    const bool unit = UNIT_STRIDE && !INTERLEAVED;
    x1 = gather_x(from + one * a->x.col, 0, a->step * a->x.col, unit, count);
    x2 = gather_x(from + two * a->x.col, 0, a->step * a->x.col, unit, count);
    scatter_y(to + one * a->y.col, 0, a->step * a->y.col, unit, count, FMA(x1, r->cosines, -(x2 * r->sines)));
    scatter_y(to + two * a->y.col, 0, a->step * a->y.col, unit, count, FMA(x1, r->sines, x2 * r->cosines));
}

ITEM_FUNCTION rotate_places(ROPE_PARAMETERS, args_long first, args_long end)
{
    const int first_item = (int)(first / a.length), first_place = (int)(first - (args_long)first_item * a.length);
    for (int i = 0; i < a.pairs; i += LANES) {
        ulong lane[LANES];
        for (int l = 0; l < LANES; l++)
            lane[l] = a.table == ROPE_COMPUTED ? rope_turn(min(i + l, a.pairs - 1), &a) : 0;
        const ulongv turns = VLOAD(0, lane);
        int b = first_item, s = first_place;
        for (args_long r = first; r < end; r++) {
            const args_long position = rope_position(b, s, positions, offsets, &a);
            rope_rotations rotation;
            if (a.table == ROPE_COMPUTED)
                rope_find_rotations(&rotation, position, turns);
            else
                read_rotations(&rotation, i, b, s, position, cosines, sines, &a);
            if (BACKWARD)
                rotation.sines = -rotation.sines;
            for (int h = 0; h < a.heads; h++)
                rotate(x + a.x.offset + b * a.x.batch + h * a.x.head + s * a.x.row,
                       y + a.y.offset + b * a.y.batch + h * a.y.head + s * a.y.row, i, a.pairs - i, &rotation, &a);
            s++;
            b += s == a.length;
            s = s == a.length ? 0 : s;
        }
    }
    int b = first_item, s = first_place;
    for (args_long r = first; r < end && a.size > 2 * a.pairs; r++) {
        for (int h = 0; h < a.heads; h++)
            for (int d = 2 * a.pairs; d < a.size; d += LANES)
                scatter_y(y + a.y.offset + b * a.y.batch + h * a.y.head + s * a.y.row, d, a.y.col, UNIT_STRIDE,
                          a.size - d,
                          gather_x(x + a.x.offset + b * a.x.batch + h * a.x.head + s * a.x.row, d, a.x.col, UNIT_STRIDE,
                                   a.size - d));
        s++;
        b += s == a.length;
        s = s == a.length ? 0 : s;
    }
}

GROUP_SIZE(1, 1, 1)
kernel void rope_cpu(ROPE_PARAMETERS)
{
    if (a.batch == 0)
        return;

    args_long end;
    const args_long first = share_of_group(&a.part, (args_long)a.batch * a.length, &end);
    rotate_places(x, cosines, sines, positions, offsets, y, a, first, end);
}
