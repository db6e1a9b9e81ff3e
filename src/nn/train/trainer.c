/* Trainers: their buffers, parameters by name, and updates. */
#include "nn/train/trainer.h"

#include <stdlib.h>

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "nn/model/load.h"
#include "plan/enqueue.h"

#define CL(trainer) (&(trainer)->model->context->device.cl)

void clattn_parameter_init(clattn_parameter *parameter)
{
    struct_init(parameter, sizeof *parameter);
}

void clattn_update_args_init(clattn_update_args *args)
{
    struct_init(args, sizeof *args);
}

/* ---- which models can be trained ---- */

static const char *why_not_stack(const clattn_stack_desc *d)
{
    if (d->input != CLATTN_STACK_INPUT_TOKENS && d->input != CLATTN_STACK_INPUT_FEATURES)
        return "input other than tokens and features";
    return d->layer_scale ? "layer_scale" : d->projection ? "a projection of pooled vectors" : NULL;
}

clattn_status trainer_check(const clattn_transformer *model)
{
    struct report *report = &model->context->device.report;
    const char *reason = NULL;
    if (model->weight_dtype != model->dtype || model->dtype == CLATTN_DTYPE_F16)
        reason = "activations and weights that are not both float32 or both bfloat16";
    if (!reason && model->has_encoder)
        reason = why_not_stack(&model->encoder.desc);
    if (!reason && model->has_decoder)
        reason = why_not_stack(&model->decoder.desc);
    if (!reason && model->has_decoder && model->decoder.desc.cross != (int32_t)model->has_encoder)
        reason = "cross-attention without an encoder, or the reverse,";
    if (reason)
        return report_error(report, CLATTN_ERROR_UNSUPPORTED, "trainer: %s cannot be trained", reason);
    return CLATTN_SUCCESS;
}

/* ---- making one ---- */

/* The element of its buffer with which a weight begins. */
static size_t place_of(const clattn_trainer *trainer, const struct weight *weight)
{
    return weight->at / clattn_dtype_size(trainer->model->weight_dtype);
}

static clattn_status make_zeros(const clattn_trainer *trainer, size_t bytes, cl_mem *buffer)
{
    static const float zero;
    clattn_status status = CLATTN_SUCCESS;
    struct device *device = &trainer->model->context->device;
    cl_int code;
    *buffer = device->cl.clCreateBuffer(device->context, CL_MEM_READ_WRITE, bytes, NULL, &code);
    if (!*buffer)
        return report_opencl(&device->report, "clCreateBuffer", code);
    TRY_CL(&device->report, "clEnqueueFillBuffer",
           device->cl.clEnqueueFillBuffer(trainer->model->context->warm_queue, *buffer, &zero, sizeof zero, 0, bytes, 0,
                                          NULL, NULL));
fail:
    return status;
}

static clattn_status make_plans(clattn_trainer *trainer, struct trained_buffer *buffer)
{
    clattn_status status;
    clattn_adam_desc adam = CLATTN_ADAM_DESC_INIT;
    clattn_square_sum_desc squares = CLATTN_SQUARE_SUM_DESC_INIT;
    const size_t one = 1;
    adam.parameter = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, &buffer->count);
    adam.gradient = adam.first_moment = adam.second_moment = squares.x = adam.parameter;
    adam.squares = squares.result = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, &one);
    if (trainer_is_narrow(trainer))
        adam.stored = clattn_layout_contiguous(trainer->model->weight_dtype, 1, &buffer->count);
    TRY(clattn_adam_plan_create(trainer->model->context, &adam, NULL, &buffer->adam));
    status = clattn_square_sum_plan_create(trainer->model->context, &squares, NULL, &buffer->squares);
fail:
    return status;
}

/* Copies a buffer of parameters to one of another type, as the activation that does nothing. */
static clattn_status convert(const clattn_trainer *trainer, size_t index, bool widen, cl_command_queue queue)
{
    const clattn_transformer *model = trainer->model;
    const struct trained_buffer *buffer = &trainer->buffers[index];
    const clattn_layout narrow = clattn_layout_contiguous(model->weight_dtype, 1, &buffer->count);
    const clattn_layout wide = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, &buffer->count);
    clattn_activation_desc desc = CLATTN_ACTIVATION_DESC_INIT;
    clattn_activation_args args = CLATTN_ACTIVATION_ARGS_INIT;
    desc.x = widen ? narrow : wide;
    desc.y = widen ? wide : narrow;
    args.x = clattn_binding_buffer(widen ? model->buffers[index] : buffer->value, 0);
    args.y = clattn_binding_buffer(widen ? buffer->value : model->buffers[index], 0);
    return clattn_activation_run(model->context, queue, &desc, &args, 0, NULL, NULL);
}

clattn_status trainer_round(const clattn_trainer *trainer, size_t index, cl_command_queue queue)
{
    return convert(trainer, index, false, queue);
}

static void count_numbers(clattn_trainer *trainer)
{
    const clattn_transformer *model = trainer->model;
    for (size_t i = 1; i < model->weight_count; i++) {
        const struct weight *weight = &model->weights[i];
        struct trained_buffer *buffer = &trainer->buffers[weight->buffer];
        buffer->count = size_max(buffer->count, place_of(trainer, weight) + weight->rows * weight->columns);
        buffer->moments = buffer->count;
    }
}

static clattn_status make_buffers(clattn_trainer *trainer, const struct ranks *ranks)
{
    clattn_status status = CLATTN_SUCCESS;
    const clattn_transformer *model = trainer->model;
    struct device *device = &model->context->device;
    count_numbers(trainer);
    if (ranks)
        TRY(trainer_group_make(trainer, ranks));
    for (size_t i = 0; i < model->buffer_count; i++) {
        struct trained_buffer *buffer = &trainer->buffers[i];
        const size_t bytes = buffer->count * sizeof(float), moment_bytes = buffer->moments * sizeof(float);
        if (!ranks)
            TRY(make_plans(trainer, buffer));
        TRY(make_zeros(trainer, bytes, &buffer->gradient));
        TRY(make_zeros(trainer, moment_bytes, &buffer->first_moment));
        TRY(make_zeros(trainer, moment_bytes, &buffer->second_moment));
        if (trainer_is_narrow(trainer)) {
            TRY(make_zeros(trainer, bytes, &buffer->value));
            TRY(convert(trainer, i, true, model->context->warm_queue));
        } else {
            buffer->value = model->buffers[i];
        }
    }
    TRY(make_zeros(trainer, sizeof(float), &trainer->squares));
    TRY_CL(&device->report, "clFinish", device->cl.clFinish(model->context->warm_queue));
fail:
    return status;
}

void trainer_retain(clattn_trainer *trainer)
{
    atomic_fetch_add(&trainer->references, 1);
}

static void release(const clattn_trainer *trainer, cl_mem buffer)
{
    if (buffer)
        CL(trainer)->clReleaseMemObject(buffer);
}

void trainer_drop(clattn_trainer *trainer)
{
    if (atomic_fetch_sub(&trainer->references, 1) != 1)
        return;
    if (device_is_foreign(&trainer->model->context->device))
        cl_table_disown(CL(trainer));
    trainer_forget_ready(trainer);
    for (size_t i = 0; trainer->buffers && i < trainer->model->buffer_count; i++) {
        struct trained_buffer *buffer = &trainer->buffers[i];
        if (trainer_is_narrow(trainer))
            release(trainer, buffer->value);
        release(trainer, buffer->gradient);
        release(trainer, buffer->first_moment);
        release(trainer, buffer->second_moment);
        release(trainer, buffer->part);
        clattn_plan_release(&buffer->adam);
        clattn_plan_release(&buffer->squares);
    }
    trainer_group_clear(trainer);
    release(trainer, trainer->squares);
    free(trainer->buffers);
    model_drop(trainer->model);
    free(trainer);
}

clattn_status trainer_make(clattn_transformer *model, const struct ranks *ranks, clattn_trainer **result)
{
    clattn_status status;
    clattn_trainer *trainer = calloc(1, sizeof *trainer);
    if (!trainer)
        return report_error(&model->context->device.report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a trainer");
    atomic_init(&trainer->references, 1);
    trainer->model = model;
    model_retain(model);
    trainer->buffers = calloc(model->buffer_count, sizeof *trainer->buffers);
    status = trainer->buffers
                 ? make_buffers(trainer, ranks)
                 : report_error(&model->context->device.report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a trainer");
    if (status == CLATTN_SUCCESS)
        *result = trainer;
    else
        trainer_drop(trainer);
    return status;
}

clattn_status clattn_trainer_create(clattn_transformer *model, clattn_trainer **result)
{
    clattn_status status;
    if (result)
        *result = NULL;
    if (!model || !result)
        return report_error(model ? &model->context->device.report : NULL, CLATTN_ERROR_INVALID_ARGUMENT,
                            "the transformer or trainer is NULL");
    TRY(context_check(model->context));
    TRY(trainer_check(model));
    /* Ranks that have the model together move it as a group does, though each has all of its own part's gradients. */
    const struct ranks alone = {.report = &model->context->device.report,
                                .group = {.size = sizeof alone.group, .ranks = 1}};
    status = trainer_make(model, model->ranks ? &alone : NULL, result);
fail:
    return status;
}

void clattn_trainer_release(clattn_trainer **trainer)
{
    if (!trainer || !*trainer)
        return;
    clattn_trainer *dropped = *trainer;
    *trainer = NULL;
    trainer_drop(dropped);
}

size_t clattn_trainer_bytes(const clattn_trainer *trainer)
{
    size_t bytes = 0;
    for (size_t i = 0; trainer && i < trainer->model->buffer_count; i++) {
        const struct trained_buffer *buffer = &trainer->buffers[i];
        const size_t arrays = 1 + (size_t)trainer_is_narrow(trainer) + (buffer->part != NULL);
        bytes += (buffer->count * arrays + buffer->moments * 2) * sizeof(float);
    }
    return bytes;
}

/* ---- parameters ---- */

/* Biases that the model does not have are zeros beside those that it has, and stay so: they are no parameters. */
size_t clattn_trainer_parameter_count(const clattn_trainer *trainer)
{
    size_t count = 0;
    for (size_t i = 0; trainer && i < trainer->model->part_count; i++)
        count += !trainer->model->parts[i].zero;
    return count;
}

/* The parameter's part, whose index is below the count. */
static const struct part *find_parameter(const clattn_transformer *model, size_t index)
{
    const struct part *part = model->parts;
    for (size_t left = index; part->zero || left; part++)
        left -= !part->zero;
    return part;
}

/* A convolution's tensor is (rows, channels, kernel); it lies as (rows, kernel, channels). */
static clattn_layout parameter_layout(const struct part *part)
{
    const size_t channels = part->columns / part->kernel;
    if (!part->convolution)
        return clattn_layout_contiguous(CLATTN_DTYPE_F32, part->vector ? 1 : 2,
                                        (const size_t[2]){part->rows, part->columns});
    return (clattn_layout){.dtype = CLATTN_DTYPE_F32,
                           .rank = 3,
                           .extent = {part->rows, channels, part->kernel},
                           .stride = {(int64_t)part->columns, 1, (int64_t)channels}};
}

clattn_status clattn_trainer_parameter(const clattn_trainer *trainer, size_t index, clattn_parameter *parameter)
{
    if (!trainer)
        return report_error(NULL, CLATTN_ERROR_INVALID_ARGUMENT, "the trainer is NULL");
    const clattn_transformer *model = trainer->model;
    struct report *report = &model->context->device.report;
    if (!parameter || parameter->size != sizeof *parameter)
        return report_error(report, CLATTN_ERROR_INVALID_STRUCT,
                            "parameter is NULL, or its size is none that clattn_parameter ever had");
    if (index >= clattn_trainer_parameter_count(trainer))
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "parameter %zu of %zu", index,
                            clattn_trainer_parameter_count(trainer));
    const struct part *part = find_parameter(model, index);
    const struct weight *weight = &model->weights[part->weight];
    const struct trained_buffer *buffer = &trainer->buffers[weight->buffer];
    const int64_t offset = (int64_t)(place_of(trainer, weight) + part->first * weight->columns);
    parameter->name = part->name;
    parameter->layout = parameter_layout(part);
    for (int32_t i = 0; i < parameter->layout.rank; i++) {
        const struct split split = i ? part->of_columns : part->of_rows;
        const bool cut = split.count != split.whole; /* a convolution's never are */
        parameter->whole[i] = cut ? split.whole : parameter->layout.extent[i];
        parameter->first[i] = cut ? split.first : 0;
    }
    parameter->value = clattn_binding_buffer(buffer->value, offset);
    parameter->gradient = clattn_binding_buffer(buffer->gradient, offset);
    const clattn_binding none = {0};
    parameter->first_moment = trainer->group ? none : clattn_binding_buffer(buffer->first_moment, offset);
    parameter->second_moment = trainer->group ? none : clattn_binding_buffer(buffer->second_moment, offset);
    return CLATTN_SUCCESS;
}

/* ---- updates ---- */

static clattn_status add_squares(clattn_trainer *trainer, struct chain *chain, size_t index)
{
    struct step step;
    clattn_square_sum_args args = CLATTN_SQUARE_SUM_ARGS_INIT;
    args.x = clattn_binding_buffer(trainer->buffers[index].gradient, 0);
    args.result = clattn_binding_buffer(trainer->squares, 0);
    args.accumulate = index > 0;
    chain_step(chain, false, &step);
    const clattn_status status = clattn_square_sum_enqueue(trainer->buffers[index].squares, chain->queue, &args,
                                                           step.wait_count, step.wait_list, step.event);
    if (status == CLATTN_SUCCESS)
        chain_stepped(chain, &step);
    return status;
}

clattn_adam_args trainer_adam_args(const clattn_trainer *trainer, size_t index, size_t first, size_t moment,
                                   const clattn_update_args *how)
{
    const struct trained_buffer *buffer = &trainer->buffers[index];
    clattn_adam_args args = CLATTN_ADAM_ARGS_INIT;
    args.parameter = clattn_binding_buffer(buffer->value, (int64_t)first);
    args.gradient = clattn_binding_buffer(buffer->gradient, (int64_t)first);
    args.first_moment = clattn_binding_buffer(buffer->first_moment, (int64_t)moment);
    args.second_moment = clattn_binding_buffer(buffer->second_moment, (int64_t)moment);
    args.squares = clattn_binding_buffer(trainer->squares, 0);
    args.learning_rate = how->learning_rate;
    args.explicit_betas = args.explicit_epsilon = 1;
    args.beta1 = how->beta1 != 0 ? how->beta1 : 0.9;
    args.beta2 = how->beta2 != 0 ? how->beta2 : 0.999;
    args.epsilon = how->epsilon != 0 ? how->epsilon : 1e-8;
    args.weight_decay = how->weight_decay;
    args.decoupled = !how->coupled;
    args.clip_norm = how->clip_norm;
    args.step = how->step;
    return args;
}

static clattn_status move(clattn_trainer *trainer, struct chain *chain, size_t index, const clattn_update_args *how)
{
    struct step step;
    clattn_adam_args args = trainer_adam_args(trainer, index, 0, 0, how);
    if (trainer_is_narrow(trainer))
        args.stored = clattn_binding_buffer(trainer->model->buffers[index], 0);
    chain_step(chain, index + 1 == trainer->model->buffer_count, &step);
    const clattn_status status = clattn_adam_enqueue(trainer->buffers[index].adam, chain->queue, &args, step.wait_count,
                                                     step.wait_list, step.event);
    if (status == CLATTN_SUCCESS)
        chain_stepped(chain, &step);
    return status;
}

/* An update by the trainer alone. */
static clattn_status update(clattn_trainer *trainer, const struct enqueue_call *call, const clattn_update_args *how)
{
    struct chain chain;
    clattn_status status = chain_begin(&chain, trainer->model->context, call, NULL);
    for (size_t i = 0; i < trainer->model->buffer_count && status == CLATTN_SUCCESS; i++)
        status = add_squares(trainer, &chain, i);
    for (size_t i = 0; i < trainer->model->buffer_count && status == CLATTN_SUCCESS; i++)
        status = move(trainer, &chain, i, how);
    return chain_end(&chain, status);
}

clattn_status clattn_trainer_update(clattn_trainer *trainer, cl_command_queue queue, const clattn_update_args *given,
                                    cl_uint wait_count, const cl_event *wait_list, cl_event *event)
{
    clattn_status status;
    clattn_update_args args;
    const struct enqueue_call call = {.queue = queue, .wait_count = wait_count, .wait_list = wait_list, .event = event};
    if (!trainer)
        return report_error(NULL, CLATTN_ERROR_INVALID_ARGUMENT, "the trainer is NULL");
    clattn_context *context = trainer->model->context;
    struct report *report = &context->device.report;
    TRY(context_check(context));
    TRY(args_read(report, "clattn_update_args", &args, sizeof args, sizeof args, given));
    TRY(args_check(report, "coupled", args.coupled, 0));
    TRY(args_check(report, "changed_gradients", args.changed_gradients, 0));
    status = trainer->group ? trainer_group_update(trainer, &call, &args) : update(trainer, &call, &args);
fail:
    return status;
}

clattn_binding clattn_trainer_squares(const clattn_trainer *trainer)
{
    return trainer ? clattn_binding_buffer(trainer->squares, 0) : (clattn_binding){0};
}
