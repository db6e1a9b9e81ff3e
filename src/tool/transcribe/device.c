#include "tool/transcribe/device.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <clattn/decoder.h>
#include <clattn/io.h>
#include <clattn/transformer.h>

#include "base/convert.h"
#include "base/size.h"
#include "base/try.h"
#include "tool/run/model_file.h"
#include "tool/transcribe/sound/mel.h"

/* Tokens that one enqueue reads: longer prompts and alignments take several. */
#define CHUNK 32
#define LAYERS_MOST 64

struct whisper_device {
    tool_device *device;
    clattn_dtype dtype;
    size_t d_model, heads, layers, d_ff, vocabulary, bins;
    clattn_transformer *transformer;
    clattn_plan *encoder, *decoder;
    clattn_decoder_state *state;
    size_t beams, sequences;              /* the most sequences that may be asked for; how many there are */
    size_t decoder_beams, decoder_length; /* what the decoder's plan is made for */
    size_t attention_layers;              /* how many layers' attention the plan gives */
    uint64_t attention_mask;              /* which layers they are */
    bool encoded;                         /* the decoder's state has not been begun with the window yet */
    cl_mem window, memory, ids, logits, attention;
    size_t buffers; /* their bytes */
    void *features; /* the host's copy of `window` */
    float *shares;  /* the host's copy of `attention` */
};

static int failed(const whisper_device *m, clattn_status status)
{
    return device_check(m->device, status, "transcribe");
}

/* Reads a weight's extents; refuses a file that does not have it with that rank. */
static int extents(const clattn_ctranslate2 *file, const char *path, const char *name, int rank, size_t *extent)
{
    clattn_host_tensor tensor;
    clattn_io_error error;
    if (clattn_ctranslate2_find(file, name, &tensor, &error) != CLATTN_SUCCESS)
        return complain(TOOL_BAD_INPUT, "%s", error.message);
    if (tensor.dtype == CLATTN_DTYPE_NONE)
        return complain(TOOL_BAD_INPUT, "%s: has no %s", path, name);
    if (tensor.rank != rank)
        return complain(TOOL_BAD_INPUT, "%s: %s has rank %d, expected %d", path, name, tensor.rank, rank);
    memcpy(extent, tensor.extent, (size_t)rank * sizeof *extent);
    return TOOL_DONE;
}

static size_t count_layers(const clattn_ctranslate2 *file, const char *stack)
{
    size_t layers = 0;
    for (; layers < LAYERS_MOST; layers++) {
        char name[64];
        clattn_host_tensor tensor;
        snprintf(name, sizeof name, "%s/layer_%zu/ffn/linear_0/weight", stack, layers);
        if (clattn_ctranslate2_find(file, name, &tensor, NULL) != CLATTN_SUCCESS || tensor.dtype == CLATTN_DTYPE_NONE)
            break;
    }
    return layers;
}

/* Reads the model's sizes from the shapes of its weights. */
static int read_sizes(const clattn_ctranslate2 *file, const char *path, const whisper_tokens *tokens, whisper_device *m)
{
    int status;
    int32_t heads = 0, encoder_heads = 0;
    size_t embedding[2], conv[3], inner[2], encoder_positions[2], decoder_positions[2];
    if (strcmp(clattn_ctranslate2_spec(file), "WhisperSpec") != 0)
        return complain(TOOL_BAD_INPUT, "%s: is a '%.60s' model, expected WhisperSpec", path,
                        clattn_ctranslate2_spec(file));
    TOOL_TRY(extents(file, path, "decoder/embeddings/weight", 2, embedding));
    TOOL_TRY(extents(file, path, "encoder/conv1/weight", 3, conv));
    TOOL_TRY(extents(file, path, "encoder/layer_0/ffn/linear_0/weight", 2, inner));
    TOOL_TRY(extents(file, path, "encoder/position_encodings/encodings", 2, encoder_positions));
    TOOL_TRY(extents(file, path, "decoder/position_encodings/encodings", 2, decoder_positions));
    clattn_ctranslate2_integer(file, "encoder/num_heads", &encoder_heads);
    clattn_ctranslate2_integer(file, "decoder/num_heads", &heads);
    m->vocabulary = embedding[0];
    m->d_model = embedding[1];
    m->bins = conv[1];
    m->d_ff = inner[0];
    m->layers = count_layers(file, "encoder");
    if (heads <= 0 || heads != encoder_heads || m->d_model % (size_t)heads != 0)
        return complain(TOOL_BAD_INPUT, "%s: has %d and %d heads for %zu columns", path, encoder_heads, heads,
                        m->d_model);
    m->heads = (size_t)heads;
    if (m->layers != count_layers(file, "decoder"))
        return complain(TOOL_BAD_INPUT, "%s: has %zu layers in its encoder and %zu in its decoder", path, m->layers,
                        count_layers(file, "decoder"));
    if (encoder_positions[0] != WHISPER_POSITIONS || decoder_positions[0] != WHISPER_LENGTH)
        return complain(TOOL_BAD_INPUT, "%s: has %zu and %zu positions, expected %d and %d", path, encoder_positions[0],
                        decoder_positions[0], WHISPER_POSITIONS, WHISPER_LENGTH);
    if (m->vocabulary != tokens->count)
        return complain(TOOL_BAD_INPUT, "%s: embeds %zu tokens, and the vocabulary has %zu", path, m->vocabulary,
                        tokens->count);
    for (size_t i = 0; i < tokens->head_count; i++)
        if ((size_t)tokens->heads[i].layer >= m->layers || (size_t)tokens->heads[i].head >= m->heads)
            return complain(TOOL_BAD_INPUT, "%s: has no head %d in layer %d, which config.json's alignment_heads names",
                            path, tokens->heads[i].head, tokens->heads[i].layer);
    return TOOL_DONE;
fail:
    return status;
}

static void set_stack(const whisper_device *m, clattn_stack_desc *stack)
{
    stack->layers = m->layers;
    stack->d_model = m->d_model;
    stack->heads = m->heads;
    stack->d_ff = m->d_ff;
}

static int load_model(whisper_device *m, const clattn_ctranslate2 *file)
{
    clattn_transformer_desc desc = CLATTN_TRANSFORMER_DESC_INIT;
    clattn_stack_desc encoder = CLATTN_STACK_DESC_INIT, decoder = CLATTN_STACK_DESC_INIT;
    clattn_weight_source source = CLATTN_WEIGHT_SOURCE_INIT;
    clattn_status status;
    TRY(clattn_transformer_preset(CLATTN_PRESET_WHISPER_TINY_EN, &desc, &encoder, &decoder));
    desc.dtype = m->dtype;
    set_stack(m, &encoder);
    set_stack(m, &decoder);
    encoder.features = m->bins;
    decoder.vocabulary = m->vocabulary;
    source.lookup = clattn_ctranslate2_lookup;
    source.user = (void *)(uintptr_t)file;
    source.format = CLATTN_NAME_FORMAT_WHISPER_CTRANSLATE2;
    TRY(clattn_transformer_create(m->device->context, &desc, &source, &m->transformer));
fail:
    return status == CLATTN_SUCCESS ? TOOL_DONE : failed(m, status);
}

static clattn_status make_buffer(whisper_device *m, clattn_dtype dtype, size_t elements, cl_mem *buffer)
{
    const size_t bytes = elements * clattn_dtype_size(dtype);
    m->buffers += bytes;
    return device_output(m->device, bytes, buffer);
}

/* Sees that the decoder takes `beams` sequences and `length` tokens at once.  A plan for one token of one sequence, which is
 * all that the first window of most recordings needs, has a third of the programs; it is replaced when a window needs more.
 * Its state goes with it, so that the next begin has to give the window again. */
static clattn_status need_decoder(whisper_device *m, size_t beams, size_t length)
{
    clattn_status status;
    clattn_decoder_desc decoder = CLATTN_DECODER_DESC_INIT;
    if (beams <= m->decoder_beams && length <= m->decoder_length)
        return CLATTN_SUCCESS;
    decoder.items = 1;
    decoder.beams = m->decoder_beams = beams > 1 ? m->beams : size_max(m->decoder_beams, 1);
    decoder.length = m->decoder_length = length > 1 ? CHUNK : size_max(m->decoder_length, 1);
    decoder.cache_length = WHISPER_LENGTH;
    decoder.memory_length = WHISPER_POSITIONS;
    decoder.logits = CLATTN_LOGITS_ALL;
    decoder.prepack =
        m->decoder_length > 1 && device_prepacks(m->device, m->transformer); /* the first plan is made sooner so */
    decoder.cross_probabilities = m->attention_mask;
    clattn_decoder_state_release(&m->state);
    clattn_plan_release(&m->decoder);
    m->encoded = true;
    TRY(clattn_decoder_plan_create(m->transformer, &decoder, NULL, &m->decoder));
    TRY(clattn_decoder_state_create(m->decoder, &m->state));
fail:
    return status;
}

static int make_plans(whisper_device *m, size_t beams)
{
    clattn_encoder_desc encoder = CLATTN_ENCODER_DESC_INIT;
    encoder.batch = 1;
    encoder.length = MEL_WINDOW;
    clattn_status status;
    TRY(clattn_encoder_plan_create(m->transformer, &encoder, NULL, &m->encoder));
    TRY(need_decoder(m, beams, m->attention_mask ? CHUNK : 1));
    size_t rows = size_max(m->beams, CHUNK), shares = m->attention_layers * m->heads * CHUNK * WHISPER_POSITIONS;
    TRY(make_buffer(m, m->dtype, MEL_WINDOW * m->bins, &m->window));
    TRY(make_buffer(m, m->dtype, WHISPER_POSITIONS * m->d_model, &m->memory));
    TRY(make_buffer(m, CLATTN_DTYPE_I32, rows, &m->ids));
    TRY(make_buffer(m, CLATTN_DTYPE_F32, rows * m->vocabulary, &m->logits));
    m->features = malloc(MEL_WINDOW * m->bins * clattn_dtype_size(m->dtype));
    if (shares > 0) {
        TRY(make_buffer(m, CLATTN_DTYPE_F32, shares, &m->attention));
        m->shares = malloc(shares * sizeof *m->shares);
    }
    if (m->features == NULL || (shares > 0 && m->shares == NULL))
        status = CLATTN_ERROR_OUT_OF_MEMORY;
fail:
    return status == CLATTN_SUCCESS ? TOOL_DONE : failed(m, status);
}

int whisper_device_open(tool_device *device, const char *folder, clattn_dtype dtype, const whisper_tokens *tokens,
                        size_t beams, size_t most_beams, whisper_attention attention, whisper_device **made)
{
    model_path path;
    clattn_ctranslate2 *file = NULL;
    clattn_io_error error;
    *made = NULL;
    if (!model_path_in(folder, "model.bin", &path))
        return complain(TOOL_BAD_INPUT, "%s: this name is too long for a folder", folder);
    whisper_device *m = calloc(1, sizeof *m);
    if (m == NULL)
        return complain(TOOL_FAILED, "no memory for a model");
    m->device = device;
    m->dtype = dtype;
    m->beams = most_beams;
    int status = TOOL_DONE;
    const clattn_status opened = clattn_ctranslate2_create(path.text, &file, &error);
    if (opened != CLATTN_SUCCESS)
        TOOL_TRY(complain(opened == CLATTN_ERROR_OUT_OF_MEMORY ? TOOL_FAILED : TOOL_BAD_INPUT, "%s", error.message));
    TOOL_TRY(read_sizes(file, path.text, tokens, m));
    for (size_t i = 0; attention != WHISPER_ATTENTION_NONE && i < tokens->head_count; i++)
        m->attention_mask |= (uint64_t)1 << tokens->heads[i].layer;
    for (size_t l = 0; attention == WHISPER_ATTENTION_ALL && l < m->layers; l++)
        m->attention_mask |= (uint64_t)1 << l;
    for (size_t l = 0; l < LAYERS_MOST; l++)
        m->attention_layers += m->attention_mask >> l & 1;
    TOOL_TRY(load_model(m, file));
    clattn_ctranslate2_release(&file);
    TOOL_TRY(make_plans(m, beams));
    *made = m;
    m = NULL;
fail:
    clattn_ctranslate2_release(&file);
    whisper_device_close(m);
    return status;
}

static int encode(void *user, const float *window)
{
    whisper_device *m = user;
    const size_t count = MEL_WINDOW * m->bins;
    clattn_encoder_args args = CLATTN_ENCODER_ARGS_INIT;
    args.input = clattn_binding_buffer(m->window, 0);
    args.output = clattn_binding_buffer(m->memory, 0);
    clattn_status status;
    m->encoded = true;
    for (size_t i = 0; i < count; i++)
        store_element(m->dtype, m->features, i, window[i]);
    TRY(device_write(m->device, m->window, count * clattn_dtype_size(m->dtype), m->features));
    TRY(clattn_encoder_enqueue(m->encoder, m->device->queue, &args, 0, NULL, NULL));
fail:
    return status == CLATTN_SUCCESS ? TOOL_DONE : failed(m, status);
}

/* Begins one empty sequence about the window. */
static clattn_status begin_one(whisper_device *m)
{
    clattn_decoder_begin_args args = CLATTN_DECODER_BEGIN_ARGS_INIT;
    args.items = 1;
    args.beams = 1;
    /* A state that has been begun with this window still has the window's keys and values. */
    if (m->encoded) {
        args.memory = clattn_binding_buffer(m->memory, 0);
        args.memory_length = WHISPER_POSITIONS;
    }
    m->encoded = false;
    m->sequences = 1;
    return clattn_decoder_begin(m->state, m->device->queue, &args, 0, NULL, NULL);
}

/* Appends `length` tokens to each sequence. */
static clattn_status append(whisper_device *m, const int32_t *tokens, size_t length, bool logits, bool attention)
{
    clattn_decoder_args args = CLATTN_DECODER_ARGS_INIT;
    args.input = clattn_binding_buffer(m->ids, 0);
    args.length = length;
    if (logits)
        args.logits = clattn_binding_buffer(m->logits, 0);
    if (attention)
        args.cross_probabilities = clattn_binding_buffer(m->attention, 0);
    clattn_status status;
    TRY(device_write(m->device, m->ids, m->sequences * length * sizeof *tokens, tokens));
    TRY(clattn_decoder_enqueue(m->state, m->device->queue, &args, 0, NULL, NULL));
fail:
    return status;
}

static clattn_status reorder(whisper_device *m, size_t sequences, const size_t *parents)
{
    m->sequences = sequences;
    return clattn_decoder_reorder(m->state, m->device->queue, sequences, parents, 0, NULL, NULL);
}

static int begin(void *user, const int32_t *tokens, size_t count, size_t sequences, float *logits)
{
    static const size_t same[WHISPER_SEQUENCES] = {0};
    whisper_device *m = user;
    clattn_status status;
    TRY(need_decoder(m, sequences, count));
    TRY(begin_one(m));
    /* Only the last token's logits are wanted. */
    for (size_t at = 0; at + 1 < count; at += CHUNK)
        TRY(append(m, tokens + at, size_min(count - 1 - at, CHUNK), false, false));
    TRY(append(m, tokens + count - 1, 1, true, false));
    TRY(device_download(m->device, m->logits, m->vocabulary * sizeof *logits, logits));
    if (sequences > 1)
        TRY(reorder(m, sequences, same));
fail:
    return status == CLATTN_SUCCESS ? TOOL_DONE : failed(m, status);
}

static int step(void *user, const size_t *parents, const int32_t *tokens, float *logits)
{
    whisper_device *m = user;
    clattn_status status;
    bool moved = false;
    for (size_t s = 0; parents != NULL && s < m->sequences; s++)
        moved |= parents[s] != s;
    if (moved)
        TRY(reorder(m, m->sequences, parents));
    TRY(append(m, tokens, 1, true, false));
    TRY(device_download(m->device, m->logits, m->sequences * m->vocabulary * sizeof *logits, logits));
fail:
    return status == CLATTN_SUCCESS ? TOOL_DONE : failed(m, status);
}

/* The index of a layer among the layers whose attention the plan gives. */
static size_t place_of(const whisper_device *m, int32_t layer)
{
    size_t place = 0;
    for (int32_t l = 0; l < layer; l++)
        place += m->attention_mask >> l & 1;
    return place;
}

/* Copies the chosen heads' rows of a chunk, which is (layers, heads, CHUNK or 1, positions). */
static void take_attention(const whisper_device *m, const whisper_head *heads, size_t head_count, size_t at,
                           size_t length, size_t count, float *attention)
{
    size_t rows = length > 1 ? CHUNK : 1;
    for (size_t h = 0; h < head_count; h++) {
        size_t plane = place_of(m, heads[h].layer) * m->heads + (size_t)heads[h].head;
        memcpy(attention + (h * count + at) * WHISPER_POSITIONS, m->shares + plane * rows * WHISPER_POSITIONS,
               length * WHISPER_POSITIONS * sizeof *attention);
    }
}

static double probability_among(const float *logits, int32_t words, int32_t token)
{
    double sum = 0.0;
    for (int32_t i = 0; i < words; i++)
        sum += (double)expf(logits[i] - logits[token]);
    return 1.0 / sum;
}

static int align(void *user, const int32_t *tokens, size_t count, int32_t words, const whisper_head *heads,
                 size_t head_count, double *probabilities, float *attention)
{
    whisper_device *m = user;
    float *logits = malloc(CHUNK * m->vocabulary * sizeof *logits);
    clattn_status status;
    TRY(logits != NULL ? need_decoder(m, 1, count) : CLATTN_ERROR_OUT_OF_MEMORY);
    TRY(begin_one(m));
    for (size_t at = 0, length; at < count; at += length) {
        length = size_min(count - at, CHUNK);
        size_t shares = m->attention_layers * m->heads * (length > 1 ? CHUNK : 1) * WHISPER_POSITIONS;
        TRY(append(m, tokens + at, length, true, true));
        TRY(device_download(m->device, m->logits, length * m->vocabulary * sizeof *logits, logits));
        TRY(device_download(m->device, m->attention, shares * sizeof *m->shares, m->shares));
        for (size_t i = 0; i < length && at + i + 1 < count; i++)
            probabilities[at + i] = probability_among(logits + i * m->vocabulary, words, tokens[at + i + 1]);
        take_attention(m, heads, head_count, at, length, count, attention);
    }
fail:
    free(logits);
    return status == CLATTN_SUCCESS ? TOOL_DONE : failed(m, status);
}

whisper_engine whisper_device_engine(whisper_device *m)
{
    return (whisper_engine){m, m->vocabulary, m->bins, m->layers, m->heads, encode, begin, step, align};
}

size_t whisper_device_weight_bytes(const whisper_device *m)
{
    return clattn_transformer_weight_bytes(m->transformer);
}

size_t whisper_device_work_bytes(const whisper_device *m)
{
    return m->buffers + clattn_decoder_state_bytes(m->state) +
           size_max(clattn_plan_workspace_size(m->encoder), clattn_plan_workspace_size(m->decoder));
}

void whisper_device_close(whisper_device *m)
{
    if (m == NULL)
        return;
    cl_mem buffers[] = {m->window, m->memory, m->ids, m->logits, m->attention};
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++)
        if (buffers[i] != NULL)
            clReleaseMemObject(buffers[i]);
    clattn_decoder_state_release(&m->state);
    clattn_plan_release(&m->decoder);
    clattn_plan_release(&m->encoder);
    clattn_transformer_release(&m->transformer);
    free(m->features);
    free(m->shares);
    free(m);
}
