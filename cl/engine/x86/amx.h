/* Intel's AMX: eight tiles of 16 rows of 64 bytes, and products of bfloat16 (Intel 64 and IA-32 Architectures Software
 * Developer's Manual, volume 1, chapter 18, and volume 2, TDPBF16PS).
 *
 *   AMX_BEGIN(state), AMX_END(state)    before the first and after the last of the others in a work-item
 *   AMX_LOAD(state, t, p, step)         tile t, a literal: row i is 32 bfloat16 from p[i * step] on; p is a pointer to
 *                                       ushort, of any address space
 *   AMX_STREAM(state, t, p, step)       the same of what is not read again soon: it need not stay in the level-1 cache
 *   AMX_LOAD_WORDS(state, t, p, step)   the same of pairs: row i is 16 words from p[i * step] on
 *   AMX_STREAM_WORDS(state, t, p, step) the same of what is not read again soon
 *   AMX_LOAD_SUMS(state, t, p, step)    row i is 16 floats from p[i * step] on
 *   AMX_STORE_SUMS(state, t, p, step)   the reverse
 *   AMX_ZERO(state, t)                  all of it is 0
 *   AMX_DOT(state, c, a, b)             c[i][j] += sum over x < 16 of two products: of the bfloat16 2x and 2x + 1 of row i
 *                                       of a with 2j and 2j + 1 of row x of b
 *
 * X86_AMX (default 0): 1: by the instructions, in inline assembly, in a process that the system permits to; 0: what they
 * do, in OpenCL C, the tiles in private memory.  The products of even and of odd elements are added apart, each from 0 on.  The
 * instruction rounds to nearest even and takes subnormal numbers for 0; the emulation does as the device does. */
#ifndef CLATTN_CL_ENGINE_X86_AMX_H
#define CLATTN_CL_ENGINE_X86_AMX_H

#include "lib/fma.h"
#include "lib/rows.h"

#ifndef X86_AMX
#define X86_AMX 0
#endif

#define AMX_ROWS 16
#define AMX_WORDS 16 /* of 32 bits in a row */

typedef struct amx_state {
#if X86_AMX
    uchar config[64];
#else
    uint tile[8][AMX_ROWS * AMX_WORDS];
#endif
} amx_state;

#if X86_AMX
/* The configuration: palette 1, 16 bytes on the eight tiles' bytes a row, 48 on their rows. */
#define AMX_BEGIN(state) \
    do { \
        for (int i_ = 0; i_ < 64; i_++) \
            (state)->config[i_] = i_ == 0                                ? 1 \
                                  : i_ >= 16 && i_ < 32 && (i_ & 1) == 0 ? 64 \
                                  : i_ >= 48 && i_ < 56                  ? AMX_ROWS \
                                                                         : 0; \
        __asm__ volatile("ldtilecfg (%0)" : : "r"((state)->config) : "memory"); \
    } while (0)
#define AMX_END(state) __asm__ volatile("tilerelease" : : : "memory")
#define AMX_LOAD_BYTES(how, t, p, step) \
    __asm__ volatile(how " (%0,%1,1), %%tmm" #t : : "r"((size_t)(p)), "r"((long)(step)) : "memory")
#define AMX_LOAD(state, t, p, step) AMX_LOAD_BYTES("tileloadd", t, p, (step) * 2)
#define AMX_STREAM(state, t, p, step) AMX_LOAD_BYTES("tileloaddt1", t, p, (step) * 2)
#define AMX_LOAD_WORDS(state, t, p, step) AMX_LOAD_BYTES("tileloadd", t, p, (step) * 4)
#define AMX_STREAM_WORDS(state, t, p, step) AMX_LOAD_BYTES("tileloaddt1", t, p, (step) * 4)
#define AMX_LOAD_SUMS(state, t, p, step) AMX_LOAD_BYTES("tileloadd", t, p, (step) * 4)
#define AMX_STORE_SUMS(state, t, p, step) \
    __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" : : "r"((size_t)(p)), "r"((long)(step) * 4) : "memory")
#define AMX_ZERO(state, t) __asm__ volatile("tilezero %%tmm" #t : : : "memory")
#define AMX_DOT(state, c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c : : : "memory")
#else
#define AMX_BEGIN(state) (void)(state)
#define AMX_END(state) (void)(state)
#define AMX_LOAD(state, t, p, step) \
    do { \
        for (int i_ = 0; i_ < AMX_ROWS; i_++) \
            for (int w_ = 0; w_ < AMX_WORDS; w_++) \
                (state)->tile[t][i_ * AMX_WORDS + w_] = \
                    (p)[i_ * (long)(step) + 2 * w_] | (uint)(p)[i_ * (long)(step) + 2 * w_ + 1] << 16; \
    } while (0)
#define AMX_STREAM(state, t, p, step) AMX_LOAD(state, t, p, step)
#define AMX_LOAD_WORDS(state, t, p, step) \
    do { \
        for (int i_ = 0; i_ < AMX_ROWS; i_++) \
            for (int w_ = 0; w_ < AMX_WORDS; w_++) \
                (state)->tile[t][i_ * AMX_WORDS + w_] = (p)[i_ * (long)(step) + w_]; \
    } while (0)
#define AMX_STREAM_WORDS(state, t, p, step) AMX_LOAD_WORDS(state, t, p, step)
#define AMX_LOAD_SUMS(state, t, p, step) \
    do { \
        for (int i_ = 0; i_ < AMX_ROWS; i_++) \
            for (int w_ = 0; w_ < AMX_WORDS; w_++) \
                (state)->tile[t][i_ * AMX_WORDS + w_] = as_uint((p)[i_ * (step) + w_]); \
    } while (0)
#define AMX_STORE_SUMS(state, t, p, step) \
    do { \
        for (int i_ = 0; i_ < AMX_ROWS; i_++) \
            for (int w_ = 0; w_ < AMX_WORDS; w_++) \
                (p)[i_ * (step) + w_] = as_float((state)->tile[t][i_ * AMX_WORDS + w_]); \
    } while (0)
#define AMX_ZERO(state, t) \
    do { \
        for (int i_ = 0; i_ < AMX_ROWS; i_++) \
            for (int w_ = 0; w_ < AMX_WORDS; w_++) \
                (state)->tile[t][i_ * AMX_WORDS + w_] = 0; \
    } while (0)
#define AMX_DOT(state, c, a, b) amx_dot((state)->tile[c], (state)->tile[a], (state)->tile[b])
INLINE void amx_dot(uint *c, const uint *a, const uint *b)
{
    for (int i = 0; i < AMX_ROWS; i++)
        for (int j = 0; j < AMX_WORDS; j += LANES) {
            floatv even = (floatv)(0.0f), odd = (floatv)(0.0f);

            for (int x = 0; x < AMX_WORDS; x++) {
                const uintv left = (uintv)a[i * AMX_WORDS + x], right = VLOAD(0, b + x * AMX_WORDS + j);
                even = FMA(AS_FLOATV(left << 16), AS_FLOATV(right << 16), even);
                odd = FMA(AS_FLOATV(left & 0xffff0000), AS_FLOATV(right & 0xffff0000), odd);
            }
            const floatv sum = AS_FLOATV(VLOAD(0, c + i * AMX_WORDS + j)) + (even + odd);
            VSTORE(AS_UINTV(sum), 0, c + i * AMX_WORDS + j);
        }
}
#endif

#endif
