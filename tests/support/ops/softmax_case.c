/* Softmax problems: makes arrays and a plan of a table row, and compares the result with a reference. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/ops/softmax_case.h"
#include "support/verdict.h"

const char *const softmax_solvers[SOFTMAX_SOLVERS] = {"generic", "cpu", "tile"};

enum { X, MASK }; /* of job.input */

bool softmax_job(test_job *job, const softmax_case *test, const char *solver, uint64_t salt)
{
    clattn_softmax_desc desc = CLATTN_SOFTMAX_DESC_INIT;
    clattn_softmax_args args = CLATTN_SOFTMAX_ARGS_INIT;
    float spread = test->spread > 0 ? test->spread : 4;
    size_t written[CLATTN_MAX_RANK];

    job->input[X] =
        job_array(job, test->in_place ? ROLE_IN_PLACE : ROLE_INPUT, test->x_type, test->rank, test->extent, test->x);
    job_fill(&job->input[X], salt * 2, -spread, spread, false);
    job->input[MASK] =
        job_mask(job, test->mask, CLATTN_DTYPE_F32, test->mask_rank, test->mask_extent, test->mask_form, salt * 2 + 1);
    job->output[0] = test->in_place
                         ? job->input[X]
                         : job_array(job, ROLE_READABLE_OUTPUT, test->y_type, test->rank, test->extent, test->y);
    memcpy(written, test->extent, sizeof written);
    written[0] = test->explicit_batch ? test->batch : written[0];
    array_own(&job->output[0], written);

    desc.explicit_scale = test->scaled;
    desc.scale = test->scale;
    desc.short_mask = 1;
    array_bind(&job->input[X], &desc.x, &args.x);
    array_bind(&job->output[0], &desc.y, &args.y);
    array_bind(&job->input[MASK], &desc.mask, &args.mask);
    args.explicit_batch = test->explicit_batch;
    args.batch = test->batch;
    job->args.softmax = args;
    return job_plan(job, &softmax_operator, &desc, solver, test->long_loops ? JOB_LOOPS : JOB_TAKEN);
}

static bool make(test_job *job, const void *test, const char *solver)
{
    return softmax_job(job, test, solver, 1);
}

/* ---- the verdict ---- */

static void refer(const test_job *job, const void *which, job_result *result)
{
    const softmax_case *test = which;
    size_t index[CLATTN_MAX_RANK] = {0};
    size_t columns = test->extent[test->rank - 1];
    double scale = test->scaled ? test->scale : 1;

    *result = result_of("y", &job->output[0]);
    result->rule.least = FLT_MIN;
    result->naive = zeros(result->count);
    double *x = array_dense(&job->input[X], test->rank, result->extent), *addends = zeros(result->count);
    for (size_t i = 0; i < result->count && test->mask; i++) {
        addends[i] = reference_mask(&job->input[MASK], test->rank, index);
        array_next(test->rank, result->extent, index);
    }
    for (size_t at = 0; at < result->count; at += columns) {
        const double *addend = test->mask ? addends + at : NULL;
        reference_softmax(columns, scale, x + at, addend, false, result->reference + at, result->magnitude + at);
        reference_softmax(columns, scale, x + at, addend, true, result->naive + at, NULL);
    }
    free(x);
    free(addends);
}

static bool inject(test_job *job, const void *which)
{
    static const double bad[] = {NAN, INFINITY, -INFINITY, FLT_MAX};
    static const double single[] = {
        [SOFTMAX_NAN] = NAN, [SOFTMAX_INF] = INFINITY, [SOFTMAX_MINUS_INF] = -INFINITY, [SOFTMAX_EMPTY] = -INFINITY};
    const softmax_case *test = which;
    size_t index[CLATTN_MAX_RANK] = {0}, columns = test->extent[test->rank - 1], i = 0;

    if (!test->inject) {
        return false;
    }
    do {
        bool beyond = test->explicit_batch && index[0] >= test->batch;
        bool masked = !beyond && test->mask && reference_mask(&job->input[MASK], test->rank, index) == -INFINITY;

        if (test->inject == SOFTMAX_MASKED ? beyond || masked
                                           : i == columns / 2 || (test->inject == SOFTMAX_EMPTY && i < columns)) {
            array_set(&job->input[X], index, test->inject == SOFTMAX_MASKED ? bad[i % 4] : single[test->inject]);
        }
        i++;
    } while (array_next(test->rank, test->extent, index));
    array_upload(&job->input[X]);
    return true;
}

static void check(const void *test, const char *solver)
{
    static const job_checker checker = {.make = make, .refer = refer, .inject = inject};
    job_check(&checker, test, solver);
}

void softmax_add_by(const char *solver, const softmax_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const softmax_case *t = &cases[i];

        if (t->levels & level()) {
            suite_add_case(check, t, solver, "softmax %s: %s, rank %d, %zu columns", solver, t->rule, t->rank,
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
