#include "nn/train/tape.h"

#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "base/try.h"
#include "nn/train/tape_gradients.h"

void tape_clear(struct tape *tape)
{
    free(tape->gradient);
    free(tape->written);
}

clattn_status tape_no_memory(const struct tape *t)
{
    return report_error(&t->graph->context->device.report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a plan");
}

clattn_status tape_unsupported(const struct tape *t, const char *what)
{
    return report_error(&t->graph->context->device.report, CLATTN_ERROR_UNSUPPORTED, "training: %s has no gradient",
                        what);
}

/* ---- gradients of arrays ---- */

clattn_status tape_reserve(struct tape *t)
{
    const size_t wanted = t->graph->array_count;
    if (wanted <= t->capacity)
        return CLATTN_SUCCESS;
    int *grown = realloc(t->gradient, 2 * wanted * sizeof *grown);
    if (!grown)
        return tape_no_memory(t);
    memset(grown + t->capacity, 0, (2 * wanted - t->capacity) * sizeof *grown);
    t->gradient = grown;
    t->capacity = 2 * wanted;
    return CLATTN_SUCCESS;
}

bool tape_has_gradient(const struct tape *t, struct graph_operand of)
{
    return (size_t)of.array < t->capacity && t->gradient[of.array];
}

struct graph_operand tape_gradient(const struct tape *t, struct graph_operand of)
{
    return (struct graph_operand){t->gradient[of.array], of.offset};
}

bool tape_wants_gradient(const struct tape *t, struct graph_operand of)
{
    return t->graph->arrays[of.array].place == GRAPH_ARENA;
}

clattn_status tape_give_gradient(struct tape *t, struct graph_operand of)
{
    clattn_status status;
    const struct graph_array array = t->graph->arrays[of.array];
    TRY(tape_reserve(t));
    t->gradient[of.array] = graph_arena_array(t->graph, array.dtype, array.bytes / clattn_dtype_size(array.dtype));
    status = t->graph->failed ? tape_no_memory(t) : CLATTN_SUCCESS;
fail:
    return status;
}

/* ---- gradients of weights ---- */

struct graph_operand tape_weight_gradient(const struct tape *t, struct graph_operand weight)
{
    const struct graph_array array = t->graph->arrays[weight.array]; /* a copy: another array may move all of them */
    for (size_t i = 0; i < t->model->buffer_count && array.place == GRAPH_FIXED; i++)
        if (array.fixed.buffer == t->model->buffers[i])
            return (struct graph_operand){graph_bound_array(t->graph, CLATTN_DTYPE_F32, t->slot + (int)i, 0),
                                          array.fixed.offset + weight.offset};
    return operand_of(0);
}

clattn_status tape_note_written(struct tape *t, struct graph_operand gradient, bool *before)
{
    const int slot = t->graph->arrays[gradient.array].slot;
    *before = false;
    for (size_t i = 0; i < t->written_count; i++)
        if (t->written[i].array == slot && t->written[i].offset == gradient.offset)
            *before = true;
    if (*before)
        return CLATTN_SUCCESS;
    struct graph_operand *written = array_grow(t->written, &t->written_capacity, t->written_count, sizeof *written);
    if (!written)
        return tape_no_memory(t);
    t->written = written;
    written[t->written_count++] = (struct graph_operand){slot, gradient.offset};
    return CLATTN_SUCCESS;
}

/* ---- other operators ---- */

static clattn_status norm(struct tape *t, const struct graph_step *s)
{
    clattn_status status;
    const clattn_norm_desc *forward = graph_desc(t->graph, s->plan);
    const struct graph_operand x = s->operand[NORM_X];
    struct graph_step step = {
        .op = GRAPH_NORM, .batch = s->batch, .operand = {[NORM_X] = x, [NORM_SCALE] = s->operand[NORM_SCALE]}};
    clattn_norm_desc desc = *forward;
    /* Heads of queries or keys are columns of a product's rows, which nothing else reads. */
    const bool heads = forward->x.rank > 2;
    bool before;
    if (!tape_has_gradient(t, s->operand[NORM_Y]))
        return CLATTN_SUCCESS;
    if (x.array == s->operand[NORM_Y].array)
        return tape_unsupported(t, "a norm in place");
    desc.direction = CLATTN_DIRECTION_BACKWARD;
    desc.y = desc.bias = (clattn_layout){0};
    desc.gradients.y = forward->y;
    desc.gradients.x = forward->x;
    desc.gradients.scale = as_float32(forward->scale);
    step.operand[NORM_Y_GRADIENT] = tape_gradient(t, s->operand[NORM_Y]);
    step.operand[NORM_SCALE_GRADIENT] = tape_weight_gradient(t, s->operand[NORM_SCALE]);
    TRY(tape_note_written(t, step.operand[NORM_SCALE_GRADIENT], &before));
    if (before)
        return tape_unsupported(t, "a scale that two norms have");
    if (s->operand[NORM_BIAS].array) {
        desc.gradients.bias = as_float32(forward->bias);
        step.operand[NORM_BIAS_GRADIENT] = tape_weight_gradient(t, s->operand[NORM_BIAS]);
    }
    if (!tape_has_gradient(t, x)) {
        TRY(tape_give_gradient(t, x));
    } else if (!heads) {
        desc.gradients.sum = forward->x;
        step.operand[NORM_SUM_GRADIENT] = tape_gradient(t, x);
    }
    step.operand[NORM_X_GRADIENT] = tape_gradient(t, x);
    status = graph_add_operator(t->graph, &step, &desc, NULL);
fail:
    return status;
}

static clattn_status attention(struct tape *t, const struct graph_step *s)
{
    clattn_status status;
    struct graph_step step = *s;
    clattn_attention_desc desc = *(const clattn_attention_desc *)graph_desc(t->graph, s->plan);
    if (!tape_has_gradient(t, s->operand[HEADS_OUTPUT]))
        return CLATTN_SUCCESS;
    for (int i = HEADS_QUERY; i <= HEADS_VALUE; i++)
        if (tape_has_gradient(t, s->operand[i]))
            return tape_unsupported(t, "what two attentions read");
    for (int i = HEADS_QUERY; i <= HEADS_VALUE; i++)
        if (!tape_has_gradient(t, s->operand[i]))
            TRY(tape_give_gradient(t, s->operand[i]));
    desc.direction = CLATTN_DIRECTION_BACKWARD;
    desc.gradients.output = desc.output;
    desc.gradients.query = desc.query;
    desc.gradients.key = desc.key;
    desc.gradients.value = desc.value;
    step.workspace = 0;
    step.operand[HEADS_OUTPUT_GRADIENT] = tape_gradient(t, s->operand[HEADS_OUTPUT]);
    step.operand[HEADS_QUERY_GRADIENT] = tape_gradient(t, s->operand[HEADS_QUERY]);
    step.operand[HEADS_KEY_GRADIENT] = tape_gradient(t, s->operand[HEADS_KEY]);
    step.operand[HEADS_VALUE_GRADIENT] = tape_gradient(t, s->operand[HEADS_VALUE]);
    status = graph_add_operator(t->graph, &step, &desc, NULL);
fail:
    return status;
}

/* The rotation was in place, and so is its way back. */
static clattn_status rope(struct tape *t, const struct graph_step *s)
{
    clattn_rope_desc desc = *(const clattn_rope_desc *)graph_desc(t->graph, s->plan);
    struct graph_step step = *s;
    if (!tape_has_gradient(t, s->operand[ROPE_X]))
        return CLATTN_SUCCESS;
    desc.direction = CLATTN_DIRECTION_BACKWARD;
    desc.gradients.x = desc.gradients.y = desc.x;
    desc.x = desc.y = (clattn_layout){0};
    step.operand[ROPE_X] = step.operand[ROPE_Y] = operand_of(0);
    step.operand[ROPE_X_GRADIENT] = step.operand[ROPE_Y_GRADIENT] = tape_gradient(t, s->operand[ROPE_X]);
    return graph_add_operator(t->graph, &step, &desc, NULL);
}

/* The gradient of x takes the place of that of y, which nothing else reads. */
static clattn_status activation(struct tape *t, const struct graph_step *s)
{
    clattn_activation_desc desc = *(const clattn_activation_desc *)graph_desc(t->graph, s->plan);
    const struct graph_operand x = s->operand[MOVE_FROM], y = s->operand[MOVE_TO];
    struct graph_step step = {.op = GRAPH_CONVERT, .batch = s->batch, .operand = {[MOVE_FROM] = x}};
    if (!tape_has_gradient(t, y))
        return CLATTN_SUCCESS;
    if (tape_has_gradient(t, x) || x.offset != y.offset)
        return tape_unsupported(t, "what an activation and others read");
    t->gradient[x.array] = t->gradient[y.array];
    desc.direction = CLATTN_DIRECTION_BACKWARD;
    desc.gradients.x = desc.x;
    desc.gradients.y = desc.y;
    desc.y = (clattn_layout){0};
    step.operand[MOVE_FROM_GRADIENT] = tape_gradient(t, x);
    step.operand[MOVE_TO_GRADIENT] = tape_gradient(t, y);
    return graph_add_operator(t->graph, &step, &desc, NULL);
}

/* What is added gets the gradient of the sum itself, which nothing else reads; without it, so does x, in place. */
static clattn_status dropout(struct tape *t, const struct graph_step *s)
{
    clattn_status status = CLATTN_SUCCESS;
    const clattn_dropout_desc *forward = graph_desc(t->graph, s->plan);
    const struct graph_operand x = s->operand[DROPOUT_X], y = s->operand[DROPOUT_Y],
                               plus = s->operand[DROPOUT_RESIDUAL];
    struct graph_step step = {.op = GRAPH_DROPOUT, .batch = s->batch, .mask = s->mask};
    clattn_dropout_desc desc;
    if (!tape_has_gradient(t, y))
        return CLATTN_SUCCESS;
    if (tape_has_gradient(t, x) || x.offset || y.offset || tape_has_gradient(t, plus) || plus.offset)
        return tape_unsupported(t, "what dropout and others read");
    t->gradient[x.array] = t->gradient[y.array];
    if (plus.array) {
        t->gradient[plus.array] = t->gradient[y.array];
        TRY(tape_give_gradient(t, x));
    }
    clattn_dropout_desc_init(&desc);
    desc.direction = CLATTN_DIRECTION_BACKWARD;
    desc.probability = forward->probability;
    desc.gradients.x = forward->x;
    desc.gradients.y = forward->y;
    step.operand[DROPOUT_X_GRADIENT] = tape_gradient(t, x);
    step.operand[DROPOUT_Y_GRADIENT] = tape_gradient(t, y);
    status = graph_add_operator(t->graph, &step, &desc, NULL);
fail:
    return status;
}

/* ---- ranks that have the model together ---- */

/* What ranks sum has, on each of them, the sum of the gradients that the ranks have of it. */
static void all_reduce(struct tape *t, const struct graph_step *s)
{
    struct graph_step step = *s;
    if (!tape_has_gradient(t, s->operand[MOVE_TO]))
        return;
    step.operand[MOVE_TO] = tape_gradient(t, s->operand[MOVE_TO]);
    graph_add_exchange(t->graph, t->graph->ranks, &step);
}

/* ---- the whole way ---- */

static clattn_status go_back(struct tape *t, const struct graph_step *step)
{
    clattn_status status;
    TRY(tape_reserve(t));
    switch (step->op) {
    case GRAPH_MATMUL: return tape_product(t, step);
    case GRAPH_ATTENTION: return attention(t, step);
    case GRAPH_NORM: return norm(t, step);
    case GRAPH_ROPE: return rope(t, step);
    case GRAPH_CONVERT: return activation(t, step);
    case GRAPH_DROPOUT: return dropout(t, step);
    case GRAPH_EMBEDDING: return tape_embedding(t, step);
    case GRAPH_ALL_REDUCE: all_reduce(t, step); return CLATTN_SUCCESS;
    case GRAPH_ALL_GATHER: /* all ranks have the gradients of all columns, and go back with those of their own */
    case GRAPH_LOSS:
    case GRAPH_INTEGERS:
    case GRAPH_FILL:
    case GRAPH_PAD:
    case GRAPH_COPY: return CLATTN_SUCCESS;
    default: return tape_unsupported(t, "a step of the model");
    }
fail:
    return status;
}

/* The arrays that no step before `first` names: what the steps from there on make. */
static bool is_made_from(const struct graph *graph, int array, size_t first)
{
    if (graph->arrays[array].place != GRAPH_ARENA)
        return false;
    for (size_t i = 0; i < first; i++)
        for (int j = 0; j < GRAPH_OPERANDS; j++)
            if (graph->steps[i].operand[j].array == array)
                return false;
    return true;
}

/* Does a segment's steps again, with new arrays for what they make, which inherit the gradients, and goes back through them. */
static clattn_status repeat(struct tape *t, const struct tape_segment *segment)
{
    clattn_status status = CLATTN_SUCCESS;
    struct graph *graph = t->graph;
    const size_t count = segment->end - segment->first, arrays = graph->array_count;
    struct graph_step *steps = malloc(count * sizeof *steps);
    int *copy = calloc(arrays, sizeof *copy);
    if (!steps || !copy) {
        status = tape_no_memory(t);
        goto fail;
    }
    memcpy(steps, graph->steps + segment->first, count * sizeof *steps);
    for (size_t i = 0; i < count; i++) {
        for (int j = 0; j < GRAPH_OPERANDS; j++) {
            int *array = &steps[i].operand[j].array;
            if (!copy[*array] && is_made_from(graph, *array, segment->first)) {
                const struct graph_array old = graph->arrays[*array];
                copy[*array] = graph_arena_array(graph, old.dtype, old.bytes / clattn_dtype_size(old.dtype));
                TRY(tape_reserve(t));
                t->gradient[copy[*array]] = t->gradient[*array];
            }
            *array = copy[*array] ? copy[*array] : *array;
        }
        if (steps[i].workspace)
            steps[i].workspace = graph_arena_array(graph, CLATTN_DTYPE_U8, steps[i].plan->workspace);
        graph->launches += steps[i].plan ? steps[i].plan->launches : 0;
        graph_add(graph, &steps[i]);
    }
    for (size_t i = count; i-- > 0;)
        TRY(go_back(t, &steps[i]));
fail:
    free(steps);
    free(copy);
    return status;
}

clattn_status tape_run(struct tape *t, size_t steps, int begin, int gradient, const struct tape_segment *segments,
                       size_t count)
{
    clattn_status status;
    TRY(tape_reserve(t));
    t->gradient[begin] = gradient;
    for (size_t i = steps; i > 0;) {
        if (count && segments[count - 1].end == i) {
            TRY(repeat(t, &segments[--count]));
            i = segments[count].first;
        } else {
            const struct graph_step step = t->graph->steps[--i];
            TRY(go_back(t, &step));
        }
    }
fail:
    return status;
}
