/* The gradient of LayerNorm's and RMSNorm's x on GPU-class devices: formula, arrays and storage types as norm/backward.h says.
 *
 * Parameter   meaning                                                          allowed
 * WORK_GROUP  items of a work-group                                            power of two, 1 .. 1024
 * SUB_GROUPS, SUB_GROUP_SIZE   lib/sub_group.h; WORK_GROUP is a multiple of the size
 * Tested: WORK_GROUP 32 .. 256; SUB_GROUPS 0, 1, 4.
 *
 * NDRange: (rows * WORK_GROUP), local (WORK_GROUP); a work-group owns a row, item l its elements l, l + WORK_GROUP, ...
 * Rows are read three times, from the cache if they fit.  Local memory: 4 * WORK_GROUP bytes, with sub-groups 20 for each of them
 * and 4 more.  Its barriers are outside of any condition, in loops whose trip count is the same for all items.
 *
 * Needs OpenCL C 1.2.  norm_backward_generic takes over if there is too little local memory. */
#include "norm/backward.h"
#include "lib/reduce.h"

/* Sets `at` to where the segment of a row's element e begins, and returns the element's column. */
static inline int find_element(place *at, const place *row, int e, const norm_backward_args *a)
{
    const int s = !SEGMENTED || a->segments == 1 ? 0 : e / a->columns;

    find_segment(at, row, s, a);
    return e - s * a->columns;
}

SUB_GROUP_KERNEL
GROUP_SIZE(WORK_GROUP, 1, 1)
kernel void norm_backward_tile(BACKWARD_PARAMETERS)
{
    local float shared[REDUCE_SCRATCH(5)];
    if (a.rows == 0)
        return;

    const int item = (int)get_local_id(0), elements = a.segments * a.columns;
    const args_long r = (args_long)group_id(&a.part, 0);
    place row, at;
    /* The row is the same for all items, but compilers must not know it: AMD's keeps what they share in few registers, and spills. */
    find_row(&row, (int)r + item * (a.rows < 0), x, residual, scale, dy, dsum, dx, &a);
    /* Trip counts are the same for all items: PoCL 3.1 vectorises across items and miscounts others. */
    const int steps = (elements - 1) / WORK_GROUP + 1, first = a.centred ? steps : 0;
    float centre = 0.0f, deviations = 0.0f, squares = 0.0f, sum_g = 0.0f, sum_gd = 0.0f;
    float lost = 0.0f, lost_square = 0.0f, lost_g = 0.0f, lost_gd = 0.0f;

    for (int n = 0; n < first; n++) {
        const int e = n * WORK_GROUP + item;
        float v = 0.0f;
        if (e < elements) {
            const int c = find_element(&at, &row, e, &a);
            v = load_x(&at, c, &a);
        }
        ADD(float, centre, lost, v);
    }
    REDUCE(shared, 0, item, centre, SUM_FLOAT);
    centre /= (float)elements;
    lost = 0.0f;
    for (int n = 0; n < steps; n++) {
        const int e = n * WORK_GROUP + item;
        float d = 0.0f, g = 0.0f;
        if (e < elements) {
            const int c = find_element(&at, &row, e, &a);
            d = load_x(&at, c, &a) - centre;
            g = load_g(&at, c, &a);
        }
        ADD(float, squares, lost_square, (d * d));
        ADD(float, deviations, lost, d);
        ADD_ANY(float, sum_g, lost_g, g);
        ADD_ANY(float, sum_gd, lost_gd, (g * d));
    }
    REDUCE(shared, 1, item, squares, SUM_FLOAT);
    REDUCE(shared, 2, item, deviations, SUM_FLOAT);
    REDUCE(shared, 3, item, sum_g, SUM_FLOAT);
    REDUCE(shared, 4, item, sum_gd, SUM_FLOAT);
    moments m;
    find_moments(&m, centre, deviations, squares, sum_g, sum_gd, &a);
    const int last = a.has_dx ? elements : 0;
    for (int e = item; e < last; e += WORK_GROUP) {
        const int c = find_element(&at, &row, e, &a);
        write_one(&at, c, &m, &a);
    }
    if (item == 0)
        store_statistics(r, &m, workspace, &a);
}
