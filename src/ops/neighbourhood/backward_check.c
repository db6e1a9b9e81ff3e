/* The self-check of neighbourhood attention's gradients: a plan's own kernels on a small map, against the reference. */
#include <float.h>
#include <stdlib.h>

#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/common/check.h"
#include "ops/neighbourhood/neighbourhood.h"
#include "ref/ref.h"

#define HEIGHT 5
#define WIDTH 13
#define MAP (HEIGHT * WIDTH)

enum { QUERY, KEY, VALUE, BIAS, OUTPUT_GRADIENT, WORKSPACE, INPUTS };
enum { QUERY_GRADIENT = INPUTS, KEY_GRADIENT, VALUE_GRADIENT, BIAS_GRADIENT, ARRAYS };

/* Compares the gradients that the plan writes, of all elements of dense arrays. */
static clattn_status compare(const struct check *check, const ref_neighbourhood_gradients *exact,
                             const ref_neighbourhood_gradients *magnitude)
{
    clattn_status status = CLATTN_SUCCESS;
    const double *exacts[] = {exact->query, exact->key, exact->value, exact->bias};
    const double *magnitudes[] = {magnitude->query, magnitude->key, magnitude->value, magnitude->bias};
    for (int n = 0; n < ARRAYS - INPUTS; n++) {
        const struct check_array *array = &check->arrays[INPUTS + n];
        const int64_t columns = array->host ? (int64_t)array->elements / MAP : 0;
        for (int64_t i = 0; i < MAP * columns; i++) {
            const int64_t place = i / columns;
            const double slack = check_slack(exacts[n][i], exacts[n][i], magnitudes[n][i], FLT_EPSILON,
                                             storage_epsilon(array->place.layout->dtype));
            TRY(check_element(check->report, check->kernel, array->place.name,
                              (const int64_t[4]){0, place / WIDTH, place % WIDTH, i % columns}, check_read(array, i),
                              exacts[n][i], slack));
        }
    }
fail:
    return status;
}

static clattn_status judge(const struct check *check)
{
    clattn_status status;
    const struct neighbourhood_problem *small = check->problem;
    const clattn_neighbourhood_desc *desc = &small->desc;
    const size_t d_k = small->d_k, d_v = small->d_v, gradients = MAP * (2 * d_k + d_v + 1);
    const size_t inputs = MAP * (2 * d_k + 2 * d_v);
    double *scratch = calloc(1, (2 * gradients + 4 * MAP) * sizeof *scratch + inputs * sizeof(float));
    if (!scratch)
        return report_error(check->report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a self-check");
    float *copies = (float *)(scratch + 2 * gradients + 4 * MAP);
    ref_neighbourhood_gradients result[2];
    for (int i = 0; i < 2; i++) {
        double *first = scratch + (size_t)i * gradients;
        result[i] = (ref_neighbourhood_gradients){first, first + MAP * d_k, first + 2 * MAP * d_k,
                                                  first + MAP * (2 * d_k + d_v)};
    }
    const ref_neighbourhood_problem problem = {
        .height = HEIGHT,
        .width = WIDTH,
        .window = {desc->window[0], desc->window[1]},
        .dilation = {desc->dilation[0], desc->dilation[1]},
        .clip = desc->edge == CLATTN_EDGE_CLIP,
        .d_k = (int64_t)d_k,
        .d_v = (int64_t)d_v,
        .scale = (double)small->scale,
        .query = check_floats(&check->arrays[QUERY], copies),
        .key = check_floats(&check->arrays[KEY], copies + MAP * d_k),
        .value = check_floats(&check->arrays[VALUE], copies + 2 * MAP * d_k),
        .output_gradient = check_floats(&check->arrays[OUTPUT_GRADIENT], copies + MAP * (2 * d_k + d_v)),
        .bias = small->has_bias ? check->arrays[BIAS].host : NULL,
    };
    ref_neighbourhood_backward(&problem, scratch + 2 * gradients, &result[0], &result[1]);
    status = compare(check, &result[0], &result[1]);
    free(scratch);
    return status;
}

/* Makes a layout that is there dense, of a small map. */
static void shrink(clattn_layout *layout, size_t size)
{
    const size_t extent[5] = {1, 1, HEIGHT, WIDTH, size};
    if (layout->dtype)
        *layout = clattn_layout_contiguous(layout->dtype, layout->rank, extent);
}

/* Describes a small map for which every -D of the kernels is the same: sizes, types, and which arrays are present. */
clattn_status neighbourhood_backward_self_check(struct self_check *self)
{
    clattn_status status;
    const struct neighbourhood_plan *plan = (const struct neighbourhood_plan *)self->plan;
    const struct neighbourhood_problem *full = &plan->problem;
    clattn_neighbourhood_desc desc = full->desc;
    clattn_layout workspace = {0};
    struct neighbourhood_problem small;
    clattn_neighbourhood_args args = CLATTN_NEIGHBOURHOOD_ARGS_INIT;
    const struct check_place places[ARRAYS] = {
        [QUERY] = {"query", &small.desc.query, &args.query, CHECK_NUMBERS},
        [KEY] = {"key", &small.desc.key, &args.key, CHECK_NUMBERS},
        [VALUE] = {"value", &small.desc.value, &args.value, CHECK_NUMBERS},
        [BIAS] = {"bias", &small.desc.bias, &args.bias, CHECK_EXCLUDES},
        [OUTPUT_GRADIENT] = {"gradients.output", &small.desc.gradients.output, &args.gradients.output, CHECK_NUMBERS},
        [WORKSPACE] = {"workspace", &workspace, &args.workspace, CHECK_ZEROS},
        [QUERY_GRADIENT] = {"gradients.query", &small.desc.gradients.query, &args.gradients.query, CHECK_ZEROS},
        [KEY_GRADIENT] = {"gradients.key", &small.desc.gradients.key, &args.gradients.key, CHECK_ZEROS},
        [VALUE_GRADIENT] = {"gradients.value", &small.desc.gradients.value, &args.gradients.value, CHECK_ZEROS},
        [BIAS_GRADIENT] = {"gradients.bias", &small.desc.gradients.bias, &args.gradients.bias, CHECK_ZEROS},
    };
    struct check_course course = {places, ARRAYS, INPUTS, NULL, judge, 0};
    /* Sizes of maps and windows, and the size of the scores, are no -D options and may differ. */
    desc.window[0] = 3;
    desc.window[1] = 3;
    desc.dilation[0] = 1;
    desc.dilation[1] = 2;
    desc.explicit_scale = 0;
    shrink(&desc.query, full->d_k);
    shrink(&desc.key, full->d_k);
    shrink(&desc.value, full->d_v);
    shrink(&desc.bias, 1);
    shrink(&desc.gradients.output, full->d_v);
    shrink(&desc.gradients.query, full->d_k);
    shrink(&desc.gradients.key, full->d_k);
    shrink(&desc.gradients.value, full->d_v);
    shrink(&desc.gradients.bias, 1);
    TRY(check_describe(self->plan, &desc, &small));
    TRY(plan->workspace(plan, &small, &course.workspace));
    workspace = clattn_layout_contiguous(CLATTN_DTYPE_U8, 1, &course.workspace);
    status = check_run(self->plan, &course, &desc, &small, &args);
fail:
    return status;
}
