/* LayerNorm and RMSNorm of short rows, for CPU devices: formula, arrays and storage types as norm/norm.h says.
 *
 * The lanes are LANES neighbouring rows, a vector a column, so that no sum exchanges lanes; lib/columns.h transposes rows into
 * lanes and back.  In norm/cpu.cl the lanes are columns of one row: most would be empty, and the row's two or three sums
 * would be one chain of dependent instructions.
 *
 * Parameter    meaning                                          allowed
 * PLAIN        1: rows have one index, and no segments          1
 * LANES        vector width                                     4, 8, 16
 * MOST, WINDOW as lib/columns.h says: WINDOW is at most a.columns
 * Tested: rows of 1 to MOST columns x LANES 4, 16; X_TYPE, Y_TYPE F32, F16, BF16; any strides; NORM_RESIDUAL.
 *
 * NDRange: (work-groups of 1 item); an item owns a share of the vectors of neighbouring rows.  Local memory: none.
 * Barriers: none.  Private memory: (2 * MOST + 2 * WINDOW) * LANES floats.  In place is safe: all rows of a vector are read
 * before one is written.
 *
 * Needs OpenCL C 1.2. */
#define PLAIN 1
#include "norm/norm.h"
#include "lib/columns.h"
#include "lib/gather.h"

DEFINE_LOAD_COLUMNS(x_columns, X_TYPE)
DEFINE_LOAD_COLUMNS(scale_columns, SCALE_TYPE)
DEFINE_LOAD_COLUMNS(bias_columns, BIAS_TYPE)
DEFINE_STORE_COLUMNS(store_y, Y_TYPE)
DEFINE_LOAD_COLUMNS(residual_columns, RESIDUAL_TYPE)
DEFINE_STORE_COLUMNS(store_sum, SUM_TYPE)

/* The sums of the rows' elements, or of their squares; four chains of at most 32 terms, so that no addition waits for the
 * one before it. */
#define CHAINS 4
INLINE floatv sum_columns(const floatv *x, int columns, const bool squares)
{
    floatv chain[CHAINS];
    int c = 0;

#pragma unroll
    for (int n = 0; n < CHAINS; n++)
        chain[n] = (floatv)(0.0f);
    for (; c + CHAINS <= columns; c += CHAINS)
#pragma unroll
        for (int n = 0; n < CHAINS; n++)
            chain[n] = squares ? FMA(x[c + n], x[c + n], chain[n]) : chain[n] + x[c + n];
    for (; c < columns; c++)
        chain[0] = squares ? FMA(x[c], x[c], chain[0]) : chain[0] + x[c];
    return (chain[0] + chain[1]) + (chain[2] + chain[3]);
}

/* Normalises the rows, and returns their means and factors; as norm/norm.h's moments_of. */
INLINE void normalise(floatv *x, floatv *mean, floatv *factor, const norm_args *a)
{
    const int columns = a->columns;
    const float count = (float)columns;
    floatv drift = (floatv)(0.0f), deviations = (floatv)(0.0f);

    *mean = (floatv)(0.0f);
    if (a->centred) {
        *mean = sum_columns(x, columns, false) / count;
        for (int c = 0; c < columns; c++)
            x[c] -= *mean;
        deviations = sum_columns(x, columns, false);
        drift = deviations / count;
    }
    const floatv squares = sum_columns(x, columns, true), corrected = FMA(-deviations, drift, squares);
    const floatv variance = select(corrected / count, (floatv)(0.0f), corrected < 0.0f);
    *factor = select((floatv)(NAN), 1.0f / sqrt(variance + a->epsilon), squares <= FLT_MAX);
    for (int c = 0; c < columns; c++)
        x[c] = (x[c] - drift) * *factor;
    *mean += drift;
}

INLINE void store_each(global float *p, args_long at, args_long step, int count, floatv x)
{
    float lane[LANES];

    VSTORE(x, 0, lane);
    for (int l = 0; l < min(count, LANES); l++)
        p[at + l * step] = lane[l];
}

ITEM_FUNCTION normalise_rows(NORM_PARAMETERS, args_long r, args_long end)
{
    place whole;
    first_row(&whole, x, scale, bias, residual, y, sum, &a);
    for (; r < end; r += LANES) {
        const int count = (int)min(end - r, (args_long)LANES);
        place row = whole;
        floatv d[MOST], each[MOST], row_mean, factor;
        move(&row, (int)r, a.row_extent, &a);

        x_columns(d, row.x, a.x.stride[0], a.x.col, a.columns, count);
        if (NORM_RESIDUAL) {
            residual_columns(each, row.residual, a.residual.stride[0], a.residual.col, a.columns, count);
            for (int c = 0; c < a.columns; c++)
                d[c] += each[c];
        }
        if (NORM_RESIDUAL && a.has_sum)
            store_sum(d, row.sum, a.sum.stride[0], a.sum.col, a.columns, count);
        normalise(d, &row_mean, &factor, &a);
        if (a.has_scale) {
            scale_columns(each, row.scale, a.scale.stride[0], a.scale.col, a.columns, count);
            for (int c = 0; c < a.columns; c++)
                d[c] *= each[c];
        }
        if (a.has_bias) {
            bias_columns(each, row.bias, a.bias.stride[0], a.bias.col, a.columns, count);
            for (int c = 0; c < a.columns; c++)
                d[c] += each[c];
        }
        store_y(d, row.y, a.y.stride[0], a.y.col, a.columns, count);
        if (a.has_mean)
            store_each(mean, a.mean.offset + r * a.mean.stride[0], a.mean.stride[0], count, row_mean);
        if (a.has_inverse)
            store_each(inverse, a.inverse.offset + r * a.inverse.stride[0], a.inverse.stride[0], count, factor);
    }
}

GROUP_SIZE(1, 1, 1)
kernel void norm_cpu_short(NORM_PARAMETERS)
{
    if (a.rows == 0)
        return;

    args_long end;
    const args_long first = share_of_group(&a.part, (a.rows + LANES - 1) / LANES, &end) * LANES;
    normalise_rows(NORM_ARGUMENTS, first, min(end * LANES, a.rows));
}
