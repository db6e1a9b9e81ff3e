/* Encoders: planning a stack for a batch and a length, and enqueueing it. */
#include <math.h>
#include <string.h>

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "nn/layers.h"
#include "nn/whole.h"

enum { SLOT_INPUT = 1, SLOT_SEGMENTS, SLOT_MASK, SLOT_OUTPUT, SLOT_POOLED, SLOT_PROBABILITIES, SLOTS };
enum { NUMBER_BATCH = 1, NUMBER_LENGTH, NUMBER_POSITIONS, NUMBER_FIRST, NUMBER_FRAMES }; /* FRAMES: behind each
                                                                                          * convolution but the last */
enum { INTEGERS_LENGTHS = 1, INTEGERS_UNIT, INTEGERS };

struct encoder_plan {
    clattn_plan base;
    clattn_transformer *model; /* retained */
    clattn_encoder_desc desc;
    size_t positions; /* that desc.length gives */
    bool has_lengths; /* items' lengths are an array */
    struct graph graph;
    clattn_layout input, probabilities, output, pooled; /* what the caller's arrays are */
};

/* What making one needs on the way. */
struct making {
    struct builder b;
    struct encoder_plan *plan;
    struct rows rows;     /* of positions */
    struct rows flat;     /* the same, for operators that do not look at items */
    struct stream stream;
    int lengths;          /* array; 0: none */
    size_t probabilities; /* layers so far that have them as an output */
};

void clattn_encoder_desc_init(clattn_encoder_desc *desc)
{
    struct_init(desc, sizeof *desc);
}

void clattn_encoder_args_init(clattn_encoder_args *args)
{
    struct_init(args, sizeof *args);
}

/* ---- the front end of features ---- */

/* A convolution is a product: row t of A begins at frame t * stride, and is `kernel` frames long.  Rows overlap, and the
 * padding is rows of zeros around each item. */
static clattn_status add_convolutions(struct making *m)
{
    clattn_status status = CLATTN_SUCCESS;
    struct graph *graph = m->b.graph;
    const struct stack *stack = m->b.stack;
    const clattn_stack_desc *d = &stack->desc;
    const int32_t dtype = m->b.model->dtype;
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
        const struct matrix windows = {
            .use = padded.use, .dtype = dtype, .columns = c->kernel * channels, .stride = c->stride * channels,
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
        int zeros = graph_arena_array(graph, CLATTN_I32, ids);
        segments = graph_bound_array(graph, CLATTN_I32, SLOT_SEGMENTS, zeros);
        struct graph_step zero = {
            .op = GRAPH_FILL, .condition = -SLOT_SEGMENTS, .rows = ids, .row_bytes = sizeof(int32_t)};
        zero.use[MOVE_TO] = use_of(zeros);
        graph_add(graph, &zero);
    }
    return add_embedding(&m->b, m->rows, graph_bound_array(graph, CLATTN_I32, SLOT_INPUT, 0), segments, NUMBER_FIRST,
                         0, &m->stream);
}

static clattn_status add_input(struct making *m)
{
    const clattn_stack_desc *d = &m->b.stack->desc;
    if (m->plan->has_lengths) {
        m->lengths = graph_arena_array(m->b.graph, CLATTN_I32, m->plan->desc.batch);
        struct graph_step step = {.op = GRAPH_INTEGERS, .batch = NUMBER_BATCH, .integers = INTEGERS_LENGTHS};
        step.use[MOVE_TO] = use_of(m->lengths);
        graph_add(m->b.graph, &step);
    }
    if (d->input == CLATTN_INPUT_TOKENS)
        return add_tokens(m);
    if (d->input == CLATTN_INPUT_FEATURES)
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
    const int pooled = graph_bound_array(m->b.graph, CLATTN_F32, SLOT_POOLED, 0);
    clattn_attention_desc desc;
    struct graph_step step = {.op = GRAPH_ATTENTION,
                              .batch = NUMBER_BATCH,
                              .length = NUMBER_ONE,
                              .keys = mean ? NUMBER_POSITIONS : NUMBER_ONE};
    clattn_attention_desc_init(&desc);
    desc.scale_mode = CLATTN_SCALE_EXPLICIT;
    desc.query = desc.key = (clattn_layout){.dtype = result->dtype,
                                            .rank = 4,
                                            .extent = {batch, heads, plan->positions, size},
                                            .stride = {(int64_t)(plan->positions * d_model), (int64_t)size,
                                                       (int64_t)d_model, 1}};
    desc.query.extent[2] = 1;
    desc.value = desc.key;
    desc.output = clattn_layout_bhsd(CLATTN_F32, batch, heads, 1, size);
    if (mean && m->lengths) {
        desc.key_lengths = clattn_layout_contiguous(CLATTN_I32, 1, &batch);
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
    int unit = graph_arena_array(m->b.graph, CLATTN_I32, 1);
    struct graph_step number = {.op = GRAPH_INTEGERS, .batch = NUMBER_ONE, .integers = INTEGERS_UNIT};
    struct graph_step norm = {.op = GRAPH_NORM, .batch = NUMBER_BATCH};
    clattn_norm_desc unit_norm;
    clattn_norm_desc_init(&unit_norm);
    unit_norm.kind = CLATTN_NORM_RMS;
    unit_norm.explicit_epsilon = 1;
    unit_norm.epsilon = 1e-30f;
    unit_norm.x = unit_norm.y = clattn_layout_contiguous(CLATTN_F32, 2, extent);
    unit_norm.scale = clattn_layout_contiguous(CLATTN_F32, 1, &one);
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
    const struct linear_use in = linear_of(&m->b, &weights->self.in), out = linear_of(&m->b, &weights->self.out);
    const bool probabilities = layer < 64 && m->plan->desc.probabilities >> layer & 1;
    const int32_t dtype = m->b.model->dtype;
    const size_t lse[3] = {m->rows.batch, d->heads, m->rows.length}, batch = m->rows.batch;
    struct matrix x, qkv, attended;
    clattn_attention_desc desc = stack_attention(stack);
    struct graph_step step = {.op = GRAPH_ATTENTION,
                              .batch = NUMBER_BATCH,
                              .length = NUMBER_POSITIONS,
                              .keys = NUMBER_POSITIONS};
    TRY(stream_read(&m->b, m->flat, &m->stream, &weights->self.norm, &x));
    qkv = matrix_new(m->b.graph, m->rows, dtype, stack->inner + 2 * stack->inner_kv);
    attended = matrix_new(m->b.graph, m->rows, dtype, stack->inner);
    TRY(add_product(&m->b, m->flat, x, &in, qkv, NULL, NULL));
    struct matrix key = qkv, value = qkv;
    key.use.offset = (int64_t)stack->inner;
    value.use.offset = (int64_t)(stack->inner + stack->inner_kv);
    if (d->rotary) {
        TRY(add_rope(&m->b, m->rows, &qkv, d->heads, 0, 0));
        TRY(add_rope(&m->b, m->rows, &key, d->kv_heads, 0, 0));
    }
    desc.causal = d->causal;
    desc.mask = m->plan->desc.mask;
    desc.query = heads_layout(stack, m->rows, &qkv, d->heads);
    desc.key = desc.value = heads_layout(stack, m->rows, &key, d->kv_heads);
    desc.output = heads_layout(stack, m->rows, &attended, d->heads);
    if (m->lengths) {
        desc.key_lengths = desc.query_lengths = clattn_layout_contiguous(CLATTN_I32, 1, &batch);
        step.use[HEADS_KEY_LENGTHS] = step.use[HEADS_QUERY_LENGTHS] = use_of(m->lengths);
    }
    if (probabilities) {
        desc.lse = clattn_layout_contiguous(CLATTN_F32, 3, lse);
        step.use[HEADS_LSE] =
            use_of(graph_arena_array(m->b.graph, CLATTN_F32, lse[0] * lse[1] * lse[2]));
    }
    if (desc.mask.rank)
        step.use[HEADS_MASK] = use_of(graph_bound_array(m->b.graph, desc.mask.dtype, SLOT_MASK, 0));
    step.use[HEADS_QUERY] = qkv.use;
    step.use[HEADS_KEY] = key.use;
    step.use[HEADS_VALUE] = value.use;
    step.use[HEADS_OUTPUT] = attended.use;
    TRY(graph_attention(m->b.graph, &desc, m->b.options, &step.plan));
    graph_add(m->b.graph, &step);
    if (probabilities) {
        const clattn_layout *all = &m->plan->probabilities;
        const clattn_layout one = clattn_layout_contiguous(CLATTN_F32, 4, all->extent + 1);
        step.op = GRAPH_WEIGHTS;
        step.condition = SLOT_PROBABILITIES;
        step.use[HEADS_WEIGHTS] =
            use_at(graph_bound_array(m->b.graph, CLATTN_F32, SLOT_PROBABILITIES, 0),
                   m->probabilities++ * (size_t)all->stride[0]);
        TRY(graph_weights(m->b.graph, &desc, &one, &step.plan));
        graph_add(m->b.graph, &step);
    }
    status = stream_write(&m->b, m->flat, &m->stream, &weights->self.norm, attended, &out, NULL);
fail:
    return status;
}

static clattn_status add_all(struct making *m)
{
    clattn_status status;
    const clattn_stack_desc *d = &m->b.stack->desc;
    const int32_t dtype = m->b.model->dtype;
    struct matrix result = matrix_new(m->b.graph, m->rows, dtype, d->d_model);
    result.use = use_of(graph_bound_array(m->b.graph, dtype, SLOT_OUTPUT, result.use.array));
    TRY(add_input(m));
    for (size_t i = 0; i < d->layers; i++) {
        const bool last = i + 1 == d->layers && !d->final_norm;
        TRY(add_self_attention(m, i));
        TRY(add_feed_forward(&m->b, m->flat, &m->stream, &m->b.stack->layers[i], last ? &result : NULL));
    }
    if (d->final_norm)
        TRY(add_final_norm(&m->b, m->flat, &m->stream, &result));
    if (m->plan->desc.pooling)
        TRY(add_pooling(m, &result));
    status = graph_finish(m->b.graph);
fail:
    return status;
}

/* ---- planning ---- */

static const char *wrong_desc(const struct stack *stack, const clattn_encoder_desc *desc, size_t positions)
{
    const clattn_stack_desc *d = &stack->desc;
    if (!desc->batch || !desc->length || desc->batch > WHOLE_BATCH_LIMIT || desc->length > WHOLE_LENGTH_LIMIT)
        return "batch is 1 to 65536, and length 1 to 2^30";
    if (desc->pooling < 0 || desc->pooling > CLATTN_POOLING_FIRST || desc->pooled_unit < 0 || desc->pooled_unit > 1)
        return "unknown pooling, or pooled_unit neither 0 nor 1";
    if (desc->pooled_unit && !desc->pooling)
        return "pooled_unit without pooling";
    if (d->layers < 64 && desc->probabilities >> d->layers)
        return "probabilities of a layer that is not there";
    if (!positions)
        return "length is too short for the convolutions";
    if (d->positions == CLATTN_POSITIONS_TABLE && positions + d->first_position > d->position_count)
        return "length is beyond the table of positions";
    return NULL;
}

static void clear(clattn_plan *handle)
{
    struct encoder_plan *plan = (struct encoder_plan *)handle;
    graph_clear(&plan->graph);
    model_drop(plan->model);
}

static void lay_out_arguments(struct encoder_plan *plan)
{
    const clattn_stack_desc *d = &plan->model->encoder.desc;
    const size_t columns = d->input == CLATTN_INPUT_FEATURES ? d->features : d->d_model;
    const size_t input[3] = {plan->desc.batch, plan->desc.length, columns};
    const size_t output[3] = {plan->desc.batch, plan->positions, d->d_model};
    const size_t pooled[2] = {plan->desc.batch, d->d_model};
    const size_t probabilities[5] = {(size_t)__builtin_popcountll(plan->desc.probabilities), plan->desc.batch, d->heads,
                                     plan->positions, plan->positions};
    const bool tokens = d->input == CLATTN_INPUT_TOKENS;
    plan->input =
        clattn_layout_contiguous(tokens ? CLATTN_I32 : (clattn_dtype)plan->model->dtype, tokens ? 2 : 3, input);
    plan->output = clattn_layout_contiguous((clattn_dtype)plan->model->dtype, 3, output);
    plan->pooled = clattn_layout_contiguous(CLATTN_F32, 2, pooled);
    plan->probabilities = clattn_layout_contiguous(CLATTN_F32, 5, probabilities);
}

static clattn_status make(struct encoder_plan *plan, const clattn_plan_options *options)
{
    clattn_status status;
    const struct rows rows = {plan->desc.batch, plan->positions, NUMBER_BATCH, NUMBER_POSITIONS};
    struct making m = {.b = {.graph = &plan->graph,
                             .model = plan->model,
                             .stack = &plan->model->encoder,
                             .options = options},
                       .plan = plan,
                       .rows = rows,
                       .flat = rows_flat(rows)};
    plan->has_lengths = plan->desc.batch > 1;
    lay_out_arguments(plan);
    TRY(graph_begin(&plan->graph, plan->base.context));
    TRY(add_all(&m));
    status = whole_plan_made(&plan->base, &(const struct graph *){&plan->graph}, 1, "encoder");
fail:
    return status;
}

clattn_status clattn_encoder_plan_create(clattn_transformer *model, const clattn_encoder_desc *given,
                                         const clattn_plan_options *options, clattn_plan **result)
{
    clattn_status status;
    clattn_encoder_desc desc;
    clattn_plan_options own;
    clattn_plan *made = NULL;
    const char *reason;
    size_t positions;
    TRY(whole_create_check(model, result));
    struct report *report = &model->context->device.report;
    if (!model->has_encoder)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "the model has no encoder");
    TRY(plan_options_read(model->context, options, &own));
    status = struct_read(&desc, sizeof desc, sizeof desc, given);
    if (status != CLATTN_SUCCESS)
        return report_error(report, status, "desc is NULL, or its size is none that clattn_encoder_desc ever had");
    layout_normalise(&desc.mask);
    positions = stack_frames(&model->encoder.desc, model->encoder.desc.convolutions, desc.length);
    reason = wrong_desc(&model->encoder, &desc, positions);
    if (reason)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "encoder: %s", reason);
    TRY(plan_new(model->context, OPERATOR_ENCODER, sizeof(struct encoder_plan), &made));
    struct encoder_plan *plan = (struct encoder_plan *)made;
    plan->desc = desc;
    plan->positions = positions;
    plan->model = model;
    model_retain(model);
    made->clear = clear;
    TRY(make(plan, &own));
    *result = made;
    return CLATTN_SUCCESS;
fail:
    clattn_plan_release(&made);
    return status;
}

/* ---- enqueueing ---- */

/* The call's numbers, and each item's length as an array or in the numbers. */
static clattn_status read_lengths(const struct encoder_plan *plan, const clattn_encoder_args *args,
                                  struct graph_run *run, int32_t *lengths)
{
    const clattn_stack_desc *d = &plan->model->encoder.desc;
    struct report *report = &plan->base.context->device.report;
    const size_t batch = args->explicit_lengths ? args->batch : plan->desc.batch;
    const size_t length = args->explicit_lengths ? args->length : plan->desc.length;
    if (batch > plan->desc.batch || length > plan->desc.length)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT,
                            "batch %zu or length %zu is above the plan's %zu, %zu", batch, length, plan->desc.batch,
                            plan->desc.length);
    size_t positions = stack_frames(d, d->convolutions, length);
    run->number[NUMBER_ONE] = 1;
    run->number[NUMBER_BATCH] = batch;
    run->number[NUMBER_LENGTH] = length;
    run->number[NUMBER_FIRST] = d->first_position;
    for (size_t i = 0; i + 1 < d->convolutions; i++)
        run->number[NUMBER_FRAMES + i] = stack_frames(d, i + 1, length);
    for (size_t i = 0; i < batch; i++) {
        if (args->lengths && (args->lengths[i] < 0 || (size_t)args->lengths[i] > positions))
            return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "lengths[%zu] is %d, not 0 to %zu", i,
                                (int)args->lengths[i], positions);
        if (plan->has_lengths)
            lengths[i] = args->lengths ? args->lengths[i] : (int32_t)positions;
    }
    if (!plan->has_lengths && batch && args->lengths)
        positions = (size_t)args->lengths[0];
    run->number[NUMBER_POSITIONS] = positions;
    return CLATTN_SUCCESS;
}

static clattn_status check_arrays(const struct encoder_plan *plan, const clattn_encoder_args *args,
                                  const struct graph_run *run)
{
    clattn_status status;
    clattn_context *context = plan->base.context;
    const size_t batch = run->number[NUMBER_BATCH], positions = run->number[NUMBER_POSITIONS];
    const clattn_layout *in = &plan->input, *all = &plan->probabilities;
    const size_t input[3] = {batch, run->number[NUMBER_LENGTH], in->extent[2]};
    const size_t output[3] = {batch, positions, plan->output.extent[2]};
    const size_t pooled[2] = {batch, plan->pooled.extent[1]};
    const size_t probabilities[5] = {all->extent[0], batch, all->extent[2], positions, positions};
    const struct whole_array arrays[] = {
        {&args->input, "input", in, input, BINDING_READ, true, true},
        {&args->segments, "segments", in, input, BINDING_READ, plan->model->encoder.segments != 0, false},
        {&args->mask, "mask", NULL, NULL, BINDING_READ, plan->desc.mask.rank != 0, true},
        {&args->output, "output", &plan->output, output, BINDING_READ_WRITE, true,
         !plan->desc.pooling && !plan->desc.probabilities},
        {&args->pooled, "pooled", &plan->pooled, pooled, BINDING_READ_WRITE, plan->desc.pooling != 0, true},
        {&args->probabilities, "probabilities", all, probabilities, BINDING_WRITE, plan->desc.probabilities != 0, false},
        {&args->workspace, "workspace", NULL, NULL, BINDING_READ_WRITE, true, false},
    };
    status = whole_check_arrays(context, arrays, sizeof arrays / sizeof arrays[0]);
    return status;
}

static clattn_status enqueue(struct encoder_plan *plan, cl_command_queue queue, const clattn_encoder_args *args,
                             int32_t *lengths, cl_uint wait_count, const cl_event *wait_list, cl_event *event)
{
    clattn_status status;
    struct chain chain;
    const float scale = 1 / sqrtf((float)plan->model->encoder.desc.d_model);
    int32_t unit;
    memcpy(&unit, &scale, sizeof unit);
    const int32_t *const integers[INTEGERS] = {[INTEGERS_LENGTHS] = lengths, [INTEGERS_UNIT] = &unit};
    const clattn_binding bound[SLOTS] = {
        [SLOT_INPUT] = args->input,   [SLOT_SEGMENTS] = args->segments, [SLOT_MASK] = args->mask,
        [SLOT_OUTPUT] = args->output, [SLOT_POOLED] = args->pooled,     [SLOT_PROBABILITIES] = args->probabilities};
    struct graph_run run = {.bound = bound, .integers = integers};
    TRY(read_lengths(plan, args, &run, lengths));
    if (!run.number[NUMBER_BATCH] || !run.number[NUMBER_POSITIONS])
        return plan_enqueue_nothing(&plan->base, queue, wait_count, wait_list, event);
    TRY(check_arrays(plan, args, &run));
    status = chain_begin(&chain, plan->base.context, queue, wait_count, wait_list, event, plan->base.workspace,
                         &args->workspace);
    if (status == CLATTN_SUCCESS)
        status = graph_enqueue(&plan->graph, &chain, &run);
    return chain_end(&chain, status, event);
fail:
    return status;
}

clattn_status clattn_encoder_enqueue(clattn_plan *handle, cl_command_queue queue, const clattn_encoder_args *given,
                                     cl_uint wait_count, const cl_event *wait_list, cl_event *event)
{
    clattn_status status;
    struct encoder_plan *plan = (struct encoder_plan *)handle;
    clattn_encoder_args args;
    int32_t *lengths = NULL;
    TRY(plan_check(handle, OPERATOR_ENCODER));
    struct report *report = &handle->context->device.report;
    status = struct_read(&args, sizeof args, sizeof args, given);
    if (status != CLATTN_SUCCESS)
        return report_error(report, status, "args is NULL, or its size is none that clattn_encoder_args ever had");
    TRY(args_check(report, "explicit_lengths", args.explicit_lengths, args.reserved));
    TRY(whole_integers(handle->context, plan->desc.batch, &lengths));
    status = enqueue(plan, queue, &args, lengths, wait_count, wait_list, event);
fail:
    whole_integers_free(&lengths);
    return status;
}
