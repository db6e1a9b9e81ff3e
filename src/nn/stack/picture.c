/* The front end of pictures: patches with their positions, the class token and the registers. */
#include "base/try.h"
#include "nn/stack/layers.h"

/* The layout of some rows of each item. */
static clattn_layout rows_layout(const struct builder *b, size_t rows)
{
    const size_t d_model = b->x.columns;
    return (clattn_layout){.dtype = b->x.dtype,
                           .rank = 3,
                           .extent = {b->rows.batch, rows, d_model},
                           .stride = {(int64_t)(b->rows.length * d_model), (int64_t)d_model, 1}};
}

/* A table of vectors for a grid, as a picture whose channels they are. */
static clattn_layout grid_layout(clattn_dtype dtype, size_t columns, size_t grid_rows, size_t grid_columns)
{
    return clattn_layout_nhwc(dtype, 1, columns, grid_rows, grid_columns);
}

/* The positions of a grid of patches: those of the table, which are resized if the grid is another. */
static clattn_status add_positions(const struct builder *b, size_t grid_rows, size_t grid_columns,
                                   struct graph_operand *positions, clattn_layout *layout)
{
    const struct stack *stack = b->stack;
    const clattn_stack_desc *d = &stack->desc;
    const clattn_patches *p = &d->patches;
    const size_t others = d->position_count - p->grid_rows * p->grid_columns; /* the class token's */
    const clattn_dtype dtype = b->model->weights[stack->positions].dtype;
    const struct graph_operand table = {weight_operand(b, stack->positions).array, (int64_t)(others * d->d_model)};
    clattn_resize_desc desc;
    struct graph_step step = {.op = GRAPH_RESIZE};
    if (d->positions == CLATTN_POSITIONS_SINUSOIDS) {
        *layout = grid_layout(CLATTN_DTYPE_F32, d->d_model, grid_rows, grid_columns);
        return add_grid_sinusoids(b, (struct grid){grid_rows, grid_columns}, &positions->array);
    }
    *positions = table;
    *layout = grid_layout(dtype, d->d_model, grid_rows, grid_columns);
    if (grid_rows == p->grid_rows && grid_columns == p->grid_columns)
        return CLATTN_SUCCESS;
    clattn_resize_desc_init(&desc);
    desc.mode = CLATTN_RESIZE_MODE_BICUBIC;
    desc.antialias = p->antialias;
    desc.x = grid_layout(dtype, d->d_model, p->grid_rows, p->grid_columns);
    desc.y = *layout = grid_layout(CLATTN_DTYPE_F32, d->d_model, grid_rows, grid_columns);
    *positions = operand_of(graph_arena_array(b->graph, CLATTN_DTYPE_F32, grid_rows * grid_columns * d->d_model));
    step.operand[MOVE_FROM] = table;
    step.operand[MOVE_TO] = *positions;
    return graph_add_operator(b->graph, &step, &desc, NULL);
}

/* The patches' rows are the pixels of a picture of d_model channels, which a convolution makes whose windows do not overlap. */
static clattn_status add_patches(const struct builder *b, struct grid grid, const struct picture *picture)
{
    clattn_status status;
    const struct stack *stack = b->stack;
    const clattn_stack_desc *d = &stack->desc;
    const clattn_patches *p = &d->patches;
    const struct linear_operands weights = linear_of(b, &stack->patches);
    clattn_conv2d_desc desc;
    struct graph_step step = {.op = GRAPH_CONV2D, .batch = NUMBER_BATCH};
    clattn_conv2d_desc_init(&desc);
    if (d->positions)
        TRY(add_positions(b, grid.rows, grid.columns, &step.operand[CONV2D_OPERAND], &desc.operand));
    desc.x = picture->layout;
    desc.weight = clattn_layout_nchw(weights.weight_dtype, d->d_model, p->channels, p->height + 2 * p->border,
                                     p->width + 2 * p->border);
    for (int edge = 0; edge < 4; edge++)
        desc.padding[edge] = (int32_t)p->border;
    if (weights.bias.array)
        desc.bias = clattn_layout_contiguous(weights.bias_dtype, 1, &d->d_model);
    desc.y = grid_layout(b->x.dtype, d->d_model, grid.rows, grid.columns);
    desc.y.extent[0] = b->rows.batch;
    desc.y.stride[0] = (int64_t)(b->rows.length * d->d_model);
    desc.stride[0] = (int32_t)p->height;
    desc.stride[1] = (int32_t)p->width;
    step.operand[CONV2D_X] = picture->data;
    step.operand[CONV2D_WEIGHT] = weights.weight;
    step.operand[CONV2D_BIAS] = weights.bias;
    step.operand[CONV2D_Y] = operand_at(b->x.data.array, stack_prefix(d) * d->d_model);
    status = graph_add_operator(b->graph, &step, &desc, NULL);
fail:
    return status;
}

/* Copies the same `rows` vectors into the rows from `first` on of each item. */
static clattn_status add_vectors(const struct builder *b, weight_id vectors, size_t first, size_t rows)
{
    const clattn_layout y = rows_layout(b, rows);
    clattn_layout x = y;
    x.dtype = b->model->weights[vectors].dtype;
    x.stride[0] = 0;
    return add_convert(b, NUMBER_BATCH, weight_operand(b, vectors), &x,
                       operand_at(b->x.data.array, first * b->x.columns), &y);
}

/* The class token plus the first row of the table of positions: token 0 of a vocabulary of one, at position 0. */
static clattn_status add_class_with_position(const struct builder *b)
{
    const struct stack *stack = b->stack;
    const clattn_dtype token = b->model->weights[stack->class_token].dtype,
                       table = b->model->weights[stack->positions].dtype;
    const size_t batch = b->rows.batch, ids[2] = {batch, 1}, columns = b->x.columns;
    const size_t positions[2] = {stack->desc.position_count, columns};
    clattn_embedding_desc desc;
    struct graph_step step = {.op = GRAPH_EMBEDDING, .batch = NUMBER_BATCH};
    struct graph_step fill = {.op = GRAPH_FILL, .rows = batch, .row_bytes = sizeof(int32_t)};
    fill.operand[MOVE_TO] = operand_of(graph_arena_array(b->graph, CLATTN_DTYPE_I32, batch));
    graph_add(b->graph, &fill);
    clattn_embedding_desc_init(&desc);
    desc.positions = CLATTN_POSITIONS_TABLE;
    desc.ids = clattn_layout_contiguous(CLATTN_DTYPE_I32, 2, ids);
    desc.table = clattn_layout_contiguous(token, 2, (const size_t[2]){1, columns});
    desc.position_table = clattn_layout_contiguous(table, 2, positions);
    desc.y = rows_layout(b, 1);
    step.operand[EMBEDDING_IDS] = fill.operand[MOVE_TO];
    step.operand[EMBEDDING_TABLE] = weight_operand(b, stack->class_token);
    step.operand[EMBEDDING_POSITION_TABLE] = weight_operand(b, stack->positions);
    step.operand[EMBEDDING_Y] = b->x.data;
    return graph_add_operator(b->graph, &step, &desc, NULL);
}

clattn_status add_pictures(struct builder *b, struct grid grid, struct picture picture)
{
    clattn_status status;
    const struct stack *stack = b->stack;
    const clattn_stack_desc *d = &stack->desc;
    const clattn_patches *p = &d->patches;
    b->x = matrix_new(b->graph, b->rows, b->model->dtype, d->d_model);
    b->own = true;
    const bool restored = stack_last(stack)->desc.restoration.kind;
    if (restored && (grid.rows != picture.layout.extent[2] || grid.columns != picture.layout.extent[3]))
        TRY(add_mirrored(b, grid, &picture));
    TRY(add_patches(b, grid, &picture));
    b->shallow = b->x;
    b->own = !restored;
    if (p->class_token)
        TRY(d->position_count > p->grid_rows * p->grid_columns ? add_class_with_position(b)
                                                               : add_vectors(b, stack->class_token, 0, 1));
    if (p->registers)
        TRY(add_vectors(b, stack->registers, (size_t)p->class_token, p->registers));
    if (!d->input_norm)
        return CLATTN_SUCCESS;
    if (restored)
        b->x = matrix_new(b->graph, b->rows, b->model->dtype, d->d_model);
    b->own = true;
    status = add_norm(b, &stack->input_norm, b->shallow, b->x);
fail:
    return status;
}
