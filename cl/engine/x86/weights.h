/* What the softmax beside AMX does with AVX-512's instructions, which a processor with AMX has.
 *
 *   fast_exp2v(x)        lib/exp2.h's exp2v, x <= 64; results below 2^-126 may be subnormal
 *   weight_pairs(x, y)   lib/bf16_pairs.h's round_pairs
 *
 * X86_AMX (engine/x86/amx.h): 1: in inline assembly, 0: those functions.  vreduceps takes the nearest integer away,
 * vscalefps multiplies by a power of 2 and clamps by itself: nine instructions for twelve, one of which only starts every
 * cycle.  LLVM 15 makes a vpermt2w of two rounded vectors, which takes two cycles, where a shift and a vpternlogd take one. */
#ifndef CLATTN_CL_ENGINE_X86_WEIGHTS_H
#define CLATTN_CL_ENGINE_X86_WEIGHTS_H

#include "lib/exp2.h"
#include "lib/bf16_pairs.h"
#include "engine/x86/amx.h"

INLINE floatv fast_exp2v(floatv x)
{
#if X86_AMX
    floatv f, p;

    __asm__("vreduceps $0, %1, %0" : "=v"(f) : "v"(x));
    p = exp2_polynomial(f);
    __asm__("vscalefps %1, %0, %0" : "+v"(p) : "v"(x - f));
    return p;
#else
    return exp2v(x);
#endif
}

INLINE uintv weight_pairs(floatv x, floatv y)
{
#if X86_AMX
    const uintv odd = AS_UINTV(y) + 0x8000;
    uintv pair = (AS_UINTV(x) + 0x8000) >> 16;

    __asm__("vpternlogd $0xd8, %2, %1, %0" : "+v"(pair) : "v"(odd), "v"((uintv)(0xffff0000)));
    return pair;
#else
    return round_pairs(x, y);
#endif
}

#endif
