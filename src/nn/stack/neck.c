/* The neck of an encoder of pictures: what SAM makes of the last layer's vectors. */
#include "base/try.h"
#include "nn/stack/layers.h"

clattn_status add_neck(struct builder *b, struct grid grid, int slot)
{
    clattn_status status;
    const struct stack *stack = b->stack;
    const clattn_dtype dtype = b->x.dtype;
    const size_t n = stack->desc.neck;
    const struct linear_operands in = linear_of(b, &stack->neck_in);
    const struct matrix narrow = matrix_new(b->graph, b->rows, dtype, n);
    const struct matrix result = matrix_bound(b->graph, dtype, n, slot);
    TRY(add_product(b, rows_flat(b->graph, b->rows), b->x, &in, narrow, NULL));
    TRY(add_norm(b, &stack->neck_in_norm, narrow, narrow));
    TRY(add_convolution(b, &stack->neck_out, 3, 0, picture_of(b, grid, &narrow), NULL, picture_of(b, grid, &result)));
    status = add_norm(b, &stack->neck_out_norm, result, result);
fail:
    return status;
}
