/* An encoder's graph: its input, the layers, and pooling. */
#include "base/try.h"
#include "nn/stack/encoder.h"
#include "nn/stack/layers.h"

struct encoder_builder {
    struct builder base;
    struct encoder_plan *plan;
    int lengths;          /* array; 0: none */
    size_t probabilities; /* layers so far whose probabilities are an output */
    struct angles angles; /* of rotated patches */
    struct windows windows;
};

/* ---- input and output ---- */

/* A picture that the caller binds. */
static struct picture bound_picture(const struct encoder_builder *b, const clattn_layout *layout, int slot)
{
    return (struct picture){operand_of(graph_bound_array(b->base.graph, layout->dtype, slot, 0)), *layout};
}

static clattn_status add_input(struct encoder_builder *b, struct grid grid)
{
    struct graph *graph = b->base.graph;
    const clattn_stack_desc *d = &b->base.stack->desc;
    if (b->plan->has_lengths)
        b->lengths = add_integers(&b->base, b->plan->desc.batch, NUMBER_BATCH, ENCODER_LENGTHS, 0);
    if (d->input == CLATTN_STACK_INPUT_TOKENS)
        return add_embedding(&b->base, graph_bound_array(graph, CLATTN_DTYPE_I32, ENCODER_INPUT, 0),
                             add_segments(&b->base, ENCODER_SEGMENTS), first_position(&b->base), 0);
    if (d->input == CLATTN_STACK_INPUT_FEATURES) {
        const size_t batch = b->plan->desc.batch, frames = b->plan->desc.length;
        return add_convolutions(&b->base, (struct rows){batch, frames, NUMBER_BATCH, NUMBER_INPUT_LENGTH},
                                ENCODER_INPUT);
    }
    if (d->input == CLATTN_STACK_INPUT_PICTURES)
        return add_pictures(&b->base, grid, bound_picture(b, &b->plan->desc.picture, ENCODER_INPUT));
    b->base.x = matrix_bound(graph, b->base.model->dtype, d->d_model, ENCODER_INPUT);
    return CLATTN_SUCCESS;
}

/* Lets all items and heads have one query of zeros. */
static void ask_by_zeros(struct encoder_builder *b, size_t size, struct graph_step *step, clattn_layout *query)
{
    struct graph_step fill = {.op = GRAPH_FILL, .rows = size, .row_bytes = sizeof(float)};
    step->operand[HEADS_QUERY] = fill.operand[MOVE_TO] =
        operand_of(graph_arena_array(b->base.graph, CLATTN_DTYPE_F32, size));
    graph_add(b->base.graph, &fill);
    query->stride[0] = query->stride[1] = 0;
}

/* The mean over an item's positions is an attention in which all keys within the length have the same weight: the scale is 0,
 * or the query is.  A query of zeros and the layers' size of heads make it an attention like those of the layers, with the same
 * program on CPUs.  The pooling of one position is such an attention over a single key, the last of them by a window. */
static clattn_status add_pooled(struct encoder_builder *b, const struct matrix *result, struct graph_operand pooled)
{
    const struct encoder_plan *plan = b->plan;
    const clattn_pooling pooling = plan->desc.pooling;
    const size_t batch = plan->desc.batch, d_model = b->base.stack->desc.d_model, positions = b->base.rows.length;
    const bool patches = pooling == CLATTN_POOLING_PATCHES;
    const size_t prefix = patches ? stack_prefix(&plan->model->encoder.desc) : 0;
    const clattn_stack_desc *d = &b->base.stack->desc;
    size_t heads = b->base.stack->kv_heads.whole * (d->heads / d->kv_heads); /* of all ranks */
    while (d_model % heads || (d_model / heads > 64 && heads < 256))
        heads = heads < d_model ? heads + 1 : 1;
    const size_t size = d_model / heads;
    clattn_attention_desc desc;
    struct graph_step step = {.op = GRAPH_ATTENTION,
                              .batch = NUMBER_BATCH,
                              .length = NUMBER_ONE,
                              .keys = patches ? graph_number(b->base.graph, positions - prefix, NUMBER_ONE)
                                      : pooling == CLATTN_POOLING_FIRST ? NUMBER_ONE
                                                                        : b->base.rows.length_number};
    clattn_attention_desc_init(&desc);
    desc.query = desc.key =
        (clattn_layout){.dtype = result->dtype,
                        .rank = 4,
                        .extent = {batch, heads, positions - prefix, size},
                        .stride = {(int64_t)(positions * d_model), (int64_t)size, (int64_t)d_model, 1}};
    desc.query.extent[2] = 1;
    desc.value = desc.key;
    desc.output = clattn_layout_bhsd(CLATTN_DTYPE_F32, batch, heads, 1, size);
    if (b->lengths && !patches) { /* the first position needs them too: an empty item has no first position */
        desc.lengths.key = clattn_layout_contiguous(CLATTN_DTYPE_I32, 1, &batch);
        step.operand[HEADS_KEY_LENGTHS] = operand_of(b->lengths);
        if (pooling != CLATTN_POOLING_LAST) { /* as in the layers */
            desc.lengths.query = desc.lengths.key;
            step.operand[HEADS_QUERY_LENGTHS] = operand_of(b->lengths);
        }
    }
    if (pooling == CLATTN_POOLING_LAST) {
        desc.alignment = CLATTN_ALIGNMENT_BOTTOM_RIGHT;
        desc.window.explicit_left = 1;
    }
    step.operand[HEADS_QUERY] = step.operand[HEADS_KEY] = step.operand[HEADS_VALUE] =
        (struct graph_operand){result->data.array, result->data.offset + (int64_t)(prefix * d_model)};
    if (result->dtype == CLATTN_DTYPE_F32)
        ask_by_zeros(b, size, &step, &desc.query);
    else
        desc.scoring.explicit_scale = 1;
    step.operand[HEADS_OUTPUT] = pooled;
    return graph_add_operator(b->base.graph, &step, &desc, NULL);
}

/* x / |x| is x / rms(x), times 1 / sqrt(columns), which fills an array as long as a row: so the layers' norms and this one have
 * the same program. */
static clattn_status add_unit(const struct encoder_builder *b, struct graph_operand pooled, size_t columns)
{
    const size_t extent[2] = {b->plan->desc.batch, columns};
    const int unit = graph_arena_array(b->base.graph, CLATTN_DTYPE_F32, columns);
    struct graph_step fill = {
        .op = GRAPH_FILL, .integers = ENCODER_UNIT, .rows = columns, .row_bytes = sizeof(int32_t)};
    fill.operand[MOVE_TO] = operand_of(unit);
    graph_add(b->base.graph, &fill);
    struct graph_step norm = {.op = GRAPH_NORM, .batch = NUMBER_BATCH};
    clattn_norm_desc unit_norm;
    clattn_norm_desc_init(&unit_norm);
    unit_norm.kind = CLATTN_NORM_KIND_RMS;
    unit_norm.explicit_epsilon = 1;
    unit_norm.epsilon = 1e-30f;
    unit_norm.x = unit_norm.y = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, extent);
    unit_norm.scale = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, &columns);
    norm.operand[NORM_X] = norm.operand[NORM_Y] = pooled;
    norm.operand[NORM_SCALE] = operand_of(unit);
    return graph_add_operator(b->base.graph, &norm, &unit_norm, NULL);
}

static clattn_status add_pooling(struct encoder_builder *b, const struct matrix *result)
{
    clattn_status status;
    const struct stack *stack = b->base.stack;
    const size_t projection = stack->desc.projection;
    const struct rows rows = {1, b->plan->desc.batch, NUMBER_ONE, NUMBER_BATCH};
    const struct matrix output =
        matrix_bound(b->base.graph, CLATTN_DTYPE_F32, projection ? projection : stack->desc.d_model, ENCODER_POOLED);
    struct matrix pooled = output;
    if (projection)
        pooled = matrix_new(b->base.graph, rows, CLATTN_DTYPE_F32, stack->desc.d_model);
    TRY(add_pooled(b, result, pooled.data));
    if (projection) {
        const struct linear_operands weights = linear_of(&b->base, &stack->projection);
        TRY(add_product(&b->base, rows, pooled, &weights, output, NULL));
    }
    if (b->plan->desc.pooled_unit)
        status = add_unit(b, output.data, output.columns);
fail:
    return status;
}

/* ---- layers ---- */

static clattn_status add_self_attention(struct encoder_builder *b, size_t layer)
{
    clattn_status status;
    const struct stack *stack = b->base.stack;
    const clattn_stack_desc *d = &stack->desc;
    const struct attention_weights *weights = &stack->layers[layer].self;
    const clattn_layout *all = &b->plan->probabilities;
    struct heads heads;
    TRY(add_projections(&b->base, weights, true, &heads));
    if (d->rotary && stack_has_patches(d)) {
        TRY(add_grid_rope(&b->base, &heads.query, d->heads, &b->angles));
        TRY(add_grid_rope(&b->base, &heads.key, d->kv_heads, &b->angles));
    } else if (d->rotary) {
        TRY(add_rope(&b->base, &heads.query, d->heads, NUMBER_ONE, 0));
        TRY(add_rope(&b->base, &heads.key, d->kv_heads, NUMBER_ONE, 0));
    }
    const struct attention_sublayer sublayer = {
        .weights = weights,
        .queries = b->base.rows,
        .key = heads.key.data,
        .value = heads.value.data,
        .cache = heads_layout(stack, b->base.rows, &heads.key, d->kv_heads),
        .keys = b->base.rows.length_number,
        .causal = d->causal,
        .reach = layer_reach(d, layer),
        .query_lengths = b->lengths,
        .key_lengths = b->lengths,
        .mask = b->plan->desc.mask,
        .mask_slot = ENCODER_MASK,
        .output = is_among(b->plan->desc.probabilities, layer),
        .probabilities = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, all->extent + 1),
        .probabilities_slot = ENCODER_PROBABILITIES,
        .probabilities_offset = b->probabilities * (size_t)all->stride[0],
    };
    b->probabilities += sublayer.output;
    status = add_attention(&b->base, &sublayer, &heads);
fail:
    return status;
}

static bool same_windows(const struct windows *windows, struct grid grid, const clattn_windows *of)
{
    return windows->grid.rows == grid.rows && windows->grid.columns == grid.columns && windows->of.rows == of->rows &&
           windows->of.columns == of->columns && windows->of.shifted == of->shifted;
}

/* Adds the layers of a stage; `result` is the encoder's, or NULL if another stage follows. */
static clattn_status add_layers(struct encoder_builder *b, struct grid grid, const struct matrix *result)
{
    clattn_status status = CLATTN_SUCCESS;
    const clattn_stack_desc *d = &b->base.stack->desc;
    struct windows *windows = &b->windows;
    if (!same_windows(windows, grid, &d->windows))
        *windows = (struct windows){.grid = grid, .of = d->windows};
    if (d->rotary && stack_has_patches(d))
        TRY(add_grid_angles(&b->base, grid, &b->angles));
    for (size_t i = 0; i < d->layers; i++) {
        TRY(d->windows.rows ? add_window_attention(&b->base, windows, i) : add_self_attention(b, i));
        TRY(end_layer(&b->base, i, result));
    }
fail:
    return status;
}

/* Adds a stage that does not make the encoder's result itself. */
static clattn_status add_stage(struct encoder_builder *b, struct grid grid)
{
    clattn_status status;
    const struct matrix before = b->base.x;
    const bool residual = b->base.stack->desc.residual;
    if (residual)
        b->base.own = false;
    TRY(add_layers(b, grid, NULL));
    if (residual)
        status = add_residual(&b->base, grid, &before);
fail:
    return status;
}

/* Adds the last stage, which makes the result. */
static clattn_status add_last(struct encoder_builder *b, struct grid grid)
{
    clattn_status status;
    const clattn_stack_desc *d = &b->base.stack->desc;
    const clattn_encoder_desc *desc = &b->plan->desc;
    if (d->neck || d->restoration.kind) {
        TRY(add_stage(b, grid));
        return d->neck ? add_neck(&b->base, grid, ENCODER_OUTPUT)
                       : add_restoration(&b->base, grid, bound_picture(b, &desc->picture, ENCODER_INPUT),
                                         bound_picture(b, &desc->restored, ENCODER_OUTPUT));
    }
    const struct matrix result = stack_result(&b->base, ENCODER_OUTPUT);
    TRY(add_layers(b, grid, &result));
    if (desc->pooling)
        status = add_pooling(b, &result);
fail:
    return status;
}

static clattn_status add_all(struct encoder_builder *b)
{
    clattn_status status;
    const clattn_encoder_desc *desc = &b->plan->desc;
    struct grid grid = stack_grid(b->base.stack, desc->picture.extent[2], desc->picture.extent[3]);
    TRY(add_input(b, grid));
    while (b->base.stack->next) {
        TRY(add_stage(b, grid));
        if (b->base.stack->next->desc.input == CLATTN_STACK_INPUT_MERGED)
            TRY(add_merge(&b->base, &grid));
        else
            b->base.stack = b->base.stack->next;
    }
    TRY(add_last(b, grid));
    status = graph_finish(b->base.graph);
fail:
    return status;
}

clattn_status encoder_make_graph(struct encoder_plan *plan, const clattn_plan_options *options)
{
    clattn_status status;
    struct encoder_builder b = {.base = {.graph = &plan->graph,
                                         .model = plan->model,
                                         .stack = &plan->model->encoder,
                                         .options = options,
                                         .rows = {plan->desc.batch, plan->positions, NUMBER_BATCH, NUMBER_LENGTH},
                                         .items = plan->desc.batch},
                                .plan = plan};
    TRY(graph_begin(&plan->graph, plan->base.context));
    plan->graph.prepack = plan->desc.prepack;
    status = add_all(&b);
fail:
    return status;
}
