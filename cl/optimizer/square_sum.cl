/* The sum of squares of an array: result = [result +] sum_i x[x_offset + i]^2.
 *
 *            column 0     column 1   ..  column 63
 *   row 0    x[0]         x[1]           x[63]        square_sum: a work-group takes the SQUARE_BLOCK elements of a block, in
 *   row 1    x[64]        x[65]          x[127]         256 rows of 64 columns, and makes one partial sum of them
 *   ...                                               square_sum_add: one work-group arranges the partial sums of all blocks
 *   row 255  x[16320]     x[16321]       x[16383]       in 64 columns, and adds them up
 *
 * A column's squares are added plainly four by four, and their sums with compensation; item 0 adds the columns with
 * compensation.  So the order of all additions depends on the count alone, neither on LANES nor on the work-group, and no sum
 * has more than some 12 roundings of 2^-24 of its size in its way.
 *
 * Parameter   meaning             allowed
 * X_TYPE      storage of x        F32, F16, BF16
 * LANES       vector width        4, 8, 16
 * ITEMS       work-group          1 to SQUARE_COLUMNS / LANES, a power of two
 * Tested: all types; LANES 4 x ITEMS 1, 16; LANES 16 x ITEMS 1.
 *
 * NDRange: square_sum (blocks * ITEMS), square_sum_add (ITEMS), local (ITEMS) both.  Item l owns the columns of vectors l,
 * l + ITEMS, ... in each row; in square_sum_add columns l, l + ITEMS, ...  Local memory: SQUARE_COLUMNS floats.  One barrier,
 * which every item of a launch that has results reaches.  Needs OpenCL C 1.2. */
#include "optimizer/args.h"
#include "lib/compensated.h"
#include "lib/fma.h"
#include "lib/gather.h"

#ifndef X_TYPE
#define X_TYPE F32
#endif
#ifndef ITEMS
#define ITEMS 1
#endif
#if ITEMS < 1 || SQUARE_COLUMNS % (LANES * ITEMS) != 0
#error "the columns must be whole vectors of each item"
#endif

#define VECTORS (SQUARE_COLUMNS / (LANES * ITEMS))
#define RUN 4

DEFINE_GATHER(gather_x, X_TYPE)

/* Stores the sums of the item's columns over elements `first` up to `last`, one of its vectors after another. */
ITEM_FUNCTION sum_columns(const global ELEMENT(X_TYPE) *x, int first, int last, int item, float *sums)
{
    floatv sum[VECTORS], lost[VECTORS];
    for (int n = 0; n < VECTORS; n++)
        sum[n] = lost[n] = (floatv)(0.0f);
    for (int row = first; row < last; row += RUN * SQUARE_COLUMNS) {
        floatv run[VECTORS];
#pragma unroll
        for (int n = 0; n < VECTORS; n++)
            run[n] = (floatv)(0.0f);
#pragma unroll
        for (int r = 0; r < RUN; r++)
#pragma unroll
            for (int n = 0; n < VECTORS; n++) {
                const int i = row + r * SQUARE_COLUMNS + (n * ITEMS + item) * LANES;
                const floatv term = gather_x(x, i, 1, true, last - i);
                run[n] = FMA(term, term, run[n]);
            }
#pragma unroll
        for (int n = 0; n < VECTORS; n++)
            ADD_ANY(floatv, sum[n], lost[n], run[n]);
    }
    for (int n = 0; n < VECTORS; n++)
        VSTORE(sum[n], n, sums);
}

/* The sum of all columns. */
static inline float sum_row(const local float *column)
{
    float sum = 0.0f, lost = 0.0f;
    for (int c = 0; c < SQUARE_COLUMNS; c++)
        ADD_ANY(float, sum, lost, column[c]);
    return sum;
}

GROUP_SIZE(ITEMS, 1, 1)
kernel void square_sum(const global ELEMENT(X_TYPE) *x, global float *partials, square_sum_args a)
{
    local float column[SQUARE_COLUMNS];
    if (a.results == 0)
        return;

    const int block = (int)group_id(&a.part, 0), first = block * SQUARE_BLOCK;
    const int last = first + min(a.count - first, SQUARE_BLOCK), item = (int)get_local_id(0);
    float sums[VECTORS * LANES];
    sum_columns(x + a.x, first, last, item, sums);
    for (int n = 0; n < VECTORS; n++)
        VSTORE(VLOAD(n, sums), n * ITEMS + item, column);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item == 0)
        partials[a.partials + block] = sum_row(column);
}

GROUP_SIZE(ITEMS, 1, 1)
kernel void square_sum_add(const global float *partials, global float *result, square_sum_args a)
{
    local float column[SQUARE_COLUMNS];
    if (a.results == 0)
        return;

    const int item = (int)get_local_id(0);
    for (int c = item; c < SQUARE_COLUMNS; c += ITEMS) {
        float sum = 0.0f, lost = 0.0f;
        for (int block = c; block < a.blocks; block += SQUARE_COLUMNS)
            ADD_ANY(float, sum, lost, partials[a.partials + block]);
        column[c] = sum;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item == 0) {
        const float sum = sum_row(column);
        result[a.result] = a.accumulate ? result[a.result] + sum : sum;
    }
}
