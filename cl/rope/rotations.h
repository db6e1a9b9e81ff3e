/* Rotations of LANES pairs at once, for rope and for embedding's sinusoids; each lane is what rope_rotation gives. */
#ifndef CLATTN_CL_ROPE_ROTATIONS_H
#define CLATTN_CL_ROPE_ROTATIONS_H

#include "lib/vector.h"
#include "rope/rope.h"

/* Cosines and sines of LANES pairs. */
typedef struct rope_rotations {
    floatv cosines, sines;
} rope_rotations;

/* rope_rotation for LANES pairs. */
static inline void rope_find_rotations(rope_rotations *r, args_long position, ulongv turns)
{
    const uintv turned = JOIN(convert_uint, LANES)((turns * (ulong)position) >> 32);
    const uintv quarter = (turned + (1u << 29)) >> 30;
    const floatv t = JOIN(convert_float, LANES)(AS_INTV(turned - (quarter << 30))) * RADIANS, z = t * t;
    const floatv s = FMA(FMA(FMA((floatv)(SIN_7), z, (floatv)(SIN_5)), z, (floatv)(SIN_3)) * z, t, t);
    const floatv c = FMA(FMA(FMA((floatv)(COS_8), z, (floatv)(COS_6)), z, (floatv)(COS_4)), z * z,
                         FMA((floatv)(-0.5f), z, (floatv)(1.0f)));
    const intv odd = (quarter & 1u) != 0u;
    const floatv cosines = select(c, s, odd), sines = select(s, c, odd);

    r->cosines = select(cosines, -cosines, ((quarter + 1u) & 2u) != 0u);
    r->sines = select(sines, -sines, (quarter & 2u) != 0u);
}

#endif
