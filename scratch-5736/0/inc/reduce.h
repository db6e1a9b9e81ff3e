/* Reduction over a work-group of WORK_GROUP items, a power of two.
 *
 *   REDUCE(shared, item, value, COMBINE)   every item leaves with the combination of all items' `value`, made in
 *                                          one fixed order; `shared` holds WORK_GROUP elements of local memory
 *
 * Its barriers are met by all items: it may stand in uniform control flow only. */
#ifndef CLATTN_INC_REDUCE_H
#define CLATTN_INC_REDUCE_H

#define REDUCE(shared, item, value, COMBINE)                                                                \
    do {                                                                                                    \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                       \
        (shared)[item] = (value);                                                                           \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                       \
        for (int step_ = WORK_GROUP / 2; step_ > 0; step_ /= 2) {                                           \
            if ((item) < step_)                                                                             \
                (shared)[item] = COMBINE((shared)[item], (shared)[(item) + step_]);                         \
            barrier(CLK_LOCAL_MEM_FENCE);                                                                   \
        }                                                                                                   \
        (value) = (shared)[0];                                                                              \
    } while (0)
#define LARGER_FLOAT(a, b) ((b) > (a) ? (b) : (a))
#define SUM_FLOAT(a, b) ((a) + (b))

#endif
