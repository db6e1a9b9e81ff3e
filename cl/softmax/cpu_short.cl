/* Softmax of short rows, for CPU devices: rows across vector lanes, one work-item a work-group.
 *
 *   y[r,c] = exp(s[r,c] - max_c s[r,c]) / sum_c exp(s[r,c] - max_c s[r,c]),   s = scale * x (+ mask)
 *
 * Rows, columns, strides, masks and what is NaN or +0 are as softmax/rows.cl says.  There lanes are columns of one row: of a row
 * shorter than a vector most are empty, and its maximum, exponential, sum and quotient are one chain of dependent
 * instructions.  Here LANES neighbouring rows go that way side by side, and no step crosses lanes but the shuffles of
 * lib/columns.h, which bring rows into lanes and back.
 *
 * Parameter       meaning                                          allowed
 * X_TYPE, Y_TYPE, MASK, MASK_TYPE   as softmax/softmax.h says
 * LANES           vector width                                     4, 8, 16
 * MOST            the most columns                                 1 .. 128    (32)
 * WINDOW          as lib/columns.h says: at most a.columns
 * Tested: rows of 1 to MOST columns x LANES 4, 16; X_TYPE x Y_TYPE F32, F16, BF16; masks BOOL and F32; any strides.
 *
 * NDRange: (work-groups of 1 item); an item owns a share of the vectors of neighbouring rows.  Local memory: none.
 * Barriers: none.  Private memory: (2 * MOST + 2 * WINDOW) * LANES floats.  In place is safe: all rows of a vector are read
 * before one is written.
 *
 * State is float; a row's at most MOST terms are added up in two chains.
 *
 * Needs OpenCL C 1.2. */
#include "softmax/softmax.h"

#ifndef MOST
#define MOST 32
#endif
#if MOST < 1 || MOST > 128
#error "MOST must be 1 to 128"
#endif

#include "lib/columns.h"
#include "lib/gather.h"

DEFINE_LOAD_COLUMNS(load_x, X_TYPE)
DEFINE_STORE_COLUMNS(store_y, Y_TYPE)
#if MASK
DEFINE_LOAD_COLUMNS(load_mask, MASK_TYPE)
#endif

/* From x to s, -inf where it is not attended, and the largest: attended numbers count as -FLT_MAX at least, so that it is
 * -inf only where nothing is attended. */
INLINE floatv score_rows(floatv *s, const row_place *row, int count, const softmax_args *a)
{
    floatv highest = (floatv)(-INFINITY);

    load_x(s, row->x, a->x.stride[3], a->x.col, a->columns, count);
#if MASK
    const floatv lowest = (floatv)(-FLT_MAX), none = (floatv)(-INFINITY);
    floatv mask[MOST];

    load_mask(mask, row->mask, a->mask.stride[3], a->mask.col, a->mask_columns, count);
    for (int c = 0; c < a->mask_columns; c++) {
        const floatv m = mask[c], x = MASK_SELECTS ? s[c] * a->scale : s[c] * a->scale + m;
        const intv closed = MASK_SELECTS ? m == (floatv)(0.0f) : m == none;
        s[c] = select(x, none, closed);
        const floatv counted = select(select(x, lowest, lowest > x), none, closed);
        highest = LARGER_OF(highest, counted);
    }
    for (int c = a->mask_columns; c < a->columns; c++)
        s[c] = none;
#else
    for (int c = 0; c < a->columns; c++) {
        s[c] *= a->scale;
        highest = LARGER_OF(highest, s[c]);
    }
#endif
    return highest;
}

/* From s to probabilities. */
INLINE void weigh_rows(floatv *s, floatv highest, int columns)
{
    const intv nothing = MASK ? highest == (floatv)(-INFINITY) : (intv)(0);
    floatv even = (floatv)(0.0f), odd = (floatv)(0.0f);
    int c = 0;

    highest = select(highest, (floatv)(0.0f), nothing);
    for (; c + 2 <= columns; c += 2) {
        s[c] = exp_ofv(s[c] - highest);
        s[c + 1] = exp_ofv(s[c + 1] - highest);
        even += s[c];
        odd += s[c + 1];
    }
    if (c < columns) {
        s[c] = exp_ofv(s[c] - highest);
        even += s[c];
    }
    const floatv factor = select(1.0f / (even + odd), (floatv)(0.0f), nothing);
    for (c = 0; c < columns; c++)
        s[c] *= factor;
}

GROUP_SIZE(1, 1, 1)
kernel void softmax_cpu_short(const global ELEMENT(X_TYPE) *x, MASK_PARAMETER global ELEMENT(Y_TYPE) *y, softmax_args a)
{
    if (a.rows == 0)
        return;

    args_long end, left = 0;
    args_long r = share_of_group((a.rows + LANES - 1) / LANES, &end) * LANES;
    end = min(end * LANES, a.rows);
    row_place row = {0};
    while (r < end) {
        if (left == 0) { /* neighbours are a stride apart as far as the last dimension goes */
            row = find_row(r, x, MASK_ARGUMENT, y, &a);
            left = a.extent[3] - (r - r / a.extent[3] * a.extent[3]);
        }
        const int count = (int)min(min(end - r, left), (args_long)LANES);
        floatv s[MOST];

        weigh_rows(s, score_rows(s, &row, count, &a), a.columns);
        store_y(s, row.y, a.y.stride[3], a.y.col, a.columns, count);
        r += count;
        left -= count;
        row.x += count * a.x.stride[3];
        row.y += count * a.y.stride[3];
        if (MASK)
            row.mask += count * a.mask.stride[3];
    }
}
