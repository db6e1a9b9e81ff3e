/* LayerNorm and RMSNorm of short rows and, if neighbouring rows lie side by side, as the pixels of planes do, of longer ones, for
 * CPU devices: formula, arrays and storage types as norm/norm.h says.
 *
 * The lanes are LANES neighbouring rows, a vector a column, so that no sum exchanges lanes; lib/columns.h transposes rows into
 * lanes and back.  In norm/cpu.cl the lanes are columns of one row: most would be empty, and the row's two or three sums
 * would be one chain of dependent instructions.
 *
 * Parameter    meaning                                          allowed
 * PLAIN        1: rows have no segments, and at most two        1
 *              indices; the lanes are along the last
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
 * one before it, join a compensated sum. */
#define CHAINS 4
#define RUN (32 * CHAINS)
INLINE floatv sum_columns(const floatv *x, int columns, const bool squares)
{
    floatv sum = (floatv)(0.0f), lost = (floatv)(0.0f);

    for (int c = 0; c < columns;) {
        const int end = min(columns, c + RUN);
        floatv chain[CHAINS];
#pragma unroll
        for (int n = 0; n < CHAINS; n++)
            chain[n] = (floatv)(0.0f);
        for (; c + CHAINS <= end; c += CHAINS)
#pragma unroll
            for (int n = 0; n < CHAINS; n++)
                chain[n] = squares ? FMA(x[c + n], x[c + n], chain[n]) : chain[n] + x[c + n];
        for (; c < end; c++)
            chain[0] = squares ? FMA(x[c], x[c], chain[0]) : chain[0] + x[c];
        ADD(floatv, sum, lost, (chain[0] + chain[1]) + (chain[2] + chain[3]));
    }
    return sum;
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

/* The dimension whose rows are the lanes, and how many vectors of them there are for each index of the one before it. */
#define ALONG(a) ((a).row_extent[1] > 1)
#define LENGTH(a) (ALONG(a) ? (a).row_extent[1] : (a).row_extent[0])
#define VECTORS(a) ((LENGTH(a) + LANES - 1) / LANES)
/* The stride from one lane to the next.  No index of the arguments' arrays is a variable, which rusticl (Mesa 22.3) cannot bear. */
#define STEP(array) (ALONG(a) ? (array).stride[1] : (array).stride[0])

ITEM_FUNCTION normalise_rows(NORM_PARAMETERS, args_long v, args_long end)
{
    place whole;
    first_row(&whole, x, scale, bias, residual, y, sum, &a);
    for (; v < end; v++) {
        const args_long outer = v / VECTORS(a), r = (v - outer * VECTORS(a)) * LANES;
        const int count = (int)min(LENGTH(a) - r, (args_long)LANES);
        place row = whole;
        floatv d[MOST], each[MOST], row_mean, factor;
        move_along(&row, 0, ALONG(a) ? outer : r, &a);
        move_along(&row, 1, ALONG(a) ? r : 0, &a);

        x_columns(d, row.x, STEP(a.x), a.x.col, a.columns, count);
        if (NORM_RESIDUAL) {
            residual_columns(each, row.residual, STEP(a.residual), a.residual.col, a.columns, count);
            for (int c = 0; c < a.columns; c++)
                d[c] += each[c];
        }
        if (NORM_RESIDUAL && a.has_sum)
            store_sum(d, row.sum, STEP(a.sum), a.sum.col, a.columns, count);
        normalise(d, &row_mean, &factor, &a);
        if (a.has_scale) {
            scale_columns(each, row.scale, STEP(a.scale), a.scale.col, a.columns, count);
            for (int c = 0; c < a.columns; c++)
                d[c] *= each[c];
        }
        if (a.has_bias) {
            bias_columns(each, row.bias, STEP(a.bias), a.bias.col, a.columns, count);
            for (int c = 0; c < a.columns; c++)
                d[c] += each[c];
        }
        store_y(d, row.y, STEP(a.y), a.y.col, a.columns, count);
        if (a.has_mean)
            store_each(mean, a.mean.offset + outer * a.mean.stride[0] + r * STEP(a.mean), STEP(a.mean), count,
                       row_mean);
        if (a.has_inverse)
            store_each(inverse, a.inverse.offset + outer * a.inverse.stride[0] + r * STEP(a.inverse), STEP(a.inverse),
                       count, factor);
    }
}

GROUP_SIZE(1, 1, 1)
kernel void norm_cpu_short(NORM_PARAMETERS)
{
    if (a.rows == 0)
        return;

    args_long end;
    const args_long vectors = (args_long)VECTORS(a) * (ALONG(a) ? a.row_extent[0] : 1);
    const args_long first = share_of_group(&a.part, vectors, &end);
    normalise_rows(NORM_ARGUMENTS, first, end);
}
