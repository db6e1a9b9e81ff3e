/* Softmax of short rows on CPU devices: formula, arrays, storage and masks as softmax/softmax.h says.
 *
 * The lanes are LANES neighbouring rows, a vector a column; lib/columns.h transposes rows into lanes and back, and no other
 * step exchanges lanes.  In softmax/cpu.cl the lanes are columns of one row: most would be empty, and the row's maximum,
 * exponential, sum and quotient would be one chain of dependent instructions.
 *
 * Parameter       meaning                                          allowed
 * LANES           vector width                                     4, 8, 16
 * MOST, WINDOW    as lib/columns.h says: WINDOW is at most a.columns
 * Tested: rows of 1 to MOST columns x LANES 4, 16; X_TYPE x Y_TYPE F32, F16, BF16; masks BOOL and F32; any strides.
 *
 * NDRange: (work-groups of 1 item); an item owns a share of the vectors of neighbouring rows.  Local memory: none.
 * Barriers: none.  Private memory: (2 * MOST + 2 * WINDOW) * LANES floats.  In place is safe: all rows of a vector are read
 * before one is written.
 *
 * A row has at most MOST terms, which are added up in two chains without compensation.
 *
 * Needs OpenCL C 1.2. */
#include "softmax/softmax.h"
#include "lib/columns.h"
#include "lib/gather.h"

DEFINE_LOAD_COLUMNS(load_x, X_TYPE)
DEFINE_STORE_COLUMNS(store_y, Y_TYPE)
#if MASK
DEFINE_LOAD_COLUMNS(load_mask, MASK_TYPE)
#endif

/* Loads s, which is -inf if it is not attended, and returns each row's maximum: for it attended scores count as at least
 * -FLT_MAX, so that it is -inf only if nothing is attended. */
INLINE floatv score_rows(floatv *s, const row_place *row, int count, const softmax_args *a)
{
    floatv row_max = (floatv)(-INFINITY);

    load_x(s, row->x, a->x.stride[3], a->x.col, a->columns, count);
#if MASK
    const floatv lowest = (floatv)(-FLT_MAX), excluded = (floatv)(-INFINITY);
    floatv mask[MOST];

    load_mask(mask, row->mask, a->mask.stride[3], a->mask.col, a->mask_columns, count);
    for (int c = 0; c < a->mask_columns; c++) {
        const floatv m = mask[c], x = MASK_SELECTS ? s[c] * a->scale : s[c] * a->scale + m;
        const intv masked = MASK_SELECTS ? m == (floatv)(0.0f) : m == excluded;
        s[c] = select(x, excluded, masked);
        const floatv counted = select(select(x, lowest, lowest > x), excluded, masked);
        row_max = LARGER_OF(row_max, counted);
    }
    for (int c = a->mask_columns; c < a->columns; c++)
        s[c] = excluded;
#else
    for (int c = 0; c < a->columns; c++) {
        s[c] *= a->scale;
        row_max = LARGER_OF(row_max, s[c]);
    }
#endif
    return row_max;
}

/* Turns s into probabilities. */
INLINE void normalise_rows(floatv *s, floatv row_max, int columns)
{
    const intv nothing = MASK ? row_max == (floatv)(-INFINITY) : (intv)(0);
    floatv even = (floatv)(0.0f), odd = (floatv)(0.0f);
    int c = 0;

    row_max = select(row_max, (floatv)(0.0f), nothing);
    for (; c + 2 <= columns; c += 2) {
        s[c] = exp_ofv(s[c] - row_max);
        s[c + 1] = exp_ofv(s[c + 1] - row_max);
        even += s[c];
        odd += s[c + 1];
    }
    if (c < columns) {
        s[c] = exp_ofv(s[c] - row_max);
        even += s[c];
    }
    const floatv inverse = select(1.0f / (even + odd), (floatv)(0.0f), nothing);
    for (c = 0; c < columns; c++)
        s[c] *= inverse;
}

ITEM_FUNCTION softmax_rows(const global ELEMENT(X_TYPE) *x, const global ELEMENT(MASK_TYPE) *mask,
                           global ELEMENT(Y_TYPE) *y, softmax_args a, args_long first, args_long end)
{
    args_long left = 0;
    row_place row = {0};
    for (args_long r = first; r < end;) {
        if (left == 0) { /* neighbours are a stride apart as far as the last dimension goes */
            find_row(&row, r, x, mask, y, &a);
            left = a.extent[3] - (r - r / a.extent[3] * a.extent[3]);
        }
        const int count = (int)min(min(end - r, left), (args_long)LANES);
        floatv s[MOST];

        normalise_rows(s, score_rows(s, &row, count, &a), a.columns);
        store_y(s, row.y, a.y.stride[3], a.y.col, a.columns, count);
        r += count;
        left -= count;
        row.x += count * a.x.stride[3];
        row.y += count * a.y.stride[3];
        if (MASK)
            row.mask += count * a.mask.stride[3];
    }
}

GROUP_SIZE(1, 1, 1)
kernel void softmax_cpu_short(const global ELEMENT(X_TYPE) *x, const global ELEMENT(MASK_TYPE) *mask,
                              global ELEMENT(Y_TYPE) *y, softmax_args a)
{
    if (a.rows == 0)
        return;

    args_long end;
    const args_long first = share_of_group(&a.part, (a.rows + LANES - 1) / LANES, &end) * LANES;
    softmax_rows(x, mask, y, a, first, min(end * LANES, a.rows));
}
