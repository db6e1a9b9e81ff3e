/* Encoders that make pictures of pictures: the residual convolutions of a stage, and how vectors become a picture. */
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/try.h"
#include "nn/stack/layers.h"

/* Slopes of LeakyReLU; 0: no function. */
#define SLOPE_BEFORE 0.01f
#define SLOPE_BETWEEN 0.2f

/* ---- convolutions ---- */

clattn_status add_convolution(const struct builder *b, const struct linear *weights, size_t taps, float slope,
                              struct picture x, const struct picture *added, struct picture y)
{
    const struct linear_operands w = linear_of(b, weights);
    clattn_conv2d_desc desc;
    struct graph_step step = {.op = GRAPH_CONV2D, .batch = NUMBER_BATCH};
    clattn_conv2d_desc_init(&desc);
    desc.x = x.layout;
    desc.y = y.layout;
    desc.weight = clattn_layout_nchw(w.weight_dtype, w.rows, x.layout.extent[1], taps, taps);
    if (w.bias.array)
        desc.bias = clattn_layout_contiguous(w.bias_dtype, 1, &w.rows);
    for (int axis = 0; axis < 2; axis++) { /* x may have rows or columns that y does not have */
        desc.padding[axis] = (int32_t)(taps / 2);
        desc.padding[axis + 2] = (int32_t)(y.layout.extent[axis + 2] + taps / 2 - x.layout.extent[axis + 2]);
    }
    if (slope != 0) {
        desc.activation = CLATTN_ACTIVATION_LEAKY_RELU;
        desc.explicit_alpha = 1;
        desc.alpha = slope;
    }
    if (added) {
        desc.operand = added->layout;
        step.operand[CONV2D_OPERAND] = added->data;
    }
    step.operand[CONV2D_X] = x.data;
    step.operand[CONV2D_WEIGHT] = w.weight;
    step.operand[CONV2D_BIAS] = w.bias;
    step.operand[CONV2D_Y] = y.data;
    return graph_add_operator(b->graph, &step, &desc, NULL);
}

struct picture picture_of(const struct builder *b, struct grid grid, const struct matrix *matrix)
{
    return (struct picture){matrix->data,
                            clattn_layout_nhwc(matrix->dtype, b->rows.batch, matrix->columns, grid.rows, grid.columns)};
}

static struct picture new_picture(const struct builder *b, struct grid grid, size_t channels)
{
    const struct rows rows = {b->rows.batch, grid.rows * grid.columns, 0, 0};
    const struct matrix matrix = matrix_new(b->graph, rows, b->x.dtype, channels);
    return picture_of(b, grid, &matrix);
}

static struct grid grid_of(const struct picture *picture)
{
    return (struct grid){picture->layout.extent[2], picture->layout.extent[3]};
}

/* Adds a convolution of 3 x 3 taps that makes a new picture. */
static clattn_status convolve(const struct builder *b, const struct linear *weights, float slope, struct picture x,
                              struct picture *made)
{
    *made = new_picture(b, grid_of(&x), weights->rows);
    return add_convolution(b, weights, 3, slope, x, NULL, *made);
}

/* Makes a new picture: `added` plus one convolution of x, or three of them. */
static clattn_status add_residual_picture(const struct builder *b, const struct linear weights[3], struct picture x,
                                          struct picture added, struct picture *made)
{
    clattn_status status;
    struct picture narrow, again;
    *made = new_picture(b, grid_of(&x), added.layout.extent[1]);
    if (!weights[1].weight)
        return add_convolution(b, weights, 3, 0, x, &added, *made);
    TRY(convolve(b, &weights[0], SLOPE_BETWEEN, x, &narrow));
    again = new_picture(b, grid_of(&x), weights[1].rows);
    TRY(add_convolution(b, &weights[1], 1, SLOPE_BETWEEN, narrow, NULL, again));
    status = add_convolution(b, &weights[2], 3, 0, again, &added, *made);
fail:
    return status;
}

clattn_status add_residual(struct builder *b, struct grid grid, const struct matrix *before)
{
    struct picture made;
    const clattn_status status =
        add_residual_picture(b, b->stack->residual, picture_of(b, grid, &b->x), picture_of(b, grid, before), &made);
    b->x.data = made.data;
    b->own = true;
    return status;
}

/* ---- what comes first ---- */

/* Index i of an axis of `length` and its mirror images, which do not repeat the edges. */
static size_t mirrored(size_t i, size_t length)
{
    const size_t period = length > 1 ? 2 * (length - 1) : 1, at = i % period;
    return at < length ? at : period - at;
}

clattn_status add_mirrored(const struct builder *b, struct grid grid, struct picture *picture)
{
    clattn_status status;
    const clattn_layout *given = &picture->layout;
    const size_t height = given->extent[2], width = given->extent[3], channels = given->extent[1];
    struct matrix pixels = {.dtype = given->dtype, .columns = channels, .stride = channels}, filled;
    const size_t count = grid.rows * grid.columns;
    const clattn_layout rows = clattn_layout_nhwc(given->dtype, b->rows.batch, channels, height, width);
    int ids;
    int32_t *from = NULL;
    TRY(check_places(b, count));
    from = malloc(count * sizeof *from);
    if (!from)
        return no_memory(b);
    for (size_t i = 0; i < count; i++)
        from[i] = (int32_t)(mirrored(i / grid.columns, height) * width + mirrored(i % grid.columns, width));
    pixels.data = operand_of(graph_arena_array(b->graph, given->dtype, b->rows.batch * height * width * channels));
    TRY(add_convert(b, NUMBER_BATCH, picture->data, given, pixels.data, &rows));
    TRY(add_row_ids(b, from, count, height * width, &ids));
    TRY(add_gather(b, &pixels, b->rows.batch * height * width, ids, count, &filled));
    *picture = picture_of(b, grid, &filled);
fail:
    free(from);
    return status;
}

/* ---- what comes last ---- */

/* The first rows and columns of a picture, with one more of each for the taps of a convolution if there are more. */
static struct picture crop_for_taps(struct picture x, struct grid kept)
{
    x.layout.extent[2] = size_min(x.layout.extent[2], kept.rows + 1);
    x.layout.extent[3] = size_min(x.layout.extent[3], kept.columns + 1);
    return x;
}

/* A pixel shuffle (Shi et al. 2016): channels * r * r channels become r x r pixels, each row of these by a copy. */
static clattn_status add_shuffle(const struct builder *b, struct picture x, size_t r, struct picture y)
{
    clattn_status status = CLATTN_SUCCESS;
    const size_t *extent = x.layout.extent, channels = y.layout.extent[1];
    const int64_t *from = x.layout.stride, *to = y.layout.stride, step = (int64_t)r;
    for (size_t row = 0; row < r; row++) {
        const clattn_layout read = {.dtype = x.layout.dtype,
                                    .rank = 5,
                                    .extent = {extent[0], extent[2], extent[3], channels, r},
                                    .stride = {from[0], from[2], from[3], step * step * from[1], from[1]}};
        clattn_layout written = read;
        written.dtype = y.layout.dtype;
        memcpy(written.stride, (int64_t[]){to[0], step * to[2], step * to[3], to[1], to[3]}, sizeof read.stride);
        TRY(add_convert(b, NUMBER_BATCH,
                        (struct graph_operand){x.data.array, x.data.offset + (int64_t)row * step * from[1]}, &read,
                        (struct graph_operand){y.data.array, y.data.offset + (int64_t)row * to[2]}, &written));
    }
fail:
    return status;
}

/* Makes the picture `factor` times as high and wide: the nearest pixels, or a pixel shuffle. */
static clattn_status enlarge(const struct builder *b, struct picture x, size_t factor, bool shuffle,
                             struct picture *made)
{
    const struct grid grid = {x.layout.extent[2] * factor, x.layout.extent[3] * factor};
    clattn_resize_desc desc;
    struct graph_step step = {.op = GRAPH_RESIZE, .batch = NUMBER_BATCH};
    *made = new_picture(b, grid, shuffle ? x.layout.extent[1] / factor / factor : x.layout.extent[1]);
    if (shuffle)
        return add_shuffle(b, x, factor, *made);
    clattn_resize_desc_init(&desc);
    desc.mode = CLATTN_RESIZE_MODE_NEAREST;
    desc.x = x.layout;
    desc.y = made->layout;
    step.operand[MOVE_FROM] = x.data;
    step.operand[MOVE_TO] = made->data;
    return graph_add_operator(b->graph, &step, &desc, NULL);
}

/* Adds what lies between the first convolution of SHUFFLE or NEAREST and the last one. */
static clattn_status add_features(const struct builder *b, struct picture *x)
{
    clattn_status status = CLATTN_SUCCESS;
    const struct stack *stack = b->stack;
    const clattn_restoration *r = &stack->desc.restoration;
    const bool shuffle = r->kind == CLATTN_RESTORATION_KIND_SHUFFLE;
    struct picture wide;
    TRY(convolve(b, &stack->restoration.before, SLOPE_BEFORE, *x, x));
    for (size_t i = 0, left = r->factor, once = r->factor == 3 ? 3 : 2; left > 1; i++, left /= once) {
        if (shuffle) {
            TRY(convolve(b, &stack->restoration.enlarge[i], 0, *x, &wide));
            TRY(enlarge(b, wide, once, true, x));
        } else {
            TRY(enlarge(b, *x, once, false, &wide));
            TRY(convolve(b, &stack->restoration.enlarge[i], SLOPE_BETWEEN, wide, x));
        }
    }
    if (!shuffle)
        status = convolve(b, &stack->restoration.detail, SLOPE_BETWEEN, *x, x);
fail:
    return status;
}

clattn_status add_restoration(struct builder *b, struct grid grid, struct picture given, struct picture restored)
{
    clattn_status status;
    const struct stack *stack = b->stack;
    const clattn_restoration *r = &stack->desc.restoration;
    const struct grid kept = grid_of(&restored), original = grid_of(&given);
    struct picture x;
    if (stack->desc.final_norm) {
        const struct matrix normed = matrix_new(b->graph, b->rows, b->x.dtype, b->x.columns);
        TRY(add_norm(b, &stack->final_norm, b->x, normed));
        b->x = normed;
    }
    TRY(add_residual_picture(b, stack->restoration.body, picture_of(b, grid, &b->x), picture_of(b, grid, &b->shallow),
                             &x));
    if (r->kind == CLATTN_RESTORATION_KIND_SHUFFLE_ONCE) {
        struct picture wide = new_picture(b, original, stack->restoration.last.rows);
        TRY(add_convolution(b, &stack->restoration.last, 3, 0, crop_for_taps(x, original), NULL, wide));
        return add_shuffle(b, wide, r->factor, restored);
    }
    if (r->kind != CLATTN_RESTORATION_KIND_ADDED)
        TRY(add_features(b, &x));
    status = add_convolution(b, &stack->restoration.last, 3, 0, crop_for_taps(x, kept),
                             r->kind == CLATTN_RESTORATION_KIND_ADDED ? &given : NULL, restored);
fail:
    return status;
}
