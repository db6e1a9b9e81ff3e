/* The self-test's cases of what stands around an attention, and of its kin: merging, appending to a cache,
 * neighbourhoods. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ref/attention.h"
#include "tool/selftest/selftest.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define COLUMNS 200 /* the most of a case */

static const float *floats(const host_array *array)
{
    return array->memory;
}

/* ---- merging ---- */

enum { MERGE_PARTIAL, MERGE_LSE, MERGE_SINKS };

static const struct merge_case {
    const char *name;
    size_t parts, heads, queries, columns;
    bool sinks;
} merge_cases[] = {
    {"one part", 1, 2, 3, 20, false},
    {"seven parts", 7, 3, 5, 64, false},
    {"with sinks", 4, 4, 3, 130, true},
    {"nothing attended", 0, 2, 3, 16, false},
};

JOB_ENQUEUE(merge)

static void verify_merge(const struct merge_case *c, const probe *p, case_result *result)
{
    const size_t rows = c->heads * c->queries, columns = c->columns;
    double exact[COLUMNS], magnitude[COLUMNS], exact_lse;
    float plain[COLUMNS], plain_lse;
    tool_verdict output = {0}, lse = {0};
    for (size_t row = 0; row < rows; row++) {
        ref_merge_problem reference = {
            .parts = (int64_t)c->parts,
            .columns = (int64_t)columns,
            .partial = floats(&p->in[MERGE_PARTIAL]) + row * columns,
            .lse = floats(&p->in[MERGE_LSE]) + row,
            .part = (int64_t)(rows * columns),
            .col = 1,
            .part_lse = (int64_t)rows,
            .sink = c->sinks ? floats(&p->in[MERGE_SINKS]) + row / c->queries : NULL,
        };
        ref_merge_row(&reference, exact, magnitude, &exact_lse);
        ref_merge_naive_row(&reference, plain, &plain_lse);
        for (size_t i = 0; i < columns; i++)
            verdict_add(&output, floats(&p->out[0])[row * columns + i], exact[i], plain[i], magnitude[i]);
        verdict_add(&lse, floats(&p->out[1])[row], exact_lse, plain_lse, 1 + fabs(exact_lse));
    }
    selftest_judge(result, &output, "output");
    selftest_judge(result, &lse, "log-sum-exp");
}

static void run_merge(tool_device *device, size_t index, const char *solver, const char **name, case_result *result)
{
    const struct merge_case *c = &merge_cases[index];
    const size_t extent[5] = {c->parts > 0 ? c->parts : 1, 1, c->heads, c->queries, c->columns};
    clattn_merge_desc desc = CLATTN_MERGE_DESC_INIT;
    clattn_plan_options options = job_options(solver);
    probe p = {0};
    *name = c->name;
    probe_input(&p, MERGE_PARTIAL, 5, extent, 1.0f);
    probe_input(&p, MERGE_LSE, 4, extent, 6.0f);
    if (c->sinks)
        probe_input(&p, MERGE_SINKS, 1, &c->heads, 6.0f);
    desc.partial = probe_layout(&p, MERGE_PARTIAL);
    desc.partial_lse = probe_layout(&p, MERGE_LSE);
    desc.sinks = probe_layout(&p, MERGE_SINKS);
    desc.output = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, extent + 1);
    desc.lse = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, extent + 1);
    probe_output(&p, 0, &desc.output);
    probe_output(&p, 1, &desc.lse);
    if (probe_ready(&p, result)) {
        clattn_merge_args *args = &p.job.args.merge;
        job_begin(&p.job, device, enqueue_merge);
        clattn_merge_args_init(args);
        args->explicit_lengths = 1;
        args->parts = c->parts;
        args->batch = 1;
        args->query_length = c->queries;
        if (c->parts > 1) /* one of them has attended nothing */
            ((float *)p.in[MERGE_LSE].memory)[0] = -INFINITY;
        clattn_status status = clattn_merge_plan_create(device->context, &desc, &options, &p.job.plan);
        status = probe_bind_input(&p, status, MERGE_PARTIAL, &args->partial);
        status = probe_bind_input(&p, status, MERGE_LSE, &args->partial_lse);
        status = probe_bind_input(&p, status, MERGE_SINKS, &args->sinks);
        status = probe_bind_output(&p, status, 0, &args->output);
        status = probe_bind_output(&p, status, 1, &args->lse);
        if (selftest_run(&p.job, job_finish(&p.job, status), solver, p.out, 2, result))
            verify_merge(c, &p, result);
    }
    probe_release(&p);
}

/* ---- appending ---- */

enum { APPEND_CACHE, APPEND_SCALE = 2 }; /* outputs; the keys' first, then the values' */

static const struct append_case {
    const char *name;
    size_t heads, length, capacity, size, groups; /* groups 0: float32 */
    int64_t past;
    bool ring, rotate;
} append_cases[] = {
    {"one key", 3, 1, 9, 64, 0, 4, false, false},         {"rotated, over the end", 2, 6, 9, 40, 0, 5, false, true},
    {"round a ring", 2, 7, 5, 24, 0, 8, true, true},      {"int8", 2, 5, 9, 64, 2, 1, false, false},
    {"int8, rotated", 1, 5, 9, 48, 3, 70000, true, true},
};

JOB_ENQUEUE(kv_append)

/* One row of a cache; `exact` NULL: nothing has been appended to it, and it is the NaN that it was. */
static void verify_stored(const struct append_case *c, const probe *p, size_t which, size_t row, const double *exact,
                          const double *magnitude, tool_verdict *verdict)
{
    const host_array *cache = &p->out[APPEND_CACHE + which], *scales = &p->out[APPEND_SCALE + which];
    for (size_t d = 0; d < c->size; d++) {
        const size_t unit = c->groups > 0 ? c->size / c->groups : c->size, group = d / unit;
        double right = exact != NULL ? exact[d] : NAN, plain = right, value;
        if (c->groups > 0) {
            float scale = floats(scales)[row * c->groups + group];
            value = (double)scale * ((const int8_t *)cache->memory)[row * c->size + d];
            if (exact != NULL) {
                double step = ref_group_scale(exact + group * unit, (int64_t)unit, 127);
                plain = step * rint(right / step);
            }
        } else {
            value = floats(cache)[row * c->size + d];
        }
        verdict_add(verdict, (float)value, right, (float)plain, magnitude[d]);
    }
}

static void verify_kv_append(const struct append_case *c, const probe *p, case_result *result)
{
    double exact[COLUMNS], magnitude[COLUMNS] = {0};
    tool_verdict verdicts[2] = {0};
    const ref_cache cache = {.ring = c->ring, .capacity = (int64_t)c->capacity};
    for (size_t n = 0; n < 2 * c->heads * c->capacity; n++) {
        const size_t which = n % 2, row = n / 2, head = row / c->capacity;
        const double *stored = NULL;
        for (size_t i = 0; i < c->length; i++) {
            const float *x = floats(&p->in[which]) + (head * c->length + i) * c->size;
            const ref_rope_problem rope = {
                .size = (int64_t)c->size, .rotary = which == 0 && c->rotate ? (int64_t)c->size : 0, .base = 10000};
            if (ref_cache_row(&cache, c->past, (int64_t)c->length, (int64_t)i) != (int64_t)(row % c->capacity))
                continue;
            ref_rope_row(&rope, x, c->past + (int64_t)i, exact, magnitude);
            stored = exact;
        }
        verify_stored(c, p, which, row, stored, magnitude, &verdicts[which]);
    }
    selftest_judge(result, &verdicts[0], "key cache");
    selftest_judge(result, &verdicts[1], "value cache");
}

static void run_kv_append(tool_device *device, size_t index, const char *solver, const char **name, case_result *result)
{
    const struct append_case *c = &append_cases[index];
    const size_t extent[4] = {1, c->heads, c->length, c->size};
    clattn_kv_append_desc desc = CLATTN_KV_APPEND_DESC_INIT;
    clattn_plan_options options = job_options(solver);
    probe p = {0};
    *name = c->name;
    probe_input(&p, 0, 4, extent, 2.0f);
    probe_input(&p, 1, 4, extent, 2.0f);
    desc.cache = c->ring ? CLATTN_CACHE_KIND_RING : CLATTN_CACHE_KIND_PLAIN;
    desc.rotate = c->rotate;
    desc.key = desc.value = probe_layout(&p, 0);
    desc.key_cache = desc.value_cache =
        clattn_layout_bhsd(c->groups > 0 ? CLATTN_DTYPE_I8 : CLATTN_DTYPE_F32, 1, c->heads, c->capacity, c->size);
    if (c->groups > 0)
        desc.key_scale = desc.value_scale = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, c->heads, c->capacity, c->groups);
    for (size_t i = 0; i < 2; i++) {
        probe_output(&p, APPEND_CACHE + i, &desc.key_cache);
        if (c->groups > 0)
            probe_output(&p, APPEND_SCALE + i, &desc.key_scale);
    }
    if (probe_ready(&p, result)) {
        clattn_kv_append_args *args = &p.job.args.kv_append;
        job_begin(&p.job, device, enqueue_kv_append);
        clattn_kv_append_args_init(args);
        args->past_length = c->past;
        clattn_status status = clattn_kv_append_plan_create(device->context, &desc, &options, &p.job.plan);
        status = probe_bind_input(&p, status, 0, &args->key);
        status = probe_bind_input(&p, status, 1, &args->value);
        status = probe_bind_output(&p, status, APPEND_CACHE, &args->key_cache);
        status = probe_bind_output(&p, status, APPEND_CACHE + 1, &args->value_cache);
        status = probe_bind_output(&p, status, APPEND_SCALE, &args->key_scale);
        status = probe_bind_output(&p, status, APPEND_SCALE + 1, &args->value_scale);
        if (selftest_run(&p.job, job_finish(&p.job, status), solver, p.out, JOB_OUTPUTS, result))
            verify_kv_append(c, &p, result);
    }
    probe_release(&p);
}

/* ---- neighbourhoods ---- */

enum { NEAR_QUERY, NEAR_KEY, NEAR_VALUE, NEAR_BIAS };

static const struct neighbourhood_case {
    const char *name;
    size_t heads, kv_heads, height, width, d_k, d_v;
    int32_t window[2], dilation[2], edge;
    bool bias;
} neighbourhood_cases[] = {
    {"3 by 3", 2, 2, 7, 11, 16, 16, {3, 3}, {1, 1}, CLATTN_EDGE_SHIFT, false},
    {"dilated, shared heads", 4, 2, 9, 13, 20, 12, {3, 5}, {2, 2}, CLATTN_EDGE_SHIFT, false},
    {"clipped, with a bias", 1, 1, 8, 17, 3, 3, {7, 5}, {1, 1}, CLATTN_EDGE_CLIP, true},
};

JOB_ENQUEUE(neighbourhood)

/* The same as an attention with a mask. */
static void verify_neighbourhood(const struct neighbourhood_case *c, const probe *p, case_result *result)
{
    const size_t map = c->height * c->width;
    const int width = (int)c->width, height = (int)c->height;
    const bool clip = c->edge == CLATTN_EDGE_CLIP;
    double exact[COLUMNS], magnitude[COLUMNS], plain[COLUMNS];
    float *mask = malloc(map * map * sizeof *mask);
    double *probabilities = malloc(map * sizeof *probabilities);
    tool_verdict output = {0}, lse = {0};
    clattn_attention_desc desc = CLATTN_ATTENTION_DESC_INIT;
    clattn_attention_args args = CLATTN_ATTENTION_ARGS_INIT;
    if (mask == NULL || probabilities == NULL) {
        selftest_no_memory(result);
        goto done;
    }
    for (int i = 0; i < (int)map; i++)
        for (int j = 0; j < (int)map; j++) {
            bool near = ref_neighbour(i / width, j / width, height, c->window[0], c->dilation[0], clip) &&
                        ref_neighbour(i % width, j % width, width, c->window[1], c->dilation[1], clip);
            mask[i * (int)map + j] = near ? c->bias ? floats(&p->in[NEAR_BIAS])[j] : 0.0f : -INFINITY;
        }
    desc.query = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, c->heads, map, c->d_k);
    desc.key = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, c->kv_heads, map, c->d_k);
    desc.value = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, c->kv_heads, map, c->d_v);
    desc.output = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, c->heads, map, c->d_v);
    desc.mask = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (size_t[]){map, map});
    args.batch = 1;
    args.query_length = args.key_length = map;
    ref_attention_problem reference = {.desc = &desc, .args = &args};
    reference.data.query = p->in[NEAR_QUERY].memory;
    reference.data.key = p->in[NEAR_KEY].memory;
    reference.data.value = p->in[NEAR_VALUE].memory;
    reference.data.mask = mask;
    for (size_t n = 0; n < c->heads * map; n++) {
        ref_attention_result row = {.output = exact, .magnitude = magnitude, .probabilities = probabilities};
        ref_attention_result naive = {.output = plain, .probabilities = probabilities};
        reference.narrow = false;
        ref_attention_row(&reference, 0, (int64_t)(n / map), (int64_t)(n % map), &row);
        reference.narrow = true;
        ref_attention_row(&reference, 0, (int64_t)(n / map), (int64_t)(n % map), &naive);
        for (size_t d = 0; d < c->d_v; d++)
            verdict_add(&output, floats(&p->out[0])[n * c->d_v + d], exact[d], (float)plain[d], magnitude[d]);
        verdict_add(&lse, floats(&p->out[1])[n], row.lse, (float)naive.lse, 1 + fabs(row.lse));
    }
    selftest_judge(result, &output, "output");
    selftest_judge(result, &lse, "log-sum-exp");
done:
    free(mask);
    free(probabilities);
}

static void run_neighbourhood(tool_device *device, size_t index, const char *solver, const char **name,
                              case_result *result)
{
    const struct neighbourhood_case *c = &neighbourhood_cases[index];
    clattn_neighbourhood_desc desc = CLATTN_NEIGHBOURHOOD_DESC_INIT;
    clattn_plan_options options = job_options(solver);
    probe p = {0};
    *name = c->name;
    probe_input(&p, NEAR_QUERY, 5, (size_t[]){1, c->heads, c->height, c->width, c->d_k}, 1.0f);
    probe_input(&p, NEAR_KEY, 5, (size_t[]){1, c->kv_heads, c->height, c->width, c->d_k}, 1.0f);
    probe_input(&p, NEAR_VALUE, 5, (size_t[]){1, c->kv_heads, c->height, c->width, c->d_v}, 1.0f);
    if (c->bias)
        probe_input(&p, NEAR_BIAS, 4, (size_t[]){1, 1, c->height, c->width}, 2.0f);
    desc.edge = c->edge;
    memcpy(desc.window, c->window, sizeof desc.window);
    memcpy(desc.dilation, c->dilation, sizeof desc.dilation);
    desc.query = probe_layout(&p, NEAR_QUERY);
    desc.key = probe_layout(&p, NEAR_KEY);
    desc.value = probe_layout(&p, NEAR_VALUE);
    desc.bias = probe_layout(&p, NEAR_BIAS);
    desc.output = clattn_layout_contiguous(CLATTN_DTYPE_F32, 5, (size_t[]){1, c->heads, c->height, c->width, c->d_v});
    desc.lse = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, (size_t[]){1, c->heads, c->height, c->width});
    probe_output(&p, 0, &desc.output);
    probe_output(&p, 1, &desc.lse);
    if (probe_ready(&p, result)) {
        clattn_neighbourhood_args *args = &p.job.args.neighbourhood;
        job_begin(&p.job, device, enqueue_neighbourhood);
        clattn_neighbourhood_args_init(args);
        clattn_status status = clattn_neighbourhood_plan_create(device->context, &desc, &options, &p.job.plan);
        status = probe_bind_input(&p, status, NEAR_QUERY, &args->query);
        status = probe_bind_input(&p, status, NEAR_KEY, &args->key);
        status = probe_bind_input(&p, status, NEAR_VALUE, &args->value);
        status = probe_bind_input(&p, status, NEAR_BIAS, &args->bias);
        status = probe_bind_output(&p, status, 0, &args->output);
        status = probe_bind_output(&p, status, 1, &args->lse);
        if (selftest_run(&p.job, job_finish(&p.job, status), solver, p.out, 2, result))
            verify_neighbourhood(c, &p, result);
    }
    probe_release(&p);
}

static const char *const generic_solvers[] = {"generic", NULL};
static const char *const neighbourhood_solvers[] = {"cpu", "generic", NULL};

const selftest_operator selftest_merge = {"merge", generic_solvers, COUNT(merge_cases), run_merge};
const selftest_operator selftest_kv_append = {"kv_append", generic_solvers, COUNT(append_cases), run_kv_append};
const selftest_operator selftest_neighbourhood = {"neighbourhood", neighbourhood_solvers, COUNT(neighbourhood_cases),
                                                  run_neighbourhood};
