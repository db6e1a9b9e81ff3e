/* Encoders: planning a stack for a batch and a length, and enqueueing it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "nn/stack/encoder.h"
#include "nn/stack/model_plan.h"
#include "ops/common/arrays.h"
#include "plan/job.h"
#include "plan/operator.h"

void clattn_encoder_desc_init(clattn_encoder_desc *desc)
{
    struct_init(desc, sizeof *desc);
}

void clattn_encoder_args_init(clattn_encoder_args *args)
{
    struct_init(args, sizeof *args);
}

/* ---- planning ---- */

/* Whether all patches of each picture count, so that there are neither lengths nor masks. */
static bool takes_whole_pictures(const struct stack *stack)
{
    return stack->next || stack->desc.windows.rows || stack->desc.neck || stack->desc.restoration.kind;
}

static clattn_status check_desc(const struct stack *stack, const clattn_encoder_desc *desc, size_t positions,
                                const char **reason)
{
    const clattn_stack_desc *d = &stack->desc;
    const bool whole = takes_whole_pictures(stack);
    REQUIRE(desc->batch && desc->length && desc->batch <= MODEL_BATCH_LIMIT && desc->length <= MODEL_LENGTH_LIMIT,
            CLATTN_ERROR_INVALID_ARGUMENT, "batch is 1 to 65536, and length 1 to 2^30");
    REQUIRE(enum_within(desc->pooling, CLATTN_POOLING_PATCHES) && is_flag(desc->pooled_unit),
            CLATTN_ERROR_INVALID_ARGUMENT, "unknown pooling, or pooled_unit neither 0 nor 1");
    REQUIRE(is_flag(desc->prepack) && !desc->reserved, CLATTN_ERROR_INVALID_ARGUMENT,
            "prepack is not 0 or 1, or reserved is not 0");
    REQUIRE(desc->pooling || !desc->pooled_unit, CLATTN_ERROR_INVALID_ARGUMENT, "pooled_unit without pooling");
    REQUIRE(desc->pooling != CLATTN_POOLING_PATCHES || d->input == CLATTN_STACK_INPUT_PICTURES,
            CLATTN_ERROR_INVALID_ARGUMENT, "CLATTN_POOLING_PATCHES is for pictures");
    REQUIRE(!desc->pooling || (!stack_last(stack)->desc.neck && !stack_last(stack)->desc.restoration.kind),
            CLATTN_ERROR_INVALID_ARGUMENT, "pooling is for encoders without a neck or restoration");
    REQUIRE(!whole || (!desc->probabilities && !desc->mask.rank), CLATTN_ERROR_INVALID_ARGUMENT,
            "probabilities and masks are for encoders without windows, stages, neck and restoration");
    REQUIRE(d->layers >= 64 || !(desc->probabilities >> d->layers), CLATTN_ERROR_INVALID_ARGUMENT,
            "probabilities of a layer that the model does not have");
    REQUIRE(positions, CLATTN_ERROR_INVALID_ARGUMENT, "length is too short for the convolutions");
    REQUIRE(d->positions != CLATTN_POSITIONS_TABLE || d->input == CLATTN_STACK_INPUT_PICTURES ||
                positions + d->first_position <= d->position_count,
            CLATTN_ERROR_INVALID_ARGUMENT, "length is beyond the table of positions");
    return CLATTN_SUCCESS;
}

/* Checks the layout of pictures and sets the length to the number of their patches; other inputs have no layout. */
static clattn_status read_picture(const clattn_transformer *model, clattn_encoder_desc *desc)
{
    const clattn_stack_desc *d = &model->encoder.desc;
    const clattn_patches *p = &d->patches;
    const clattn_layout *picture = &desc->picture;
    const size_t *extent = picture->extent;
    struct report *report = &model->context->device.report;
    if (d->input != CLATTN_STACK_INPUT_PICTURES) {
        if (picture->rank || picture->dtype)
            return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT,
                                "encoder: a picture, which the model does not take");
        return CLATTN_SUCCESS;
    }
    if (desc->length)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT,
                            "encoder: length is %zu, which must be 0 for pictures", desc->length);
    if (picture->rank != 4 || !dtype_is_storage(picture->dtype))
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT,
                            "encoder: picture is (batch, channels, height, width) of float32, float16 or bfloat16");
    if (extent[0] != desc->batch || extent[1] != p->channels)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT,
                            "encoder: picture is %zu x %zu x %zu x %zu, not of batch %zu and %zu channels", extent[0],
                            extent[1], extent[2], extent[3], desc->batch, p->channels);
    if (!extent[2] || !extent[3] || extent[2] % p->height || extent[3] % p->width)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT,
                            "encoder: a picture of height %zu and width %zu cannot be cut into patches of %zu x %zu",
                            extent[2], extent[3], p->height, p->width);
    const struct grid grid = stack_grid(&model->encoder, extent[2], extent[3]);
    if (d->windows.position_bias == CLATTN_POSITION_BIAS_DECOMPOSED && d->windows.whole &&
        (grid.rows != p->grid_rows || grid.columns != p->grid_columns))
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT,
                            "encoder: a picture of height %zu and width %zu has not the model's %zu x %zu patches",
                            extent[2], extent[3], p->grid_rows, p->grid_columns);
    if (!size_mul(grid.rows, grid.columns, &desc->length))
        desc->length = SIZE_MAX;
    return CLATTN_SUCCESS;
}

/* Checks the layout of the picture that a restoration makes; other encoders make none. */
static clattn_status read_restored(const clattn_transformer *model, const clattn_encoder_desc *desc)
{
    clattn_status status;
    const clattn_restoration *r = &stack_last(&model->encoder)->desc.restoration;
    const clattn_layout *restored = &desc->restored;
    const size_t *extent = restored->extent, *given = desc->picture.extent;
    struct report *report = &model->context->device.report;
    const char *reason;
    if (!r->kind) {
        if (restored->rank || restored->dtype)
            return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT,
                                "encoder: restored is for models with a restoration");
        return CLATTN_SUCCESS;
    }
    if (restored->rank != 4 || !dtype_is_storage(restored->dtype))
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT,
                            "encoder: restored is (batch, channels, height, width) of float32, float16 or bfloat16");
    if (extent[0] != desc->batch || extent[1] != given[1] || extent[2] / r->factor != given[2] ||
        extent[2] % r->factor || extent[3] / r->factor != given[3] || extent[3] % r->factor)
        return report_error(
            report, CLATTN_ERROR_INVALID_ARGUMENT,
            "encoder: restored is %zu x %zu x %zu x %zu, not %zu times as high and wide as the picture, "
            "%zu x %zu x %zu x %zu",
            extent[0], extent[1], extent[2], extent[3], r->factor, given[0], given[1], given[2], given[3]);
    status = layout_check(restored, LAYOUT_OUTPUT, LAYOUT_OF("restored"), &reason);
    if (status != CLATTN_SUCCESS)
        return report_error(report, status, "encoder: %s", reason);
    return CLATTN_SUCCESS;
}

/* The positions of the last stage: one that merges has two by two of the one before. */
static size_t positions_after_merging(const clattn_transformer *model, const clattn_encoder_desc *desc,
                                      size_t positions)
{
    const struct stack *stack = &model->encoder;
    if (!stack->next)
        return positions;
    struct grid grid = stack_grid(stack, desc->picture.extent[2], desc->picture.extent[3]);
    while ((stack = stack->next))
        if (stack->desc.input == CLATTN_STACK_INPUT_MERGED)
            grid = (struct grid){divide_up(grid.rows, 2), divide_up(grid.columns, 2)};
    return grid.rows * grid.columns;
}

static void clear(clattn_plan *handle)
{
    struct encoder_plan *plan = (struct encoder_plan *)handle;
    graph_clear(&plan->graph);
    model_drop(plan->model);
}

static void lay_out_arguments(struct encoder_plan *plan)
{
    const clattn_stack_desc *d = &plan->model->encoder.desc, *last = &stack_last(&plan->model->encoder)->desc;
    const size_t columns = d->input == CLATTN_STACK_INPUT_FEATURES ? d->features : d->d_model;
    const size_t input[3] = {plan->desc.batch, plan->desc.length, columns};
    const size_t output[3] = {plan->desc.batch, plan->output_positions, stack_columns(last)};
    const size_t pooled[2] = {plan->desc.batch, last->projection ? last->projection : last->d_model};
    const size_t probabilities[5] = {(size_t)__builtin_popcountll(plan->desc.probabilities), plan->desc.batch, d->heads,
                                     plan->positions, plan->positions};
    const bool tokens = d->input == CLATTN_STACK_INPUT_TOKENS;
    plan->input = clattn_layout_contiguous(tokens ? CLATTN_DTYPE_I32 : plan->model->dtype, tokens ? 2 : 3, input);
    if (d->input == CLATTN_STACK_INPUT_PICTURES)
        plan->input = plan->desc.picture;
    plan->output = clattn_layout_contiguous(plan->model->dtype, 3, output);
    if (last->restoration.kind)
        plan->output = plan->desc.restored;
    plan->pooled = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, pooled);
    plan->probabilities = clattn_layout_contiguous(CLATTN_DTYPE_F32, 5, probabilities);
}

static clattn_status make(clattn_plan *handle, const clattn_plan_options *options)
{
    clattn_status status;
    struct encoder_plan *plan = (struct encoder_plan *)handle;
    /* One item's length is a number of the enqueue, unless probabilities beyond it have to be written as zeros. */
    plan->has_lengths = !plan->whole && (plan->desc.batch > 1 || plan->desc.probabilities);
    lay_out_arguments(plan);
    TRY(encoder_make_graph(plan, options));
    status = model_plan_finish(&plan->base, &(const struct graph *){&plan->graph}, 1, "encoder");
fail:
    return status;
}

/* The operator_type neither reads nor enqueues: an encoder's plans need a model, and are begun and enqueued by the
 * functions below. */
static const struct operator_type encoder_type = {
    .name = "encoder", .bytes.plan = sizeof(struct encoder_plan), .make = make};

clattn_status clattn_encoder_plan_create(clattn_transformer *model, const clattn_encoder_desc *given,
                                         const clattn_plan_options *options, clattn_plan **result)
{
    clattn_status status;
    clattn_encoder_desc desc;
    clattn_plan_options own;
    clattn_plan *made = NULL;
    const char *reason;
    size_t positions;
    const struct model_plan_call call = {"encoder", model && model->has_encoder, given, &desc, sizeof desc, options,
                                         &own};
    TRY(model_plan_read(model, &call, result));
    layout_normalise(&desc.mask);
    layout_normalise(&desc.picture);
    layout_normalise(&desc.restored);
    TRY(read_picture(model, &desc));
    TRY(read_restored(model, &desc));
    positions = stack_frames(&model->encoder.desc, model->encoder.desc.convolutions, desc.length);
    status = check_desc(&model->encoder, &desc, positions, &reason);
    if (status != CLATTN_SUCCESS)
        return report_error(&model->context->device.report, status, "encoder: %s", reason);
    TRY(plan_new(model->context, &encoder_type, &made));
    struct encoder_plan *plan = (struct encoder_plan *)made;
    plan->desc = desc;
    plan->positions = positions;
    plan->whole = takes_whole_pictures(&model->encoder);
    plan->output_positions = positions_after_merging(model, &desc, positions);
    plan->model = model;
    model_retain(model);
    made->clear = clear;
    return job_finish_plan(made, &own, result);
fail:
    clattn_plan_release(&made);
    return status;
}

/* ---- enqueueing ---- */

/* Reads the numbers of the enqueue, and each item's length into `lengths` or into the numbers. */
static clattn_status read_lengths(const struct encoder_plan *plan, const clattn_encoder_args *args,
                                  struct graph_run *run, int32_t *lengths)
{
    const clattn_stack_desc *d = &plan->model->encoder.desc;
    struct report *report = &plan->base.context->device.report;
    const size_t batch = args->explicit_lengths ? args->batch : plan->desc.batch;
    const bool pictures = d->input == CLATTN_STACK_INPUT_PICTURES;
    const size_t length = args->explicit_lengths && !pictures ? args->length : plan->desc.length;
    if (pictures && args->explicit_lengths && args->length)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "length is %zu, which must be 0 for pictures",
                            args->length);
    if (args->lengths && (plan->whole || plan->desc.pooling == CLATTN_POOLING_PATCHES))
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT,
                            "lengths are not for windows, stages, a neck, a restoration or CLATTN_POOLING_PATCHES");
    if (pictures && batch > plan->desc.batch)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "batch %zu is above the plan's %zu", batch,
                            plan->desc.batch);
    if (batch > plan->desc.batch || length > plan->desc.length)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT,
                            "batch %zu or length %zu is above the plan's %zu, %zu", batch, length, plan->desc.batch,
                            plan->desc.length);
    size_t positions = stack_frames(d, d->convolutions, length);
    run->number[NUMBER_ONE] = 1;
    run->number[NUMBER_BATCH] = batch;
    run->number[NUMBER_INPUT_LENGTH] = length;
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
    run->number[NUMBER_LENGTH] = positions;
    return CLATTN_SUCCESS;
}

static clattn_status check_arrays(const struct encoder_plan *plan, const clattn_encoder_args *args,
                                  const struct graph_run *run)
{
    const size_t batch = run->number[NUMBER_BATCH], positions = run->number[NUMBER_LENGTH];
    const clattn_layout *in = &plan->input, *all = &plan->probabilities;
    size_t input[CLATTN_MAX_RANK] = {batch, run->number[NUMBER_INPUT_LENGTH], in->extent[2]};
    size_t output[CLATTN_MAX_RANK] = {batch, plan->whole ? plan->output_positions : positions, plan->output.extent[2]};
    const size_t pooled[2] = {batch, plan->pooled.extent[1]};
    const size_t probabilities[5] = {all->extent[0], batch, all->extent[2], positions, positions};
    const size_t scores[4] = {batch, plan->model->encoder.desc.heads, positions, positions};
    size_t masked[4];
    if (plan->model->encoder.desc.input == CLATTN_STACK_INPUT_PICTURES)
        memcpy(input + 1, in->extent + 1, 3 * sizeof *input);
    if (plan->desc.restored.rank)
        memcpy(output + 1, plan->output.extent + 1, 3 * sizeof *output);
    const clattn_layout mask = mask_reach(&plan->desc.mask, scores, masked);
    const struct bound_array arrays[] = {
        {&args->input, in, input, BINDING_READ | BINDING_IN_PLACE, "input", true},
        {&args->segments, in, input, BINDING_READ | BINDING_OPTIONAL, "segments", plan->model->encoder.segments != 0},
        {&args->mask, &mask, masked, BINDING_READ, "mask", plan->desc.mask.rank != 0},
        {&args->output, &plan->output, output,
         BINDING_READ_WRITE | (plan->desc.restored.rank ? 0 : BINDING_IN_PLACE) |
             ((!plan->desc.pooling && !plan->desc.probabilities) ? 0 : BINDING_OPTIONAL),
         "output", true},
        {&args->pooled, &plan->pooled, pooled, BINDING_READ_WRITE, "pooled", plan->desc.pooling != 0},
        {&args->probabilities, all, probabilities, BINDING_WRITE | BINDING_OPTIONAL, "probabilities",
         plan->desc.probabilities != 0},
    };
    return model_bindings_check(plan->base.context, arrays, COUNT_OF(arrays), &args->workspace);
}

/* Enqueues an encoder whose items have no positions: pooled vectors become zeros. */
static clattn_status enqueue_empty(const struct encoder_plan *plan, const struct enqueue_call *call,
                                   const clattn_encoder_args *args, size_t batch)
{
    static const float zero;
    clattn_status status;
    clattn_context *context = plan->base.context;
    const size_t extent[2] = {batch, plan->pooled.extent[1]};
    const struct bound_array pooled = {&args->pooled, &plan->pooled, extent, BINDING_WRITE, "pooled", true};
    struct chain chain;
    struct step step;
    if (!plan->desc.pooling || !batch)
        return plan_enqueue_nothing(&plan->base, call);
    status = model_bindings_check(context, &pooled, 1, &args->workspace);
    if (status != CLATTN_SUCCESS)
        return status;
    TRY(chain_begin(&chain, context, call, NULL));
    chain_step(&chain, true, &step);
    TRY_CL(&context->device.report, "clEnqueueFillBuffer",
           context->device.cl.clEnqueueFillBuffer(
               chain.queue, args->pooled.buffer, &zero, sizeof zero, (size_t)args->pooled.offset * sizeof zero,
               extent[0] * extent[1] * sizeof zero, step.wait_count, step.wait_list, step.event));
    chain_stepped(&chain, &step);
fail:
    return chain_end(&chain, status);
}

static clattn_status enqueue(const struct encoder_plan *plan, const struct enqueue_call *call,
                             const clattn_encoder_args *args, int32_t *lengths)
{
    clattn_status status;
    const float scale = 1 / sqrtf((float)plan->pooled.extent[1]);
    int32_t unit;
    memcpy(&unit, &scale, sizeof unit);
    const int32_t *const integers[ENCODER_INTEGERS] = {[ENCODER_LENGTHS] = lengths, [ENCODER_UNIT] = &unit};
    const clattn_binding bound[ENCODER_SLOTS] = {
        [ENCODER_INPUT] = args->input,   [ENCODER_SEGMENTS] = args->segments,
        [ENCODER_MASK] = args->mask,     [ENCODER_OUTPUT] = args->output,
        [ENCODER_POOLED] = args->pooled, [ENCODER_PROBABILITIES] = args->probabilities};
    struct graph_run run = {.bound = bound, .integers = integers};
    TRY(read_lengths(plan, args, &run, lengths));
    if (!run.number[NUMBER_BATCH] || !run.number[NUMBER_LENGTH])
        return enqueue_empty(plan, call, args, run.number[NUMBER_BATCH]);
    TRY(check_arrays(plan, args, &run));
    status = graph_enqueue(&plan->graph, call, &run, &args->workspace);
fail:
    return status;
}

clattn_status clattn_encoder_enqueue(clattn_plan *handle, cl_command_queue queue, const clattn_encoder_args *given,
                                     cl_uint wait_count, const cl_event *wait_list, cl_event *event)
{
    clattn_status status;
    const struct encoder_plan *plan = (const struct encoder_plan *)handle;
    struct enqueue_call call = {.queue = queue, .wait_count = wait_count, .wait_list = wait_list, .event = event};
    clattn_encoder_args args;
    int32_t *lengths = NULL;
    TRY(plan_check(handle, &encoder_type));
    struct report *report = &handle->context->device.report;
    TRY(args_read(report, "clattn_encoder_args", &args, sizeof args, sizeof args, given));
    TRY(args_check(report, "explicit_lengths", args.explicit_lengths, args.reserved));
    lengths = calloc(plan->desc.batch, sizeof *lengths);
    if (!lengths)
        return report_error(report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for lengths");
    call.control = args.control;
    TRY(control_enter(call.control, report));
    status = control_leave(call.control, enqueue(plan, &call, &args, lengths));
fail:
    free(lengths);
    return status;
}
