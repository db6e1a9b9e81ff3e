/* Normalisation problems and their gradients: makes arrays and a plan of a table row, and compares the result with a reference. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/ops/norm_case.h"
#include "support/verdict.h"

const char *const norm_solvers[NORM_SOLVERS] = {"generic", "cpu", "tile"};

enum { X, SCALE, BIAS, RESIDUAL, DY, DSUM }; /* of job.input */
enum { Y, MEAN, INVERSE, SUM, OUTPUTS };     /* of job.output */
enum { DX, DSCALE, DBIAS };                  /* of job.output, backward */

static int axes_of(const norm_case *test)
{
    return test->axes ? test->axes : 1;
}

static void make_factor(test_job *job, int which, const norm_factor *factor, uint64_t salt)
{
    if (factor->rank) {
        job->input[which] = job_array(job, ROLE_INPUT, factor->dtype, factor->rank, factor->extent, factor->form);
        job_fill(&job->input[which], salt, which == SCALE ? 0.5f : -1, which == SCALE ? 1.5f : 1, false);
    }
}

static void make_statistic(test_job *job, const norm_case *test, int which, const size_t *written)
{
    size_t extent[CLATTN_MAX_RANK], actual[CLATTN_MAX_RANK];

    for (int d = 0; d < test->rank; d++) {
        bool reduced = d >= test->rank - axes_of(test);
        extent[d] = reduced ? 1 : test->extent[d];
        actual[d] = reduced ? 1 : written[d];
    }
    job->output[which] =
        job_array(job, ROLE_OUTPUT, CLATTN_DTYPE_F32, test->rank, extent, which == MEAN ? FORM_PLAIN : test->y);
    array_own(&job->output[which], actual);
}

/* An output as the gradient of a factor; the first elements belong to the actual batch. */
static void make_gradient(test_job *job, const norm_case *test, int which, const norm_factor *like, array_form form,
                          clattn_dtype dtype)
{
    size_t actual[CLATTN_MAX_RANK];

    memcpy(actual, like->extent, sizeof actual);
    if (test->explicit_batch && like->rank == test->rank && actual[0] != 1)
        actual[0] = test->batch;
    job->output[which] = job_array(job, ROLE_OUTPUT, dtype, like->rank, like->extent, form);
    array_own(&job->output[which], actual);
}

static bool make_backward(test_job *job, const norm_case *test, const char *solver)
{
    clattn_norm_desc desc = CLATTN_NORM_DESC_INIT;
    clattn_norm_args args = CLATTN_NORM_ARGS_INIT;
    const float spread = test->spread > 0 ? test->spread : 4;
    const norm_factor *r = &test->residual;
    size_t written[CLATTN_MAX_RANK];

    job->input[X] = job_array(job, ROLE_INPUT, test->x_type, test->rank, test->extent, test->x);
    job_fill(&job->input[X], 1, test->offset - spread, test->offset + spread, false);
    job->input[DY] =
        job_array(job, test->in_place ? ROLE_IN_PLACE : ROLE_INPUT, test->dy_type, test->rank, test->extent, test->dy);
    job_fill(&job->input[DY], 5, -2, 2, false);
    make_factor(job, SCALE, &test->scale, 2);
    if (r->rank) {
        job->input[RESIDUAL] = job_array(job, ROLE_INPUT, r->dtype, r->rank, r->extent, r->form);
        job_fill(&job->input[RESIDUAL], 4, -spread, spread, false);
    }
    if (test->sum) {
        job->input[DSUM] = job_array(job, test->sum_in_place ? ROLE_IN_PLACE : ROLE_INPUT, test->sum_type, test->rank,
                                     test->extent, test->sum_form);
        job_fill(&job->input[DSUM], 6, -2, 2, false);
    }
    if (test->gradients & NORM_DX) {
        memcpy(written, test->extent, sizeof written);
        written[0] = test->explicit_batch ? test->batch : written[0];
        job->output[DX] = test->in_place ? job->input[DY]
                          : test->sum_in_place
                              ? job->input[DSUM]
                              : job_array(job, ROLE_OUTPUT, test->y_type, test->rank, test->extent, test->y);
        array_own(&job->output[DX], written);
    }
    if (test->gradients & NORM_DSCALE)
        make_gradient(job, test, DSCALE, &test->scale, test->dscale.form, test->dscale.dtype);
    if (test->gradients & NORM_DBIAS)
        make_gradient(job, test, DBIAS, &test->bias, test->bias.form, test->bias.dtype);

    desc.direction = CLATTN_DIRECTION_BACKWARD;
    desc.kind = test->rms ? CLATTN_NORM_KIND_RMS : CLATTN_NORM_KIND_LAYER;
    desc.axes = test->axes;
    desc.explicit_epsilon = test->explicit_epsilon;
    desc.epsilon = test->epsilon;
    array_bind(&job->input[X], &desc.x, &args.x);
    array_bind(&job->input[SCALE], &desc.scale, &args.scale);
    array_bind(&job->input[RESIDUAL], &desc.residual, &args.residual);
    array_bind(&job->input[DY], &desc.gradients.y, &args.gradients.y);
    array_bind(&job->input[DSUM], &desc.gradients.sum, &args.gradients.sum);
    array_bind(&job->output[DX], &desc.gradients.x, &args.gradients.x);
    array_bind(&job->output[DSCALE], &desc.gradients.scale, &args.gradients.scale);
    array_bind(&job->output[DBIAS], &desc.gradients.bias, &args.gradients.bias);
    args.explicit_batch = test->explicit_batch;
    args.batch = test->batch;
    job->args.norm = args;
    return job_plan(job, &norm_operator, &desc, solver, test->long_loops ? JOB_LOOPS : JOB_TAKEN);
}

bool norm_job(test_job *job, const void *which, const char *solver)
{
    const norm_case *test = which;
    if (test->gradients)
        return make_backward(job, test, solver);
    clattn_norm_desc desc = CLATTN_NORM_DESC_INIT;
    clattn_norm_args args = CLATTN_NORM_ARGS_INIT;
    float spread = test->spread > 0 ? test->spread : 4;
    size_t written[CLATTN_MAX_RANK];

    job->input[X] =
        job_array(job, test->in_place ? ROLE_IN_PLACE : ROLE_INPUT, test->x_type, test->rank, test->extent, test->x);
    job_fill(&job->input[X], 1, test->offset - spread, test->offset + spread, false);
    make_factor(job, SCALE, &test->scale, 2);
    make_factor(job, BIAS, &test->bias, 3);
    job->output[Y] =
        test->in_place ? job->input[X] : job_array(job, ROLE_OUTPUT, test->y_type, test->rank, test->extent, test->y);
    memcpy(written, test->extent, sizeof written);
    written[0] = test->explicit_batch ? test->batch : written[0];
    array_own(&job->output[Y], written);
    if (test->residual.rank) {
        const norm_factor *r = &test->residual;
        job->input[RESIDUAL] =
            job_array(job, test->sum_in_place ? ROLE_IN_PLACE : ROLE_INPUT, r->dtype, r->rank, r->extent, r->form);
        job_fill(&job->input[RESIDUAL], 4, -spread, spread, false);
    }
    if (test->sum) {
        job->output[SUM] = test->sum_in_place
                               ? job->input[RESIDUAL]
                               : job_array(job, ROLE_OUTPUT, test->sum_type, test->rank, test->extent, test->sum_form);
        array_own(&job->output[SUM], written);
    }
    if (test->outputs & NORM_MEAN) {
        make_statistic(job, test, MEAN, written);
    }
    if (test->outputs & NORM_INVERSE) {
        make_statistic(job, test, INVERSE, written);
    }

    desc.kind = test->rms ? CLATTN_NORM_KIND_RMS : CLATTN_NORM_KIND_LAYER;
    desc.axes = test->axes;
    desc.explicit_epsilon = test->explicit_epsilon;
    desc.epsilon = test->epsilon;
    array_bind(&job->input[X], &desc.x, &args.x);
    array_bind(&job->input[SCALE], &desc.scale, &args.scale);
    array_bind(&job->input[BIAS], &desc.bias, &args.bias);
    array_bind(&job->input[RESIDUAL], &desc.residual, &args.residual);
    array_bind(&job->output[Y], &desc.y, &args.y);
    array_bind(&job->output[MEAN], &desc.mean, &args.mean);
    array_bind(&job->output[INVERSE], &desc.inv_std_dev, &args.inv_std_dev);
    array_bind(&job->output[SUM], &desc.sum, &args.sum);
    args.explicit_batch = test->explicit_batch;
    args.batch = test->batch;
    job->args.norm = args;
    return job_plan(job, &norm_operator, &desc, solver, test->long_loops ? JOB_LOOPS : JOB_TAKEN);
}

/* ---- the verdict ---- */

/* Broadcasts a scale, bias or residual over the actual elements of x; returns NULL if there is none. */
static double *spread_out(const test_array *factor, int rank, const size_t *extent, size_t count)
{
    double *dense = factor->memory ? zeros(count) : NULL;
    size_t index[CLATTN_MAX_RANK] = {0};

    for (size_t i = 0; i < count && dense; i++) {
        size_t at[CLATTN_MAX_RANK] = {0};
        for (int d = 0; d < factor->layout.rank; d++) {
            at[d] = factor->layout.extent[d] == 1 ? 0 : index[d + rank - factor->layout.rank];
        }
        dense[i] = array_get(factor, at);
        array_next(rank, extent, index);
    }
    return dense;
}

/* Adds each element of x's extents to that element of a gradient that is broadcast to it. */
static void collect(job_result *result, int rank, const size_t *extent, size_t count, const double *terms,
                    const double *magnitudes)
{
    size_t index[CLATTN_MAX_RANK] = {0};

    for (size_t i = 0; i < count && result->name; i++) {
        size_t at = 0;
        for (int d = 0; d < result->rank; d++)
            at = at * result->extent[d] + (result->extent[d] == 1 ? 0 : index[d + rank - result->rank]);
        result->reference[at] += terms[i];
        result->magnitude[at] += magnitudes ? magnitudes[i] : fabs(terms[i]);
        array_next(rank, extent, index);
    }
}

static void refer_backward(const test_job *job, const norm_case *test, job_result *result)
{
    static const char *const names[] = {"gradients.x", "gradients.scale", "gradients.bias"};
    size_t extent[CLATTN_MAX_RANK];

    for (int o = DX; o <= DBIAS; o++)
        result[o] = result_of(names[o], &job->output[o]);
    memcpy(extent, test->extent, sizeof extent);
    extent[0] = test->explicit_batch ? test->batch : extent[0];
    const int outer = test->rank - axes_of(test);
    const size_t count = array_count(test->rank, extent), elements = array_count(axes_of(test), extent + outer);
    const double epsilon = test->explicit_epsilon ? (double)test->epsilon : 1e-5;
    double *x = array_dense(&job->input[X], test->rank, extent);
    double *dy = array_dense(&job->input[DY], test->rank, extent);
    double *dsum = test->sum ? array_dense(&job->input[DSUM], test->rank, extent) : NULL;
    double *scale = spread_out(&job->input[SCALE], test->rank, extent, count);
    double *residual = spread_out(&job->input[RESIDUAL], test->rank, extent, count);
    double *dx = zeros(count), *magnitude = zeros(count), *dscale = zeros(count), *scale_magnitude = zeros(count);
    for (size_t i = 0; i < count && residual; i++)
        x[i] = (double)(float)(x[i] + residual[i]);
    for (size_t at = 0; at < count; at += elements)
        reference_norm_backward(elements, test->rms, epsilon, x + at, scale ? scale + at : NULL, dy + at,
                                dsum ? dsum + at : NULL, dx + at, magnitude + at, dscale + at, scale_magnitude + at);
    collect(&result[DX], test->rank, extent, count, dx, magnitude);
    collect(&result[DSCALE], test->rank, extent, count, dscale, scale_magnitude);
    collect(&result[DBIAS], test->rank, extent, count, dy, NULL);
    free(x);
    free(dy);
    free(dsum);
    free(scale);
    free(residual);
    free(dx);
    free(magnitude);
    free(dscale);
    free(scale_magnitude);
}

/* Holds the header's accuracy, which is tighter than the accuracy rule: it grants nothing for the errors of a naive
 * computation. */
static void refer(const test_job *job, const void *which, job_result *result)
{
    static const char *const names[OUTPUTS] = {"y", "mean", "inv_std_dev", "sum"};
    const norm_case *test = which;

    if (test->gradients) {
        refer_backward(job, test, result);
        return;
    }
    for (int o = 0; o < OUTPUTS; o++) {
        result[o] = result_of(names[o], &job->output[o]);
    }
    int outer = test->rank - axes_of(test);
    size_t count = result[Y].count, rows = array_count(outer, result[Y].extent);
    size_t elements = array_count(axes_of(test), result[Y].extent + outer);
    double epsilon = test->explicit_epsilon ? (double)test->epsilon : 1e-5;
    double *x = array_dense(&job->input[X], test->rank, result[Y].extent);
    double *scale = spread_out(&job->input[SCALE], test->rank, result[Y].extent, count);
    double *bias = spread_out(&job->input[BIAS], test->rank, result[Y].extent, count);
    double *residual = spread_out(&job->input[RESIDUAL], test->rank, result[Y].extent, count);
    for (size_t i = 0; i < count && residual; i++) {
        x[i] = (double)(float)(x[i] + residual[i]); /* the header says exactly this: a sum in float */
    }
    for (size_t i = 0; i < count && test->sum; i++) {
        result[SUM].reference[i] = x[i];
    }
    for (size_t r = 0; r < rows; r++) {
        size_t at = r * elements;
        double mean, inverse, deviation = 0;
        reference_norm(elements, test->rms, epsilon, x + at, scale ? scale + at : NULL, bias ? bias + at : NULL,
                       result[Y].reference + at, result[Y].magnitude + at, &mean, &inverse);
        for (size_t e = 0; e < elements; e++) {
            deviation += fabs(x[at + e] - mean) / (double)elements;
        }
        if (test->outputs & NORM_MEAN) {
            result[MEAN].reference[r] = mean;
            result[MEAN].magnitude[r] = fabs(mean) + deviation;
        }
        if (test->outputs & NORM_INVERSE) {
            result[INVERSE].reference[r] = result[INVERSE].magnitude[r] = inverse;
        }
    }
    free(x);
    free(scale);
    free(bias);
    free(residual);
}

static bool inject(test_job *job, const void *which)
{
    static const double bad[] = {NAN, INFINITY, -INFINITY, FLT_MAX};
    static const double single[] = {[NORM_NAN] = NAN,
                                    [NORM_INF] = -INFINITY,
                                    [NORM_OVERFLOW] = 1e25,
                                    [NORM_CONSTANT] = 7,
                                    [NORM_GRADIENT] = INFINITY};
    const norm_case *test = which;
    int axes = axes_of(test);
    size_t index[CLATTN_MAX_RANK] = {0}, elements = array_count(axes, test->extent + test->rank - axes), i = 0;

    if (!test->inject) {
        return false;
    }
    do {
        bool here = test->inject == NORM_BEYOND     ? index[0] >= test->batch
                    : test->inject == NORM_CONSTANT ? i < elements
                                                    : i == elements / 2;
        if (here) {
            const double value = test->inject == NORM_BEYOND ? bad[i % 4] : single[test->inject];
            if (test->inject != NORM_GRADIENT)
                array_set(&job->input[X], index, value);
            if (test->gradients && (test->inject == NORM_GRADIENT || test->inject == NORM_BEYOND))
                array_set(&job->input[DY], index, value);
        }
        i++;
    } while (array_next(test->rank, test->extent, index));
    array_upload(&job->input[X]);
    if (test->gradients)
        array_upload(&job->input[DY]);
    return true;
}

static void check(const void *test, const char *solver)
{
    static const job_checker checker = {.make = norm_job, .refer = refer, .inject = inject};
    job_check(&checker, test, solver);
}

void norm_add_by(const char *solver, const norm_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const norm_case *t = &cases[i];

        if (t->levels & level()) {
            suite_add_case(check, t, solver, "norm %s%s: %s %s, rank %d, %d axes, last %zu", solver,
                           t->gradients ? " backward" : "", t->rms ? "RMS" : "layer", t->rule, t->rank, axes_of(t),
                           t->extent[t->rank - 1]);
        }
    }
}

void norm_add(const norm_case *cases, size_t count)
{
    for (size_t n = 0; n < NORM_SOLVERS; n++) {
        norm_add_by(norm_solvers[n], cases, count);
    }
}
