/* Gradients of matrix products: makes arrays and a plan of a table row, and compares the results with a reference. */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "support/ops/backward/matmul_case.h"
#include "support/verdict.h"

enum { DA, DB, DBIAS, DOPERAND, OUTPUTS }; /* of job.output */

/* ---- the job ---- */

static bool wants(const matmul_backward_case *test, unsigned gradient)
{
    const bool there = gradient == MATMUL_DBIAS ? test->of.bias : gradient == MATMUL_DOPERAND ? test->of.operand : true;
    return there && (!test->gradients || test->gradients & gradient);
}

/* The batch of a gradient: all items share one of an array whose batch has stride 0. */
static size_t shared_batch(size_t batch, array_form form)
{
    return batch && form == FORM_SHARED_FIRST ? 1 : batch;
}

bool matmul_backward_job(test_job *job, const matmul_backward_case *test, const char *solver, uint64_t salt)
{
    const matmul_case *of = &test->of;
    clattn_matmul_desc desc;
    clattn_matmul_args args;
    size_t batch, m;
    const size_t b_batch = shared_batch(matmul_batch_of_b(of), of->b);
    const size_t operand_batch = shared_batch(matmul_batch_of_operand(of), of->operand_form);

    matmul_inputs(job, of, salt, &desc, &args);
    matmul_actual(of, &batch, &m);
    desc.direction = CLATTN_DIRECTION_BACKWARD;
    job->input[MATMUL_C_GRADIENT] = matmul_matrix(job, ROLE_INPUT, of->type.c, of->batch, of->m, of->n, of->c);
    job_fill(&job->input[MATMUL_C_GRADIENT], salt * 8 + MATMUL_C_GRADIENT, -1, 1, false);
    if (wants(test, MATMUL_DA)) {
        const size_t written[3] = {batch, m, of->k};
        job->output[DA] = matmul_matrix(job, ROLE_OUTPUT, test->type.a, of->batch, of->m, of->k, test->form.a);
        array_own(&job->output[DA], written + (of->batch ? 0 : 1));
    }
    if (wants(test, MATMUL_DB)) {
        const size_t written[3] = {b_batch > 1 ? batch : 1, of->k, of->n};
        job->output[DB] = matmul_matrix(job, ROLE_READABLE_OUTPUT, test->type.b, b_batch, of->k, of->n, test->form.b);
        array_own(&job->output[DB], written + (b_batch ? 0 : 1));
    }
    if (wants(test, MATMUL_DBIAS)) {
        job->output[DBIAS] = job_array(job, ROLE_OUTPUT, test->type.bias, 1, &of->n, test->form.bias);
        array_own(&job->output[DBIAS], &of->n);
    }
    if (wants(test, MATMUL_DOPERAND)) {
        const size_t written[3] = {operand_batch > 1 ? batch : 1, m, of->n};
        job->output[DOPERAND] =
            matmul_matrix(job, ROLE_OUTPUT, test->type.operand, operand_batch, of->m, of->n, test->form.operand);
        array_own(&job->output[DOPERAND], written + (operand_batch ? 0 : 1));
    }
    array_bind(&job->input[MATMUL_C_GRADIENT], &desc.gradients.c, &args.gradients.c);
    array_bind(&job->output[DA], &desc.gradients.a, &args.gradients.a);
    array_bind(&job->output[DB], &desc.gradients.b, &args.gradients.b);
    array_bind(&job->output[DBIAS], &desc.gradients.bias, &args.gradients.bias);
    array_bind(&job->output[DOPERAND], &desc.gradients.operand, &args.gradients.operand);
    job->args.matmul = args;
    return job_plan(job, &matmul_operator, &desc, solver, JOB_TAKEN);
}

/* ---- the reference ---- */

static double rounded(double x, bool narrow)
{
    return narrow ? (double)(float)x : x;
}

/* A bound of the second derivative; where the first one jumps see jump_of. */
static double bend_of(clattn_activation function, double alpha)
{
    switch (function) {
    case CLATTN_ACTIVATION_GELU:
    case CLATTN_ACTIVATION_GELU_TANH: return 0.9;
    case CLATTN_ACTIVATION_SWISH: return 0.6 * fabs(alpha);
    default: return 0;
    }
}

/* What the derivative may be off by because the sum, whose terms have that size, may lie on the other side of 0. */
static double jump_of(clattn_activation function, double alpha, double sum, double size)
{
    const double height = function == CLATTN_ACTIVATION_RELU         ? 1
                          : function == CLATTN_ACTIVATION_LEAKY_RELU ? fabs(1 - alpha)
                                                                     : 0;
    return fabs(sum) <= 64 * (double)FLT_EPSILON * size ? height : 0;
}

static void add(double *to, double *magnitude, size_t at, double term, double size, bool narrow)
{
    if (to)
        to[at] = rounded(to[at] + rounded(term, narrow), narrow);
    if (to && magnitude)
        magnitude[at] += size;
}

void reference_matmul_backward(const matmul_backward_reference *r, bool narrow)
{
    const double alpha = r->alpha;
    double *sums = zeros(r->m * r->n), *sizes = zeros(r->m * r->n);

    reference_matmul(r->m, r->n, r->k, r->a, r->b, r->n, 1, r->bias, narrow, sums, sizes);
    for (size_t i = 0; i < r->m; i++)
        for (size_t j = 0; j < r->n; j++) {
            const size_t at = i * r->n + j;
            const double g = r->c_gradient[at], s = sums[at], operand = r->multiply ? r->operand[at] : 1;
            double terms, slope = rounded(reference_activation_slope(r->activation, alpha, s, &terms), narrow);
            const double y = rounded(reference_activation(r->activation, alpha, s), narrow);
            const double of_sum = rounded(rounded(g * operand, narrow) * slope, narrow);
            const double bend = bend_of(r->activation, alpha); /* 0 does not multiply infinities */
            const double off = (bend > 0 ? bend * sizes[at] : 0) +
                               jump_of(r->activation, alpha, s, sizes[at]) / (8 * (double)FLT_EPSILON);
            const double size = fabs(g * operand) * (terms + off);
            const double y_size = reference_steepness(r->activation, alpha) * sizes[at] + fabs(y);
            add(r->bias_gradient, r->bias_magnitude, j, of_sum, size, narrow);
            add(r->operand_gradient, r->operand_magnitude, at, r->multiply ? g * y : g,
                r->multiply ? fabs(g) * y_size : fabs(g), narrow);
            for (size_t k = 0; k < r->k; k++) {
                const double a = r->a[i * r->k + k], b = r->b[k * r->n + j];
                add(r->a_gradient, r->a_magnitude, i * r->k + k, of_sum * b, size * fabs(b), narrow);
                add(r->b_gradient, r->b_magnitude, k * r->n + j, of_sum * a, size * fabs(a), narrow);
            }
        }
    free(sums);
    free(sizes);
}

/* ---- the verdict ---- */

/* A dense copy of an input with one item or all of them; *step is from an item to the next. */
static double *dense(const test_array *array, size_t batch, size_t rows, size_t columns, size_t *step)
{
    const bool shared = !array->memory || array->layout.rank == 2 || array->layout.extent[0] == 1;
    *step = shared ? 0 : rows * columns;
    return array->memory ? array_dense(array, 3, (size_t[]){shared ? 1 : batch, rows, columns}) : NULL;
}

/* From an item of a gradient to the next; 0: they are summed. */
static size_t step_of(const job_result *result)
{
    return result->rank == 3 && result->extent[0] > 1 ? result->extent[1] * result->extent[2] : 0;
}

static double *at_item(double *array, size_t item, const job_result *result)
{
    return array ? array + item * step_of(result) : NULL;
}

static const double *input_at(const double *array, size_t item, size_t step)
{
    return array ? array + item * step : NULL;
}

static void refer(const test_job *job, const void *which, job_result result[JOB_OUTPUTS])
{
    static const char *const names[OUTPUTS] = {"gradients.a", "gradients.b", "gradients.bias", "gradients.operand"};
    const matmul_backward_case *test = which;
    const matmul_case *of = &test->of;
    const bool is_explicit = of->alpha < 0 || of->alpha > 0;
    size_t batch, m, a_step, b_step, operand_step, c_step;

    matmul_actual(of, &batch, &m);
    for (int o = 0; o < OUTPUTS; o++) {
        result[o] = result_of(names[o], &job->output[o]);
        result[o].naive = result[o].name ? zeros(result[o].count) : NULL;
    }
    double *a = dense(&job->input[MATMUL_A], batch, m, of->k, &a_step);
    double *b = dense(&job->input[MATMUL_B], batch, of->k, of->n, &b_step);
    double *operand = dense(&job->input[MATMUL_OPERAND], batch, m, of->n, &operand_step);
    double *gradient = dense(&job->input[MATMUL_C_GRADIENT], batch, m, of->n, &c_step);
    double *bias = of->bias ? array_dense(&job->input[MATMUL_BIAS], 1, &of->n) : NULL;
    for (size_t item = 0; item < batch; item++) {
        matmul_backward_reference r = {
            .m = m,
            .n = of->n,
            .k = of->k,
            .activation = of->activation,
            .alpha = reference_alpha(of->activation, is_explicit, of->alpha),
            .multiply = of->operand == OPERAND_MULTIPLY,
            .a = input_at(a, item, a_step),
            .b = input_at(b, item, b_step),
            .bias = bias,
            .operand = input_at(operand, item, operand_step),
            .c_gradient = input_at(gradient, item, c_step),
            .a_gradient = at_item(result[DA].reference, item, &result[DA]),
            .b_gradient = at_item(result[DB].reference, item, &result[DB]),
            .bias_gradient = result[DBIAS].reference,
            .operand_gradient = at_item(result[DOPERAND].reference, item, &result[DOPERAND]),
            .a_magnitude = at_item(result[DA].magnitude, item, &result[DA]),
            .b_magnitude = at_item(result[DB].magnitude, item, &result[DB]),
            .bias_magnitude = result[DBIAS].magnitude,
            .operand_magnitude = at_item(result[DOPERAND].magnitude, item, &result[DOPERAND]),
        };
        reference_matmul_backward(&r, false);
        r.a_gradient = at_item(result[DA].naive, item, &result[DA]);
        r.b_gradient = at_item(result[DB].naive, item, &result[DB]);
        r.bias_gradient = result[DBIAS].naive;
        r.operand_gradient = at_item(result[DOPERAND].naive, item, &result[DOPERAND]);
        r.a_magnitude = r.b_magnitude = r.bias_magnitude = r.operand_magnitude = NULL;
        reference_matmul_backward(&r, true);
    }
    free(a);
    free(b);
    free(operand);
    free(gradient);
    free(bias);
}

static bool make(test_job *job, const void *test, const char *solver)
{
    return matmul_backward_job(job, test, solver, 1);
}

static bool inject(test_job *job, const void *test)
{
    return matmul_inject_into(job, &((const matmul_backward_case *)test)->of);
}

static void check(const void *test, const char *solver)
{
    static const job_checker checker = {.make = make, .refer = refer, .inject = inject};
    job_check(&checker, test, solver);
}

void matmul_backward_add(const matmul_backward_case *cases, size_t count)
{
    for (int n = 0; n < MATMUL_ALL_SOLVERS; n++)
        for (size_t i = 0; i < count; i++) {
            const matmul_case *t = &cases[i].of;
            const unsigned solvers = t->solvers ? t->solvers : MATMUL_GENERIC | MATMUL_CPU | MATMUL_TILE;
            if ((t->levels & level()) && (solvers >> n & 1))
                suite_add_case(check, &cases[i], matmul_solvers[n], "matmul backward %s: %s, %zu x %zux%zux%zu",
                               matmul_solvers[n], t->rule, t->batch ? t->batch : 1, t->m, t->n, t->k);
        }
}
