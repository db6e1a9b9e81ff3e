#include "nn/stack/layers.h"

#include <math.h>

#include "base/size.h"
#include "base/try.h"

struct rows rows_flat(struct graph *graph, struct rows rows)
{
    const size_t count = rows.batch * rows.length;
    if (graph_is_constant(graph, rows.batch_number) && graph_is_constant(graph, rows.length_number))
        return (struct rows){1, count, NUMBER_ONE, graph_number(graph, count, NUMBER_ONE)};
    if (rows.length == 1)
        return (struct rows){1, rows.batch, NUMBER_ONE, rows.batch_number};
    return rows;
}

struct matrix matrix_new(struct graph *graph, struct rows rows, clattn_dtype dtype, size_t columns)
{
    size_t elements;
    if (!size_mul(rows.batch, rows.length, &elements) || !size_mul(elements, columns, &elements))
        elements = SIZE_MAX;
    return (struct matrix){.data = operand_of(graph_arena_array(graph, dtype, elements)),
                           .dtype = dtype,
                           .columns = columns,
                           .stride = columns};
}

struct matrix matrix_bound(struct graph *graph, clattn_dtype dtype, size_t columns, int slot)
{
    return (struct matrix){.data = operand_of(graph_bound_array(graph, dtype, slot, 0)),
                           .dtype = dtype,
                           .columns = columns,
                           .stride = columns};
}

/* One item's layout has rank 2: a norm takes the extent of the first axis at enqueue time, which then is the rows. */
static clattn_layout layout_of(struct rows rows, const struct matrix *matrix)
{
    const size_t item = matrix->item ? matrix->item : rows.length * matrix->stride;
    clattn_layout layout = {.dtype = matrix->dtype, .rank = rows.batch == 1 ? 2 : 3};
    size_t *extent = layout.extent;
    int64_t *stride = layout.stride;
    if (rows.batch != 1) {
        *extent++ = rows.batch;
        *stride++ = item == MATRIX_BROADCAST ? 0 : (int64_t)item;
    }
    extent[0] = rows.length;
    extent[1] = matrix->columns;
    stride[0] = (int64_t)matrix->stride;
    stride[1] = 1;
    return layout;
}

/* ---- products ---- */

struct graph_operand weight_operand(const struct builder *b, weight_id id)
{
    return id ? operand_of(graph_fixed_array(b->graph, model_weight(b->model, id))) : operand_of(0);
}

clattn_status no_memory(const struct builder *b)
{
    return report_error(&b->graph->context->device.report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a plan");
}

struct linear_operands linear_of(const struct builder *b, const struct linear *linear)
{
    const struct weight *weights = b->model->weights;
    const weight_id scale = weights[linear->weight].scale;
    return (struct linear_operands){.weight = weight_operand(b, linear->weight),
                                    .bias = weight_operand(b, linear->bias),
                                    .scale = weight_operand(b, scale),
                                    .weight_dtype = weights[linear->weight].dtype,
                                    .bias_dtype = linear->bias ? weights[linear->bias].dtype : 0,
                                    .rows = linear->rows,
                                    .columns = linear->columns};
}

struct linear_operands logits_operands(const struct builder *b)
{
    const clattn_transformer *model = b->model;
    struct linear_operands w = linear_of(b, &model->logits);
    if (model->output == CLATTN_MODEL_OUTPUT_TIED) /* the table is whole */
        w.weight.offset = (int64_t)(model->output_rows.first * w.columns);
    return w;
}

struct matrix logits_columns(const struct builder *b, struct matrix logits)
{
    logits.columns = b->model->output_rows.count;
    logits.data.offset += (int64_t)b->model->output_rows.first;
    return logits;
}

void add_exchange(const struct builder *b, enum graph_op op, struct rows rows, const struct matrix *matrix)
{
    const size_t element = clattn_dtype_size(matrix->dtype), item = rows.length * matrix->stride;
    struct graph_step step = {.op = op,
                              .batch = rows.batch_number,
                              .length = rows.length_number,
                              .rows = rows.batch * rows.length,
                              .row_bytes = matrix->stride * element,
                              .to_item = item * element};
    step.operand[MOVE_TO] = matrix->data;
    if (b->model->ranks)
        graph_add_exchange(b->graph, b->model->ranks, &step);
}

clattn_status add_product(const struct builder *b, struct rows rows, struct matrix a, const struct linear_operands *w,
                          struct matrix c, const struct epilogue *epilogue)
{
    clattn_matmul_desc desc;
    struct graph_step step = {.op = GRAPH_MATMUL, .batch = rows.batch_number, .length = rows.length_number};
    const size_t out = w->rows;
    clattn_matmul_desc_init(&desc);
    desc.a = layout_of(rows, &a);
    desc.b = (clattn_layout){
        .dtype = w->weight_dtype, .rank = 2, .extent = {w->columns, out}, .stride = {1, (int64_t)w->columns}};
    desc.c = layout_of(rows, &c);
    if (w->bias.array)
        desc.bias = clattn_layout_contiguous(w->bias_dtype, 1, &out);
    if (w->scale.array)
        desc.b_scale = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, &out);
    if (epilogue) {
        desc.activation = epilogue->activation;
        desc.explicit_alpha = epilogue->explicit_alpha;
        desc.alpha = epilogue->alpha;
        if (epilogue->operand) {
            desc.operand = layout_of(rows, epilogue->operand);
            desc.operand_use = epilogue->use;
            step.operand[MATMUL_OPERAND] = epilogue->operand->data;
        }
    }
    step.operand[MATMUL_A] = a.data;
    step.operand[MATMUL_B] = w->weight;
    step.operand[MATMUL_BIAS] = w->bias;
    step.operand[MATMUL_B_SCALE] = w->scale;
    step.operand[MATMUL_C] = c.data;
    return graph_add_operator(b->graph, &step, &desc, b->product_options);
}

/* Makes the hidden layer in more steps, because backward needs the sums and the gate. */
static clattn_status add_kept_hidden(const struct builder *b, struct matrix x, const struct linear_operands *in,
                                     const struct linear_operands *gate, struct epilogue activated,
                                     const struct matrix *hidden)
{
    clattn_status status;
    const struct rows rows = rows_flat(b->graph, b->rows);
    const struct matrix sums = matrix_new(b->graph, rows, x.dtype, in->rows);
    const struct matrix made = gate ? matrix_new(b->graph, rows, x.dtype, in->rows) : *hidden;
    const struct epilogue times = {.operand = &made, .use = CLATTN_MATMUL_OPERAND_USE_MULTIPLY};
    struct graph_step step = {.op = GRAPH_CONVERT, .batch = rows.length_number};
    clattn_activation_desc desc;
    clattn_activation_desc_init(&desc);
    desc.function = activated.activation;
    desc.explicit_alpha = activated.explicit_alpha;
    desc.alpha = activated.alpha;
    desc.x = layout_of(rows, &sums);
    desc.y = layout_of(rows, &made);
    step.operand[MOVE_FROM] = sums.data;
    step.operand[MOVE_TO] = made.data;
    TRY(add_product(b, rows, x, gate ? gate : in, sums, NULL));
    TRY(graph_add_operator(b->graph, &step, &desc, NULL));
    if (gate)
        status = add_product(b, rows, x, in, *hidden, &times);
fail:
    return status;
}

clattn_status add_hidden(const struct builder *b, struct matrix x, const struct linear_operands *in,
                         const struct linear_operands *gate, struct epilogue activated, struct matrix *hidden)
{
    clattn_status status;
    const struct rows rows = rows_flat(b->graph, b->rows);
    *hidden = matrix_new(b->graph, rows, x.dtype, in->rows);
    if (b->keep)
        return add_kept_hidden(b, x, in, gate, activated, hidden);
    if (!gate)
        return add_product(b, rows, x, in, *hidden, &activated);
    /* The product overwrites the gate: it reads each element before it writes the element in its place. */
    const struct epilogue times = {.operand = hidden, .use = CLATTN_MATMUL_OPERAND_USE_MULTIPLY};
    TRY(add_product(b, rows, x, gate, *hidden, &activated));
    status = add_product(b, rows, x, in, *hidden, &times);
fail:
    return status;
}

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
    const clattn_layout from = layout_of(rows, &x), to = layout_of(rows, &y);
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

/* Normalises each head of queries or keys, in place unless what was there is kept. */
static clattn_status add_head_norm(const struct builder *b, const struct norm_weights *weights, struct matrix *matrix,
                                   size_t heads)
{
    const struct matrix x = *matrix;
    if (b->keep)
        *matrix = matrix_new(b->graph, b->rows, x.dtype, heads * b->stack->desc.head_size);
    const clattn_layout from = normed_layout(b, &x, heads), to = normed_layout(b, matrix, heads);
    return add_norm_of(b, weights, b->rows, x.data, &from, matrix->data, &to);
}

clattn_status add_convert(const struct builder *b, enum graph_number items, struct graph_operand from,
                          const clattn_layout *from_layout, struct graph_operand to, const clattn_layout *to_layout)
{
    clattn_activation_desc desc;
    struct graph_step step = {.op = GRAPH_CONVERT, .batch = items};
    clattn_activation_desc_init(&desc);
    desc.x = *from_layout;
    desc.y = *to_layout;
    step.operand[MOVE_FROM] = from;
    step.operand[MOVE_TO] = to;
    return graph_add_operator(b->graph, &step, &desc, NULL);
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
    desc.x = layout_of(rows, x);
    desc.y = layout_of(rows, y);
    step.operand[DROPOUT_X] = x->data;
    step.operand[DROPOUT_Y] = y->data;
    if (residual) {
        desc.residual = layout_of(rows, residual);
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

/* Ends a sublayer: multiplies `made` by `w`, adds the residual and, with post-norm, applies the norm.  The product adds
 * the residual to its sums before it stores them, which spares the norm a pass over memory.  Ranks that have the model together sum
 * their products, and the first of them adds the residual.  `result` is the stack's result if this is the sublayer that makes it, and
 * otherwise NULL. */
static clattn_status stream_write(struct builder *b, const struct norm_weights *norm, struct matrix made,
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

/* ---- attention ---- */

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

/* ---- tokens ---- */

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

clattn_status add_embedding(struct builder *b, int ids, int segments, enum graph_number position, int offsets)
{
    clattn_status status;
    const clattn_stack_desc *d = &b->stack->desc;
    const clattn_dtype table = b->model->weights[b->stack->tokens].dtype;
    const struct rows rows = b->rows;
    const size_t extent[3] = {rows.batch, rows.length, d->d_model};
    clattn_embedding_desc desc;
    struct graph_step step = {
        .op = GRAPH_EMBEDDING, .batch = rows.batch_number, .length = rows.length_number, .position = position};
    clattn_embedding_desc_init(&desc);
    b->x = matrix_new(b->graph, rows, b->model->dtype, d->d_model);
    b->own = true;
    desc.ids = clattn_layout_contiguous(CLATTN_DTYPE_I32, 2, extent);
    desc.table = clattn_layout_contiguous(table, 2, (const size_t[2]){d->vocabulary, d->d_model});
    desc.y = clattn_layout_contiguous(b->model->dtype, 3, extent);
    desc.explicit_scale = d->scale_embeddings;
    desc.scale = d->scale_embeddings ? (float)sqrt((double)d->d_model) : 0;
    if (d->positions) {
        desc.positions = d->positions;
        if (offsets)
            desc.offsets = clattn_layout_contiguous(CLATTN_DTYPE_I32, 1, extent);
    }
    if (d->positions == CLATTN_POSITIONS_TABLE)
        desc.position_table = clattn_layout_contiguous(table, 2, (const size_t[2]){d->position_count, d->d_model});
    if (d->segments) {
        desc.segments = desc.ids;
        desc.segment_table = clattn_layout_contiguous(table, 2, (const size_t[2]){d->segments, d->d_model});
    }
    step.operand[EMBEDDING_IDS] = operand_of(ids);
    step.operand[EMBEDDING_TABLE] = weight_operand(b, b->stack->tokens);
    step.operand[EMBEDDING_Y] = b->x.data;
    step.operand[EMBEDDING_POSITION_TABLE] = weight_operand(b, b->stack->positions);
    step.operand[EMBEDDING_OFFSETS] = operand_of(d->positions ? offsets : 0);
    step.operand[EMBEDDING_SEGMENTS] = operand_of(segments);
    step.operand[EMBEDDING_SEGMENT_TABLE] = weight_operand(b, b->stack->segments);
    TRY(graph_add_operator(b->graph, &step, &desc, NULL));
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
