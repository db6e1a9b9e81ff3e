/* Presets of models of pictures. */
#include "clattn/vision.h"

#include "base/report.h"
#include "base/size.h"

enum family { VIT, DINOV2, CLIP_VISION, CLIP_TEXT, SWIN, SAM, SWINIR, DINOV3 };

#define SWIN_STAGES 4

struct shape {
    enum family family;
    size_t layers, /* Swin: of the third stage; SwinIR: stages of six layers each */
        d_model, heads, patch, projection;
};

static const struct shape shapes[] = {
    [CLATTN_VISION_VIT_TINY_16] = {VIT, 12, 192, 3, 16, 0},
    [CLATTN_VISION_VIT_SMALL_16] = {VIT, 12, 384, 6, 16, 0},
    [CLATTN_VISION_VIT_BASE_16] = {VIT, 12, 768, 12, 16, 0},
    [CLATTN_VISION_VIT_LARGE_16] = {VIT, 24, 1024, 16, 16, 0},
    [CLATTN_VISION_DINOV2_SMALL_14] = {DINOV2, 12, 384, 6, 14, 0},
    [CLATTN_VISION_DINOV2_BASE_14] = {DINOV2, 12, 768, 12, 14, 0},
    [CLATTN_VISION_DINOV2_LARGE_14] = {DINOV2, 24, 1024, 16, 14, 0},
    [CLATTN_VISION_DINOV2_GIANT_14] = {DINOV2, 40, 1536, 24, 14, 0},
    [CLATTN_VISION_CLIP_BASE_32] = {CLIP_VISION, 12, 768, 12, 32, 512},
    [CLATTN_VISION_CLIP_BASE_32_TEXT] = {CLIP_TEXT, 12, 512, 8, 0, 512},
    [CLATTN_VISION_CLIP_BASE_16] = {CLIP_VISION, 12, 768, 12, 16, 512},
    [CLATTN_VISION_CLIP_BASE_16_TEXT] = {CLIP_TEXT, 12, 512, 8, 0, 512},
    [CLATTN_VISION_CLIP_LARGE_14] = {CLIP_VISION, 24, 1024, 16, 14, 768},
    [CLATTN_VISION_CLIP_LARGE_14_TEXT] = {CLIP_TEXT, 12, 768, 12, 0, 768},
    [CLATTN_VISION_SWIN_TINY] = {SWIN, 6, 96, 3, 4, 0},
    [CLATTN_VISION_SWIN_SMALL] = {SWIN, 18, 96, 3, 4, 0},
    [CLATTN_VISION_SWIN_BASE] = {SWIN, 18, 128, 4, 4, 0},
    [CLATTN_VISION_SWIN_LARGE] = {SWIN, 18, 192, 6, 4, 0},
    [CLATTN_VISION_SAM_BASE] = {SAM, 12, 768, 12, 16, 0},
    [CLATTN_VISION_SAM_LARGE] = {SAM, 24, 1024, 16, 16, 0},
    [CLATTN_VISION_SAM_HUGE] = {SAM, 32, 1280, 16, 16, 0},
    [CLATTN_VISION_SWINIR_CLASSICAL] = {SWINIR, 6, 180, 6, 1, 0},
    [CLATTN_VISION_SWINIR_LIGHTWEIGHT] = {SWINIR, 4, 60, 6, 1, 0},
    [CLATTN_VISION_SWINIR_REAL] = {SWINIR, 6, 180, 6, 1, 0},
    [CLATTN_VISION_SWINIR_REAL_LARGE] = {SWINIR, 9, 240, 8, 1, 0},
    [CLATTN_VISION_SWINIR_DENOISE] = {SWINIR, 6, 180, 6, 1, 0},
    [CLATTN_VISION_SWINIR_JPEG] = {SWINIR, 6, 180, 6, 1, 0},
    [CLATTN_VISION_DINOV3_SMALL_16] = {DINOV3, 12, 384, 6, 16, 0},
    [CLATTN_VISION_DINOV3_BASE_16] = {DINOV3, 12, 768, 12, 16, 0},
    [CLATTN_VISION_DINOV3_LARGE_16] = {DINOV3, 24, 1024, 16, 16, 0},
};

/* Patches of square pictures, with a class token that has a position. */
static void set_pictures(clattn_stack_desc *encoder, size_t pixels, size_t patch)
{
    clattn_patches *patches = &encoder->patches;
    encoder->input = CLATTN_STACK_INPUT_PICTURES;
    patches->channels = 3;
    patches->height = patches->width = patch;
    patches->grid_rows = patches->grid_columns = pixels / patch;
    patches->class_token = 1;
    encoder->position_count = patches->grid_rows * patches->grid_columns + 1;
}

static void set_epsilon(clattn_stack_desc *encoder, float epsilon)
{
    encoder->explicit_epsilon = 1;
    encoder->epsilon = epsilon;
}

static void set_clip(clattn_stack_desc *encoder)
{
    encoder->activation = CLATTN_ACTIVATION_SWISH; /* OpenAI's weights have QuickGELU */
    encoder->explicit_alpha = 1;
    encoder->alpha = 1.702f;
}

/* Four stages, of which the first is set up already. */
static void set_swin(clattn_stack_desc *stage)
{
    const size_t layers[SWIN_STAGES] = {2, 2, stage->layers, 2};
    stage->input = CLATTN_STACK_INPUT_PICTURES;
    stage->patches.channels = 3;
    stage->patches.height = stage->patches.width = 4;
    stage->positions = CLATTN_POSITIONS_NONE;
    stage->windows = (clattn_windows){7, 7, 1, CLATTN_POSITION_BIAS_TABLE, 0};
    for (size_t i = 1; i < SWIN_STAGES; i++) {
        stage[i] = stage[0];
        stage[i].input = CLATTN_STACK_INPUT_MERGED;
        stage[i].patches = (clattn_patches){0};
        stage[i].d_model = stage[i - 1].d_model * 2;
        stage[i].heads = stage[i - 1].heads * 2;
        stage[i].d_ff = stage[i - 1].d_ff * 2;
        stage[i].final_norm = i + 1 == SWIN_STAGES;
        stage[i - 1].next = &stage[i];
        stage[i].next = NULL;
    }
    for (size_t i = 0; i < SWIN_STAGES; i++)
        stage[i].layers = layers[i];
    stage->final_norm = 0;
    stage->input_norm = 1;
}

static clattn_restoration restoration_of(clattn_vision model)
{
    switch ((int)model) {
    case CLATTN_VISION_SWINIR_CLASSICAL:
        return (clattn_restoration){.kind = CLATTN_RESTORATION_KIND_SHUFFLE, .factor = 4, .features = 64};
    case CLATTN_VISION_SWINIR_LIGHTWEIGHT:
        return (clattn_restoration){.kind = CLATTN_RESTORATION_KIND_SHUFFLE_ONCE, .factor = 4};
    case CLATTN_VISION_SWINIR_REAL:
    case CLATTN_VISION_SWINIR_REAL_LARGE:
        return (clattn_restoration){.kind = CLATTN_RESTORATION_KIND_NEAREST, .factor = 4, .features = 64};
    default: return (clattn_restoration){.kind = CLATTN_RESTORATION_KIND_ADDED, .factor = 1};
    }
}

/* Stages of six layers, of which the first has its sizes already. */
static void set_swinir(clattn_stack_desc *stage, clattn_vision model)
{
    const size_t count = stage->layers, window = model == CLATTN_VISION_SWINIR_JPEG ? 7 : 8;
    stage->layers = 6;
    stage->d_ff = 2 * stage->d_model;
    stage->positions = CLATTN_POSITIONS_NONE;
    stage->final_norm = 0;
    stage->windows = (clattn_windows){window, window, 2, CLATTN_POSITION_BIAS_TABLE, 0};
    stage->residual = model == CLATTN_VISION_SWINIR_REAL_LARGE ? 3 : 1;
    for (size_t i = 1; i < count; i++) {
        stage[i] = stage[0];
        stage[i].input = CLATTN_STACK_INPUT_CONTINUED;
        stage[i].next = NULL;
        stage[i - 1].next = &stage[i];
    }
    stage->input = CLATTN_STACK_INPUT_PICTURES;
    stage->input_norm = 1;
    stage->patches = (clattn_patches){.channels = 3, .height = 1, .width = 1, .border = 1};
    stage[count - 1].final_norm = 1;
    stage[count - 1].restoration = restoration_of(model);
}

clattn_status clattn_vision_preset(clattn_vision model, clattn_transformer_desc *desc, clattn_stack_desc *encoder,
                                   clattn_name_format *format)
{
    clattn_name_format names = CLATTN_NAME_FORMAT_CANONICAL;
    if (!desc || !encoder)
        return report_error(NULL, CLATTN_ERROR_INVALID_ARGUMENT, "desc or encoder is NULL");
    if (model < 0 || (size_t)model >= COUNT_OF(shapes))
        return report_error(NULL, CLATTN_ERROR_INVALID_ARGUMENT, "there is no model of pictures %d", (int)model);
    const struct shape *shape = &shapes[model];
    clattn_transformer_desc_init(desc);
    clattn_stack_desc_init(encoder);
    desc->encoder = encoder;
    encoder->layers = shape->layers;
    encoder->d_model = shape->d_model;
    encoder->heads = shape->heads;
    encoder->d_ff = 4 * shape->d_model;
    encoder->activation = CLATTN_ACTIVATION_GELU;
    encoder->norm_place = CLATTN_NORM_PLACE_PRE;
    encoder->final_norm = 1;
    encoder->positions = CLATTN_POSITIONS_TABLE;
    encoder->projection = shape->projection;
    switch (shape->family) {
    case VIT:
        set_pictures(encoder, 224, shape->patch);
        set_epsilon(encoder, 1e-12f); /* Hugging Face's; timm's and DeiT's own code have 1e-6 */
        names = CLATTN_NAME_FORMAT_VIT;
        break;
    case DINOV2:
        set_pictures(encoder, 518, shape->patch);
        set_epsilon(encoder, 1e-6f);
        encoder->layer_scale = 1;
        names = CLATTN_NAME_FORMAT_DINOV2;
        if (model == CLATTN_VISION_DINOV2_GIANT_14) {
            encoder->gated = 1;
            encoder->activation = CLATTN_ACTIVATION_SWISH;
            encoder->d_ff = 4096;
            names = CLATTN_NAME_FORMAT_DINOV2_GATED;
        }
        break;
    case DINOV3:
        encoder->input = CLATTN_STACK_INPUT_PICTURES;
        encoder->patches = (clattn_patches){
            .channels = 3, .height = shape->patch, .width = shape->patch, .class_token = 1, .registers = 4};
        encoder->positions = CLATTN_POSITIONS_NONE;
        encoder->rotary = CLATTN_ROTARY_HALVES;
        encoder->rotary_base = 100;
        encoder->rotary_centred = 1;
        encoder->without_bias = CLATTN_WITHOUT_KEY_BIAS;
        encoder->layer_scale = 1;
        names = CLATTN_NAME_FORMAT_DINOV3;
        break;
    case CLIP_VISION:
        set_pictures(encoder, 224, shape->patch);
        encoder->patches.without_bias = 1;
        encoder->input_norm = 1;
        set_clip(encoder);
        names = CLATTN_NAME_FORMAT_CLIP_VISION;
        break;
    case CLIP_TEXT:
        encoder->input = CLATTN_STACK_INPUT_TOKENS;
        encoder->vocabulary = 49408;
        encoder->position_count = 77;
        encoder->causal = 1;
        set_clip(encoder);
        names = CLATTN_NAME_FORMAT_CLIP_TEXT;
        break;
    case SAM:
        set_pictures(encoder, 1024, shape->patch);
        set_epsilon(encoder, 1e-6f);
        encoder->patches.class_token = 0;
        encoder->position_count--;
        encoder->final_norm = 0;
        encoder->windows =
            (clattn_windows){.rows = 14, .columns = 14, .position_bias = CLATTN_POSITION_BIAS_DECOMPOSED};
        for (size_t quarter = 1; quarter <= 4; quarter++) /* the last layer of each quarter */
            encoder->windows.whole |= (uint64_t)1 << (quarter * shape->layers / 4 - 1);
        encoder->neck = 256;
        names = CLATTN_NAME_FORMAT_SAM;
        break;
    case SWIN:
        set_swin(encoder);
        names = CLATTN_NAME_FORMAT_SWIN;
        break;
    case SWINIR:
        set_swinir(encoder, model);
        names = CLATTN_NAME_FORMAT_SWINIR;
        break;
    }
    if (format)
        *format = names;
    return CLATTN_SUCCESS;
}
