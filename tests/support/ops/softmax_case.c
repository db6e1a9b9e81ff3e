/* Softmax problems and their gradients: makes arrays and a plan of a table row, and compares the result with a reference. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/ops/softmax_case.h"
#include "support/verdict.h"

const char *const softmax_solvers[SOFTMAX_SOLVERS] = {"generic", "cpu", "tile"};

enum { X, MASK, RESULT }; /* of job.input */

/* What the mask adds to each element of an array with the case's extents; NULL if there is no mask. */
static double *addends(const test_job *job, const softmax_case *test, const size_t *extent)
{
    size_t index[CLATTN_MAX_RANK] = {0}, count = array_count(test->rank, extent);
    double *made = test->mask ? zeros(count) : NULL;

    for (size_t i = 0; i < count && made; i++) {
        made[i] = reference_mask(&job->input[MASK], test->rank, index);
        array_next(test->rank, extent, index);
    }
    return made;
}

static double next_of(void *context, const size_t *index)
{
    const double **next = context;

    (void)index;
    return *(*next)++;
}

/* Makes forward's result, of random logits. */
static void make_result(test_job *job, const softmax_case *test, uint64_t salt)
{
    const size_t columns = test->extent[test->rank - 1], count = array_count(test->rank, test->extent);
    double *y = zeros(count), *x = zeros(count), *addend = addends(job, test, test->extent);
    const double *next = y;
    random_stream stream = random_start(salt);

    for (size_t i = 0; i < count; i++)
        x[i] = (double)random_float(&stream, -4, 4);
    for (size_t at = 0; at < count; at += columns)
        reference_softmax(columns, 1, x + at, addend ? addend + at : NULL, false, y + at, NULL);
    job->input[RESULT] = job_array(job, test->in_result ? ROLE_IN_PLACE : ROLE_INPUT, test->result_type, test->rank,
                                   test->extent, test->result);
    array_fill(&job->input[RESULT], next_of, &next);
    array_upload(&job->input[RESULT]);
    free(x);
    free(y);
    free(addend);
}

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
    if (test->backward)
        make_result(job, test, salt * 2 + 2);
    job->output[0] = test->in_place    ? job->input[X]
                     : test->in_result ? job->input[RESULT]
                                       : job_array(job, test->backward ? ROLE_OUTPUT : ROLE_READABLE_OUTPUT,
                                                   test->y_type, test->rank, test->extent, test->y);
    memcpy(written, test->extent, sizeof written);
    written[0] = test->explicit_batch ? test->batch : written[0];
    array_own(&job->output[0], written);

    desc.explicit_scale = test->scaled;
    desc.scale = test->scale;
    desc.short_mask = 1;
    if (test->backward) {
        desc.direction = CLATTN_DIRECTION_BACKWARD;
        array_bind(&job->input[RESULT], &desc.y, &args.y);
        array_bind(&job->input[X], &desc.gradients.y, &args.gradients.y);
        array_bind(&job->output[0], &desc.gradients.x, &args.gradients.x);
    } else {
        array_bind(&job->input[X], &desc.x, &args.x);
        array_bind(&job->output[0], &desc.y, &args.y);
    }
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
    size_t columns = test->extent[test->rank - 1];
    double scale = test->scaled ? test->scale : 1;

    *result = result_of(test->backward ? "gradients.x" : "y", &job->output[0]);
    result->rule.least = FLT_MIN;
    result->naive = zeros(result->count);
    double *x = array_dense(&job->input[X], test->rank, result->extent), *each = addends(job, test, result->extent);
    double *y = test->backward ? array_dense(&job->input[RESULT], test->rank, result->extent) : NULL;
    for (size_t at = 0; at < result->count; at += columns) {
        const double *addend = each ? each + at : NULL;
        double *exact = result->reference + at, *naive = result->naive + at, *magnitude = result->magnitude + at;
        if (test->backward) {
            reference_softmax_backward(columns, scale, y + at, x + at, addend, false, exact, magnitude);
            reference_softmax_backward(columns, scale, y + at, x + at, addend, true, naive, NULL);
        } else {
            reference_softmax(columns, scale, x + at, addend, false, exact, magnitude);
            reference_softmax(columns, scale, x + at, addend, true, naive, NULL);
        }
    }
    free(x);
    free(y);
    free(each);
}

static bool inject(test_job *job, const void *which)
{
    static const double bad[] = {NAN, INFINITY, -INFINITY, FLT_MAX};
    static const double single[] = {[SOFTMAX_NAN] = NAN,
                                    [SOFTMAX_INF] = INFINITY,
                                    [SOFTMAX_MINUS_INF] = -INFINITY,
                                    [SOFTMAX_EMPTY] = -INFINITY,
                                    [SOFTMAX_NAN_RESULT] = NAN};
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
            const double value = test->inject == SOFTMAX_MASKED ? bad[i % 4] : single[test->inject];
            if (test->inject != SOFTMAX_NAN_RESULT)
                array_set(&job->input[X], index, value);
            if (test->backward && (test->inject == SOFTMAX_NAN_RESULT || test->inject == SOFTMAX_MASKED))
                array_set(&job->input[RESULT], index, value);
        }
        i++;
    } while (array_next(test->rank, test->extent, index));
    array_upload(&job->input[X]);
    if (test->backward)
        array_upload(&job->input[RESULT]);
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
            suite_add_case(check, t, solver, "softmax %s%s: %s, rank %d, %zu columns", solver,
                           t->backward ? " backward" : "", t->rule, t->rank, t->extent[t->rank - 1]);
        }
    }
}

void softmax_add(const softmax_case *cases, size_t count)
{
    for (int n = 0; n < SOFTMAX_SOLVERS; n++) {
        softmax_add_by(softmax_solvers[n], cases, count);
    }
}
