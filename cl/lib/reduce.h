/* Reduction over a work-group of WORK_GROUP items, a power of two.
 *
 *   local float shared[REDUCE_ROOM(turns)]               for `turns` reductions
 *   REDUCE(shared, turn, item, value, COMBINE)           every item leaves with the combination of all items' `value`, made
 *                                                        in one fixed order; every REDUCE of a kernel has a `turn` of its
 *                                                        own, 0 .. turns - 1, and is not in a loop
 *
 * With sub-groups (lib/sub_group.h) each makes its own part by shuffles, and the parts meet in local memory: one barrier.
 * Without them it is a tree in local memory, log2(WORK_GROUP) + 2 barriers.
 *
 * Its barriers are met by all items: it may stand in uniform control flow only. */
#ifndef CLATTN_CL_LIB_REDUCE_H
#define CLATTN_CL_LIB_REDUCE_H

#include "lib/sub_group.h"

#define LARGER_FLOAT(a, b) ((b) > (a) ? (b) : (a))
#define SUM_FLOAT(a, b) ((a) + (b))

#if SUB_GROUPS == 0
#define REDUCE_ROOM(turns) WORK_GROUP
#define REDUCE(shared, turn, item, value, COMBINE) \
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
#define REDUCE_PARTS (WORK_GROUP / SUB_GROUP_SIZE)
#define REDUCE_ROOM(turns) ((turns) * REDUCE_PARTS + SUB_GROUP_ROOM(WORK_GROUP))
/* No part is written twice, so that nobody waits until all have read what the reduction before left. */
#define REDUCE(shared, turn, item, value, COMBINE) \
    do { \
        local float *parts_ = (shared) + SUB_GROUP_ROOM(WORK_GROUP) + (turn) * REDUCE_PARTS; \
        for (int step_ = SUB_GROUP_SIZE / 2; step_ > 0; step_ /= 2) { \
            const float other_ = sub_group_swap(value, step_, item, shared); \
            (value) = COMBINE(value, other_); \
        } \
        if (REDUCE_PARTS > 1) { \
            if (SUB_GROUP_LANE(item) == 0) \
                parts_[SUB_GROUP_NUMBER(item)] = (value); \
            barrier(CLK_LOCAL_MEM_FENCE); \
            (value) = parts_[0]; \
            for (int part_ = 1; part_ < REDUCE_PARTS; part_++) \
                (value) = COMBINE(value, parts_[part_]); \
        } \
    } while (0)
#endif

#endif
