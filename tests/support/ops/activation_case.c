/* Activations: from a table row to arrays, a plan, a reference and a verdict. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/ops/activation_case.h"
#include "support/verdict.h"

const char *const activation_solvers[ACTIVATION_SOLVERS] = {"generic", "cpu"};

typedef struct value_filler {
    random_stream stream;
    const activation_case *test;
    size_t next;
} value_filler;

static double any_float(value_filler *f)
{
    clattn_dtype dtype = f->test->x_type ? f->test->x_type : CLATTN_DTYPE_F32;
    uint32_t bits = (uint32_t)random_bits(&f->stream);
    unsigned char element[4];

    memcpy(element, &bits, sizeof element);
    return storage_get(dtype, element);
}

static const double special[] = {
    0,        -0.0, NAN,   INFINITY, -INFINITY, FLT_MAX,   -FLT_MAX,   FLT_TRUE_MIN, -FLT_TRUE_MIN, FLT_MIN,
    -FLT_MIN, 1e-4, -1e-4, 16,       -16,       16.000002, -16.000002, 13,           -13,           14.2,
    -14.2,    87,   -87,   88,       -88,       89,        -89,        103,          -103,          104,
    -104,     200,  -200,  201,      -201,      65504,     -65504,     1e19,         -1e19};

static double fill_value(void *context, const size_t *index)
{
    value_filler *f = context;
    float size;

    (void)index;
    switch (f->test->values) {
    case VALUES_FLOATS: return any_float(f);
    case VALUES_TAILS: size = random_float(&f->stream, 1, 110); return random_int(&f->stream, 0, 3) == 0 ? size : -size;
    case VALUES_SPECIAL: return special[f->next++ % COUNT_OF(special)];
    default: return random_float(&f->stream, -8, 8);
    }
}

/* Gradients of many sizes, and some that are 0 or NaN. */
static double fill_gradient(void *context, const size_t *index)
{
    value_filler *f = context;

    (void)index;
    switch (random_int(&f->stream, 0, 15)) {
    case 0: return 0;
    case 1: return -0.0;
    case 2: return f->test->values == VALUES_SPECIAL ? (double)NAN : 1;
    default: return ldexp((double)random_float(&f->stream, -2, 2), random_int(&f->stream, -8, 8));
    }
}

bool activation_make(test_job *job, const void *which, const char *solver)
{
    const activation_case *test = which;
    clattn_activation_desc desc = CLATTN_ACTIVATION_DESC_INIT;
    clattn_activation_args args = CLATTN_ACTIVATION_ARGS_INIT;
    size_t written[CLATTN_MAX_RANK];
    value_filler filler = {.stream = random_start(3), .test = test};
    test_array *from = &job->input[test->backward];

    job->input[0] = job_array(job, test->in_place && !test->backward ? ROLE_IN_PLACE : ROLE_INPUT, test->x_type,
                              test->rank, test->extent, test->x);
    array_fill(&job->input[0], fill_value, &filler);
    if (test->values == VALUES_SPECIAL)
        assert_true(filler.next >= COUNT_OF(special)); /* the case is long enough for all of them */
    array_upload(&job->input[0]);
    if (test->backward) {
        job->input[1] = job_array(job, test->in_place ? ROLE_IN_PLACE : ROLE_INPUT, test->gradient_type, test->rank,
                                  test->extent, test->gradient);
        array_fill(&job->input[1], fill_gradient, &filler);
        array_upload(&job->input[1]);
    }
    job->output[0] =
        test->in_place ? *from : job_array(job, ROLE_OUTPUT, test->y_type, test->rank, test->extent, test->y);
    memcpy(written, test->extent, sizeof written);
    written[0] = test->explicit_batch ? test->batch : written[0];
    array_own(&job->output[0], written);

    desc.function = test->function;
    desc.explicit_alpha = test->explicit_alpha;
    desc.alpha = test->alpha;
    array_bind(&job->input[0], &desc.x, &args.x);
    if (test->backward) {
        desc.direction = CLATTN_DIRECTION_BACKWARD;
        array_bind(&job->input[1], &desc.gradients.y, &args.gradients.y);
        array_bind(&job->output[0], &desc.gradients.x, &args.gradients.x);
    } else {
        array_bind(&job->output[0], &desc.y, &args.y);
    }
    args.explicit_batch = test->explicit_batch;
    args.batch = test->batch;
    job->args.activation = args;
    return job_plan(job, &activation_operator, &desc, solver, JOB_TAKEN);
}

/* Holds the header's accuracy relative to each element and grants nothing for the errors of a naive computation.
 * Results below 2^-126 may become 0, and numbers of that size in x may count as 0. */
static void refer(const test_job *job, const void *which, job_result *result)
{
    const activation_case *test = which;
    const double alpha = reference_alpha(test->function, test->explicit_alpha, test->alpha);

    *result = result_of(test->backward ? "gradients.x" : "y", &job->output[0]);
    double *x = array_dense(&job->input[0], test->rank, result->extent);
    double *gradient = test->backward ? array_dense(&job->input[1], test->rank, result->extent) : NULL;
    for (size_t i = 0; i < result->count; i++) {
        double y = reference_activation(test->function, alpha, x[i]), magnitude = fabs(y), factor = 1;
        if (gradient) {
            y = reference_activation_slope(test->function, alpha, x[i], &magnitude) * gradient[i];
            factor = fmax(1, fabs(gradient[i]));
            magnitude *= fabs(gradient[i]);
        }
        double stored = storage_round(CLATTN_DTYPE_F32, y);
        result->magnitude[i] = magnitude + factor * (double)FLT_MIN / (8 * (double)FLT_EPSILON);
        result->reference[i] = isinf(stored) ? stored : y;
    }
    free(gradient);
    free(x);
}

static void check(const void *test, const char *solver)
{
    static const job_checker checker = {.make = activation_make, .refer = refer};
    job_check(&checker, test, solver);
}

static const char *name_of(clattn_activation function)
{
    switch (function) {
    case CLATTN_ACTIVATION_RELU: return "ReLU";
    case CLATTN_ACTIVATION_GELU: return "GELU";
    case CLATTN_ACTIVATION_GELU_TANH: return "GELU tanh";
    case CLATTN_ACTIVATION_SWISH: return "Swish";
    case CLATTN_ACTIVATION_LEAKY_RELU: return "LeakyReLU";
    default: return "unnamed";
    }
}

void activation_add(const activation_case *cases, size_t count)
{
    for (size_t n = 0; n < ACTIVATION_SOLVERS; n++) {
        for (size_t i = 0; i < count; i++) {
            const activation_case *t = &cases[i];

            if (t->levels & level()) {
                suite_add_case(check, t, activation_solvers[n], "activation %s%s: %s, %s, alpha %g, rank %d, last %zu",
                               activation_solvers[n], t->backward ? " backward" : "", name_of(t->function), t->rule,
                               reference_alpha(t->function, t->explicit_alpha, t->alpha), t->rank,
                               t->extent[t->rank - 1]);
            }
        }
    }
}
