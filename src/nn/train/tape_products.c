/* The way back through products. */
#include <stdlib.h>

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "nn/model/load.h"
#include "nn/train/tape_gradients.h"

static clattn_layout transposed(const clattn_layout *layout)
{
    clattn_layout made = *layout;
    made.extent[0] = layout->extent[1];
    made.extent[1] = layout->extent[0];
    made.stride[0] = layout->stride[1];
    made.stride[1] = layout->stride[0];
    return made;
}

/* c = a b, or c += a b. */
static clattn_status add_product(struct tape *t, const clattn_layout *a_layout, struct graph_operand a,
                                 const clattn_layout *b_layout, struct graph_operand b, const clattn_layout *c_layout,
                                 struct graph_operand c, bool plus)
{
    clattn_matmul_desc desc;
    struct graph_step step = {.op = GRAPH_MATMUL,
                              .length = graph_number(t->graph, c_layout->extent[0], NUMBER_ONE),
                              .operand = {[MATMUL_A] = a, [MATMUL_B] = b, [MATMUL_C] = c}};
    clattn_matmul_desc_init(&desc);
    desc.a = *a_layout;
    desc.b = *b_layout;
    desc.c = *c_layout;
    if (plus) {
        desc.operand = *c_layout;
        desc.operand_use = CLATTN_MATMUL_OPERAND_USE_ADD;
        step.operand[MATMUL_OPERAND] = c;
    }
    return graph_add_operator(t->graph, &step, &desc, NULL);
}

/* The sums of a gradient's columns: the product of a row of ones and the gradient. */
static clattn_status add_column_sums(struct tape *t, const clattn_layout *y_layout, struct graph_operand y,
                                     struct graph_operand sums)
{
    clattn_status status;
    const clattn_layout one = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[2]){1, y_layout->extent[0]});
    const clattn_layout row = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[2]){1, y_layout->extent[1]});
    bool before;
    if (!t->ones) {
        float *ones = malloc(t->rows * sizeof *ones);
        if (!ones)
            return tape_no_memory(t);
        for (size_t i = 0; i < t->rows; i++)
            ones[i] = 1;
        status = graph_constant_array(t->graph, CLATTN_DTYPE_F32, t->rows, ones, &t->ones);
        free(ones);
        if (status != CLATTN_SUCCESS)
            return status;
    }
    TRY(tape_note_written(t, sums, &before));
    status = add_product(t, &one, operand_of(t->ones), y_layout, y, &row, sums, before);
fail:
    return status;
}

clattn_status tape_add_sum(struct tape *t, const clattn_layout *x_layout, struct graph_operand x,
                           const clattn_layout *y_layout, struct graph_operand y)
{
    struct graph_step step = {.op = GRAPH_DROPOUT,
                              .batch = graph_number(t->graph, x_layout->extent[0], NUMBER_ONE),
                              .operand = {[DROPOUT_X] = x, [DROPOUT_RESIDUAL] = y, [DROPOUT_Y] = y}};
    clattn_dropout_desc desc;
    clattn_dropout_desc_init(&desc);
    desc.x = *x_layout;
    desc.residual = desc.y = *y_layout;
    return graph_add_operator(t->graph, &step, &desc, NULL);
}

/* Finds the weight of the model that the array is; 0: it is none. */
static weight_id find_weight(const struct tape *t, struct graph_operand operand)
{
    const clattn_transformer *model = t->model;
    const struct graph_array *array = &t->graph->arrays[operand.array];
    for (weight_id id = 1; (size_t)id < model->weight_count; id++) {
        const clattn_binding own = model_weight(model, id);
        if (own.buffer == array->fixed.buffer && own.offset == array->fixed.offset + operand.offset)
            return id;
    }
    return 0;
}

/* Sums a gradient's columns first ... end - 1 into those of the bias. */
static clattn_status add_some_sums(struct tape *t, clattn_layout c_layout, struct graph_operand c,
                                   struct graph_operand sums, size_t first, size_t end)
{
    if (first == end)
        return CLATTN_SUCCESS;
    c_layout.extent[1] = end - first;
    c.offset += (int64_t)first;
    sums.offset += (int64_t)first;
    return add_column_sums(t, &c_layout, c, sums);
}

/* Sums a gradient's columns into the bias, but for those whose bias the model does not have: their gradients stay zeros. */
static clattn_status add_bias_sums(struct tape *t, const clattn_layout *c_layout, struct graph_operand c,
                                   struct graph_operand bias)
{
    clattn_status status;
    const weight_id weight = find_weight(t, bias);
    const struct graph_operand sums = tape_weight_gradient(t, bias);
    size_t first = 0, end = 0; /* the parts of a weight follow each other in this order (declare.c) */
    for (size_t i = 0; i < t->model->part_count; i++) {
        const struct part *part = &t->model->parts[i];
        if (part->weight != weight || part->zero)
            continue;
        if (part->first != end) {
            TRY(add_some_sums(t, *c_layout, c, sums, first, end));
            first = part->first;
        }
        end = part->first + part->rows;
    }
    status = add_some_sums(t, *c_layout, c, sums, first, end);
fail:
    return status;
}

/* ---- convolutions, activations, gates ---- */

static bool is_target_of(const struct tape *t, enum graph_op op, struct graph_operand array)
{
    for (size_t i = 0; i < t->graph->step_count; i++)
        if (t->graph->steps[i].op == op && t->graph->steps[i].operand[MOVE_TO].array == array.array)
            return true;
    return false;
}

/* Whether rows of `a` are windows of what a convolution reads, which may share elements, and leave some out. */
static bool has_windows(const struct tape *t, struct graph_operand a)
{
    return is_target_of(t, GRAPH_PAD, a);
}

/* Adds `x`, the gradients of windows, contiguous float32, to the gradient of the array that they lie in, which gets one: first
 * of all windows what lies before the next one begins, then what lies before the one behind that, and so on. */
static clattn_status add_windows(struct tape *t, const clattn_layout *rows, struct graph_operand of,
                                 struct graph_operand x)
{
    clattn_status status;
    const int last = rows->rank - 1;
    const size_t columns = rows->extent[last], piece = (size_t)rows->stride[last - 1];
    const size_t count = t->graph->arrays[of.array].bytes / clattn_dtype_size(rows->dtype);
    struct graph_step fill = {.op = GRAPH_FILL, .rows = count, .row_bytes = sizeof(float)};
    TRY(tape_reserve(t));
    t->gradient[of.array] = graph_arena_array(t->graph, CLATTN_DTYPE_F32, count);
    fill.operand[MOVE_TO] = operand_of(t->gradient[of.array]);
    graph_add(t->graph, &fill);
    for (size_t at = 0; at < columns; at += piece) {
        clattn_layout from = clattn_layout_contiguous(CLATTN_DTYPE_F32, rows->rank, rows->extent),
                      to = as_float32(*rows);
        const struct graph_operand to_rows = {t->gradient[of.array], of.offset + (int64_t)at},
                                   from_rows = {x.array, x.offset + (int64_t)at};
        from.extent[last] = to.extent[last] = size_min(piece, columns - at);
        TRY(tape_add_sum(t, &from, from_rows, &to, to_rows));
    }
fail:
    return status;
}

/* The gradient of the table of positions that a product adds to each item's rows. */
static clattn_status add_position_table(struct tape *t, const struct graph_step *s, const clattn_layout *y)
{
    const struct graph_operand table = s->operand[MATMUL_OPERAND];
    const struct weight *weight = &t->model->weights[find_weight(t, table)];
    const clattn_layout layout =
        clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[2]){weight->rows, weight->columns});
    const size_t extent[3] = {y->rank == 3 ? y->extent[0] : 1, y->extent[y->rank - 2], y->extent[y->rank - 1]};
    struct graph_step step = {.batch = s->batch, .length = s->length};
    clattn_embedding_desc desc;
    clattn_embedding_desc_init(&desc);
    desc.ids = clattn_layout_contiguous(CLATTN_DTYPE_I32, 2, extent);
    desc.gradients.y = clattn_layout_contiguous(y->dtype, 3, extent);
    step.operand[EMBEDDING_Y_GRADIENT] = tape_gradient(t, s->operand[MATMUL_C]);
    return tape_add_positions(t, &desc, &step, 0, table, &layout);
}

/* The gradient of a: new, or to be added to the one that is there, or of windows. */
struct a_gradient {
    bool wanted, plus, windows;
    clattn_layout layout;
    struct graph_operand operand;
};

static clattn_status find_a_gradient(struct tape *t, struct graph_operand a, const clattn_layout *layout,
                                     struct a_gradient *found)
{
    clattn_status status = CLATTN_SUCCESS;
    /* What has been copied from the caller has no gradient. */
    *found = (struct a_gradient){.wanted = tape_wants_gradient(t, a) && !is_target_of(t, GRAPH_COPY, a),
                                 .plus = tape_has_gradient(t, a),
                                 .windows = has_windows(t, a)};
    if (!found->wanted)
        return CLATTN_SUCCESS;
    if (found->windows && found->plus)
        return tape_unsupported(t, "frames that two products read");
    found->layout =
        clattn_layout_contiguous(found->windows ? CLATTN_DTYPE_F32 : layout->dtype, layout->rank, layout->extent);
    if (found->windows || found->plus) {
        found->operand = operand_of(graph_arena_array(t->graph, found->layout.dtype, layout_elements(layout)));
    } else {
        TRY(tape_give_gradient(t, a));
        found->operand = tape_gradient(t, a);
    }
fail:
    return status;
}

/* A product by the operator's own way back: of sums that are multiplied by a gate or go through an activation, which are
 * computed once more, of several items, or of windows. Such products have the whole bias or none. */
static clattn_status whole_product(struct tape *t, const struct graph_step *s)
{
    clattn_status status;
    clattn_matmul_desc desc = *(const clattn_matmul_desc *)graph_desc(t->graph, s->plan);
    struct graph_step step = *s;
    const clattn_layout a_layout = desc.a;
    const struct graph_operand a = s->operand[MATMUL_A], c = s->operand[MATMUL_C], other = s->operand[MATMUL_OPERAND];
    const bool gate = other.array && desc.operand_use == CLATTN_MATMUL_OPERAND_USE_MULTIPLY;
    struct a_gradient of_a;
    bool before;
    if (gate ? tape_has_gradient(t, other) || other.offset : other.array && tape_wants_gradient(t, other))
        return tape_unsupported(t, "what a product and others read");
    TRY(find_a_gradient(t, a, &a_layout, &of_a));
    desc.direction = CLATTN_DIRECTION_BACKWARD;
    desc.gradients.c = desc.c;
    desc.gradients.c.dtype = t->graph->arrays[t->gradient[c.array]].dtype;
    desc.gradients.a = of_a.layout;
    desc.gradients.b = as_float32(desc.b);
    desc.c = (clattn_layout){0};
    step.workspace = 0;
    step.operand[MATMUL_C_GRADIENT] = tape_gradient(t, c);
    step.operand[MATMUL_C] = operand_of(0);
    step.operand[MATMUL_A_GRADIENT] = of_a.operand;
    step.operand[MATMUL_B_GRADIENT] = tape_weight_gradient(t, s->operand[MATMUL_B]);
    TRY(tape_note_written(t, step.operand[MATMUL_B_GRADIENT], &before));
    if (before)
        return tape_unsupported(t, "a weight that two products have");
    if (gate) {
        TRY(tape_give_gradient(t, other));
        desc.gradients.operand = desc.operand;
        step.operand[MATMUL_OPERAND_GRADIENT] = tape_gradient(t, other);
    } else if (other.array) {
        TRY(add_position_table(t, s, &desc.gradients.c));
        desc.operand = (clattn_layout){0};
        step.operand[MATMUL_OPERAND] = operand_of(0);
    }
    if (s->operand[MATMUL_BIAS].array) {
        desc.gradients.bias = as_float32(desc.bias);
        step.operand[MATMUL_BIAS_GRADIENT] = tape_weight_gradient(t, s->operand[MATMUL_BIAS]);
    }
    TRY(graph_add_operator(t->graph, &step, &desc, NULL));
    if (of_a.wanted && of_a.windows)
        status = add_windows(t, &a_layout, a, of_a.operand);
    else if (of_a.wanted && of_a.plus)
        status = tape_add_sum(t, &of_a.layout, of_a.operand, &a_layout, tape_gradient(t, a));
fail:
    return status;
}

clattn_status tape_product(struct tape *t, const struct graph_step *s)
{
    clattn_status status = CLATTN_SUCCESS;
    const clattn_matmul_desc d = *(const clattn_matmul_desc *)graph_desc(t->graph, s->plan);
    const struct graph_operand a = s->operand[MATMUL_A], c = s->operand[MATMUL_C], plus = s->operand[MATMUL_OPERAND];
    if (!tape_has_gradient(t, c))
        return CLATTN_SUCCESS;
    if (d.activation || d.a.rank != 2 || has_windows(t, a) ||
        (plus.array && (d.operand_use == CLATTN_MATMUL_OPERAND_USE_MULTIPLY || !tape_wants_gradient(t, plus))))
        return whole_product(t, s);
    const struct graph_operand of_c = tape_gradient(t, c), of_b = tape_weight_gradient(t, s->operand[MATMUL_B]);
    const clattn_layout c_across = transposed(&d.c), b_across = transposed(&d.b);
    if (of_b.array) {
        const clattn_layout of_b_layout = as_float32(b_across);
        bool before;
        TRY(tape_note_written(t, of_b, &before));
        TRY(add_product(t, &c_across, of_c, &d.a, a, &of_b_layout, of_b, before));
    }
    if (s->operand[MATMUL_BIAS].array)
        TRY(add_bias_sums(t, &d.c, of_c, s->operand[MATMUL_BIAS]));
    if (tape_wants_gradient(t, a)) {
        const bool before = tape_has_gradient(t, a);
        if (!before)
            TRY(tape_give_gradient(t, a));
        TRY(add_product(t, &d.c, of_c, &b_across, s->operand[MATMUL_B], &d.a, tape_gradient(t, a), before));
    }
    if (plus.array && tape_wants_gradient(t, plus)) {
        /* Nothing else reads the gradient of c from here on, so that it becomes that of what was added. */
        if (tape_has_gradient(t, plus) || plus.offset != c.offset)
            return tape_unsupported(t, "what is added to a product and read later, too,");
        t->gradient[plus.array] = t->gradient[c.array];
    }
fail:
    return status;
}
