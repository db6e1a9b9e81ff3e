/* LayerNorm and RMSNorm of short rows, for CPU devices: formula, arrays and storage types as norm/norm.h says.
 *
 * LANES neighbouring rows lie across the lanes, a vector a column, so that no sum crosses lanes; lib/columns.h brings rows
 * into lanes and back.  A row's own vectors would be mostly empty, and its two or three sums across lanes one chain.
 *
 * Parameter    meaning                                          allowed
 * PLAIN        1: rows have one index, and no segments          1
 * LANES        vector width                                     4, 8, 16
 * MOST         the most columns                                 1 .. 128    (32)
 * WINDOW       as lib/columns.h says: at most a.columns
 * Tested: rows of 1 to MOST columns x LANES 4, 16; X_TYPE, Y_TYPE F32, F16, BF16; any strides; NORM_RESIDUAL.
 *
 * NDRange: (work-groups of 1 item); an item owns a share of the vectors of neighbouring rows.  Local memory: none.
 * Barriers: none.  Private memory: (2 * MOST + 2 * WINDOW) * LANES floats.  In place is safe: all rows of a vector are read
 * before one is written.
 *
 * Needs OpenCL C 1.2. */
#define PLAIN 1
#include "norm/norm.h"

#ifndef MOST
#define MOST 32
#endif
#if MOST < 1 || MOST > 128
#error "MOST must be 1 to 128"
#endif

#include "lib/columns.h"
#include "lib/gather.h"

DEFINE_LOAD_COLUMNS(x_columns, X_TYPE)
DEFINE_LOAD_COLUMNS(scale_columns, SCALE_TYPE)
DEFINE_LOAD_COLUMNS(bias_columns, BIAS_TYPE)
DEFINE_STORE_COLUMNS(store_y, Y_TYPE)
#if NORM_RESIDUAL
DEFINE_LOAD_COLUMNS(residual_columns, RESIDUAL_TYPE)
DEFINE_STORE_COLUMNS(store_sum, SUM_TYPE)
#endif

/* Four chains, which follow one another's instructions; at most 32 terms each. */
#define CHAINS 4
#define ADD_UP(sum, term) \
    do { \
        floatv chain_[CHAINS]; \
        _Pragma("unroll") \
        for (int n = 0; n < CHAINS; n++) \
            chain_[n] = (floatv)(0.0f); \
        int c = 0; \
        for (; c + CHAINS <= columns; c += CHAINS) \
            _Pragma("unroll") \
        for (int n = 0; n < CHAINS; n++) \
            chain_[n] = term(chain_[n], x[c + n]); \
        for (; c < columns; c++) \
            chain_[0] = term(chain_[0], x[c]); \
        sum = (chain_[0] + chain_[1]) + (chain_[2] + chain_[3]); \
    } while (0)
#define PLAIN_TERM(sum, x) ((sum) + (x))
#define SQUARE_TERM(sum, x) FMA(x, x, sum)

/* x becomes what the rows' mean and factor make of it; *mean and *factor are those.  As norm/norm.h's moments_of. */
INLINE void normalise(floatv *x, floatv *mean, floatv *factor, const norm_args *a)
{
    const int columns = a->columns;
    const float count = (float)columns;
    floatv drift = (floatv)(0.0f), deviations = (floatv)(0.0f), squares, sum;

    *mean = (floatv)(0.0f);
    if (a->centred) {
        ADD_UP(sum, PLAIN_TERM);
        *mean = sum / count;
        for (int c = 0; c < columns; c++)
            x[c] -= *mean;
        ADD_UP(deviations, PLAIN_TERM);
        drift = deviations / count;
    }
    ADD_UP(squares, SQUARE_TERM);
    const floatv corrected = FMA(-deviations, drift, squares);
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

GROUP_SIZE(1, 1, 1)
kernel void norm_cpu_short(NORM_PARAMETERS)
{
    if (a.rows == 0)
        return;

    const place whole = WHOLE;
    args_long end;
    args_long r = share_of_group((a.rows + LANES - 1) / LANES, &end) * LANES;
    end = min(end * LANES, a.rows);
    for (; r < end; r += LANES) {
        const int count = (int)min(end - r, (args_long)LANES);
        const place row = moved(&whole, (int)r, a.row_extent, &a);
        floatv d[MOST], each[MOST], row_mean, factor;

        x_columns(d, row.x, a.x.stride[0], a.x.col, a.columns, count);
#if NORM_RESIDUAL
        residual_columns(each, row.residual, a.residual.stride[0], a.residual.col, a.columns, count);
        for (int c = 0; c < a.columns; c++)
            d[c] += each[c];
        if (a.has_sum)
            store_sum(d, row.sum, a.sum.stride[0], a.sum.col, a.columns, count);
#endif
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
