#include <math.h>
#include <stdlib.h>

#include "base/text/opencl_check.h"
#include "base/try.h"
#include "clattn/decoder.h"
#include "clattn/io.h"
#include "pictures/common.h"
#include "pictures/fit.h"
#include "pictures/prefix.h"

#define CHANNELS 3
#define CALLS 2    /* of operators and models: resizing and encoding */
#define PIXELS 224 /* rows and columns that the published models are used with */

struct clattn_picture_encoder {
    clattn_context *context;
    fit_rule rule;
    size_t columns; /* of the vector */
    clattn_transformer *model;
    clattn_plan *plan;
    cl_mem input, output, workspace;
    unsigned char *cut; /* the picture as the model sees it */
    float *values;
};

void clattn_picture_encoder_params_init(clattn_picture_encoder_params *params)
{
    *params = (clattn_picture_encoder_params)CLATTN_PICTURE_ENCODER_PARAMS_INIT;
}

void clattn_picture_encoder_args_init(clattn_picture_encoder_args *args)
{
    *args = (clattn_picture_encoder_args)CLATTN_PICTURE_ENCODER_ARGS_INIT;
}

/* The family of a model, by the names of its weights; false: it makes no vectors of pictures. */
static bool find_family(clattn_name_format format, fit_family *family)
{
    switch (format) {
    case CLATTN_NAME_FORMAT_VIT: *family = FIT_FAMILY_VIT; return true;
    case CLATTN_NAME_FORMAT_DINOV2:
    case CLATTN_NAME_FORMAT_DINOV2_GATED: *family = FIT_FAMILY_DINOV2; return true;
    case CLATTN_NAME_FORMAT_CLIP_VISION: *family = FIT_FAMILY_CLIP; return true;
    case CLATTN_NAME_FORMAT_SWIN: *family = FIT_FAMILY_SWIN; return true;
    case CLATTN_NAME_FORMAT_DINOV3: *family = FIT_FAMILY_DINOV3; return true;
    default: return false;
    }
}

static size_t numbers_of(const clattn_picture_encoder *e)
{
    return CHANNELS * e->rule.size[0] * e->rule.size[1];
}

/* Loads the weights and sets the rule and the vector's size. */
static clattn_status load(clattn_picture_encoder *e, const clattn_picture_encoder_params *params, fit_family *family,
                          clattn_io_error *error)
{
    const size_t pixels[2] = {PIXELS, PIXELS};
    clattn_transformer_desc desc = CLATTN_TRANSFORMER_DESC_INIT;
    clattn_stack_desc stages[CLATTN_VISION_STAGES];
    clattn_weight_source source = CLATTN_WEIGHT_SOURCE_INIT;
    clattn_safetensors *file = NULL;
    char prefix[PREFIX_BYTES];
    const clattn_stack_desc *last = stages;
    clattn_status status = clattn_vision_preset(params->model, &desc, stages, &source.format);
    if (status != CLATTN_SUCCESS || !find_family(source.format, family))
        return call_fail(error, CLATTN_ERROR_INVALID_ARGUMENT,
                         "params.model is %d, expected ViT, DINOv2, DINOv3, Swin, or CLIP's of pictures",
                         (int)params->model);
    status = clattn_safetensors_create(params->weights, &file, error);
    if (status != CLATTN_SUCCESS)
        return status;
    while (last->next != NULL)
        last = last->next;
    e->columns = last->projection != 0 ? last->projection : last->d_model;
    e->rule = fit_rule_of(*family, pixels, stages[0].patches.height);
    desc.dtype = call_dtype(params->dtype);
    if (find_prefix(file, source.format, prefix) && prefix[0] != '\0')
        source.prefix = prefix;
    source.lookup = clattn_safetensors_lookup;
    source.user = file;
    status = clattn_transformer_create(e->context, &desc, &source, &e->model);
    clattn_safetensors_release(&file);
    return call_check_file(error, status, "", e->context, params->weights);
}

static clattn_status prepare(clattn_picture_encoder *e, fit_family family, clattn_io_error *error)
{
    cl_context opencl = clattn_context_opencl_context(e->context);
    clattn_encoder_desc desc = CLATTN_ENCODER_DESC_INIT;
    char own[256] = "";
    cl_int code = CL_SUCCESS;
    clattn_status status;
    desc.batch = 1;
    desc.picture = clattn_layout_nchw(CLATTN_DTYPE_F32, 1, CHANNELS, e->rule.size[0], e->rule.size[1]);
    desc.pooling = family == FIT_FAMILY_SWIN ? CLATTN_POOLING_MEAN : CLATTN_POOLING_FIRST;
    desc.pooled_unit = 1;
    desc.prepack = 1; /* the plan is for one picture, so that weights are most of what is read */
    TRY(clattn_encoder_plan_create(e->model, &desc, NULL, &e->plan));
    e->input = clCreateBuffer(opencl, CL_MEM_READ_ONLY, numbers_of(e) * sizeof(float), NULL, &code);
    if (code == CL_SUCCESS)
        e->output = clCreateBuffer(opencl, CL_MEM_READ_WRITE, e->columns * sizeof(float), NULL, &code);
    if (code == CL_SUCCESS)
        e->workspace = clCreateBuffer(opencl, CL_MEM_READ_WRITE, clattn_plan_workspace_size(e->plan), NULL, &code);
    TRY(opencl_check("clCreateBuffer", code, own, sizeof own));
    e->cut = malloc(numbers_of(e));
    e->values = malloc(numbers_of(e) * sizeof *e->values);
    if (e->cut == NULL || e->values == NULL)
        return call_fail(error, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a picture of %zu x %zu pixels",
                         e->rule.size[0], e->rule.size[1]);
fail:
    return call_check(error, status, own, e->context);
}

clattn_status clattn_picture_encoder_create(clattn_context *context, const clattn_picture_encoder_params *params,
                                            clattn_picture_encoder **result, clattn_io_error *error)
{
    clattn_picture_encoder *made = NULL;
    fit_family family = FIT_FAMILY_VIT;
    clattn_status status;
    if (result != NULL)
        *result = NULL;
    if (context == NULL || params == NULL || result == NULL)
        return call_fail(error, CLATTN_ERROR_INVALID_ARGUMENT, "context, params or encoder is NULL");
    TRY(call_check_struct(error, "params", params->size, sizeof *params));
    TRY(call_check_weights(error, params->weights, params->dtype));
    made = calloc(1, sizeof *made);
    if (made == NULL)
        return call_fail(error, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for an encoder of pictures");
    made->context = context;
    TRY(load(made, params, &family, error));
    TRY(prepare(made, family, error));
    *result = made;
    return CLATTN_SUCCESS;
fail:
    clattn_picture_encoder_release(&made);
    return status;
}

size_t clattn_picture_encoder_size(const clattn_picture_encoder *encoder)
{
    return encoder != NULL ? encoder->columns : 0;
}

static clattn_status compute(const clattn_picture_encoder *e, cl_command_queue queue,
                             const clattn_picture_encoder_args *given, clattn_io_error *error)
{
    clattn_encoder_args args = CLATTN_ENCODER_ARGS_INIT;
    char own[256] = "";
    cl_int code =
        clEnqueueWriteBuffer(queue, e->input, CL_TRUE, 0, numbers_of(e) * sizeof(float), e->values, 0, NULL, NULL);
    clattn_status status;
    TRY(opencl_check("clEnqueueWriteBuffer", code, own, sizeof own));
    args.input = clattn_binding_buffer(e->input, 0);
    args.pooled = clattn_binding_buffer(e->output, 0);
    args.workspace = clattn_binding_buffer(e->workspace, 0);
    args.control = given->control;
    TRY(clattn_encoder_enqueue(e->plan, queue, &args, 0, NULL, NULL));
    code = clEnqueueReadBuffer(queue, e->output, CL_TRUE, 0, e->columns * sizeof(float), given->vector, 0, NULL, NULL);
    status = opencl_check("clEnqueueReadBuffer", code, own, sizeof own);
fail:
    return call_check(error, status, own, e->context);
}

clattn_status clattn_picture_encoder_run(clattn_picture_encoder *e, cl_command_queue queue,
                                         const clattn_picture_encoder_args *args, clattn_io_error *error)
{
    clattn_status status;
    if (e == NULL || args == NULL)
        return call_fail(error, CLATTN_ERROR_INVALID_ARGUMENT, "encoder or args is NULL");
    TRY(call_check_struct(error, "args", args->size, sizeof *args));
    TRY(call_check_picture(error, "args.picture", &args->picture));
    if (args->vector == NULL)
        return call_fail(error, CLATTN_ERROR_INVALID_ARGUMENT, "args.vector is NULL");
    TRY(call_begin(error, e->context, &queue, args->control, CALLS));
    status = fit_picture(&e->rule, e->context, queue, args->control, &args->picture, e->cut, error);
    if (status == CLATTN_SUCCESS) {
        fit_normalise(&e->rule, e->cut, e->values);
        status = compute(e, queue, args, error);
    }
    TRY(call_end(status, args->control));
    for (size_t i = 0; i < e->columns; i++)
        if (!isfinite(args->vector[i]))
            return call_fail(error, CLATTN_ERROR_FORMAT,
                             "the vector is not finite, expected weights without NaN, or another type of them");
fail:
    return status;
}

void clattn_picture_encoder_release(clattn_picture_encoder **encoder)
{
    if (encoder == NULL || *encoder == NULL)
        return;
    clattn_picture_encoder *e = *encoder;
    const bool forked = context_is_of_another_process(e->context);
    if (e->input != NULL && !forked)
        clReleaseMemObject(e->input);
    if (e->output != NULL && !forked)
        clReleaseMemObject(e->output);
    if (e->workspace != NULL && !forked)
        clReleaseMemObject(e->workspace);
    clattn_plan_release(&e->plan);
    clattn_transformer_release(&e->model);
    free(e->cut);
    free(e->values);
    free(e);
    *encoder = NULL;
}
