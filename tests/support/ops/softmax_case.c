/* Softmax problems: makes arrays and a plan of a table row, and compares the result with a reference. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/ops/softmax_case.h"

const char *const softmax_solvers[SOFTMAX_SOLVERS] = {"generic", "cpu", "tile"};

enum { X, MASK }; /* of job.input */

static clattn_dtype type_or_float(clattn_dtype dtype)
{
    return dtype == CLATTN_DTYPE_NONE ? CLATTN_DTYPE_F32 : dtype;
}

/* The extents that count at enqueue. */
static void actual_extent(const softmax_case *test, size_t *extent)
{
    memcpy(extent, test->extent, sizeof test->extent);
    if (test->explicit_batch) {
        extent[0] = test->batch;
    }
}

bool softmax_job(test_job *job, const softmax_case *test, const char *solver, uint64_t salt)
{
    clattn_softmax_desc desc = CLATTN_SOFTMAX_DESC_INIT;
    clattn_softmax_args args = CLATTN_SOFTMAX_ARGS_INIT;
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    float spread = test->spread > 0 ? test->spread : 4;
    size_t written[CLATTN_MAX_RANK];

    job->input[X] = job_array(job, test->in_place ? ROLE_IN_PLACE : ROLE_INPUT, type_or_float(test->x_type), test->rank,
                              test->extent, test->x);
    job_fill(&job->input[X], salt * 2, -spread, spread, false);
    job->input[MASK] = job_mask(job, test->mask, test->mask_rank, test->mask_extent, test->mask_form, salt * 2 + 1);
    job->output[0] = test->in_place ? job->input[X]
                                    : job_array(job, ROLE_READABLE_OUTPUT, type_or_float(test->y_type), test->rank,
                                                test->extent, test->y);
    actual_extent(test, written);
    array_own(&job->output[0], written);

    desc.explicit_scale = test->scaled;
    desc.scale = test->scale;
    desc.x = job->input[X].layout;
    desc.y = job->output[0].layout;
    desc.mask = job->input[MASK].layout;
    desc.short_mask = 1;
    args.x = array_binding(&job->input[X]);
    args.y = array_binding(&job->output[0]);
    args.mask = array_binding(&job->input[MASK]);
    args.explicit_batch = test->explicit_batch;
    args.batch = test->batch;
    job->args.softmax = args;
    job->enqueue = enqueue_softmax;
    options.solver = solver;
    clattn_status status = clattn_softmax_plan_create(device_context(), &desc, &options, &job->plan);
    return job_planned(job, status, solver,
                       (test->long_loops && job_refused_for_loops(status)) || job_refused_sub_groups(solver));
}

/* ---- the verdict ---- */

typedef struct verdict {
    size_t count;
    double *addend, *reference, *naive, *magnitude, *given;
} verdict;

static void verdict_release(verdict *v)
{
    free(v->addend);
    free(v->reference);
    free(v->naive);
    free(v->magnitude);
    free(v->given);
}

/* Advances index[] to the next element; the last dimension is the innermost. */
static void step(int rank, const size_t *extent, size_t *index)
{
    for (int d = rank - 1; d >= 0 && ++index[d] == extent[d]; d--) {
        index[d] = 0;
    }
}

/* Computes the reference before the run, because x is overwritten in place. */
static verdict run_and_judge(test_job *job, const softmax_case *test)
{
    size_t extent[CLATTN_MAX_RANK], index[CLATTN_MAX_RANK] = {0};
    size_t columns = test->extent[test->rank - 1];
    verdict v = {.count = 1};
    double scale = test->scaled ? test->scale : 1;

    actual_extent(test, extent);
    for (int d = 0; d < test->rank; d++) {
        v.count *= extent[d];
    }
    double *x = array_dense(&job->input[X], test->rank, extent);
    v.reference = calloc(v.count + 1, sizeof *v.reference);
    v.naive = calloc(v.count + 1, sizeof *v.naive);
    v.magnitude = calloc(v.count + 1, sizeof *v.magnitude);
    assert_true(v.reference && v.naive && v.magnitude);
    if (test->mask != MASK_NONE) {
        v.addend = calloc(v.count + 1, sizeof *v.addend);
        assert_non_null(v.addend);
        for (size_t i = 0; i < v.count; i++) {
            v.addend[i] = reference_mask(&job->input[MASK], test->rank, index);
            step(test->rank, extent, index);
        }
    }
    for (size_t at = 0; at < v.count; at += columns) {
        const double *addend = v.addend ? v.addend + at : NULL;
        reference_softmax(columns, scale, x + at, addend, false, v.reference + at, v.magnitude + at);
        reference_softmax(columns, scale, x + at, addend, true, v.naive + at, NULL);
    }
    free(x);
    job_run(job, NULL);
    v.given = array_dense(&job->output[0], test->rank, extent);
    accuracy_check_stored("y", job->output[0].layout.dtype, test->rank, extent, v.given, v.reference, v.naive,
                          v.magnitude);
    return v;
}

static void inject(test_job *job, const softmax_case *test, const verdict *before)
{
    static const double bad[] = {NAN, INFINITY, -INFINITY, FLT_MAX};
    static const double single[] = {
        [SOFTMAX_NAN] = NAN, [SOFTMAX_INF] = INFINITY, [SOFTMAX_MINUS_INF] = -INFINITY, [SOFTMAX_EMPTY] = -INFINITY};
    size_t index[CLATTN_MAX_RANK] = {0};
    size_t columns = test->extent[test->rank - 1], all = 1, written = 0;

    for (int d = 0; d < test->rank; d++) {
        all *= test->extent[d];
    }
    for (size_t i = 0; i < all; i++) {
        bool beyond = test->explicit_batch && index[0] >= test->batch;
        bool masked = !beyond && before->addend && before->addend[written] == -INFINITY;

        if (test->inject == SOFTMAX_MASKED ? beyond || masked
                                           : i == columns / 2 || (test->inject == SOFTMAX_EMPTY && i < columns)) {
            array_set(&job->input[X], index, test->inject == SOFTMAX_MASKED ? bad[i % 4] : single[test->inject]);
        }
        written += !beyond; /* actual elements come first because the batch is the outermost dimension */
        step(test->rank, test->extent, index);
    }
    array_upload(&job->input[X]);
}

void softmax_check(const void *which, const char *solver)
{
    const softmax_case *test = which;
    test_job job = {0};

    if (softmax_job(&job, test, solver, 1)) {
        verdict before = run_and_judge(&job, test);
        if (test->inject != SOFTMAX_NOTHING) {
            inject(&job, test, &before);
            array_poison(&job.output[0]);
            verdict after = run_and_judge(&job, test);
            accuracy_unchanged("y", before.count, before.reference, before.given, after.reference, after.given);
            verdict_release(&after);
        }
        verdict_release(&before);
    }
    job_release(&job);
}

void softmax_add_by(const char *solver, const softmax_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const softmax_case *t = &cases[i];

        if (t->levels & level()) {
            suite_add_case(softmax_check, t, solver, "softmax %s: %s, rank %d, %zu columns", solver, t->rule, t->rank,
                           t->extent[t->rank - 1]);
        }
    }
}

void softmax_add(const softmax_case *cases, size_t count)
{
    for (int n = 0; n < SOFTMAX_SOLVERS; n++) {
        softmax_add_by(softmax_solvers[n], cases, count);
    }
}
