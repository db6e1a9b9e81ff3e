/* A training step's graph: the encoder, the decoder, the losses, and the way back. */
#include <stdlib.h>

#include "base/size.h"
#include "base/try.h"
#include "nn/stack/layers.h"
#include "nn/train/tape.h"
#include "nn/train/trainer.h"

struct training_builder {
    struct builder base;
    const struct training_plan *plan;
    struct tape_segment *segments; /* a layer each, with `recompute` */
    size_t segment_count;
    struct matrix memory; /* the encoder's result */
    struct rows memory_rows;
    int memory_lengths, lengths; /* arrays; 0: none */
};

/* Rows that every enqueue has. */
static struct rows rows_of(struct graph *graph, size_t batch, size_t length)
{
    return (struct rows){batch, length, graph_number(graph, batch, NUMBER_ONE),
                         graph_number(graph, length, NUMBER_ONE)};
}

static clattn_status add_self_attention(struct training_builder *b, size_t layer)
{
    clattn_status status;
    const struct stack *stack = b->base.stack;
    const clattn_stack_desc *d = &stack->desc;
    struct heads heads;
    TRY(add_projections(&b->base, &stack->layers[layer].self, true, &heads));
    if (d->rotary) {
        TRY(add_rope(&b->base, &heads.query, d->heads, NUMBER_ONE, 0));
        TRY(add_rope(&b->base, &heads.key, d->kv_heads, NUMBER_ONE, 0));
    }
    const struct attention_sublayer sublayer = {.weights = &stack->layers[layer].self,
                                                .queries = b->base.rows,
                                                .key = heads.key.data,
                                                .value = heads.value.data,
                                                .cache = heads_layout(stack, b->base.rows, &heads.key, d->kv_heads),
                                                .values = heads_layout(stack, b->base.rows, &heads.value, d->kv_heads),
                                                .keys = b->base.rows.length_number,
                                                .causal = d->causal,
                                                .reach = layer_reach(d, layer),
                                                .query_lengths = b->lengths,
                                                .key_lengths = b->lengths};
    status = add_attention(&b->base, &sublayer, &heads);
fail:
    return status;
}

static clattn_status add_cross_attention(struct training_builder *b, size_t layer)
{
    clattn_status status;
    const struct stack *stack = b->base.stack;
    const struct attention_weights *weights = &stack->layers[layer].cross;
    const struct linear_operands w = linear_of(&b->base, &weights->memory);
    const struct rows rows = b->memory_rows;
    struct matrix key = matrix_new(b->base.graph, rows, b->base.model->dtype, 2 * stack->inner_kv);
    struct heads heads;
    TRY(add_projections(&b->base, weights, false, &heads));
    TRY(add_product(&b->base, rows_flat(b->base.graph, rows), b->memory, &w, key, NULL));
    const struct attention_sublayer sublayer = {
        .weights = weights,
        .queries = b->base.rows,
        .key = key.data,
        .value = operand_at(key.data.array, stack->inner_kv),
        .cache = heads_layout(stack, rows, &key, stack->desc.kv_heads),
        .keys = rows.length_number,
        .query_lengths = b->lengths,
        .key_lengths = b->memory_lengths,
    };
    status = add_attention(&b->base, &sublayer, &heads);
fail:
    return status;
}

/* What a stack reads: the slots of its arrays, and the integers that are the items' lengths. */
struct training_input {
    int slot, segments, lengths;
};

static clattn_status add_input(struct training_builder *b, const struct training_input *input, size_t length)
{
    clattn_status status;
    struct graph *graph = b->base.graph;
    if (b->base.stack->desc.input == CLATTN_STACK_INPUT_TOKENS)
        return add_embedding(&b->base, graph_bound_array(graph, CLATTN_DTYPE_I32, input->slot, 0),
                             add_segments(&b->base, input->segments), first_position(&b->base), 0);
    TRY(add_convolutions(&b->base, rows_of(graph, b->base.rows.batch, length), input->slot));
    status = drop_stream(&b->base);
fail:
    return status;
}

/* Adds a stack from items of `length` tokens or frames to *result. */
static clattn_status add_stack(struct training_builder *b, const struct stack *stack, size_t length,
                               const struct training_input *input, struct matrix *result)
{
    clattn_status status;
    struct graph *graph = b->base.graph;
    const clattn_stack_desc *d = &stack->desc;
    const struct rows rows = rows_of(graph, b->plan->desc.batch, stack_frames(d, d->convolutions, length));
    b->base.stack = stack;
    b->base.rows = rows;
    b->lengths = add_integers(&b->base, rows.batch, rows.batch_number, input->lengths, 0);
    *result = matrix_new(graph, rows, b->base.model->dtype, d->d_model);
    TRY(add_input(b, input, length));
    for (size_t i = 0; i < d->layers; i++) {
        struct tape_segment *segment = &b->segments[b->segment_count];
        segment->first = graph->step_count;
        TRY(add_self_attention(b, i));
        if (d->cross)
            TRY(add_cross_attention(b, i));
        TRY(end_layer(&b->base, i, result));
        segment->end = graph->step_count;
        b->segment_count += b->plan->desc.recompute;
    }
fail:
    return status;
}

/* Adds logits and losses; the gradient of the logits takes their place. */
static clattn_status add_losses(struct training_builder *b, struct matrix x, int *logits)
{
    clattn_status status;
    struct graph *graph = b->base.graph;
    const struct linear_operands w = linear_of(&b->base, &b->base.model->logits);
    const struct rows rows = rows_flat(b->base.graph, b->base.rows);
    const size_t columns = b->base.model->output_size;
    const struct matrix made = matrix_new(graph, rows, CLATTN_DTYPE_F32, columns);
    struct graph_step step = {.op = GRAPH_LOSS, .batch = rows.length_number};
    clattn_cross_entropy_desc desc;
    clattn_cross_entropy_desc_init(&desc);
    desc.smoothing = b->plan->desc.label_smoothing;
    desc.x = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[2]){rows.length, columns});
    desc.labels = clattn_layout_contiguous(CLATTN_DTYPE_I32, 1, &rows.length);
    desc.loss = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, &rows.length);
    step.operand[LOSS_LOGITS] = made.data;
    step.operand[LOSS_LABELS] = operand_of(graph_bound_array(graph, CLATTN_DTYPE_I32, TRAINING_LABELS, 0));
    step.operand[LOSS_LOSSES] = operand_of(graph_bound_array(graph, CLATTN_DTYPE_F32, TRAINING_LOSSES, 0));
    if (!b->plan->desc.evaluation) {
        desc.gradients.x = desc.x;
        step.operand[LOSS_LOGITS_GRADIENT] = made.data;
    }
    *logits = made.data.array;
    TRY(add_product(&b->base, rows, x, &w, logits_columns(&b->base, made), NULL));
    add_exchange(&b->base, GRAPH_ALL_GATHER, rows, &made);
    status = graph_add_operator(graph, &step, &desc, NULL);
fail:
    return status;
}

/* Adds a copy of a matrix to or from what the caller binds. */
static clattn_status add_copy(struct training_builder *b, const struct matrix *from, const struct matrix *to)
{
    const size_t extent[2] = {b->base.rows.batch * b->base.rows.length, from->columns};
    const clattn_layout layout = clattn_layout_contiguous(from->dtype, 2, extent);
    return add_convert(&b->base, graph_number(b->base.graph, extent[0], NUMBER_ONE), from->data, &layout, to->data,
                       &layout);
}

/* Adds what comes after the last stack; *begin is the array whose gradient is there when the way back begins. */
static clattn_status add_end(struct training_builder *b, struct matrix x, int *begin)
{
    const struct matrix output = matrix_bound(b->base.graph, x.dtype, x.columns, TRAINING_OUTPUT);
    if (b->base.model->output)
        return add_losses(b, x, begin);
    *begin = x.data.array;
    return add_copy(b, &x, &output);
}

static clattn_status add_forward(struct training_builder *b, int *begin)
{
    clattn_status status;
    const clattn_transformer *model = b->base.model;
    const clattn_training_desc *d = &b->plan->desc;
    struct matrix result = {0};
    if (model->has_encoder) {
        const struct training_input source = {TRAINING_SOURCE, TRAINING_SOURCE_SEGMENTS, TRAINING_SOURCE_LENGTHS};
        TRY(add_stack(b, &model->encoder, d->source_length, &source, &b->memory));
        b->memory_rows = b->base.rows;
        b->memory_lengths = b->lengths;
        result = b->memory;
    }
    if (model->has_decoder) {
        const struct training_input target = {TRAINING_TARGET, TRAINING_TARGET_SEGMENTS, TRAINING_TARGET_LENGTHS};
        TRY(add_stack(b, &model->decoder, d->target_length, &target, &result));
    }
    status = add_end(b, result, begin);
fail:
    return status;
}

/* Adds the gradients of a part of a step to those of the others, if the enqueue binds these. */
static clattn_status add_parts(struct training_builder *b)
{
    clattn_status status = CLATTN_SUCCESS;
    struct graph *graph = b->base.graph;
    const clattn_trainer *trainer = b->plan->trainer;
    const int buffers = (int)trainer->model->buffer_count;
    for (int i = 0; i < buffers; i++) {
        const int all = TRAINING_GRADIENTS + buffers + i;
        const size_t count = trainer->buffers[i].count;
        struct graph_step step = {
            .op = GRAPH_DROPOUT, .batch = graph_number(graph, count, NUMBER_ONE), .condition = all};
        clattn_dropout_desc desc;
        clattn_dropout_desc_init(&desc);
        desc.x = desc.residual = desc.y = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, &count);
        step.operand[DROPOUT_X] = operand_of(graph_bound_array(graph, CLATTN_DTYPE_F32, TRAINING_GRADIENTS + i, 0));
        step.operand[DROPOUT_RESIDUAL] = step.operand[DROPOUT_Y] =
            operand_of(graph_bound_array(graph, CLATTN_DTYPE_F32, all, 0));
        TRY(graph_add_operator(graph, &step, &desc, NULL));
    }
fail:
    return status;
}

static clattn_status add_backward(struct training_builder *b, int begin)
{
    clattn_status status;
    const size_t steps = b->base.graph->step_count;
    const clattn_training_desc *d = &b->plan->desc;
    const size_t longest = size_max(b->memory_rows.length, b->base.rows.length);
    struct tape tape = {
        .graph = b->base.graph, .model = b->base.model, .slot = TRAINING_GRADIENTS, .rows = d->batch * longest};
    int gradient = begin; /* that of logits has taken their place */
    if (!b->base.model->output) {
        const struct stack *last = b->base.stack;
        const clattn_dtype dtype = b->base.model->dtype;
        const struct matrix given = matrix_bound(b->base.graph, dtype, last->desc.d_model, TRAINING_OUTPUT_GRADIENT);
        const struct matrix own = matrix_new(b->base.graph, b->base.rows, dtype, last->desc.d_model);
        struct graph_step fill = {.op = GRAPH_FILL,
                                  .rows = b->base.rows.batch * b->base.rows.length,
                                  .row_bytes = last->desc.d_model * clattn_dtype_size(dtype)};
        fill.operand[MOVE_TO] = own.data;
        if (model_rank(b->base.model) == 0)
            TRY(add_copy(b, &given, &own));
        else
            graph_add(b->base.graph, &fill); /* gradients of ranks add up */
        gradient = own.data.array;
    }
    /* The last layer's arrays are needed at once, so that it is not done again. */
    status = tape_run(&tape, steps, begin, gradient, b->segments, b->segment_count ? b->segment_count - 1 : 0);
fail:
    tape_clear(&tape);
    return status;
}

clattn_status training_make_graph(struct training_plan *plan, const clattn_plan_options *options)
{
    clattn_status status;
    const clattn_transformer *model = plan->trainer->model;
    int begin = 0;
    struct training_builder b = {.base = {.graph = &plan->graph,
                                          .model = model,
                                          .options = options,
                                          .keep = !plan->desc.evaluation,
                                          .dropout = plan->desc.evaluation ? 0 : plan->desc.dropout},
                                 .plan = plan};
    TRY(graph_begin(&plan->graph, plan->base.context));
    b.segments = calloc(model->encoder.desc.layers + model->decoder.desc.layers + 1, sizeof *b.segments);
    if (!b.segments)
        return no_memory(&b.base);
    TRY(add_forward(&b, &begin));
    plan->turn = plan->graph.step_count;
    if (!plan->desc.evaluation) {
        TRY(add_backward(&b, begin));
        TRY(add_parts(&b));
    }
    status = graph_finish(&plan->graph);
fail:
    free(b.segments);
    return status;
}
