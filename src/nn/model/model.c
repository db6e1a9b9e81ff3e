/* A model: what its description may say, presets, creation. */
#include "nn/model/model.h"

#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/try.h"
#include "ops/common/activation.h"
#include "ops/common/arrays.h"

#define SIZE_LIMIT ((size_t)1 << 31)

void clattn_stack_desc_init(clattn_stack_desc *desc)
{
    struct_init(desc, sizeof *desc);
}

void clattn_transformer_desc_init(clattn_transformer_desc *desc)
{
    struct_init(desc, sizeof *desc);
}

/* ---- presets ---- */

static void paper(clattn_stack_desc *stack, size_t d_model, size_t heads, size_t d_ff)
{
    stack->layers = 6;
    stack->d_model = d_model;
    stack->heads = heads;
    stack->d_ff = d_ff;
    stack->activation = CLATTN_ACTIVATION_RELU;
    stack->input = CLATTN_STACK_INPUT_TOKENS;
    stack->positions = CLATTN_POSITIONS_SINUSOIDS;
    stack->scale_embeddings = 1;
}

static void bert(clattn_stack_desc *stack, size_t layers, size_t d_model, size_t d_ff)
{
    stack->layers = layers;
    stack->d_model = d_model;
    stack->heads = 12;
    stack->d_ff = d_ff;
    stack->activation = CLATTN_ACTIVATION_GELU;
    stack->explicit_epsilon = 1;
    stack->epsilon = 1e-12f;
    stack->input = CLATTN_STACK_INPUT_TOKENS;
    stack->positions = CLATTN_POSITIONS_TABLE;
    stack->vocabulary = 30522;
    stack->position_count = 512;
    stack->segments = 2;
    stack->input_norm = 1;
}

static void whisper(clattn_stack_desc *stack, size_t layers, size_t d_model, size_t heads)
{
    stack->layers = layers;
    stack->d_model = d_model;
    stack->heads = heads;
    stack->d_ff = 4 * d_model;
    stack->activation = CLATTN_ACTIVATION_GELU;
    stack->norm_place = CLATTN_NORM_PLACE_PRE;
    stack->without_bias = CLATTN_WITHOUT_KEY_BIAS;
    stack->final_norm = 1;
    stack->positions = CLATTN_POSITIONS_TABLE;
}

static void whisper_input(clattn_stack_desc *encoder, clattn_stack_desc *decoder, size_t vocabulary)
{
    encoder->input = CLATTN_STACK_INPUT_FEATURES;
    encoder->features = 80;
    encoder->position_count = 1500;
    encoder->convolutions = 2;
    encoder->convolution[0] = (clattn_convolution){3, 1, 1, CLATTN_ACTIVATION_GELU};
    encoder->convolution[1] = (clattn_convolution){3, 2, 1, CLATTN_ACTIVATION_GELU};
    decoder->input = CLATTN_STACK_INPUT_TOKENS;
    decoder->vocabulary = vocabulary;
    decoder->position_count = 448;
}

clattn_status clattn_transformer_preset(clattn_preset preset, clattn_transformer_desc *desc, clattn_stack_desc *encoder,
                                        clattn_stack_desc *decoder)
{
    if (!desc || !encoder || !decoder)
        return report_error(NULL, CLATTN_ERROR_INVALID_ARGUMENT, "desc, encoder or decoder is NULL");
    clattn_transformer_desc_init(desc);
    clattn_stack_desc_init(encoder);
    clattn_stack_desc_init(decoder);
    switch ((int)preset) {
    case CLATTN_PRESET_PAPER_BASE:
        paper(encoder, 512, 8, 2048);
        paper(decoder, 512, 8, 2048);
        break;
    case CLATTN_PRESET_PAPER_BIG:
        paper(encoder, 1024, 16, 4096);
        paper(decoder, 1024, 16, 4096);
        break;
    case CLATTN_PRESET_BERT_BASE: bert(encoder, 12, 768, 3072); break;
    case CLATTN_PRESET_MINILM_L6: bert(encoder, 6, 384, 1536); break;
    case CLATTN_PRESET_WHISPER_TINY_EN:
        whisper(encoder, 4, 384, 6);
        whisper(decoder, 4, 384, 6);
        whisper_input(encoder, decoder, 51864);
        break;
    default: return report_error(NULL, CLATTN_ERROR_INVALID_ARGUMENT, "there is no preset %d", (int)preset);
    }
    desc->encoder = encoder;
    if (decoder->layers) {
        decoder->causal = decoder->cross = 1;
        desc->decoder = decoder;
        desc->output = CLATTN_MODEL_OUTPUT_TIED;
    }
    return CLATTN_SUCCESS;
}

/* ---- checks ---- */

static bool in_range(int32_t value, int32_t last)
{
    return value >= 0 && value <= last;
}

/* Enumerations and flags. */
static const char *wrong_field(const clattn_stack_desc *d)
{
    if (!d->activation || !activation_name(d->activation))
        return "activation is NONE or unknown";
    if (!in_range(d->norm, CLATTN_NORM_KIND_RMS) || !in_range(d->norm_place, CLATTN_NORM_PLACE_PRE))
        return "unknown norm or norm_place";
    if (!in_range(d->explicit_scale, 1))
        return "unknown scale_mode";
    if (!in_range(d->rotary, CLATTN_ROTARY_INTERLEAVED))
        return "unknown rotary";
    if (!in_range(d->input, CLATTN_STACK_INPUT_FEATURES) || !in_range(d->positions, CLATTN_POSITIONS_TABLE))
        return "unknown input or positions";
    if (d->without_bias > CLATTN_WITHOUT_BIAS)
        return "without_bias has a bit that means nothing";
    if (!is_flag(d->gated) || !is_flag(d->explicit_epsilon) || !is_flag(d->final_norm) || !is_flag(d->causal) ||
        !is_flag(d->cross) || !is_flag(d->scale_embeddings) || !is_flag(d->input_norm))
        return "a flag (gated, explicit_epsilon, final_norm, causal, cross, scaled, input_norm) is neither 0 nor 1";
    if (!isfinite(d->epsilon) || d->epsilon < 0)
        return "epsilon is negative or not finite";
    return NULL;
}

/* Sizes, once zeros are replaced. */
static const char *wrong_size(const struct stack *stack)
{
    const clattn_stack_desc *d = &stack->desc;
    if (!d->layers || !d->d_model || !d->heads || !d->d_ff)
        return "layers, d_model, heads and d_ff are at least 1";
    if (d->layers > 4096)
        return "more than 4096 layers";
    if (d->heads % d->kv_heads)
        return "heads is no multiple of kv_heads";
    if (!d->head_size)
        return "d_model is no multiple of heads; give head_size";
    if (d->rotary && (d->rotary_size % 2 || d->rotary_size > d->head_size))
        return "rotary_size is odd or above head_size";
    const size_t sizes[] = {d->d_model,    d->heads,          d->head_size, d->d_ff,     d->d_memory,
                            d->vocabulary, d->position_count, d->segments,  d->features, d->first_position};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (sizes[i] >= SIZE_LIMIT)
            return "a size is 2^31 or more";
    if (d->heads > SIZE_LIMIT / 16 / d->head_size)
        return "heads * head_size is 2^27 or more";
    return NULL;
}

static const char *wrong_input(const clattn_stack_desc *d)
{
    if ((d->input == CLATTN_STACK_INPUT_TOKENS) != (d->vocabulary != 0))
        return "tokens have a vocabulary, and other inputs have none";
    if (d->input != CLATTN_STACK_INPUT_TOKENS && (d->segments || d->scale_embeddings || d->input_norm))
        return "segments, scaled and input_norm are for tokens";
    if ((d->input == CLATTN_STACK_INPUT_FEATURES) != (d->features != 0) ||
        (d->input == CLATTN_STACK_INPUT_FEATURES) != (d->convolutions != 0))
        return "features have a number of columns and convolutions, and other inputs have none";
    if (d->positions && d->input == CLATTN_STACK_INPUT_VECTORS)
        return "positions are added to tokens or features, not to vectors";
    if (d->positions == CLATTN_POSITIONS_SINUSOIDS && d->input == CLATTN_STACK_INPUT_FEATURES)
        return "sinusoids are computed for tokens; features take a table of positions";
    if ((d->positions == CLATTN_POSITIONS_TABLE) != (d->position_count != 0))
        return "a table of positions has a position_count, and there is none without";
    if (d->first_position && (d->input != CLATTN_STACK_INPUT_TOKENS || !d->positions))
        return "first_position is for tokens with positions";
    if (d->positions == CLATTN_POSITIONS_TABLE && d->first_position >= d->position_count)
        return "first_position is beyond the table of positions";
    if (d->convolutions > CLATTN_MAX_CONVOLUTIONS)
        return "too many convolutions";
    for (size_t i = 0; i < d->convolutions; i++) {
        const clattn_convolution *c = &d->convolution[i];
        if (!c->kernel || c->kernel > 4096 || !c->stride || c->stride > 4096 || c->padding >= c->kernel ||
            !activation_name(c->activation))
            return "a convolution has no kernel or stride, a padding as large as its kernel, or an unknown activation";
    }
    return NULL;
}

static const char *stack_read(struct stack *stack, const clattn_stack_desc *given)
{
    clattn_stack_desc *d = &stack->desc;
    if (struct_read(d, sizeof *d, sizeof *d, given) != CLATTN_SUCCESS)
        return "its size is none that clattn_stack_desc ever had";
    const char *reason = wrong_field(d);
    if (reason)
        return reason;
    if (!d->kv_heads)
        d->kv_heads = d->heads ? d->heads : 1;
    if (!d->head_size && d->heads && d->d_model % d->heads == 0)
        d->head_size = d->d_model / d->heads;
    if (!d->d_memory)
        d->d_memory = d->d_model;
    if (!d->rotary_size)
        d->rotary_size = d->head_size;
    if (!d->explicit_epsilon)
        d->epsilon = 1e-5f;
    reason = wrong_size(stack);
    if (!reason)
        reason = wrong_input(d);
    stack->inner = d->heads * d->head_size;
    stack->inner_kv = d->kv_heads * d->head_size;
    return reason;
}

static clattn_status refuse(clattn_transformer *model, clattn_status status, const char *where, const char *reason)
{
    return report_error(&model->context->device.report, status, "transformer: %s%s", where, reason);
}

static clattn_status read_output(clattn_transformer *model, const clattn_transformer_desc *desc)
{
    const struct stack *decoder = &model->decoder;
    if (!in_range(desc->output, CLATTN_MODEL_OUTPUT_TIED) || !is_flag(desc->output_bias))
        return refuse(model, CLATTN_ERROR_INVALID_ARGUMENT, "", "unknown output, or output_bias neither 0 nor 1");
    if (desc->output && !model->has_decoder)
        return refuse(model, CLATTN_ERROR_INVALID_ARGUMENT, "", "an output without a decoder");
    if (desc->output_bias && desc->output != CLATTN_MODEL_OUTPUT_OWN)
        return refuse(model, CLATTN_ERROR_INVALID_ARGUMENT, "", "output_bias is for an own output");
    model->output = desc->output;
    model->output_bias = desc->output_bias;
    model->output_size = desc->output_size ? desc->output_size : decoder->desc.vocabulary;
    if (!desc->output)
        return CLATTN_SUCCESS;
    if (desc->output == CLATTN_MODEL_OUTPUT_TIED &&
        (!decoder->desc.vocabulary || model->output_size != decoder->desc.vocabulary))
        return refuse(model, CLATTN_ERROR_INVALID_LAYOUT, "", "a tied output is as large as the decoder's vocabulary");
    if (!model->output_size || model->output_size >= SIZE_LIMIT)
        return refuse(model, CLATTN_ERROR_INVALID_LAYOUT, "", "output_size is 0 or 2^31 and more");
    return CLATTN_SUCCESS;
}

clattn_status model_read(clattn_transformer *model, const clattn_transformer_desc *given)
{
    clattn_transformer_desc desc;
    const char *reason;
    clattn_status status = struct_read(&desc, sizeof desc, sizeof desc, given);
    if (status != CLATTN_SUCCESS)
        return refuse(model, status, "", "desc is NULL, or its size is none that clattn_transformer_desc ever had");
    model->dtype = desc.dtype ? desc.dtype : CLATTN_DTYPE_F32;
    model->weight_dtype = desc.weight_dtype ? desc.weight_dtype : model->dtype;
    if (!dtype_is_storage(model->dtype))
        return refuse(model, CLATTN_ERROR_UNSUPPORTED, "", "dtype is float32, float16 or bfloat16");
    if (!dtype_is_storage(model->weight_dtype) && model->weight_dtype != CLATTN_DTYPE_I8)
        return refuse(model, CLATTN_ERROR_UNSUPPORTED, "", "weight_dtype is float32, float16, bfloat16 or int8");
    if (!desc.encoder && !desc.decoder)
        return refuse(model, CLATTN_ERROR_INVALID_ARGUMENT, "", "neither an encoder nor a decoder");
    model->has_encoder = desc.encoder != NULL;
    model->has_decoder = desc.decoder != NULL;
    reason = desc.encoder ? stack_read(&model->encoder, desc.encoder) : NULL;
    if (!reason && desc.encoder && model->encoder.desc.cross)
        reason = "an encoder has no cross-attention";
    if (reason)
        return refuse(model, CLATTN_ERROR_INVALID_LAYOUT, "encoder: ", reason);
    reason = desc.decoder ? stack_read(&model->decoder, desc.decoder) : NULL;
    if (!reason && desc.decoder && model->decoder.desc.input == CLATTN_STACK_INPUT_FEATURES)
        reason = "a decoder's input is tokens or vectors";
    if (!reason && desc.encoder && desc.decoder && model->decoder.desc.cross &&
        model->decoder.desc.d_memory != model->encoder.desc.d_model)
        reason = "d_memory is not the encoder's d_model";
    if (reason)
        return refuse(model, CLATTN_ERROR_INVALID_LAYOUT, "decoder: ", reason);
    return read_output(model, &desc);
}

size_t stack_frames(const clattn_stack_desc *desc, size_t convolutions, size_t length)
{
    for (size_t i = 0; i < convolutions && desc->input == CLATTN_STACK_INPUT_FEATURES; i++) {
        const clattn_convolution *c = &desc->convolution[i];
        size_t padded;
        if (!size_add(length, 2 * (size_t)c->padding, &padded) || padded < c->kernel || !c->stride)
            return 0;
        length = (padded - c->kernel) / c->stride + 1;
    }
    return length;
}

size_t clattn_stack_positions(const clattn_stack_desc *given, size_t length)
{
    clattn_stack_desc desc;
    if (struct_read(&desc, sizeof desc, sizeof desc, given) != CLATTN_SUCCESS)
        return 0;
    return stack_frames(&desc, size_min(desc.convolutions, CLATTN_MAX_CONVOLUTIONS), length);
}

void clattn_mask_from_pytorch(const uint8_t *from, uint8_t *to, size_t count)
{
    for (size_t i = 0; from && to && i < count; i++)
        to[i] = !from[i];
}

/* ---- the object ---- */

void model_retain(clattn_transformer *model)
{
    atomic_fetch_add(&model->references, 1);
}

void model_drop(clattn_transformer *model)
{
    if (atomic_fetch_sub(&model->references, 1) != 1)
        return;
    struct device *device = &model->context->device;
    if (device_is_foreign(device))
        cl_table_disown(&device->cl);
    for (size_t i = 0; i < model->buffer_count; i++)
        if (model->buffers[i])
            device->cl.clReleaseMemObject(model->buffers[i]);
    free(model->buffers);
    free(model->weights);
    free(model->encoder.layers);
    free(model->decoder.layers);
    context_drop(model->context);
    free(model);
}

clattn_binding model_weight(const clattn_transformer *model, weight_id id)
{
    if (!id)
        return (clattn_binding){0};
    const struct weight *weight = &model->weights[id];
    return clattn_binding_buffer(model->buffers[weight->buffer],
                                 (int64_t)(weight->at / clattn_dtype_size(weight->dtype)));
}

static clattn_status create(clattn_context *context, const clattn_transformer_desc *desc,
                            const clattn_weight_source *given, clattn_transformer **transformer)
{
    clattn_status status;
    clattn_weight_source source;
    struct report *report = &context->device.report;
    clattn_transformer *model = calloc(1, sizeof *model);
    if (!model)
        return report_error(report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a model");
    atomic_init(&model->references, 1);
    model->context = context;
    context_retain(context);
    TRY(model_read(model, desc));
    status = struct_read(&source, sizeof source, sizeof source, given);
    if (status != CLATTN_SUCCESS) {
        report_error(report, status, "source is NULL, or its size is none that clattn_weight_source ever had");
        goto fail;
    }
    if (!source.lookup || (source.rule_count && !source.rules) || source.reserved ||
        !in_range(source.format, CLATTN_NAME_FORMAT_WHISPER_CTRANSLATE2)) {
        status = report_error(report, CLATTN_ERROR_INVALID_ARGUMENT,
                              "source: no lookup, rules that are NULL, an unknown format, or reserved is not 0");
        goto fail;
    }
    TRY(model_load(model, &source));
    *transformer = model;
    return CLATTN_SUCCESS;
fail:
    model_drop(model);
    return status;
}

clattn_status clattn_transformer_create(clattn_context *context, const clattn_transformer_desc *desc,
                                        const clattn_weight_source *source, clattn_transformer **transformer)
{
    clattn_status status;
    if (transformer)
        *transformer = NULL;
    TRY(context_check(context));
    if (!transformer)
        return report_error(&context->device.report, CLATTN_ERROR_INVALID_ARGUMENT, "transformer is NULL");
    status = create(context, desc, source, transformer);
fail:
    return status;
}

void clattn_transformer_release(clattn_transformer **transformer)
{
    if (!transformer || !*transformer)
        return;
    clattn_transformer *model = *transformer;
    *transformer = NULL;
    model_drop(model);
}

size_t clattn_transformer_weight_bytes(const clattn_transformer *transformer)
{
    return transformer ? transformer->bytes : 0;
}

size_t clattn_transformer_parameters(const clattn_transformer *transformer)
{
    return transformer ? transformer->parameters : 0;
}
