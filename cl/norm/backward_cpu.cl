/* The gradient of LayerNorm's and RMSNorm's x on CPU devices: formula, arrays and storage types as norm/backward.h says.
 *
 * Parameter    meaning                                                          allowed
 * UNIT_STRIDE  the cols of x, residual, dy, dsum and dx are 1                   0, 1
 * LANES        vector width                                                     4, 8, 16
 * Tested: UNIT_STRIDE x LANES 4, 16.
 *
 * NDRange: (work-groups of 1 item); an item owns rows / groups neighbouring rows, its lanes neighbouring columns.  Three
 * passes over a row, which lies in the cache for the last two.  Local memory: none.  Barriers: none.
 *
 * Needs OpenCL C 1.2.  norm_backward_generic takes over if a device limits loops and has longer rows. */
#include "norm/backward.h"
#include "lib/gather.h"

#ifndef UNIT_STRIDE
#define UNIT_STRIDE 0
#endif

DEFINE_GATHER(gather_x, X_TYPE)
DEFINE_GATHER(gather_residual, RESIDUAL_TYPE)
DEFINE_GATHER(gather_scale, SCALE_TYPE)
DEFINE_GATHER(gather_dy, DY_TYPE)
DEFINE_GATHER(gather_dsum, DSUM_TYPE)
DEFINE_SCATTER(scatter_dx, DX_TYPE)

/* LANES columns of a segment from column c on, of which there are `count`: what is normalised, and g. */
static inline floatv input(const place *at, int c, int count, const norm_backward_args *a)
{
    const floatv x = gather_x(at->x, c, a->x.col, UNIT_STRIDE, count);
    return NORM_RESIDUAL ? x + gather_residual(at->residual, c, a->residual.col, UNIT_STRIDE, count) : x;
}

static inline floatv gradient(const place *at, int c, int count, const norm_backward_args *a)
{
    const floatv dy = gather_dy(at->dy, c, a->dy.col, UNIT_STRIDE, count);
    return a->has_scale ? dy * gather_scale(at->scale, c, a->scale.col, a->scale.col == 1, count) : dy;
}

/* The sum of so many vectors joins the compensated sum at once: chains of eight, so that no addition waits for the one
 * before it. */
#define CHAINS 4
#define RUN (8 * CHAINS)

static inline float row_mean(const place *row, const norm_backward_args *a)
{
    floatv sum = (floatv)(0.0f), lost = (floatv)(0.0f);

    for (int s = 0; s < a->segments; s++) {
        place at;
        find_segment(&at, row, s, a);
        for (int c = 0; c < a->columns;) {
            const int end = c + min(a->columns - c, RUN * LANES);
            floatv run[CHAINS];
#pragma unroll
            for (int n = 0; n < CHAINS; n++)
                run[n] = (floatv)(0.0f);
            for (; c + CHAINS * LANES <= end; c += CHAINS * LANES)
#pragma unroll
                for (int n = 0; n < CHAINS; n++)
                    run[n] += input(&at, c + n * LANES, LANES, a);
            for (; c < end; c += LANES)
                run[0] += input(&at, c, end - c, a);
            c = end;
            ADD(floatv, sum, lost, (run[0] + run[1]) + (run[2] + run[3]));
        }
    }
    return sum_lanes(sum) / ((float)a->segments * (float)a->columns);
}

/* Four sums, each of which is a chain: they do not wait for each other. */
enum { DEVIATIONS, SQUARES, SUM_G, SUM_GD, SUMS };

static inline void add_columns(floatv *run, const place *at, int c, int count, float mean, const norm_backward_args *a)
{
    floatv d = input(at, c, count, a) - mean;
    const floatv g = gradient(at, c, count, a);
    if (count < LANES)
        d = select(d, (floatv)(0.0f), LANE_INDEX >= (intv)(count));
    run[DEVIATIONS] += d;
    run[SQUARES] = FMA(d, d, run[SQUARES]);
    run[SUM_G] += g;
    run[SUM_GD] = FMA(g, d, run[SUM_GD]);
}

static inline void row_moments(moments *m, const place *row, const norm_backward_args *a)
{
    floatv sum[SUMS], lost[SUMS];
    const float mean = a->centred ? row_mean(row, a) : 0.0f;

    for (int n = 0; n < SUMS; n++)
        sum[n] = lost[n] = (floatv)(0.0f);
    for (int s = 0; s < a->segments; s++) {
        place at;
        find_segment(&at, row, s, a);
        for (int c = 0; c < a->columns;) {
            const int end = c + min(a->columns - c, RUN * LANES);
            floatv run[SUMS];
            for (int n = 0; n < SUMS; n++)
                run[n] = (floatv)(0.0f);
            for (; c + LANES <= end; c += LANES)
                add_columns(run, &at, c, LANES, mean, a);
            if (c < end)
                add_columns(run, &at, c, end - c, mean, a);
            c = end;
            ADD(floatv, sum[DEVIATIONS], lost[DEVIATIONS], run[DEVIATIONS]);
            ADD(floatv, sum[SQUARES], lost[SQUARES], run[SQUARES]);
            ADD_ANY(floatv, sum[SUM_G], lost[SUM_G], run[SUM_G]);
            ADD_ANY(floatv, sum[SUM_GD], lost[SUM_GD], run[SUM_GD]);
        }
    }
    find_moments(m, mean, sum_lanes(sum[DEVIATIONS]), sum_lanes(sum[SQUARES]), sum_lanes(sum[SUM_G]),
                 sum_lanes(sum[SUM_GD]), a);
}

static inline void write_columns(const place *at, int c, int count, const moments *m, const norm_backward_args *a)
{
    const floatv n = NORMALISED(input(at, c, count, a), m);
    floatv v = GRADIENT(gradient(at, c, count, a), n, m);
    if (a->has_dsum)
        v += gather_dsum(at->dsum, c, a->dsum.col, UNIT_STRIDE, count);
    scatter_dx(at->dx, c, a->dx.col, UNIT_STRIDE, count, v);
}

ITEM_FUNCTION backward_rows(BACKWARD_PARAMETERS, args_long first, args_long end)
{
    for (args_long r = first; r < end; r++) {
        place row, at;
        moments m;
        find_row(&row, (int)r, x, residual, scale, dy, dsum, dx, &a);
        row_moments(&m, &row, &a);
        for (int s = 0; a.has_dx && s < a.segments; s++) {
            int c = 0;
            find_segment(&at, &row, s, &a);
            for (; c + LANES <= a.columns; c += LANES)
                write_columns(&at, c, LANES, &m, &a);
            if (c < a.columns)
                write_columns(&at, c, a.columns - c, &m, &a);
        }
        store_statistics(r, &m, workspace, &a);
    }
}

GROUP_SIZE(1, 1, 1)
kernel void norm_backward_cpu(BACKWARD_PARAMETERS)
{
    if (a.rows == 0)
        return;

    args_long end;
    const args_long first = share_of_group(&a.part, a.rows, &end);
    backward_rows(BACKWARD_ARGUMENTS, first, end);
}
