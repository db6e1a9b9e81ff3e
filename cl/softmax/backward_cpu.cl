/* The gradient of softmax on CPU devices: formula, arrays, storage and masks as softmax/backward.h says.
 *
 * Parameter    meaning                                          allowed
 * UNIT_STRIDE  the cols of y, dy and dx are 1                   0, 1
 * LANES        vector width                                     4, 8, 16
 * Tested: UNIT_STRIDE x LANES 4, 8, 16.
 *
 * NDRange: (work-groups of 1 item); an item owns rows / groups neighbouring rows, its lanes neighbouring columns.  Two passes
 * over a row, which lies in the cache for the second.  Local memory: none.  Barriers: none.
 *
 * Needs OpenCL C 1.2.  softmax_backward_generic takes over if a device limits loops and has longer rows. */
#include "softmax/backward.h"
#include "lib/gather.h"

#ifndef UNIT_STRIDE
#define UNIT_STRIDE 0
#endif

DEFINE_GATHER(gather_y, Y_TYPE)
DEFINE_GATHER(gather_dy, DY_TYPE)
DEFINE_SCATTER(scatter_dx, DX_TYPE)
#if MASK
DEFINE_GATHER(gather_mask, MASK_TYPE)
#endif

/* x in those of the columns c to c + LANES - 1 that are attended, and 0 in the others; there are `count` columns. */
static inline floatv keep_attended(floatv x, const row_place *row, int c, int count, const softmax_backward_args *a)
{
#if MASK
    const int covered = min(count, a->mask_columns - c);
    const floatv m = gather_mask(row->mask, c, a->mask.col, a->mask.col == 1, covered);
    x = select(x, (floatv)(0.0f), MASK_SELECTS ? m == (floatv)(0.0f) : m == (floatv)(-INFINITY));
    return covered < LANES ? select(x, (floatv)(0.0f), LANE_INDEX >= (intv)(covered)) : x;
#else
    return x;
#endif
}

static inline floatv terms(const row_place *row, int c, int count, const softmax_backward_args *a)
{
    const floatv y = gather_y(row->y, c, a->y.col, UNIT_STRIDE, count);
    return keep_attended(y * gather_dy(row->dy, c, a->dy.col, UNIT_STRIDE, count), row, c, count, a);
}

static inline void write_columns(const row_place *row, int c, int count, float sum, const softmax_backward_args *a)
{
    const floatv y = gather_y(row->y, c, a->y.col, UNIT_STRIDE, count);
    const floatv g = GRADIENT(y, gather_dy(row->dy, c, a->dy.col, UNIT_STRIDE, count), sum, a);
    scatter_dx(row->dx, c, a->dx.col, UNIT_STRIDE, count, keep_attended(g, row, c, count, a));
}

/* The sum of so many vectors joins the compensated sum at once: four chains of eight, so that no addition waits for the one
 * before it. */
#define CHAINS 4
#define RUN (8 * CHAINS)

static inline float row_sum(const row_place *row, const softmax_backward_args *a)
{
    floatv sum = (floatv)(0.0f), lost = (floatv)(0.0f);

    for (int c = 0; c < a->columns;) {
        const int end = c + min(a->columns - c, RUN * LANES);
        floatv run[CHAINS];
#pragma unroll
        for (int n = 0; n < CHAINS; n++)
            run[n] = (floatv)(0.0f);
        for (; c + CHAINS * LANES <= end; c += CHAINS * LANES)
#pragma unroll
            for (int n = 0; n < CHAINS; n++)
                run[n] += terms(row, c + n * LANES, LANES, a);
        for (; c < end; c += LANES)
            run[0] += terms(row, c, end - c, a);
        c = end;
        ADD_ANY(floatv, sum, lost, (run[0] + run[1]) + (run[2] + run[3]));
    }
    return sum_lanes(sum);
}

ITEM_FUNCTION backward_rows(BACKWARD_PARAMETERS, args_long first, args_long end)
{
    for (args_long r = first; r < end; r++) {
        row_place row;
        int c = 0;
        find_row(&row, r, y, mask, dy, dx, &a);
        const float sum = row_sum(&row, &a);
        for (; c + LANES <= a.columns; c += LANES)
            write_columns(&row, c, LANES, sum, &a);
        if (c < a.columns)
            write_columns(&row, c, a.columns - c, sum, &a);
    }
}

GROUP_SIZE(1, 1, 1)
kernel void softmax_backward_cpu(BACKWARD_PARAMETERS)
{
    if (a.rows == 0)
        return;

    args_long end;
    const args_long first = share_of_group(&a.part, a.rows, &end);
    backward_rows(y, mask, dy, dx, a, first, end);
}
