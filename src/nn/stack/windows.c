/* Windows of a picture's patches, and the merging of patches between stages.  Both move rows by ids, which the plan has. */
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/try.h"
#include "nn/stack/layers.h"

#define MOST_PLACES ((size_t)1 << 26) /* of all items, in windows that are filled up */
#define WINDOW_PLACES (64 * 64)       /* the most of a window */
#define MOST_MASK ((size_t)1 << 31)   /* bytes */

/* ---- moving rows ---- */

clattn_status check_places(const struct builder *b, size_t places)
{
    if (places <= MOST_PLACES / b->rows.batch)
        return CLATTN_SUCCESS;
    return report_error(&b->graph->context->device.report, CLATTN_ERROR_OVERFLOW,
                        "encoder: %zu pictures of %zu places each, filled up, have more than 2^26", b->rows.batch,
                        places);
}

clattn_status add_row_ids(const struct builder *b, const int32_t *ids, size_t count, size_t item_rows, int *array)
{
    clattn_status status;
    const size_t batch = b->rows.batch;
    size_t all;
    int32_t *every = size_mul(batch, count, &all) ? malloc(all * sizeof *every) : NULL;
    if (!every)
        return no_memory(b);
    for (size_t i = 0; i < all; i++) {
        const int32_t id = ids[i % count];
        every[i] = (int32_t)(id < 0 ? batch * item_rows : i / count * item_rows + (size_t)id);
    }
    status = graph_constant_array(b->graph, CLATTN_DTYPE_I32, all, every, array);
    free(every);
    return status;
}

clattn_status add_gather(const struct builder *b, const struct matrix *from, size_t table_rows, int ids, size_t count,
                         struct matrix *made)
{
    const size_t batch = b->rows.batch, columns = from->columns;
    clattn_embedding_desc desc;
    struct graph_step step = {
        .op = GRAPH_EMBEDDING, .batch = NUMBER_BATCH, .length = graph_number(b->graph, count, NUMBER_ONE)};
    *made = matrix_new(b->graph, (struct rows){batch, count, 0, 0}, from->dtype, columns);
    clattn_embedding_desc_init(&desc);
    desc.ids = clattn_layout_contiguous(CLATTN_DTYPE_I32, 2, (const size_t[2]){batch, count});
    desc.table = clattn_layout_contiguous(from->dtype, 2, (const size_t[2]){table_rows, columns});
    desc.y = clattn_layout_contiguous(from->dtype, 3, (const size_t[3]){batch, count, columns});
    step.operand[EMBEDDING_IDS] = operand_of(ids);
    step.operand[EMBEDDING_TABLE] = from->data;
    step.operand[EMBEDDING_Y] = made->data;
    return graph_add_operator(b->graph, &step, &desc, NULL);
}

/* A matrix of the stream's rows with a row of zeros behind all. */
static struct matrix matrix_with_zeros(const struct builder *b, size_t rows, size_t columns)
{
    const struct rows all = {1, b->rows.batch * rows + 1, 0, 0};
    const struct matrix matrix = matrix_new(b->graph, all, b->x.dtype, columns);
    struct graph_step fill = {.op = GRAPH_FILL, .rows = 1, .row_bytes = columns * clattn_dtype_size(matrix.dtype)};
    fill.operand[MOVE_TO] = operand_at(matrix.data.array, b->rows.batch * rows * columns);
    graph_add(b->graph, &fill);
    return matrix;
}

/* Copies the stream. */
static clattn_status add_copy(const struct builder *b, struct matrix to)
{
    const size_t extent[3] = {b->rows.batch, b->rows.length, b->x.columns};
    const clattn_layout layout = clattn_layout_contiguous(b->x.dtype, 3, extent);
    return add_convert(b, b->rows.batch_number, b->x.data, &layout, to.data, &layout);
}

/* ---- windows ---- */

/* The grid in windows: how many there are, how far it is shifted, and its size when it is filled up. */
struct tiling {
    struct grid grid, windows, shift, filled;
    size_t places; /* of a window */
};

static struct tiling tiling_of(const clattn_windows *w, struct grid grid, bool shifted)
{
    struct tiling t = {.grid = grid, .windows = {divide_up(grid.rows, w->rows), divide_up(grid.columns, w->columns)}};
    t.filled = (struct grid){t.windows.rows * w->rows, t.windows.columns * w->columns};
    t.places = w->rows * w->columns;
    if (shifted && (w->shifted == 2 || (grid.rows > w->rows && grid.columns > w->columns)))
        t.shift = (struct grid){w->rows / 2, w->columns / 2};
    return t;
}

/* The place of row `place` of window `window` in the shifted grid. */
static struct grid place_of(const struct tiling *t, const clattn_windows *w, size_t window, size_t place)
{
    return (struct grid){window / t->windows.columns * w->rows + place / w->columns,
                         window % t->windows.columns * w->columns + place % w->columns};
}

/* Sets the arrays of ids that take rows into windows and back. */
static clattn_status add_places(const struct builder *b, const struct tiling *t, int *places, int *origins)
{
    clattn_status status;
    const clattn_windows *w = &b->stack->desc.windows;
    const size_t rows = t->grid.rows * t->grid.columns, count = t->filled.rows * t->filled.columns;
    int32_t *in = NULL, *back = NULL;
    TRY(check_places(b, count));
    in = malloc(count * sizeof *in);
    back = malloc(rows * sizeof *back);
    if (!in || !back) {
        status = no_memory(b);
        goto fail;
    }
    for (size_t i = 0; i < count; i++) {
        const struct grid at = place_of(t, w, i / t->places, i % t->places);
        const size_t row = (at.rows + t->shift.rows) % t->filled.rows;
        const size_t column = (at.columns + t->shift.columns) % t->filled.columns;
        in[i] = -1;
        if (row >= t->grid.rows || column >= t->grid.columns)
            continue;
        in[i] = (int32_t)(row * t->grid.columns + column);
        back[in[i]] = (int32_t)i;
    }
    TRY(add_row_ids(b, in, count, rows, places));
    status = add_row_ids(b, back, rows, count, origins);
fail:
    free(in);
    free(back);
    return status;
}

/* Which part of the shifted grid index i of an axis lies in: what the shift has brought from the other edge is another part. */
static size_t part_of(size_t i, size_t filled, size_t shift)
{
    return i >= filled - shift;
}

/* Which places of a window lie in the same part of the grid: (places, places). */
static void mask_window(const struct tiling *t, const clattn_windows *w, size_t window, uint8_t *attended)
{
    size_t part[WINDOW_PLACES];
    for (size_t place = 0; place < t->places; place++) {
        const struct grid at = place_of(t, w, window, place);
        part[place] = 2 * part_of(at.rows, t->filled.rows, t->shift.rows) +
                      part_of(at.columns, t->filled.columns, t->shift.columns);
    }
    for (size_t i = 0; i < t->places; i++)
        for (size_t j = 0; j < t->places; j++)
            attended[i * t->places + j] = part[i] == part[j];
}

/* Which places of each window lie in the same part of the grid: (items * windows, 1, places, places) booleans. */
static clattn_status add_mask(const struct builder *b, const struct tiling *t, int *mask)
{
    clattn_status status;
    const clattn_windows *w = &b->stack->desc.windows;
    const size_t item_windows = t->windows.rows * t->windows.columns, square = t->places * t->places;
    size_t bytes;
    if (!size_mul(b->rows.batch * item_windows, square, &bytes) || bytes > MOST_MASK)
        return report_error(&b->graph->context->device.report, CLATTN_ERROR_OVERFLOW,
                            "encoder: the mask of %zu shifted windows of %zu x %zu patches is above 2^31 bytes",
                            b->rows.batch * item_windows, w->rows, w->columns);
    uint8_t *attended = malloc(bytes);
    if (!attended)
        return no_memory(b);
    for (size_t window = 0; window < item_windows; window++)
        mask_window(t, w, window, attended + window * square);
    for (size_t item = 1; item < b->rows.batch; item++)
        memcpy(attended + item * item_windows * square, attended, item_windows * square);
    status = graph_constant_array(b->graph, CLATTN_DTYPE_BOOL, bytes, attended, mask);
    free(attended);
    return status;
}

/* Attends within the rows of each item, with the bias that the stack has. */
static clattn_status attend_places(const struct builder *b, const struct attention_weights *weights, struct rows rows,
                                   struct grid window, int mask, int *ones, const struct heads *heads)
{
    const clattn_stack_desc *d = &b->stack->desc;
    struct attention_sublayer sublayer = {.weights = weights,
                                          .queries = rows,
                                          .key = heads->key.data,
                                          .value = heads->value.data,
                                          .cache = heads_layout(b->stack, rows, &heads->key, d->kv_heads),
                                          .keys = rows.length_number,
                                          .bias_operand = weight_operand(b, weights->position_bias),
                                          .mask_array = mask};
    if (weights->position_bias)
        sublayer.bias = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, d->heads, rows.length, rows.length);
    if (mask)
        sublayer.mask = clattn_layout_bhsd(CLATTN_DTYPE_BOOL, rows.batch, 1, rows.length, rows.length);
    return weights->distances.weight ? attend_decomposed(b, &sublayer, window, ones, heads)
                                     : attend(b, &sublayer, heads);
}

/* Attention of all patches of the grid, in a stack that has windows in other layers. */
static clattn_status add_whole_attention(struct builder *b, struct windows *windows, size_t layer)
{
    clattn_status status;
    const struct attention_weights *weights = &b->stack->layers[layer].self;
    struct heads heads;
    TRY(add_projections(b, weights, true, &heads));
    TRY(attend_places(b, weights, b->rows, windows->grid, 0, &windows->ones[1], &heads));
    status = end_attention(b, weights, heads.attended);
fail:
    return status;
}

clattn_status add_window_attention(struct builder *b, struct windows *windows, size_t layer)
{
    clattn_status status;
    const clattn_stack_desc *d = &b->stack->desc;
    const struct attention_weights *weights = &b->stack->layers[layer].self;
    if (is_among(d->windows.whole, layer))
        return add_whole_attention(b, windows, layer);
    const struct tiling t = tiling_of(&d->windows, windows->grid, d->windows.shifted && layer % 2);
    const bool shifted = t.shift.rows || t.shift.columns;
    const size_t count = t.windows.rows * t.windows.columns, rows = t.grid.rows * t.grid.columns;
    const struct rows inside = {b->rows.batch * count, t.places, graph_number(b->graph, count, NUMBER_BATCH),
                                graph_number(b->graph, t.places, NUMBER_ONE)};
    struct matrix read = matrix_with_zeros(b, rows, d->d_model), gathered, attended;
    struct builder of_windows = *b;
    struct heads heads;
    if (!windows->places[shifted])
        TRY(add_places(b, &t, &windows->places[shifted], &windows->origins[shifted]));
    if (shifted && !windows->mask)
        TRY(add_mask(b, &t, &windows->mask));
    TRY(d->norm_place == CLATTN_NORM_PLACE_PRE ? add_norm(b, &weights->norm, b->x, read) : add_copy(b, read));
    TRY(add_gather(b, &read, b->rows.batch * rows + 1, windows->places[shifted], count * t.places, &gathered));
    of_windows.rows = inside;
    TRY(add_heads(&of_windows, weights, gathered, true, &heads));
    TRY(attend_places(&of_windows, weights, inside, (struct grid){d->windows.rows, d->windows.columns},
                      shifted ? windows->mask : 0, &windows->ones[0], &heads));
    TRY(add_gather(b, &heads.attended, b->rows.batch * count * t.places, windows->origins[shifted], rows, &attended));
    status = end_attention(b, weights, attended);
fail:
    return status;
}

/* ---- merging ---- */

clattn_status add_merge(struct builder *b, struct grid *grid)
{
    clattn_status status;
    const struct stack *stack = b->stack;
    const struct linear_operands weights = linear_of(b, &stack->merge);
    const struct grid merged = {divide_up(grid->rows, 2), divide_up(grid->columns, 2)};
    const size_t count = merged.rows * merged.columns, rows = grid->rows * grid->columns;
    struct matrix read = matrix_with_zeros(b, rows, stack->desc.d_model), four;
    int32_t *ids = NULL;
    int array;
    TRY(check_places(b, 4 * count));
    ids = malloc(4 * count * sizeof *ids);
    if (!ids)
        return no_memory(b);
    for (size_t i = 0; i < 4 * count; i++) { /* of two by two patches, columns before rows */
        const size_t row = 2 * (i / 4 / merged.columns) + i % 2, column = 2 * (i / 4 % merged.columns) + i / 2 % 2;
        ids[i] = row < grid->rows && column < grid->columns ? (int32_t)(row * grid->columns + column) : -1;
    }
    TRY(add_row_ids(b, ids, 4 * count, rows, &array));
    TRY(add_copy(b, read));
    TRY(add_gather(b, &read, b->rows.batch * rows + 1, array, 4 * count, &four));
    four.columns = four.stride = 4 * stack->desc.d_model;
    b->rows.length = count;
    b->rows.length_number = graph_number(b->graph, count, NUMBER_ONE);
    TRY(add_norm(b, &stack->merge_norm, four, four));
    b->x = matrix_new(b->graph, b->rows, b->x.dtype, stack->next->desc.d_model);
    b->own = true;
    status = add_product(b, b->rows, four, &weights, b->x, NULL);
    b->stack = stack->next;
    *grid = merged;
fail:
    free(ids);
    return status;
}
