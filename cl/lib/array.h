/* How kernels are told where their arrays lie, and the rules for their arguments; the host shares this file.
 *
 * Every kernel takes its buffers first and then exactly one struct by value, which its family's args.h defines.  All
 * strides and offsets are in elements of the array that they belong to.  A struct holds its 64-bit members first and is a
 * multiple of 8 bytes long, so that it has no padding on any compiler (rusticl counts a struct's size without tail
 * padding); the host asserts each size.
 *
 * A kernel that is launched with `batch` (softmax, norm and embedding's gradient: `rows`, activation: `pieces`, adam: `count`) equal
 * to 0 returns at once: making a plan runs each kernel so, because some platforms compile at the first launch only. */
#ifndef CLATTN_CL_LIB_ARRAY_H
#define CLATTN_CL_LIB_ARRAY_H

#if defined(__OPENCL_VERSION__) || defined(__OPENCL_C_VERSION__)
/* Kernels write fma for what is to be fused.  The compiler must not contract by itself: it would round a product in
 * one place and not in another, and the two have to agree; in attention's softmax the difference of two rounded products
 * would become one of a rounded and an exact product, an error of 3e-4 at scores near 1e4. */
#pragma OPENCL FP_CONTRACT OFF
#define ARGS_ON_DEVICE
typedef long args_long;
typedef ulong args_ulong;
typedef uint args_uint;
/* The size of a kernel's work-groups, which every launch gives as well.  The attribute is nothing on PoCL, which before
 * version 6 aborts the process if it is asked for a binary that has such a kernel while the kernel runs. */
#ifdef POCL_DEVICE_ADDRESS_BITS
#define GROUP_SIZE(x, y, z)
#else
#define GROUP_SIZE(x, y, z) __attribute__((reqd_work_group_size(x, y, z)))
#endif
/* A function that does what one item of a kernel has to do, given what the item owns.  It asks for no ids, has no barriers and no
 * local memory, and does not change a struct that it is given, because rusticl passes it without a copy.  PoCL (3.1 and 6.0)
 * makes three functions of each kernel and inlines everything into each; a function that is not inlined is compiled once. */
#ifdef POCL_DEVICE_ADDRESS_BITS
#define ITEM_FUNCTION static __attribute__((noinline)) void
#else
#define ITEM_FUNCTION static void
#endif
#else
#include <stdint.h>
typedef int64_t args_long;
typedef uint64_t args_ulong;
typedef uint32_t args_uint;
#endif

/* The work-groups of one launch among all those that the kernel's work takes.  The host may cut the work into several launches
 * (plan/enqueue.h), so kernels ask the functions below for ids and counts instead of OpenCL's own. */
typedef struct launch_part {
    int first[3];  /* the first group of this launch, in each dimension */
    int groups[3]; /* the groups of all launches */
} launch_part;

/* Element (b, h, i, j) of a (batch, heads, length, size) array lies at offset + b*batch + h*head + i*row + j*col. */
typedef struct array4 {
    args_long offset, batch, head, row, col;
} array4;

/* Element (i, j) of an (outer, inner) array lies at offset + i*row + j*col. */
typedef struct array2 {
    args_long offset, row, col;
} array2;

/* Element i of a one-dimensional array lies at offset + i*stride. */
typedef struct array1 {
    args_long offset, stride;
} array1;

/* Element i of row (i0, i1, i2, i3) lies at offset + i0*stride[0] + i1*stride[1] + i2*stride[2] + i3*stride[3] + i*col. */
typedef struct array5 {
    args_long offset, stride[4], col;
} array5;

#ifdef ARGS_ON_DEVICE
static inline size_t group_id(const private launch_part *part, uint dimension)
{
    return get_group_id(dimension) + (size_t)part->first[dimension];
}

/* The group's number from the end in dimension 0, for kernels whose last groups have the most to do and should start first. */
static inline int last_group_first(const private launch_part *part)
{
    return part->groups[0] - 1 - (int)group_id(part, 0);
}

static inline size_t global_id(const private launch_part *part, uint dimension)
{
    return get_global_id(dimension) + (size_t)part->first[dimension] * get_local_size(dimension);
}
#endif

#endif
