/* The front end of features. */
#include "base/try.h"
#include "nn/stack/layers.h"

/* The rows that convolution `i` makes of an item of `frames` frames. */
static struct rows rows_behind(const struct builder *b, struct rows input, size_t i)
{
    const clattn_stack_desc *d = &b->stack->desc;
    struct rows rows = input;
    if (i + 1 == d->convolutions)
        return b->rows;
    rows.length = stack_frames(d, i + 1, input.length);
    rows.length_number = graph_is_constant(b->graph, input.length_number)
                             ? graph_number(b->graph, rows.length, NUMBER_ONE)
                             : (enum graph_number)(NUMBER_FRAMES + i);
    return rows;
}

/* An array of rows with `padding` rows before and after each item. */
static struct matrix padded_matrix(const struct builder *b, struct rows rows, size_t padding, size_t columns)
{
    rows.length += 2 * padding;
    struct matrix made = matrix_new(b->graph, rows, b->model->dtype, columns);
    made.item = rows.length * columns;
    return made;
}

static void add_padding(const struct builder *b, struct rows rows, size_t padding, const struct matrix *padded)
{
    const size_t element = clattn_dtype_size(padded->dtype);
    struct graph_step pad = {.op = GRAPH_PAD,
                             .batch = rows.batch_number,
                             .length = rows.length_number,
                             .rows = padding,
                             .row_bytes = padded->columns * element,
                             .to_item = padded->item * element};
    pad.operand[MOVE_TO] = padded->data;
    graph_add(b->graph, &pad);
}

static void add_frames(const struct builder *b, struct rows rows, size_t padding, int slot, const struct matrix *padded)
{
    const size_t element = clattn_dtype_size(padded->dtype), columns = padded->columns;
    struct graph_step copy = {.op = GRAPH_COPY,
                              .batch = rows.batch_number,
                              .length = rows.length_number,
                              .row_bytes = columns * element,
                              .to_item = padded->item * element,
                              .from_item = rows.length * columns * element};
    copy.operand[MOVE_TO] = operand_at(padded->data.array, padding * columns);
    copy.operand[MOVE_FROM] = operand_of(graph_bound_array(b->graph, padded->dtype, slot, 0));
    graph_add(b->graph, &copy);
}

/* A convolution is a product: row t of A begins at frame t * stride and is `kernel` frames long.  Rows overlap, and the
 * padding consists of rows of zeros before and after each item. */
clattn_status add_convolutions(struct builder *b, struct rows input, int slot)
{
    clattn_status status = CLATTN_SUCCESS;
    const struct stack *stack = b->stack;
    const clattn_stack_desc *d = &stack->desc;
    const struct weight *positions = &b->model->weights[stack->positions];
    const struct matrix table = {.data = weight_operand(b, stack->positions),
                                 .dtype = positions->dtype,
                                 .columns = d->d_model,
                                 .stride = d->d_model,
                                 .item = MATRIX_BROADCAST};
    struct rows rows = input;
    struct matrix padded = padded_matrix(b, rows, d->convolution[0].padding, d->features);
    add_frames(b, rows, d->convolution[0].padding, slot, &padded);
    for (size_t i = 0; i < d->convolutions; i++) {
        const clattn_convolution *c = &d->convolution[i];
        const bool last = i + 1 == d->convolutions;
        const struct linear_operands weights = linear_of(b, &stack->convolution[i]);
        const struct epilogue epilogue = {.activation = c->activation,
                                          .operand = last && stack->positions ? &table : NULL};
        struct matrix windows = padded;
        add_padding(b, rows, c->padding, &padded);
        windows.columns = c->kernel * padded.columns;
        windows.stride = c->stride * padded.columns;
        rows = rows_behind(b, input, i);
        if (last) {
            b->x = matrix_new(b->graph, rows, b->model->dtype, d->d_model);
        } else {
            const size_t padding = d->convolution[i + 1].padding;
            padded = b->x = padded_matrix(b, rows, padding, d->d_model);
            b->x.data.offset = (int64_t)(padding * d->d_model);
        }
        TRY(add_product(b, rows, windows, &weights, b->x, &epilogue));
    }
    b->own = true;
fail:
    return status;
}
