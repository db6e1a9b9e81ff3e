/* The way back through what takes rows of tables. */
#include <stdlib.h>

#include "base/try.h"
#include "nn/train/tape_gradients.h"

clattn_status tape_add_table(struct tape *t, const clattn_embedding_desc *given, const struct graph_step *of,
                             struct graph_operand table, const clattn_layout *table_layout)
{
    clattn_status status;
    struct graph_step step = *of;
    const struct graph_operand gradient = tape_weight_gradient(t, table);
    clattn_embedding_desc desc = *given;
    bool before;
    desc.direction = CLATTN_DIRECTION_BACKWARD;
    desc.gradients.table = as_float32(*table_layout);
    step.op = GRAPH_EMBEDDING;
    step.operand[EMBEDDING_TABLE_GRADIENT] = gradient;
    TRY(tape_note_written(t, gradient, &before));
    if (before) /* the table is also the matrix of the logits */
        step.operand[EMBEDDING_TABLE_GRADIENT] = operand_of(
            graph_arena_array(t->graph, CLATTN_DTYPE_F32, table_layout->extent[0] * table_layout->extent[1]));
    TRY(graph_add_operator(t->graph, &step, &desc, NULL));
    if (before)
        status = tape_add_sum(t, &desc.gradients.table, step.operand[EMBEDDING_TABLE_GRADIENT], &desc.gradients.table,
                              gradient);
fail:
    return status;
}

/* The places of the items' rows, as ids of a table of positions. */
static clattn_status find_positions(struct tape *t, const clattn_layout *ids, size_t first, struct graph_operand *found)
{
    const size_t batch = ids->extent[0], length = ids->extent[1];
    int32_t *places;
    clattn_status status = CLATTN_SUCCESS;
    if (!t->position_ids || t->positions != length || t->first_position != first) {
        places = malloc(batch * length * sizeof *places);
        if (!places)
            return tape_no_memory(t);
        for (size_t i = 0; i < batch * length; i++)
            places[i] = (int32_t)(first + i % length);
        status = graph_constant_array(t->graph, CLATTN_DTYPE_I32, batch * length, places, &t->position_ids);
        free(places);
        t->positions = length;
        t->first_position = first;
    }
    *found = operand_of(t->position_ids);
    return status;
}

clattn_status tape_add_positions(struct tape *t, const clattn_embedding_desc *desc, const struct graph_step *of,
                                 size_t first, struct graph_operand table, const clattn_layout *table_layout)
{
    clattn_status status;
    struct graph_step step = *of;
    TRY(find_positions(t, &desc->ids, first, &step.operand[EMBEDDING_IDS]));
    status = tape_add_table(t, desc, &step, table, table_layout);
fail:
    return status;
}

/* Lets the gradient of a table that this step does not add begin with zeros: it is another rank's, and ranks sum theirs. */
static clattn_status begin_with_zeros(struct tape *t, weight_id table)
{
    clattn_status status = CLATTN_SUCCESS;
    const struct weight *weight = &t->model->weights[table];
    struct graph_step fill = {.op = GRAPH_FILL, .rows = weight->rows, .row_bytes = weight->columns * sizeof(float)};
    bool before;
    if (!table)
        return status;
    fill.operand[MOVE_TO] =
        tape_weight_gradient(t, operand_of(graph_fixed_array(t->graph, model_weight(t->model, table))));
    TRY(tape_note_written(t, fill.operand[MOVE_TO], &before));
    if (!before)
        graph_add(t->graph, &fill);
fail:
    return status;
}

/* Does so with the tables of places and segments, which the model's first rank adds. */
static clattn_status others_begin(struct tape *t, struct graph_operand tokens)
{
    clattn_status status = CLATTN_SUCCESS;
    const struct stack *const stacks[2] = {&t->model->encoder, &t->model->decoder};
    const clattn_binding taken = t->graph->arrays[tokens.array].fixed;
    for (int i = 0; i < 2 && model_rank(t->model); i++) {
        const struct stack *stack = stacks[i];
        const clattn_binding its = model_weight(t->model, stack->tokens);
        if (!stack->tokens || its.buffer != taken.buffer || its.offset != taken.offset)
            continue;
        TRY(begin_with_zeros(t, stack->positions));
        TRY(begin_with_zeros(t, stack->segments));
    }
fail:
    return status;
}

clattn_status tape_embedding(struct tape *t, const struct graph_step *s)
{
    clattn_status status = CLATTN_SUCCESS;
    const clattn_embedding_desc d = *(const clattn_embedding_desc *)graph_desc(t->graph, s->plan);
    struct graph_step step = {.batch = s->batch, .length = s->length};
    clattn_embedding_desc plain, scaled;
    if (!tape_has_gradient(t, s->operand[EMBEDDING_Y]))
        return CLATTN_SUCCESS;
    clattn_embedding_desc_init(&plain);
    plain.ids = d.ids;
    plain.gradients.y = d.y;
    scaled = plain;
    scaled.explicit_scale = d.explicit_scale;
    scaled.scale = d.scale;
    scaled.part.first = d.part.first;
    scaled.part.rows = d.part.rows;
    step.operand[EMBEDDING_IDS] = s->operand[EMBEDDING_IDS];
    step.operand[EMBEDDING_Y_GRADIENT] = tape_gradient(t, s->operand[EMBEDDING_Y]);
    TRY(tape_add_table(t, &scaled, &step, s->operand[EMBEDDING_TABLE], &d.table));
    TRY(others_begin(t, s->operand[EMBEDDING_TABLE]));
    if (d.positions == CLATTN_POSITIONS_TABLE)
        TRY(tape_add_positions(t, &plain, &step, s->position ? graph_constant(t->graph, s->position) : 0,
                               s->operand[EMBEDDING_POSITION_TABLE], &d.position_table));
    step.operand[EMBEDDING_IDS] = s->operand[EMBEDDING_SEGMENTS];
    if (step.operand[EMBEDDING_IDS].array)
        status = tape_add_table(t, &plain, &step, s->operand[EMBEDDING_SEGMENT_TABLE], &d.segment_table);
fail:
    return status;
}
