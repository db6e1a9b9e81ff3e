/* An encoder's graph: the front end of tokens or features, the layers, pooling. */
#include "base/try.h"
#include "nn/stack/encoder.h"
#include "nn/stack/layers.h"

struct making {
    struct builder b;
    struct encoder_plan *plan;
    struct rows rows; /* of positions */
    struct rows flat; /* the same, for operators that do not look at items */
    struct stream stream;
    int lengths;          /* array; 0: none */
    size_t probabilities; /* layers so far that have them as an output */
};

/* ---- the front end of features ---- */

/* A convolution is a product: row t of A begins at frame t * stride, and is `kernel` frames long.  Rows overlap, and the
 * padding is rows of zeros around each item. */
static clattn_status add_convolutions(struct making *m)
{
    clattn_status status = CLATTN_SUCCESS;
    struct graph *graph = m->b.graph;
    const struct stack *stack = m->b.stack;
    const clattn_stack_desc *d = &stack->desc;
    const clattn_dtype dtype = m->b.model->dtype;
    const size_t element = clattn_dtype_size((clattn_dtype)dtype), batch = m->plan->desc.batch;
    size_t frames = m->plan->desc.length, channels = d->features;
    int frames_number = NUMBER_LENGTH;
    struct matrix table = {.dtype = dtype, .columns = d->d_model, .stride = d->d_model, .item = SIZE_MAX};
    struct matrix padded = {0};
    for (size_t i = 0; i < d->convolutions; i++) {
        const clattn_convolution *c = &d->convolution[i];
        const bool last = i + 1 == d->convolutions;
        const struct linear_use weights = linear_of(&m->b, &stack->convolution[i]);
        struct epilogue epilogue = {.activation = c->activation};
        if (!i) {
            padded = matrix_new(graph, (struct rows){batch, frames + 2 * c->padding, 0, 0}, dtype, channels);
            padded.item = (frames + 2 * c->padding) * channels;
            struct graph_step copy = {.op = GRAPH_COPY,
                                      .batch = NUMBER_BATCH,
                                      .length = NUMBER_LENGTH,
                                      .row_bytes = channels * element,
                                      .to_item = padded.item * element,
                                      .from_item = frames * channels * element};
            copy.use[MOVE_TO] = use_at(padded.use.array, c->padding * channels);
            copy.use[MOVE_FROM] = use_of(graph_bound_array(graph, dtype, SLOT_INPUT, 0));
            graph_add(graph, &copy);
        }
        struct graph_step pad = {.op = GRAPH_PAD,
                                 .batch = NUMBER_BATCH,
                                 .length = frames_number,
                                 .rows = c->padding,
                                 .row_bytes = channels * element,
                                 .to_item = padded.item * element};
        pad.use[MOVE_TO] = padded.use;
        graph_add(graph, &pad);
        const struct matrix windows = {.use = padded.use,
                                       .dtype = dtype,
                                       .columns = c->kernel * channels,
                                       .stride = c->stride * channels,
                                       .item = padded.item};
        frames = stack_frames(d, i + 1, m->plan->desc.length);
        frames_number = last ? NUMBER_POSITIONS : NUMBER_FRAMES + (int)i;
        const struct rows rows = {batch, frames, NUMBER_BATCH, frames_number};
        channels = d->d_model;
        struct matrix made;
        if (last) {
            made = matrix_new(graph, rows, dtype, channels);
            if (stack->positions) {
                table.dtype = m->b.model->weights[stack->positions].dtype;
                table.use = use_of(graph_fixed_array(graph, model_weight(m->b.model, stack->positions)));
                epilogue.operand = &table;
            }
        } else {
            const size_t padding = d->convolution[i + 1].padding;
            made = matrix_new(graph, (struct rows){batch, frames + 2 * padding, 0, 0}, dtype, channels);
            made.item = (frames + 2 * padding) * channels;
            padded = made;
            made.use.offset = (int64_t)(padding * channels);
        }
        TRY(add_product(&m->b, rows, windows, &weights, made, &epilogue, NULL));
        m->stream = (struct stream){.x = made, .own = true};
    }
fail:
    return status;
}

/* ---- input and output ---- */

static clattn_status add_tokens(struct making *m)
{
    struct graph *graph = m->b.graph;
    const size_t ids = m->plan->desc.batch * m->plan->desc.length;
    int segments = 0;
    if (m->b.stack->segments) {
        int zeros = graph_arena_array(graph, CLATTN_DTYPE_I32, ids);
        segments = graph_bound_array(graph, CLATTN_DTYPE_I32, SLOT_SEGMENTS, zeros);
        struct graph_step zero = {
            .op = GRAPH_FILL, .condition = -SLOT_SEGMENTS, .rows = ids, .row_bytes = sizeof(int32_t)};
        zero.use[MOVE_TO] = use_of(zeros);
        graph_add(graph, &zero);
    }
    return add_embedding(&m->b, m->rows, graph_bound_array(graph, CLATTN_DTYPE_I32, SLOT_INPUT, 0), segments,
                         NUMBER_FIRST, 0, &m->stream);
}

static clattn_status add_input(struct making *m)
{
    const clattn_stack_desc *d = &m->b.stack->desc;
    if (m->plan->has_lengths) {
        m->lengths = graph_arena_array(m->b.graph, CLATTN_DTYPE_I32, m->plan->desc.batch);
        struct graph_step step = {.op = GRAPH_INTEGERS, .batch = NUMBER_BATCH, .integers = INTEGERS_LENGTHS};
        step.use[MOVE_TO] = use_of(m->lengths);
        graph_add(m->b.graph, &step);
    }
    if (d->input == CLATTN_STACK_INPUT_TOKENS)
        return add_tokens(m);
    if (d->input == CLATTN_STACK_INPUT_FEATURES)
        return add_convolutions(m);
    m->stream.x = (struct matrix){.use = use_of(graph_bound_array(m->b.graph, m->b.model->dtype, SLOT_INPUT, 0)),
                                  .dtype = m->b.model->dtype,
                                  .columns = d->d_model,
                                  .stride = d->d_model};
    return CLATTN_SUCCESS;
}

/* The mean over an item's positions is an attention whose scores are all 0: whatever the query, every key has the same
 * weight, and only those within the length have any.  The first position is that of a single key. */
static clattn_status add_pooling(struct making *m, const struct matrix *result)
{
    clattn_status status;
    const struct encoder_plan *plan = m->plan;
    const size_t batch = plan->desc.batch, d_model = m->b.stack->desc.d_model;
    const bool mean = plan->desc.pooling == CLATTN_POOLING_MEAN;
    size_t heads = 1;
    while (d_model / heads > 64 && heads < 256)
        do
            heads++;
        while (d_model % heads);
    const size_t size = d_model / heads;
    const int pooled = graph_bound_array(m->b.graph, CLATTN_DTYPE_F32, SLOT_POOLED, 0);
    clattn_attention_desc desc;
    struct graph_step step = {.op = GRAPH_ATTENTION,
                              .batch = NUMBER_BATCH,
                              .length = NUMBER_ONE,
                              .keys = mean ? NUMBER_POSITIONS : NUMBER_ONE};
    clattn_attention_desc_init(&desc);
    desc.scoring.explicit_scale = 1;
    desc.query = desc.key =
        (clattn_layout){.dtype = result->dtype,
                        .rank = 4,
                        .extent = {batch, heads, plan->positions, size},
                        .stride = {(int64_t)(plan->positions * d_model), (int64_t)size, (int64_t)d_model, 1}};
    desc.query.extent[2] = 1;
    desc.value = desc.key;
    desc.output = clattn_layout_bhsd(CLATTN_DTYPE_F32, batch, heads, 1, size);
    if (m->lengths) { /* of the first position too: an empty item has none */
        desc.lengths.key = clattn_layout_contiguous(CLATTN_DTYPE_I32, 1, &batch);
        step.use[HEADS_KEY_LENGTHS] = use_of(m->lengths);
    }
    step.use[HEADS_QUERY] = step.use[HEADS_KEY] = step.use[HEADS_VALUE] = result->use;
    step.use[HEADS_OUTPUT] = use_of(pooled);
    TRY(graph_attention(m->b.graph, &desc, NULL, &step.plan));
    graph_add(m->b.graph, &step);
    if (!plan->desc.pooled_unit)
        return CLATTN_SUCCESS;
    /* x / |x| is the root mean square's norm, times 1 / sqrt(d). */
    const size_t extent[2] = {batch, d_model}, one = 1;
    int unit = graph_arena_array(m->b.graph, CLATTN_DTYPE_I32, 1);
    struct graph_step number = {.op = GRAPH_INTEGERS, .batch = NUMBER_ONE, .integers = INTEGERS_UNIT};
    struct graph_step norm = {.op = GRAPH_NORM, .batch = NUMBER_BATCH};
    clattn_norm_desc unit_norm;
    clattn_norm_desc_init(&unit_norm);
    unit_norm.kind = CLATTN_NORM_KIND_RMS;
    unit_norm.explicit_epsilon = 1;
    unit_norm.epsilon = 1e-30f;
    unit_norm.x = unit_norm.y = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, extent);
    unit_norm.scale = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, &one);
    number.use[MOVE_TO] = use_of(unit);
    norm.use[NORMED_X] = norm.use[NORMED_Y] = use_of(pooled);
    norm.use[NORMED_SCALE] = use_of(unit);
    graph_add(m->b.graph, &number);
    TRY(graph_norm(m->b.graph, &unit_norm, &norm.plan));
    graph_add(m->b.graph, &norm);
fail:
    return status;
}

/* ---- layers ---- */

static clattn_status add_self_attention(struct making *m, size_t layer)
{
    clattn_status status;
    const struct stack *stack = m->b.stack;
    const clattn_stack_desc *d = &stack->desc;
    const struct layer_weights *weights = &stack->layers[layer];
    const struct linear_use out = linear_of(&m->b, &weights->self.out);
    const bool output = is_among(m->plan->desc.probabilities, layer);
    const clattn_layout *all = &m->plan->probabilities;
    const clattn_layout probabilities = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, all->extent + 1);
    const size_t batch = m->rows.batch;
    struct heads heads;
    clattn_attention_desc desc = stack_attention(stack);
    struct graph_step step = {
        .op = GRAPH_ATTENTION, .batch = NUMBER_BATCH, .length = NUMBER_POSITIONS, .keys = NUMBER_POSITIONS};
    TRY(add_projections(&m->b, m->rows, &m->stream, &weights->self, true, &heads));
    if (d->rotary) {
        TRY(add_rope(&m->b, m->rows, &heads.query, d->heads, 0, 0));
        TRY(add_rope(&m->b, m->rows, &heads.key, d->kv_heads, 0, 0));
    }
    desc.causal = d->causal;
    desc.mask = m->plan->desc.mask;
    desc.query = heads_layout(stack, m->rows, &heads.query, d->heads);
    desc.key = desc.value = heads_layout(stack, m->rows, &heads.key, d->kv_heads);
    desc.output = heads_layout(stack, m->rows, &heads.attended, d->heads);
    if (m->lengths) {
        desc.lengths.key = desc.lengths.query = clattn_layout_contiguous(CLATTN_DTYPE_I32, 1, &batch);
        step.use[HEADS_KEY_LENGTHS] = step.use[HEADS_QUERY_LENGTHS] = use_of(m->lengths);
    }
    if (desc.mask.rank)
        step.use[HEADS_MASK] = use_of(graph_bound_array(m->b.graph, desc.mask.dtype, SLOT_MASK, 0));
    step.use[HEADS_QUERY] = heads.query.use;
    step.use[HEADS_KEY] = heads.key.use;
    step.use[HEADS_VALUE] = heads.value.use;
    step.use[HEADS_OUTPUT] = heads.attended.use;
    TRY(add_heads(&m->b, &desc, &step, output ? &probabilities : NULL, SLOT_PROBABILITIES,
                  m->probabilities * (size_t)all->stride[0]));
    m->probabilities += output;
    status = stream_write(&m->b, m->flat, &m->stream, &weights->self.norm, heads.attended, &out, NULL);
fail:
    return status;
}

static clattn_status add_all(struct making *m)
{
    clattn_status status;
    const clattn_stack_desc *d = &m->b.stack->desc;
    const struct matrix result = stack_result(&m->b, m->rows, SLOT_OUTPUT);
    TRY(add_input(m));
    for (size_t i = 0; i < d->layers; i++) {
        TRY(add_self_attention(m, i));
        TRY(end_layer(&m->b, m->flat, &m->stream, i, &result));
    }
    if (m->plan->desc.pooling)
        TRY(add_pooling(m, &result));
    status = graph_finish(m->b.graph);
fail:
    return status;
}

clattn_status encoder_make_graph(struct encoder_plan *plan, const clattn_plan_options *options)
{
    clattn_status status;
    const struct rows rows = {plan->desc.batch, plan->positions, NUMBER_BATCH, NUMBER_POSITIONS};
    struct making m = {
        .b = {.graph = &plan->graph, .model = plan->model, .stack = &plan->model->encoder, .options = options},
        .plan = plan,
        .rows = rows,
        .flat = rows_flat(rows)};
    TRY(graph_begin(&plan->graph, plan->base.context));
    status = add_all(&m);
fail:
    return status;
}
