/* Sixteen bytes at a time from global to local memory, in the background where the GPU can.
 *
 *   matrix_copy(to, from, bytes)   `bytes` (0 to 16, a multiple of 2) from `from`, a multiple of 16 bytes, to `to`,
 *                                  likewise; the rest of the sixteen become 0.  from is not read for 0 bytes
 *   matrix_commit()                what this item has asked for since the last one is a group
 *   matrix_wait(n)                 all groups of this item but the n (a constant) latest have arrived; what other items have
 *                                  copied is there behind the barrier that follows
 *   matrix_eight(from, stride, count)   `count` elements that lie `stride` apart, and zeros, as a piece of a tile
 *   MATRIX_COPY_ASYNC              1: so it is, by NVIDIA's cp.async (compute capability 8.0); 0: a copy is done when
 *                                  matrix_copy returns, and whoever would hide its latency loads through registers */
#ifndef CLATTN_CL_ENGINE_COPY_H
#define CLATTN_CL_ENGINE_COPY_H

#include "engine/fragment.h"

#define MATRIX_COPY_ASYNC (MATRIX_ENGINE == MATRIX_MMA)

static inline uint matrix_element(const global ushort *from, long stride, int count, int n)
{
    return n < count ? (uint)from[n * stride] : 0;
}

/* Without an array: Intel's compiler leaves those in memory when there are too many. */
static inline uint4 matrix_eight(const global ushort *from, long stride, int count)
{
    return (uint4)(matrix_element(from, stride, count, 0) | matrix_element(from, stride, count, 1) << 16,
                   matrix_element(from, stride, count, 2) | matrix_element(from, stride, count, 3) << 16,
                   matrix_element(from, stride, count, 4) | matrix_element(from, stride, count, 5) << 16,
                   matrix_element(from, stride, count, 6) | matrix_element(from, stride, count, 7) << 16);
}

#if MATRIX_COPY_ASYNC && !MATRIX_EMULATED

static inline void matrix_copy(local uint4 *to, const global ushort *from, int bytes)
{
    __asm__ volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     :
                     : "r"((uint)(size_t)to), "l"((ulong)(size_t)from), "r"(bytes)
                     : "memory");
}

static inline void matrix_commit(void)
{
    __asm__ volatile("cp.async.commit_group;" : : : "memory");
}

#define matrix_wait(n) __asm__ volatile("cp.async.wait_group %0;" : : "n"(n) : "memory")

#else

static inline void matrix_copy(local uint4 *to, const global ushort *from, int bytes)
{
    if (bytes == 16)
        *to = *(const global uint4 *)from;
    else
        *to = matrix_eight(from, 1, bytes >> 1);
}

#define matrix_commit()
#define matrix_wait(n)

#endif

#endif
