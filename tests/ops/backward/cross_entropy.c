/* Every solver computes cross-entropy of rows of 1 to 100,000 classes with its gradient: of any rank, strides and types,
 * with label smoothing, weights, labels that are ignored and labels that are no class, also in place.
 *
 * Holds: what clattn/cross_entropy.h says of each element, the accuracy rule and determinism of docs/numerics.md, guard
 * bands, and what is refused.  The reference here is held to central differences. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/operator.h"
#include "support/ops/backward/cross_entropy_case.h"

/* Rank and extents. */
#define DIMS(n, ...) .rank = (n), .extent = {__VA_ARGS__}
#define STORED(type) .x_type = CLATTN_DTYPE_##type, .gradient_type = CLATTN_DTYPE_##type
#define I64 .label_type = CLATTN_DTYPE_I64

static const cross_entropy_case cases[] = {
    {"one class", ALL, DIMS(2, 3, 1)},
    {"two classes", ALL, DIMS(2, 5, 2), .smoothing = 0.1f},
    {"a vector - 1", ALL, DIMS(2, 3, 15)},
    {"a vector", ALL, DIMS(2, 3, 16), .weights = true},
    {"a vector + 1", ALL, DIMS(2, 3, 17), .scale = 0.25f},
    {"a lane a row", ALL, DIMS(2, 37, 5), .smoothing = 0.2f, .weights = true, .wrong = true},
    {"a lane a row", BIG, DIMS(2, 53, 127), .smoothing = 0.2f, .wrong = true},
    {"a lane a row, int64", ALL, DIMS(3, 2, 21, 9), I64, .wrong = true},
    {"no lane a row", BIG, DIMS(2, 37, 128), .wrong = true},
    {"work-group + 1", BIG, DIMS(2, 5, 257), .smoothing = 0.5f},
    {"prime", ALL, DIMS(2, 2, 61), .smoothing = 0.01f},
    {"prime", BIG, DIMS(2, 11, 4099), .smoothing = 0.1f, .weights = true, .scale = -3},
    {"several runs", ALL, DIMS(2, 2, 1100), .smoothing = 0.1f},
    {"a vocabulary", BIG, DIMS(2, 3, 32000), .long_loops = true},
    {"a vocabulary, smoothed", BIG, DIMS(2, 3, 50257), .smoothing = 0.1f, .long_loops = true},
    {"a large vocabulary", FULL, DIMS(2, 2, 1000003), .smoothing = 0.1f, .long_loops = true},
    {"many rows", BIG, DIMS(2, 4099, 5), .wrong = true},
    {"loss alone", ALL, DIMS(2, 3, 19), .outputs = CROSS_ENTROPY_LOSS},
    {"loss alone", BIG, DIMS(2, 3, 1031), .outputs = CROSS_ENTROPY_LOSS, .smoothing = 0.1f, .wrong = true},
    {"lse alone", ALL, DIMS(2, 3, 19), .outputs = CROSS_ENTROPY_LSE, .wrong = true},
    {"gradient alone", ALL, DIMS(2, 3, 19), .outputs = CROSS_ENTROPY_GRADIENT, .wrong = true, .weights = true},
    {"gradient alone", BIG, DIMS(2, 7, 1031), .outputs = CROSS_ENTROPY_GRADIENT, .wrong = true, .scale = 0.125f},
    {"loss and lse", BIG, DIMS(2, 37, 23), .outputs = CROSS_ENTROPY_LOSS | CROSS_ENTROPY_LSE, .smoothing = 0.3f},
    {"ranks", ALL, DIMS(3, 2, 3, 5)},
    {"ranks", ALL, DIMS(5, 2, 3, 2, 3, 7), .wrong = true},
    {"a class is ignored", ALL, DIMS(2, 21, 4), .pad = true, .wrong = true},
    {"a class is ignored", BIG, DIMS(2, 21, 300), .pad = true, .wrong = true, I64},
    {"ignored and no class", ALL, DIMS(2, 13, 150), .wrong = true, I64},
    {"logits of 1e4", ALL, DIMS(2, 3, 19), .spread = 1e4f, .smoothing = 0.1f},
    {"logits of 1e4", BIG, DIMS(2, 7, 2053), .spread = 1e4f, .smoothing = 0.1f},
    {"huge logits", ALL, DIMS(2, 7, 131), .spread = 1e37f},
    {"huge logits", BIG, DIMS(2, 7, 2053), .spread = 1e37f},
    {"ascending", ALL, DIMS(2, 2, 1031), .ascending = true, .spread = 50, .smoothing = 0.1f},
    {"ascending", BIG, DIMS(2, 2, 50257), .ascending = true, .spread = 1, .long_loops = true},
    {"ascending", BIG, DIMS(2, 2, 50257), .ascending = true, .spread = 300, .smoothing = 0.1f, .long_loops = true},
    {"heads inside", ALL, DIMS(4, 2, 3, 5, 7), .x = FORM_BSHD, .gradient = FORM_BSHD},
    {"gaps", ALL, DIMS(3, 2, 21, 6), .x = FORM_PADDED, .gradient = FORM_PADDED, .rows = FORM_PADDED},
    {"columns apart", ALL, DIMS(2, 5, 19), .x = FORM_SPREAD, .gradient = FORM_SPREAD, .rows = FORM_SPREAD,
     .weights = true},
    {"columns apart", BIG, DIMS(2, 3, 1031), .x = FORM_SPREAD, .rows = FORM_SPREAD},
    {"columns backwards", BIG, DIMS(2, 5, 259), .x = FORM_MIRRORED, .gradient = FORM_MIRRORED, .rows = FORM_MIRRORED},
    {"rows contiguous", ALL, DIMS(2, 37, 5), .x = FORM_TRANSPOSED, .gradient = FORM_TRANSPOSED},
    {"rows contiguous", BIG, DIMS(3, 2, 37, 259), .x = FORM_TRANSPOSED, .rows = FORM_TRANSPOSED},
    {"rows backwards", ALL, DIMS(2, 37, 5), .x = FORM_FLIPPED, .gradient = FORM_FLIPPED},
    {"one row for all", BIG, DIMS(2, 37, 9), .x = FORM_SHARED_ROWS, .wrong = true},
    {"in place", ALL, DIMS(2, 37, 5), .in_place = true, .wrong = true},
    {"in place", ALL, DIMS(2, 5, 259), .in_place = true, .wrong = true, .smoothing = 0.1f},
    {"in place", BIG, DIMS(2, 5, 5003), .in_place = true, .smoothing = 0.1f},
    {"in place, strided", BIG, DIMS(2, 5, 259), .in_place = true, .x = FORM_SPREAD},
    {"float16", ALL, DIMS(2, 5, 35), STORED(F16), .smoothing = 0.1f},
    {"float16", BIG, DIMS(2, 7, 1031), STORED(F16), .weights = true},
    {"float16, side by side, in place", BIG, DIMS(2, 37, 24), STORED(F16), .in_place = true, .wrong = true},
    {"float16, in place", ALL, DIMS(2, 5, 150), STORED(F16), .in_place = true},
    {"bfloat16", ALL, DIMS(2, 5, 35), STORED(BF16), .wrong = true},
    {"bfloat16", BIG, DIMS(2, 7, 1031), STORED(BF16), .smoothing = 0.1f, I64},
    {"bfloat16, huge logits", BIG, DIMS(2, 7, 167), STORED(BF16), .spread = 1e37f},
    {"bfloat16 to float32", BIG, DIMS(2, 7, 131), .x_type = CLATTN_DTYPE_BF16},
    {"float32 to float16", BIG, DIMS(2, 37, 31), .gradient_type = CLATTN_DTYPE_F16},
    {"NaN", ALL, DIMS(2, 3, 19), .inject = CROSS_ENTROPY_PUT_NAN},
    {"NaN", BIG, DIMS(2, 3, 4099), .inject = CROSS_ENTROPY_PUT_NAN, .smoothing = 0.1f},
    {"NaN, side by side", ALL, DIMS(2, 37, 6), .inject = CROSS_ENTROPY_PUT_NAN, .smoothing = 0.1f},
    {"+inf", ALL, DIMS(2, 3, 130), .inject = CROSS_ENTROPY_PUT_INF},
    {"+inf", BIG, DIMS(2, 3, 4099), .inject = CROSS_ENTROPY_PUT_INF, .smoothing = 0.1f},
    {"+inf, side by side", ALL, DIMS(2, 37, 6), .inject = CROSS_ENTROPY_PUT_INF, .smoothing = 0.1f},
    {"-inf: probability 0", ALL, DIMS(2, 3, 19), .inject = CROSS_ENTROPY_PUT_LESS},
    {"-inf, smoothed: an infinite loss", ALL, DIMS(2, 3, 1031), .inject = CROSS_ENTROPY_PUT_LESS, .smoothing = 0.1f},
    {"-inf, smoothed, side by side", ALL, DIMS(2, 37, 6), .inject = CROSS_ENTROPY_PUT_LESS, .smoothing = 0.1f},
    {"-inf at the label: an infinite loss", ALL, DIMS(2, 5, 150), .inject = CROSS_ENTROPY_PUT_UNLIKELY},
    {"-inf at the label, side by side", ALL, DIMS(2, 37, 6), .inject = CROSS_ENTROPY_PUT_UNLIKELY},
    {"-inf alone: NaN", ALL, DIMS(2, 3, 19), .inject = CROSS_ENTROPY_PUT_EMPTY},
    {"-inf alone: NaN", BIG, DIMS(2, 3, 4099), .inject = CROSS_ENTROPY_PUT_EMPTY, .smoothing = 0.1f},
    {"-inf alone, side by side", ALL, DIMS(2, 37, 6), .inject = CROSS_ENTROPY_PUT_EMPTY},
    {"-inf up to the last", ALL, DIMS(2, 3, 1031), .inject = CROSS_ENTROPY_PUT_LATE},
    {"-inf up to the last, smoothed", BIG, DIMS(2, 3, 2053), .inject = CROSS_ENTROPY_PUT_LATE, .smoothing = 0.1f},
    {"rows that do not count", ALL, DIMS(2, 37, 6), .inject = CROSS_ENTROPY_PUT_UNUSED, .wrong = true},
    {"rows that do not count", ALL, DIMS(2, 13, 150), .inject = CROSS_ENTROPY_PUT_UNUSED, .wrong = true,
     .outputs = CROSS_ENTROPY_LOSS | CROSS_ENTROPY_GRADIENT},
    {"beyond the batch", ALL, DIMS(3, 4, 3, 19), .inject = CROSS_ENTROPY_PUT_UNUSED, .explicit_batch = true,
     .batch = 2},
    {"beyond the batch", BIG, DIMS(3, 4, 3, 259), .inject = CROSS_ENTROPY_PUT_UNUSED, .explicit_batch = true,
     .batch = 1},
    {"no rows", ALL, DIMS(2, 0, 19)},
    {"no rows at enqueue", ALL, DIMS(2, 3, 19), .explicit_batch = true, .batch = 0},
};

/* ---- at random ---- */

#define MOST_RANDOM 20

static cross_entropy_case drawn[MOST_RANDOM];

static void draw(size_t count)
{
    static const clattn_dtype kinds[] = {CLATTN_DTYPE_F32, CLATTN_DTYPE_F16, CLATTN_DTYPE_BF16};
    static const array_form forms[] = {FORM_PLAIN,  FORM_PLAIN,    FORM_PADDED,
                                       FORM_SPREAD, FORM_MIRRORED, FORM_TRANSPOSED};
    random_stream r = random_start(77);

    for (size_t i = 0; i < count; i++) {
        cross_entropy_case c = {.rule = "random", .levels = ALL, .rank = random_int(&r, 2, 4)};
        for (int d = 0; d < c.rank - 1; d++) {
            c.extent[d] = (size_t)random_int(&r, 1, c.rank == 2 ? 40 : 6);
        }
        c.extent[c.rank - 1] = (size_t)(random_int(&r, 0, 1) ? random_int(&r, 1, 40) : random_int(&r, 100, 700));
        c.outputs = (unsigned)random_int(&r, 1, 7);
        c.weights = (c.outputs & CROSS_ENTROPY_GRADIENT) && random_int(&r, 0, 1);
        c.smoothing = random_int(&r, 0, 1) ? random_float(&r, 0, 0.99f) : 0;
        c.scale = random_int(&r, 0, 1) ? random_float(&r, -2, 2) : 0;
        c.wrong = random_int(&r, 0, 1);
        c.pad = random_int(&r, 0, 3) == 0;
        c.spread = random_int(&r, 0, 3) ? 6 : 200;
        c.x = forms[random_int(&r, 0, 5)];
        c.gradient = forms[random_int(&r, 0, 5)];
        c.rows = forms[random_int(&r, 0, 4)];
        c.x_type = kinds[random_int(&r, 0, 2)];
        c.gradient_type = kinds[random_int(&r, 0, 2)];
        c.label_type = random_int(&r, 0, 1) ? CLATTN_DTYPE_I64 : CLATTN_DTYPE_I32;
        c.explicit_batch = random_int(&r, 0, 3) == 0;
        c.batch = (size_t)random_int(&r, 0, (int)c.extent[0]);
        drawn[i] = c;
    }
}

/* ---- the reference, and what holds of all runs ---- */

/* The derivative of the reference's loss by each logit, from two losses. */
static void differences(void **state)
{
    enum { CLASSES = 7 };
    static const double smoothings[] = {0, 0.1, 0.75};
    const double step = 1e-5;
    random_stream r = random_start(5);

    (void)state;
    for (size_t i = 0; i < COUNT_OF(smoothings); i++) {
        for (size_t label = 0; label < CLASSES; label++) {
            double x[CLASSES], gradient[CLASSES], lse;
            for (size_t c = 0; c < CLASSES; c++) {
                x[c] = random_float(&r, -3, 3);
            }
            cross_entropy_loss(CLASSES, x, label, smoothings[i], false, &lse, gradient);
            for (size_t c = 0; c < CLASSES; c++) {
                const double at = x[c];
                x[c] = at + step;
                const double above = cross_entropy_loss(CLASSES, x, label, smoothings[i], false, &lse, NULL);
                x[c] = at - step;
                const double below = cross_entropy_loss(CLASSES, x, label, smoothings[i], false, &lse, NULL);
                x[c] = at;
                assert_true(fabs((above - below) / (2 * step) - gradient[c]) < 1e-9);
            }
        }
    }
}

static const cross_entropy_case steady[] = {
    {"many runs", ALL, DIMS(2, 37, 11), .smoothing = 0.1f, .wrong = true},
    {"many runs", ALL, DIMS(2, 5, 1031), .smoothing = 0.1f, .wrong = true},
};

/* A hundred runs give the same bits, and so do runs of fewer rows for the rows that they have. */
static void same_bits(const void *which, const char *solver)
{
    const cross_entropy_case *t = which;
    test_job job = {0};

    if (cross_entropy_job(&job, t, solver)) {
        job_run(&job, NULL);
        unsigned char *expected = job_snapshot(&job);
        double *rows = array_dense(&job.output[0], 2, t->extent);
        for (size_t i = 0; i < by_level(3, 20, 100, 100); i++) {
            job_poison(&job);
            job_run(&job, NULL);
            unsigned char *got = job_snapshot(&job);
            assert_memory_equal(got, expected, job_bytes(&job));
            free(got);
        }
        free(expected);
        job.args.cross_entropy.explicit_batch = 1;
        for (size_t batch = 1; batch < t->extent[0]; batch += 3) {
            const size_t extent[2] = {batch, t->extent[1]};
            job.args.cross_entropy.batch = batch;
            assert_status(device_context(),
                          clattn_cross_entropy_enqueue(job.plan, NULL, &job.args.cross_entropy, 0, NULL, NULL),
                          CLATTN_SUCCESS);
            array_download(&job.output[0]);
            double *part = array_dense(&job.output[0], 2, extent);
            assert_memory_equal(part, rows, batch * t->extent[1] * sizeof *part);
            free(part);
        }
        free(rows);
    }
    job_release(&job);
}

/* ---- what is refused ---- */

static clattn_cross_entropy_desc good_desc(void)
{
    clattn_cross_entropy_desc desc = CLATTN_CROSS_ENTROPY_DESC_INIT;

    desc.x = desc.gradients.x = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, (size_t[]){2, 3, 6});
    desc.labels = clattn_layout_contiguous(CLATTN_DTYPE_I32, 2, (size_t[]){2, 3});
    desc.row_weights = desc.loss = desc.lse = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (size_t[]){2, 3});
    return desc;
}

#define REFUSED(status, change) OPERATOR_REFUSES_DESC(cross_entropy, status, good_desc(), change)

static void refused_descriptions(void **state)
{
    clattn_cross_entropy_desc good = good_desc(), zeroed = CLATTN_CROSS_ENTROPY_DESC_INIT;
    const clattn_layout none = {0};

    (void)state;
    operator_answers(&cross_entropy_operator, &good, CLATTN_SUCCESS);
    operator_answers(&cross_entropy_operator, NULL, CLATTN_ERROR_INVALID_ARGUMENT);
    operator_answers(&cross_entropy_operator, &zeroed, CLATTN_ERROR_INVALID_LAYOUT);
    REFUSED(INVALID_STRUCT, size = 8);
    REFUSED(INVALID_ARGUMENT, direction = CLATTN_DIRECTION_BACKWARD);
    REFUSED(INVALID_ARGUMENT, explicit_ignored = 2);
    REFUSED(INVALID_ARGUMENT, smoothing = 1);
    REFUSED(INVALID_ARGUMENT, smoothing = -0.1f);
    REFUSED(INVALID_ARGUMENT, smoothing = NAN);
    REFUSED(INVALID_ARGUMENT, reserved = 1);
    REFUSED(INVALID_ARGUMENT, gradients.x = none); /* and there are weights */
    REFUSED(INVALID_ARGUMENT, gradients.x = (desc.row_weights = desc.loss = desc.lse = none)); /* and nothing is left */
    REFUSED(INVALID_LAYOUT, x = none);
    REFUSED(INVALID_LAYOUT, labels = none);
    REFUSED(INVALID_LAYOUT, x.rank = 1);
    REFUSED(INVALID_LAYOUT, x.extent[2] = 5);
    REFUSED(INVALID_LAYOUT, gradients.x.extent[1] = 2);
    REFUSED(INVALID_LAYOUT, gradients.x.stride[1] = 0);
    REFUSED(INVALID_LAYOUT, x.extent[2] = (desc.gradients.x.extent[2] = 0));
    REFUSED(INVALID_LAYOUT, labels.extent[1] = 2);
    REFUSED(INVALID_LAYOUT, labels.rank = 1);
    REFUSED(INVALID_LAYOUT, row_weights.extent[0] = 1);
    REFUSED(INVALID_LAYOUT, loss.extent[1] = 1);
    REFUSED(INVALID_LAYOUT, loss.stride[1] = 0);
    REFUSED(INVALID_LAYOUT, lse.rank = 1);
    REFUSED(UNSUPPORTED, x.dtype = CLATTN_DTYPE_F64);
    REFUSED(UNSUPPORTED, x.dtype = CLATTN_DTYPE_I32);
    REFUSED(UNSUPPORTED, gradients.x.dtype = CLATTN_DTYPE_I8);
    REFUSED(UNSUPPORTED, labels.dtype = CLATTN_DTYPE_F32);
    REFUSED(UNSUPPORTED, labels.dtype = CLATTN_DTYPE_U8);
    REFUSED(UNSUPPORTED, row_weights.dtype = CLATTN_DTYPE_F16);
    REFUSED(UNSUPPORTED, loss.dtype = CLATTN_DTYPE_F16);
    REFUSED(UNSUPPORTED, lse.dtype = CLATTN_DTYPE_BF16);
}

#define REFUSED_ARGS(status, change) OPERATOR_REFUSES_ARGS(cross_entropy, job.plan, status, good, change)

static void refused_arguments(void **state)
{
    static const cross_entropy_case all = {DIMS(2, 3, 6), .outputs = CROSS_ENTROPY_LOSS | CROSS_ENTROPY_GRADIENT,
                                           .weights = true};
    const clattn_binding none = {0};
    test_job job = {0};

    (void)state;
    assert_true(cross_entropy_job(&job, &all, "generic"));
    clattn_cross_entropy_args good = job.args.cross_entropy;
    REFUSED_ARGS(INVALID_STRUCT, size = 8);
    REFUSED_ARGS(INVALID_ARGUMENT, explicit_scale = 2);
    REFUSED_ARGS(INVALID_ARGUMENT, explicit_batch = 2);
    REFUSED_ARGS(INVALID_ARGUMENT, reserved = 1);
    REFUSED_ARGS(INVALID_ARGUMENT, batch = (args.explicit_batch = 1, 4));
    REFUSED_ARGS(INVALID_ARGUMENT, scale = (args.explicit_scale = 1, NAN));
    REFUSED_ARGS(INVALID_ARGUMENT, scale = (args.explicit_scale = 1, INFINITY));
    REFUSED_ARGS(INVALID_ARGUMENT, x = none);
    REFUSED_ARGS(INVALID_ARGUMENT, labels = none);
    REFUSED_ARGS(INVALID_ARGUMENT, row_weights = none);
    REFUSED_ARGS(INVALID_ARGUMENT, loss = none);
    REFUSED_ARGS(INVALID_ARGUMENT, gradients.x = none);
    REFUSED_ARGS(INVALID_ARGUMENT, lse = good.loss);
    REFUSED_ARGS(BUFFER_TOO_SMALL, labels.offset = 1000);
    REFUSED_ARGS(BUFFER_TOO_SMALL, gradients.x.offset = 1000);
    REFUSED_ARGS(BUFFER_ACCESS, gradients.x = good.x); /* the tests' inputs are read-only */
    REFUSED_ARGS(BUFFER_ACCESS, loss = good.row_weights);
    operator_needs_both(&cross_entropy_operator, job.plan, &good);
    job_release(&job);
}

/* In its place gradients.x must be laid out as x is, and loss may not lie in either. */
static void refused_overlaps(void **state)
{
    static const cross_entropy_case place = {DIMS(2, 3, 6), .outputs = CROSS_ENTROPY_LOSS | CROSS_ENTROPY_GRADIENT,
                                             .in_place = true};
    test_job job = {0};

    (void)state;
    assert_true(cross_entropy_job(&job, &place, "generic"));
    clattn_cross_entropy_args good = job.args.cross_entropy;
    REFUSED_ARGS(INVALID_ARGUMENT, gradients.x.offset -= 1);
    REFUSED_ARGS(INVALID_ARGUMENT, loss = good.x);
    job_release(&job);
}

/* prewarm makes the plan that run then uses, and run computes. */
static void one_call(void **state)
{
    clattn_cross_entropy_desc desc = CLATTN_CROSS_ENTROPY_DESC_INIT;
    clattn_cross_entropy_args args = CLATTN_CROSS_ENTROPY_ARGS_INIT;
    test_job job = {0};

    (void)state;
    job_two_elements(&job, 2, 0, 0);
    test_array label = job_array(&job, ROLE_INPUT, CLATTN_DTYPE_I32, 1, (size_t[]){1}, FORM_PLAIN);
    array_set(&label, (size_t[]){0}, 1);
    array_upload(&label);
    array_bind(&job.input[0], &desc.x, &args.x);
    array_bind(&label, &desc.labels, &args.labels);
    array_bind(&job.output[0], &desc.gradients.x, &args.gradients.x);
    operator_runs_prewarmed(&cross_entropy_operator, &desc, &args);
    job_expect_two_elements(&job, 0.5f, -0.5f);
    job_release(&job);
}

int main(int argc, char **argv)
{
    const size_t count = by_level(5, 5, 10, MOST_RANDOM);

    draw(count);
    cross_entropy_add(cases, COUNT_OF(cases));
    cross_entropy_add(drawn, count);
    for (size_t n = 0; n < CROSS_ENTROPY_SOLVERS; n++) {
        for (size_t i = 0; i < COUNT_OF(steady); i++) {
            suite_add_case(same_bits, &steady[i], cross_entropy_solvers[n], "cross_entropy %s: %s, %zu classes",
                           cross_entropy_solvers[n], steady[i].rule, steady[i].extent[1]);
        }
    }
    suite_add(differences, "cross_entropy: the reference's gradient is that of its loss");
    suite_add(refused_descriptions, "cross_entropy: descriptions that are refused");
    suite_add(refused_arguments, "cross_entropy: arguments that are refused");
    suite_add(refused_overlaps, "cross_entropy: arrays that overlap are refused");
    suite_add(one_call, "cross_entropy: prewarm and run");
    return suite_run("cross_entropy", argc, argv);
}
