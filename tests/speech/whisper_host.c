#include "whisper_host.h"

#include <clattn/io.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FRAMES 3000
#define POSITIONS WHISPER_POSITIONS

typedef struct linear {
    size_t in, out;
    float *weight; /* (in, out) */
    float *bias;
} linear;

typedef struct norm {
    float *gamma, *beta;
} norm;

typedef struct layer {
    norm self_norm, cross_norm, ff_norm;
    linear self_in, self_out, cross_query, cross_memory, cross_out, ff_in, ff_out;
} layer;

/* The model, from whisper_host to the end of the program. */
static struct {
    clattn_ctranslate2 *file;
    size_t d, heads, head_size, layers, vocabulary, bins;
    linear conv[2];
    float *encoder_positions, *decoder_positions, *embedding;
    linear projection;
    norm encoder_norm, decoder_norm;
    layer *encoder, *decoder;
    float *memory;                   /* per layer (positions, 2 d): keys, values */
    float *cache[WHISPER_SEQUENCES]; /* per layer (WHISPER_LENGTH, 2 d) */
    size_t sequences, length;
} h;

static void quit(int status, const char *why)
{
    fprintf(stderr, "whisper_host: %s\n", why);
    exit(status);
}

static void *zeros(size_t count, size_t size)
{
    void *memory = calloc(count, size);
    if (memory == NULL)
        quit(3, "no memory");
    return memory;
}

static float *floats(size_t count)
{
    return zeros(count, sizeof(float));
}

static float from_half(uint16_t bits)
{
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    float size = exponent == 0    ? ldexpf((float)fraction, -24)
                 : exponent == 31 ? (fraction ? NAN : INFINITY)
                                  : ldexpf((float)(fraction + 1024), exponent - 25);
    return bits >> 15 ? -size : size;
}

/* Returns the tensor's numbers as float32; ends the program if it is missing or has another number of elements. */
static float *load(const char *scope, const char *module, const char *name, size_t count)
{
    char whole[128];
    clattn_host_tensor t;
    clattn_io_error error;
    snprintf(whole, sizeof whole, "%s/%s/%s", scope, module, name);
    clattn_status status = clattn_ctranslate2_find(h.file, whole, &t, &error);
    size_t size = t.dtype == CLATTN_DTYPE_F16 ? 2 : 4;
    if (status != CLATTN_SUCCESS || (t.dtype != CLATTN_DTYPE_F16 && t.dtype != CLATTN_DTYPE_F32) ||
        t.bytes != count * size) {
        fprintf(stderr, "whisper_host: no %s of %zu numbers\n", whole, count);
        exit(3);
    }
    float *to = floats(count);
    for (size_t i = 0; i < count; i++) {
        uint16_t half;
        if (size == 4) {
            memcpy(&to[i], (const char *)t.data + 4 * i, 4);
        } else {
            memcpy(&half, (const char *)t.data + 2 * i, 2);
            to[i] = from_half(half);
        }
    }
    return to;
}

static linear load_linear(const char *scope, const char *name, size_t in, size_t out, bool bias)
{
    linear made = {in, out, floats(in * out), bias ? load(scope, name, "bias", out) : floats(out)};
    float *weight = load(scope, name, "weight", in * out);
    for (size_t o = 0; o < out; o++)
        for (size_t i = 0; i < in; i++)
            made.weight[i * out + o] = weight[o * in + i];
    free(weight);
    return made;
}

static norm load_norm(const char *scope, const char *name)
{
    return (norm){load(scope, name, "gamma", h.d), load(scope, name, "beta", h.d)};
}

static layer *load_layers(const char *stack, bool decoder)
{
    layer *all = zeros(h.layers, sizeof *all);
    for (size_t i = 0; i < h.layers; i++) {
        char scope[64];
        snprintf(scope, sizeof scope, "%s/layer_%zu", stack, i);
        all[i].self_norm = load_norm(scope, "self_attention/layer_norm");
        all[i].self_in = load_linear(scope, "self_attention/linear_0", h.d, 3 * h.d, true);
        all[i].self_out = load_linear(scope, "self_attention/linear_1", h.d, h.d, true);
        all[i].ff_norm = load_norm(scope, "ffn/layer_norm");
        all[i].ff_in = load_linear(scope, "ffn/linear_0", h.d, 4 * h.d, true);
        all[i].ff_out = load_linear(scope, "ffn/linear_1", 4 * h.d, h.d, true);
        if (!decoder)
            continue;
        all[i].cross_norm = load_norm(scope, "attention/layer_norm");
        all[i].cross_query = load_linear(scope, "attention/linear_0", h.d, h.d, true);
        all[i].cross_memory = load_linear(scope, "attention/linear_1", h.d, 2 * h.d, true);
        all[i].cross_out = load_linear(scope, "attention/linear_2", h.d, h.d, true);
    }
    return all;
}

/* Computes y (rows, out) = x (rows, in) w (in, out) + bias (NULL: 0), where rows of x, w and y are stride_x, stride_w
 * and stride_y apart, four rows by sixteen columns at a time. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
__attribute__((target_clones("arch=x86-64-v3", "default"), optimize("O3")))
#endif
static void
multiply(const float *x, size_t rows, size_t in, size_t stride_x, const float *w, size_t stride_w, size_t out,
         const float *bias, float *y, size_t stride_y)
{
    for (size_t r = 0; r < rows; r += 4) {
        size_t here = rows - r < 4 ? rows - r : 4;
        const float *row[4];
        for (size_t i = 0; i < 4; i++)
            row[i] = x + (r + (i < here ? i : 0)) * stride_x;
        for (size_t c = 0; c < out; c += 16) {
            float sum[4][16] = {{0}};
            size_t wide = out - c < 16 ? out - c : 16;
            if (wide == 16)
                for (size_t k = 0; k < in; k++)
                    for (size_t j = 0; j < 16; j++) {
                        float value = w[k * stride_w + c + j];
                        sum[0][j] += row[0][k] * value;
                        sum[1][j] += row[1][k] * value;
                        sum[2][j] += row[2][k] * value;
                        sum[3][j] += row[3][k] * value;
                    }
            else
                for (size_t k = 0; k < in; k++)
                    for (size_t j = 0; j < wide; j++)
                        for (size_t i = 0; i < 4; i++)
                            sum[i][j] += row[i][k] * w[k * stride_w + c + j];
            for (size_t i = 0; i < here; i++)
                for (size_t j = 0; j < wide; j++)
                    y[(r + i) * stride_y + c + j] = sum[i][j] + (bias != NULL ? bias[c + j] : 0.0f);
        }
    }
}

static void apply(const linear *l, const float *x, size_t rows, float *y)
{
    multiply(x, rows, l->in, l->in, l->weight, l->out, l->out, l->bias, y, l->out);
}

static void normalise(const norm *n, const float *x, size_t rows, size_t d, float *y)
{
    for (size_t r = 0; r < rows; r++) {
        double sum = 0.0, squares = 0.0;
        for (size_t i = 0; i < d; i++)
            sum += (double)x[r * d + i];
        for (size_t i = 0; i < d; i++)
            squares += ((double)x[r * d + i] - sum / (double)d) * ((double)x[r * d + i] - sum / (double)d);
        double scale = 1.0 / sqrt(squares / (double)d + 1e-5);
        for (size_t i = 0; i < d; i++)
            y[r * d + i] = (float)(((double)x[r * d + i] - sum / (double)d) * scale) * n->gamma[i] + n->beta[i];
    }
}

static void gelu(float *x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        x[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678f));
}

static void add(float *x, const float *y, size_t count)
{
    for (size_t i = 0; i < count; i++)
        x[i] += y[i];
}

/* Computes one head of queries (rows, size), keys and values (keys, size), whose rows are `stride…` apart.  Row r
 * attends keys up to first + r, or all if `first` is SIZE_MAX.  `shares` receives the probabilities (rows, keys) unless
 * it is NULL. */
static void attend(const float *query, size_t stride_q, size_t rows, const float *key, const float *value,
                   size_t stride_k, size_t keys, size_t size, size_t first, float *shares, float *out, size_t stride_o)
{
    float *turned = floats(size * keys), *scores = floats(rows * keys);
    for (size_t k = 0; k < keys; k++)
        for (size_t i = 0; i < size; i++)
            turned[i * keys + k] = key[k * stride_k + i];
    multiply(query, rows, size, stride_q, turned, keys, keys, NULL, scores, keys);
    float scale = 1.0f / sqrtf((float)size);
    for (size_t r = 0; r < rows; r++) {
        float *s = scores + r * keys, top = -INFINITY;
        size_t seen = first == SIZE_MAX ? keys : first + r + 1;
        double sum = 0.0;
        for (size_t k = 0; k < seen; k++)
            top = s[k] > top ? s[k] : top;
        for (size_t k = 0; k < seen; k++) {
            s[k] = expf((s[k] - top) * scale);
            sum += (double)s[k];
        }
        for (size_t k = 0; k < keys; k++)
            s[k] = k < seen ? (float)((double)s[k] / sum) : 0.0f;
    }
    if (shares != NULL)
        memcpy(shares, scores, rows * keys * sizeof *shares);
    multiply(scores, rows, keys, keys, value, stride_k, size, NULL, out, stride_o);
    free(turned);
    free(scores);
}

static void feed_forward(const layer *l, float *x, size_t rows)
{
    size_t d = h.d;
    float *normed = floats(rows * d), *inner = floats(rows * 4 * d);
    normalise(&l->ff_norm, x, rows, d, normed);
    apply(&l->ff_in, normed, rows, inner);
    gelu(inner, rows * 4 * d);
    apply(&l->ff_out, inner, rows, normed);
    add(x, normed, rows * d);
    free(normed);
    free(inner);
}

/* Convolves (frames, in), with a frame of zeros at either end, into (frames / stride, out). */
static float *convolve(const linear *conv, const float *x, size_t frames, size_t stride)
{
    size_t in = conv->in / 3, rows = frames / stride;
    float *columns = floats(rows * conv->in), *y = floats(rows * conv->out);
    for (size_t r = 0; r < rows; r++)
        for (size_t k = 0; k < 3; k++) {
            size_t frame = r * stride + k; /* counted from the frame of zeros */
            for (size_t i = 0; i < in && frame >= 1 && frame <= frames; i++)
                columns[r * conv->in + i * 3 + k] = x[(frame - 1) * in + i];
        }
    apply(conv, columns, rows, y);
    gelu(y, rows * conv->out);
    free(columns);
    return y;
}

static int encode(void *user, const float *window)
{
    (void)user;
    size_t d = h.d;
    float *first = convolve(&h.conv[0], window, FRAMES, 1), *x = convolve(&h.conv[1], first, FRAMES, 2);
    float *normed = floats(POSITIONS * d), *packed = floats(POSITIONS * 3 * d), *out = floats(POSITIONS * d);
    free(first);
    add(x, h.encoder_positions, POSITIONS * d);
    for (size_t i = 0; i < h.layers; i++) {
        const layer *l = &h.encoder[i];
        normalise(&l->self_norm, x, POSITIONS, d, normed);
        apply(&l->self_in, normed, POSITIONS, packed);
        for (size_t head = 0; head < h.heads; head++) {
            const float *q = packed + head * h.head_size;
            attend(q, 3 * d, POSITIONS, q + d, q + 2 * d, 3 * d, POSITIONS, h.head_size, SIZE_MAX, NULL,
                   out + head * h.head_size, d);
        }
        apply(&l->self_out, out, POSITIONS, normed);
        add(x, normed, POSITIONS * d);
        feed_forward(l, x, POSITIONS);
    }
    normalise(&h.encoder_norm, x, POSITIONS, d, normed);
    for (size_t i = 0; i < h.layers; i++)
        apply(&h.decoder[i].cross_memory, normed, POSITIONS, h.memory + i * POSITIONS * 2 * d);
    free(x);
    free(normed);
    free(packed);
    free(out);
    return 0;
}

/* Appends `count` tokens to a sequence of `length` and computes, if wanted, logits (count, vocabulary) and the shares
 * of chosen heads (head, count, positions). */
static void append(float *cache, size_t length, const int32_t *tokens, size_t count, float *logits,
                   const whisper_head *wanted, size_t wanted_count, float *shares)
{
    size_t d = h.d, size = h.head_size;
    float *x = floats(count * d), *normed = floats(count * d), *packed = floats(count * 3 * d),
          *out = floats(count * d);
    for (size_t t = 0; t < count; t++)
        for (size_t i = 0; i < d; i++)
            x[t * d + i] = h.embedding[(size_t)tokens[t] * d + i] + h.decoder_positions[(length + t) * d + i];
    for (size_t n = 0; n < h.layers; n++) {
        const layer *l = &h.decoder[n];
        float *own = cache + n * WHISPER_LENGTH * 2 * d;
        const float *memory = h.memory + n * POSITIONS * 2 * d;
        normalise(&l->self_norm, x, count, d, normed);
        apply(&l->self_in, normed, count, packed);
        for (size_t t = 0; t < count; t++)
            memcpy(own + (length + t) * 2 * d, packed + t * 3 * d + d, 2 * d * sizeof *own);
        for (size_t head = 0; head < h.heads; head++)
            attend(packed + head * size, 3 * d, count, own + head * size, own + d + head * size, 2 * d, length + count,
                   size, length, NULL, out + head * size, d);
        apply(&l->self_out, out, count, normed);
        add(x, normed, count * d);
        normalise(&l->cross_norm, x, count, d, normed);
        apply(&l->cross_query, normed, count, packed);
        for (size_t head = 0; head < h.heads; head++) {
            float *to = NULL;
            for (size_t i = 0; i < wanted_count; i++)
                if ((size_t)wanted[i].layer == n && (size_t)wanted[i].head == head)
                    to = shares + i * count * POSITIONS;
            attend(packed + head * size, d, count, memory + head * size, memory + d + head * size, 2 * d, POSITIONS,
                   size, SIZE_MAX, to, out + head * size, d);
        }
        apply(&l->cross_out, out, count, normed);
        add(x, normed, count * d);
        feed_forward(l, x, count);
    }
    normalise(&h.decoder_norm, x, count, d, normed);
    apply(&h.projection, normed, count, logits);
    free(x);
    free(normed);
    free(packed);
    free(out);
}

static int begin(void *user, const int32_t *tokens, size_t count, size_t sequences, float *logits)
{
    (void)user;
    float *all = floats(count * h.vocabulary);
    append(h.cache[0], 0, tokens, count, all, NULL, 0, NULL);
    memcpy(logits, all + (count - 1) * h.vocabulary, h.vocabulary * sizeof *logits);
    free(all);
    for (size_t s = 1; s < sequences; s++)
        memcpy(h.cache[s], h.cache[0], h.layers * WHISPER_LENGTH * 2 * h.d * sizeof(float));
    h.sequences = sequences;
    h.length = count;
    return 0;
}

static int step(void *user, const size_t *parents, const int32_t *tokens, float *logits)
{
    (void)user;
    size_t bytes = h.layers * WHISPER_LENGTH * 2 * h.d * sizeof(float);
    if (parents != NULL) {
        float *copies[WHISPER_SEQUENCES];
        for (size_t s = 0; s < h.sequences; s++) {
            copies[s] = zeros(1, bytes);
            memcpy(copies[s], h.cache[parents[s]], bytes);
        }
        for (size_t s = 0; s < h.sequences; s++) {
            free(h.cache[s]);
            h.cache[s] = copies[s];
        }
    }
    for (size_t s = 0; s < h.sequences; s++)
        append(h.cache[s], h.length, &tokens[s], 1, logits + s * h.vocabulary, NULL, 0, NULL);
    h.length++;
    return 0;
}

static int align(void *user, const int32_t *tokens, size_t count, int32_t words, const whisper_head *heads,
                 size_t head_count, double *probabilities, float *attention)
{
    (void)user;
    float *logits = floats(count * h.vocabulary);
    append(h.cache[0], 0, tokens, count, logits, heads, head_count, attention);
    for (size_t t = 0; t + 1 < count; t++) {
        const float *row = logits + t * h.vocabulary;
        double sum = 0.0;
        for (int32_t i = 0; i < words; i++)
            sum += exp((double)row[i] - (double)row[tokens[t + 1]]);
        probabilities[t] = 1.0 / sum;
    }
    free(logits);
    return 0;
}

whisper_engine whisper_host(const char *folder)
{
    char path[4096];
    int32_t heads;
    clattn_io_error error;
    clattn_host_tensor t;
    snprintf(path, sizeof path, "%s/model.bin", folder);
    if (clattn_ctranslate2_create(path, &h.file, &error) != CLATTN_SUCCESS)
        quit(2, error.message);
    if (strcmp(clattn_ctranslate2_spec(h.file), "WhisperSpec") != 0)
        quit(2, "not a Whisper model");
    if (!clattn_ctranslate2_integer(h.file, "decoder/num_heads", &heads) ||
        clattn_ctranslate2_find(h.file, "decoder/embeddings/weight", &t, &error) != CLATTN_SUCCESS || t.rank != 2)
        quit(2, "the model has no heads or no embedding");
    h.heads = (size_t)heads;
    h.vocabulary = t.extent[0];
    h.d = t.extent[1];
    h.head_size = h.d / h.heads;
    for (char name[64]; snprintf(name, sizeof name, "encoder/layer_%zu/ffn/linear_0/bias", h.layers) > 0 &&
                        clattn_ctranslate2_find(h.file, name, &t, &error) == CLATTN_SUCCESS &&
                        t.dtype != CLATTN_DTYPE_NONE;)
        h.layers++;
    clattn_ctranslate2_find(h.file, "encoder/conv1/weight", &t, &error);
    h.bins = t.extent[1];
    h.conv[0] = load_linear("encoder", "conv1", h.bins * 3, h.d, true);
    h.conv[1] = load_linear("encoder", "conv2", h.d * 3, h.d, true);
    h.encoder_positions = load("encoder", "position_encodings", "encodings", POSITIONS * h.d);
    h.decoder_positions = load("decoder", "position_encodings", "encodings", WHISPER_LENGTH * h.d);
    h.embedding = load("decoder", "embeddings", "weight", h.vocabulary * h.d);
    h.projection = load_linear("decoder", "projection", h.d, h.vocabulary, false);
    h.encoder_norm = load_norm("encoder", "layer_norm");
    h.decoder_norm = load_norm("decoder", "layer_norm");
    h.encoder = load_layers("encoder", false);
    h.decoder = load_layers("decoder", true);
    h.memory = floats(h.layers * POSITIONS * 2 * h.d);
    for (size_t s = 0; s < WHISPER_SEQUENCES; s++)
        h.cache[s] = floats(h.layers * WHISPER_LENGTH * 2 * h.d);
    return (whisper_engine){NULL, h.vocabulary, h.bins, h.layers, h.heads, encode, begin, step, align};
}
