/* Pooling: makes arrays and a plan of a table row, and compares the result with a reference. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/pictures/picture.h"
#include "support/pictures/pool_case.h"
#include "support/verdict.h"

const char *const pool_solvers[POOL_SOLVERS] = {"generic", "cpu"};

bool pool_make(test_job *job, const void *which, const char *solver)
{
    const pool_case *test = which;
    clattn_pool_desc desc = CLATTN_POOL_DESC_INIT;
    clattn_pool_args args = CLATTN_POOL_ARGS_INIT;
    const size_t batch = test->batch ? test->batch : 1, channels = test->channels ? test->channels : 1;
    const size_t from[] = {batch, channels, test->from[0], test->from[1]};
    const size_t to[] = {batch, channels, test->to[0], test->to[1]};
    const size_t *extent = test->backward ? from : to;
    const size_t written[] = {test->explicit_batch ? test->actual_batch : batch, channels, extent[2], extent[3]};

    if (!test->backward || test->kind == CLATTN_POOL_KIND_MAX) {
        job->input[0] = job_picture(job, ROLE_INPUT, test->x_type, from, test->x, test->channels_last);
        job_fill(&job->input[0], 3, test->whole ? -2 : -1, test->whole ? 2 : 1, test->whole);
    }
    if (test->backward) {
        job->input[1] = job_picture(job, ROLE_INPUT, test->gradient_type, to, test->gradient, test->channels_last);
        job_fill(&job->input[1], 4, -1, 1, false);
    }
    job->output[0] = job_picture(job, ROLE_OUTPUT, test->y_type, extent, test->y, test->channels_last);
    array_own(&job->output[0], written);
    desc.direction = test->backward ? CLATTN_DIRECTION_BACKWARD : CLATTN_DIRECTION_FORWARD;
    desc.kind = test->kind;
    memcpy(desc.window, test->window, sizeof desc.window);
    memcpy(desc.stride, test->stride, sizeof desc.stride);
    memcpy(desc.dilation, test->dilation, sizeof desc.dilation);
    memcpy(desc.padding, test->padding, sizeof desc.padding);
    desc.ceil_mode = test->ceil_mode;
    desc.count_include_pad = test->count_include_pad;
    array_bind(&job->input[0], &desc.x, &args.x);
    array_bind(&job->input[1], &desc.gradients.y, &args.gradients.y);
    array_bind(&job->output[0], test->backward ? &desc.gradients.x : &desc.y,
               test->backward ? &args.gradients.x : &args.y);
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

/* What window (i, j) of a picture x has. */
typedef struct window {
    size_t count, largest; /* how many elements in x; where the first of the largest, or the first NaN, is */
    double sum, size;
} window;

/* Calls visit(context, element of x) for each element of the window that lies in x. */
static double divisor_of(const pool_case *test, size_t i, size_t j, void (*visit)(void *context, size_t at),
                         void *context)
{
    double divisor = 0;
    for (int32_t k = 0; k < test->window[0]; k++)
        for (int32_t l = 0; l < test->window[1]; l++) {
            const int64_t r = position(test, 0, i, k), c = position(test, 1, j, l);
            divisor += counts(test, 0, r) && counts(test, 1, c);
            if (inside(test, 0, r) && inside(test, 1, c))
                visit(context, (size_t)r * test->from[1] + (size_t)c);
        }
    return divisor;
}

typedef struct looking {
    const double *x;
    window found;
} looking;

static void look(void *context, size_t at)
{
    looking *l = context;
    const double v = l->x[at], best = l->found.count ? l->x[l->found.largest] : -INFINITY;

    if (!l->found.count || v > best || (isnan(v) && !isnan(best)))
        l->found.largest = at;
    l->found.sum += v;
    l->found.size += fabs(v);
    l->found.count++;
}

void pool_reference(const pool_case *test, size_t planes, const double *x, double *y, double *magnitude)
{
    const size_t from = test->from[0] * test->from[1];
    const bool average = test->kind == CLATTN_POOL_KIND_AVERAGE;

    for (size_t plane = 0, at = 0; plane < planes; plane++)
        for (size_t i = 0; i < test->to[0]; i++)
            for (size_t j = 0; j < test->to[1]; j++, at++) {
                looking l = {.x = x + plane * from};
                const double divisor = divisor_of(test, i, j, look, &l);
                const double largest = l.found.count ? l.x[l.found.largest] : -INFINITY;
                y[at] = average ? l.found.sum / divisor : largest;
                magnitude[at] = average ? l.found.size / divisor : fabs(largest);
            }
}

typedef struct spreading {
    double *x_gradient, *magnitude, share;
} spreading;

static void spread(void *context, size_t at)
{
    const spreading *s = context;
    s->x_gradient[at] += s->share;
    s->magnitude[at] += fabs(s->share);
}

static void ignore(void *context, size_t at)
{
    (void)context;
    (void)at;
}

void pool_gradient_reference(const pool_case *test, size_t planes, const double *x, const double *y_gradient,
                             double *x_gradient, double *magnitude)
{
    const size_t from = test->from[0] * test->from[1];

    memset(x_gradient, 0, planes * from * sizeof *x_gradient);
    memset(magnitude, 0, planes * from * sizeof *magnitude);
    for (size_t plane = 0, at = 0; plane < planes; plane++)
        for (size_t i = 0; i < test->to[0]; i++)
            for (size_t j = 0; j < test->to[1]; j++, at++) {
                spreading s = {x_gradient + plane * from, magnitude + plane * from, y_gradient[at]};
                if (test->kind == CLATTN_POOL_KIND_AVERAGE) {
                    s.share /= divisor_of(test, i, j, ignore, NULL);
                    divisor_of(test, i, j, spread, &s);
                    continue;
                }
                looking l = {.x = x + plane * from};
                divisor_of(test, i, j, look, &l);
                if (l.found.count)
                    spread(&s, l.found.largest);
            }
}

/* The largest is exact if it can be stored and nothing is NaN; an average and gradients hold the header's accuracy. */
static void refer(const test_job *job, const void *which, job_result *result)
{
    const pool_case *test = which;
    const bool average = test->kind == CLATTN_POOL_KIND_AVERAGE;
    const double area = (double)test->window[0] * test->window[1]; /* no element has more windows */

    *result = result_of(test->backward ? "gradients.x" : "y", &job->output[0]);
    result->exact = !average && !test->backward && result->rule.stored == CLATTN_DTYPE_F32;
    if (!result->count)
        return;
    const size_t n = result->extent[0], c = result->extent[1];
    const bool has_x = job->input[0].memory != NULL;
    double *x = has_x ? array_dense(&job->input[0], 4, (size_t[]){n, c, test->from[0], test->from[1]}) : NULL;
    if (test->backward) {
        double *gradient = array_dense(&job->input[1], 4, (size_t[]){n, c, test->to[0], test->to[1]});
        pool_gradient_reference(test, n * c, x, gradient, result->reference, result->magnitude);
        free(gradient);
    } else {
        pool_reference(test, n * c, x, result->reference, result->magnitude);
    }
    for (size_t at = 0; at < result->count; at++) {
        result->exact = result->exact && !isnan(result->reference[at]);
        result->magnitude[at] *= average || test->backward ? (8 + area) / 16 : 1;
        if (test->backward && result->magnitude[at] == 0)
            result->magnitude[at] = EXACT_ZERO; /* no window, or only gradients of 0 */
    }
    free(x);
}

static bool inject(test_job *job, const void *which)
{
    const pool_case *test = which;
    if (!test->inject)
        return false;
    for (int i = 0; i < 2; i++)
        if (job->input[i].memory)
            picture_inject(&job->input[i], test->explicit_batch ? test->actual_batch : SIZE_MAX);
    return true;
}

static void check(const void *test, const char *solver)
{
    static const job_checker checker = {.make = pool_make, .refer = refer, .inject = inject};
    job_check(&checker, test, solver);
}

void pool_add(const pool_case *cases, size_t count)
{
    for (size_t n = 0; n < POOL_SOLVERS; n++) {
        for (size_t i = 0; i < count; i++) {
            const pool_case *t = &cases[i];

            if (t->levels & level())
                suite_add_case(check, t, pool_solvers[n], "pool %s%s: %s, %s of %dx%d%s, %zux%zu to %zux%zu",
                               pool_solvers[n], t->backward ? " backward" : "", t->rule,
                               t->kind == CLATTN_POOL_KIND_MAX ? "max" : "average", t->window[0], t->window[1],
                               t->channels_last ? ", channels last" : "", t->from[0], t->from[1], t->to[0], t->to[1]);
        }
    }
}
