/* Normalisation problems: makes arrays and a plan of a table row, and compares the result with a reference. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/ops/norm_case.h"

const char *const norm_solvers[NORM_SOLVERS] = {"generic", "cpu", "tile"};

enum { X, SCALE, BIAS, RESIDUAL };       /* of job.input */
enum { Y, MEAN, INVERSE, SUM, OUTPUTS }; /* of job.output */

static clattn_dtype type_or_float(clattn_dtype dtype)
{
    return dtype == CLATTN_DTYPE_NONE ? CLATTN_DTYPE_F32 : dtype;
}

/* The extents that count at enqueue; with `statistics` those of mean and inverse. */
static void actual_extent(const norm_case *test, bool statistics, size_t *extent)
{
    int axes = test->axes ? test->axes : 1;

    memcpy(extent, test->extent, sizeof test->extent);
    if (test->explicit_batch) {
        extent[0] = test->batch;
    }
    for (int d = test->rank - axes; d < test->rank && statistics; d++) {
        extent[d] = 1;
    }
}

static void make_factor(test_job *job, int which, const norm_factor *factor, uint64_t salt)
{
    if (factor->rank) {
        job->input[which] =
            job_array(job, ROLE_INPUT, type_or_float(factor->dtype), factor->rank, factor->extent, factor->form);
        job_fill(&job->input[which], salt, which == SCALE ? 0.5f : -1, which == SCALE ? 1.5f : 1, false);
    }
}

static void make_statistic(test_job *job, const norm_case *test, int which)
{
    size_t extent[CLATTN_MAX_RANK], axes = test->axes ? (size_t)test->axes : 1;

    memcpy(extent, test->extent, sizeof extent);
    for (size_t d = (size_t)test->rank - axes; d < (size_t)test->rank; d++) {
        extent[d] = 1;
    }
    job->output[which] =
        job_array(job, ROLE_OUTPUT, CLATTN_DTYPE_F32, test->rank, extent, which == MEAN ? FORM_PLAIN : test->y);
    actual_extent(test, true, extent);
    array_own(&job->output[which], extent);
}

static bool make_job(test_job *job, const norm_case *test, const char *solver)
{
    clattn_norm_desc desc = CLATTN_NORM_DESC_INIT;
    clattn_norm_args args = CLATTN_NORM_ARGS_INIT;
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    float spread = test->spread > 0 ? test->spread : 4;
    size_t written[CLATTN_MAX_RANK];

    job->input[X] = job_array(job, test->in_place ? ROLE_IN_PLACE : ROLE_INPUT, type_or_float(test->x_type), test->rank,
                              test->extent, test->x);
    job_fill(&job->input[X], 1, test->offset - spread, test->offset + spread, false);
    make_factor(job, SCALE, &test->scale, 2);
    make_factor(job, BIAS, &test->bias, 3);
    job->output[Y] = test->in_place
                         ? job->input[X]
                         : job_array(job, ROLE_OUTPUT, type_or_float(test->y_type), test->rank, test->extent, test->y);
    actual_extent(test, false, written);
    array_own(&job->output[Y], written);
    if (test->residual.rank) {
        const norm_factor *r = &test->residual;
        job->input[RESIDUAL] = job_array(job, test->sum_in_place ? ROLE_IN_PLACE : ROLE_INPUT, type_or_float(r->dtype),
                                         r->rank, r->extent, r->form);
        job_fill(&job->input[RESIDUAL], 4, -spread, spread, false);
    }
    if (test->sum) {
        job->output[SUM] = test->sum_in_place ? job->input[RESIDUAL]
                                              : job_array(job, ROLE_OUTPUT, type_or_float(test->sum_type), test->rank,
                                                          test->extent, test->sum_form);
        array_own(&job->output[SUM], written);
    }
    if (test->outputs & NORM_MEAN) {
        make_statistic(job, test, MEAN);
    }
    if (test->outputs & NORM_INVERSE) {
        make_statistic(job, test, INVERSE);
    }

    desc.kind = test->rms ? CLATTN_NORM_KIND_RMS : CLATTN_NORM_KIND_LAYER;
    desc.axes = test->axes;
    desc.explicit_epsilon = test->explicit_epsilon;
    desc.epsilon = test->epsilon;
    desc.x = job->input[X].layout;
    desc.scale = job->input[SCALE].layout;
    desc.bias = job->input[BIAS].layout;
    desc.y = job->output[Y].layout;
    desc.mean = job->output[MEAN].layout;
    desc.inv_std_dev = job->output[INVERSE].layout;
    desc.residual = job->input[RESIDUAL].layout;
    desc.sum = job->output[SUM].layout;
    args.x = array_binding(&job->input[X]);
    args.scale = array_binding(&job->input[SCALE]);
    args.bias = array_binding(&job->input[BIAS]);
    args.y = array_binding(&job->output[Y]);
    args.mean = array_binding(&job->output[MEAN]);
    args.inv_std_dev = array_binding(&job->output[INVERSE]);
    args.residual = array_binding(&job->input[RESIDUAL]);
    args.sum = array_binding(&job->output[SUM]);
    args.explicit_batch = test->explicit_batch;
    args.batch = test->batch;
    job->args.norm = args;
    job->enqueue = enqueue_norm;
    options.solver = solver;
    clattn_status status = clattn_norm_plan_create(device_context(), &desc, &options, &job->plan);
    return job_planned(job, status, solver,
                       (test->long_loops && job_refused_for_loops(status)) || job_refused_sub_groups(solver));
}

/* ---- the verdict ---- */

/* For each output the dense reference, bound and result. */
typedef struct verdict {
    size_t count[OUTPUTS];
    double *reference[OUTPUTS], *magnitude[OUTPUTS], *given[OUTPUTS];
} verdict;

static void verdict_release(verdict *v)
{
    for (int o = 0; o < OUTPUTS; o++) {
        free(v->reference[o]);
        free(v->magnitude[o]);
        free(v->given[o]);
    }
}

static void step(int rank, const size_t *extent, size_t *index)
{
    for (int d = rank - 1; d >= 0 && ++index[d] == extent[d]; d--) {
        index[d] = 0;
    }
}

/* Broadcasts a scale or bias over the actual elements of x; returns NULL if there is none. */
static double *spread_out(const test_array *factor, int rank, const size_t *extent, size_t count)
{
    double *dense = factor->memory ? malloc((count + 1) * sizeof *dense) : NULL;
    size_t index[CLATTN_MAX_RANK] = {0};

    for (size_t i = 0; i < count && dense; i++) {
        size_t at[CLATTN_MAX_RANK] = {0};
        for (int d = 0; d < factor->layout.rank; d++) {
            at[d] = factor->layout.extent[d] == 1 ? 0 : index[d + rank - factor->layout.rank];
        }
        dense[i] = array_get(factor, at);
        step(rank, extent, index);
    }
    assert_true(!factor->memory || dense);
    return dense;
}

/* Computes the reference before the run, because x is overwritten in place.  Holds the header's accuracy, which is
 * tighter than the accuracy rule: it grants nothing for the errors of a naive computation. */
static verdict run_and_judge(test_job *job, const norm_case *test)
{
    static const char *const names[OUTPUTS] = {"y", "mean", "inv_std_dev", "sum"};
    size_t extent[CLATTN_MAX_RANK], statistics[CLATTN_MAX_RANK], elements = 1, rows = 1;
    verdict v = {0};
    int axes = test->axes ? test->axes : 1;

    actual_extent(test, false, extent);
    actual_extent(test, true, statistics);
    for (int d = 0; d < test->rank; d++) {
        *(d < test->rank - axes ? &rows : &elements) *= extent[d];
    }
    v.count[Y] = v.count[SUM] = rows * elements;
    v.count[MEAN] = v.count[INVERSE] = rows;
    for (int o = 0; o < OUTPUTS; o++) {
        v.reference[o] = calloc(v.count[o] + 1, sizeof(double));
        v.magnitude[o] = calloc(v.count[o] + 1, sizeof(double));
        assert_true(v.reference[o] && v.magnitude[o]);
    }
    double *x = array_dense(&job->input[X], test->rank, extent);
    double *scale = spread_out(&job->input[SCALE], test->rank, extent, v.count[Y]);
    double *bias = spread_out(&job->input[BIAS], test->rank, extent, v.count[Y]);
    double *residual = spread_out(&job->input[RESIDUAL], test->rank, extent, v.count[Y]);
    for (size_t i = 0; i < v.count[Y] && residual; i++) {
        x[i] = v.reference[SUM][i] =
            (double)(float)(x[i] + residual[i]); /* the header says exactly this: a sum in float */
    }
    for (size_t r = 0; r < rows; r++) {
        size_t at = r * elements;
        double epsilon = test->explicit_epsilon ? (double)test->epsilon : 1e-5;
        reference_norm(elements, test->rms, epsilon, x + at, scale ? scale + at : NULL, bias ? bias + at : NULL,
                       v.reference[Y] + at, v.magnitude[Y] + at, &v.reference[MEAN][r], &v.reference[INVERSE][r]);
        double deviation = 0;
        for (size_t e = 0; e < elements; e++) {
            deviation += fabs(x[at + e] - v.reference[MEAN][r]) / (double)elements;
        }
        v.magnitude[MEAN][r] = fabs(v.reference[MEAN][r]) + deviation;
        v.magnitude[INVERSE][r] = v.reference[INVERSE][r];
    }
    free(x);
    free(scale);
    free(bias);
    free(residual);
    job_run(job, NULL);
    for (int o = 0; o < OUTPUTS; o++) {
        if (job->output[o].memory) {
            const size_t *shape = o == Y || o == SUM ? extent : statistics;
            v.given[o] = array_dense(&job->output[o], test->rank, shape);
            accuracy_check_stored(names[o], job->output[o].layout.dtype, test->rank, shape, v.given[o], v.reference[o],
                                  v.reference[o], v.magnitude[o]);
        }
    }
    return v;
}

static void inject(test_job *job, const norm_case *test)
{
    static const double bad[] = {NAN, INFINITY, -INFINITY, FLT_MAX};
    static const double single[] = {
        [NORM_NAN] = NAN, [NORM_INF] = -INFINITY, [NORM_OVERFLOW] = 1e25, [NORM_CONSTANT] = 7};
    size_t index[CLATTN_MAX_RANK] = {0}, elements = 1, all = 1;

    for (int d = 0; d < test->rank; d++) {
        all *= test->extent[d];
        elements *= d < test->rank - (test->axes ? test->axes : 1) ? 1 : test->extent[d];
    }
    for (size_t i = 0; i < all; i++) {
        bool here = test->inject == NORM_BEYOND     ? index[0] >= test->batch
                    : test->inject == NORM_CONSTANT ? i < elements
                                                    : i == elements / 2;
        if (here) {
            array_set(&job->input[X], index, test->inject == NORM_BEYOND ? bad[i % 4] : single[test->inject]);
        }
        step(test->rank, test->extent, index);
    }
    array_upload(&job->input[X]);
}

void norm_check(const void *which, const char *solver)
{
    const norm_case *test = which;
    test_job job = {0};

    if (make_job(&job, test, solver)) {
        verdict before = run_and_judge(&job, test);
        if (test->inject != NORM_NOTHING) {
            inject(&job, test);
            for (int o = 0; o < OUTPUTS; o++) {
                if (job.output[o].memory) {
                    array_poison(&job.output[o]);
                }
            }
            verdict after = run_and_judge(&job, test);
            accuracy_unchanged("y", before.count[Y], before.reference[Y], before.given[Y], after.reference[Y],
                               after.given[Y]);
            verdict_release(&after);
        }
        verdict_release(&before);
    }
    job_release(&job);
}

void norm_add_by(const char *solver, const norm_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const norm_case *t = &cases[i];

        if (t->levels & level()) {
            suite_add_case(norm_check, t, solver, "norm %s: %s %s, rank %d, %d axes, last %zu", solver,
                           t->rms ? "RMS" : "layer", t->rule, t->rank, t->axes ? t->axes : 1, t->extent[t->rank - 1]);
        }
    }
}

void norm_add(const norm_case *cases, size_t count)
{
    for (int n = 0; n < NORM_SOLVERS; n++) {
        norm_add_by(norm_solvers[n], cases, count);
    }
}
