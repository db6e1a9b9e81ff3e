/* The gradient of softmax on GPU-class devices: formula, arrays, storage and masks as softmax/backward.h says.
 *
 * Parameter       meaning                                          allowed
 * WORK_GROUP      items of a work-group                            power of two, 1 .. 1024
 * KEEP            columns of y and dy that an item keeps in        0 .. 32
 *                 registers, so that they are read once; needs
 *                 columns <= KEEP * WORK_GROUP.  0: any number of
 *                 columns
 * SUB_GROUPS,     lib/sub_group.h: WORK_GROUP is a multiple of the
 * SUB_GROUP_SIZE  size
 * Tested: WORK_GROUP 64, 256; KEEP 0, 4; SUB_GROUPS 0, 1, 4.
 *
 * NDRange: (rows * WORK_GROUP), local (WORK_GROUP); a work-group owns a row, item l its columns l, l + WORK_GROUP, ...
 * Local memory: 4 * WORK_GROUP bytes, with sub-groups 4 for each of them and 4 more.  Its barriers are outside of any
 * condition, in loops whose trip count is the same for all items.
 *
 * Needs OpenCL C 1.2.  softmax_backward_generic takes over if there is too little local memory. */
#include "softmax/backward.h"
#include "lib/reduce.h"

#ifndef KEEP
#define KEEP 0
#endif

#if KEEP < 0 || KEEP > 32
#error "KEEP must be 0 to 32"
#endif

SUB_GROUP_KERNEL
GROUP_SIZE(WORK_GROUP, 1, 1)
kernel void softmax_backward_tile(BACKWARD_PARAMETERS)
{
    local float shared[REDUCE_SCRATCH(1)];
    if (a.rows == 0)
        return;

    const int item = (int)get_local_id(0);
    row_place row;
    find_row(&row, (args_long)group_id(&a.part, 0), y, mask, dy, dx, &a);
    /* Trip counts are the same for all items: PoCL 3.1 vectorises across items and miscounts others. */
    const int steps = KEEP ? KEEP : (a.columns + WORK_GROUP - 1) / WORK_GROUP;
    float sum = 0.0f, lost = 0.0f;
#if KEEP
    float kept_y[KEEP], kept_dy[KEEP];
#endif

    for (int n = 0; n < steps; n++) {
        const int c = n * WORK_GROUP + item;
        const bool attended = c < a.columns && attends(&row, c, &a);
        const float y_c = attended ? LOAD(Y_TYPE, row.y, c * a.y.col) : 0.0f;
        const float dy_c = attended ? LOAD(DY_TYPE, row.dy, c * a.dy.col) : 0.0f;
        ADD_ANY(float, sum, lost, y_c *dy_c);
#if KEEP
        kept_y[n] = y_c;
        kept_dy[n] = dy_c;
#endif
    }
    REDUCE(shared, 0, item, sum, SUM_FLOAT);

    for (int n = 0; n < steps; n++) {
        const int c = n * WORK_GROUP + item;
        if (c < a.columns) {
#if KEEP
            const float g = GRADIENT(kept_y[n], kept_dy[n], sum, &a);
#else
            const float g = GRADIENT(LOAD(Y_TYPE, row.y, c * a.y.col), LOAD(DY_TYPE, row.dy, c * a.dy.col), sum, &a);
#endif
            STORE(DX_TYPE, row.dx, c * a.dx.col, attends(&row, c, &a) ? g : 0.0f);
        }
    }
}
