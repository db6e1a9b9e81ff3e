/* The self-check of attention's backward direction: a plan's own kernels on a small problem of the same kind, against gradients in
 * double precision, in every element. */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "base/convert.h"
#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "ops/attention/backward/backward.h"
#include "ops/attention/check.h"
#include "ops/common/arrays.h"

#define QUERIES 37
#define KEYS 99
#define LARGE_SIZES 1024 /* d_k + d_v; above it there are fewer */
#define LARGE_QUERIES 5
#define LARGE_KEYS 11

/* A gradient of the small problem, and what it should be, element for element of its memory. */
struct gradient_check {
    struct check_array array;
    double *exact, *magnitude;
};

struct backward_check {
    struct attention_check forward;
    struct gradient_check gradients[ATTENTION_GRADIENTS];
    double *query, *key, *value; /* the same elements as the arrays' */
    ref_attention_problem reference;
    ref_attention_result row; /* of the query at hand */
};

/* ---- the small problem ---- */

static void shrink_gradients(clattn_attention_desc *desc)
{
    for (int i = 0; i < ATTENTION_GRADIENTS; i++) {
        clattn_layout *layout = (clattn_layout *)((char *)desc + attention_gradients[i].layout);
        if (!layout_is_none(layout))
            attention_check_shrink(layout, attention_differentiated(desc, i)->extent);
    }
}

static double *doubles(size_t count)
{
    return calloc(count + 1, sizeof(double));
}

static double *widened(const struct check_array *array, clattn_dtype dtype)
{
    double *made = doubles(array->elements);
    for (size_t i = 0; made && i < array->elements; i++)
        made[i] = ref_element(array->host, dtype, (int64_t)i);
    return made;
}

static clattn_status make_gradients(struct backward_check *check, clattn_context *context)
{
    clattn_status status;
    uint32_t random = CHECK_SEED + 1;
    for (int i = 0; i < ATTENTION_GRADIENTS; i++) {
        const clattn_layout *layout = attention_gradient_layout(&check->forward.small.desc, i);
        struct gradient_check *made = &check->gradients[i];
        if (!check->forward.small.gradient[i])
            continue;
        made->array.place.binding = (clattn_binding *)attention_gradient_binding(&check->forward.args, i);
        TRY(check_array_room(context, layout, &made->array));
        check_array_fill(&made->array, layout->dtype, false, &random);
        TRY(check_array_upload(context, &made->array));
        made->exact =
            i < ATTENTION_INPUT_GRADIENTS ? widened(&made->array, layout->dtype) : doubles(made->array.elements);
        made->magnitude = doubles(made->array.elements);
        if (!made->exact || !made->magnitude)
            return report_error(&context->device.report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a self-check");
    }
    status = CLATTN_SUCCESS;
fail:
    return status;
}

/* ---- what it should give ---- */

static int64_t at(const clattn_layout *layout, int64_t b, int64_t h, int64_t i)
{
    return b * layout->stride[0] + h * layout->stride[1] + i * layout->stride[2];
}

static void add(struct gradient_check *gradient, int64_t place, double x, double magnitude)
{
    gradient->exact[place] += x;
    gradient->magnitude[place] += fabs(magnitude);
}

/* A mask's or bias's gradient gets the derivative by the score of a pair. */
static void add_pair(struct backward_check *check, enum attention_gradient which, const int64_t index[4], double x,
                     double magnitude)
{
    size_t extent[4];
    int64_t stride[4], place = 0;
    if (!check->forward.small.gradient[which])
        return;
    mask_align(attention_gradient_layout(&check->forward.small.desc, which), 4, extent, stride);
    for (int i = 0; i < 4; i++)
        place += stride[i] * (extent[i] == 1 ? 0 : index[i]);
    add(&check->gradients[which], place, x, magnitude);
}

/* A row of a head: where it is in the arrays, and what is known of it. */
struct row_place {
    int64_t b, h, i, group, key; /* group: the key's head, key: the row of key 0 */
    int64_t query, d_output;     /* where its elements begin */
    ref_attention_item item;
    double delta, delta_magnitude;
};

static int64_t key_at(const struct backward_check *check, const clattn_layout *layout, const struct row_place *row,
                      int64_t j)
{
    return at(layout, check->forward.small.packed_keys ? 0 : row->b, row->group, row->key + j);
}

/* Adds what a pair gives to dQ, dK and the gradient of the vector: `g` by the scaled score, times the scale. */
static void add_operands(struct backward_check *check, const struct row_place *row, int64_t j, double g,
                         double magnitude)
{
    const struct attention_problem *small = &check->forward.small;
    const clattn_attention_desc *desc = &small->desc;
    const int64_t key = key_at(check, &desc->key, row, j), b = small->packed_queries ? 0 : row->b;
    const clattn_layout *vector = &desc->scoring.vector;
    for (int64_t d = 0; d < (int64_t)small->d_k; d++) {
        const double x = check->query[row->query + d * desc->query.stride[3]],
                     y = check->key[key + d * desc->key.stride[3]];
        double by_query = y, by_key = x;
        if (small->has[ATTENTION_VECTOR]) {
            const int64_t head = vector->extent[0] == 1 ? 0 : row->h;
            const double t = tanh(x + y);
            by_query = by_key = ((const float *)check->forward.array[ATTENTION_VECTOR]
                                     .host)[head * vector->stride[0] + d * vector->stride[1]] *
                                (1 - t * t);
            if (small->gradient[GRADIENT_VECTOR])
                add(&check->gradients[GRADIENT_VECTOR],
                    head * desc->gradients.vector.stride[0] + d * desc->gradients.vector.stride[1], g * t, magnitude);
        }
        if (small->gradient[GRADIENT_QUERY])
            add(&check->gradients[GRADIENT_QUERY],
                at(&desc->gradients.query, b, row->h, row->item.query_row + row->i) +
                    d * desc->gradients.query.stride[3],
                g * by_query, magnitude * (fabs(by_query) + FLT_EPSILON));
        if (small->gradient[GRADIENT_KEY])
            add(&check->gradients[GRADIENT_KEY],
                key_at(check, &desc->gradients.key, row, j) + d * desc->gradients.key.stride[3], g * by_key,
                magnitude * (fabs(by_key) + FLT_EPSILON));
    }
}

static void add_key(struct backward_check *check, const struct row_place *row, int64_t j)
{
    const struct attention_problem *small = &check->forward.small;
    const clattn_attention_desc *desc = &small->desc;
    const double *d_output = check->gradients[GRADIENT_OUTPUT].exact + row->d_output, p = check->row.probabilities[j];
    const int64_t value = key_at(check, &desc->value, row, j), step = desc->gradients.output.stride[3];
    const double dropout = (double)desc->dropout.probability;
    double keep = 1 / (1 - dropout), product = 0, size = 0, slope = 1;
    if (p == 0)
        return;
    if (dropout > 0 && !clattn_dropout_keep(check->forward.args.dropout.seed, check->forward.args.dropout.offset,
                                            desc->dropout.probability, (uint32_t)small->heads, (uint32_t)row->b,
                                            (uint32_t)row->h, (uint32_t)row->i, (uint32_t)j))
        keep = 0;
    for (int64_t c = 0; c < (int64_t)small->d_v; c++) {
        const double x = keep * d_output[c * step] * check->value[value + c * desc->value.stride[3]];
        product += x;
        size += fabs(x);
        if (small->gradient[GRADIENT_VALUE])
            add(&check->gradients[GRADIENT_VALUE],
                key_at(check, &desc->gradients.value, row, j) + c * desc->gradients.value.stride[3],
                p * keep * d_output[c * step], p * keep * d_output[c * step]);
    }
    const double ds = p * (product - row->delta), magnitude = p * (size + row->delta_magnitude);
    if (desc->scoring.softcap > 0) {
        const double share =
            ref_attention_score(&check->reference, CLATTN_SCORES_MODE_CAPPED, row->b, row->h, row->i, j) /
            (double)desc->scoring.softcap;
        slope = 1 - share * share;
    }
    const int64_t pair[4] = {row->b, row->h, row->i, j};
    add_pair(check, GRADIENT_MASK, pair, ds, magnitude);
    add_pair(check, GRADIENT_BIAS, pair, ds, magnitude);
    if (small->gradient[GRADIENT_ALIBI]) {
        const clattn_layout *alibi = &desc->gradients.alibi;
        const double distance = fabs((double)(row->i + row->item.position - j));
        const int64_t batch = alibi->rank == 2 && alibi->extent[0] != 1 ? row->b * alibi->stride[0] : 0;
        add(&check->gradients[GRADIENT_ALIBI], batch + row->h * alibi->stride[alibi->rank - 1], -ds * distance,
            magnitude * distance);
    }
    add_operands(check, row, j, ds * slope * small->exact_scale, magnitude * fabs(small->exact_scale));
}

/* Computes a row forward, stores its output and log-sum-exp, and adds what it gives to the gradients. */
static void add_row(struct backward_check *check, struct row_place *row)
{
    const struct attention_problem *small = &check->forward.small;
    const clattn_attention_desc *desc = &small->desc;
    struct check_array *output = &check->forward.array[CHECK_OUTPUT], *lse = &check->forward.array[ATTENTION_LSE];
    const int64_t b = small->packed_queries ? 0 : row->b, i = row->item.query_row + row->i;
    ref_attention_row(&check->reference, row->b, row->h, row->i, &check->row);
    if (desc->outputs.partial) { /* of as many keys again */
        check->row.lse += log(2);
        for (int64_t j = 0; j < row->item.keys; j++)
            check->row.probabilities[j] /= 2;
    }
    row->group = row->h / (int64_t)(small->heads / small->kv_heads);
    row->key = row->item.key_row;
    row->query = at(&desc->query, b, row->h, i);
    row->d_output = at(&desc->gradients.output, b, row->h, i);
    row->delta = row->delta_magnitude = 0;
    for (int64_t c = 0; c < (int64_t)small->d_v; c++) {
        const int64_t place = at(&desc->output, b, row->h, i) + c * desc->output.stride[3];
        if (desc->output.dtype == CLATTN_DTYPE_F64)
            ((double *)output->host)[place] = check->row.output[c];
        else
            store_element(desc->output.dtype, output->host, (size_t)place, (float)check->row.output[c]);
        const double x = check->gradients[GRADIENT_OUTPUT].exact[row->d_output + c * desc->gradients.output.stride[3]] *
                         ref_element(output->host, desc->output.dtype, place);
        row->delta += x;
        row->delta_magnitude += fabs(x);
    }
    ((float *)lse->host)[at(&desc->outputs.lse, b, row->h, i)] = (float)check->row.lse;
    if (small->gradient[GRADIENT_LSE]) {
        const double x = check->gradients[GRADIENT_LSE].exact[at(&desc->gradients.lse, b, row->h, i)];
        row->delta -= x;
        row->delta_magnitude += fabs(x);
    }
    for (int64_t j = 0; j < row->item.keys; j++)
        add_key(check, row, j);
    if (small->gradient[GRADIENT_SINKS] && check->row.lse != -INFINITY) {
        const double sink = ref_element(check->forward.array[ATTENTION_SINKS].host, CLATTN_DTYPE_F32,
                                        row->h * desc->scoring.sinks.stride[0]);
        const double share = exp(sink - check->row.lse);
        add(&check->gradients[GRADIENT_SINKS], row->h * desc->gradients.sinks.stride[0], -share * row->delta,
            share * row->delta_magnitude);
    }
}

static clattn_status refer(struct backward_check *check, clattn_context *context)
{
    clattn_status status = CLATTN_SUCCESS;
    const struct attention_problem *small = &check->forward.small;
    static const enum attention_check_slot forward[] = {CHECK_OUTPUT, (enum attention_check_slot)ATTENTION_LSE};
    for (int64_t b = 0; b < (int64_t)small->batch; b++)
        for (int64_t h = 0; h < (int64_t)small->heads; h++) {
            struct row_place row = {.b = b, .h = h, .item = ref_attention_item_of(&check->reference, b)};
            for (row.i = 0; row.i < row.item.queries; row.i++)
                add_row(check, &row);
        }
    for (size_t i = 0; i < COUNT_OF(forward); i++) { /* they were uploaded with other contents */
        struct check_array *array = &check->forward.array[forward[i]];
        TRY_CL(&context->device.report, "clReleaseMemObject", context->device.cl.clReleaseMemObject(array->buffer));
        array->buffer = NULL;
        TRY(check_array_upload(context, array));
    }
fail:
    return status;
}

/* ---- the verdict ---- */

/* Which of the plan's kernels writes a gradient. */
static size_t kernel_of(const struct attention_backward_plan *plan, enum attention_gradient gradient)
{
    return plan->kernel[gradient == GRADIENT_QUERY                               ? BACKWARD_ROWS
                        : gradient == GRADIENT_KEY || gradient == GRADIENT_VALUE ? BACKWARD_KEYS
                        : gradient == GRADIENT_MASK || gradient == GRADIENT_BIAS ? BACKWARD_PAIRS
                                                                                 : BACKWARD_SUM];
}

/* Compares the elements of rows that some item owns; packed sequences leave the others as they were. */
static clattn_status judge(const struct backward_check *check, const struct attention_backward_plan *plan,
                           enum attention_gradient which, size_t *blamed)
{
    clattn_status status = CLATTN_SUCCESS;
    const struct attention_problem *small = &check->forward.small;
    const struct gradient_check *gradient = &check->gradients[which];
    const clattn_layout *layout = attention_gradient_layout(&small->desc, which);
    const double state_unit = small->is_double ? DBL_EPSILON : FLT_EPSILON;
    const double unit = layout->dtype == CLATTN_DTYPE_F64 ? DBL_EPSILON : storage_epsilon(layout->dtype);
    const bool is_packed = which == GRADIENT_QUERY                            ? small->packed_queries
                           : which == GRADIENT_KEY || which == GRADIENT_VALUE ? small->packed_keys
                                                                              : false;
    size_t index[CLATTN_MAX_RANK] = {0};
    const size_t count = layout_elements(layout);
    *blamed = kernel_of(plan, which);
    for (size_t n = 0; n < count; n++) {
        int64_t place = 0, shown[4] = {0};
        for (int i = 0; i < layout->rank; i++) {
            place += (int64_t)index[i] * layout->stride[i];
            shown[i] = (int64_t)index[i];
        }
        const double value = ref_element(gradient->array.host, layout->dtype, place), exact = gradient->exact[place];
        if (!is_packed || gradient->magnitude[place] > 0)
            TRY(check_element(&plan->base.context->device.report, plan->base.kernels[*blamed].name,
                              attention_gradients[which].name, shown, value, exact,
                              check_slack(exact, exact, gradient->magnitude[place], state_unit, unit) +
                                  4 * plan->weight_unit * gradient->magnitude[place]));
        for (int i = layout->rank - 1; i >= 0 && ++index[i] == layout->extent[i]; i--)
            index[i] = 0;
    }
fail:
    return status;
}

static void clear(struct backward_check *check)
{
    for (int i = 0; i < ATTENTION_GRADIENTS; i++) {
        free(check->gradients[i].exact);
        free(check->gradients[i].magnitude);
    }
    free(check->query);
    free(check->key);
    free(check->value);
    free(check->row.output);
    free(check->row.probabilities);
    free(check);
}

static clattn_status run(struct backward_check *check, const struct attention_backward_plan *plan, size_t *blamed)
{
    clattn_status status;
    clattn_context *context = plan->base.context;
    struct attention_check *forward = &check->forward;
    const clattn_attention_desc *desc = &forward->small.desc;
    size_t bytes;
    TRY(attention_check_make_arrays(forward, context));
    TRY(make_gradients(check, context));
    check->query = widened(&forward->array[CHECK_QUERY], desc->query.dtype);
    check->key = widened(&forward->array[CHECK_KEY], desc->key.dtype);
    check->value = widened(&forward->array[CHECK_VALUE], desc->value.dtype);
    check->row.output = doubles(forward->small.d_v);
    check->row.probabilities = doubles(forward->args.key_length);
    if (!check->query || !check->key || !check->value || !check->row.output || !check->row.probabilities ||
        !backward_workspace(plan, &forward->small, &bytes))
        return report_error(&context->device.report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a self-check");
    check->reference =
        (ref_attention_problem){.desc = desc, .args = &forward->args, .data = attention_check_data(forward)};
    TRY(refer(check, context));

    struct check_array *workspace = &forward->array[CHECK_WORKSPACE];
    const clattn_layout room = clattn_layout_contiguous(CLATTN_DTYPE_U8, 1, &bytes);
    workspace->place.binding = &forward->args.workspace;
    TRY(check_array_room(context, &room, workspace));
    TRY(check_array_upload(context, workspace));
    TRY(check_enqueue(&plan->base, &forward->small, bytes, &forward->args));
    for (int i = ATTENTION_INPUT_GRADIENTS; i < ATTENTION_GRADIENTS; i++)
        if (forward->small.gradient[i]) {
            TRY(check_array_read(context, &check->gradients[i].array));
            TRY(judge(check, plan, i, blamed));
        }
fail:
    return status;
}

static clattn_status check_small(const struct attention_backward_plan *plan, const clattn_attention_desc *full,
                                 size_t *blamed)
{
    clattn_status status;
    const struct attention_problem *problem = &plan->problem;
    clattn_context *context = plan->base.context;
    const bool large = problem->d_k + problem->d_v > LARGE_SIZES;
    struct backward_check *check = calloc(1, sizeof *check);
    if (!check)
        return report_error(&context->device.report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a self-check");
    struct attention_check *forward = &check->forward;
    clattn_attention_desc desc = *full;
    forward->original = problem;
    forward->keys = large ? LARGE_KEYS : KEYS;
    clattn_attention_args_init(&forward->args);
    forward->args.position = 1;
    forward->args.dropout.seed = 7;
    attention_check_make_small(problem, large ? LARGE_QUERIES : QUERIES, forward->keys, &desc);
    shrink_gradients(&desc);
    TRY(check_begin(context));
    TRY(check_describe(&plan->base, &desc, &forward->small));
    forward->args.batch = forward->small.batch;
    forward->args.query_length = forward->small.query_length;
    forward->args.key_length = forward->small.key_length;
    forward->args.explicit_lengths = 1;
    status = run(check, plan, blamed);
fail:
    for (int i = 0; i < ATTENTION_GRADIENTS; i++)
        check_array_clear(context, &check->gradients[i].array);
    status = check_end(&plan->base, forward->array, CHECK_ARRAYS, status);
    clear(check);
    return status;
}

clattn_status backward_self_check(struct self_check *self)
{
    clattn_status status;
    const struct attention_backward_plan *plan = (const struct attention_backward_plan *)self->plan;
    const struct attention_problem *problem = &plan->problem;
    clattn_attention_desc desc = problem->desc;
    const bool ranged = desc.causal || attention_windowed(&desc);
    self->unchecked = attention_has_snippet(problem) || !problem->heads;
    if (self->unchecked)
        return CLATTN_SUCCESS;
    TRY(check_small(plan, &desc, &self->blamed));
    if (attention_range_by_launch(
            &plan->base.context->device.caps)) { /* the same program has another range of keys, too */
        desc.causal = !ranged;
        desc.window.explicit_left = !ranged;
        desc.window.explicit_right = 0;
        TRY(check_small(plan, &desc, &self->blamed));
    }
fail:
    return status;
}
