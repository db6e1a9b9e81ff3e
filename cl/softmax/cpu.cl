/* Softmax on CPU devices: formula, arrays, storage and masks as softmax/softmax.h says.
 *
 * Parameter    meaning                                          allowed
 * UNIT_STRIDE  x.col and y.col are 1                            0, 1
 * LANES        vector width                                     4, 8, 16
 * Tested: UNIT_STRIDE x LANES 4, 8, 16.
 *
 * NDRange: (work-groups of 1 item); an item owns rows / groups neighbouring rows, its lanes neighbouring columns.
 * Local memory: none.  Barriers: none.
 *
 * Needs OpenCL C 1.2.  softmax_generic takes over if a device limits loops and has longer rows. */
#include "softmax/softmax.h"
#include "lib/gather.h"

#ifndef UNIT_STRIDE
#define UNIT_STRIDE 0
#endif

/* The kernel leaves exp(s - max) in y and scales it there, if y holds it exactly and fast. */
#define Y_HOLDS_TERMS (UNIT_STRIDE && IS_F32(Y_TYPE))

DEFINE_GATHER(gather_x, X_TYPE)
DEFINE_SCATTER(scatter_y, Y_TYPE)
#if MASK
DEFINE_GATHER(gather_mask, MASK_TYPE)
#endif

/* score() of columns c to c + LANES - 1; lanes from `count` on are -inf. */
static inline floatv scores(const row_place *row, int c, int count, float lowest, const softmax_args *a)
{
    floatv s = gather_x(row->x, c, a->x.col, UNIT_STRIDE, count) * a->scale;
#if MASK
    const int covered = min(count, a->mask_columns - c);
    const floatv m = gather_mask(row->mask, c, a->mask.col, a->mask.col == 1, covered);
    s = MASK_SELECTS ? s : s + m;
    s = select(s, (floatv)(lowest), (floatv)(lowest) > s);
    s = select(s, (floatv)(-INFINITY), MASK_SELECTS ? m == (floatv)(0.0f) : m == (floatv)(-INFINITY));
    count = covered;
#endif
    if (count < LANES)
        s = select(s, (floatv)(-INFINITY), LANE_INDEX >= (intv)(count));
    return s;
}

/* The terms of so many vectors are summed plainly before they join the compensated sum. */
#define RUN 32

static inline float row_maximum(const row_place *row, const softmax_args *a)
{
    floatv largest[4]; /* four, so that no instruction waits for the one before it */
    int c = 0;

    for (int n = 0; n < 4; n++)
        largest[n] = (floatv)(-INFINITY);
    for (; c + 4 * LANES <= a->columns; c += 4 * LANES)
#pragma unroll
        for (int n = 0; n < 4; n++) {
            const floatv s = scores(row, c + n * LANES, LANES, -FLT_MAX, a);
            largest[n] = LARGER_OF(largest[n], s);
        }
    for (; c < a->columns; c += LANES) {
        const floatv s = scores(row, c, a->columns - c, -FLT_MAX, a);
        largest[0] = LARGER_OF(largest[0], s);
    }
    largest[0] = LARGER_OF(largest[0], largest[1]);
    largest[2] = LARGER_OF(largest[2], largest[3]);
    return largest_lane(LARGER_OF(largest[0], largest[2]));
}

/* The sum of the terms exp(s - row_max), which are left in y if it holds them. */
static inline float row_terms(const row_place *row, float row_max, const softmax_args *a)
{
    floatv total = (floatv)(0.0f), lost = (floatv)(0.0f);

    for (int c = 0; c < a->columns;) {
        const int end = c + min(a->columns - c, RUN * LANES);
        floatv run = (floatv)(0.0f);
        for (; c + LANES <= end; c += LANES) {
            const floatv term = exp_ofv(scores(row, c, LANES, -INFINITY, a) - row_max);
            run += term;
            if (Y_HOLDS_TERMS)
                scatter_y(row->y, c, 1, UNIT_STRIDE, LANES, term);
        }
        if (c < end) {
            const floatv term = exp_ofv(scores(row, c, end - c, -INFINITY, a) - row_max);
            run += select(term, (floatv)(0.0f), LANE_INDEX >= (intv)(end - c));
            if (Y_HOLDS_TERMS)
                scatter_y(row->y, c, 1, UNIT_STRIDE, end - c, term);
            c = end;
        }
        ADD(floatv, total, lost, run);
    }
    return sum_lanes(total);
}

static inline void softmax_row(const row_place *row, const softmax_args *a)
{
    float row_max = row_maximum(row, a);
    const bool nothing = attends_nothing(row_max);
    row_max = nothing ? 0.0f : row_max;
    const float row_sum = row_terms(row, row_max, a), inverse = nothing ? 0.0f : 1.0f / row_sum;
    int c = 0;

#if Y_HOLDS_TERMS
    for (; c + LANES <= a->columns; c += LANES)
        STOREV_F32(row->y, c, VLOAD(0, row->y + c) * inverse);
    for (; c < a->columns; c++)
        row->y[c] *= inverse;
#else
    for (; c < a->columns; c += LANES) {
        const floatv term = exp_ofv(scores(row, c, a->columns - c, -INFINITY, a) - row_max);
        scatter_y(row->y, c, a->y.col, UNIT_STRIDE, a->columns - c, term * inverse);
    }
#endif
}

ITEM_FUNCTION softmax_rows(const global ELEMENT(X_TYPE) *x, const global ELEMENT(MASK_TYPE) *mask,
                           global ELEMENT(Y_TYPE) *y, softmax_args a, args_long first, args_long end)
{
    for (args_long r = first; r < end; r++) {
        row_place row;
        find_row(&row, r, x, mask, y, &a);
        softmax_row(&row, &a);
    }
}

GROUP_SIZE(1, 1, 1)
kernel void softmax_cpu(const global ELEMENT(X_TYPE) *x, const global ELEMENT(MASK_TYPE) *mask,
                        global ELEMENT(Y_TYPE) *y, softmax_args a)
{
    if (a.rows == 0)
        return;

    args_long end;
    const args_long first = share_of_group(&a.part, a.rows, &end);
    softmax_rows(x, mask, y, a, first, end);
}
