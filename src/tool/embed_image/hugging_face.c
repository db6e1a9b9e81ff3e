/* config.json of Hugging Face's transformers, for models of pictures. */
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "base/try.h"
#include "io/common.h"
#include "tool/embed_image/vision.h"

#define MOST_PIXELS 8192

enum kind { VIT, DINOV2, REGISTERS, CLIP, CLIP_VISION };

/* Models by their model_type. */
static const struct {
    const char *type;
    clattn_name_format format;
    float epsilon;
    fit_family family;
} kinds[] = {
    [VIT] = {"vit", CLATTN_NAME_FORMAT_VIT, 1e-12f, FIT_FAMILY_VIT},
    [DINOV2] = {"dinov2", CLATTN_NAME_FORMAT_DINOV2, 1e-6f, FIT_FAMILY_DINOV2},
    [REGISTERS] = {"dinov2_with_registers", CLATTN_NAME_FORMAT_DINOV2, 1e-6f, FIT_FAMILY_DINOV2},
    [CLIP] = {"clip", CLATTN_NAME_FORMAT_CLIP_VISION, 1e-5f, FIT_FAMILY_CLIP},
    [CLIP_VISION] = {"clip_vision_model", CLATTN_NAME_FORMAT_CLIP_VISION, 1e-5f, FIT_FAMILY_CLIP},
};

static clattn_status read_kind(model_config *c, enum kind *kind)
{
    const char *type = json_string_value(model_config_value(c, "model_type"));
    for (size_t i = 0; type != NULL && i < COUNT_OF(kinds); i++)
        if (strcmp(type, kinds[i].type) == 0) {
            *kind = (enum kind)i;
            return CLATTN_SUCCESS;
        }
    return model_config_wrong(c, "model_type", "vit, dinov2, dinov2_with_registers, clip or clip_vision_model");
}

/* A height and a width: one number for both, or a list of two. */
static clattn_status read_pair(model_config *c, const char *name, size_t pair[2])
{
    const json_t *value = model_config_value(c, name);
    if (!json_is_array(value)) {
        clattn_status status = model_config_optional_size(c, name, MOST_PIXELS, &pair[0]);
        if (status == CLATTN_SUCCESS && value != NULL)
            pair[1] = pair[0];
        return status;
    }
    for (size_t i = 0; i < 2; i++) {
        const json_int_t found = json_integer_value(json_array_get(value, i));
        if (json_array_size(value) != 2 || found < 1 || found > MOST_PIXELS)
            return model_config_wrong(c, name, "a whole number from 1 to 8192, or two");
        pair[i] = (size_t)found;
    }
    return CLATTN_SUCCESS;
}

/* Sizes that every kind has. */
static clattn_status read_sizes(vision_model *model, model_config *c)
{
    clattn_stack_desc *stack = &model->stack;
    size_t patch[2] = {stack->patches.height, stack->patches.width};
    clattn_status status;
    stack->heads = 12;
    TRY(model_config_optional_size(c, "hidden_size", 65536, &stack->d_model));
    TRY(model_config_optional_size(c, "num_hidden_layers", 1024, &stack->layers));
    TRY(model_config_optional_size(c, "num_attention_heads", 65536, &stack->heads));
    TRY(model_config_optional_size(c, "num_channels", 65536, &stack->patches.channels));
    TRY(read_pair(c, "patch_size", patch));
    stack->patches.height = patch[0];
    stack->patches.width = patch[1];
    if (stack->d_model % stack->heads != 0)
        return io_fail(&c->error, CLATTN_ERROR_FORMAT, c->path.text,
                       "the hidden size %zu is no multiple of the %zu heads of num_attention_heads", stack->d_model,
                       stack->heads);
    TRY(model_config_number(c, "layer_norm_eps", 0.0, 1.0, &stack->epsilon));
    if (!stack->gated && model_config_value(c, "hidden_act") != NULL)
        status = model_config_activation(c, "hidden_act", stack);
fail:
    return status;
}

static clattn_status read_dinov2(vision_model *model, model_config *c, bool registers)
{
    clattn_stack_desc *stack = &model->stack;
    bool gated = false;
    clattn_status status;
    stack->layer_scale = 1;
    TRY(model_config_flag(c, "use_swiglu_ffn", &gated));
    if (gated) {
        model->format = CLATTN_NAME_FORMAT_DINOV2_GATED;
        stack->gated = 1;
        stack->activation = CLATTN_ACTIVATION_SWISH;
    }
    if (registers) {
        stack->patches.antialias = 1;
        stack->patches.registers = 4;
        TRY(model_config_optional_size(c, "num_register_tokens", 65536, &stack->patches.registers));
    }
    status = CLATTN_SUCCESS;
fail:
    return status;
}

static clattn_status read_clip(vision_model *model, model_config *c, bool whole)
{
    clattn_stack_desc *stack = &model->stack;
    clattn_status status = CLATTN_SUCCESS;
    stack->patches.without_bias = 1;
    stack->input_norm = 1;
    stack->activation = CLATTN_ACTIVATION_SWISH;
    stack->explicit_alpha = 1;
    stack->alpha = 1.702f;
    /* CLIPVisionModel has no projection; CLIPVisionModelWithProjection has one and the same model_type. */
    if (whole || vision_tensor(model, "encoder.projection.weight").dtype != CLATTN_DTYPE_NONE) {
        stack->projection = 512;
        status = model_config_optional_size(c, "projection_dim", 65536, &stack->projection);
    }
    if (whole && status == CLATTN_SUCCESS && model_config_value(c, "vision_config") != NULL) {
        if (!json_is_object(model_config_value(c, "vision_config")))
            return model_config_wrong(c, "vision_config", "an object");
        c->at = model_config_value(c, "vision_config");
    }
    return status;
}

clattn_status vision_read_hugging_face(vision_model *model, model_config *c)
{
    clattn_stack_desc *stack = &model->stack;
    size_t pixels[2] = {0, 0};
    bool bias = true;
    enum kind kind = VIT;
    clattn_status status;
    TRY(read_kind(c, &kind));
    model->format = kinds[kind].format;
    model->pooling = CLATTN_POOLING_FIRST;
    stack->patches.class_token = 1;
    stack->epsilon = kinds[kind].epsilon;
    if (kind == DINOV2 || kind == REGISTERS)
        TRY(read_dinov2(model, c, kind == REGISTERS));
    TRY(vision_read_tensors(model, &c->error));
    if (kind == CLIP || kind == CLIP_VISION)
        TRY(read_clip(model, c, kind == CLIP));
    TRY(read_sizes(model, c));
    if (kind != DINOV2 && kind != REGISTERS)
        TRY(model_config_optional_size(c, "intermediate_size", (size_t)1 << 20, &stack->d_ff));
    TRY(model_config_flag(c, "qkv_bias", &bias));
    if (!bias)
        stack->without_bias = CLATTN_WITHOUT_QUERY_BIAS | CLATTN_WITHOUT_KEY_BIAS | CLATTN_WITHOUT_VALUE_BIAS;
    TRY(read_pair(c, "image_size", pixels));
    TRY(vision_set_grid(model, c, 1, pixels, &c->error));
    pixels[0] = stack->patches.grid_rows * stack->patches.height;
    pixels[1] = stack->patches.grid_columns * stack->patches.width;
    model->rule = fit_rule_of(kinds[kind].family, pixels, stack->patches.height);
fail:
    return status;
}
