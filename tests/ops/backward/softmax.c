/* Every solver computes the gradient of softmax: rows of 1 to a million elements, of any rank and strides, with masks and
 * scales, in every storage type, also in place.
 *
 * Holds: what clattn/softmax.h says of CLATTN_DIRECTION_BACKWARD; results that are the same in every bit from run to run and
 * whatever the batch; the accuracy rule of docs/numerics.md; guard bands; what is refused.  The tests' own gradient is held
 * to central differences of the tests' own softmax. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/operator.h"
#include "support/ops/softmax_case.h"

/* Rank and extents, the last of which is the row's length. */
#define DIMS(n, ...) .backward = true, .rank = (n), .extent = {__VA_ARGS__}
#define STORED(of_x, of_y, of_result) \
    .x_type = CLATTN_DTYPE_##of_x, .y_type = CLATTN_DTYPE_##of_y, .result_type = CLATTN_DTYPE_##of_result
#define MASKED(kind, n, ...) .mask = MASK_##kind, .mask_rank = (n), .mask_extent = {__VA_ARGS__}

static const softmax_case rows[] = {
    {"one element", ALL, DIMS(2, 3, 1)},
    {"short rows", ALL, DIMS(2, 7, 3)},
    {"a vector - 1", ALL, DIMS(2, 3, 15)},
    {"a vector", ALL, DIMS(2, 3, 16)},
    {"a vector + 1", ALL, DIMS(2, 3, 17)},
    {"vectors and a rest", ALL, DIMS(2, 3, 89)},
    {"work-group", BIG, DIMS(2, 5, 256)},
    {"work-group + 1", BIG, DIMS(2, 5, 257)},
    {"prime", BIG, DIMS(2, 11, 4099)},
    {"many rows", BIG, DIMS(2, 10007, 5)},
    {"a long row", BIG, DIMS(1, 65537), .long_loops = true},
    {"a million", FULL, DIMS(2, 2, 1000000)},
    {"ranks", ALL, DIMS(1, 9)},
    {"ranks", ALL, DIMS(5, 2, 3, 2, 3, 7)},
    {"scaled", ALL, DIMS(2, 3, 19), .scaled = true, .scale = 0.125f},
    {"scale 0", ALL, DIMS(2, 3, 19), .scaled = true, .scale = 0},
    {"negative scale", BIG, DIMS(2, 7, 1031), .scaled = true, .scale = -2},
    {"large gradients", ALL, DIMS(2, 3, 19), .spread = 1e30f},
    {"no rows", ALL, DIMS(2, 0, 19)},
    {"no columns", ALL, DIMS(2, 3, 0)},
    {"no rows at enqueue", ALL, DIMS(2, 3, 19), .explicit_batch = true, .batch = 0},
};

static const softmax_case forms[] = {
    {"heads inside", ALL, DIMS(4, 2, 3, 5, 7), .x = FORM_BSHD, .y = FORM_BSHD, .result = FORM_BSHD},
    {"gaps", ALL, DIMS(4, 2, 3, 5, 7), .x = FORM_PADDED, .y = FORM_PLAIN, .result = FORM_PADDED},
    {"columns apart", ALL, DIMS(3, 2, 3, 19), .x = FORM_SPREAD, .y = FORM_SPREAD, .result = FORM_SPREAD},
    {"columns of the result apart", BIG, DIMS(3, 2, 3, 259), .result = FORM_SPREAD},
    {"rows backwards", ALL, DIMS(2, 5, 19), .x = FORM_FLIPPED, .y = FORM_FLIPPED},
    {"columns backwards", ALL, DIMS(2, 5, 35), .x = FORM_MIRRORED, .result = FORM_MIRRORED},
    {"rows contiguous", BIG, DIMS(2, 67, 259), .x = FORM_TRANSPOSED, .y = FORM_TRANSPOSED, .result = FORM_TRANSPOSED},
    {"one row of gradients for all", ALL, DIMS(3, 2, 3, 19), .x = FORM_SHARED_ROWS},
    {"one batch item of gradients for all", BIG, DIMS(3, 4, 3, 19), .x = FORM_SHARED_FIRST},
    {"in place of the gradient", ALL, DIMS(2, 5, 19), .in_place = true},
    {"in place of the gradient", BIG, DIMS(2, 5, 4099), .in_place = true},
    {"in place of the gradient, strided", ALL, DIMS(3, 2, 5, 19), .x = FORM_SPREAD, .in_place = true},
    {"in place of the result", ALL, DIMS(2, 5, 35), .in_result = true},
    {"in place of the result, masked", BIG, DIMS(2, 5, 259), .in_result = true, MASKED(BOOL, 1, 259)},
};

static const softmax_case masks[] = {
    {"boolean", ALL, DIMS(3, 2, 3, 19), MASKED(BOOL, 3, 2, 3, 19)},
    {"float", ALL, DIMS(3, 2, 3, 35), MASKED(FLOAT, 3, 2, 3, 35)},
    {"float", BIG, DIMS(3, 2, 3, 4099), MASKED(FLOAT, 3, 2, 1, 4099)},
    {"one row of mask", BIG, DIMS(4, 2, 3, 5, 67), MASKED(FLOAT, 1, 67)},
    {"a mask for each row", BIG, DIMS(4, 2, 3, 5, 67), MASKED(BOOL, 2, 5, 1)},
    {"fewer columns, boolean", ALL, DIMS(2, 3, 19), MASKED(BOOL, 2, 3, 2)},
    {"fewer columns, float", BIG, DIMS(2, 3, 259), MASKED(FLOAT, 1, 130)},
    {"mask strided", ALL, DIMS(2, 3, 19), MASKED(FLOAT, 2, 3, 19), .mask_form = FORM_TRANSPOSED},
    {"fully masked", ALL, DIMS(2, 3, 19), MASKED(FALSE, 1, 19)},
    {"fully masked", BIG, DIMS(2, 3, 259), MASKED(INF, 2, 3, 1)},
    {"all -FLT_MAX", BIG, DIMS(2, 3, 19), MASKED(LOWEST, 1, 19)},
};

static const softmax_case types[] = {
    {"float16", ALL, DIMS(2, 5, 35), STORED(F16, F16, F16)},
    {"bfloat16", ALL, DIMS(2, 5, 35), STORED(BF16, BF16, BF16)},
    {"float16's probabilities", BIG, DIMS(2, 7, 1031), STORED(F32, F32, F16)},
    {"bfloat16 to float16, strided", BIG, DIMS(2, 7, 131), STORED(BF16, F16, F32), .y = FORM_SPREAD},
    {"float16, in place, masked", ALL, DIMS(2, 5, 35), STORED(F16, F16, F32), .in_place = true, MASKED(BOOL, 2, 5, 35)},
    {"bfloat16, in place of the result", BIG, DIMS(2, 5, 259), STORED(F32, BF16, BF16), .in_result = true},
};

static const softmax_case values[] = {
    {"NaN", ALL, DIMS(2, 3, 19), .inject = SOFTMAX_NAN},
    {"NaN", BIG, DIMS(2, 3, 4099), .inject = SOFTMAX_NAN},
    {"NaN in the result", ALL, DIMS(2, 3, 19), .inject = SOFTMAX_NAN_RESULT},
    {"NaN in the result, masked", BIG, DIMS(2, 3, 259), .inject = SOFTMAX_NAN_RESULT, MASKED(FLOAT, 2, 3, 259)},
    {"+inf: -inf elsewhere", ALL, DIMS(2, 3, 19), .inject = SOFTMAX_INF},
    {"+inf: -inf elsewhere", BIG, DIMS(2, 3, 4099), .inject = SOFTMAX_INF},
    {"-inf: +inf elsewhere", BIG, DIMS(2, 3, 259), .inject = SOFTMAX_MINUS_INF},
    {"-inf alone: NaN", ALL, DIMS(2, 3, 19), .inject = SOFTMAX_EMPTY},
    {"masked elements", ALL, DIMS(2, 3, 35), .inject = SOFTMAX_MASKED, MASKED(BOOL, 2, 3, 35)},
    {"masked elements", BIG, DIMS(2, 3, 4099), .inject = SOFTMAX_MASKED, MASKED(FLOAT, 2, 3, 4099)},
    {"beyond the mask", BIG, DIMS(2, 3, 259), .inject = SOFTMAX_MASKED, MASKED(BOOL, 2, 3, 100)},
    {"beyond the batch", ALL, DIMS(3, 4, 3, 19), .inject = SOFTMAX_MASKED, .explicit_batch = true, .batch = 2},
    {"beyond the batch, masked", BIG, DIMS(3, 4, 3, 259), .inject = SOFTMAX_MASKED, .explicit_batch = true, .batch = 1,
     MASKED(FLOAT, 3, 4, 3, 259)},
};

/* ---- at random ---- */

#define MOST_RANDOM 32
static softmax_case drawn[MOST_RANDOM];

static clattn_dtype any_type(random_stream *r)
{
    static const clattn_dtype all[] = {CLATTN_DTYPE_F32, CLATTN_DTYPE_F32, CLATTN_DTYPE_F16, CLATTN_DTYPE_BF16};
    return all[random_int(r, 0, 3)];
}

static array_form any_form(random_stream *r)
{
    static const array_form all[] = {FORM_PLAIN,   FORM_PADDED,   FORM_SPREAD,
                                     FORM_FLIPPED, FORM_MIRRORED, FORM_TRANSPOSED};
    return all[random_int(r, 0, 5)];
}

static void draw(size_t count, int most)
{
    static const mask_kind kinds[] = {MASK_NONE, MASK_NONE, MASK_BOOL, MASK_FLOAT, MASK_FINITE};
    random_stream r = random_start(31);

    for (size_t i = 0; i < count; i++) {
        const size_t extent[3] = {(size_t)random_int(&r, 1, 3), (size_t)random_int(&r, 1, 7),
                                  (size_t)random_int(&r, 1, most)};
        softmax_case c = {"random", ALL, DIMS(3, extent[0], extent[1], extent[2])};
        c.x_type = any_type(&r);
        c.y_type = any_type(&r);
        c.result_type = any_type(&r);
        c.x = any_form(&r);
        c.y = any_form(&r);
        c.result = any_form(&r);
        c.mask = kinds[random_int(&r, 0, 4)];
        c.mask_rank = 3;
        for (int n = 0; n < 3; n++)
            c.mask_extent[n] = random_int(&r, 0, 2) ? extent[n] : 1;
        c.mask_form = any_form(&r);
        c.scaled = random_int(&r, 0, 1);
        c.scale = random_float(&r, -3, 3);
        drawn[i] = c;
    }
}

/* ---- the reference ---- */

static double loss(size_t columns, double scale, const double *x, const double *dy, const double *addend)
{
    double *y = zeros(columns), sum = 0;

    reference_softmax(columns, scale, x, addend, false, y, NULL);
    for (size_t c = 0; c < columns; c++)
        sum += y[c] * dy[c];
    free(y);
    return sum;
}

static void reference_is_the_derivative(void **state)
{
    enum { COLUMNS = 11 };
    const double step = 1e-5;
    random_stream stream = random_start(12);

    (void)state;
    for (int i = 0; i < 100; i++) {
        double x[COLUMNS], dy[COLUMNS], mask[COLUMNS], y[COLUMNS], dx[COLUMNS];
        const double scale = (double)random_float(&stream, -2, 2), *addend = i % 3 ? mask : NULL;
        for (size_t c = 0; c < COLUMNS; c++) {
            x[c] = (double)random_float(&stream, -3, 3);
            dy[c] = (double)random_float(&stream, -3, 3);
            mask[c] = random_int(&stream, 0, 2) ? (double)random_float(&stream, -1, 1) : -INFINITY;
        }
        reference_softmax(COLUMNS, scale, x, addend, false, y, NULL);
        reference_softmax_backward(COLUMNS, scale, y, dy, addend, false, dx, NULL);
        for (size_t c = 0; c < COLUMNS; c++) {
            const double middle = x[c];
            x[c] = middle + step;
            const double above = loss(COLUMNS, scale, x, dy, addend);
            x[c] = middle - step;
            const double below = loss(COLUMNS, scale, x, dy, addend);
            x[c] = middle;
            assert_true(fabs((above - below) / (2 * step) - dx[c]) < 1e-8);
        }
    }
}

/* ---- bits ---- */

enum { BATCH = 4, ROWS = 9, COLUMNS = 131, ITEM = ROWS * COLUMNS };

/* The bits are those of the first run, and those of an item are the same with fewer items around it. */
static void same_bits(void **state)
{
    static const softmax_case test = {"repeated", ALL, DIMS(3, BATCH, ROWS, COLUMNS), MASKED(BOOL, 2, ROWS, COLUMNS)};
    float *first = malloc(sizeof(float) * BATCH * ITEM), *again = malloc(sizeof(float) * BATCH * ITEM);

    (void)state;
    assert_non_null(first);
    assert_non_null(again);
    for (size_t n = 0; n < SOFTMAX_SOLVERS; n++) {
        test_job job = {0};
        assert_true(softmax_job(&job, &test, softmax_solvers[n], 1));
        job_run(&job, NULL);
        job_copy_output(&job, first);
        for (size_t i = 0, runs = by_level(3, 100, 100, 1000); i < runs; i++) {
            const size_t batch = 1 + i % BATCH;
            job.args.softmax.explicit_batch = 1;
            job.args.softmax.batch = batch;
            array_own(&job.output[0], (size_t[]){batch, ROWS, COLUMNS});
            job_poison(&job);
            job_run(&job, NULL);
            job_copy_output(&job, again);
            assert_memory_equal(again, first, sizeof(float) * batch * ITEM);
        }
        job_release(&job);
    }
    free(first);
    free(again);
}

/* ---- what is refused ---- */

static clattn_softmax_desc good_desc(void)
{
    clattn_softmax_desc desc = CLATTN_SOFTMAX_DESC_INIT;

    desc.direction = CLATTN_DIRECTION_BACKWARD;
    desc.y = desc.gradients.x = desc.gradients.y = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (size_t[]){4, 6});
    return desc;
}

#define REFUSED(status, change) OPERATOR_REFUSES_DESC(softmax, status, good_desc(), change)

static void refused_descriptions(void **state)
{
    clattn_softmax_desc good = good_desc(), forward = good_desc();
    const clattn_layout none = {0};

    (void)state;
    operator_answers(&softmax_operator, &good, CLATTN_SUCCESS);
    good.y.stride[0] = good.gradients.y.stride[1] = 0; /* inputs may broadcast */
    operator_answers(&softmax_operator, &good, CLATTN_SUCCESS);
    REFUSED(INVALID_ARGUMENT, direction = 2);
    REFUSED(INVALID_STRUCT, size = offsetof(clattn_softmax_desc, gradients) - 1);
    REFUSED(INVALID_ARGUMENT, x = good.gradients.x);
    REFUSED(INVALID_ARGUMENT, explicit_scale = 2);
    REFUSED(INVALID_ARGUMENT, scale = (desc.explicit_scale = 1, NAN));
    REFUSED(INVALID_ARGUMENT, short_mask = 2);
    REFUSED(INVALID_LAYOUT, y = none);
    REFUSED(INVALID_LAYOUT, gradients.x = none);
    REFUSED(INVALID_LAYOUT, gradients.y = none);
    REFUSED(INVALID_LAYOUT, y.extent[0] = 3);
    REFUSED(INVALID_LAYOUT, gradients.x.extent[1] = 5);
    REFUSED(INVALID_LAYOUT, gradients.y.rank = 1);
    REFUSED(INVALID_LAYOUT, gradients.x.stride[0] = 0);
    REFUSED(INVALID_LAYOUT, mask = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (size_t[]){3, 6}));
    REFUSED(UNSUPPORTED, mask = clattn_layout_contiguous(CLATTN_DTYPE_F16, 2, (size_t[]){4, 6}));
    REFUSED(UNSUPPORTED, y.dtype = CLATTN_DTYPE_F64);
    REFUSED(UNSUPPORTED, gradients.x.dtype = CLATTN_DTYPE_BOOL);
    REFUSED(UNSUPPORTED, gradients.y.dtype = CLATTN_DTYPE_I32);
    REFUSED(OVERFLOW, y = desc.gradients.x = desc.gradients.y =
                          clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (size_t[]){(size_t)1 << 31, 3}));
    forward.direction = CLATTN_DIRECTION_FORWARD;
    forward.x = forward.y;
    operator_answers(&softmax_operator, &forward, CLATTN_ERROR_INVALID_ARGUMENT);
    forward.gradients.x = none;
    operator_answers(&softmax_operator, &forward, CLATTN_ERROR_INVALID_ARGUMENT);
    forward.gradients.y = none;
    operator_answers(&softmax_operator, &forward, CLATTN_SUCCESS);
}

#define REFUSED_ARGS(status, change) OPERATOR_REFUSES_ARGS(softmax, job.plan, status, good, change)

static void refused_arguments(void **state)
{
    clattn_softmax_desc desc = CLATTN_SOFTMAX_DESC_INIT;
    clattn_softmax_args good = CLATTN_SOFTMAX_ARGS_INIT;
    test_job job = {0};
    size_t extent[] = {4, 6};

    (void)state;
    test_array y = job_array(&job, ROLE_INPUT, CLATTN_DTYPE_F32, 2, extent, FORM_PLAIN);
    test_array gradient = job_array(&job, ROLE_INPUT, CLATTN_DTYPE_F32, 2, extent, FORM_PLAIN);
    desc.direction = CLATTN_DIRECTION_BACKWARD;
    array_bind(&y, &desc.y, &good.y);
    array_bind(&gradient, &desc.gradients.y, &good.gradients.y);
    array_bind(job_output(&job, 2, extent), &desc.gradients.x, &good.gradients.x);
    job.plan = operator_plan(&softmax_operator, &desc, NULL);
    REFUSED_ARGS(INVALID_STRUCT, size = 8);
    REFUSED_ARGS(INVALID_ARGUMENT, x = good.y);
    REFUSED_ARGS(INVALID_ARGUMENT, mask = good.y);
    REFUSED_ARGS(INVALID_ARGUMENT, y.buffer = NULL);
    REFUSED_ARGS(INVALID_ARGUMENT, gradients.x.buffer = NULL);
    REFUSED_ARGS(INVALID_ARGUMENT, gradients.y.buffer = NULL);
    REFUSED_ARGS(INVALID_ARGUMENT, reserved = 1);
    REFUSED_ARGS(INVALID_ARGUMENT, batch = (args.explicit_batch = 1, 5));
    REFUSED_ARGS(BUFFER_TOO_SMALL, y.offset = 100);
    REFUSED_ARGS(BUFFER_TOO_SMALL, gradients.x.offset = 100);
    REFUSED_ARGS(BUFFER_ACCESS, gradients.x = good.gradients.y);
    operator_needs_both(&softmax_operator, job.plan, &good);
    clattn_plan_release(&job.plan);
    desc.direction = CLATTN_DIRECTION_FORWARD; /* of which no gradient is bound */
    desc.x = desc.gradients.y;
    desc.y = desc.gradients.x;
    desc.gradients.x = desc.gradients.y = (clattn_layout){0};
    good.x = good.gradients.y;
    good.y = good.gradients.x;
    job.plan = operator_plan(&softmax_operator, &desc, NULL);
    REFUSED_ARGS(INVALID_ARGUMENT, gradients.x = (clattn_binding){0});
    REFUSED_ARGS(INVALID_ARGUMENT, gradients.y = (clattn_binding){0});
    job_release(&job);
}

int main(int argc, char **argv)
{
    const size_t random_count = by_level(4, 12, MOST_RANDOM, MOST_RANDOM);

    suite_add(reference_is_the_derivative, "softmax backward: the reference is the derivative of forward's");
    softmax_add(rows, COUNT_OF(rows));
    softmax_add(forms, COUNT_OF(forms));
    softmax_add(masks, COUNT_OF(masks));
    softmax_add(types, COUNT_OF(types));
    softmax_add(values, COUNT_OF(values));
    draw(random_count, by_level(40, 300, 1500, 1500));
    softmax_add(drawn, random_count);
    suite_add(same_bits, "softmax backward: the same bits in every run and every batch");
    suite_add(refused_descriptions, "softmax backward: descriptions that are refused");
    suite_add(refused_arguments, "softmax backward: arguments that are refused");
    return suite_run("softmax_backward", argc, argv);
}
