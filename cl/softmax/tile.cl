/* Softmax on GPU-class devices: formula, arrays, storage and masks as softmax/softmax.h says.
 *
 * Parameter       meaning                                          allowed
 * WORK_GROUP      items of a work-group                            power of two, 1 .. 1024
 * KEEP            values that an item keeps in registers, so that  0 .. 32
 *                 x is read once; needs columns <= KEEP *
 *                 WORK_GROUP.  0: any number of columns
 * SUB_GROUPS,     lib/sub_group.h: WORK_GROUP is a multiple of the
 * SUB_GROUP_SIZE  size
 * Tested: WORK_GROUP 64, 256; KEEP 0, 4; SUB_GROUPS 0, 1, 4.
 *
 * NDRange: (rows * WORK_GROUP), local (WORK_GROUP); a work-group owns a row, item l its columns l, l + WORK_GROUP, ...
 * Local memory: 4 * WORK_GROUP bytes, with sub-groups 8 for each of them and 4 more.  Its barriers are outside of any
 * condition, in loops whose trip count is the same for all items.
 *
 * Needs OpenCL C 1.2.  softmax_generic takes over if there is too little local memory. */
#include "softmax/softmax.h"
#include "lib/reduce.h"

#ifndef KEEP
#define KEEP 0
#endif

#if KEEP < 0 || KEEP > 32
#error "KEEP must be 0 to 32"
#endif

SUB_GROUP_KERNEL
GROUP_SIZE(WORK_GROUP, 1, 1)
kernel void softmax_tile(const global ELEMENT(X_TYPE) *x, const global ELEMENT(MASK_TYPE) *mask,
                         global ELEMENT(Y_TYPE) *y, softmax_args a)
{
    local float shared[REDUCE_SCRATCH(2)];
    if (a.rows == 0)
        return;

    const int item = (int)get_local_id(0);
    row_place row;
    find_row(&row, (args_long)group_id(&a.part, 0), x, mask, y, &a);
    /* Trip counts are the same for all items: PoCL 3.1 vectorises across items and miscounts others. */
    const int steps = KEEP ? KEEP : (a.columns + WORK_GROUP - 1) / WORK_GROUP;
    float row_max = -INFINITY, row_sum = 0.0f, lost = 0.0f;
#if KEEP
    float kept[KEEP];
#endif

    for (int n = 0; n < steps; n++) {
        const int c = n * WORK_GROUP + item;
        const float s = c < a.columns ? score(&row, c, -FLT_MAX, &a) : -INFINITY;
        row_max = s > row_max ? s : row_max;
#if KEEP
        kept[n] = c < a.columns ? score(&row, c, -INFINITY, &a) : -INFINITY;
#endif
    }
    REDUCE(shared, 0, item, row_max, LARGER_FLOAT);
    const bool nothing = attends_nothing(row_max);
    row_max = nothing ? 0.0f : row_max;

    for (int n = 0; n < steps; n++) {
        const int c = n * WORK_GROUP + item;
#if KEEP
        const float s = kept[n];
#else
        const float s = c < a.columns ? score(&row, c, -INFINITY, &a) : -INFINITY;
#endif
        const float term = c < a.columns ? exp_of(s - row_max) : 0.0f;
        ADD(float, row_sum, lost, term);
#if KEEP
        kept[n] = term;
#endif
    }
    REDUCE(shared, 1, item, row_sum, SUM_FLOAT);
    const float inverse = nothing ? 0.0f : 1.0f / row_sum;

    for (int n = 0; n < steps; n++) {
        const int c = n * WORK_GROUP + item;
#if KEEP
        const float term = kept[n];
#else
        const float term = c < a.columns ? exp_of(score(&row, c, -INFINITY, &a) - row_max) : 0.0f;
#endif
        if (c < a.columns)
            STORE(Y_TYPE, row.y, c * a.y.col, term * inverse);
    }
}
