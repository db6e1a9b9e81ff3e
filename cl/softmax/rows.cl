/* Softmax along the rows of an array, in place if the caller wants it.
 *
 *   y[r,c] = exp(s[r,c] - max_c s[r,c]) / sum_c exp(s[r,c] - max_c s[r,c]),   s = scale * x (+ mask)
 *
 * Row r has the indices (i0, i1, i2, i3) over extent[0..3], the last one fastest; element c of it lies, in
 * each of x, mask and y with its own strides, at
 *   offset + i0*stride[0] + i1*stride[1] + i2*stride[2] + i3*stride[3] + c*col
 * Columns from mask_columns on are not attended (with MASK).  y may be x itself, laid out the same.
 *
 * Parameter       meaning                                          allowed
 * X_TYPE, Y_TYPE  storage                                          F32, F16, BF16
 * MASK, MASK_TYPE a mask is given; BOOL attends where true, others 0, 1; BOOL, F32, F16, BF16
 *                 are added and -inf selects as BOOL does
 * UNIT_STRIDE     x.col and y.col are 1 (softmax_cpu)              0, 1
 * LANES           vector width (softmax_cpu)                       4, 8, 16
 * WORK_GROUP      items of a work-group (softmax_tile)             power of two, 1 .. 1024
 * KEEP            values that an item keeps in registers, so that  0 .. 32
 *                 x is read once (softmax_tile); needs columns <=
 *                 KEEP * WORK_GROUP.  0: any number of columns
 * SUB_GROUPS,     lib/sub_group.h (softmax_tile): WORK_GROUP is a
 * SUB_GROUP_SIZE  multiple of the size
 * Tested: MASK 0, BOOL, F32 x UNIT_STRIDE x LANES 4, 8, 16; WORK_GROUP 64, 256; KEEP 0, 4; X_TYPE x Y_TYPE F32, F16,
 * BF16; masks BOOL and F32; SUB_GROUPS 0, 1, 4.
 *
 * Kernels, arguments and NDRange:
 *   softmax_generic(x, [mask], y, args)   (rows, rounded up at will); an item owns a row
 *   softmax_cpu(x, [mask], y, args)       (work-groups of 1 item); an item owns rows / groups
 *                                         neighbouring rows, its lanes neighbouring columns
 *   softmax_tile(x, [mask], y, args)      (rows * WORK_GROUP), local (WORK_GROUP); a work-group owns a
 *                                         row, item l its columns l, l + WORK_GROUP, ...
 * In place is safe: an item overwrites only elements that it alone reads, after its last reading.
 *
 * Local memory: 4 * WORK_GROUP bytes (softmax_tile; the others none), with sub-groups 8 for each and 4 more.  Its barriers are outside of any
 * condition, in loops whose trip count is the same for all items.
 *
 * State is float.  Sums are compensated, so that 10^6 terms cost no accuracy.  A column that is not
 * attended has s = -inf and gives exactly +0, whatever x holds there; a row with nothing attended is +0
 * throughout.  Attended -inf only, NaN or +inf make the row NaN, its columns that are not attended too.
 * Finite masks however low are no masks: the maximum is subtracted before anything is multiplied.
 *
 * Needs OpenCL C 1.2; softmax_generic runs everywhere, with one exception: llvmpipe (Mesa 22.3) stops all
 * loops of a work-item silently after 65,535 iterations in total.  An item there must not be given more
 * than 20,000 columns (softmax_generic), or as many vectors of LANES columns (softmax_cpu); softmax_tile
 * with 256 items does 10^6. */
#include "softmax/softmax.h"
#include "lib/gather.h"
#include "lib/reduce.h"

#ifndef UNIT_STRIDE
#define UNIT_STRIDE 0
#endif
#ifndef WORK_GROUP
#define WORK_GROUP 64
#endif
#ifndef KEEP
#define KEEP 0
#endif

#if WORK_GROUP < 1 || WORK_GROUP > 1024 || (WORK_GROUP & (WORK_GROUP - 1))
#error "WORK_GROUP must be a power of two, 1 to 1024"
#endif
#if KEEP < 0 || KEEP > 32
#error "KEEP must be 0 to 32"
#endif

/* softmax_cpu leaves exp(s - max) in y and scales it there, where y holds it exactly and fast. */
#define Y_HOLDS_TERMS (UNIT_STRIDE && IS_F32(Y_TYPE))

/* s of column c: -inf where it is not attended, and elsewhere, with a mask, at least `lowest`.  The
 * maximum takes scores with lowest = -FLT_MAX, so that it is -inf only where nothing is attended; the
 * terms take them with -inf, as they are. */
static inline float score(const row_place *row, int c, float lowest, const softmax_args *a)
{
#if MASK
    if (c >= a->mask_columns)
        return -INFINITY;
    const float m = LOAD(MASK_TYPE, row->mask, c * a->mask.col);
    const bool attended = MASK_SELECTS ? m != 0.0f : m != -INFINITY;
    float s = LOAD(X_TYPE, row->x, c * a->x.col) * a->scale;
    s = MASK_SELECTS ? s : s + m;
    return !attended ? -INFINITY : lowest > s ? lowest : s;
#else
    return LOAD(X_TYPE, row->x, c * a->x.col) * a->scale;
#endif
}

#define SCORE_FOR_MAXIMUM(row, c, a) score(row, c, -FLT_MAX, a)
#define TERM(s, highest) exp_of((s) - (highest))
/* A row with nothing attended: terms and output must be 0. */
#define NOTHING(highest) (MASK && (highest) == -INFINITY)

kernel void softmax_generic(const global ELEMENT(X_TYPE) *x, MASK_PARAMETER global ELEMENT(Y_TYPE) *y, softmax_args a)
{
    const args_long r = (args_long)get_global_id(0);
    if (r >= a.rows)
        return;

    const row_place row = find_row(r, x, MASK_ARGUMENT, y, &a);
    float highest = -INFINITY;
    for (int c = 0; c < a.columns; c++) {
        const float s = SCORE_FOR_MAXIMUM(&row, c, &a);
        highest = s > highest ? s : highest;
    }
    const bool nothing = NOTHING(highest);
    highest = nothing ? 0.0f : highest;

    float sum = 0.0f, lost = 0.0f;
    for (int c = 0; c < a.columns; c++) {
        const float term = TERM(score(&row, c, -INFINITY, &a), highest) - lost, next = sum + term;
        lost = (next - sum) - term;
        sum = next;
    }
    const float factor = nothing ? 0.0f : 1.0f / sum;
    for (int c = 0; c < a.columns; c++)
        STORE(Y_TYPE, row.y, c * a.y.col, TERM(score(&row, c, -INFINITY, &a), highest) * factor);
}

DEFINE_GATHER(gather_x, X_TYPE)
#if MASK
DEFINE_GATHER(gather_mask, MASK_TYPE)
#endif

/* score() for columns c .. c + LANES-1, -inf in lanes from `count` on. */
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

static inline void scatter(const row_place *row, int c, int count, args_long col, floatv v)
{
    float lane[LANES];

    if (UNIT_STRIDE && count >= LANES) {
        STOREV(Y_TYPE, row->y, c, v);
        return;
    }
    VSTORE(v, 0, lane);
    for (int l = 0; l < min(count, LANES); l++)
        STORE(Y_TYPE, row->y, (c + l) * col, lane[l]);
}

#define TERMS(s, highest) exp_ofv((s) - (highest))

/* Vectors whose terms are summed plainly before they join the compensated sum. */
#define RUN 32

static inline void softmax_row(const row_place *row, const softmax_args *a)
{
    const int columns = a->columns;
    floatv highest4[4];

    /* Four maxima, so that one instruction's latency does not hold up the next. */
    for (int n = 0; n < 4; n++)
        highest4[n] = (floatv)(-INFINITY);
    int c = 0;
    for (; c + 4 * LANES <= columns; c += 4 * LANES)
#pragma unroll
        for (int n = 0; n < 4; n++) {
            const floatv s = scores(row, c + n * LANES, LANES, -FLT_MAX, a);
            highest4[n] = LARGER_OF(highest4[n], s);
        }
    for (; c < columns; c += LANES) {
        const floatv s = scores(row, c, columns - c, -FLT_MAX, a);
        highest4[0] = LARGER_OF(highest4[0], s);
    }
    highest4[0] = LARGER_OF(highest4[0], highest4[1]);
    highest4[2] = LARGER_OF(highest4[2], highest4[3]);
    float highest = largest_lane(LARGER_OF(highest4[0], highest4[2]));
    const bool nothing = NOTHING(highest);
    highest = nothing ? 0.0f : highest;

    floatv total = (floatv)(0.0f), lost = (floatv)(0.0f);
    for (c = 0; c < columns;) {
        const int end = c + min(columns - c, RUN * LANES);
        floatv run = (floatv)(0.0f);
        for (; c + LANES <= end; c += LANES) {
            const floatv term = TERMS(scores(row, c, LANES, -INFINITY, a), highest);
            run += term;
            if (Y_HOLDS_TERMS)
                scatter(row, c, LANES, 1, term);
        }
        if (c < end) {
            const floatv term = TERMS(scores(row, c, end - c, -INFINITY, a), highest);
            run += select(term, (floatv)(0.0f), LANE_INDEX >= (intv)(end - c));
            if (Y_HOLDS_TERMS)
                scatter(row, c, end - c, 1, term);
            c = end;
        }
        run -= lost;
        const floatv next = total + run;
        lost = (next - total) - run;
        total = next;
    }
    const float factor = nothing ? 0.0f : 1.0f / sum_lanes(total);

#if Y_HOLDS_TERMS
    for (c = 0; c + LANES <= columns; c += LANES)
        STOREV_F32(row->y, c, VLOAD(0, row->y + c) * factor);
    for (; c < columns; c++)
        row->y[c] *= factor;
#else
    for (c = 0; c < columns; c += LANES) {
        const floatv term = TERMS(scores(row, c, columns - c, -INFINITY, a), highest);
        scatter(row, c, columns - c, a->y.col, term * factor);
    }
#endif
}

GROUP_SIZE(1, 1, 1)
kernel void softmax_cpu(const global ELEMENT(X_TYPE) *x, MASK_PARAMETER global ELEMENT(Y_TYPE) *y, softmax_args a)
{
    if (a.rows == 0)
        return;

    args_long end;
    for (args_long r = share_of_group(a.rows, &end); r < end; r++) {
        const row_place row = find_row(r, x, MASK_ARGUMENT, y, &a);
        softmax_row(&row, &a);
    }
}

SUB_GROUP_KERNEL
GROUP_SIZE(WORK_GROUP, 1, 1)
kernel void softmax_tile(const global ELEMENT(X_TYPE) *x, MASK_PARAMETER global ELEMENT(Y_TYPE) *y, softmax_args a)
{
    local float shared[REDUCE_ROOM(2)];
    if (a.rows == 0)
        return;

    const int item = (int)get_local_id(0);
    const row_place row = find_row((args_long)get_group_id(0), x, MASK_ARGUMENT, y, &a);
    /* Trip counts are the same for all items: PoCL 3.1 vectorises across items and miscounts others. */
    const int steps = KEEP ? KEEP : (a.columns + WORK_GROUP - 1) / WORK_GROUP;
    float highest = -INFINITY, sum = 0.0f, lost = 0.0f;
#if KEEP
    float kept[KEEP];
#endif

    for (int n = 0; n < steps; n++) {
        const int c = n * WORK_GROUP + item;
        const float s = c < a.columns ? SCORE_FOR_MAXIMUM(&row, c, &a) : -INFINITY;
        highest = s > highest ? s : highest;
#if KEEP
        kept[n] = c < a.columns ? score(&row, c, -INFINITY, &a) : -INFINITY;
#endif
    }
    REDUCE(shared, 0, item, highest, LARGER_FLOAT);
    const bool nothing = NOTHING(highest);
    highest = nothing ? 0.0f : highest;

    for (int n = 0; n < steps; n++) {
        const int c = n * WORK_GROUP + item;
#if KEEP
        const float s = kept[n];
#else
        const float s = c < a.columns ? score(&row, c, -INFINITY, &a) : -INFINITY;
#endif
        const float term = c < a.columns ? TERM(s, highest) : 0.0f, part = term - lost, next = sum + part;
        lost = (next - sum) - part;
        sum = next;
#if KEEP
        kept[n] = term;
#endif
    }
    REDUCE(shared, 1, item, sum, SUM_FLOAT);
    const float factor = nothing ? 0.0f : 1.0f / sum;

    for (int n = 0; n < steps; n++) {
        const int c = n * WORK_GROUP + item;
#if KEEP
        const float term = kept[n];
#else
        const float term = c < a.columns ? TERM(score(&row, c, -INFINITY, &a), highest) : 0.0f;
#endif
        if (c < a.columns)
            STORE(Y_TYPE, row.y, c * a.y.col, term * factor);
    }
}
