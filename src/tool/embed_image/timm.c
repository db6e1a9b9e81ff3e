/* config.json of timm, for its VisionTransformer.  The file names an architecture, whose sizes the tensors tell, and what is
 * done to pictures. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "base/try.h"
#include "io/common.h"
#include "tool/embed_image/vision.h"

#define MOST_PIXELS 8192

/* What the tensors of an architecture do not tell: heads, unless they have 64 columns each, and activations but GELU.  Names
 * are compared with the beginning of the architecture's. */
static const struct {
    const char *name;
    size_t heads;
    clattn_activation activation;
} exceptions[] = {
    {"vit_base_patch16_gap_", 16, CLATTN_ACTIVATION_GELU},
    {"vit_base_patch32_siglip_", 0, CLATTN_ACTIVATION_GELU_TANH},
    {"vit_large_patch16_siglip_512", 0, CLATTN_ACTIVATION_GELU_TANH},
    {"vit_large_patch16_siglip_gap_512", 0, CLATTN_ACTIVATION_GELU_TANH},
    {"vit_so400m_patch16_siglip_", 16, CLATTN_ACTIVATION_GELU_TANH},
    {"vit_giantopt_patch16_siglip_", 16, CLATTN_ACTIVATION_GELU_TANH},
};

static bool has(const vision_model *model, const char *canonical)
{
    return vision_tensor(model, canonical).dtype != CLATTN_DTYPE_NONE;
}

static void apply_exceptions(clattn_stack_desc *stack, const char *architecture)
{
    const size_t d_model = stack->d_model;
    /* The huge, giant and gigantic ones, and the "shape-optimised" one of 400 million weights. */
    const bool wide = d_model == 1152 || d_model == 1280 || d_model == 1408 || d_model == 1664;
    const size_t columns = strncmp(architecture, "test_vit", 8) == 0 ? 32 : 64;
    stack->heads = wide ? 16 : d_model % columns == 0 ? d_model / columns : 0;
    for (size_t i = 0; i < COUNT_OF(exceptions); i++)
        if (strncmp(architecture, exceptions[i].name, strlen(exceptions[i].name)) == 0) {
            stack->heads = exceptions[i].heads != 0 ? exceptions[i].heads : stack->heads;
            stack->activation = exceptions[i].activation;
        }
    if (strstr(architecture, "_quickgelu_") != NULL) {
        stack->activation = CLATTN_ACTIVATION_SWISH;
        stack->explicit_alpha = 1;
        stack->alpha = 1.702f;
    }
}

/* What the presence of tensors tells. */
static clattn_status read_presence(vision_model *model, clattn_io_error *error)
{
    clattn_stack_desc *stack = &model->stack;
    const clattn_host_tensor registers = vision_tensor(model, "encoder.registers.weight");
    const clattn_host_tensor out = vision_tensor(model, "encoder.layers.0.feed_forward.out.weight");
    const clattn_host_tensor normed = vision_tensor(model, "encoder.layers.0.self.query_norm.weight");
    stack->patches.class_token = has(model, "encoder.class.weight");
    stack->patches.without_bias = !has(model, "encoder.patches.bias");
    stack->patches.registers = registers.rank >= 2 ? registers.extent[registers.rank - 2] : 0;
    stack->patches.antialias = 1;
    stack->input_norm = has(model, "encoder.input_norm.weight");
    stack->layer_scale = has(model, "encoder.layers.0.self.scale");
    stack->query_key_norm = normed.dtype != CLATTN_DTYPE_NONE;
    if (!has(model, "encoder.layers.0.self.query.bias"))
        stack->without_bias = CLATTN_WITHOUT_QUERY_BIAS | CLATTN_WITHOUT_KEY_BIAS | CLATTN_WITHOUT_VALUE_BIAS;
    if (stack->query_key_norm && normed.rank == 1 && normed.extent[0] > 0)
        stack->heads = stack->d_model / normed.extent[0];
    if (out.rank == 2 && stack->d_ff == 2 * out.extent[1]) { /* SwiGLUPacked: gate and value in one matrix */
        model->gated_timm = true;
        stack->gated = 1;
        stack->activation = CLATTN_ACTIVATION_SWISH;
        stack->explicit_alpha = 0;
        stack->d_ff = out.extent[1];
    }
    /* Models with a norm before the layers are CLIP's, whose norms have another epsilon. */
    stack->epsilon = stack->input_norm ? 1e-5f : 1e-6f;
    model->norm_after = vision_named_tensor(model, "fc_norm.weight").dtype != CLATTN_DTYPE_NONE;
    stack->final_norm = !model->norm_after;
    return model->norm_after || has(model, "encoder.norm.weight")
               ? CLATTN_SUCCESS
               : io_fail(error, CLATTN_ERROR_UNSUPPORTED, model->weights.text,
                         "has no tensor norm.weight or fc_norm.weight, expected a VisionTransformer with a norm after "
                         "its layers");
}

/* The arguments that the model was made with, as far as tensors do not show them. */
static clattn_status read_arguments(vision_model *model, model_config *c)
{
    clattn_stack_desc *stack = &model->stack;
    clattn_status status;
    TRY(model_config_optional_size(c, "num_heads", 65536, &stack->heads));
    if (!stack->gated && model_config_value(c, "act_layer") != NULL)
        status = model_config_activation(c, "act_layer", stack);
fail:
    return status;
}

static clattn_status read_pooling(vision_model *model, model_config *c)
{
    const json_t *value = model_config_value(c, "global_pool");
    const char *name = json_string_value(value);
    const bool token = model->stack.patches.class_token;
    model->pooling = token ? CLATTN_POOLING_FIRST : CLATTN_POOLING_PATCHES;
    if (value == NULL || (name != NULL && (name[0] == '\0' || (token && strcmp(name, "token") == 0))))
        return CLATTN_SUCCESS;
    if (name == NULL || strcmp(name, "avg") != 0)
        return model_config_wrong(c, "global_pool", token ? "token or avg" : "avg");
    model->pooling = CLATTN_POOLING_PATCHES;
    return CLATTN_SUCCESS;
}

/* Three numbers of a list. */
static clattn_status read_three(model_config *c, const char *name, double least, double three[3])
{
    const json_t *value = model_config_value(c, name);
    for (size_t i = 0; i < 3 && value != NULL; i++) {
        const json_t *each = json_array_get(value, i);
        three[i] = json_number_value(each);
        if (json_array_size(value) != 3 || !json_is_number(each) || !(three[i] >= least && three[i] <= MOST_PIXELS))
            return model_config_wrong(c, name, "three numbers");
    }
    return CLATTN_SUCCESS;
}

static clattn_status read_mode(fit_rule *rule, model_config *c)
{
    const char *name = json_string_value(model_config_value(c, "interpolation"));
    const bool linear = name != NULL && strcmp(name, "bilinear") == 0;
    rule->mode = linear ? CLATTN_RESIZE_MODE_BILINEAR : CLATTN_RESIZE_MODE_BICUBIC;
    if (model_config_value(c, "interpolation") != NULL && !linear && (name == NULL || strcmp(name, "bicubic") != 0))
        return model_config_wrong(c, "interpolation", "bicubic or bilinear");
    return CLATTN_SUCCESS;
}

/* timm's eval transform: the picture is made larger than what is cut out of it by 1 / crop_pct. */
static clattn_status read_rule(vision_model *model, model_config *c)
{
    fit_rule *rule = &model->rule;
    double size[3] = {3, 224, 224}, mean[3] = {0.485, 0.456, 0.406}, deviation[3] = {0.229, 0.224, 0.225};
    const json_t *share = model_config_value(c, "crop_pct");
    const char *crop = json_string_value(model_config_value(c, "crop_mode"));
    const double part = share != NULL ? json_number_value(share) : 0.875;
    clattn_status status;
    if (!(part >= 0.1 && part <= 1))
        return model_config_wrong(c, "crop_pct", "a number from 0.1 to 1");
    if (crop != NULL && strcmp(crop, "center") != 0 && strcmp(crop, "squash") != 0)
        return model_config_wrong(c, "crop_mode", "center or squash");
    TRY(read_three(c, "input_size", 1, size));
    TRY(read_three(c, "mean", -1e6, mean));
    TRY(read_three(c, "std", 1e-9, deviation));
    TRY(read_mode(rule, c));
    rule->scale = 1.0f / 255;
    rule->half_even = true;
    rule->shortest = crop == NULL || strcmp(crop, "center") == 0;
    if (rule->shortest && size[1] != size[2])
        return model_config_wrong(c, "input_size", "as many rows as columns, or a crop_mode of squash");
    for (int i = 0; i < 3; i++) {
        rule->mean[i] = (float)mean[i];
        rule->deviation[i] = (float)deviation[i];
    }
    for (int i = 0; i < 2; i++) {
        rule->size[i] = (size_t)size[1 + i];
        rule->resized[i] = (size_t)floor((double)rule->size[i] / part);
    }
fail:
    return status;
}

/* The table of positions has a row for each patch of the pictures that the model was made for, and one for the class token
 * unless that has none. */
static clattn_status read_grid(vision_model *model, model_config *c)
{
    clattn_stack_desc *stack = &model->stack;
    const size_t rows = stack->position_count, root = (size_t)lrint(sqrt((double)rows)), *size = model->rule.size;
    const size_t cells = size[0] / stack->patches.height * (size[1] / stack->patches.width);
    const bool all = rows == cells || (rows != cells + 1 && root * root == rows);
    const size_t pixels[2] = {rows == cells || rows == cells + 1 ? size[0] : 0, size[1]};
    return vision_set_grid(model, c, all || !stack->patches.class_token ? 0 : 1, pixels, &c->error);
}

clattn_status vision_read_timm(vision_model *model, model_config *c)
{
    static const char *const objects[] = {"model_args", "pretrained_cfg"};
    const json_t *object[2];
    const char *architecture = json_string_value(model_config_value(c, "architecture"));
    clattn_status status;
    for (int i = 0; i < 2; i++) {
        object[i] = model_config_value(c, objects[i]);
        if (object[i] != NULL && !json_is_object(object[i]))
            return model_config_wrong(c, objects[i], "an object");
    }
    model->format = CLATTN_NAME_FORMAT_TIMM_VIT;
    TRY(vision_read_tensors(model, &c->error));
    apply_exceptions(&model->stack, architecture);
    TRY(read_presence(model, &c->error));
    TRY(read_pooling(model, c));
    c->at = object[0];
    TRY(read_arguments(model, c));
    if (object[0] != NULL && model_config_value(c, "global_pool") != NULL)
        TRY(read_pooling(model, c));
    if (model->stack.heads == 0 || model->stack.d_model % model->stack.heads != 0)
        TRY(io_fail(&c->error, CLATTN_ERROR_UNSUPPORTED, c->path.text,
                    "the number of heads of %.60s is not known for %zu columns, expected model_args with num_heads",
                    architecture, model->stack.d_model));
    c->at = object[1] != NULL ? object[1] : c->root;
    TRY(read_rule(model, c));
    TRY(read_grid(model, c));
fail:
    return status;
}
