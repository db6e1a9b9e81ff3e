/* Multi-head attention: makes arrays and a plan of a table row, and compares the result with a reference. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/ops/mha_case.h"
#include "support/verdict.h"

const char *const mha_solvers[MHA_SOLVERS] = {"generic", "cpu", "tile"};

enum { X, CONTEXT, CONTEXT_VALUE, W_IN, W_Q, W_K, W_V, W_O, B_IN, B_Q, B_K, B_V, B_O, MASK, INPUTS }; /* of job.input */
enum { Y, WEIGHTS }; /* of job.output */

/* A case with its zeros replaced by what they mean, and the lengths that count at enqueue. */
typedef struct sizes {
    size_t keys, kv_heads, size, inner, inner_kv, d_context, d_context_value;
    size_t batch, actual_queries, actual_keys;
} sizes;

static sizes sizes_of(const mha_case *t)
{
    sizes s = {.keys = t->cross ? t->keys : t->queries,
               .kv_heads = t->kv_heads ? t->kv_heads : t->heads,
               .size = t->head_size ? t->head_size : t->d_model / t->heads,
               .d_context = t->d_context ? t->d_context : t->d_model};

    s.d_context_value = t->d_context_value ? t->d_context_value : s.d_context;
    s.inner = t->heads * s.size;
    s.inner_kv = s.kv_heads * s.size;
    s.batch = t->shorter ? t->actual.batch : t->batch;
    s.actual_queries = t->shorter ? t->actual.queries : t->queries;
    s.actual_keys = !t->cross ? s.actual_queries : t->shorter ? t->actual.keys : t->keys;
    return s;
}

/* ---- making the job ---- */

static void make(test_job *job, const mha_case *t, int which, uint64_t salt, float limit, size_t a, size_t b, size_t c)
{
    size_t extent[3] = {a, b, c};
    int skip = a ? 0 : b ? 1 : 2;

    job->input[which] = job_array(job, ROLE_INPUT, t->type, 3 - skip, extent + skip, FORM_PLAIN);
    job_fill(&job->input[which], salt * INPUTS + (uint64_t)which, -limit, limit, false);
}

static void make_arrays(test_job *job, const mha_case *t, const sizes *s, uint64_t salt)
{
    size_t mask[4] = {t->batch, t->heads, t->queries, s->keys};
    size_t y[3] = {t->batch, t->queries, t->d_model}, weights[4];
    bool average = t->weights == CLATTN_WEIGHTS_OUTPUT_AVERAGE;
    float in = sqrtf(3.0f / (float)t->d_model), out = sqrtf(3.0f / (float)s->inner); /* scales that keep the variance */

    make(job, t, X, salt, 2, t->batch, t->queries, t->d_model);
    if (t->cross) {
        make(job, t, CONTEXT, salt, 2, t->batch, s->keys, s->d_context);
    }
    if (t->d_context_value) {
        make(job, t, CONTEXT_VALUE, salt, 2, t->batch, s->keys, s->d_context_value);
    }
    if (t->packed) {
        make(job, t, W_IN, salt, in, 0, 3 * s->inner, t->d_model);
    } else {
        make(job, t, W_Q, salt, in, 0, s->inner, t->d_model);
        make(job, t, W_K, salt, in, 0, s->inner_kv, s->d_context);
        make(job, t, W_V, salt, in, 0, s->inner_kv, s->d_context_value);
    }
    make(job, t, W_O, salt, out, 0, t->d_model, s->inner);
    if (t->bias_in && t->packed) {
        make(job, t, B_IN, salt, 1, 0, 0, 3 * s->inner);
    } else if (t->bias_in) {
        make(job, t, B_Q, salt, 1, 0, 0, s->inner);
        make(job, t, B_K, salt, 1, 0, 0, s->inner_kv);
        make(job, t, B_V, salt, 1, 0, 0, s->inner_kv);
    }
    if (t->bias_out) {
        make(job, t, B_O, salt, 1, 0, 0, t->d_model);
    }
    job->input[MASK] = job_mask(job, t->mask, CLATTN_DTYPE_F32, t->mask_rank ? t->mask_rank : 4,
                                t->mask_rank ? t->mask_extent : mask, FORM_PLAIN, salt * INPUTS + MASK);
    job->output[Y] = job_array(job, ROLE_OUTPUT, t->type, 3, y, FORM_PLAIN);
    array_own(&job->output[Y], (size_t[]){s->batch, s->actual_queries, t->d_model});
    if (t->weights) {
        memcpy(weights, average ? (size_t[]){t->batch, t->queries, s->keys, 0} : mask, sizeof weights);
        job->output[WEIGHTS] = job_array(job, ROLE_OUTPUT, CLATTN_DTYPE_F32, average ? 3 : 4, weights, FORM_PLAIN);
        memcpy(weights,
               average ? (size_t[]){s->batch, s->actual_queries, s->actual_keys, 0}
                       : (size_t[]){s->batch, t->heads, s->actual_queries, s->actual_keys},
               sizeof weights);
        array_own(&job->output[WEIGHTS], weights);
    }
}

static void bind(const test_job *job, clattn_mha_args *args)
{
    clattn_binding *to[INPUTS] = {&args->x,   &args->context, &args->context_value, &args->w_in, &args->w_q,
                                  &args->w_k, &args->w_v,     &args->w_o,           &args->b_in, &args->b_q,
                                  &args->b_k, &args->b_v,     &args->b_o,           &args->mask};
    for (int which = 0; which < INPUTS; which++) {
        *to[which] = array_binding(&job->input[which]);
    }
    args->y = array_binding(&job->output[Y]);
    args->weights = array_binding(&job->output[WEIGHTS]);
}

void mha_job(test_job *job, const mha_case *t, const char *solver, uint64_t salt)
{
    clattn_mha_desc desc = CLATTN_MHA_DESC_INIT;
    clattn_mha_args args = CLATTN_MHA_ARGS_INIT;
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    sizes s = sizes_of(t);
    char expected[64];

    make_arrays(job, t, &s, salt);
    desc.dtype = t->type;
    desc.cross = t->cross;
    desc.packed_weights = t->packed;
    desc.bias_in = t->bias_in;
    desc.bias_out = t->bias_out;
    desc.causal = t->causal;
    desc.alignment = t->alignment;
    desc.explicit_scale = t->scaled;
    desc.scale = t->scale;
    desc.weights = t->weights;
    desc.batch = t->batch;
    desc.query_length = t->queries;
    desc.key_length = t->keys;
    desc.d_model = t->d_model;
    desc.heads = t->heads;
    desc.kv_heads = t->kv_heads;
    desc.head_size = t->head_size;
    desc.d_context = t->d_context;
    desc.d_context_value = t->d_context_value;
    desc.mask = job->input[MASK].layout;
    bind(job, &args);
    args.explicit_lengths = t->shorter;
    args.batch = t->actual.batch;
    args.query_length = t->actual.queries;
    args.key_length = t->actual.keys;
    args.position = t->position;
    job->args.mha = args;
    job->calls = &mha_operator;
    options.solver = solver;
    assert_status(device_context(), clattn_mha_plan_create(device_context(), &desc, &options, &job->plan),
                  CLATTN_SUCCESS);
    snprintf(expected, sizeof expected, "+%s+", solver); /* the projections are the plan's own choice */
    if (!strstr(clattn_plan_solver(job->plan), expected)) {
        fail_msg("the plan is by %s, expected %s inside", clattn_plan_solver(job->plan), expected);
    }
}

static bool make_job(test_job *job, const void *test, const char *solver)
{
    if (device_breaks(solver)) {
        printf("# refused\n"); /* tests/platforms.py counts these, of the test that is reported next */
        return false;
    }
    mha_job(job, test, solver, 1);
    return true;
}

/* ---- the reference ---- */

/* Returns a number between two kernels, which the naive computation rounds to the case's type. */
static double kept(const mha_case *t, bool narrow, double value)
{
    return narrow ? storage_round(t->type ? t->type : CLATTN_DTYPE_F32, value) : value;
}

/* Computes rows (batch, length, in) times a weight (heads * size, in), plus bias, as (batch, heads, length, size). */
static double *project(const mha_case *t, const double *rows, const double *weight, const double *bias, size_t batch,
                       size_t length, size_t in, size_t heads, size_t size, bool narrow)
{
    size_t out = heads * size;
    double *flat = zeros(length * out), *result = zeros(batch * length * out);

    for (size_t b = 0; b < batch; b++) {
        reference_matmul(length, out, in, rows + b * length * in, weight, 1, in, bias, narrow, flat, NULL);
        for (size_t i = 0; i < length * out; i++) {
            size_t row = i / out, h = i % out / size;
            result[((b * heads + h) * length + row) * size + i % size] = kept(t, narrow, flat[i]);
        }
    }
    free(flat);
    return result;
}

static void average(const sizes *s, size_t heads, bool narrow, const double *each, const double *each_magnitude,
                    double *mean, double *magnitude)
{
    size_t plane = s->actual_queries * s->actual_keys;

    for (size_t i = 0; i < s->batch * plane; i++) {
        mean[i] = 0;
        magnitude[i] = EXACT_ZERO;
        for (size_t h = 0; h < heads; h++) {
            size_t at = (i / plane * heads + h) * plane + i % plane;
            mean[i] = narrow ? (double)(float)(mean[i] + each[at]) : mean[i] + each[at];
            if (each_magnitude[at] != EXACT_ZERO) {
                magnitude[i] = fmax(0, magnitude[i]) + each_magnitude[at] / (double)heads;
            }
        }
        mean[i] /= (double)heads;
    }
}

/* Dense inputs of the actual lengths, and the projections' weights whether packed or not. */
typedef struct operands {
    double *dense[INPUTS], *addend;
    const double *weight[3], *bias[3];
} operands;

static operands gather(const test_job *job, const mha_case *t, const sizes *s)
{
    int64_t position = t->alignment == CLATTN_ALIGNMENT_TOP_LEFT ? 0
                       : t->alignment == CLATTN_ALIGNMENT_EXPLICIT
                           ? t->position
                           : (int64_t)s->actual_keys - (int64_t)s->actual_queries;
    operands o = {0};

    for (int which = X; which < MASK; which++) {
        const clattn_layout *layout = &job->input[which].layout;
        bool is_weight = which > CONTEXT_VALUE;
        const size_t actual[3] = {s->batch, which == X ? s->actual_queries : s->actual_keys, layout->extent[2]};
        if (job->input[which].memory) {
            o.dense[which] = array_dense(&job->input[which], layout->rank, is_weight ? layout->extent : actual);
        }
    }
    o.addend =
        reference_addend(&job->input[MASK], t->causal, position, s->batch, t->heads, s->actual_queries, s->actual_keys);
    for (size_t part = 0; part < 3; part++) {
        o.weight[part] = t->packed ? o.dense[W_IN] + part * s->inner * t->d_model : o.dense[W_Q + part];
        o.bias[part] = t->bias_in && t->packed ? o.dense[B_IN] + part * s->inner : o.dense[B_Q + part];
    }
    return o;
}

static void operands_release(operands *o)
{
    for (int which = 0; which < INPUTS; which++) {
        free(o->dense[which]);
    }
    free(o->addend);
}

/* Computes the references, or the naive ones if `narrow`, and the magnitudes. */
static void reference_mha(const mha_case *t, const sizes *s, const operands *o, bool narrow, const job_result *y,
                          const job_result *weights)
{
    bool mean = t->weights == CLATTN_WEIGHTS_OUTPUT_AVERAGE;
    size_t keys = s->actual_keys, queries = s->actual_queries, rows = s->batch * t->heads * queries;
    const double *context = t->cross ? o->dense[CONTEXT] : o->dense[X];
    const double *context_value = t->d_context_value ? o->dense[CONTEXT_VALUE] : context;
    double *query =
        project(t, o->dense[X], o->weight[0], o->bias[0], s->batch, queries, t->d_model, t->heads, s->size, narrow);
    double *key =
        project(t, context, o->weight[1], o->bias[1], s->batch, keys, s->d_context, s->kv_heads, s->size, narrow);
    double *value = project(t, context_value, o->weight[2], o->bias[2], s->batch, keys, s->d_context_value, s->kv_heads,
                            s->size, narrow);
    reference_problem p = {.batch = s->batch,
                           .heads = t->heads,
                           .kv_heads = s->kv_heads,
                           .queries = queries,
                           .keys = keys,
                           .d_k = s->size,
                           .d_v = s->size,
                           .scale = t->scaled ? t->scale : 1 / sqrt((double)s->size),
                           .query = query,
                           .key = key,
                           .value = value,
                           .addend = o->addend};
    double *heads = zeros(rows * s->size), *joined = zeros(rows * s->size);
    double *weights_out = narrow ? weights->naive : weights->reference;
    double *each = mean ? zeros(rows * keys) : weights_out;
    double *each_magnitude = mean ? zeros(rows * keys) : weights->magnitude;

    reference_attention(&p, narrow,
                        &(reference_result){.output = heads, .weights = each, .weights_magnitude = each_magnitude});
    for (size_t i = 0; i < rows * s->size; i++) {
        size_t d = i % s->size, row = i / s->size % queries, h = i / s->size / queries % t->heads;
        size_t b = i / s->size / queries / t->heads;
        joined[((b * queries + row) * t->heads + h) * s->size + d] = kept(t, narrow, heads[i]);
    }
    reference_matmul(s->batch * queries, t->d_model, s->inner, joined, o->dense[W_O], 1, s->inner, o->dense[B_O],
                     narrow, narrow ? y->naive : y->reference, y->magnitude);
    if (mean) {
        average(s, t->heads, narrow, each, each_magnitude, weights_out, weights->magnitude);
        free(each);
        free(each_magnitude);
    }
    double *spent[] = {query, key, value, heads, joined};
    for (size_t i = 0; i < COUNT_OF(spent); i++) {
        free(spent[i]);
    }
}

static void refer(const test_job *job, const void *which, job_result *result)
{
    const mha_case *t = which;
    const sizes s = sizes_of(t);
    operands o = gather(job, t, &s);

    result[Y] = result_of("y", &job->output[Y]);
    result[WEIGHTS] = result_of("weights", &job->output[WEIGHTS]);
    result[Y].naive = zeros(result[Y].count);
    result[WEIGHTS].naive = t->weights ? zeros(result[WEIGHTS].count) : NULL;
    reference_mha(t, &s, &o, true, &result[Y], &result[WEIGHTS]);
    reference_mha(t, &s, &o, false, &result[Y], &result[WEIGHTS]); /* whose magnitudes remain */
    operands_release(&o);
}

static void check(const void *test, const char *solver)
{
    static const job_checker checker = {.make = make_job, .refer = refer};
    job_check(&checker, test, solver);
}

void mha_add(const mha_case *cases, size_t count)
{
    for (int n = 0; n < MHA_SOLVERS; n++) {
        for (size_t i = 0; i < count; i++) {
            const mha_case *t = &cases[i];

            if (t->levels & level()) {
                suite_add_case(check, t, mha_solvers[n], "mha %s: %s, %zu x %zux%zu, %zu/%zu", mha_solvers[n], t->rule,
                               t->batch, t->queries, t->cross ? t->keys : t->queries, t->d_model, t->heads);
            }
        }
    }
}
