/* Reduction over a work-group of WORK_GROUP items (64), a power of two from 1 to 1024.
 *
 *   local float shared[REDUCE_SCRATCH(count)]            local memory for `count` reductions
 *   REDUCE(shared, index, item, value, COMBINE)          `value` becomes the combination of all items' values, made in one
 *                                                        fixed order; each REDUCE of a kernel has an index of its own,
 *                                                        0 .. count - 1, and is not in a loop
 *
 * Each sub-group (lib/sub_group.h) computes a partial result by shuffles, and the partial results are combined in local
 * memory: one barrier.  Without sub-groups REDUCE is a tree in local memory, log2(WORK_GROUP) + 2 barriers.
 *
 * All items must reach the barriers, so REDUCE stands in uniform control flow only. */
#ifndef CLATTN_CL_LIB_REDUCE_H
#define CLATTN_CL_LIB_REDUCE_H

#include "lib/sub_group.h"

#ifndef WORK_GROUP
#define WORK_GROUP 64
#endif
#if WORK_GROUP < 1 || WORK_GROUP > 1024 || (WORK_GROUP & (WORK_GROUP - 1))
#error "WORK_GROUP must be a power of two, 1 to 1024"
#endif

#define LARGER_FLOAT(a, b) ((b) > (a) ? (b) : (a))
#define SUM_FLOAT(a, b) ((a) + (b))

#if SUB_GROUPS == 0
#define REDUCE_SCRATCH(count) WORK_GROUP
#define REDUCE(shared, index, item, value, COMBINE) \
    do { \
        barrier(CLK_LOCAL_MEM_FENCE); \
        (shared)[item] = (value); \
        barrier(CLK_LOCAL_MEM_FENCE); \
        for (int step_ = WORK_GROUP / 2; step_ > 0; step_ /= 2) { \
            if ((item) < step_) \
                (shared)[item] = COMBINE((shared)[item], (shared)[(item) + step_]); \
            barrier(CLK_LOCAL_MEM_FENCE); \
        } \
        (value) = (shared)[0]; \
    } while (0)
#else
#if WORK_GROUP % SUB_GROUP_SIZE
#error "a work-group must be made of whole sub-groups"
#endif
#define REDUCE_PARTIALS (WORK_GROUP / SUB_GROUP_SIZE)
#define REDUCE_SCRATCH(count) ((count) * REDUCE_PARTIALS + SUB_GROUP_SCRATCH(WORK_GROUP))
/* No partial result is written twice, so that no item waits until all have read those of the reduction before. */
#define REDUCE(shared, index, item, value, COMBINE) \
    do { \
        local float *partials_ = (shared) + SUB_GROUP_SCRATCH(WORK_GROUP) + (index) * REDUCE_PARTIALS; \
        for (int step_ = SUB_GROUP_SIZE / 2; step_ > 0; step_ /= 2) { \
            const float other_ = sub_group_swap(value, step_, item, shared); \
            (value) = COMBINE(value, other_); \
        } \
        if (REDUCE_PARTIALS > 1) { \
            if (SUB_GROUP_LANE(item) == 0) \
                partials_[SUB_GROUP_NUMBER(item)] = (value); \
            barrier(CLK_LOCAL_MEM_FENCE); \
            (value) = partials_[0]; \
            for (int partial_ = 1; partial_ < REDUCE_PARTIALS; partial_++) \
                (value) = COMBINE(value, partials_[partial_]); \
        } \
    } while (0)
#endif

#endif
