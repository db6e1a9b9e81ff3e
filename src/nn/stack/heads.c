/* Attention of a layer: its heads, the step itself, rotation. */
#include "nn/stack/layers.h"

#include <math.h>

#include "base/size.h"
#include "base/try.h"

clattn_layout heads_layout(const struct stack *stack, struct rows rows, const struct matrix *matrix, size_t heads)
{
    return heads_layout_of(rows, matrix, heads, stack->desc.head_size);
}

clattn_layout heads_layout_of(struct rows rows, const struct matrix *matrix, size_t heads, size_t size)
{
    const size_t item = matrix->item ? matrix->item : rows.length * matrix->stride;
    return (clattn_layout){.dtype = matrix->dtype,
                           .rank = 4,
                           .extent = {rows.batch, heads, rows.length, size},
                           .stride = {(int64_t)item, (int64_t)size, (int64_t)matrix->stride, 1}};
}

clattn_status add_heads(const struct builder *b, const struct attention_weights *weights, struct matrix x, bool self,
                        struct heads *heads)
{
    clattn_status status;
    const struct stack *stack = b->stack;
    const struct linear_operands in = linear_of(b, &weights->in);
    heads->query = matrix_new(b->graph, b->rows, b->model->dtype, stack->inner + (self ? 2 * stack->inner_kv : 0));
    heads->attended = matrix_new(b->graph, b->rows, b->model->dtype, stack->inner);
    TRY(add_product(b, rows_flat(b->graph, b->rows), x, &in, heads->query, NULL));
    heads->key = heads->value = heads->query;
    heads->key.data.offset = (int64_t)stack->inner;
    heads->value.data.offset = (int64_t)(stack->inner + stack->inner_kv);
    if (weights->query_norm.scale) {
        TRY(add_head_norm(b, &weights->query_norm, &heads->query, stack->desc.heads));
        TRY(add_head_norm(b, &weights->key_norm, &heads->key, stack->desc.kv_heads));
    }
fail:
    return status;
}

clattn_status add_projections(const struct builder *b, const struct attention_weights *weights, bool self,
                              struct heads *heads)
{
    clattn_status status;
    struct matrix x;
    TRY(stream_read(b, &weights->norm, &x));
    status = add_heads(b, weights, x, self, heads);
fail:
    return status;
}

/* The attention's description and step. */
static void describe_attention(const struct builder *b, const struct attention_sublayer *a, const struct heads *heads,
                               clattn_attention_desc *desc, struct graph_step *step)
{
    const clattn_stack_desc *d = &b->stack->desc;
    const clattn_layout per_item = clattn_layout_contiguous(CLATTN_DTYPE_I32, 1, &a->queries.batch);
    clattn_attention_desc_init(desc);
    desc->scoring.explicit_scale = d->explicit_scale;
    desc->scoring.scale = d->scale;
    desc->scoring.softcap = d->softcap;
    if (a->reach) {
        desc->window.explicit_left = desc->window.explicit_right = 1;
        desc->window.left = desc->window.right = (int64_t)a->reach;
    }
    desc->causal = a->causal;
    desc->alignment = a->alignment;
    desc->mask = a->mask;
    desc->bias = a->bias;
    desc->query = heads_layout(b->stack, a->queries, &heads->query, d->heads);
    desc->key = a->cache;
    desc->value = a->values.rank ? a->values : a->cache;
    if (a->wide) { /* queries and keys lie elsewhere, and have more columns than values */
        desc->query = desc->key = heads_layout_of(a->queries, &heads->query, d->heads, a->wide);
        desc->scoring.explicit_scale = 1;
        desc->scoring.scale = d->explicit_scale ? d->scale : 1 / sqrtf((float)d->head_size);
    }
    desc->output = heads_layout(b->stack, a->queries, &heads->attended, d->heads);
    if (a->query_lengths)
        desc->lengths.query = per_item;
    if (a->key_lengths)
        desc->lengths.key = per_item;
    if (a->positions)
        desc->lengths.positions = per_item;
    *step = (struct graph_step){.op = GRAPH_ATTENTION,
                                .batch = a->queries.batch_number,
                                .length = a->queries.length_number,
                                .keys = a->keys,
                                .position = a->position};
    step->operand[HEADS_QUERY] = heads->query.data;
    step->operand[HEADS_KEY] = a->key;
    step->operand[HEADS_VALUE] = a->value;
    step->operand[HEADS_OUTPUT] = heads->attended.data;
    step->operand[HEADS_QUERY_LENGTHS] = operand_of(a->query_lengths);
    step->operand[HEADS_KEY_LENGTHS] = operand_of(a->key_lengths);
    step->operand[HEADS_POSITIONS] = operand_of(a->positions);
    if (a->mask_slot && a->mask.rank)
        step->operand[HEADS_MASK] = operand_of(graph_bound_array(b->graph, a->mask.dtype, a->mask_slot, 0));
    else
        step->operand[HEADS_MASK] = operand_of(a->mask_array);
    step->operand[HEADS_BIAS] = a->bias_operand;
}

clattn_status attend(const struct builder *b, const struct attention_sublayer *a, const struct heads *heads)
{
    clattn_status status;
    clattn_attention_desc desc;
    struct graph_step step;
    describe_attention(b, a, heads, &desc, &step);
    if (a->output || b->keep) {
        const size_t *q = desc.query.extent;
        desc.outputs.lse = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, q);
        step.operand[HEADS_LSE] = operand_of(graph_arena_array(b->graph, CLATTN_DTYPE_F32, q[0] * q[1] * q[2]));
    }
    TRY(graph_add_operator(b->graph, &step, &desc, b->options));
    if (a->output) {
        const int slot = a->probabilities_slot;
        struct graph_weights_desc weights;
        struct_init(&weights, sizeof weights);
        weights.attention = desc;
        weights.layout = a->probabilities;
        step.op = GRAPH_WEIGHTS;
        step.condition = slot;
        step.operand[HEADS_WEIGHTS] =
            operand_at(graph_bound_array(b->graph, CLATTN_DTYPE_F32, slot, 0), a->probabilities_offset);
        TRY(graph_add_operator(b->graph, &step, &weights, NULL));
    }
fail:
    return status;
}

clattn_status end_attention(struct builder *b, const struct attention_weights *weights, struct matrix attended)
{
    const struct linear_operands out = linear_of(b, &weights->out);
    return stream_write(b, &weights->norm, attended, &out, NULL);
}

clattn_status add_attention(struct builder *b, const struct attention_sublayer *sublayer, const struct heads *heads)
{
    clattn_status status;
    TRY(attend(b, sublayer, heads));
    status = end_attention(b, sublayer->weights, heads->attended);
fail:
    return status;
}

bool is_among(uint64_t layers, size_t layer)
{
    return layer < 64 && layers >> layer & 1;
}

size_t layer_reach(const clattn_stack_desc *desc, size_t layer)
{
    return is_among(desc->unlimited, layer) ? 0 : desc->reach;
}

clattn_rope_pairing rope_pairing(const clattn_stack_desc *desc)
{
    return desc->rotary == CLATTN_ROTARY_INTERLEAVED ? CLATTN_ROPE_PAIRING_INTERLEAVED : CLATTN_ROPE_PAIRING_HALVES;
}

clattn_status add_rope(const struct builder *b, const struct matrix *matrix, size_t heads, enum graph_number position,
                       int offsets)
{
    const clattn_stack_desc *d = &b->stack->desc;
    clattn_rope_desc desc;
    struct graph_step step = {
        .op = GRAPH_ROPE, .batch = b->rows.batch_number, .length = b->rows.length_number, .position = position};
    clattn_rope_desc_init(&desc);
    desc.pairing = rope_pairing(d);
    desc.base = d->rotary_base;
    desc.rotary_size = d->rotary_size;
    desc.x = desc.y = heads_layout(b->stack, b->rows, matrix, heads);
    if (offsets)
        desc.offsets = clattn_layout_contiguous(CLATTN_DTYPE_I32, 1, &b->rows.batch);
    step.operand[ROPE_X] = step.operand[ROPE_Y] = matrix->data;
    step.operand[ROPE_OFFSETS] = operand_of(offsets);
    return graph_add_operator(b->graph, &step, &desc, NULL);
}
