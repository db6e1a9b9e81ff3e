/* LayerNorm and RMSNorm on GPU-class devices: formula, arrays and storage types as norm/norm.h says.
 *
 * Parameter   meaning                                                          allowed
 * WORK_GROUP  items of a work-group                                            power of two, 1 .. 1024
 * KEEP        elements that an item keeps in registers, so that x is read      0 .. 32
 *             once; needs elements <= KEEP * WORK_GROUP.  0: any number
 * PLAIN       1: rows have one index, row_extent[1..3] are 1, and one segment.   0, 1
 *             All strides at once are more than AMD's scalar registers hold.
 * SUB_GROUPS, SUB_GROUP_SIZE   lib/sub_group.h; WORK_GROUP is a multiple of the size
 * Tested: WORK_GROUP 32 .. 256; KEEP 0, 1, 4, 16; PLAIN 0, 1; UNIT_STRIDE; SUB_GROUPS 0, 1, 4.
 *
 * NDRange: (rows * WORK_GROUP), local (WORK_GROUP); a work-group owns a row, item l its elements l, l + WORK_GROUP, ...
 * Local memory: 4 * WORK_GROUP bytes, with sub-groups 12 for each of them and 4 more.  Its barriers are outside of any
 * condition, in loops whose trip count is the same for all items.
 *
 * Needs OpenCL C 1.2.  norm_generic takes over if there is too little local memory. */
#include "norm/norm.h"
#include "lib/reduce.h"

#ifndef KEEP
#define KEEP 0
#endif

#if KEEP < 0 || KEEP > 32
#error "KEEP must be 0 to 32"
#endif

/* Sets `at` to where the segment of a row's element e begins, and returns the element's column. */
static inline int find_element(place *at, const place *row, int e, const norm_args *a)
{
    const int s = PLAIN || a->segments == 1 ? 0 : e / a->columns;

    find_segment(at, row, s, a);
    return e - s * a->columns;
}

static inline float load_one(const place *row, int e, const norm_args *a)
{
    place at;
    const int c = find_element(&at, row, e, a);
    return load_x(&at, c, a);
}

SUB_GROUP_KERNEL
GROUP_SIZE(WORK_GROUP, 1, 1)
kernel void norm_tile(NORM_PARAMETERS)
{
    local float shared[REDUCE_SCRATCH(3)];
    if (a.rows == 0)
        return;

    const int item = (int)get_local_id(0), elements = a.segments * a.columns;
    const int r = (int)group_id(&a.part, 0);
    place row;
    first_row(&row, x, scale, bias, residual, y, sum, &a);
    move(&row, r, a.row_extent, &a);
    /* Trip counts are the same for all items: PoCL 3.1 vectorises across items and miscounts others. */
    const int steps = KEEP ? KEEP : (elements - 1) / WORK_GROUP + 1, first = KEEP || a.centred ? steps : 0;
    /* All items compute these, before the barriers: with the loop in one item's branch at the end, PoCL 3.1 made a kernel of
     * 2 items that never ended. */
    const args_long mean_at = statistic_at(r, &a.mean, &a), inverse_at = statistic_at(r, &a.inverse, &a);
    float centre = 0.0f, deviations = 0.0f, squares = 0.0f, lost = 0.0f, lost_square = 0.0f;
#if KEEP
    float kept[KEEP];
#endif

    for (int n = 0; n < first; n++) {
        const int e = n * WORK_GROUP + item;
        const float v = e < elements ? load_one(&row, e, &a) : 0.0f;
        ADD(float, centre, lost, v);
#if KEEP
        kept[n] = v;
#endif
    }
    REDUCE(shared, 0, item, centre, SUM_FLOAT);
    centre = a.centred ? centre / (float)elements : 0.0f;
    lost = 0.0f;
    for (int n = 0; n < steps; n++) {
        const int e = n * WORK_GROUP + item;
#if KEEP
        const float d = e < elements ? kept[n] - centre : 0.0f;
#else
        const float d = e < elements ? load_one(&row, e, &a) - centre : 0.0f;
#endif
        ADD(float, squares, lost_square, (d * d));
        ADD(float, deviations, lost, d);
    }
    REDUCE(shared, 1, item, squares, SUM_FLOAT);
    REDUCE(shared, 2, item, deviations, SUM_FLOAT);
    moments m;
    find_moments(&m, centre, deviations, squares, &a);
    for (int n = 0; n < steps; n++) {
        const int e = n * WORK_GROUP + item;
        if (e < elements) {
            place at;
            const int c = find_element(&at, &row, e, &a);
#if KEEP
            const float v = kept[n];
#else
            const float v = load_x(&at, c, &a);
#endif
            write_one(&at, c, v, &m, &a);
        }
    }
    if (item == 0 && a.has_mean)
        mean[mean_at] = m.mean + m.drift;
    if (item == 0 && a.has_inverse)
        inverse[inverse_at] = m.factor;
}
