/* The self-check of neighbourhood attention: a plan's own kernels on a small map, against the reference of
 * attention with everything outside the windows masked. */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/neighbourhood/neighbourhood.h"
#include "plan/self_check.h"
#include "ref/attention.h"
#include "ref/ref.h"

#define HEIGHT 7
#define WIDTH 21

enum { QUERY, KEY, VALUE, BIAS, OUTPUT, LSE, WORKSPACE, ARRAYS };

struct neighbourhood_check {
    struct neighbourhood_problem small, original;
    clattn_neighbourhood_args args;
    struct check_array arrays[ARRAYS];
    float *mask;  /* (queries, keys): the bias, −inf outside of the windows */
    double *room; /* scratch for a row's results */
};

/* Describes a small map for which every -D of the kernels is the same: sizes, types, and which arrays are present. */
static clattn_status make(struct neighbourhood_check *check, clattn_context *context)
{
    clattn_status status;
    const struct neighbourhood_problem *full = &check->original;
    clattn_neighbourhood_desc desc = full->desc;
    const size_t q[5] = {1, 1, HEIGHT, WIDTH, full->d_k}, v[5] = {1, 1, HEIGHT, WIDTH, full->d_v};
    clattn_layout *layouts[WORKSPACE] = {&desc.query, &desc.key, &desc.value, &desc.bias, &desc.output, &desc.lse};
    const struct check_place places[WORKSPACE] = {
        [QUERY] = {&desc.query, &check->args.query, CHECK_NUMBERS},
        [KEY] = {&desc.key, &check->args.key, CHECK_NUMBERS},
        [VALUE] = {&desc.value, &check->args.value, CHECK_NUMBERS},
        [BIAS] = {&desc.bias, &check->args.bias, CHECK_EXCLUDES},
        [OUTPUT] = {&desc.output, &check->args.output, CHECK_ZEROS},
        [LSE] = {&desc.lse, &check->args.lse, CHECK_ZEROS},
    };
    const char *reason;
    /* Sizes of maps and windows, and the size of the scores, are no -D options and may differ. */
    desc.window[0] = 3;
    desc.window[1] = 5;
    desc.dilation[0] = desc.dilation[1] = 2;
    desc.explicit_scale = 0;
    for (int i = 0; i < WORKSPACE; i++)
        if (layouts[i]->dtype != CLATTN_DTYPE_NONE)
            *layouts[i] = clattn_layout_contiguous(layouts[i]->dtype, i == BIAS || i == LSE ? 4 : 5,
                                                   i == VALUE || i == OUTPUT ? v : q);
    TRY(neighbourhood_problem_read(&desc, &check->small, &reason));
    TRY(check_arrays_make(context, places, WORKSPACE, check->arrays));
    TRY(check_arrays_upload(context, places, WORKSPACE, check->arrays));
fail:
    return status;
}

static void fill_mask(struct neighbourhood_check *check)
{
    const struct neighbourhood_problem *small = &check->small;
    const clattn_neighbourhood_desc *desc = &small->desc;
    int height = (int)small->height, width = (int)small->width, map = height * width;
    bool clip = desc->edge == CLATTN_EDGE_CLIP;
    for (int i = 0; i < map; i++)
        for (int j = 0; j < map; j++) {
            bool inside = ref_neighbour(i / width, j / width, height, desc->window[0], desc->dilation[0], clip) &&
                          ref_neighbour(i % width, j % width, width, desc->window[1], desc->dilation[1], clip);
            float bias = small->has_bias ? ((const float *)check->arrays[BIAS].host)[j] : 0.0f;
            check->mask[i * map + j] = inside ? bias : -INFINITY;
        }
}

static clattn_status judge_row(const struct neighbourhood_check *check, struct report *report, const char *kernel,
                               int64_t i, const ref_attention_result *exact, const ref_attention_result *plain)
{
    clattn_status status = CLATTN_SUCCESS;
    const struct neighbourhood_problem *small = &check->small;
    const clattn_dtype dtype = small->desc.output.dtype;
    const int64_t y = i / (int64_t)small->width, x = i % (int64_t)small->width;
    for (int64_t e = 0; e < (int64_t)small->d_v; e++) {
        double value = ref_element(check->arrays[OUTPUT].host, dtype, i * (int64_t)small->d_v + e);
        double magnitude = exact->magnitude[e] + fabs(exact->output[e]);
        TRY(check_element(
            report, kernel, "output", (const int64_t[4]){0, y, x, e}, value, exact->output[e],
            check_slack(exact->output[e], plain->output[e], magnitude, FLT_EPSILON, storage_epsilon(dtype))));
    }
    if (small->has_lse)
        TRY(check_element(report, kernel, "lse", (const int64_t[4]){0, y, x, 0},
                          ((const float *)check->arrays[LSE].host)[i], exact->lse,
                          check_slack(exact->lse, plain->lse, 1 + fabs(exact->lse), FLT_EPSILON, FLT_EPSILON)));
fail:
    return status;
}

static clattn_status judge(struct neighbourhood_check *check, struct report *report, const char *kernel)
{
    clattn_status status = CLATTN_SUCCESS;
    const struct neighbourhood_problem *small = &check->small;
    const clattn_neighbourhood_desc *desc = &small->desc;
    const size_t map = small->height * small->width, d_k = small->d_k, d_v = small->d_v;
    clattn_attention_desc attention = CLATTN_ATTENTION_DESC_INIT;
    clattn_attention_args lengths = CLATTN_ATTENTION_ARGS_INIT;
    check->mask = malloc(map * map * sizeof *check->mask);
    check->room = calloc(3 * d_v + 2 * map, sizeof *check->room);
    if (!check->mask || !check->room)
        return report_error(report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a self-check");
    fill_mask(check);
    attention.query = clattn_layout_bhsd(desc->query.dtype, 1, 1, map, d_k);
    attention.key = clattn_layout_bhsd(desc->key.dtype, 1, 1, map, d_k);
    attention.value = clattn_layout_bhsd(desc->value.dtype, 1, 1, map, d_v);
    attention.output = clattn_layout_bhsd(desc->output.dtype, 1, 1, map, d_v);
    attention.mask = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 1, map, map);
    lengths.batch = 1;
    lengths.query_length = lengths.key_length = map;
    ref_attention_problem exact = {.desc = &attention,
                                   .args = &lengths,
                                   .data = {.query = check->arrays[QUERY].host,
                                            .key = check->arrays[KEY].host,
                                            .value = check->arrays[VALUE].host,
                                            .mask = check->mask}};
    ref_attention_problem plain = exact;
    plain.narrow = true;
    double *room = check->room;
    ref_attention_result exact_row = {.output = room, .magnitude = room + d_v, .probabilities = room + 3 * d_v};
    ref_attention_result plain_row = {.output = room + 2 * d_v, .probabilities = room + 3 * d_v + map};
    for (size_t i = 0; i < map && status == CLATTN_SUCCESS; i++) {
        ref_attention_row(&exact, 0, 0, (int64_t)i, &exact_row);
        ref_attention_row(&plain, 0, 0, (int64_t)i, &plain_row);
        status = judge_row(check, report, kernel, (int64_t)i, &exact_row, &plain_row);
    }
    return status;
}

static clattn_status enqueue_small(const struct neighbourhood_plan *plan, struct neighbourhood_check *check)
{
    clattn_status status = CLATTN_SUCCESS;
    size_t bytes = 0;
    if (plan->workspace)
        TRY(plan->workspace(plan, &check->small, &bytes));
    TRY(check_workspace(plan->base.context, bytes, &check->arrays[WORKSPACE], &check->args.workspace));
    status = check_enqueue(&plan->base, &check->small, bytes, &check->args);
fail:
    return status;
}

clattn_status neighbourhood_self_check(struct self_check *self)
{
    const clattn_plan *base = self->plan;
    clattn_status status;
    const struct neighbourhood_plan *plan = (const struct neighbourhood_plan *)base;
    clattn_context *context = base->context;
    struct neighbourhood_check check = {.original = plan->problem, .args = CLATTN_NEIGHBOURHOOD_ARGS_INIT};
    TRY(check_begin(context));
    TRY(make(&check, context));
    TRY(enqueue_small(plan, &check));
    TRY(check_arrays_read(context, &check.arrays[OUTPUT], WORKSPACE - OUTPUT));
    status = judge(&check, &context->device.report, base->kernels[base->kernel_count - 1].name);
fail:
    free(check.mask);
    free(check.room);
    return check_end(context, check.arrays, ARRAYS, status);
}
