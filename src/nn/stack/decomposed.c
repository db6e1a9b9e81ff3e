/* Attention with a decomposed position bias, without scores in memory.
 *
 * The bias of a query q at (i, k) and a key at (j, l) is q · R[i - j] + q · C[k - l], R and C being the vectors for distances in
 * rows and in columns.  Longer queries and keys make it a part of their product, for a window of h x w places:
 *
 *              d          h, of j = 0 ... h - 1       w, of l = 0 ... w - 1
 *     query    q          q · R[i - j]                q · C[k - l]
 *     key      its own    1 in column j, else 0       1 in column l, else 0
 *
 * One product makes the numbers q · R and q · C for all distances.  Those of a query are a row of it from which h, and w, of
 * them in falling order are copied: from place to place they begin one further. */
#include <stdlib.h>
#include <string.h>

#include "base/try.h"
#include "nn/stack/layers.h"

/* Sizes of one such attention. */
struct wide {
    struct grid window;
    size_t heads, size, distances; /* d; columns of the product */
    size_t columns;                /* of a longer query or key */
    size_t row;                    /* from a place to the next in longer queries and keys */
};

/* Copies `count` numbers of each head and place, which are `stride` apart, to the longer vectors `to` from column `at` on.
 * `down` and `across` are the distances, in elements, from a row of the window to the next, and from a column to the next. */
static clattn_status add_columns(const struct builder *b, struct rows rows, const struct wide *wide, size_t count,
                                 struct graph_operand from, clattn_dtype dtype, int64_t item, int64_t down,
                                 int64_t across, int64_t head, int64_t stride, const struct matrix *to, size_t at)
{
    const int64_t row = (int64_t)wide->row;
    const clattn_layout x = {.dtype = dtype,
                             .rank = 5,
                             .extent = {rows.batch, wide->window.rows, wide->window.columns, wide->heads, count},
                             .stride = {item, down, across, head, stride}};
    clattn_layout y = {
        .dtype = to->dtype,
        .rank = 5,
        .stride = {(int64_t)rows.length * row, (int64_t)wide->window.columns * row, row, (int64_t)wide->columns, 1}};
    memcpy(y.extent, x.extent, sizeof y.extent);
    return add_convert(b, rows.batch_number, from, &x,
                       (struct graph_operand){to->data.array, to->data.offset + (int64_t)at}, &y);
}

/* Multiplies each head of the queries by the vectors of all distances. */
static clattn_status add_distances(const struct builder *b, struct rows rows, const struct wide *wide,
                                   const struct linear *vectors, const struct matrix *query, struct matrix *made)
{
    const struct linear_operands weights = linear_of(b, vectors);
    const struct rows places = {rows.batch * rows.length, wide->heads,
                                graph_number(b->graph, rows.batch / b->items * rows.length, NUMBER_BATCH),
                                graph_number(b->graph, wide->heads, NUMBER_ONE)};
    const struct matrix heads = {
        .data = query->data, .dtype = query->dtype, .columns = wide->size, .stride = wide->size, .item = query->stride};
    *made = matrix_new(b->graph, places, query->dtype, wide->distances);
    return add_product(b, places, heads, &weights, *made, NULL);
}

/* The constant part of longer keys: a row for each place. */
static clattn_status add_ones(const struct builder *b, const struct wide *wide, int *array)
{
    clattn_status status;
    const size_t places = wide->window.rows * wide->window.columns, columns = wide->window.rows + wide->window.columns;
    float *ones = calloc(places * columns, sizeof *ones);
    if (!ones)
        return no_memory(b);
    for (size_t place = 0; place < places; place++) {
        ones[place * columns + place / wide->window.columns] = 1;
        ones[place * columns + wide->window.rows + place % wide->window.columns] = 1;
    }
    status = graph_constant_array(b->graph, CLATTN_DTYPE_F32, places * columns, ones, array);
    free(ones);
    return status;
}

clattn_status attend_decomposed(const struct builder *b, const struct attention_sublayer *given, struct grid window,
                                int *ones, const struct heads *heads)
{
    clattn_status status;
    const clattn_stack_desc *d = &b->stack->desc;
    const struct rows rows = given->queries;
    const size_t h = window.rows, w = window.columns, size = d->head_size;
    struct wide wide = {.window = window, .heads = d->heads, .size = size, .distances = 2 * h + 2 * w - 2};
    struct attention_sublayer sublayer = *given;
    struct heads longer = *heads;
    struct matrix product;
    wide.columns = size + h + w;
    wide.row = wide.heads * wide.columns;
    const clattn_dtype dtype = heads->query.dtype;
    const int64_t own = (int64_t)heads->query.stride, made = (int64_t)(wide.heads * wide.distances);
    const int64_t item = (int64_t)rows.length * own, made_item = (int64_t)rows.length * made, row = (int64_t)w;
    longer.query = matrix_new(b->graph, rows, dtype, wide.row);
    longer.key = matrix_new(b->graph, rows, dtype, wide.row);
    TRY(add_distances(b, rows, &wide, &given->weights->distances, &heads->query, &product));
    if (!*ones)
        TRY(add_ones(b, &wide, ones));
    TRY(add_columns(b, rows, &wide, size, heads->query.data, dtype, item, row * own, own, (int64_t)size, 1,
                    &longer.query, 0));
    TRY(add_columns(b, rows, &wide, h, operand_at(product.data.array, h - 1), dtype, made_item, row * made + 1, made,
                    (int64_t)wide.distances, -1, &longer.query, size));
    TRY(add_columns(b, rows, &wide, w, operand_at(product.data.array, 2 * h - 1 + w - 1), dtype, made_item, row * made,
                    made + 1, (int64_t)wide.distances, -1, &longer.query, size + h));
    TRY(add_columns(b, rows, &wide, size, heads->key.data, dtype, item, row * own, own, (int64_t)size, 1, &longer.key,
                    0));
    TRY(add_columns(b, rows, &wide, h + w, operand_of(*ones), CLATTN_DTYPE_F32, 0, row * (int64_t)(h + w),
                    (int64_t)(h + w), 0, 1, &longer.key, size));
    sublayer.wide = wide.columns;
    sublayer.key = longer.key.data;
    sublayer.bias_operand = operand_of(0);
    status = attend(b, &sublayer, &longer);
fail:
    return status;
}
