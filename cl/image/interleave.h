/* The components of LANES pixels, one, two, three or four vectors: each component a vector, or all in turn as in memory.
 *
 *   interleave(v, n)     v[k] has component k of all pixels; then element e of v[0], v[1], ... is component e % n of pixel e / n
 *   separate(v, n)       the reverse
 *
 * n is a constant, so that v stays in registers. */
#ifndef CLATTN_CL_IMAGE_INTERLEAVE_H
#define CLATTN_CL_IMAGE_INTERLEAVE_H

#include "lib/shuffle.h"

/* ---- three components: element e of the three vectors is component e % 3 of pixel e / 3 ---- */

/* Two shuffles give the vector that begins with element E0. The first takes components 0 from x and 1 from y (any number in
 * the place of 2); the second takes those from the first's result, and components 2 from y. */
#define TRIPLE_XY(E0, l) (((E0) + (l)) / 3 + (((E0) + (l)) % 3 == 1) * LANES)
#define TRIPLE_Z(E0, l) (((E0) + (l)) % 3 == 2 ? ((E0) + (l)) / 3 + LANES : (l))
#define TRIPLE_XY_0(l) TRIPLE_XY(0, l)
#define TRIPLE_XY_1(l) TRIPLE_XY(LANES, l)
#define TRIPLE_XY_2(l) TRIPLE_XY(2 * LANES, l)
#define TRIPLE_Z_0(l) TRIPLE_Z(0, l)
#define TRIPLE_Z_1(l) TRIPLE_Z(LANES, l)
#define TRIPLE_Z_2(l) TRIPLE_Z(2 * LANES, l)
DEFINE_SHUFFLE(triple_xy_0, TRIPLE_XY_0)
DEFINE_SHUFFLE(triple_xy_1, TRIPLE_XY_1)
DEFINE_SHUFFLE(triple_xy_2, TRIPLE_XY_2)
DEFINE_SHUFFLE(triple_z_0, TRIPLE_Z_0)
DEFINE_SHUFFLE(triple_z_1, TRIPLE_Z_1)
DEFINE_SHUFFLE(triple_z_2, TRIPLE_Z_2)

/* Component c back: from the first two vectors the elements 3 l + c that they have (otherwise any), then from the third. */
#define PICK_XY(c, l) ((3 * (l) + (c)) % (2 * LANES))
#define PICK_Z(c, l) (3 * (l) + (c) < 2 * LANES ? (l) : 3 * (l) + (c) - LANES)
#define PICK_XY_0(l) PICK_XY(0, l)
#define PICK_XY_1(l) PICK_XY(1, l)
#define PICK_XY_2(l) PICK_XY(2, l)
#define PICK_Z_0(l) PICK_Z(0, l)
#define PICK_Z_1(l) PICK_Z(1, l)
#define PICK_Z_2(l) PICK_Z(2, l)
DEFINE_SHUFFLE(pick_xy_0, PICK_XY_0)
DEFINE_SHUFFLE(pick_xy_1, PICK_XY_1)
DEFINE_SHUFFLE(pick_xy_2, PICK_XY_2)
DEFINE_SHUFFLE(pick_z_0, PICK_Z_0)
DEFINE_SHUFFLE(pick_z_1, PICK_Z_1)
DEFINE_SHUFFLE(pick_z_2, PICK_Z_2)

/* Puts the components of LANES pixels, a vector each, in turn into as many vectors, and back. */
static inline void interleave(floatv *v, int components)
{
    if (components == 2) {
        const floatv low = zip_low(v[0], v[1]), high = zip_high(v[0], v[1]);
        v[0] = low;
        v[1] = high;
    } else if (components == 3) {
        const floatv x = triple_z_0(triple_xy_0(v[0], v[1]), v[2]), y = triple_z_1(triple_xy_1(v[0], v[1]), v[2]);
        v[2] = triple_z_2(triple_xy_2(v[0], v[1]), v[2]);
        v[0] = x;
        v[1] = y;
    } else if (components == 4) {
        const floatv even_low = zip_low(v[0], v[2]), even_high = zip_high(v[0], v[2]);
        const floatv odd_low = zip_low(v[1], v[3]), odd_high = zip_high(v[1], v[3]);
        v[0] = zip_low(even_low, odd_low);
        v[1] = zip_high(even_low, odd_low);
        v[2] = zip_low(even_high, odd_high);
        v[3] = zip_high(even_high, odd_high);
    }
}

static inline void separate(floatv *v, int components)
{
    if (components == 2) {
        const floatv even = even_lanes(v[0], v[1]), odd = odd_lanes(v[0], v[1]);
        v[0] = even;
        v[1] = odd;
    } else if (components == 3) {
        const floatv x = pick_z_0(pick_xy_0(v[0], v[1]), v[2]), y = pick_z_1(pick_xy_1(v[0], v[1]), v[2]);
        v[2] = pick_z_2(pick_xy_2(v[0], v[1]), v[2]);
        v[0] = x;
        v[1] = y;
    } else if (components == 4) {
        const floatv even_low = even_lanes(v[0], v[1]), even_high = even_lanes(v[2], v[3]);
        const floatv odd_low = odd_lanes(v[0], v[1]), odd_high = odd_lanes(v[2], v[3]);
        v[0] = even_lanes(even_low, even_high);
        v[2] = odd_lanes(even_low, even_high);
        v[1] = even_lanes(odd_low, odd_high);
        v[3] = odd_lanes(odd_low, odd_high);
    }
}

#endif
