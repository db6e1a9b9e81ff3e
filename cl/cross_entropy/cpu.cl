/* Cross-entropy on CPU devices: formula, arrays and storage as cross_entropy/cross_entropy.h says.
 *
 * Parameter    meaning                                          allowed
 * UNIT_STRIDE  x.col and gradient.col are 1                     0, 1
 * LANES        vector width                                     4, 8, 16
 * Tested: UNIT_STRIDE x LANES 4, 8, 16.
 *
 * NDRange: (work-groups of 1 item); an item owns rows / groups neighbouring rows, its lanes neighbouring columns.  It
 * reads a row twice, the second time to write the gradient; the first walk takes RUN vectors at a time, for their maximum
 * and for their terms, while the first-level cache has them.
 * Local memory: none.  Barriers: none.
 *
 * Needs OpenCL C 1.2.  cross_entropy_generic takes over if a device limits loops and has longer rows. */
#include "cross_entropy/cross_entropy.h"
#include "lib/gather.h"

#ifndef UNIT_STRIDE
#define UNIT_STRIDE 0
#endif

DEFINE_GATHER(gather_x, X_TYPE)
DEFINE_SCATTER(scatter_gradient, GRADIENT_TYPE)

#define RUN 32

/* Columns c to c + LANES - 1; lanes from `count` on are -inf. */
static inline floatv logits(const row_place *row, int c, int count, const cross_entropy_args *a)
{
    const floatv s = gather_x(row->x, c, a->x.col, UNIT_STRIDE, count);
    return count < LANES ? select(s, (floatv)(-INFINITY), LANE_INDEX >= (intv)(count)) : s;
}

static inline float run_maximum(const row_place *row, int c, int end, const cross_entropy_args *a)
{
    floatv largest[4]; /* four, so that no instruction waits for the one before it */

    for (int n = 0; n < 4; n++)
        largest[n] = (floatv)(-INFINITY);
    for (; c + 4 * LANES <= end; c += 4 * LANES)
#pragma unroll
        for (int n = 0; n < 4; n++) {
            const floatv s = logits(row, c + n * LANES, LANES, a);
            largest[n] = LARGER_OF(largest[n], s);
        }
    for (; c < end; c += LANES) {
        const floatv s = logits(row, c, end - c, a);
        largest[0] = LARGER_OF(largest[0], s);
    }
    largest[0] = LARGER_OF(largest[0], largest[1]);
    largest[2] = LARGER_OF(largest[2], largest[3]);
    return largest_lane(LARGER_OF(largest[0], largest[2]));
}

typedef struct row_sums {
    float largest, total, spread; /* m, s and the sum of share * (m - x) */
} row_sums;

static inline void find_sums(row_sums *sums, const row_place *row, const cross_entropy_args *a)
{
    floatv total = (floatv)(0.0f), lost = (floatv)(0.0f), spread = (floatv)(0.0f), spread_lost = (floatv)(0.0f);
    float near = -FLT_MAX, raised = 0.0f, raised_lost = 0.0f;

    sums->largest = -INFINITY;
    for (int c = 0; c < a->classes;) {
        const int end = c + min(a->classes - c, RUN * LANES);
        const float top = run_maximum(row, c, end, a);
        floatv run = (floatv)(0.0f), run_spread = (floatv)(0.0f);

        sums->largest = top > sums->largest ? top : sums->largest;
        if (top > near + LAG) {
            const float factor = exp_of(near - top);
            total *= factor;
            lost *= factor;
            if (SMOOTHING)
                ADD_ANY(float, raised, raised_lost, raised_by(c, near, top, a));
            near = top;
        }
        for (; c + LANES <= end; c += LANES) {
            const floatv below = near - logits(row, c, LANES, a);
            run += exp_ofv(-below);
            if (SMOOTHING)
                run_spread += below * a->share;
        }
        if (c < end) {
            const floatv below = near - logits(row, c, end - c, a);
            const intv beyond = LANE_INDEX >= (intv)(end - c);
            run += select(exp_ofv(-below), (floatv)(0.0f), beyond);
            if (SMOOTHING)
                run_spread += select(below * a->share, (floatv)(0.0f), beyond);
            c = end;
        }
        ADD(floatv, total, lost, run);
        if (SMOOTHING)
            ADD_ANY(floatv, spread, spread_lost, run_spread);
    }
    sums->total = sum_lanes(total) * exp_of(near - sums->largest);
    sums->spread = SMOOTHING ? sum_lanes(spread) + raised + raised_by(a->classes, near, sums->largest, a) : 0.0f;
}

#if GRADIENT
static inline void store_gradient(const row_place *row, const row_target *target, float x_label, const row_sums *sums,
                                  const cross_entropy_args *a)
{
    const float inverse = 1.0f / sums->total;
    int c = 0;

    for (; c + LANES <= a->classes; c += LANES) {
        const floatv term = exp_ofv(logits(row, c, LANES, a) - sums->largest);
        scatter_gradient(row->gradient, c, a->gradient.col, UNIT_STRIDE, LANES,
                         GRADIENT_OF(term, inverse, target->weight, a));
    }
    if (c < a->classes) {
        const floatv term = exp_ofv(logits(row, c, a->classes - c, a) - sums->largest);
        scatter_gradient(row->gradient, c, a->gradient.col, UNIT_STRIDE, a->classes - c,
                         GRADIENT_OF(term, inverse, target->weight, a));
    }
    STORE(GRADIENT_TYPE, row->gradient, target->label * a->gradient.col,
          GRADIENT_OF_LABEL(exp_of(x_label - sums->largest), inverse, target->weight, a));
}

static inline void fill_gradient(const row_place *row, float value, const cross_entropy_args *a)
{
    for (int c = 0; c < a->classes; c += LANES)
        scatter_gradient(row->gradient, c, a->gradient.col, UNIT_STRIDE, a->classes - c, (floatv)(value));
}
#endif

ITEM_FUNCTION cross_entropy_rows(ARRAYS, cross_entropy_args a, args_long first, args_long end)
{
    for (args_long r = first; r < end; r++) {
        row_place row;
        row_target target;
        row_sums sums = {0.0f, 0.0f, 0.0f};
        find_row(&row, r, ARRAYS_GIVEN, &a);
        read_target(&target, &row, 0, &a);
        const float x_label = LOAD(X_TYPE, row.x, target.label * a.x.col);
        if (NEEDS_SUMS(&target))
            find_sums(&sums, &row, &a);
        store_sums(&row, &target, x_label, sums.largest, sums.total, sums.spread, &a);
#if GRADIENT
        if (target.counts)
            store_gradient(&row, &target, x_label, &sums, &a);
        else
            fill_gradient(&row, target.instead, &a);
#endif
    }
}

GROUP_SIZE(1, 1, 1)
kernel void cross_entropy_cpu(ARRAYS, cross_entropy_args a)
{
    if (a.rows == 0)
        return;

    args_long end;
    const args_long first = share_of_group(&a.part, a.rows, &end);
    cross_entropy_rows(ARRAYS_GIVEN, a, first, end);
}
