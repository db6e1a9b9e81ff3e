/* The optimizer: makes arrays and a plan of a table row, and compares the result with a reference. */
#include <math.h>

#include "support/ops/backward/optimizer_case.h"
#include "support/verdict.h"

/* ---- steps of Adam ---- */

enum { GRADIENT, SQUARES, BEFORE };                      /* of job.input; behind it what the first three outputs held */
enum { PARAMETER, FIRST_MOMENT, SECOND_MOMENT, STORED }; /* of job.output */

static bool make_step(test_job *job, const void *which, const char *solver)
{
    const adam_case *test = which;
    clattn_adam_desc desc = CLATTN_ADAM_DESC_INIT;
    clattn_adam_args args = CLATTN_ADAM_ARGS_INIT;
    const size_t one = 1, *count = &test->count;
    const bool broken = test->squares && !isfinite(test->sum);

    job->input[GRADIENT] = job_array(job, ROLE_INPUT, test->gradient, 1, count, FORM_PLAIN);
    job_fill(&job->input[GRADIENT], 1, -2, 2, false);
    for (size_t i = 0; i < 3 && test->special && i < test->count; i++)
        array_set(&job->input[GRADIENT], &(size_t){i * (test->count - 1) / 2},
                  (const double[]){NAN, INFINITY, -INFINITY}[i]);
    array_upload(&job->input[GRADIENT]);
    for (int n = PARAMETER; n <= SECOND_MOMENT; n++) {
        job->input[BEFORE + n] = job_array(job, ROLE_INPUT, CLATTN_DTYPE_F32, 1, count, FORM_PLAIN);
        job->output[n] = job_array(job, ROLE_IN_PLACE, CLATTN_DTYPE_F32, 1, count, FORM_PLAIN);
        job_fill(&job->input[BEFORE + n], 2 + (uint64_t)n, n == SECOND_MOMENT ? 0 : -1, 1, false);
        job_fill(&job->output[n], 2 + (uint64_t)n, n == SECOND_MOMENT ? 0 : -1, 1, false);
        array_own(&job->output[n], count);
    }
    if (test->squares) {
        job->input[SQUARES] = job_array(job, ROLE_INPUT, CLATTN_DTYPE_F32, 1, &one, FORM_PLAIN);
        array_set(&job->input[SQUARES], &(size_t){0}, (double)test->sum);
        array_upload(&job->input[SQUARES]);
    }
    if (test->stored) {
        job->output[STORED] = job_array(job, ROLE_OUTPUT, test->stored, 1, count, FORM_PLAIN);
        if (!broken)
            array_own(&job->output[STORED], count);
    }
    array_bind(&job->input[GRADIENT], &desc.gradient, &args.gradient);
    array_bind(&job->input[SQUARES], &desc.squares, &args.squares);
    array_bind(&job->output[PARAMETER], &desc.parameter, &args.parameter);
    array_bind(&job->output[FIRST_MOMENT], &desc.first_moment, &args.first_moment);
    array_bind(&job->output[SECOND_MOMENT], &desc.second_moment, &args.second_moment);
    array_bind(&job->output[STORED], &desc.stored, &args.stored);
    args.learning_rate = test->learning_rate;
    args.beta1 = test->beta1;
    args.beta2 = test->beta2;
    args.epsilon = test->epsilon;
    args.weight_decay = test->weight_decay;
    args.gradient_scale = test->gradient_scale;
    args.clip_norm = test->clip_norm;
    args.step = test->step ? test->step : 1;
    args.explicit_betas = test->explicit_betas;
    args.explicit_epsilon = test->explicit_epsilon;
    args.decoupled = test->decoupled;
    job->args.adam = args;
    return job_plan(job, &adam_operator, &desc, solver, JOB_TAKEN);
}

/* The formula of clattn/optimizer.h for one element, in double precision or, if `narrow`, with each result rounded to float. */
static void step_element(const adam_case *t, double gradient, double value[3], double magnitude[3], bool narrow)
{
#define ROUND(x) (narrow ? (double)(float)(x) : (x))
    const double beta1 = t->explicit_betas ? t->beta1 : 0.9, beta2 = t->explicit_betas ? t->beta2 : 0.999;
    const double epsilon = t->explicit_epsilon ? t->epsilon : 1e-8, step = t->step ? (double)t->step : 1;
    double scale = t->gradient_scale != 0 ? t->gradient_scale : 1;
    const double norm = fabs(scale) * sqrt((double)t->sum);
    if (t->clip_norm > 0)
        scale *= fmin(1, t->clip_norm / (norm + 1e-6));

    double p = value[PARAMETER], m = value[FIRST_MOMENT], v = value[SECOND_MOMENT], g = ROUND(gradient * scale);
    double size = fabs(g);
    if (t->decoupled)
        p = ROUND(p * ROUND(1 - t->learning_rate * t->weight_decay));
    else if (t->weight_decay > 0) {
        size += t->weight_decay * fabs(p);
        g = ROUND(g + ROUND(t->weight_decay * p));
    }
    magnitude[FIRST_MOMENT] = beta1 * fabs(m) + (1 - beta1) * size;
    m = ROUND(ROUND(beta1 * m) + ROUND((1 - beta1) * g));
    v = ROUND(ROUND(beta2 * v) + ROUND(ROUND((1 - beta2) * g) * g));
    magnitude[SECOND_MOMENT] = fabs(v) + (1 - beta2) * size * size;
    const double root = ROUND(ROUND(sqrt(v)) / ROUND(sqrt(1 - pow(beta2, step))));
    const double denom = ROUND(root + epsilon), rate = t->learning_rate / (1 - pow(beta1, step));
    magnitude[PARAMETER] = fabs(p) + rate * magnitude[FIRST_MOMENT] / denom;
    value[PARAMETER] = ROUND(p - ROUND(ROUND(ROUND(rate) * m) / denom));
    value[FIRST_MOMENT] = m;
    value[SECOND_MOMENT] = v;
}

static void refer_step(const test_job *job, const void *which, job_result *result)
{
    static const char *const names[] = {"parameter", "first_moment", "second_moment"};
    const adam_case *test = which;
    const bool broken = test->squares && !isfinite(test->sum);
    for (int n = PARAMETER; n <= SECOND_MOMENT; n++) {
        result[n] = result_of(names[n], &job->output[n]);
        result[n].naive = zeros(test->count);
        result[n].exact = broken;
    }
    if (test->stored && !broken) {
        result[STORED] = result_of("stored", &job->output[STORED]);
        result[STORED].naive = zeros(test->count);
    }
    for (size_t i = 0; i < test->count; i++) {
        const double gradient = array_get(&job->input[GRADIENT], &i);
        double exact[3], naive[3], magnitude[3] = {0}, unused[3];
        for (int n = 0; n < 3; n++)
            exact[n] = naive[n] = array_get(&job->input[BEFORE + n], &i);
        if (!broken) {
            step_element(test, gradient, exact, magnitude, false);
            step_element(test, gradient, naive, unused, true);
        }
        for (int n = PARAMETER; n <= STORED; n++) {
            if (!result[n].name)
                continue;
            result[n].reference[i] = exact[n % STORED];
            result[n].naive[i] = naive[n % STORED];
            result[n].magnitude[i] = magnitude[n % STORED];
        }
    }
}

static void check_step(const void *test, const char *solver)
{
    static const job_checker checker = {.make = make_step, .refer = refer_step};
    job_check(&checker, test, solver);
}

void adam_add(const adam_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (cases[i].levels & level())
            suite_add_case(check_step, &cases[i], "generic", "adam: %s, %zu", cases[i].rule, cases[i].count);
}

/* ---- sums of squares ---- */

static bool make_sum(test_job *job, const void *which, const char *solver)
{
    const square_sum_case *test = which;
    clattn_square_sum_desc desc = CLATTN_SQUARE_SUM_DESC_INIT;
    clattn_square_sum_args args = CLATTN_SQUARE_SUM_ARGS_INIT;
    const bool plain = test->low == 0 && test->high == 0;
    const size_t one = 1;

    job->input[0] = job_array(job, ROLE_INPUT, test->type, 1, &test->count, FORM_PLAIN);
    job_fill(&job->input[0], 1, plain ? -1 : test->low, plain ? 1 : test->high, false);
    if (test->special != 0) {
        array_set(&job->input[0], &(size_t){test->count - 1}, (double)test->special);
        array_upload(&job->input[0]);
    }
    job->output[0] =
        job_array(job, test->accumulate ? ROLE_IN_PLACE : ROLE_OUTPUT, CLATTN_DTYPE_F32, 1, &one, FORM_PLAIN);
    if (test->accumulate)
        job_fill(&job->output[0], 2, 100, 101, false);
    job->input[1] = job_array(job, ROLE_INPUT, CLATTN_DTYPE_F32, 1, &one, FORM_PLAIN);
    job_fill(&job->input[1], 2, 100, 101, false);
    array_own(&job->output[0], &one);
    array_bind(&job->input[0], &desc.x, &args.x);
    array_bind(&job->output[0], &desc.result, &args.result);
    args.accumulate = test->accumulate;
    job->args.square_sum = args;
    return job_plan(job, &square_sum_operator, &desc, solver, JOB_TAKEN);
}

static void refer_sum(const test_job *job, const void *which, job_result *result)
{
    const square_sum_case *test = which;
    result[0] = result_of("result", &job->output[0]);
    double sum = test->accumulate ? array_get(&job->input[1], &(size_t){0}) : 0;
    for (size_t i = 0; i < test->count; i++) {
        const double x = array_get(&job->input[0], &i);
        sum += x * x;
    }
    result[0].reference[0] = result[0].magnitude[0] = sum;
}

static void check_sum(const void *test, const char *solver)
{
    static const job_checker checker = {.make = make_sum, .refer = refer_sum};
    job_check(&checker, test, solver);
}

void square_sum_add(const square_sum_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (cases[i].levels & level())
            suite_add_case(check_sum, &cases[i], "generic", "square_sum: %s, %zu", cases[i].rule, cases[i].count);
}
