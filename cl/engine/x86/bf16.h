/* Products of bfloat16 two by two, for processors with AVX512-BF16:
 *
 *   dot2(acc, x, y)   lane by lane acc + x.lo * y.lo + x.hi * y.hi, x and y holding two bfloat16 in 32 bits
 *
 *   bf16_sums(x)      dot2's sums as bfloat16, rounded to nearest even (bf16_bitsv, whose bits these are)
 *
 * X86_BF16 (default 0): 1: by vdpbf16ps, in inline assembly, which PoCL's compiler takes, on a processor that has it; 0:
 * what that does, in OpenCL C, up to FUSED.  The instruction (Intel, Architecture Instruction Set Extensions Programming
 * Reference; AMD64 Architecture Programmer's Manual 4) takes the product of the upper halves into the sum first, then that
 * of the lower ones, each by an fma that rounds to nearest even whatever MXCSR says, and takes subnormal operands and
 * results for 0. */
#ifndef CLATTN_CL_ENGINE_X86_BF16_H
#define CLATTN_CL_ENGINE_X86_BF16_H

#include "lib/fma.h"
#include "lib/rows.h"

#ifndef X86_BF16
#define X86_BF16 0
#endif

#if !X86_BF16
/* A subnormal number becomes a zero of its sign. */
INLINE floatv flushed(uintv bits)
{
    return AS_FLOATV(select(bits, bits & 0x80000000, (bits & 0x7f800000) == 0));
}
#endif

INLINE floatv dot2(floatv acc, uintv x, uintv y)
{
#if X86_BF16
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(acc) : "v"(x), "v"(y));
    return acc;
#else
    acc = FMA(flushed(x & 0xffff0000), flushed(y & 0xffff0000), flushed(AS_UINTV(acc)));
    acc = FMA(flushed(x << 16), flushed(y << 16), flushed(AS_UINTV(acc)));
    return flushed(AS_UINTV(acc));
#endif
}

/* vcvtneps2bf16 takes subnormal numbers for 0, which such sums have been made already. */
INLINE ushortv bf16_sums(floatv x)
{
#if X86_BF16 && LANES == 16
    ushortv bits;

    __asm__("vcvtneps2bf16 %1, %0" : "=v"(bits) : "v"(x));
    return bits;
#else
    return bf16_bitsv(x);
#endif
}

#endif
