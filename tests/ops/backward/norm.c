/* Every solver computes the gradients of LayerNorm and RMSNorm: of x over any trailing axes and strides, storage types, with
 * residuals, also in place; of scales and biases of any broadcast extents.
 *
 * Holds: what clattn/norm.h says of CLATTN_DIRECTION_BACKWARD, an accuracy that grants nothing for the errors of a naive
 * computation, results that are the same in every bit from run to run, gradients of x that are the same whatever the batch,
 * guard bands, and what is refused.  The tests' own gradients are held to central differences of the tests' own norms. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/operator.h"
#include "support/ops/norm_case.h"

#define EVERY NORM_DX | NORM_DSCALE | NORM_DBIAS
#define DIMS(n, ...) .gradients = EVERY, .rank = (n), .extent = {__VA_ARGS__}
#define ONLY_X(n, ...) .gradients = NORM_DX, .rank = (n), .extent = {__VA_ARGS__}
#define FACTOR(n, ...) \
    { \
        .rank = (n), .extent = { __VA_ARGS__ } \
    }
#define BOTH(n, ...) .scale = FACTOR(n, __VA_ARGS__), .bias = FACTOR(n, __VA_ARGS__)
#define RMS .rms = true

static const norm_case rows[] = {
    {"one element", ALL, DIMS(2, 3, 1), BOTH(1, 1), .explicit_epsilon = true, .epsilon = 1},
    {"one element", ALL, DIMS(2, 3, 1), RMS, BOTH(1, 1)},
    {"x alone", ALL, ONLY_X(2, 5, 7)},
    {"x alone", ALL, ONLY_X(2, 5, 35), RMS, .scale = FACTOR(1, 35)},
    {"scale alone", ALL, .gradients = NORM_DSCALE, .rank = 2, .extent = {5, 19}, .scale = FACTOR(1, 19)},
    {"bias alone", ALL, .gradients = NORM_DBIAS, .rank = 2, .extent = {5, 19}, .bias = FACTOR(1, 19)},
    {"a vector - 1", ALL, DIMS(2, 3, 15), BOTH(1, 15)},
    {"a vector", ALL, DIMS(2, 3, 16), BOTH(1, 16)},
    {"a vector + 1", ALL, DIMS(2, 3, 17), RMS, BOTH(1, 17)},
    {"vectors and a rest", ALL, DIMS(2, 3, 89), BOTH(1, 89)},
    {"work-group + 1", BIG, DIMS(2, 5, 257), RMS, BOTH(1, 257)},
    {"prime", BIG, DIMS(2, 11, 4099), BOTH(1, 4099)},
    {"a block of terms", BIG, DIMS(2, 256, 19), BOTH(1, 19)},
    {"a block of terms + 1", ALL, DIMS(2, 257, 5), BOTH(1, 5)},
    {"many terms", BIG, DIMS(2, 10007, 5), BOTH(1, 5)},
    {"10^5 terms", FULL, DIMS(2, 100003, 24), RMS, BOTH(1, 24)},
    {"a long row", BIG, ONLY_X(1, 65537), .long_loops = true},
    {"offset 1e4", ALL, DIMS(2, 37, 35), .offset = 1e4f, .spread = 1, BOTH(1, 35)},
    {"offset 1e4", BIG, DIMS(2, 37, 1031), .offset = 1e4f, .spread = 1, BOTH(1, 1031)},
    {"no rows", ALL, DIMS(2, 0, 19), BOTH(1, 19)},
    {"no columns", ALL, DIMS(2, 3, 0), BOTH(1, 1)},
    {"no rows at enqueue: +0", ALL, DIMS(2, 3, 19), BOTH(1, 19), .explicit_batch = true, .batch = 0},
    {"fewer rows at enqueue", ALL, DIMS(3, 4, 3, 19), BOTH(1, 19), .explicit_batch = true, .batch = 2,
     .inject = NORM_BEYOND},
    {"fewer rows at enqueue, one scale each", ALL, DIMS(3, 4, 3, 19), BOTH(3, 4, 1, 19), .explicit_batch = true,
     .batch = 3},
};

static const norm_case broadcasts[] = {
    {"one for all", ALL, DIMS(2, 5, 19), BOTH(1, 1)},
    {"one for each row", ALL, DIMS(2, 5, 19), BOTH(2, 5, 1)},
    {"everywhere", ALL, DIMS(2, 5, 19), BOTH(2, 5, 19)},
    {"unlike scale and bias", ALL, DIMS(3, 2, 5, 19), .scale = FACTOR(3, 2, 1, 19), .bias = FACTOR(2, 5, 1)},
    {"two axes", ALL, DIMS(3, 3, 5, 19), .axes = 2, BOTH(2, 5, 19)},
    {"two axes, apart", BIG, DIMS(3, 3, 5, 19), .axes = 2, .x = FORM_PADDED, .y = FORM_SPREAD, BOTH(2, 5, 1)},
    {"all axes", ALL, DIMS(3, 3, 5, 7), .axes = 3, BOTH(1, 7)},
    {"groups of channels (GroupNorm)", ALL, DIMS(4, 2, 3, 5, 19), .axes = 2, BOTH(4, 1, 3, 5, 1)},
    {"each channel (InstanceNorm)", BIG, DIMS(4, 2, 3, 5, 19), .axes = 2, BOTH(4, 1, 3, 1, 1)},
    {"five dimensions", BIG, DIMS(5, 2, 3, 2, 5, 7), .axes = 2, BOTH(5, 2, 1, 2, 1, 7)},
    {"channels of pixels in planes", BIG, DIMS(3, 2, 37, 150), .x = FORM_TRANSPOSED, .y = FORM_TRANSPOSED,
     .dy = FORM_TRANSPOSED, BOTH(1, 150)},
};

static const norm_case forms[] = {
    {"gaps", ALL, DIMS(3, 2, 5, 19), .x = FORM_PADDED, .y = FORM_PADDED, .dy = FORM_PADDED, BOTH(1, 19)},
    {"columns apart", ALL, DIMS(2, 5, 19), .x = FORM_SPREAD, .y = FORM_SPREAD, .dy = FORM_SPREAD, BOTH(1, 19)},
    {"columns backwards", BIG, DIMS(2, 5, 35), .x = FORM_MIRRORED, .y = FORM_FLIPPED, .dy = FORM_MIRRORED, BOTH(1, 35)},
    {"one row of gradients for all", ALL, DIMS(2, 5, 19), .dy = FORM_SHARED_ROWS, BOTH(1, 19)},
    {"scale backwards", ALL, DIMS(2, 5, 19), .scale = {1, {19}, FORM_SPREAD, 0}, .bias = FACTOR(1, 19),
     .dscale = {0, {0}, FORM_SPREAD, 0}},
    {"in place of the gradient", ALL, ONLY_X(2, 5, 35), .in_place = true, .scale = FACTOR(1, 35)},
    {"in place of sum's gradient", ALL, DIMS(2, 5, 35), .sum = true, .sum_in_place = true, BOTH(1, 35)},
    {"residual", ALL, DIMS(2, 5, 19), .residual = FACTOR(2, 5, 19), BOTH(1, 19)},
    {"residual for all rows, and sum", ALL, DIMS(3, 2, 5, 19), .residual = FACTOR(2, 5, 19), .sum = true,
     .sum_form = FORM_SPREAD, RMS, BOTH(1, 19)},
    {"sum", BIG, DIMS(2, 5, 259), .sum = true, BOTH(1, 259)},
};

#define F16 CLATTN_DTYPE_F16
#define BF16 CLATTN_DTYPE_BF16

static const norm_case types[] = {
    {"float16", ALL, DIMS(2, 5, 35), .x_type = F16, .y_type = F16, .dy_type = F16, .scale = {1, {35}, FORM_PLAIN, F16},
     .bias = {1, {35}, FORM_PLAIN, F16}, .dscale = {0, {0}, FORM_PLAIN, F16}},
    {"bfloat16", ALL, DIMS(2, 5, 35), .x_type = BF16, .y_type = BF16, .dy_type = BF16,
     .scale = {1, {35}, FORM_PLAIN, BF16}, .bias = FACTOR(1, 35)},
    {"a mixture", BIG, DIMS(2, 5, 131), .x_type = F16, .y_type = BF16, .dy_type = BF16,
     .residual = {2, {5, 131}, FORM_PLAIN, BF16}, .sum = true, .sum_type = F16, .scale = {1, {131}, FORM_PLAIN, F16},
     .bias = {1, {131}, FORM_PLAIN, BF16}},
};

static const norm_case values[] = {
    {"NaN", ALL, DIMS(2, 3, 19), .inject = NORM_NAN, BOTH(1, 19)},
    {"-inf: NaN", ALL, DIMS(2, 3, 35), .inject = NORM_INF, BOTH(1, 35)},
    {"overflow: NaN", BIG, DIMS(2, 3, 19), .inject = NORM_OVERFLOW, RMS, BOTH(1, 19)},
    {"infinite gradient", ALL, DIMS(2, 3, 19), .inject = NORM_GRADIENT, RMS, BOTH(1, 19)},
    {"infinite gradient", BIG, DIMS(2, 3, 259), .inject = NORM_GRADIENT, BOTH(1, 259)},
    {"constant", ALL, DIMS(2, 3, 19), .inject = NORM_CONSTANT, BOTH(1, 19)},
};

/* ---- at random ---- */

#define MOST_RANDOM 32
static norm_case drawn[MOST_RANDOM];

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

static norm_factor any_factor(random_stream *r, const size_t extent[3])
{
    norm_factor f = {.rank = 3, .form = any_form(r), .dtype = any_type(r)};
    for (int i = 0; i < 3; i++)
        f.extent[i] = random_int(r, 0, 1) ? extent[i] : 1;
    return f;
}

static void draw(size_t count, int most)
{
    random_stream r = random_start(32);

    for (size_t i = 0; i < count; i++) {
        const size_t extent[3] = {(size_t)random_int(&r, 1, 3), (size_t)random_int(&r, 1, 9),
                                  (size_t)random_int(&r, 2, most)};
        norm_case c = {"random", ALL, .rank = 3, .extent = {extent[0], extent[1], extent[2]}};
        c.gradients = (unsigned)random_int(&r, 1, 7);
        c.axes = random_int(&r, 1, 3);
        c.rms = random_int(&r, 0, 1);
        c.x_type = any_type(&r);
        c.y_type = any_type(&r);
        c.dy_type = any_type(&r);
        c.x = any_form(&r);
        c.y = any_form(&r);
        c.dy = any_form(&r);
        c.scale = any_factor(&r, extent);
        c.bias = any_factor(&r, extent);
        c.dscale.form = any_form(&r);
        c.dscale.dtype = any_type(&r);
        if (random_int(&r, 0, 1))
            c.residual = any_factor(&r, extent);
        c.sum = random_int(&r, 0, 1);
        c.sum_form = any_form(&r);
        c.sum_type = any_type(&r);
        drawn[i] = c;
    }
}

/* ---- the reference ---- */

enum { ELEMENTS = 7 };

typedef struct point {
    double x[ELEMENTS], scale[ELEMENTS];
} point;

/* dy . y + dsum . x */
static double loss(const point *at, bool rms, const double *dy, const double *dsum)
{
    double y[ELEMENTS], magnitude[ELEMENTS], mean, factor, sum = 0;

    reference_norm(ELEMENTS, rms, 0.01, at->x, at->scale, NULL, y, magnitude, &mean, &factor);
    for (size_t e = 0; e < ELEMENTS; e++)
        sum += dy[e] * y[e] + dsum[e] * at->x[e];
    return sum;
}

static double difference(point *at, double *moved, bool rms, const double *dy, const double *dsum)
{
    const double step = 1e-5, middle = *moved;
    *moved = middle + step;
    const double above = loss(at, rms, dy, dsum);
    *moved = middle - step;
    const double below = loss(at, rms, dy, dsum);
    *moved = middle;
    return (above - below) / (2 * step);
}

static void reference_is_the_derivative(void **state)
{
    random_stream stream = random_start(14);

    (void)state;
    for (int i = 0; i < 100; i++) {
        double dy[ELEMENTS], dsum[ELEMENTS], dx[ELEMENTS], dscale[ELEMENTS], magnitude[ELEMENTS], more[ELEMENTS];
        point at;
        for (size_t e = 0; e < ELEMENTS; e++) {
            at.x[e] = (double)random_float(&stream, -3, 3);
            at.scale[e] = (double)random_float(&stream, -3, 3);
            dy[e] = (double)random_float(&stream, -3, 3);
            dsum[e] = (double)random_float(&stream, -3, 3);
        }
        reference_norm_backward(ELEMENTS, i % 2, 0.01, at.x, at.scale, dy, dsum, dx, magnitude, dscale, more);
        for (size_t e = 0; e < ELEMENTS; e++) {
            assert_true(fabs(difference(&at, &at.x[e], i % 2, dy, dsum) - dx[e]) < 1e-7);
            assert_true(fabs(difference(&at, &at.scale[e], i % 2, dy, dsum) - dscale[e]) < 1e-7);
        }
    }
}

/* ---- bits ---- */

enum { BATCH = 4, ROWS = 70, COLUMNS = 83, ITEM = ROWS * COLUMNS };

static void same_bits(void **state)
{
    norm_case test = {"repeated", ALL, DIMS(3, BATCH, ROWS, COLUMNS), BOTH(1, COLUMNS)};
    (void)state;
    if (is_tiny()) { /* a simulator takes a minute for more */
        test.extent[0] = 1;
        test.extent[1] = 7;
    }
    for (size_t n = 0; n < NORM_SOLVERS; n++) {
        test_job job = {0};
        assert_true(norm_job(&job, &test, norm_solvers[n]));
        job_run(&job, NULL);
        unsigned char *first = job_snapshot(&job);
        job_repeat(&job, first);
        free(first);
        job_release(&job);
    }
}

/* The gradient of x of an item is the same with fewer items around it. */
static void same_items(void **state)
{
    static const norm_case test = {"items", ALL, ONLY_X(3, BATCH, ROWS, COLUMNS), .scale = FACTOR(1, COLUMNS)};
    float *first = malloc(sizeof(float) * BATCH * ITEM), *again = malloc(sizeof(float) * BATCH * ITEM);

    (void)state;
    assert_non_null(first);
    assert_non_null(again);
    for (size_t n = 0; n < NORM_SOLVERS; n++) {
        test_job job = {0};
        assert_true(norm_job(&job, &test, norm_solvers[n]));
        job_run(&job, NULL);
        job_copy_output(&job, first);
        for (size_t batch = 1; batch < BATCH; batch++) {
            job.args.norm.explicit_batch = 1;
            job.args.norm.batch = batch;
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

static clattn_norm_desc good_desc(void)
{
    clattn_norm_desc desc = CLATTN_NORM_DESC_INIT;

    desc.direction = CLATTN_DIRECTION_BACKWARD;
    desc.x = desc.residual = desc.gradients.x = desc.gradients.y = desc.gradients.sum =
        clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (size_t[]){4, 6});
    desc.scale = desc.gradients.scale = desc.gradients.bias =
        clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, (size_t[]){6});
    return desc;
}

#define REFUSED(status, change) OPERATOR_REFUSES_DESC(norm, status, good_desc(), change)

static void refused_descriptions(void **state)
{
    clattn_norm_desc good = good_desc();
    const clattn_layout none = {0}, whole = good.x;
    clattn_layout *const gradients[] = {&good.gradients.x, &good.gradients.y, &good.gradients.sum,
                                        &good.gradients.scale, &good.gradients.bias};

    (void)state;
    operator_answers(&norm_operator, &good, CLATTN_SUCCESS);
    good.residual = good.gradients.sum = good.gradients.x = none;
    operator_answers(&norm_operator, &good, CLATTN_SUCCESS);
    REFUSED(INVALID_ARGUMENT, direction = 2);
    REFUSED(INVALID_STRUCT, size = 8);
    REFUSED(INVALID_ARGUMENT, kind = 2);
    REFUSED(INVALID_ARGUMENT, epsilon = (desc.explicit_epsilon = 1, -1));
    REFUSED(INVALID_ARGUMENT, axes = 3);
    REFUSED(INVALID_ARGUMENT, reserved = 1);
    REFUSED(INVALID_ARGUMENT, y = whole);
    REFUSED(INVALID_ARGUMENT, bias = whole);
    REFUSED(INVALID_ARGUMENT, sum = whole);
    REFUSED(INVALID_ARGUMENT, mean = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (size_t[]){4, 1}));
    REFUSED(INVALID_ARGUMENT, inv_std_dev = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (size_t[]){4, 1}));
    REFUSED(INVALID_ARGUMENT, gradients.x = desc.gradients.scale = desc.gradients.bias = none);
    REFUSED(INVALID_ARGUMENT, scale = none);
    REFUSED(INVALID_LAYOUT, x = none);
    REFUSED(INVALID_LAYOUT, gradients.y = none);
    REFUSED(INVALID_LAYOUT, gradients.y.extent[0] = 3);
    REFUSED(INVALID_LAYOUT, gradients.x.rank = 1);
    REFUSED(INVALID_LAYOUT, gradients.x.stride[0] = 0);
    REFUSED(INVALID_LAYOUT, gradients.sum.extent[1] = 5);
    REFUSED(INVALID_LAYOUT, residual.extent[1] = 5);
    REFUSED(INVALID_LAYOUT, gradients.scale = whole);
    REFUSED(INVALID_LAYOUT, gradients.scale.extent[0] = 5);
    REFUSED(INVALID_LAYOUT, gradients.bias.extent[0] = 5);
    REFUSED(INVALID_LAYOUT, gradients.bias.stride[0] = 0);
    REFUSED(UNSUPPORTED, x.dtype = CLATTN_DTYPE_F64);
    REFUSED(UNSUPPORTED, gradients.x.dtype = CLATTN_DTYPE_F64);
    REFUSED(UNSUPPORTED, gradients.y.dtype = CLATTN_DTYPE_BOOL);
    REFUSED(UNSUPPORTED, gradients.scale.dtype = CLATTN_DTYPE_I32);
    REFUSED(UNSUPPORTED, gradients.bias.dtype = CLATTN_DTYPE_F64);
    for (size_t i = 0; i < COUNT_OF(gradients); i++) { /* forward has none */
        good = good_desc();
        clattn_layout one = i < 3 ? whole : good.scale;
        good.direction = CLATTN_DIRECTION_FORWARD;
        good.y = whole;
        memset(&good.gradients, 0, sizeof good.gradients);
        operator_answers(&norm_operator, &good, CLATTN_SUCCESS);
        *gradients[i] = one;
        operator_answers(&norm_operator, &good, CLATTN_ERROR_INVALID_ARGUMENT);
    }
}

#define REFUSED_ARGS(status, change) OPERATOR_REFUSES_ARGS(norm, job.plan, status, good, change)

static void refused_arguments(void **state)
{
    clattn_norm_desc desc = CLATTN_NORM_DESC_INIT;
    clattn_norm_args good = CLATTN_NORM_ARGS_INIT;
    test_job job = {0};
    size_t extent[] = {4, 6};

    (void)state;
    test_array x = job_array(&job, ROLE_IN_PLACE, CLATTN_DTYPE_F32, 2, extent, FORM_PLAIN);
    test_array dy = job_array(&job, ROLE_IN_PLACE, CLATTN_DTYPE_F32, 2, extent, FORM_PLAIN);
    test_array dsum = job_array(&job, ROLE_INPUT, CLATTN_DTYPE_F32, 2, extent, FORM_PLAIN);
    test_array dbias = job_array(&job, ROLE_OUTPUT, CLATTN_DTYPE_F32, 1, &extent[1], FORM_PLAIN);
    desc.direction = CLATTN_DIRECTION_BACKWARD;
    array_bind(&x, &desc.x, &good.x);
    array_bind(&dy, &desc.gradients.y, &good.gradients.y);
    array_bind(&dsum, &desc.gradients.sum, &good.gradients.sum);
    array_bind(&dbias, &desc.gradients.bias, &good.gradients.bias);
    array_bind(job_output(&job, 2, extent), &desc.gradients.x, &good.gradients.x);
    job.plan = operator_plan(&norm_operator, &desc, NULL);
    REFUSED_ARGS(INVALID_STRUCT, size = 8);
    REFUSED_ARGS(INVALID_ARGUMENT, y = good.x);
    REFUSED_ARGS(INVALID_ARGUMENT, scale = good.x);
    REFUSED_ARGS(INVALID_ARGUMENT, bias = good.x);
    REFUSED_ARGS(INVALID_ARGUMENT, residual = good.x);
    REFUSED_ARGS(INVALID_ARGUMENT, mean = good.x);
    REFUSED_ARGS(INVALID_ARGUMENT, inv_std_dev = good.x);
    REFUSED_ARGS(INVALID_ARGUMENT, sum = good.x);
    REFUSED_ARGS(INVALID_ARGUMENT, gradients.scale = good.x);
    REFUSED_ARGS(INVALID_ARGUMENT, x.buffer = NULL);
    REFUSED_ARGS(INVALID_ARGUMENT, gradients.x.buffer = NULL);
    REFUSED_ARGS(INVALID_ARGUMENT, gradients.y.buffer = NULL);
    REFUSED_ARGS(INVALID_ARGUMENT, gradients.sum.buffer = NULL);
    REFUSED_ARGS(INVALID_ARGUMENT, gradients.bias.buffer = NULL);
    REFUSED_ARGS(INVALID_ARGUMENT, gradients.x = good.x); /* sums read x afterwards */
    REFUSED_ARGS(INVALID_ARGUMENT, gradients.x = good.gradients.y);
    REFUSED_ARGS(INVALID_ARGUMENT, reserved = 1);
    REFUSED_ARGS(INVALID_ARGUMENT, batch = (args.explicit_batch = 1, 5));
    REFUSED_ARGS(BUFFER_TOO_SMALL, gradients.x.offset = 100);
    REFUSED_ARGS(BUFFER_ACCESS, gradients.bias = good.gradients.sum);
    operator_needs_both(&norm_operator, job.plan, &good);
    job_release(&job);
}

int main(int argc, char **argv)
{
    const size_t random_count = by_level(4, 12, MOST_RANDOM, MOST_RANDOM);

    suite_add(reference_is_the_derivative, "norm backward: the reference is the derivative of forward's");
    norm_add(rows, COUNT_OF(rows));
    norm_add(broadcasts, COUNT_OF(broadcasts));
    norm_add(forms, COUNT_OF(forms));
    norm_add(types, COUNT_OF(types));
    norm_add(values, COUNT_OF(values));
    draw(random_count, by_level(40, 200, 800, 800));
    norm_add(drawn, random_count);
    suite_add(same_bits, "norm backward: the same bits in every run");
    suite_add(same_items, "norm backward: the same gradient of x in every batch");
    suite_add(refused_descriptions, "norm backward: descriptions that are refused");
    suite_add(refused_arguments, "norm backward: arguments that are refused");
    return suite_run("norm_backward", argc, argv);
}
