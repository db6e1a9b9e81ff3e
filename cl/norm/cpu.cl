/* LayerNorm and RMSNorm on CPU devices: formula, arrays and storage types as norm/norm.h says.
 *
 * Parameter    meaning                                          allowed
 * LANES        vector width                                     4, 8, 16
 * PREFETCHES   1: the compiler has __builtin_prefetch           0, 1 (0)
 * Tested: UNIT_STRIDE x LANES 4, 16; PREFETCHES.
 *
 * NDRange: (work-groups of 1 item); an item owns rows / groups neighbouring rows, its lanes neighbouring columns.
 * Three passes over a row, which lies in the cache for the last two; the last one prefetches the row after the next.
 * Local memory: none.  Barriers: none.
 *
 * Needs OpenCL C 1.2.  norm_generic takes over if a device limits loops and has longer rows. */
#include "norm/norm.h"
#include "lib/gather.h"

#ifndef PREFETCHES
#define PREFETCHES 0
#endif

DEFINE_GATHER(gather_x, X_TYPE)
DEFINE_GATHER(gather_scale, SCALE_TYPE)
DEFINE_GATHER(gather_bias, BIAS_TYPE)
DEFINE_GATHER(gather_residual, RESIDUAL_TYPE)
DEFINE_SCATTER(scatter_y, Y_TYPE)
DEFINE_SCATTER(scatter_sum, SUM_TYPE)

/* What is normalised: LANES columns of a segment from column c on, of which there are `count`. */
static inline floatv gather_input(const place *at, int c, int count, const norm_args *a)
{
    const floatv x = gather_x(at->x, c, a->x.col, UNIT_STRIDE, count);
    return NORM_RESIDUAL ? x + gather_residual(at->residual, c, a->residual.col, UNIT_STRIDE, count) : x;
}

/* The sum of so many vectors joins the compensated sum at once: four chains of eight, so that no addition waits for the one
 * before it. */
#define CHAINS 4
#define RUN (8 * CHAINS)

static inline float row_mean(const place *row, const norm_args *a)
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
                    run[n] += gather_input(&at, c + n * LANES, LANES, a);
            for (; c < end; c += LANES)
                run[0] += gather_input(&at, c, end - c, a);
            c = end;
            ADD(floatv, sum, lost, (run[0] + run[1]) + (run[2] + run[3]));
        }
    }
    return sum_lanes(sum) / ((float)a->segments * (float)a->columns);
}

static inline void row_moments(moments *m, const place *row, const norm_args *a)
{
    floatv sum = (floatv)(0.0f), lost = (floatv)(0.0f), squares = (floatv)(0.0f), lost_square = (floatv)(0.0f);
    const float mean = a->centred ? row_mean(row, a) : 0.0f;

    for (int s = 0; s < a->segments; s++) {
        place at;
        find_segment(&at, row, s, a);
        for (int c = 0; c < a->columns;) {
            const int end = c + min(a->columns - c, RUN * LANES);
            floatv run[CHAINS], run_square[CHAINS];
#pragma unroll
            for (int n = 0; n < CHAINS; n++)
                run[n] = run_square[n] = (floatv)(0.0f);
            for (; c + CHAINS * LANES <= end; c += CHAINS * LANES)
#pragma unroll
                for (int n = 0; n < CHAINS; n++) {
                    const floatv d = gather_input(&at, c + n * LANES, LANES, a) - mean;
                    run[n] += d;
                    run_square[n] = FMA(d, d, run_square[n]);
                }
            for (; c < end; c += LANES) {
                floatv d = gather_input(&at, c, end - c, a) - mean;
                d = select(d, (floatv)(0.0f), LANE_INDEX >= (intv)(end - c));
                run[0] += d;
                run_square[0] = FMA(d, d, run_square[0]);
            }
            c = end;
            ADD(floatv, sum, lost, (run[0] + run[1]) + (run[2] + run[3]));
            ADD(floatv, squares, lost_square, (run_square[0] + run_square[1]) + (run_square[2] + run_square[3]));
        }
    }
    find_moments(m, mean, sum_lanes(sum), sum_lanes(squares), a);
}

/* Writes `count` columns of a segment from column c on, LANES at most. */
static inline __attribute__((always_inline)) void write_columns(const place *at, int c, int count, const moments *m,
                                                                const norm_args *a)
{
    floatv v = gather_input(at, c, count, a);
    if (NORM_RESIDUAL && a->has_sum)
        scatter_sum(at->sum, c, a->sum.col, UNIT_STRIDE, count, v);
    v = ((v - m->mean) - m->drift) * m->factor;
    if (a->has_scale)
        v *= gather_scale(at->scale, c, a->scale.col, a->scale.col == 1, count);
    if (a->has_bias)
        v += gather_bias(at->bias, c, a->bias.col, a->bias.col == 1, count);
    scatter_y(at->y, c, a->y.col, UNIT_STRIDE, count, v);
}

/* Prefetches column c of a segment, and of its residual. */
static inline void prefetch_input(const place *at, int c, const norm_args *a)
{
#if PREFETCHES
    PREFETCH((size_t)(at->x + c * a->x.col));
    if (NORM_RESIDUAL)
        PREFETCH((size_t)(at->residual + c * a->residual.col));
#endif
}

/* Writes a row, and prefetches the row `next` meanwhile. */
static inline void write_row(const place *row, const place *next, const moments *m, const norm_args *a)
{
    for (int s = 0; s < a->segments; s++) {
        place at, next_at;
        int c = 0;
        find_segment(&at, row, s, a);
        find_segment(&next_at, next, s, a);
        for (; c + LANES <= a->columns; c += LANES) {
            prefetch_input(&next_at, c, a);
            write_columns(&at, c, LANES, m, a);
        }
        if (c < a->columns)
            write_columns(&at, c, a->columns - c, m, a);
    }
}

ITEM_FUNCTION normalise_rows(NORM_PARAMETERS, args_long first, args_long end)
{
    place whole;
    first_row(&whole, x, scale, bias, residual, y, sum, &a);
    for (args_long r = first; r < end; r++) {
        place row = whole, next = whole;
        moments m;
        move(&row, (int)r, a.row_extent, &a);
        move(&next, (int)(PREFETCHES && r + 2 < end ? r + 2 : r), a.row_extent, &a);
        row_moments(&m, &row, &a);
        write_row(&row, &next, &m, &a);
        store_moments((int)r, &m, mean, inverse, &a);
    }
}

GROUP_SIZE(1, 1, 1)
kernel void norm_cpu(NORM_PARAMETERS)
{
    if (a.rows == 0)
        return;

    args_long end;
    const args_long first = share_of_group(&a.part, a.rows, &end);
    normalise_rows(NORM_ARGUMENTS, first, end);
}
