/* Rows, matrices, and products of them. */
#include "nn/stack/layers.h"

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

clattn_layout matrix_layout(struct rows rows, const struct matrix *matrix)
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
    desc.a = matrix_layout(rows, &a);
    desc.b = (clattn_layout){
        .dtype = w->weight_dtype, .rank = 2, .extent = {w->columns, out}, .stride = {1, (int64_t)w->columns}};
    desc.c = matrix_layout(rows, &c);
    if (w->bias.array)
        desc.bias = clattn_layout_contiguous(w->bias_dtype, 1, &out);
    if (w->scale.array)
        desc.b_scale = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, &out);
    if (epilogue) {
        desc.activation = epilogue->activation;
        desc.explicit_alpha = epilogue->explicit_alpha;
        desc.alpha = epilogue->alpha;
        if (epilogue->operand) {
            desc.operand = matrix_layout(rows, epilogue->operand);
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
    desc.x = matrix_layout(rows, &sums);
    desc.y = matrix_layout(rows, &made);
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
