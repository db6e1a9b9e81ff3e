/* Every solver computes the gradients of activation functions at all kinds of floats, storage types, ranks and strides,
 * also in place.
 *
 * Holds: what clattn/activation.h says about the accuracy of CLATTN_DIRECTION_BACKWARD, about NaN, infinities and
 * bends; results that are the same in every bit from run to run and whatever the batch; guard bands; what is refused.
 * The tests' own derivatives are held to differences of the tests' own functions. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/ops/activation_case.h"
#include "support/operator.h"

#define DIMS(n, ...) .backward = true, .rank = (n), .extent = {__VA_ARGS__}
#define NONE CLATTN_ACTIVATION_NONE
#define RELU CLATTN_ACTIVATION_RELU
#define GELU CLATTN_ACTIVATION_GELU
#define GELU_TANH CLATTN_ACTIVATION_GELU_TANH
#define SWISH CLATTN_ACTIVATION_SWISH
#define LEAKY CLATTN_ACTIVATION_LEAKY_RELU
#define ALPHA(a) .explicit_alpha = true, .alpha = (a)
#define F16 CLATTN_DTYPE_F16
#define BF16 CLATTN_DTYPE_BF16

#define EACH_FUNCTION(at, ...) \
    {__VA_ARGS__, .levels = (at), .function = RELU}, {__VA_ARGS__, .levels = (at), .function = GELU}, \
        {__VA_ARGS__, .levels = (at), .function = GELU_TANH}, {__VA_ARGS__, .levels = (at), .function = SWISH}, \
        {__VA_ARGS__, .levels = (at), .function = SWISH, ALPHA(1.702f)}, \
        {__VA_ARGS__, .levels = (at), .function = LEAKY}, \
        {__VA_ARGS__, .levels = (at), .function = LEAKY, ALPHA(-2.7f)}, \
    { \
        __VA_ARGS__, .levels = (at), .function = SWISH, ALPHA(-0.3f) \
    }

static const activation_case values[] = {
    {"a copy, infinities and NaN in x too", ALL, NONE, DIMS(1, 39), .values = VALUES_SPECIAL},
    EACH_FUNCTION(ALL, .rule = "uniform", DIMS(1, 61)),
    EACH_FUNCTION(BIG, .rule = "uniform", DIMS(1, 20011)),
    EACH_FUNCTION(BIG, .rule = "all floats", DIMS(2, 3, 5003), .values = VALUES_FLOATS),
    EACH_FUNCTION(ALL, .rule = "tails", DIMS(1, 61), .values = VALUES_TAILS),
    EACH_FUNCTION(BIG, .rule = "tails", DIMS(1, 20011), .values = VALUES_TAILS),
    EACH_FUNCTION(ALL, .rule = "special", DIMS(1, 39), .values = VALUES_SPECIAL),
    EACH_FUNCTION(BIG, .rule = "special", DIMS(1, 640), .values = VALUES_SPECIAL),
    {"special", ALL, SWISH, ALPHA(0), DIMS(1, 39), .values = VALUES_SPECIAL},
    {"special", ALL, LEAKY, ALPHA(0), DIMS(1, 39), .values = VALUES_SPECIAL},
    {"all floats", BIG, SWISH, ALPHA(1e-38f), DIMS(1, 5003), .values = VALUES_FLOATS},
    {"all floats", BIG, SWISH, ALPHA(3e38f), DIMS(1, 5003), .values = VALUES_FLOATS},
};

static const activation_case shapes[] = {
    {"one element", ALL, GELU, DIMS(1, 1)},
    {"a vector - 1", ALL, GELU, DIMS(1, 15)},
    {"a vector", ALL, GELU, DIMS(1, 16)},
    {"a vector + 1", ALL, GELU, DIMS(1, 17)},
    {"pieces", BIG, GELU, DIMS(2, 3, 40009)},
    {"short rows", BIG, GELU, DIMS(2, 10007, 3), .x = FORM_PADDED},
    {"many", FULL, GELU, DIMS(1, 1000003)},
    {"ranks", ALL, GELU, DIMS(5, 2, 3, 2, 3, 7)},
    {"nothing", ALL, GELU, DIMS(2, 0, 7)},
    {"nothing", ALL, GELU, DIMS(2, 7, 0)},
    {"nothing at enqueue", ALL, GELU, DIMS(2, 3, 7), .explicit_batch = true, .batch = 0},
    {"beyond the batch", ALL, GELU, DIMS(2, 4, 19), .explicit_batch = true, .batch = 2},
    {"beyond the batch, columns outermost", ALL, GELU, DIMS(2, 19, 5), .explicit_batch = true, .batch = 7,
     .x = FORM_TRANSPOSED, .y = FORM_TRANSPOSED, .gradient = FORM_TRANSPOSED},
};

static const activation_case forms[] = {
    {"heads inside x", ALL, SWISH, DIMS(4, 2, 3, 5, 7), .x = FORM_BSHD},
    {"heads inside the gradient of y", ALL, SWISH, DIMS(4, 2, 3, 5, 7), .gradient = FORM_BSHD},
    {"gaps", ALL, SWISH, DIMS(3, 2, 3, 19), .x = FORM_PADDED, .y = FORM_PADDED, .gradient = FORM_PADDED},
    {"columns apart", ALL, SWISH, DIMS(3, 2, 3, 19), .x = FORM_SPREAD, .y = FORM_SPREAD, .gradient = FORM_SPREAD},
    {"columns of the gradient of y apart", ALL, SWISH, DIMS(3, 2, 3, 19), .gradient = FORM_SPREAD},
    {"backwards", ALL, SWISH, DIMS(2, 5, 19), .x = FORM_MIRRORED, .y = FORM_MIRRORED, .gradient = FORM_FLIPPED},
    {"transposed", ALL, SWISH, DIMS(2, 67, 19), .x = FORM_TRANSPOSED},
    {"one row of gradients for all", ALL, SWISH, DIMS(3, 2, 3, 19), .gradient = FORM_SHARED_ROWS},
    {"one item of x for all", ALL, SWISH, DIMS(3, 2, 3, 19), .x = FORM_SHARED_FIRST},
    {"in place", ALL, SWISH, DIMS(2, 5, 19), .in_place = true},
    {"in place", BIG, SWISH, DIMS(2, 5, 40009), .in_place = true},
    {"in place, strided", ALL, SWISH, DIMS(3, 2, 5, 19), .gradient = FORM_SPREAD, .in_place = true},
};

static const activation_case types[] = {
    {"float16", ALL, GELU, DIMS(1, 61), .x_type = F16, .y_type = F16, .gradient_type = F16},
    {"float16", BIG, GELU, DIMS(1, 40009), .x_type = F16, .y_type = F16, .gradient_type = F16, .values = VALUES_FLOATS},
    {"bfloat16", ALL, SWISH, DIMS(1, 61), .x_type = BF16, .y_type = BF16, .gradient_type = BF16},
    {"bfloat16", BIG, SWISH, DIMS(1, 40009), .x_type = BF16, .y_type = BF16, .gradient_type = BF16,
     .values = VALUES_FLOATS},
    {"bfloat16, gradients float32", BIG, SWISH, DIMS(1, 1009), .x_type = BF16},
    {"gradient of y float16, of x bfloat16", BIG, GELU_TANH, DIMS(2, 7, 131), .gradient_type = F16, .y_type = BF16},
};

/* The tests' derivatives are the slopes of the tests' functions, by Richardson's extrapolation of central differences. */
static void references_agree(void **state)
{
    static const clattn_activation functions[] = {NONE, RELU, GELU, GELU_TANH, SWISH, LEAKY};
    random_stream stream = random_start(11);

    (void)state;
    for (size_t f = 0; f < COUNT_OF(functions); f++)
        for (int i = 0; i < 500; i++) {
            const double alpha = (double)random_float(&stream, -3, 3), x = (double)random_float(&stream, -12, 12);
            const double h = fmin(1e-3, fabs(x) / 2);
            double difference[2], magnitude;
            for (int n = 0; n < 2; n++) {
                const double step = h / (1 + n);
                difference[n] = (reference_activation(functions[f], alpha, x + step) -
                                 reference_activation(functions[f], alpha, x - step)) /
                                (2 * step);
            }
            const double slope = reference_activation_slope(functions[f], alpha, x, &magnitude);
            const double expected = (4 * difference[1] - difference[0]) / 3;
            assert_true(fabs(slope - expected) <= 1e-9 + 1e-16 * fabs(x) / h);
            assert_true(magnitude >= fabs(slope) * (1 - 1e-12));
        }
}

/* Runs a case by each solver; `judge` has the job and what it gave. */
static void by_each_solver(const activation_case *test, void (*judge)(test_job *job, const unsigned char *given))
{
    for (size_t n = 0; n < ACTIVATION_SOLVERS; n++) {
        test_job job = {0};
        assert_true(activation_make(&job, test, activation_solvers[n]));
        job_run(&job, NULL);
        unsigned char *given = job_snapshot(&job);
        judge(&job, given);
        free(given);
        job_release(&job);
    }
}

static void same_bits(void **state)
{
    static const activation_case test = {"repeated", ALL, GELU, DIMS(2, 5, 1009), .values = VALUES_TAILS};
    (void)state;
    by_each_solver(&test, job_repeat);
}

/* The first items of a batch are the same without the others. */
static void alone(test_job *job, const unsigned char *given)
{
    enum { BATCH = 5, COLUMNS = 1009 };
    float *whole = malloc(sizeof(float) * BATCH * COLUMNS), *part = malloc(sizeof(float) * BATCH * COLUMNS);

    (void)given;
    assert_non_null(whole);
    assert_non_null(part);
    job_copy_output(job, whole);
    job->args.activation.explicit_batch = 1;
    for (size_t batch = 1; batch < BATCH; batch++) {
        job->args.activation.batch = batch;
        array_own(&job->output[0], (size_t[]){batch, COLUMNS});
        job_poison(job);
        job_run(job, NULL);
        job_copy_output(job, part);
        assert_memory_equal(part, whole, sizeof(float) * batch * COLUMNS);
    }
    free(whole);
    free(part);
}

static void any_batch(void **state)
{
    static const activation_case test = {"batches", ALL, GELU_TANH, DIMS(2, 5, 1009), .values = VALUES_TAILS};
    (void)state;
    by_each_solver(&test, alone);
}

/* Infinite gradients are multiplied, and bends have the slope of their left side. */
static void products_and_bends(void **state)
{
    static const struct {
        clattn_activation function;
        float alpha, x, gradient, expected;
    } pairs[] = {
        {RELU, 1, -1, INFINITY, NAN},
        {RELU, 1, 1, -INFINITY, -INFINITY},
        {RELU, 1, 0, 3, 0},
        {RELU, 1, -0.0f, 3, 0},
        {RELU, 1, INFINITY, 3, 3},
        {RELU, 1, NAN, 3, NAN},
        {LEAKY, 0.5f, 0, 3, 1.5f},
        {LEAKY, 0.5f, -INFINITY, 3, 1.5f},
        {LEAKY, 0.5f, -1, INFINITY, INFINITY},
        {GELU, 1, INFINITY, 3, 3},
        {GELU, 1, -INFINITY, 3, 0},
        {GELU, 1, -INFINITY, INFINITY, NAN},
        {GELU, 1, 0, 3, 1.5f},
        {GELU, 1, -3, INFINITY, -INFINITY},
        {GELU_TANH, 1, INFINITY, 3, 3},
        {GELU_TANH, 1, -INFINITY, 3, 0},
        {GELU_TANH, 1, NAN, 3, NAN},
        {SWISH, 1, INFINITY, 3, 3},
        {SWISH, 1, -INFINITY, INFINITY, NAN},
        {SWISH, 1, 1, INFINITY, INFINITY},
        {SWISH, 0, INFINITY, 3, 1.5f},
        {SWISH, -2, -INFINITY, 3, 3},
        {NONE, 1, NAN, INFINITY, INFINITY},
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(pairs); i++) {
        clattn_activation_desc desc = CLATTN_ACTIVATION_DESC_INIT;
        clattn_activation_args args = CLATTN_ACTIVATION_ARGS_INIT;
        test_job job = {0};
        float found;
        const test_array x = job_floats(&job, 1, (size_t[]){1}, &pairs[i].x);
        const test_array gradient = job_floats(&job, 1, (size_t[]){1}, &pairs[i].gradient);
        desc.direction = CLATTN_DIRECTION_BACKWARD;
        desc.function = pairs[i].function;
        desc.explicit_alpha = 1;
        desc.alpha = pairs[i].alpha;
        array_bind(&x, &desc.x, &args.x);
        array_bind(&gradient, &desc.gradients.y, &args.gradients.y);
        array_bind(job_output(&job, 1, (size_t[]){1}), &desc.gradients.x, &args.gradients.x);
        job.args.activation = args;
        job_run_once(&job, &activation_operator, &desc);
        job_copy_output(&job, &found);
        assert_true(isnan(pairs[i].expected) ? isnan(found) : found == pairs[i].expected);
        job_release(&job);
    }
}

static clattn_activation_desc good_desc(void)
{
    clattn_activation_desc desc = CLATTN_ACTIVATION_DESC_INIT;

    desc.direction = CLATTN_DIRECTION_BACKWARD;
    desc.function = SWISH;
    desc.x = desc.gradients.x = desc.gradients.y = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (size_t[]){3, 5});
    return desc;
}

#define REFUSED(status, change) OPERATOR_REFUSES_DESC(activation, status, good_desc(), change)

static void refused_descriptions(void **state)
{
    clattn_activation_desc good = good_desc(), forward = good_desc();

    (void)state;
    operator_answers(&activation_operator, &good, CLATTN_SUCCESS);
    REFUSED(INVALID_ARGUMENT, direction = 2);
    REFUSED(INVALID_ARGUMENT, y = good.x);
    REFUSED(INVALID_ARGUMENT, function = -1);
    REFUSED(INVALID_LAYOUT, x = (clattn_layout){0});
    REFUSED(INVALID_LAYOUT, gradients.x = (clattn_layout){0});
    REFUSED(INVALID_LAYOUT, gradients.y = (clattn_layout){0});
    REFUSED(INVALID_LAYOUT, gradients.x.extent[1] = 4);
    REFUSED(INVALID_LAYOUT, gradients.y.extent[1] = 4);
    REFUSED(INVALID_LAYOUT, gradients.y.rank = 1);
    REFUSED(INVALID_LAYOUT, gradients.x.stride[0] = 0);
    REFUSED(UNSUPPORTED, x.dtype = CLATTN_DTYPE_F64);
    REFUSED(UNSUPPORTED, gradients.x.dtype = CLATTN_DTYPE_F64);
    REFUSED(UNSUPPORTED, gradients.y.dtype = CLATTN_DTYPE_I8);
    forward.direction = CLATTN_DIRECTION_FORWARD;
    forward.y = good.x;
    operator_answers(&activation_operator, &forward, CLATTN_ERROR_INVALID_ARGUMENT);
    forward.gradients.x = (clattn_layout){0};
    operator_answers(&activation_operator, &forward, CLATTN_ERROR_INVALID_ARGUMENT);
    forward.gradients.y = (clattn_layout){0};
    operator_answers(&activation_operator, &forward, CLATTN_SUCCESS);
}

#define REFUSED_ARGS(status, change) OPERATOR_REFUSES_ARGS(activation, job.plan, status, good, change)

static void refused_arguments(void **state)
{
    clattn_activation_desc desc = CLATTN_ACTIVATION_DESC_INIT;
    clattn_activation_args good = CLATTN_ACTIVATION_ARGS_INIT;
    test_job job = {0};

    (void)state;
    test_array x = job_array(&job, ROLE_INPUT, CLATTN_DTYPE_F32, 2, (size_t[]){3, 19}, FORM_PLAIN);
    test_array gradient = job_array(&job, ROLE_INPUT, CLATTN_DTYPE_F32, 2, (size_t[]){3, 19}, FORM_PLAIN);
    desc.direction = CLATTN_DIRECTION_BACKWARD;
    array_bind(&x, &desc.x, &good.x);
    array_bind(&gradient, &desc.gradients.y, &good.gradients.y);
    array_bind(job_output(&job, 2, (size_t[]){3, 19}), &desc.gradients.x, &good.gradients.x);
    job.plan = operator_plan(&activation_operator, &desc, NULL);
    REFUSED_ARGS(INVALID_STRUCT, size = 8);
    REFUSED_ARGS(INVALID_ARGUMENT, explicit_batch = 2);
    REFUSED_ARGS(INVALID_ARGUMENT, batch = (args.explicit_batch = 1, 4));
    REFUSED_ARGS(INVALID_ARGUMENT, x.buffer = NULL);
    REFUSED_ARGS(INVALID_ARGUMENT, gradients.x.buffer = NULL);
    REFUSED_ARGS(INVALID_ARGUMENT, gradients.y.buffer = NULL);
    REFUSED_ARGS(INVALID_ARGUMENT, y = good.x);
    REFUSED_ARGS(BUFFER_TOO_SMALL, gradients.x.offset = 100);
    REFUSED_ARGS(BUFFER_ACCESS, gradients.x = good.x);
    operator_needs_both(&activation_operator, job.plan, &good);
    clattn_plan_release(&job.plan);
    desc.direction = CLATTN_DIRECTION_FORWARD; /* of which no gradient is bound */
    desc.y = desc.gradients.x;
    desc.gradients.x = desc.gradients.y = (clattn_layout){0};
    good.y = good.gradients.x;
    good.gradients.x = (clattn_binding){0};
    job.plan = operator_plan(&activation_operator, &desc, NULL);
    REFUSED_ARGS(INVALID_ARGUMENT, batch = 0);
    job_release(&job);
}

int main(int argc, char **argv)
{
    suite_add(references_agree, "activation backward: the reference is the slope of forward's");
    activation_add(values, COUNT_OF(values));
    activation_add(shapes, COUNT_OF(shapes));
    activation_add(forms, COUNT_OF(forms));
    activation_add(types, COUNT_OF(types));
    suite_add(same_bits, "activation backward: the same bits in every run");
    suite_add(any_batch, "activation backward: the same bits in every batch");
    suite_add(products_and_bends, "activation backward: products with infinities, and bends");
    suite_add(refused_descriptions, "activation backward: descriptions that are refused");
    suite_add(refused_arguments, "activation backward: arguments that are refused");
    return suite_run("activation_backward", argc, argv);
}
