/* Values passed between the items of a sub-group, through registers if the device can.
 *
 * Parameter       meaning                                                     allowed
 * SUB_GROUPS      by what means: none; cl_intel_subgroups; inline PTX of      0, 1, 2, 3, 4
 *                 NVIDIA's; AMD's builtins; emulated in local memory, for tests
 * SUB_GROUP_SIZE  items of a sub-group, 1 if there are none                   1; 2 .. 64, a power of two
 *
 * Sub-groups are made of SUB_GROUP_SIZE neighbouring items by their number in the work-group, dimension 0 fastest; that
 * divides the work-group.  Intel's compiler is asked for that size, AMD's has to agree with it.
 *
 *   SUB_GROUP_KERNEL                               stands before a kernel that uses sub-groups
 *   SUB_GROUP_LANE(item), SUB_GROUP_NUMBER(item)   where in its sub-group the item with this number is, and in which one
 *   SUB_GROUP_SCRATCH(ITEMS)                       floats of local memory that `scratch` has for a work-group of so many items
 *   sub_group_swap(x, distance, item, scratch)     the x of the item with number item ^ distance, distance < SUB_GROUP_SIZE
 *   sub_group_swap4(x, distance, item, scratch)    the same of a float4, with a scratch of as many float4
 *
 * Every item of the work-group calls these functions, in uniform control flow: the emulation has barriers.
 *
 * Tested: SUB_GROUPS 1 on Intel's runtime for CPUs, 2 on an H100 (driver 580.159), 4 everywhere.  3 has never run: it is
 * compiled offline. */
#ifndef CLATTN_CL_LIB_SUB_GROUP_H
#define CLATTN_CL_LIB_SUB_GROUP_H

#ifndef SUB_GROUPS
#define SUB_GROUPS 0
#endif
#ifndef SUB_GROUP_SIZE
#define SUB_GROUP_SIZE 1
#endif

#if SUB_GROUPS < 0 || SUB_GROUPS > 4
#error "SUB_GROUPS must be 0 to 4"
#endif
#if SUB_GROUP_SIZE < 1 || SUB_GROUP_SIZE > 64 || (SUB_GROUP_SIZE & (SUB_GROUP_SIZE - 1))
#error "SUB_GROUP_SIZE must be a power of two, 1 to 64"
#endif
#if (SUB_GROUPS == 0) != (SUB_GROUP_SIZE == 1)
#error "SUB_GROUP_SIZE is 1 where there are no sub-groups, and nowhere else"
#endif

#if SUB_GROUPS == 1
#pragma OPENCL EXTENSION cl_intel_subgroups : enable
#define SUB_GROUP_KERNEL __attribute__((intel_reqd_sub_group_size(SUB_GROUP_SIZE)))
#define SUB_GROUP_LANE(item) ((int)get_sub_group_local_id())
#define SUB_GROUP_NUMBER(item) ((int)get_sub_group_id())
#else
#define SUB_GROUP_KERNEL
#define SUB_GROUP_LANE(item) ((item) & (SUB_GROUP_SIZE - 1))
#define SUB_GROUP_NUMBER(item) ((item) / SUB_GROUP_SIZE)
#endif

#if SUB_GROUPS == 4
#define SUB_GROUP_SCRATCH(ITEMS) (ITEMS)
#else
#define SUB_GROUP_SCRATCH(ITEMS) 1
#endif

#if SUB_GROUPS == 1
static inline float sub_group_swap(float x, int distance, int item, local float *scratch)
{
    return intel_sub_group_shuffle_xor(x, (uint)distance);
}
#elif SUB_GROUPS == 2
#if SUB_GROUP_SIZE != 32
#error "a warp has 32 items"
#endif
static inline float sub_group_swap(float x, int distance, int item, local float *scratch)
{
    uint from;
    __asm__ volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;"
                     : "=r"(from)
                     : "r"(as_uint(x)), "r"(distance)
                     : "memory");
    return as_float(from);
}
#elif SUB_GROUPS == 3
#if defined(__AMDGCN_WAVEFRONT_SIZE__) && __AMDGCN_WAVEFRONT_SIZE__ != SUB_GROUP_SIZE
#error "the compiler makes wavefronts of another size than the device has told"
#endif
static inline float sub_group_swap(float x, int distance, int item, local float *scratch)
{
    return as_float(__builtin_amdgcn_ds_bpermute(((item ^ distance) & (SUB_GROUP_SIZE - 1)) << 2, as_int(x)));
}
#elif SUB_GROUPS == 4
static inline float sub_group_swap(float x, int distance, int item, local float *scratch)
{
    barrier(CLK_LOCAL_MEM_FENCE);
    scratch[item] = x;
    barrier(CLK_LOCAL_MEM_FENCE);
    return scratch[item ^ distance];
}

static inline float4 sub_group_swap4(float4 x, int distance, int item, local float4 *scratch)
{
    barrier(CLK_LOCAL_MEM_FENCE);
    scratch[item] = x;
    barrier(CLK_LOCAL_MEM_FENCE);
    return scratch[item ^ distance];
}
#endif

#if SUB_GROUPS > 0 && SUB_GROUPS < 4
static inline float4 sub_group_swap4(float4 x, int distance, int item, local float4 *scratch)
{
    return (float4)(sub_group_swap(x.x, distance, item, 0), sub_group_swap(x.y, distance, item, 0),
                    sub_group_swap(x.z, distance, item, 0), sub_group_swap(x.w, distance, item, 0));
}
#endif

#endif
