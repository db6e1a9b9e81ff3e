#include "nn/train/tape.h"

#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "base/try.h"

void tape_clear(struct tape *tape)
{
    free(tape->gradient);
    free(tape->written);
}

static clattn_status no_memory(const struct tape *t)
{
    return report_error(&t->graph->context->device.report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a plan");
}

static clattn_status unsupported(const struct tape *t, const char *what)
{
    return report_error(&t->graph->context->device.report, CLATTN_ERROR_UNSUPPORTED, "training: %s has no gradient",
                        what);
}

/* ---- gradients of arrays ---- */

/* The table of gradients grows with the graph's arrays. */
static clattn_status reserve(struct tape *t)
{
    const size_t wanted = t->graph->array_count;
    if (wanted <= t->capacity)
        return CLATTN_SUCCESS;
    int *grown = realloc(t->gradient, 2 * wanted * sizeof *grown);
    if (!grown)
        return no_memory(t);
    memset(grown + t->capacity, 0, (2 * wanted - t->capacity) * sizeof *grown);
    t->gradient = grown;
    t->capacity = 2 * wanted;
    return CLATTN_SUCCESS;
}

static bool has_gradient(const struct tape *t, struct graph_operand of)
{
    return (size_t)of.array < t->capacity && t->gradient[of.array];
}

static struct graph_operand gradient_of(const struct tape *t, struct graph_operand of)
{
    return (struct graph_operand){t->gradient[of.array], of.offset};
}

/* Only what the graph itself makes has a gradient: not what the caller binds, and no constants. */
static bool wants_gradient(const struct tape *t, struct graph_operand of)
{
    return t->graph->arrays[of.array].place == GRAPH_ARENA;
}

/* Gives the array a gradient, which has no value yet. */
static clattn_status give_gradient(struct tape *t, struct graph_operand of)
{
    clattn_status status;
    const struct graph_array array = t->graph->arrays[of.array];
    TRY(reserve(t));
    t->gradient[of.array] = graph_arena_array(t->graph, array.dtype, array.bytes / clattn_dtype_size(array.dtype));
    status = t->graph->failed ? no_memory(t) : CLATTN_SUCCESS;
fail:
    return status;
}

/* ---- gradients of weights ---- */

/* The weight's gradient; none if the array is no weight of the model. */
static struct graph_operand weight_gradient(const struct tape *t, struct graph_operand weight)
{
    const struct graph_array array = t->graph->arrays[weight.array]; /* a copy: another array may move all of them */
    for (size_t i = 0; i < t->model->buffer_count && array.place == GRAPH_FIXED; i++)
        if (array.fixed.buffer == t->model->buffers[i])
            return (struct graph_operand){graph_bound_array(t->graph, CLATTN_DTYPE_F32, t->slot + (int)i, 0),
                                          array.fixed.offset + weight.offset};
    return operand_of(0);
}

/* Notes that a gradient of a weight gets a value, and tells whether it has had one. */
static clattn_status note_written(struct tape *t, struct graph_operand gradient, bool *before)
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
        return no_memory(t);
    t->written = written;
    written[t->written_count++] = (struct graph_operand){slot, gradient.offset};
    return CLATTN_SUCCESS;
}

/* The layout of a weight's gradient, which is float32. */
static clattn_layout as_float32(clattn_layout layout)
{
    layout.dtype = CLATTN_DTYPE_F32;
    return layout;
}

/* ---- products ---- */

static clattn_layout transposed(const clattn_layout *layout)
{
    clattn_layout made = *layout;
    made.extent[0] = layout->extent[1];
    made.extent[1] = layout->extent[0];
    made.stride[0] = layout->stride[1];
    made.stride[1] = layout->stride[0];
    return made;
}

/* c = a b, or c += a b. */
static clattn_status add_product(struct tape *t, const clattn_layout *a_layout, struct graph_operand a,
                                 const clattn_layout *b_layout, struct graph_operand b, const clattn_layout *c_layout,
                                 struct graph_operand c, bool plus)
{
    clattn_matmul_desc desc;
    struct graph_step step = {.op = GRAPH_MATMUL,
                              .length = graph_number(t->graph, c_layout->extent[0], NUMBER_ONE),
                              .operand = {[MATMUL_A] = a, [MATMUL_B] = b, [MATMUL_C] = c}};
    clattn_matmul_desc_init(&desc);
    desc.a = *a_layout;
    desc.b = *b_layout;
    desc.c = *c_layout;
    if (plus) {
        desc.operand = *c_layout;
        desc.operand_use = CLATTN_MATMUL_OPERAND_USE_ADD;
        step.operand[MATMUL_OPERAND] = c;
    }
    return graph_add_operator(t->graph, &step, &desc, NULL);
}

/* The sums of a gradient's columns: the product of a row of ones and the gradient. */
static clattn_status add_column_sums(struct tape *t, const clattn_layout *y_layout, struct graph_operand y,
                                     struct graph_operand sums)
{
    clattn_status status;
    const clattn_layout one = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[2]){1, y_layout->extent[0]});
    const clattn_layout row = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[2]){1, y_layout->extent[1]});
    bool before;
    if (!t->ones) {
        float *ones = malloc(t->rows * sizeof *ones);
        if (!ones)
            return no_memory(t);
        for (size_t i = 0; i < t->rows; i++)
            ones[i] = 1;
        status = graph_constant_array(t->graph, CLATTN_DTYPE_F32, t->rows, ones, &t->ones);
        free(ones);
        if (status != CLATTN_SUCCESS)
            return status;
    }
    TRY(note_written(t, sums, &before));
    status = add_product(t, &one, operand_of(t->ones), y_layout, y, &row, sums, before);
fail:
    return status;
}

/* y += x, of arrays of `rows` rows. */
static clattn_status add_sum(struct tape *t, const clattn_layout *layout, struct graph_operand x,
                             struct graph_operand y)
{
    struct graph_step step = {.op = GRAPH_DROPOUT,
                              .batch = graph_number(t->graph, layout->extent[0], NUMBER_ONE),
                              .operand = {[DROPOUT_X] = x, [DROPOUT_RESIDUAL] = y, [DROPOUT_Y] = y}};
    clattn_dropout_desc desc;
    clattn_dropout_desc_init(&desc);
    desc.x = desc.residual = desc.y = *layout;
    return graph_add_operator(t->graph, &step, &desc, NULL);
}

/* A product whose sums are multiplied by a gate: they are computed once more, for the gate's gradient. */
static clattn_status gated_product(struct tape *t, const struct graph_step *s)
{
    clattn_status status;
    clattn_matmul_desc desc = *(const clattn_matmul_desc *)graph_desc(t->graph, s->plan);
    struct graph_step step = *s;
    const struct graph_operand a = s->operand[MATMUL_A], gate = s->operand[MATMUL_OPERAND];
    const bool plus = has_gradient(t, a);
    bool before;
    if (has_gradient(t, gate))
        return unsupported(t, "a gate that others read");
    TRY(give_gradient(t, gate));
    if (!plus)
        TRY(give_gradient(t, a));
    desc.direction = CLATTN_DIRECTION_BACKWARD;
    desc.gradients.c = desc.c;
    desc.gradients.a = desc.a;
    desc.gradients.b = as_float32(desc.b);
    desc.gradients.operand = desc.operand;
    desc.c = (clattn_layout){0};
    step.workspace = 0;
    step.operand[MATMUL_C_GRADIENT] = gradient_of(t, s->operand[MATMUL_C]);
    step.operand[MATMUL_C] = operand_of(0);
    step.operand[MATMUL_A_GRADIENT] = gradient_of(t, a);
    if (plus) {
        const struct graph_array array = t->graph->arrays[a.array];
        step.operand[MATMUL_A_GRADIENT] =
            operand_of(graph_arena_array(t->graph, array.dtype, array.bytes / clattn_dtype_size(array.dtype)));
    }
    step.operand[MATMUL_B_GRADIENT] = weight_gradient(t, s->operand[MATMUL_B]);
    step.operand[MATMUL_OPERAND_GRADIENT] = gradient_of(t, gate);
    TRY(note_written(t, step.operand[MATMUL_B_GRADIENT], &before));
    if (before)
        return unsupported(t, "a weight that two products have");
    if (s->operand[MATMUL_BIAS].array) {
        desc.gradients.bias = as_float32(desc.bias);
        step.operand[MATMUL_BIAS_GRADIENT] = weight_gradient(t, s->operand[MATMUL_BIAS]);
    }
    TRY(graph_add_operator(t->graph, &step, &desc, NULL));
    if (plus)
        status = add_sum(t, &desc.gradients.a, step.operand[MATMUL_A_GRADIENT], gradient_of(t, a));
fail:
    return status;
}

static clattn_status product(struct tape *t, const struct graph_step *s)
{
    clattn_status status = CLATTN_SUCCESS;
    const clattn_matmul_desc d = *(const clattn_matmul_desc *)graph_desc(t->graph, s->plan);
    const struct graph_operand a = s->operand[MATMUL_A], c = s->operand[MATMUL_C], plus = s->operand[MATMUL_OPERAND];
    if (!has_gradient(t, c))
        return CLATTN_SUCCESS;
    if (plus.array && d.operand_use == CLATTN_MATMUL_OPERAND_USE_MULTIPLY && !plus.offset)
        return gated_product(t, s);
    if (d.activation || d.a.rank != 2 || (plus.array && d.operand_use != CLATTN_MATMUL_OPERAND_USE_ADD))
        return unsupported(t, "a product with an activation, or of several items");
    const struct graph_operand of_c = gradient_of(t, c), of_b = weight_gradient(t, s->operand[MATMUL_B]);
    const clattn_layout c_across = transposed(&d.c), b_across = transposed(&d.b);
    if (of_b.array) {
        const clattn_layout of_b_layout = as_float32(b_across);
        bool before;
        TRY(note_written(t, of_b, &before));
        TRY(add_product(t, &c_across, of_c, &d.a, a, &of_b_layout, of_b, before));
    }
    if (s->operand[MATMUL_BIAS].array)
        TRY(add_column_sums(t, &d.c, of_c, weight_gradient(t, s->operand[MATMUL_BIAS])));
    if (wants_gradient(t, a)) {
        const bool before = has_gradient(t, a);
        if (!before)
            TRY(give_gradient(t, a));
        TRY(add_product(t, &d.c, of_c, &b_across, s->operand[MATMUL_B], &d.a, gradient_of(t, a), before));
    }
    if (plus.array && wants_gradient(t, plus)) {
        /* Nothing else reads the gradient of c from here on, so that it becomes that of what was added. */
        if (has_gradient(t, plus) || plus.offset != c.offset)
            return unsupported(t, "what is added to a product and read later, too,");
        t->gradient[plus.array] = t->gradient[c.array];
    }
fail:
    return status;
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
    bool before;
    if (!has_gradient(t, s->operand[NORM_Y]))
        return CLATTN_SUCCESS;
    if (x.array == s->operand[NORM_Y].array)
        return unsupported(t, "a norm in place");
    desc.direction = CLATTN_DIRECTION_BACKWARD;
    desc.y = desc.bias = (clattn_layout){0};
    desc.gradients.y = forward->y;
    desc.gradients.x = forward->x;
    desc.gradients.scale = as_float32(forward->scale);
    step.operand[NORM_Y_GRADIENT] = gradient_of(t, s->operand[NORM_Y]);
    step.operand[NORM_SCALE_GRADIENT] = weight_gradient(t, s->operand[NORM_SCALE]);
    TRY(note_written(t, step.operand[NORM_SCALE_GRADIENT], &before));
    if (before)
        return unsupported(t, "a scale that two norms have");
    if (s->operand[NORM_BIAS].array) {
        desc.gradients.bias = as_float32(forward->bias);
        step.operand[NORM_BIAS_GRADIENT] = weight_gradient(t, s->operand[NORM_BIAS]);
    }
    if (has_gradient(t, x)) {
        desc.gradients.sum = forward->x;
        step.operand[NORM_SUM_GRADIENT] = gradient_of(t, x);
    } else {
        TRY(give_gradient(t, x));
    }
    step.operand[NORM_X_GRADIENT] = gradient_of(t, x);
    status = graph_add_operator(t->graph, &step, &desc, NULL);
fail:
    return status;
}

static clattn_status attention(struct tape *t, const struct graph_step *s)
{
    clattn_status status;
    struct graph_step step = *s;
    clattn_attention_desc desc = *(const clattn_attention_desc *)graph_desc(t->graph, s->plan);
    if (!has_gradient(t, s->operand[HEADS_OUTPUT]))
        return CLATTN_SUCCESS;
    for (int i = HEADS_QUERY; i <= HEADS_VALUE; i++)
        if (has_gradient(t, s->operand[i]))
            return unsupported(t, "what two attentions read");
    for (int i = HEADS_QUERY; i <= HEADS_VALUE; i++)
        if (!has_gradient(t, s->operand[i]))
            TRY(give_gradient(t, s->operand[i]));
    desc.direction = CLATTN_DIRECTION_BACKWARD;
    desc.gradients.output = desc.output;
    desc.gradients.query = desc.query;
    desc.gradients.key = desc.key;
    desc.gradients.value = desc.value;
    step.workspace = 0;
    step.operand[HEADS_OUTPUT_GRADIENT] = gradient_of(t, s->operand[HEADS_OUTPUT]);
    step.operand[HEADS_QUERY_GRADIENT] = gradient_of(t, s->operand[HEADS_QUERY]);
    step.operand[HEADS_KEY_GRADIENT] = gradient_of(t, s->operand[HEADS_KEY]);
    step.operand[HEADS_VALUE_GRADIENT] = gradient_of(t, s->operand[HEADS_VALUE]);
    status = graph_add_operator(t->graph, &step, &desc, NULL);
fail:
    return status;
}

/* The rotation was in place, and so is its way back. */
static clattn_status rope(struct tape *t, const struct graph_step *s)
{
    clattn_rope_desc desc = *(const clattn_rope_desc *)graph_desc(t->graph, s->plan);
    struct graph_step step = *s;
    if (!has_gradient(t, s->operand[ROPE_X]))
        return CLATTN_SUCCESS;
    desc.direction = CLATTN_DIRECTION_BACKWARD;
    desc.gradients.x = desc.gradients.y = desc.x;
    desc.x = desc.y = (clattn_layout){0};
    step.operand[ROPE_X] = step.operand[ROPE_Y] = operand_of(0);
    step.operand[ROPE_X_GRADIENT] = step.operand[ROPE_Y_GRADIENT] = gradient_of(t, s->operand[ROPE_X]);
    return graph_add_operator(t->graph, &step, &desc, NULL);
}

/* The gradient of x takes the place of that of y, which nothing else reads. */
static clattn_status activation(struct tape *t, const struct graph_step *s)
{
    clattn_activation_desc desc = *(const clattn_activation_desc *)graph_desc(t->graph, s->plan);
    const struct graph_operand x = s->operand[MOVE_FROM], y = s->operand[MOVE_TO];
    struct graph_step step = {.op = GRAPH_CONVERT, .batch = s->batch, .operand = {[MOVE_FROM] = x}};
    if (!has_gradient(t, y))
        return CLATTN_SUCCESS;
    if (has_gradient(t, x) || x.offset != y.offset)
        return unsupported(t, "what an activation and others read");
    t->gradient[x.array] = t->gradient[y.array];
    desc.direction = CLATTN_DIRECTION_BACKWARD;
    desc.gradients.x = desc.x;
    desc.gradients.y = desc.y;
    desc.y = (clattn_layout){0};
    step.operand[MOVE_FROM_GRADIENT] = gradient_of(t, x);
    step.operand[MOVE_TO_GRADIENT] = gradient_of(t, y);
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
    if (!has_gradient(t, y))
        return CLATTN_SUCCESS;
    if (has_gradient(t, x) || x.offset || y.offset || has_gradient(t, plus) || plus.offset)
        return unsupported(t, "what dropout and others read");
    t->gradient[x.array] = t->gradient[y.array];
    if (plus.array) {
        t->gradient[plus.array] = t->gradient[y.array];
        TRY(give_gradient(t, x));
    }
    clattn_dropout_desc_init(&desc);
    desc.direction = CLATTN_DIRECTION_BACKWARD;
    desc.probability = forward->probability;
    desc.gradients.x = forward->x;
    desc.gradients.y = forward->y;
    step.operand[DROPOUT_X_GRADIENT] = gradient_of(t, x);
    step.operand[DROPOUT_Y_GRADIENT] = gradient_of(t, y);
    status = graph_add_operator(t->graph, &step, &desc, NULL);
fail:
    return status;
}

/* The gradient of a table whose rows `ids` were taken. */
static clattn_status add_table(struct tape *t, const struct graph_step *s, struct graph_operand ids,
                               struct graph_operand table, const clattn_layout *table_layout, bool scaled)
{
    clattn_status status;
    const clattn_embedding_desc *forward = graph_desc(t->graph, s->plan);
    struct graph_step step = {.op = GRAPH_EMBEDDING, .batch = s->batch, .length = s->length};
    const struct graph_operand gradient = weight_gradient(t, table);
    clattn_embedding_desc desc;
    bool before;
    clattn_embedding_desc_init(&desc);
    desc.direction = CLATTN_DIRECTION_BACKWARD;
    desc.explicit_scale = scaled && forward->explicit_scale;
    desc.scale = desc.explicit_scale ? forward->scale : 0;
    desc.ids = forward->ids;
    desc.gradients.table = as_float32(*table_layout);
    desc.gradients.y = forward->y;
    step.operand[EMBEDDING_IDS] = ids;
    step.operand[EMBEDDING_TABLE_GRADIENT] = gradient;
    step.operand[EMBEDDING_Y_GRADIENT] = gradient_of(t, s->operand[EMBEDDING_Y]);
    TRY(note_written(t, gradient, &before));
    if (before) /* the table is also the matrix of the logits */
        step.operand[EMBEDDING_TABLE_GRADIENT] = operand_of(
            graph_arena_array(t->graph, CLATTN_DTYPE_F32, table_layout->extent[0] * table_layout->extent[1]));
    TRY(graph_add_operator(t->graph, &step, &desc, NULL));
    if (before)
        status = add_sum(t, &desc.gradients.table, step.operand[EMBEDDING_TABLE_GRADIENT], gradient);
fail:
    return status;
}

/* The places of the items' rows, as ids of a table of positions. */
static clattn_status find_positions(struct tape *t, const clattn_layout *ids, struct graph_operand *found)
{
    const size_t batch = ids->extent[0], length = ids->extent[1];
    int32_t *places;
    clattn_status status = CLATTN_SUCCESS;
    if (!t->position_ids || t->positions != length) {
        places = malloc(batch * length * sizeof *places);
        if (!places)
            return no_memory(t);
        for (size_t i = 0; i < batch * length; i++)
            places[i] = (int32_t)(i % length);
        status = graph_constant_array(t->graph, CLATTN_DTYPE_I32, batch * length, places, &t->position_ids);
        free(places);
        t->positions = length;
    }
    *found = operand_of(t->position_ids);
    return status;
}

static clattn_status embedding(struct tape *t, const struct graph_step *s)
{
    clattn_status status = CLATTN_SUCCESS;
    const clattn_embedding_desc d = *(const clattn_embedding_desc *)graph_desc(t->graph, s->plan);
    if (!has_gradient(t, s->operand[EMBEDDING_Y]))
        return CLATTN_SUCCESS;
    TRY(add_table(t, s, s->operand[EMBEDDING_IDS], s->operand[EMBEDDING_TABLE], &d.table, true));
    if (d.positions == CLATTN_POSITIONS_TABLE) {
        struct graph_operand places;
        TRY(find_positions(t, &d.ids, &places));
        TRY(add_table(t, s, places, s->operand[EMBEDDING_POSITION_TABLE], &d.position_table, false));
    }
fail:
    return status;
}

/* ---- the whole way ---- */

static clattn_status go_back(struct tape *t, const struct graph_step *step)
{
    clattn_status status;
    TRY(reserve(t));
    switch (step->op) {
    case GRAPH_MATMUL: return product(t, step);
    case GRAPH_ATTENTION: return attention(t, step);
    case GRAPH_NORM: return norm(t, step);
    case GRAPH_ROPE: return rope(t, step);
    case GRAPH_CONVERT: return activation(t, step);
    case GRAPH_DROPOUT: return dropout(t, step);
    case GRAPH_EMBEDDING: return embedding(t, step);
    case GRAPH_LOSS:
    case GRAPH_INTEGERS: return CLATTN_SUCCESS;
    default: return unsupported(t, "a step of the model");
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
        status = no_memory(t);
        goto fail;
    }
    memcpy(steps, graph->steps + segment->first, count * sizeof *steps);
    for (size_t i = 0; i < count; i++) {
        for (int j = 0; j < GRAPH_OPERANDS; j++) {
            int *array = &steps[i].operand[j].array;
            if (!copy[*array] && is_made_from(graph, *array, segment->first)) {
                const struct graph_array old = graph->arrays[*array];
                copy[*array] = graph_arena_array(graph, old.dtype, old.bytes / clattn_dtype_size(old.dtype));
                TRY(reserve(t));
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
    TRY(reserve(t));
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
