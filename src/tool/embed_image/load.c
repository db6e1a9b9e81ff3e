/* A model of pictures on a device. */
#include <stdlib.h>
#include <string.h>

#include "base/convert.h"
#include "base/size.h"
#include "tool/embed_image/vision.h"

/* Refuses tensors that a VisionTransformer does not have: they belong to a model that computes something else.  What makes
 * classes of the vector may be there. */
static int check_unused(const vision_model *model)
{
    const char *const heads[] = {"head.", "pre_logits.", model->norm_after ? "fc_norm." : "head."};
    clattn_safetensors_entry entry;
    for (size_t i = 0; clattn_safetensors_at(model->file, i, &entry) == CLATTN_SUCCESS; i++) {
        const size_t length = strlen(model->prefix);
        bool known = clattn_transformer_has_read(model->on[0].transformer, entry.name) ||
                     strncmp(entry.name, model->prefix, length) != 0;
        for (size_t j = 0; j < COUNT_OF(heads); j++)
            known = known || strncmp(entry.name + length, heads[j], strlen(heads[j])) == 0;
        if (!known)
            return complain(TOOL_BAD_INPUT,
                            "%s: has a tensor %.100s of shape %s, expected those of a VisionTransformer alone",
                            model->weights.text, entry.name, shape_of(&entry.tensor).text);
    }
    return TOOL_DONE;
}

/* Reads timm's fc_norm. */
static int load_norm(vision_model *model)
{
    static const char *const names[] = {"fc_norm.weight", "fc_norm.bias"};
    const size_t size = model->stack.d_model;
    model->norm = malloc(2 * size * sizeof *model->norm);
    if (model->norm == NULL)
        return complain(TOOL_FAILED, "%s: out of memory for a norm", model->weights.text);
    for (int i = 0; i < 2; i++) {
        const clattn_host_tensor tensor = vision_named_tensor(model, names[i]);
        const bool floats =
            tensor.dtype == CLATTN_DTYPE_F32 || tensor.dtype == CLATTN_DTYPE_F16 || tensor.dtype == CLATTN_DTYPE_BF16;
        if (tensor.dtype == CLATTN_DTYPE_NONE)
            return complain(TOOL_BAD_INPUT, "%s: has no tensor %s, expected one of shape (%zu,)", model->weights.text,
                            names[i], size);
        if (!floats || tensor.rank != 1 || tensor.extent[0] != size)
            return complain(TOOL_BAD_INPUT, "%s: %s is %s of shape %s, expected float32, float16 or bfloat16 of (%zu,)",
                            model->weights.text, names[i], clattn_dtype_name(tensor.dtype), shape_of(&tensor).text,
                            size);
        load_elements(tensor.dtype, tensor.data, 0, size, model->norm + (size_t)i * size);
    }
    return TOOL_DONE;
}

int vision_load(vision_model *model, tool_pool *pool)
{
    static const clattn_name_rule gated[] = {
        {"encoder.layers.{n}.feed_forward.gate.{kind}", "blocks.{n}.mlp.fc1.{kind}[0/2]"},
        {"encoder.layers.{n}.feed_forward.in.{kind}", "blocks.{n}.mlp.fc1.{kind}[1/2]"},
    };
    clattn_transformer_desc desc = CLATTN_TRANSFORMER_DESC_INIT;
    clattn_weight_source source = CLATTN_WEIGHT_SOURCE_INIT;
    desc.encoder = &model->stack;
    desc.dtype = model->dtype;
    source.lookup = clattn_safetensors_lookup;
    source.user = model->file;
    source.format = model->format;
    source.prefix = model->prefix[0] != '\0' ? model->prefix : NULL;
    source.rules = model->gated_timm ? gated : NULL;
    source.rule_count = model->gated_timm ? COUNT_OF(gated) : 0;
    model->pool = pool;
    int status = TOOL_DONE;
    for (size_t i = 0; i < pool->count && status == TOOL_DONE; i++) {
        vision_device *on = &model->on[i];
        on->device = &pool->member[i].device;
        status =
            device_check(on->device, clattn_transformer_create(on->device->context, &desc, &source, &on->transformer),
                         model->weights.text);
    }
    if (status == TOOL_DONE && model->format == CLATTN_NAME_FORMAT_TIMM_VIT)
        status = check_unused(model);
    if (status == TOOL_DONE && model->norm_after)
        status = load_norm(model);
    return status;
}

void vision_close(vision_model *model)
{
    for (size_t i = 0; i < POOL_MOST; i++) {
        clattn_plan_release(&model->on[i].plan);
        clattn_transformer_release(&model->on[i].transformer);
    }
    free(model->norm);
    clattn_safetensors_release(&model->file);
    *model = (vision_model){0};
}
