/* Cross-entropy on GPU-class devices: formula, arrays and storage as cross_entropy/cross_entropy.h says.
 *
 * Parameter       meaning                                          allowed
 * WORK_GROUP      items of a work-group                            power of two, 1 .. 1024
 * KEEP            values that an item keeps in registers, so that  0 .. 32
 *                 x is read once; needs classes <= KEEP *
 *                 WORK_GROUP.  0: any number, and x is read twice
 * SUB_GROUPS,     lib/sub_group.h: WORK_GROUP is a multiple of the
 * SUB_GROUP_SIZE  size
 * Tested: WORK_GROUP 64, 256; KEEP 0, 4; SUB_GROUPS 0, 1, 4.
 *
 * NDRange: (rows * WORK_GROUP), local (WORK_GROUP); a work-group owns a row, item l its columns l, l + WORK_GROUP, ...
 * The item that owns the label's column writes the row's loss, because it alone has read that logit.
 * Local memory: 4 * WORK_GROUP bytes, with sub-groups 12 for each of them and 4 more.  Its barriers are outside of any
 * condition, in loops whose trip count is the same for all items.
 *
 * Needs OpenCL C 1.2.  cross_entropy_generic takes over if there is too little local memory. */
#include "cross_entropy/cross_entropy.h"
#include "lib/reduce.h"

#ifndef KEEP
#define KEEP 0
#endif

#if KEEP < 0 || KEEP > 32
#error "KEEP must be 0 to 32"
#endif

SUB_GROUP_KERNEL
GROUP_SIZE(WORK_GROUP, 1, 1)
kernel void cross_entropy_tile(ARRAYS, cross_entropy_args a)
{
    local float shared[REDUCE_SCRATCH(3)];
    if (a.rows == 0)
        return;

    const int item = (int)get_local_id(0);
    row_place row;
    row_target target;
    /* The row is the same for all items, but compilers must not know it: AMD's keeps what they share in few registers, and spills. */
    find_row(&row, (args_long)group_id(&a.part, 0) + item * (a.rows < 0), ARRAYS_GIVEN, &a);
    read_target(&target, &row, 0, &a);
    /* Trip counts are the same for all items: PoCL 3.1 vectorises across items and miscounts others. */
    const int steps = KEEP ? KEEP : (a.classes + WORK_GROUP - 1) / WORK_GROUP;
    float near = -FLT_MAX, row_max = -INFINITY, row_sum = 0.0f, lost = 0.0f, spread = 0.0f, spread_lost = 0.0f;
    float x_label = 0.0f;
#if KEEP
    float kept[KEEP];
#endif

    for (int n = 0; n < steps; n++) {
        const int c = n * WORK_GROUP + item;
        const float s = c < a.classes ? LOAD(X_TYPE, row.x, c * a.x.col) : -INFINITY;
        x_label = c == target.label ? s : x_label;
        row_max = s > row_max ? s : row_max;
        if (s > near + LAG) {
            const float factor = exp_of(near - s);
            row_sum *= factor;
            lost *= factor;
            if (SMOOTHING)
                ADD_ANY(float, spread, spread_lost, raised_by(n, near, s, &a));
            near = s;
        }
        ADD(float, row_sum, lost, exp_of(s - near));
        if (SMOOTHING)
            ADD_ANY(float, spread, spread_lost, c < a.classes ? a.share * (near - s) : 0.0f);
#if KEEP
        kept[n] = s;
#endif
    }
    REDUCE(shared, 0, item, row_max, LARGER_FLOAT);
    row_sum *= exp_of(near - row_max);
    REDUCE(shared, 1, item, row_sum, SUM_FLOAT);
    if (SMOOTHING) {
        /* The item's columns, of which it has one more than others if the last step is not for all. */
        const int count = (a.classes - item + WORK_GROUP - 1) / WORK_GROUP;
        spread += raised_by(count, near, row_max, &a);
        REDUCE(shared, 2, item, spread, SUM_FLOAT);
    }

    if (item == target.label % WORK_GROUP)
        store_sums(&row, &target, x_label, row_max, row_sum, spread, &a);
#if GRADIENT
    const float inverse = 1.0f / row_sum;
    for (int n = 0; n < steps; n++) {
        const int c = n * WORK_GROUP + item;
#if KEEP
        const float s = kept[n];
#else
        const float s = c < a.classes ? LOAD(X_TYPE, row.x, c * a.x.col) : -INFINITY;
#endif
        const float term = exp_of(s - row_max);
        const float found = c == target.label ? GRADIENT_OF_LABEL(term, inverse, target.weight, &a)
                                              : GRADIENT_OF(term, inverse, target.weight, &a);
        if (c < a.classes)
            STORE(GRADIENT_TYPE, row.gradient, c * a.gradient.col, target.counts ? found : target.instead);
    }
#endif
}
