/* Tokens: ids, segments, and the vectors that a stack begins with. */
#include "nn/stack/layers.h"

#include <math.h>

#include "base/try.h"

int add_integers(const struct builder *b, size_t count, enum graph_number batch, int which, int condition)
{
    const int array = graph_arena_array(b->graph, CLATTN_DTYPE_I32, count);
    struct graph_step step = {.op = GRAPH_INTEGERS, .batch = batch, .integers = which, .condition = condition};
    step.operand[MOVE_TO] = operand_of(array);
    graph_add(b->graph, &step);
    return array;
}

int add_segments(const struct builder *b, int slot)
{
    const size_t count = b->rows.batch * b->rows.length;
    if (!b->stack->segments)
        return 0;
    const int zeros = graph_arena_array(b->graph, CLATTN_DTYPE_I32, count);
    struct graph_step fill = {.op = GRAPH_FILL, .condition = -slot, .rows = count, .row_bytes = sizeof(int32_t)};
    fill.operand[MOVE_TO] = operand_of(zeros);
    graph_add(b->graph, &fill);
    return graph_bound_array(b->graph, CLATTN_DTYPE_I32, slot, zeros);
}

enum graph_number first_position(const struct builder *b)
{
    const size_t first = b->stack->desc.first_position;
    return first ? graph_number(b->graph, first, NUMBER_ONE) : NUMBER_ONE;
}

/* Adds what tokens' places and segments have.  Ranks that have the model together sum their vectors, and the first one adds these. */
static void add_to_tokens(const struct builder *b, int segments, int offsets, clattn_embedding_desc *desc,
                          struct graph_step *step)
{
    const clattn_stack_desc *d = &b->stack->desc;
    const clattn_dtype table = b->model->weights[b->stack->tokens].dtype;
    if (d->positions) {
        desc->positions = d->positions;
        if (offsets)
            desc->offsets = clattn_layout_contiguous(CLATTN_DTYPE_I32, 1, desc->ids.extent);
        step->operand[EMBEDDING_OFFSETS] = operand_of(offsets);
    }
    if (d->positions == CLATTN_POSITIONS_TABLE)
        desc->position_table = clattn_layout_contiguous(table, 2, (const size_t[2]){d->position_count, d->d_model});
    if (d->segments) {
        desc->segments = desc->ids;
        desc->segment_table = clattn_layout_contiguous(table, 2, (const size_t[2]){d->segments, d->d_model});
    }
    step->operand[EMBEDDING_POSITION_TABLE] = weight_operand(b, b->stack->positions);
    step->operand[EMBEDDING_SEGMENTS] = operand_of(segments);
    step->operand[EMBEDDING_SEGMENT_TABLE] = weight_operand(b, b->stack->segments);
}

clattn_status add_embedding(struct builder *b, int ids, int segments, enum graph_number position, int offsets)
{
    clattn_status status;
    const clattn_stack_desc *d = &b->stack->desc;
    const struct split *own = &b->stack->vocabulary;
    const struct rows rows = b->rows;
    const size_t extent[3] = {rows.batch, rows.length, d->d_model};
    clattn_embedding_desc desc;
    struct graph_step step = {
        .op = GRAPH_EMBEDDING, .batch = rows.batch_number, .length = rows.length_number, .position = position};
    clattn_embedding_desc_init(&desc);
    b->x = matrix_new(b->graph, rows, b->model->dtype, d->d_model);
    b->own = true;
    desc.ids = clattn_layout_contiguous(CLATTN_DTYPE_I32, 2, extent);
    desc.table = clattn_layout_contiguous(b->model->weights[b->stack->tokens].dtype, 2,
                                          (const size_t[2]){own->count, d->d_model});
    desc.part.first = own->first;
    desc.part.rows = own->whole;
    desc.y = clattn_layout_contiguous(b->model->dtype, 3, extent);
    desc.explicit_scale = d->scale_embeddings;
    desc.scale = d->scale_embeddings ? (float)sqrt((double)d->d_model) : 0;
    step.operand[EMBEDDING_IDS] = operand_of(ids);
    step.operand[EMBEDDING_TABLE] = weight_operand(b, b->stack->tokens);
    step.operand[EMBEDDING_Y] = b->x.data;
    if (model_rank(b->model) == 0)
        add_to_tokens(b, segments, offsets, &desc, &step);
    TRY(graph_add_operator(b->graph, &step, &desc, NULL));
    add_exchange(b, GRAPH_ALL_REDUCE, rows, &b->x);
    if (d->input_norm) {
        const struct matrix sum = b->x;
        if (b->keep)
            b->x = matrix_new(b->graph, rows, b->model->dtype, d->d_model);
        TRY(add_norm(b, &b->stack->input_norm, sum, b->x));
    }
    status = drop_stream(b);
fail:
    return status;
}
