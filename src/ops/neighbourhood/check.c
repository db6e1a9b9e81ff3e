/* The self-check of neighbourhood attention: a plan's own kernels on a small map, against the reference of
 * attention with everything outside the windows masked. */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/common/check.h"
#include "ops/neighbourhood/neighbourhood.h"
#include "ref/attention.h"
#include "ref/ref.h"

#define HEIGHT 7
#define WIDTH 21

enum { QUERY, KEY, VALUE, BIAS, WORKSPACE, OUTPUT, LSE, ARRAYS };

/* Fills `mask`, (queries, keys): the bias, −inf outside of the windows. */
static void fill_mask(const struct check *check, float *mask)
{
    const struct neighbourhood_problem *small = check->problem;
    const clattn_neighbourhood_desc *desc = &small->desc;
    int height = (int)small->height, width = (int)small->width, map = height * width;
    bool clip = desc->edge == CLATTN_EDGE_CLIP;
    for (int i = 0; i < map; i++)
        for (int j = 0; j < map; j++) {
            bool inside = ref_neighbour(i / width, j / width, height, desc->window[0], desc->dilation[0], clip) &&
                          ref_neighbour(i % width, j % width, width, desc->window[1], desc->dilation[1], clip);
            float bias = small->has_bias ? ((const float *)check->arrays[BIAS].host)[j] : 0.0f;
            mask[i * map + j] = inside ? bias : -INFINITY;
        }
}

static clattn_status judge_row(const struct check *check, int64_t i, const ref_attention_result *exact,
                               const ref_attention_result *plain)
{
    clattn_status status = CLATTN_SUCCESS;
    const struct neighbourhood_problem *small = check->problem;
    const clattn_dtype dtype = small->desc.output.dtype;
    const int64_t y = i / (int64_t)small->width, x = i % (int64_t)small->width;
    for (int64_t e = 0; e < (int64_t)small->d_v; e++) {
        double value = check_read(&check->arrays[OUTPUT], i * (int64_t)small->d_v + e);
        double magnitude = exact->magnitude[e] + fabs(exact->output[e]);
        TRY(check_element(
            check->report, check->kernel, "output", (const int64_t[4]){0, y, x, e}, value, exact->output[e],
            check_slack(exact->output[e], plain->output[e], magnitude, FLT_EPSILON, storage_epsilon(dtype))));
    }
    if (small->has_lse)
        TRY(check_element(check->report, check->kernel, "lse", (const int64_t[4]){0, y, x, 0},
                          check_read(&check->arrays[LSE], i), exact->lse,
                          check_slack(exact->lse, plain->lse, 1 + fabs(exact->lse), FLT_EPSILON, FLT_EPSILON)));
fail:
    return status;
}

static clattn_status judge(const struct check *check)
{
    clattn_status status = CLATTN_SUCCESS;
    const struct neighbourhood_problem *small = check->problem;
    const clattn_neighbourhood_desc *desc = &small->desc;
    const size_t map = small->height * small->width, d_k = small->d_k, d_v = small->d_v;
    clattn_attention_desc attention = CLATTN_ATTENTION_DESC_INIT;
    clattn_attention_args lengths = CLATTN_ATTENTION_ARGS_INIT;
    /* Room for a row's results, and behind it for the mask. */
    double *scratch = calloc(1, (3 * d_v + 2 * map) * sizeof *scratch + map * map * sizeof(float));
    if (!scratch)
        return report_error(check->report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a self-check");
    float *mask = (float *)(scratch + 3 * d_v + 2 * map);
    fill_mask(check, mask);
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
                                            .mask = mask}};
    ref_attention_problem plain = exact;
    plain.narrow = true;
    ref_attention_result exact_row = {
        .output = scratch, .magnitude = scratch + d_v, .probabilities = scratch + 3 * d_v};
    ref_attention_result plain_row = {.output = scratch + 2 * d_v, .probabilities = scratch + 3 * d_v + map};
    for (size_t i = 0; i < map && status == CLATTN_SUCCESS; i++) {
        ref_attention_row(&exact, 0, 0, (int64_t)i, &exact_row);
        ref_attention_row(&plain, 0, 0, (int64_t)i, &plain_row);
        status = judge_row(check, (int64_t)i, &exact_row, &plain_row);
    }
    free(scratch);
    return status;
}

/* Describes a small map for which every -D of the kernels is the same: sizes, types, and which arrays are present. */
clattn_status neighbourhood_self_check(struct self_check *self)
{
    clattn_status status;
    const struct neighbourhood_plan *plan = (const struct neighbourhood_plan *)self->plan;
    const struct neighbourhood_problem *full = &plan->problem;
    const size_t q[5] = {1, 1, HEIGHT, WIDTH, full->d_k}, v[5] = {1, 1, HEIGHT, WIDTH, full->d_v};
    clattn_neighbourhood_desc desc = full->desc;
    clattn_layout workspace = {0};
    struct neighbourhood_problem small;
    clattn_neighbourhood_args args = CLATTN_NEIGHBOURHOOD_ARGS_INIT;
    const struct check_place places[ARRAYS] = {
        [QUERY] = {"query", &small.desc.query, &args.query, CHECK_NUMBERS},
        [KEY] = {"key", &small.desc.key, &args.key, CHECK_NUMBERS},
        [VALUE] = {"value", &small.desc.value, &args.value, CHECK_NUMBERS},
        [BIAS] = {"bias", &small.desc.bias, &args.bias, CHECK_EXCLUDES},
        [WORKSPACE] = {"workspace", &workspace, &args.workspace, CHECK_ZEROS},
        [OUTPUT] = {"output", &small.desc.output, &args.output, CHECK_ZEROS},
        [LSE] = {"lse", &small.desc.lse, &args.lse, CHECK_ZEROS},
    };
    struct check_course course = {places, ARRAYS, OUTPUT, NULL, judge, 0};
    /* Sizes of maps and windows, and the size of the scores, are no -D options and may differ. */
    desc.window[0] = 3;
    desc.window[1] = 5;
    desc.dilation[0] = desc.dilation[1] = 2;
    desc.explicit_scale = 0;
    desc.query = clattn_layout_contiguous(desc.query.dtype, 5, q);
    desc.key = clattn_layout_contiguous(desc.key.dtype, 5, q);
    desc.value = clattn_layout_contiguous(desc.value.dtype, 5, v);
    desc.output = clattn_layout_contiguous(desc.output.dtype, 5, v);
    if (full->has_bias)
        desc.bias = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, q);
    if (full->has_lse)
        desc.lse = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, q);
    if (plan->workspace) {
        TRY(check_describe(self->plan, &desc, &small));
        TRY(plan->workspace(plan, &small, &course.workspace));
        workspace = clattn_layout_contiguous(CLATTN_DTYPE_U8, 1, &course.workspace);
    }
    status = check_run(self->plan, &course, &desc, &small, &args);
fail:
    return status;
}
