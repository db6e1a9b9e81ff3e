/* 2-D convolution: makes arrays and a plan of a table row, and compares the result with a reference that hands every
 * element of the picture to the outputs that need it. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/ops/conv2d_case.h"
#include "support/reference.h"
#include "support/verdict.h"

static const char *const solvers[] = {"generic", "cpu"};

enum { X, WEIGHT, BIAS, OPERAND }; /* of job.input */

/* What a case's zeros stand for. */
typedef struct sizes {
    size_t batch, actual_batch, groups, in_channels, out_channels; /* channels of a group */
    size_t stride[2], dilation[2], out[2];
} sizes;

static sizes sizes_of(const conv2d_case *t)
{
    sizes s = {.batch = t->empty ? 0 : t->batch ? t->batch : 1, .groups = t->groups ? (size_t)t->groups : 1};

    s.actual_batch = t->explicit_batch ? t->actual_batch : s.batch;
    s.in_channels = t->channels / s.groups;
    s.out_channels = t->outputs / s.groups;
    for (int i = 0; i < 2; i++) {
        s.stride[i] = t->stride[i] ? (size_t)t->stride[i] : 1;
        s.dilation[i] = t->dilation[i] ? (size_t)t->dilation[i] : 1;
        /* Outputs are counted one by one, without the header's formula. */
        for (size_t at = 0;
             at + s.dilation[i] * (t->kernel[i] - 1) < t->in[i] + (size_t)t->padding[i] + (size_t)t->padding[2 + i];
             at += s.stride[i]) {
            s.out[i]++;
        }
    }
    return s;
}

/* An array of these extents; if `last`, the second dimension is the innermost one in memory. */
static test_array array_of(test_job *job, array_role role, clattn_dtype type, const size_t extent[4], bool last,
                           array_form form)
{
    if (!last) {
        return job_array(job, role, type, 4, extent, form);
    }
    test_array array = job_array(job, role, type, 4, (size_t[]){extent[0], extent[2], extent[3], extent[1]}, form);
    const clattn_layout inner = array.layout;
    static const int from[4] = {0, 3, 1, 2};
    for (int i = 0; i < 4; i++) {
        array.layout.extent[i] = inner.extent[from[i]];
        array.layout.stride[i] = inner.stride[from[i]];
    }
    return array;
}

static void fill_desc(clattn_conv2d_desc *desc, const conv2d_case *t)
{
    desc->groups = t->groups;
    memcpy(desc->stride, t->stride, sizeof desc->stride);
    memcpy(desc->dilation, t->dilation, sizeof desc->dilation);
    memcpy(desc->padding, t->padding, sizeof desc->padding);
    desc->activation = t->activation;
    desc->explicit_alpha = t->alpha < 0 || t->alpha > 0;
    desc->alpha = t->alpha;
    if (t->operand == CONV2D_MULTIPLY) {
        desc->operand_use = CLATTN_MATMUL_OPERAND_USE_MULTIPLY;
    }
}

clattn_conv2d_desc conv2d_contiguous(const conv2d_case *t)
{
    const sizes s = sizes_of(t);
    clattn_conv2d_desc desc = CLATTN_CONV2D_DESC_INIT;

    fill_desc(&desc, t);
    desc.x = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, (size_t[]){s.batch, t->channels, t->in[0], t->in[1]});
    desc.weight = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4,
                                           (size_t[]){t->outputs, s.in_channels, t->kernel[0], t->kernel[1]});
    desc.y = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, (size_t[]){s.batch, t->outputs, s.out[0], s.out[1]});
    if (t->bias) {
        desc.bias = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, &t->outputs);
    }
    if (t->operand) {
        desc.operand = desc.y;
    }
    return desc;
}

static bool make(test_job *job, const void *which, const char *solver)
{
    const conv2d_case *t = which;
    const sizes s = sizes_of(t);
    const size_t x[4] = {s.batch, t->channels, t->in[0], t->in[1]};
    const size_t weight[4] = {t->outputs, s.in_channels, t->kernel[0], t->kernel[1]};
    const size_t y[4] = {s.batch, t->outputs, s.out[0], s.out[1]};
    const size_t operand[4] = {t->shared_operand ? 1 : s.batch, y[1], y[2], y[3]};
    const size_t owned[4] = {s.actual_batch, y[1], y[2], y[3]};
    const array_form out = t->form >= FORM_SHARED_FIRST ? FORM_PLAIN : t->form;
    clattn_conv2d_desc desc = CLATTN_CONV2D_DESC_INIT;
    clattn_conv2d_args *args = &job->args.conv2d;

    job->input[X] = array_of(job, ROLE_INPUT, t->type.x, x, t->x_last, t->form);
    job->input[WEIGHT] = array_of(job, ROLE_INPUT, t->type.weight, weight, t->weight_last, FORM_PLAIN);
    job_fill(&job->input[X], 21, -1, 1, false);
    job_fill(&job->input[WEIGHT], 22, -1, 1, false);
    if (t->bias) {
        job->input[BIAS] = job_array(job, ROLE_INPUT, t->type.bias, 1, &t->outputs, FORM_SPREAD);
        job_fill(&job->input[BIAS], 23, -1, 1, false);
    }
    job->output[0] = array_of(job, t->in_place ? ROLE_IN_PLACE : ROLE_OUTPUT, t->type.y, y, t->y_last, out);
    array_own(&job->output[0], owned);
    if (t->in_place) {
        job_fill(&job->output[0], 24, -1, 1, false);
        job->input[OPERAND] = job->output[0];
    } else if (t->operand) {
        job->input[OPERAND] = array_of(job, ROLE_INPUT, t->type.operand, operand, t->y_last, FORM_PLAIN);
        job_fill(&job->input[OPERAND], 24, -1, 1, false);
    }
    fill_desc(&desc, t);
    clattn_conv2d_args_init(args);
    array_bind(&job->input[X], &desc.x, &args->x);
    array_bind(&job->input[WEIGHT], &desc.weight, &args->weight);
    array_bind(&job->input[BIAS], &desc.bias, &args->bias);
    array_bind(&job->input[OPERAND], &desc.operand, &args->operand);
    array_bind(&job->output[0], &desc.y, &args->y);
    args->explicit_batch = t->explicit_batch;
    args->batch = t->actual_batch;
    return job_plan(job, &conv2d_operator, &desc, solver,
                    t->refused_by_cpu && strcmp(solver, "cpu") == 0 ? JOB_REFUSED : JOB_TAKEN);
}

/* ---- the verdict ---- */

static double as_float(double x)
{
    return (double)(float)x;
}

/* Finds the output along a dimension that needs the input at `at` for a tap; false if there is none. */
static bool output_of(const conv2d_case *t, const sizes *s, int dimension, size_t at, size_t tap, size_t *out)
{
    const size_t from = at + (size_t)t->padding[dimension], back = tap * s->dilation[dimension];

    *out = from < back ? 0 : (from - back) / s->stride[dimension];
    return from >= back && (from - back) % s->stride[dimension] == 0 && *out < s->out[dimension];
}

/* Adds the products of one element of the picture, of group `group`, to each output channel of the group. */
static void hand_out(const conv2d_case *t, const sizes *s, size_t n, size_t c, const size_t at[2], double x,
                     const double *weight, job_result *v)
{
    const size_t group = c / s->in_channels, taps = t->kernel[0] * t->kernel[1];

    for (size_t tap = 0; tap < taps; tap++) {
        size_t i, j;
        if (!output_of(t, s, 0, at[0], tap / t->kernel[1], &i) || !output_of(t, s, 1, at[1], tap % t->kernel[1], &j)) {
            continue;
        }
        for (size_t o = group * s->out_channels; o < (group + 1) * s->out_channels; o++) {
            const size_t to = ((n * t->outputs + o) * s->out[0] + i) * s->out[1] + j;
            const double product = x * weight[(o * s->in_channels + c % s->in_channels) * taps + tap];
            v->reference[to] += product;
            v->naive[to] = as_float(v->naive[to] + as_float(product));
            v->magnitude[to] += fabs(product);
        }
    }
}

/* Applies bias, activation and operand, exactly and with every step rounded to float. */
static void finish(const test_job *job, const conv2d_case *t, job_result *v)
{
    size_t at[4] = {0};

    for (size_t n = 0; n < v->count; n++) {
        double *exact = &v->reference[n], *naive = &v->naive[n], *size = &v->magnitude[n];
        if (t->bias) {
            double bias = array_get(&job->input[BIAS], &at[1]);
            *exact += bias;
            *naive = as_float(*naive + bias);
            *size += fabs(bias);
        }
        if (t->activation) {
            double alpha = reference_alpha(t->activation, t->alpha < 0 || t->alpha > 0, t->alpha);
            *exact = reference_activation(t->activation, alpha, *exact);
            *naive = as_float(reference_activation(t->activation, alpha, *naive));
            *size = reference_steepness(t->activation, alpha) * *size + fabs(*exact) +
                    (double)FLT_MIN / (8 * (double)FLT_EPSILON);
        }
        if (t->operand) {
            const size_t place[4] = {t->shared_operand ? 0 : at[0], at[1], at[2], at[3]};
            double operand = array_get(&job->input[OPERAND], place);
            *exact = t->operand == CONV2D_ADD ? *exact + operand : *exact * operand;
            *naive = as_float(t->operand == CONV2D_ADD ? *naive + operand : *naive * operand);
            *size = t->operand == CONV2D_ADD ? *size + fabs(operand) : *size * fabs(operand);
        }
        array_next(4, v->extent, at);
    }
}

static void refer(const test_job *job, const void *which, job_result *result)
{
    const conv2d_case *t = which;
    const sizes s = sizes_of(t);
    const size_t x_extent[4] = {s.actual_batch, t->channels, t->in[0], t->in[1]};
    const size_t weight_extent[4] = {t->outputs, s.in_channels, t->kernel[0], t->kernel[1]};
    const size_t elements = array_count(4, x_extent);
    double *x = array_dense(&job->input[X], 4, x_extent), *weight = array_dense(&job->input[WEIGHT], 4, weight_extent);
    size_t at[4] = {0};

    *result = result_of("y", &job->output[0]);
    result->naive = zeros(result->count);
    for (size_t e = 0; e < elements; e++) {
        hand_out(t, &s, at[0], at[1], &at[2], x[e], weight, result);
        array_next(4, x_extent, at);
    }
    finish(job, t, result);
    free(x);
    free(weight);
}

static bool inject(test_job *job, const void *which)
{
    const conv2d_case *t = which;
    const sizes s = sizes_of(t);
    test_array *x = &job->input[X], *bias = &job->input[BIAS];

    if (t->inject == CONV2D_X_NAN) {
        array_set(x, (size_t[]){0, t->channels - 1, t->in[0] / 2, t->in[1] / 2}, NAN);
    } else if (t->inject == CONV2D_BIAS_INF) {
        array_set(bias, (size_t[]){t->outputs - 1}, INFINITY);
        array_upload(bias);
    } else if (t->inject == CONV2D_BEYOND) {
        size_t at[4] = {0};
        do {
            if (at[0] >= s.actual_batch) {
                array_set(x, at, NAN);
            }
        } while (array_next(4, x->layout.extent, at));
    }
    array_upload(x);
    return t->inject;
}

static void check(const void *test, const char *solver)
{
    static const job_checker checker = {.make = make, .refer = refer, .inject = inject};
    job_check(&checker, test, solver);
}

void conv2d_add(const conv2d_case *cases, size_t count)
{
    for (size_t n = 0; n < COUNT_OF(solvers); n++) {
        for (size_t i = 0; i < count; i++) {
            const conv2d_case *t = &cases[i];

            if (t->levels & level()) {
                suite_add_case(check, t, solvers[n], "conv2d %s: %s, %zux%zux%zu to %zu, kernel %zux%zu", solvers[n],
                               t->rule, t->channels, t->in[0], t->in[1], t->outputs, t->kernel[0], t->kernel[1]);
            }
        }
    }
}
