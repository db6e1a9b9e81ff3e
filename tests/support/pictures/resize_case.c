/* Resizing: makes arrays and a plan of a table row, and compares the result with a reference. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/pictures/picture.h"
#include "support/pictures/resize_case.h"
#include "support/verdict.h"

static const char *const solvers[] = {"generic", "cpu"};

static bool is_nearest(const resize_case *test)
{
    return test->mode == CLATTN_RESIZE_MODE_NEAREST || test->mode == CLATTN_RESIZE_MODE_NEAREST_EXACT;
}

static double cubic_a_of(const resize_case *test)
{
    return test->cubic_a != 0 ? (double)test->cubic_a : test->antialias ? -0.5 : -0.75;
}

static bool make(test_job *job, const void *which, const char *solver)
{
    const resize_case *test = which;
    clattn_resize_desc desc = CLATTN_RESIZE_DESC_INIT;
    clattn_resize_args args = CLATTN_RESIZE_ARGS_INIT;
    const size_t batch = test->batch ? test->batch : 1, channels = test->channels ? test->channels : 1;
    const size_t from[] = {batch, channels, test->from[0], test->from[1]};
    const size_t to[] = {batch, channels, test->to[0], test->to[1]};
    const size_t written[] = {test->explicit_batch ? test->actual_batch : batch, channels, to[2], to[3]};

    job->input[0] = job_picture(job, ROLE_INPUT, test->x_type, from, test->x, test->channels_last);
    job_fill(&job->input[0], 3, -1, 1, false);
    job->output[0] = job_picture(job, ROLE_OUTPUT, test->y_type, to, test->y, test->channels_last);
    array_own(&job->output[0], written);
    desc.mode = test->mode;
    desc.align_corners = test->align_corners;
    desc.antialias = test->antialias;
    desc.explicit_scale = test->scale[0] > 0;
    memcpy(desc.scale, test->scale, sizeof desc.scale);
    desc.explicit_cubic_a = test->cubic_a != 0;
    desc.cubic_a = test->cubic_a;
    array_bind(&job->input[0], &desc.x, &args.x);
    array_bind(&job->output[0], &desc.y, &args.y);
    args.explicit_batch = test->explicit_batch;
    args.batch = test->actual_batch;
    job->args.resize = args;
    return job_plan(job, &resize_operator, &desc, solver, JOB_LOOPS);
}

/* ---- the verdict ---- */

static double cubic(double a, double d)
{
    if (d >= 2)
        return 0;
    return d > 1 ? a * (d * d * d - 5 * d * d + 8 * d - 4) : (a + 2) * d * d * d - (a + 3) * d * d + 1;
}

/* Returns the weights of an axis, [element of y][element of x]; the caller frees them.  *taps becomes the most that an element has. */
static double *weights_of(const resize_case *test, int axis, double *taps)
{
    const size_t source = test->from[axis], target = test->to[axis];
    double *weights = zeros(source * target), ratio = (double)source / (double)target;
    if (test->align_corners)
        ratio = target > 1 ? ((double)source - 1) / ((double)target - 1) : 0;
    else if (test->scale[0] > 0)
        ratio = 1 / test->scale[axis];
    const double width = test->antialias && ratio > 1 ? ratio : 1;
    *taps = is_nearest(test) ? 1 : ceil(width * (test->mode == CLATTN_RESIZE_MODE_BICUBIC ? 4 : 2));
    for (size_t i = 0; i < target; i++) {
        double *row = weights + i * source, sum = 0;
        if (is_nearest(test)) {
            const float at = (float)i + (test->mode == CLATTN_RESIZE_MODE_NEAREST ? 0.0f : 0.5f);
            const size_t k = (size_t)(at * (float)ratio);
            row[k < source ? k : source - 1] = 1;
            continue;
        }
        const double place = test->align_corners ? (double)i * ratio : ((double)i + 0.5) * ratio - 0.5;
        for (int64_t k = (int64_t)floor(place - 2 * width) - 1; (double)k < place + 2 * width + 1; k++) {
            const double d = fabs((double)k - place) / width;
            const double w = test->mode == CLATTN_RESIZE_MODE_BICUBIC ? cubic(cubic_a_of(test), d) : fmax(0, 1 - d);
            const bool inside = k >= 0 && k < (int64_t)source;
            if (inside || !test->antialias)
                row[inside ? (size_t)k : k < 0 ? 0 : source - 1] += w;
            sum += inside ? w : 0;
        }
        for (size_t k = 0; k < source && test->antialias; k++)
            row[k] /= sum;
    }
    return weights;
}

/* Holds the header's accuracy and grants nothing for the errors of a naive computation. */
static void refer(const test_job *job, const void *which, job_result *result)
{
    const resize_case *test = which;
    const size_t height = test->from[0], width = test->from[1];
    const double a = test->mode == CLATTN_RESIZE_MODE_BICUBIC ? fabs(cubic_a_of(test)) : 0;
    double row_taps, column_taps;

    *result = result_of("y", &job->output[0]);
    result->exact = is_nearest(test) && result->rule.stored == CLATTN_DTYPE_F32;
    if (!result->count)
        return;
    double *x = array_dense(&job->input[0], 4, (size_t[]){result->extent[0], result->extent[1], height, width});
    double *rows = weights_of(test, 0, &row_taps), *columns = weights_of(test, 1, &column_taps);
    for (size_t at = 0; at < result->count; at++) {
        const size_t j = at % test->to[1], i = at / test->to[1] % test->to[0], plane = at / test->to[1] / test->to[0];
        double sum = 0, largest = 0;
        for (size_t k = 0; k < height; k++)
            for (size_t l = 0; l < width; l++) {
                const double w = rows[i * height + k] * columns[j * width + l], v = x[(plane * height + k) * width + l];
                if (w == 0)
                    continue;
                sum += w * v;
                largest = fmax(largest, fabs(v));
            }
        result->reference[at] = sum;
        result->magnitude[at] = (8 + row_taps + column_taps) / 8 * (1 + a) * (1 + a) * largest;
    }
    free(x);
    free(rows);
    free(columns);
}

static bool inject(test_job *job, const void *which)
{
    const resize_case *test = which;
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

void resize_add(const resize_case *cases, size_t count)
{
    static const char *const modes[] = {"nearest", "nearest exact", "bilinear", "bicubic"};
    for (size_t n = 0; n < COUNT_OF(solvers); n++) {
        for (size_t i = 0; i < count; i++) {
            const resize_case *t = &cases[i];

            if (t->levels & level())
                suite_add_case(check, t, solvers[n], "resize %s: %s, %s%s, %zux%zu to %zux%zu", solvers[n], t->rule,
                               modes[t->mode], t->channels_last ? ", channels last" : "", t->from[0], t->from[1],
                               t->to[0], t->to[1]);
        }
    }
}
