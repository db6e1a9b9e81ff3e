/* Models: presets, the check of a description, creation and release. */
#include "nn/model/model.h"

#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/try.h"
#include "ops/common/activation.h"
#include "ops/common/arrays.h"

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

static clattn_status check_fields(const clattn_stack_desc *d, const char **reason)
{
    REQUIRE(d->activation && activation_name(d->activation), CLATTN_ERROR_INVALID_LAYOUT,
            "activation is NONE or unknown");
    REQUIRE(enum_within(d->norm, CLATTN_NORM_KIND_RMS) && enum_within(d->norm_place, CLATTN_NORM_PLACE_PRE),
            CLATTN_ERROR_INVALID_LAYOUT, "unknown norm or norm_place");
    REQUIRE(is_flag(d->explicit_scale), CLATTN_ERROR_INVALID_LAYOUT, "explicit_scale is neither 0 nor 1");
    REQUIRE(enum_within(d->rotary, CLATTN_ROTARY_INTERLEAVED), CLATTN_ERROR_INVALID_LAYOUT, "unknown rotary");
    REQUIRE(enum_within(d->input, CLATTN_STACK_INPUT_CONTINUED) && enum_within(d->positions, CLATTN_POSITIONS_TABLE),
            CLATTN_ERROR_INVALID_LAYOUT, "unknown input or positions");
    REQUIRE(d->without_bias <= CLATTN_WITHOUT_BIAS, CLATTN_ERROR_INVALID_LAYOUT,
            "without_bias has a bit that means nothing");
    REQUIRE(is_flag(d->gated) && is_flag(d->explicit_epsilon) && is_flag(d->explicit_alpha) && is_flag(d->final_norm) &&
                is_flag(d->causal) && is_flag(d->cross) && is_flag(d->scale_embeddings) && is_flag(d->input_norm) &&
                is_flag(d->query_key_norm) && is_flag(d->layer_scale) && is_flag(d->rotary_centred),
            CLATTN_ERROR_INVALID_LAYOUT,
            "a flag (gated, explicit_epsilon, explicit_alpha, final_norm, causal, cross, scale_embeddings, input_norm, "
            "query_key_norm, layer_scale, rotary_centred) is neither 0 nor 1");
    REQUIRE(isfinite(d->epsilon) && d->epsilon >= 0, CLATTN_ERROR_INVALID_LAYOUT, "epsilon is negative or not finite");
    REQUIRE(isfinite(d->alpha), CLATTN_ERROR_INVALID_LAYOUT, "alpha is not finite");
    REQUIRE(!d->rotary || d->rotary_base == 0 || (isfinite(d->rotary_base) && d->rotary_base > 1),
            CLATTN_ERROR_INVALID_LAYOUT, "rotary_base is not finite and above 1");
    REQUIRE(isfinite(d->softcap) && d->softcap >= 0, CLATTN_ERROR_INVALID_LAYOUT, "softcap is negative or not finite");
    return CLATTN_SUCCESS;
}

/* Checks the sizes, in which zeros have been replaced by what they mean. */
static clattn_status check_sizes(const clattn_stack_desc *d, const char **reason)
{
    REQUIRE(d->layers && d->d_model && d->heads && d->d_ff, CLATTN_ERROR_INVALID_LAYOUT,
            "layers, d_model, heads and d_ff are at least 1");
    REQUIRE(d->layers <= 4096, CLATTN_ERROR_INVALID_LAYOUT, "more than 4096 layers");
    REQUIRE(d->heads % d->kv_heads == 0, CLATTN_ERROR_INVALID_LAYOUT, "heads is no multiple of kv_heads");
    REQUIRE(d->head_size, CLATTN_ERROR_INVALID_LAYOUT, "d_model is no multiple of heads; give head_size");
    REQUIRE(!d->rotary || (d->rotary_size % 2 == 0 && d->rotary_size <= d->head_size), CLATTN_ERROR_INVALID_LAYOUT,
            "rotary_size is odd or above head_size");
    const size_t sizes[] = {d->d_model,    d->heads,          d->head_size, d->d_ff,     d->d_memory,
                            d->vocabulary, d->position_count, d->segments,  d->features, d->first_position,
                            d->projection, d->neck,           d->reach};
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        REQUIRE(sizes[i] < MODEL_SIZE_LIMIT, CLATTN_ERROR_INVALID_LAYOUT, "a size is 2^31 or more");
    REQUIRE(d->heads <= MODEL_SIZE_LIMIT / 16 / d->head_size, CLATTN_ERROR_INVALID_LAYOUT,
            "heads * head_size is above 2^27");
    return CLATTN_SUCCESS;
}

static clattn_status check_input(const clattn_stack_desc *d, const char **reason)
{
    const bool tokens = d->input == CLATTN_STACK_INPUT_TOKENS, features = d->input == CLATTN_STACK_INPUT_FEATURES;
    const bool pictures = d->input == CLATTN_STACK_INPUT_PICTURES, patches = stack_has_patches(d);
    REQUIRE(tokens == (d->vocabulary != 0), CLATTN_ERROR_INVALID_LAYOUT,
            "tokens have a vocabulary, and other inputs have none");
    REQUIRE(tokens || (!d->segments && !d->scale_embeddings), CLATTN_ERROR_INVALID_LAYOUT,
            "segments and scale_embeddings are for tokens");
    REQUIRE(tokens || pictures || !d->input_norm, CLATTN_ERROR_INVALID_LAYOUT, "input_norm is for tokens and pictures");
    REQUIRE(features == (d->features != 0) && features == (d->convolutions != 0), CLATTN_ERROR_INVALID_LAYOUT,
            "features have a number of columns and convolutions, and other inputs have none");
    REQUIRE(!d->positions || tokens || features || pictures, CLATTN_ERROR_INVALID_LAYOUT,
            "positions are added to tokens, features or pictures, not to vectors");
    REQUIRE(d->positions != CLATTN_POSITIONS_SINUSOIDS || tokens || (pictures && d->d_model % 4 == 0),
            CLATTN_ERROR_INVALID_LAYOUT,
            "sinusoids are computed for tokens, and for pictures if d_model is a multiple of 4; features take a table");
    REQUIRE(!d->rotary_centred || (patches && d->rotary), CLATTN_ERROR_INVALID_LAYOUT,
            "rotary_centred is for pictures whose patches are rotated");
    REQUIRE(!d->rotary || !patches || d->rotary_size % 4 == 0, CLATTN_ERROR_INVALID_LAYOUT,
            "rotary_size of pictures is a multiple of 4");
    REQUIRE(!d->reach || !patches, CLATTN_ERROR_INVALID_LAYOUT, "reach is not for pictures, which have windows");
    REQUIRE(!d->unlimited || (d->reach && (d->layers >= 64 || !(d->unlimited >> d->layers))),
            CLATTN_ERROR_INVALID_LAYOUT, "unlimited is without reach, or has a layer that the stack does not have");
    REQUIRE((d->positions == CLATTN_POSITIONS_TABLE) == (d->position_count != 0), CLATTN_ERROR_INVALID_LAYOUT,
            "a table of positions has a position_count, and there is none without");
    REQUIRE(!d->first_position || (tokens && d->positions), CLATTN_ERROR_INVALID_LAYOUT,
            "first_position is for tokens with positions");
    REQUIRE(d->positions != CLATTN_POSITIONS_TABLE || d->first_position < d->position_count,
            CLATTN_ERROR_INVALID_LAYOUT, "first_position is beyond the table of positions");
    REQUIRE(d->convolutions <= CLATTN_MAX_CONVOLUTIONS, CLATTN_ERROR_INVALID_LAYOUT, "too many convolutions");
    for (size_t i = 0; i < d->convolutions; i++) {
        const clattn_convolution *c = &d->convolution[i];
        REQUIRE(c->kernel && c->kernel <= 4096 && c->stride && c->stride <= 4096 && c->padding < c->kernel &&
                    activation_name(c->activation),
                CLATTN_ERROR_INVALID_LAYOUT,
                "a convolution has no kernel or stride, a padding as large as its kernel, or an unknown activation");
    }
    return CLATTN_SUCCESS;
}

static clattn_status stack_read(struct stack *stack, const clattn_stack_desc *given, const char **reason)
{
    clattn_status status;
    clattn_stack_desc *d = &stack->desc;
    REQUIRE(struct_read(d, sizeof *d, sizeof *d, given) == CLATTN_SUCCESS, CLATTN_ERROR_INVALID_LAYOUT,
            "its size is none that clattn_stack_desc ever had");
    TRY(check_fields(d, reason));
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
    TRY(check_sizes(d, reason));
    TRY(check_input(d, reason));
    TRY(pictures_check(d, reason));
    stack->inner = d->heads * d->head_size;
    stack->inner_kv = d->kv_heads * d->head_size;
fail:
    return status;
}

/* Reads the stages after the first. */
static clattn_status stages_read(struct stack *stack, const char **reason)
{
    clattn_status status = CLATTN_SUCCESS;
    for (size_t count = 1; stack->desc.next; count++, stack = stack->next) {
        REQUIRE(count < CLATTN_MAX_STAGES, CLATTN_ERROR_INVALID_LAYOUT, "more than CLATTN_MAX_STAGES stages");
        REQUIRE(!stack->desc.final_norm && !stack->desc.projection && !stack->desc.patches.class_token &&
                    !stack->desc.patches.registers,
                CLATTN_ERROR_INVALID_LAYOUT,
                "a stage that another one follows has no final_norm, projection, class token or registers");
        stack->next = calloc(1, sizeof *stack->next);
        REQUIRE(stack->next, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a model");
        TRY(stack_read(stack->next, stack->desc.next, reason));
        const clattn_stack_desc *a = &stack->desc, *b = &stack->next->desc;
        REQUIRE(b->input == CLATTN_STACK_INPUT_MERGED || b->input == CLATTN_STACK_INPUT_CONTINUED,
                CLATTN_ERROR_INVALID_LAYOUT,
                "a stage that follows another one has the input CLATTN_STACK_INPUT_MERGED or _CONTINUED");
        REQUIRE(b->input == CLATTN_STACK_INPUT_MERGED || a->d_model == b->d_model, CLATTN_ERROR_INVALID_LAYOUT,
                "a stage that continues another one has its d_model");
        REQUIRE(a->norm == b->norm && a->epsilon == b->epsilon && a->norm_place == b->norm_place,
                CLATTN_ERROR_INVALID_LAYOUT, "stages differ in norm, epsilon or norm_place");
        stack->desc.next = &stack->next->desc;
    }
fail:
    return status;
}

static clattn_status encoder_read(clattn_transformer *model, const clattn_transformer_desc *desc, const char **reason)
{
    clattn_status status = CLATTN_SUCCESS;
    if (!model->has_encoder)
        return CLATTN_SUCCESS;
    TRY(stack_read(&model->encoder, desc->encoder, reason));
    REQUIRE(model->encoder.desc.input != CLATTN_STACK_INPUT_MERGED &&
                model->encoder.desc.input != CLATTN_STACK_INPUT_CONTINUED,
            CLATTN_ERROR_INVALID_LAYOUT, "the inputs MERGED and CONTINUED are for stages that follow another one");
    REQUIRE(!model->encoder.desc.next || model->encoder.desc.input == CLATTN_STACK_INPUT_PICTURES,
            CLATTN_ERROR_INVALID_LAYOUT, "stages are for pictures");
    TRY(stages_read(&model->encoder, reason));
    TRY(stages_check(&model->encoder, reason));
    for (const struct stack *stack = &model->encoder; stack; stack = stack->next)
        REQUIRE(!stack->desc.cross, CLATTN_ERROR_INVALID_LAYOUT, "an encoder has no cross-attention");
fail:
    return status;
}

static clattn_status decoder_read(clattn_transformer *model, const clattn_transformer_desc *desc, const char **reason)
{
    clattn_status status = CLATTN_SUCCESS;
    const clattn_stack_desc *d = &model->decoder.desc;
    if (!model->has_decoder)
        return CLATTN_SUCCESS;
    TRY(stack_read(&model->decoder, desc->decoder, reason));
    REQUIRE(d->input == CLATTN_STACK_INPUT_TOKENS || d->input == CLATTN_STACK_INPUT_VECTORS,
            CLATTN_ERROR_INVALID_LAYOUT, "a decoder's input is tokens or vectors");
    REQUIRE(!d->projection && !d->next && !d->residual && !d->restoration.kind, CLATTN_ERROR_INVALID_LAYOUT,
            "a projection is for an encoder's pooled vectors, and stages, residual and restoration for pictures");
    REQUIRE(!model->has_encoder || !d->cross || !stack_last(&model->encoder)->desc.restoration.kind,
            CLATTN_ERROR_INVALID_LAYOUT, "cross-attention to an encoder whose output is a picture");
    REQUIRE(!model->has_encoder || !d->cross || d->d_memory == stack_columns(&stack_last(&model->encoder)->desc),
            CLATTN_ERROR_INVALID_LAYOUT, "d_memory is not the encoder's d_model");
fail:
    return status;
}

static clattn_status refuse(clattn_transformer *model, clattn_status status, const char *where, const char *reason)
{
    return report_error(&model->context->device.report, status, "transformer: %s%s", where, reason);
}

static clattn_status read_output(clattn_transformer *model, const clattn_transformer_desc *desc)
{
    const struct stack *decoder = &model->decoder;
    if (!enum_within(desc->output, CLATTN_MODEL_OUTPUT_TIED) || !is_flag(desc->output_bias))
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
    if (!model->output_size || model->output_size >= MODEL_SIZE_LIMIT)
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
    status = encoder_read(model, &desc, &reason);
    if (status != CLATTN_SUCCESS)
        return refuse(model, status, "encoder: ", reason);
    status = decoder_read(model, &desc, &reason);
    if (status != CLATTN_SUCCESS)
        return refuse(model, status, "decoder: ", reason);
    status = read_output(model, &desc);
    return status == CLATTN_SUCCESS ? model_divide(model) : status;
}

size_t stack_frames(const clattn_stack_desc *desc, size_t convolutions, size_t length)
{
    if (desc->input == CLATTN_STACK_INPUT_PICTURES)
        return size_add(length, stack_prefix(desc), &length) ? length : 0;
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
    free(model->names);
    free(model->encoder.layers);
    for (struct stack *stack = model->encoder.next, *next; stack; stack = next) {
        next = stack->next;
        free(stack->layers);
        free(stack);
    }
    free(model->decoder.layers);
    free(model->parts);
    free(model->ranks);
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

clattn_status model_create(clattn_context *context, const struct ranks *ranks, const clattn_transformer_desc *desc,
                           const clattn_weight_source *given, clattn_transformer **transformer)
{
    clattn_status status;
    clattn_weight_source source;
    struct report *report = &context->device.report;
    clattn_transformer *model = calloc(1, sizeof *model);
    struct ranks *copy = ranks ? malloc(sizeof *copy) : NULL;
    if (!model || (ranks && !copy)) {
        free(model);
        free(copy);
        return report_error(report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a model");
    }
    if (ranks)
        *copy = *ranks;
    model->ranks = copy;
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
        !enum_within(source.format, CLATTN_NAME_FORMAT_DINOV3)) {
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
    status = model_create(context, NULL, desc, source, transformer);
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

int32_t clattn_transformer_has_read(const clattn_transformer *transformer, const char *name)
{
    for (size_t at = 0; transformer && name && at < transformer->name_bytes; at += strlen(transformer->names + at) + 1)
        if (!strcmp(transformer->names + at, name))
            return 1;
    return 0;
}

size_t clattn_transformer_weight_bytes(const clattn_transformer *transformer)
{
    return transformer ? transformer->bytes : 0;
}

size_t clattn_transformer_parameters(const clattn_transformer *transformer)
{
    return transformer ? transformer->parameters : 0;
}
