/* The neck of an encoder of pictures: what SAM makes of the last layer's vectors. */
#include "base/try.h"
#include "nn/stack/layers.h"

/* A convolution of 3 x 3 patches, with zeros around the grid. */
static clattn_status add_convolution(const struct builder *b, struct grid grid, struct matrix x, struct matrix y)
{
    const struct stack *stack = b->stack;
    const size_t n = stack->desc.neck;
    clattn_conv2d_desc desc;
    struct graph_step step = {.op = GRAPH_CONV2D, .batch = NUMBER_BATCH};
    clattn_conv2d_desc_init(&desc);
    desc.x = desc.y = clattn_layout_nhwc(x.dtype, b->rows.batch, n, grid.rows, grid.columns);
    desc.weight = clattn_layout_nchw(b->model->weights[stack->neck_out].dtype, n, n, 3, 3);
    for (int edge = 0; edge < 4; edge++)
        desc.padding[edge] = 1;
    step.operand[CONV2D_X] = x.data;
    step.operand[CONV2D_WEIGHT] = weight_operand(b, stack->neck_out);
    step.operand[CONV2D_Y] = y.data;
    return graph_add_operator(b->graph, &step, &desc, NULL);
}

clattn_status add_neck(struct builder *b, struct grid grid, int slot)
{
    clattn_status status;
    const struct stack *stack = b->stack;
    const clattn_dtype dtype = b->x.dtype;
    const size_t n = stack->desc.neck;
    const struct linear_operands in = linear_of(b, &stack->neck_in);
    const struct matrix narrow = matrix_new(b->graph, b->rows, dtype, n);
    const struct matrix result = matrix_bound(b->graph, dtype, n, slot);
    TRY(add_product(b, rows_flat(b->rows), b->x, &in, narrow, NULL));
    TRY(add_norm(b, &stack->neck_in_norm, narrow, narrow));
    TRY(add_convolution(b, grid, narrow, result));
    status = add_norm(b, &stack->neck_out_norm, result, result);
fail:
    return status;
}
