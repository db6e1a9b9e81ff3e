/* Norms, the residual stream, and the feed-forward network of a layer. */
#include "nn/stack/layers.h"

#include "base/try.h"

/* ---- norms ---- */

/* Adds a norm of rows whose layouts are given. */
static clattn_status add_norm_of(const struct builder *b, const struct norm_weights *weights, struct rows rows,
                                 struct graph_operand x, const clattn_layout *x_layout, struct graph_operand y,
                                 const clattn_layout *y_layout)
{
    clattn_norm_desc desc;
    const struct weight *all = b->model->weights;
    const size_t columns = x_layout->extent[x_layout->rank - 1];
    struct graph_step step = {.op = GRAPH_NORM, .batch = rows.batch == 1 ? rows.length_number : rows.batch_number};
    clattn_norm_desc_init(&desc);
    desc.kind = b->stack->desc.norm;
    desc.explicit_epsilon = 1;
    desc.epsilon = b->stack->desc.epsilon;
    desc.x = *x_layout;
    desc.y = *y_layout;
    desc.scale = clattn_layout_contiguous(all[weights->scale].dtype, 1, &columns);
    if (weights->bias)
        desc.bias = clattn_layout_contiguous(all[weights->bias].dtype, 1, &columns);
    step.operand[NORM_X] = x;
    step.operand[NORM_Y] = y;
    step.operand[NORM_SCALE] = weight_operand(b, weights->scale);
    step.operand[NORM_BIAS] = weight_operand(b, weights->bias);
    return graph_add_operator(b->graph, &step, &desc, NULL);
}

clattn_status add_norm(const struct builder *b, const struct norm_weights *weights, struct matrix x, struct matrix y)
{
    const struct rows rows = rows_flat(b->graph, b->rows);
    const clattn_layout from = matrix_layout(rows, &x), to = matrix_layout(rows, &y);
    return add_norm_of(b, weights, rows, x.data, &from, y.data, &to);
}

/* The layout of heads as a norm wants it.  The axis whose extent an enqueue gives comes first: items, or the rows of the
 * only item. */
static clattn_layout normed_layout(const struct builder *b, const struct matrix *matrix, size_t heads)
{
    const clattn_layout all = heads_layout(b->stack, b->rows, matrix, heads);
    clattn_layout layout = {.dtype = all.dtype};
    for (int axis = b->rows.batch == 1; axis < 4; axis++) {
        const int from = axis == 1 ? 2 : axis == 2 ? 1 : axis; /* items, rows, heads, columns */
        layout.extent[layout.rank] = all.extent[from];
        layout.stride[layout.rank++] = all.stride[from];
    }
    return layout;
}

clattn_status add_head_norm(const struct builder *b, const struct norm_weights *weights, struct matrix *matrix,
                            size_t heads)
{
    const struct matrix x = *matrix;
    if (b->keep)
        *matrix = matrix_new(b->graph, b->rows, x.dtype, heads * b->stack->desc.head_size);
    const clattn_layout from = normed_layout(b, &x, heads), to = normed_layout(b, matrix, heads);
    return add_norm_of(b, weights, b->rows, x.data, &from, matrix->data, &to);
}

/* ---- the residual stream ---- */

clattn_status stream_read(const struct builder *b, const struct norm_weights *norm, struct matrix *read)
{
    *read = b->x;
    if (b->stack->desc.norm_place == CLATTN_NORM_PLACE_POST)
        return CLATTN_SUCCESS;
    *read = matrix_new(b->graph, b->rows, b->x.dtype, b->x.columns);
    return add_norm(b, norm, b->x, *read);
}

/* y = x without what dropout drops, plus the residual unless that is NULL. */
static clattn_status add_dropout(struct builder *b, const struct matrix *x, const struct matrix *residual,
                                 const struct matrix *y)
{
    const struct rows rows = rows_flat(b->graph, b->rows);
    struct graph_step step = {.op = GRAPH_DROPOUT, .batch = rows.length_number, .mask = b->masks++};
    clattn_dropout_desc desc;
    clattn_dropout_desc_init(&desc);
    desc.probability = b->dropout;
    desc.x = matrix_layout(rows, x);
    desc.y = matrix_layout(rows, y);
    step.operand[DROPOUT_X] = x->data;
    step.operand[DROPOUT_Y] = y->data;
    if (residual) {
        desc.residual = matrix_layout(rows, residual);
        step.operand[DROPOUT_RESIDUAL] = residual->data;
    }
    return graph_add_operator(b->graph, &step, &desc, NULL);
}

clattn_status drop_stream(struct builder *b)
{
    const struct matrix whole = b->x;
    if (!(b->dropout > 0))
        return CLATTN_SUCCESS;
    b->x = matrix_new(b->graph, b->rows, whole.dtype, whole.columns);
    return add_dropout(b, &whole, NULL, &b->x);
}

clattn_status stream_write(struct builder *b, const struct norm_weights *norm, struct matrix made,
                           const struct linear_operands *w, const struct matrix *result)
{
    clattn_status status;
    const bool pre = b->stack->desc.norm_place == CLATTN_NORM_PLACE_PRE, adds = model_rank(b->model) == 0;
    const struct rows rows = rows_flat(b->graph, b->rows);
    const struct matrix x = b->x;
    const struct epilogue plus = {.operand = &x, .use = CLATTN_MATMUL_OPERAND_USE_ADD};
    /* The sum overwrites x if x is the stream's own: each element of x is read before the sum is written there. */
    const bool own = b->own && !b->keep;
    const struct matrix sum = pre && result ? *result : own ? x : matrix_new(b->graph, b->rows, x.dtype, x.columns);
    if (b->dropout > 0) {
        const struct matrix product = matrix_new(b->graph, b->rows, x.dtype, x.columns);
        TRY(add_product(b, rows, made, w, product, NULL));
        TRY(add_dropout(b, &product, adds ? &x : NULL, &sum));
    } else {
        TRY(add_product(b, rows, made, w, sum, adds ? &plus : NULL));
    }
    add_exchange(b, GRAPH_ALL_REDUCE, rows, &sum);
    b->x = sum;
    b->own = true;
    if (pre)
        return CLATTN_SUCCESS;
    if (result)
        b->x = *result;
    else if (b->keep)
        b->x = matrix_new(b->graph, b->rows, x.dtype, x.columns);
    status = add_norm(b, norm, sum, b->x);
fail:
    return status;
}

static clattn_status add_feed_forward(struct builder *b, const struct layer_weights *layer, const struct matrix *result)
{
    clattn_status status;
    struct matrix x, hidden;
    const struct linear_operands in = linear_of(b, &layer->in), out = linear_of(b, &layer->out);
    const struct linear_operands gate = layer->gate.weight ? linear_of(b, &layer->gate) : (struct linear_operands){0};
    const clattn_stack_desc *d = &b->stack->desc;
    const struct epilogue activated = {
        .activation = d->activation, .explicit_alpha = d->explicit_alpha, .alpha = d->explicit_alpha ? d->alpha : 0};
    TRY(stream_read(b, &layer->norm, &x));
    TRY(add_hidden(b, x, &in, layer->gate.weight ? &gate : NULL, activated, &hidden));
    status = stream_write(b, &layer->norm, hidden, &out, result);
fail:
    return status;
}

struct matrix stack_result(const struct builder *b, int slot)
{
    const clattn_dtype dtype = b->model->dtype;
    struct matrix result = matrix_new(b->graph, b->rows, dtype, b->stack->desc.d_model);
    result.data = operand_of(graph_bound_array(b->graph, dtype, slot, result.data.array));
    return result;
}

clattn_status end_layer(struct builder *b, size_t layer, const struct matrix *result)
{
    clattn_status status;
    const struct stack *stack = b->stack;
    const bool last = result && layer + 1 == stack->desc.layers, norm = last && stack->desc.final_norm;
    TRY(add_feed_forward(b, &stack->layers[layer], last && !norm ? result : NULL));
    if (norm)
        status = add_norm(b, &stack->final_norm, b->x, *result);
fail:
    return status;
}
