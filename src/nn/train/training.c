/* Training plans: making them, and enqueueing a step. */
#include <math.h>
#include <stdlib.h>

#include "base/layout.h"
#include "base/try.h"
#include "nn/stack/model_plan.h"
#include "nn/train/trainer.h"
#include "ops/common/arrays.h"
#include "plan/job.h"
#include "plan/operator.h"

void clattn_training_desc_init(clattn_training_desc *desc)
{
    struct_init(desc, sizeof *desc);
}

void clattn_training_args_init(clattn_training_args *args)
{
    struct_init(args, sizeof *args);
}

/* ---- planning ---- */

/* Says what is wrong with the length of the items that a stack reads; a model without it has the length 0. */
static const char *why_not_length(bool has_stack, const clattn_stack_desc *d, size_t length)
{
    if (!has_stack)
        return length ? "is not 0, but the model has no such stack" : NULL;
    if (!length)
        return "is not 1 or more";
    if (length > MODEL_LENGTH_LIMIT)
        return "is above 2^30";
    const size_t positions = stack_frames(d, d->convolutions, length);
    if (!positions)
        return "is too short for the convolutions";
    if (d->positions == CLATTN_POSITIONS_TABLE && positions + d->first_position > d->position_count)
        return "is beyond the table of positions";
    return NULL;
}

/* Checks one of the description's two lengths, which has the value `length`. */
static clattn_status check_length(const clattn_transformer *model, const char *name, bool has_stack,
                                  const clattn_stack_desc *d, size_t length)
{
    const char *reason = why_not_length(has_stack, d, length);
    if (reason)
        return report_error(&model->context->device.report, CLATTN_ERROR_INVALID_ARGUMENT, "training: %s %zu %s", name,
                            length, reason);
    return CLATTN_SUCCESS;
}

static clattn_status check_desc(const clattn_training_desc *d, const char **reason)
{
    REQUIRE(d->batch && d->batch <= MODEL_BATCH_LIMIT, CLATTN_ERROR_INVALID_ARGUMENT, "batch is 1 to 65536");
    REQUIRE(d->batch * d->source_length <= LENGTH_LIMIT && d->batch * d->target_length <= LENGTH_LIMIT,
            CLATTN_ERROR_OVERFLOW, "batch times a length is 2^31 or more");
    REQUIRE(d->label_smoothing >= 0 && d->label_smoothing < 1, CLATTN_ERROR_INVALID_ARGUMENT,
            "label_smoothing is not 0 or more and less than 1");
    REQUIRE(d->dropout >= 0 && d->dropout < 1, CLATTN_ERROR_INVALID_ARGUMENT,
            "dropout is not 0 or more and less than 1");
    REQUIRE(is_flag(d->recompute) && is_flag(d->evaluation), CLATTN_ERROR_INVALID_ARGUMENT,
            "recompute or evaluation is neither 0 nor 1");
    return CLATTN_SUCCESS;
}

static void clear(clattn_plan *handle)
{
    struct training_plan *plan = (struct training_plan *)handle;
    graph_clear(&plan->graph);
    free(plan->marks);
    trainer_drop(plan->trainer);
}

static clattn_status make(clattn_plan *handle, const clattn_plan_options *options)
{
    clattn_status status;
    struct training_plan *plan = (struct training_plan *)handle;
    TRY(training_make_graph(plan, options));
    if (!plan->desc.evaluation)
        TRY(training_find_ready(plan));
    status = model_plan_finish(&plan->base, &(const struct graph *){&plan->graph}, 1, "training");
fail:
    return status;
}

static const struct operator_type training_type = {
    .name = "training", .bytes.plan = sizeof(struct training_plan), .make = make};

clattn_status clattn_training_plan_create(clattn_trainer *trainer, const clattn_training_desc *given,
                                          const clattn_plan_options *options, clattn_plan **result)
{
    clattn_status status;
    clattn_training_desc desc;
    clattn_plan_options own;
    clattn_plan *made = NULL;
    const char *reason;
    plan_results_clear(options, result);
    if (!trainer)
        return report_error(NULL, CLATTN_ERROR_INVALID_ARGUMENT, "the trainer is NULL");
    clattn_transformer *const model = trainer->model;
    const struct model_plan_call call = {"training", true, given, &desc, sizeof desc, options, &own};
    TRY(model_plan_read(model, &call, result));
    TRY(check_length(model, "source_length", model->has_encoder, &model->encoder.desc, desc.source_length));
    TRY(check_length(model, "target_length", model->has_decoder, &model->decoder.desc, desc.target_length));
    status = check_desc(&desc, &reason);
    if (status != CLATTN_SUCCESS)
        return report_error(&model->context->device.report, status, "training: %s", reason);
    TRY(plan_new(model->context, &training_type, &made));
    struct training_plan *plan = (struct training_plan *)made;
    plan->desc = desc;
    plan->trainer = trainer;
    trainer_retain(trainer);
    made->clear = clear;
    return job_finish_plan(made, &own, result);
fail:
    clattn_plan_release(&made);
    return status;
}

/* ---- enqueueing ---- */

/* How many positions the layers of a stack see of items of `length` tokens or frames. */
static size_t positions_of(const struct stack *stack, size_t length)
{
    return stack_frames(&stack->desc, stack->desc.convolutions, length);
}

/* Writes each item's length to `lengths`. */
static clattn_status read_lengths(const struct training_plan *plan, const char *name, const int32_t *given,
                                  size_t longest, int32_t *lengths)
{
    for (size_t i = 0; i < plan->desc.batch; i++) {
        if (given && (given[i] < 0 || (size_t)given[i] > longest))
            return report_error(&plan->base.context->device.report, CLATTN_ERROR_INVALID_ARGUMENT,
                                "%s[%zu] is %d, not 0 to %zu", name, i, (int)given[i], longest);
        lengths[i] = given ? given[i] : (int32_t)longest;
    }
    return CLATTN_SUCCESS;
}

static clattn_status check_phase(const struct training_plan *plan, const clattn_training_args *args)
{
    struct report *report = &plan->base.context->device.report;
    const bool has_logits = plan->trainer->model->output != 0;
    if (!enum_within(args->phase, CLATTN_TRAINING_PHASE_BACKWARD) ||
        has_logits != (args->phase == CLATTN_TRAINING_PHASE_BOTH))
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "phase is %d; a model %s", (int)args->phase,
                            has_logits ? "with logits has CLATTN_TRAINING_PHASE_BOTH"
                                       : "without logits has CLATTN_TRAINING_PHASE_FORWARD and _BACKWARD");
    if (!has_logits && !plan->desc.evaluation && plan->base.workspace && binding_is_none(&args->workspace))
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT,
                            "phases need a workspace of the caller's, of %zu bytes", plan->base.workspace);
    if (plan->desc.evaluation && args->phase == CLATTN_TRAINING_PHASE_BACKWARD)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "a plan for evaluation does not go back");
    return CLATTN_SUCCESS;
}

static clattn_status check_arrays(const struct training_plan *plan, const clattn_training_args *args)
{
    const clattn_training_desc *d = &plan->desc;
    const clattn_transformer *model = plan->trainer->model;
    const clattn_stack_desc *encoder = &model->encoder.desc;
    const bool features = model->has_encoder && encoder->input == CLATTN_STACK_INPUT_FEATURES;
    const size_t source[3] = {d->batch, d->source_length, encoder->features}, target[2] = {d->batch, d->target_length};
    const size_t output[3] = {d->batch,
                              model->has_decoder ? d->target_length : positions_of(&model->encoder, d->source_length),
                              (model->has_decoder ? &model->decoder : &model->encoder)->desc.d_model};
    const bool has_logits = model->output != 0, back = args->phase == CLATTN_TRAINING_PHASE_BACKWARD;
    const clattn_layout sources = clattn_layout_contiguous(features ? model->dtype : CLATTN_DTYPE_I32, features ? 3 : 2,
                                                           source),
                        segments = clattn_layout_contiguous(CLATTN_DTYPE_I32, 2, source),
                        targets = clattn_layout_contiguous(CLATTN_DTYPE_I32, 2, target),
                        losses = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, target),
                        vectors = clattn_layout_contiguous(model->dtype, 3, output);
    const struct bound_array arrays[] = {
        {&args->source, &sources, source, BINDING_READ, "source", d->source_length != 0},
        {&args->target, &targets, target, BINDING_READ, "target", model->has_decoder},
        {&args->source_segments, &segments, source, BINDING_READ | BINDING_OPTIONAL, "source_segments",
         model->encoder.segments != 0},
        {&args->target_segments, &targets, target, BINDING_READ | BINDING_OPTIONAL, "target_segments",
         model->decoder.segments != 0},
        {&args->labels, &targets, target, BINDING_READ, "labels", has_logits},
        {&args->losses, &losses, target, BINDING_WRITE, "losses", has_logits},
        {&args->output, &vectors, output, BINDING_WRITE, "output", !has_logits && !back},
        {&args->output_gradient, &vectors, output, BINDING_READ, "output_gradient", back},
    };
    return model_bindings_check(plan->base.context, arrays, COUNT_OF(arrays), &args->workspace);
}

/* The memory that the gradients of a part of a step go to before they are added to the others.  It begins with zeros, because
 * there are gaps between the weights. */
static clattn_status find_part(const clattn_trainer *trainer, struct trained_buffer *buffer)
{
    cl_int code;
    struct device *device = &trainer->model->context->device;
    if (buffer->part)
        return CLATTN_SUCCESS;
    float *zeros = calloc(buffer->count, sizeof *zeros);
    if (!zeros)
        return report_error(&device->report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for gradients");
    buffer->part = device->cl.clCreateBuffer(device->context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
                                             buffer->count * sizeof *zeros, zeros, &code);
    free(zeros);
    return buffer->part ? CLATTN_SUCCESS : report_opencl(&device->report, "clCreateBuffer", code);
}

static clattn_status bind_gradients(const struct training_plan *plan, bool accumulate, clattn_binding *bound)
{
    clattn_status status = CLATTN_SUCCESS;
    const clattn_trainer *trainer = plan->trainer;
    const size_t count = trainer->model->buffer_count;
    for (size_t i = 0; i < count; i++) {
        struct trained_buffer *buffer = &trainer->buffers[i];
        if (accumulate)
            TRY(find_part(trainer, buffer));
        bound[TRAINING_GRADIENTS + i] = clattn_binding_buffer(accumulate ? buffer->part : buffer->gradient, 0);
        if (accumulate)
            bound[TRAINING_GRADIENTS + count + i] = clattn_binding_buffer(buffer->gradient, 0);
    }
fail:
    return status;
}

static clattn_status enqueue(const struct training_plan *plan, const struct enqueue_call *call,
                             const clattn_training_args *args, int32_t *lengths, clattn_binding *bound)
{
    clattn_status status;
    const size_t batch = plan->desc.batch;
    const int32_t *const integers[TRAINING_INTEGERS] = {
        [TRAINING_SOURCE_LENGTHS] = lengths, [TRAINING_TARGET_LENGTHS] = lengths + batch};
    const clattn_training_phase phase = args->phase;
    struct graph_run run = {.bound = bound,
                            .first = phase == CLATTN_TRAINING_PHASE_BACKWARD ? plan->turn : 0,
                            .end = phase == CLATTN_TRAINING_PHASE_FORWARD ? plan->turn : 0,
                            .number = {[NUMBER_ONE] = 1},
                            .integers = integers,
                            .scale = args->explicit_scale ? args->scale : 1,
                            .seed = args->seed};
    TRY(check_phase(plan, args));
    TRY(check_arrays(plan, args));
    TRY(read_lengths(plan, "source_lengths", args->source_lengths,
                     positions_of(&plan->trainer->model->encoder, plan->desc.source_length), lengths));
    TRY(read_lengths(plan, "target_lengths", args->target_lengths, plan->desc.target_length, lengths + batch));
    if (!plan->desc.evaluation && phase != CLATTN_TRAINING_PHASE_FORWARD) {
        trainer_forget_ready(plan->trainer);
        TRY(bind_gradients(plan, args->accumulate, bound));
        if (plan->trainer->group && !args->accumulate) {
            run.marks = plan->marks;
            run.mark_count = plan->trainer->group->piece_count;
        }
    }
    bound[TRAINING_SOURCE] = args->source;
    bound[TRAINING_TARGET] = args->target;
    bound[TRAINING_SOURCE_SEGMENTS] = args->source_segments;
    bound[TRAINING_TARGET_SEGMENTS] = args->target_segments;
    bound[TRAINING_LABELS] = args->labels;
    bound[TRAINING_LOSSES] = args->losses;
    bound[TRAINING_OUTPUT] = args->output;
    bound[TRAINING_OUTPUT_GRADIENT] = args->output_gradient;
    status = graph_enqueue(&plan->graph, call, &run, &args->workspace);
fail:
    return status;
}

clattn_status clattn_training_enqueue(clattn_plan *handle, cl_command_queue queue, const clattn_training_args *given,
                                      cl_uint wait_count, const cl_event *wait_list, cl_event *event)
{
    clattn_status status;
    const struct training_plan *plan = (const struct training_plan *)handle;
    struct enqueue_call call = {.queue = queue, .wait_count = wait_count, .wait_list = wait_list, .event = event};
    clattn_training_args args;
    int32_t *lengths = NULL;
    clattn_binding *bound = NULL;
    TRY(plan_check(handle, &training_type));
    struct report *report = &handle->context->device.report;
    TRY(args_read(report, "clattn_training_args", &args, sizeof args, sizeof args, given));
    TRY(args_check(report, "explicit_scale", args.explicit_scale, 0));
    TRY(args_check(report, "accumulate", args.accumulate, 0));
    if (args.explicit_scale && !isfinite(args.scale))
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "scale is not finite");
    lengths = malloc(2 * plan->desc.batch * sizeof *lengths);
    bound = calloc(TRAINING_GRADIENTS + 2 * plan->trainer->model->buffer_count, sizeof *bound);
    call.control = args.control;
    if (lengths && bound)
        TRY(control_enter(call.control, report));
    status = lengths && bound ? control_leave(call.control, enqueue(plan, &call, &args, lengths, bound))
                              : report_error(report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for an enqueue");
fail:
    free(lengths);
    free(bound);
    return status;
}
