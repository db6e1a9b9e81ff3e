/* Pooling: makes arrays and a plan of a table row, and compares the result with a reference. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/pictures/picture.h"
#include "support/pictures/pool_case.h"
#include "support/verdict.h"

static const char *const solvers[] = {"generic", "cpu"};

static bool make(test_job *job, const void *which, const char *solver)
{
    const pool_case *test = which;
    clattn_pool_desc desc = CLATTN_POOL_DESC_INIT;
    clattn_pool_args args = CLATTN_POOL_ARGS_INIT;
    const size_t batch = test->batch ? test->batch : 1, channels = test->channels ? test->channels : 1;
    const size_t from[] = {batch, channels, test->from[0], test->from[1]};
    const size_t to[] = {batch, channels, test->to[0], test->to[1]};
    const size_t written[] = {test->explicit_batch ? test->actual_batch : batch, channels, to[2], to[3]};

    job->input[0] = job_picture(job, ROLE_INPUT, test->x_type, from, test->x, test->channels_last);
    job_fill(&job->input[0], 3, -1, 1, false);
    job->output[0] = job_picture(job, ROLE_OUTPUT, test->y_type, to, test->y, test->channels_last);
    array_own(&job->output[0], written);
    desc.kind = test->kind;
    memcpy(desc.window, test->window, sizeof desc.window);
    memcpy(desc.stride, test->stride, sizeof desc.stride);
    memcpy(desc.dilation, test->dilation, sizeof desc.dilation);
    memcpy(desc.padding, test->padding, sizeof desc.padding);
    desc.ceil_mode = test->ceil_mode;
    desc.count_include_pad = test->count_include_pad;
    array_bind(&job->input[0], &desc.x, &args.x);
    array_bind(&job->output[0], &desc.y, &args.y);
    args.explicit_batch = test->explicit_batch;
    args.batch = test->actual_batch;
    job->args.pool = args;
    return job_plan(job, &pool_operator, &desc, solver, JOB_LOOPS);
}

/* ---- the verdict ---- */

/* The position in x of tap k of element i along an axis. */
static int64_t position(const pool_case *test, int axis, size_t i, int32_t k)
{
    const int32_t stride = test->stride[axis] ? test->stride[axis] : test->window[axis];
    return (int64_t)i * stride - test->padding[axis] + (int64_t)k * (test->dilation[axis] ? test->dilation[axis] : 1);
}

static bool inside(const pool_case *test, int axis, int64_t at)
{
    return at >= 0 && at < (int64_t)test->from[axis];
}

/* Whether the divisor counts the position. */
static bool counts(const pool_case *test, int axis, int64_t at)
{
    return test->count_include_pad ? at < (int64_t)test->from[axis] + test->padding[axis + 2] : inside(test, axis, at);
}

/* The largest is exact if it can be stored and nothing is NaN; an average holds the header's accuracy. */
static void refer(const test_job *job, const void *which, job_result *result)
{
    const pool_case *test = which;
    const bool average = test->kind == CLATTN_POOL_KIND_AVERAGE;
    const double area = (double)test->window[0] * test->window[1];

    *result = result_of("y", &job->output[0]);
    result->exact = !average && result->rule.stored == CLATTN_DTYPE_F32;
    if (!result->count)
        return;
    double *x =
        array_dense(&job->input[0], 4, (size_t[]){result->extent[0], result->extent[1], test->from[0], test->from[1]});
    for (size_t at = 0; at < result->count; at++) {
        const size_t j = at % test->to[1], i = at / test->to[1] % test->to[0], plane = at / test->to[1] / test->to[0];
        double sum = 0, largest = -INFINITY, divisor = 0, magnitude = 0;
        for (int32_t k = 0; k < test->window[0]; k++)
            for (int32_t l = 0; l < test->window[1]; l++) {
                const int64_t r = position(test, 0, i, k), c = position(test, 1, j, l);
                divisor += counts(test, 0, r) && counts(test, 1, c);
                if (!inside(test, 0, r) || !inside(test, 1, c))
                    continue;
                const double v = x[(plane * test->from[0] + (size_t)r) * test->from[1] + (size_t)c];
                sum += v;
                magnitude += fabs(v);
                largest = isnan(v) || v > largest ? v : largest;
            }
        result->reference[at] = average ? sum / divisor : largest;
        result->exact = result->exact && !isnan(largest);
        result->magnitude[at] = average ? (8 + area) / 16 * magnitude / divisor : fabs(largest);
    }
    free(x);
}

static bool inject(test_job *job, const void *which)
{
    const pool_case *test = which;
    if (!test->inject)
        return false;
    picture_inject(&job->input[0], test->explicit_batch ? test->actual_batch : SIZE_MAX);
    return true;
}

static void check(const void *test, const char *solver)
{
    static const job_checker checker = {.make = make, .refer = refer, .inject = inject};
    job_check(&checker, test, solver);
}

void pool_add(const pool_case *cases, size_t count)
{
    for (size_t n = 0; n < COUNT_OF(solvers); n++) {
        for (size_t i = 0; i < count; i++) {
            const pool_case *t = &cases[i];

            if (t->levels & level())
                suite_add_case(check, t, solvers[n], "pool %s: %s, %s of %dx%d%s, %zux%zu to %zux%zu", solvers[n],
                               t->rule, t->kind == CLATTN_POOL_KIND_MAX ? "max" : "average", t->window[0], t->window[1],
                               t->channels_last ? ", channels last" : "", t->from[0], t->from[1], t->to[0], t->to[1]);
        }
    }
}
