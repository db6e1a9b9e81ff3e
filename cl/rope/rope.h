/* Rotary position embedding: the code that rope/cpu.cl and rope/generic.cl share.
 *
 *   y1 = x1 * cos - x2 * sin,  y2 = x1 * sin + x2 * cos
 *
 * with x1, x2 the elements i*step and i*step + distance of a head, i < pairs; the elements from 2*pairs on are copied.
 * Element d of head h at place s of batch item b lies at offset + b*batch + h*head + s*row + d*col of x and of y; entry
 * i of a row of cos or sin at offset + row*(row's index) + i*col, or + b*batch + s*row + i*col with ROPE_BY_PLACE.
 * positions[positions_offset + b*positions_batch + s*positions_row], offsets[offsets_offset + b*offsets_batch].
 * Absent arrays may be any buffers; the kernels do not touch them.  y may be x itself, laid out the same: an item overwrites
 * only elements that it alone reads, after it has read them.  If a table has no row for a position, the rotated elements
 * there become NaN and the others are copied.
 *
 * Parameter                      meaning                      allowed
 * X_TYPE, Y_TYPE, CACHE_TYPE     storage                      F32, F16, BF16
 * POSITION_TYPE, OFFSET_TYPE     of positions and offsets     I32, I64
 * BACKWARD                       the sines are negated        0, 1
 * Tested: F32, F16 and BF16 throughout, F16 to F32 with BF16 caches; each of I32 and I64.
 *
 * Computed angles are positions times a pair's turn, modulo one turn: a product of 64-bit integers, whose overflow is
 * whole turns and drops out.  A turn is 2^64 units; the upper 32 bits of the product (3e-10 of a radian) make the angle,
 * reduced to an eighth of a turn around a quarter.  Sine and cosine there are Cephes' polynomials (sinf.c, cosf.c). */
#ifndef CLATTN_CL_ROPE_ROPE_H
#define CLATTN_CL_ROPE_ROPE_H

#include "lib/fma.h"
#include "lib/storage.h"
#include "rope/args.h"

#ifndef X_TYPE
#define X_TYPE F32
#endif
#ifndef Y_TYPE
#define Y_TYPE F32
#endif
#ifndef CACHE_TYPE
#define CACHE_TYPE F32
#endif
#ifndef POSITION_TYPE
#define POSITION_TYPE I32
#endif
#ifndef OFFSET_TYPE
#define OFFSET_TYPE I32
#endif

#ifndef BACKWARD
#define BACKWARD 0
#endif

#define ROPE_PARAMETERS \
    const global ELEMENT(X_TYPE) *x, const global ELEMENT(CACHE_TYPE) *cosines, \
        const global ELEMENT(CACHE_TYPE) *sines, const global ELEMENT(POSITION_TYPE) *positions, \
        const global ELEMENT(OFFSET_TYPE) *offsets, global ELEMENT(Y_TYPE) *y, rope_args a

#define RADIANS 0x1.921fb6p-30f /* in 2^-32 of a turn */
#define SIN_3 -1.6666654611e-1f
#define SIN_5 8.3321608736e-3f
#define SIN_7 -1.9515295891e-4f
#define COS_4 4.166664568298827e-2f
#define COS_6 -1.388731625493765e-3f
#define COS_8 2.443315711809948e-5f

/* The angle of `pair` from one position to the next.  There is no loop over k, because rusticl on llvmpipe (Mesa 22.3)
 * crashes if an index into the kernel's argument is not known at compile time. */
#define TURN(k) turn = (pair >> k) & 1 ? mul_hi(turn, a->ratio[k]) : turn
static inline ulong rope_turn(int pair, const rope_args *a)
{
    ulong turn = a->turn;

    TURN(0);
    TURN(1);
    TURN(2);
    TURN(3);
    TURN(4);
    TURN(5);
    TURN(6);
    TURN(7);
    if (pair >> 8) {
        TURN(8);
        TURN(9);
        TURN(10);
        TURN(11);
        TURN(12);
        TURN(13);
        TURN(14);
        TURN(15);
    }
    return turn;
}
#undef TURN

/* Cosine and sine of position * turn. */
static inline float2 rope_rotation(args_long position, ulong turn)
{
    const uint turned = (uint)((turn * (ulong)position) >> 32), quarter = (turned + (1u << 29)) >> 30;
    const float t = (float)as_int(turned - (quarter << 30)) * RADIANS, z = t * t;
    const float s = FMA(FMA(FMA(SIN_7, z, SIN_5), z, SIN_3) * z, t, t);
    const float c = FMA(FMA(FMA(COS_8, z, COS_6), z, COS_4), z * z, FMA(-0.5f, z, 1.0f));
    const float cosine = quarter & 1 ? s : c, sine = quarter & 1 ? c : s;

    return (float2)((quarter + 1) & 2 ? -cosine : cosine, quarter & 2 ? -sine : sine);
}

static inline args_long rope_position(int b, int s, const global ELEMENT(POSITION_TYPE) *positions,
                                      const global ELEMENT(OFFSET_TYPE) *offsets, const rope_args *a)
{
    args_long position = a->position;

    if (a->has_positions)
        return position + positions[a->positions_offset + b * a->positions_batch + s * a->positions_row];
    if (a->has_offsets)
        position += offsets[a->offsets_offset + b * a->offsets_batch];
    return position + s;
}

/* The index at which the row of cos or sin begins; valid unless rope_misses. */
static inline args_long rope_row(const array4 *cache, int b, int s, args_long position, const rope_args *a)
{
    return cache->offset + (a->table == ROPE_BY_PLACE ? b * cache->batch + s * cache->row : position * cache->row);
}

/* Whether the table has no row for the position. */
static inline bool rope_misses(args_long position, const rope_args *a)
{
    return a->table == ROPE_BY_POSITION && (position < 0 || position >= a->table_rows);
}

#endif
