/* The names of a model's tensors in files of several origins. */
#include "clattn/weights.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"

/* PyTorch's layers, whose names begin differently: with `C` in clattn and with `F` in the file. */
#define PYTORCH_ATTENTION(C, F, ours, theirs) \
    {C ours ".query.{kind}", F theirs ".in_proj_{kind}[0/3]"}, \
        {C ours ".key.{kind}", F theirs ".in_proj_{kind}[1/3]"}, \
        {C ours ".value.{kind}", F theirs ".in_proj_{kind}[2/3]"}, \
        {C ours ".output.{kind}", F theirs ".out_proj.{kind}"}
#define PYTORCH_FEED_FORWARD(C, F, norm) \
    {C "feed_forward.in.{kind}", F "linear1.{kind}"}, {C "feed_forward.out.{kind}", F "linear2.{kind}"}, \
        {C "feed_forward.norm.{kind}", F norm ".{kind}"}
#define PYTORCH_ENCODER_LAYER(F) \
    PYTORCH_ATTENTION("encoder.layers.{n}.", F, "self", "self_attn"), \
        {"encoder.layers.{n}.self.norm.{kind}", F "norm1.{kind}"}, \
        PYTORCH_FEED_FORWARD("encoder.layers.{n}.", F, "norm2")
#define PYTORCH_DECODER_LAYER(F) \
    PYTORCH_ATTENTION("decoder.layers.{n}.", F, "self", "self_attn"), \
        {"decoder.layers.{n}.self.norm.{kind}", F "norm1.{kind}"}, \
        PYTORCH_ATTENTION("decoder.layers.{n}.", F, "cross", "multihead_attn"), \
        {"decoder.layers.{n}.cross.norm.{kind}", F "norm2.{kind}"}, \
        PYTORCH_FEED_FORWARD("decoder.layers.{n}.", F, "norm3")

static const clattn_name_rule pytorch_transformer[] = {
    PYTORCH_ENCODER_LAYER("encoder.layers.{n}."),
    {"encoder.norm.{kind}", "encoder.norm.{kind}"},
    PYTORCH_DECODER_LAYER("decoder.layers.{n}."),
    {"decoder.norm.{kind}", "decoder.norm.{kind}"},
};
static const clattn_name_rule pytorch_encoder[] = {
    PYTORCH_ENCODER_LAYER("layers.{n}."),
    {"encoder.norm.{kind}", "norm.{kind}"},
};
static const clattn_name_rule pytorch_decoder[] = {
    PYTORCH_DECODER_LAYER("layers.{n}."),
    {"decoder.norm.{kind}", "norm.{kind}"},
};
static const clattn_name_rule pytorch_encoder_layer[] = {PYTORCH_ENCODER_LAYER("")};
static const clattn_name_rule pytorch_decoder_layer[] = {PYTORCH_DECODER_LAYER("")};

#define BERT_LAYER "encoder.layer.{n}."
static const clattn_name_rule bert[] = {
    {"encoder.tokens.weight", "embeddings.word_embeddings.weight"},
    {"encoder.positions.weight", "embeddings.position_embeddings.weight"},
    {"encoder.segments.weight", "embeddings.token_type_embeddings.weight"},
    {"encoder.input_norm.{kind}", "embeddings.LayerNorm.{kind}"},
    {"encoder.layers.{n}.self.query.{kind}", BERT_LAYER "attention.self.query.{kind}"},
    {"encoder.layers.{n}.self.key.{kind}", BERT_LAYER "attention.self.key.{kind}"},
    {"encoder.layers.{n}.self.value.{kind}", BERT_LAYER "attention.self.value.{kind}"},
    {"encoder.layers.{n}.self.output.{kind}", BERT_LAYER "attention.output.dense.{kind}"},
    {"encoder.layers.{n}.self.norm.{kind}", BERT_LAYER "attention.output.LayerNorm.{kind}"},
    {"encoder.layers.{n}.feed_forward.in.{kind}", BERT_LAYER "intermediate.dense.{kind}"},
    {"encoder.layers.{n}.feed_forward.out.{kind}", BERT_LAYER "output.dense.{kind}"},
    {"encoder.layers.{n}.feed_forward.norm.{kind}", BERT_LAYER "output.LayerNorm.{kind}"},
};

#define WHISPER_LAYERS(S, F) \
    {S ".layers.{n}.self.query.{kind}", F ".layers.{n}.self_attn.q_proj.{kind}"}, \
        {S ".layers.{n}.self.key.{kind}", F ".layers.{n}.self_attn.k_proj.{kind}"}, \
        {S ".layers.{n}.self.value.{kind}", F ".layers.{n}.self_attn.v_proj.{kind}"}, \
        {S ".layers.{n}.self.output.{kind}", F ".layers.{n}.self_attn.out_proj.{kind}"}, \
        {S ".layers.{n}.self.norm.{kind}", F ".layers.{n}.self_attn_layer_norm.{kind}"}, \
        {S ".layers.{n}.feed_forward.in.{kind}", F ".layers.{n}.fc1.{kind}"}, \
        {S ".layers.{n}.feed_forward.out.{kind}", F ".layers.{n}.fc2.{kind}"}, \
        {S ".layers.{n}.feed_forward.norm.{kind}", F ".layers.{n}.final_layer_norm.{kind}"}, \
        {S ".norm.{kind}", F ".layer_norm.{kind}"}, {S ".positions.weight", F ".embed_positions.weight"}
static const clattn_name_rule whisper[] = {
    {"encoder.convolutions.0.{kind}", "model.encoder.conv1.{kind}"},
    {"encoder.convolutions.1.{kind}", "model.encoder.conv2.{kind}"},
    WHISPER_LAYERS("encoder", "model.encoder"),
    {"decoder.tokens.weight", "model.decoder.embed_tokens.weight"},
    WHISPER_LAYERS("decoder", "model.decoder"),
    {"decoder.layers.{n}.cross.query.{kind}", "model.decoder.layers.{n}.encoder_attn.q_proj.{kind}"},
    {"decoder.layers.{n}.cross.key.{kind}", "model.decoder.layers.{n}.encoder_attn.k_proj.{kind}"},
    {"decoder.layers.{n}.cross.value.{kind}", "model.decoder.layers.{n}.encoder_attn.v_proj.{kind}"},
    {"decoder.layers.{n}.cross.output.{kind}", "model.decoder.layers.{n}.encoder_attn.out_proj.{kind}"},
    {"decoder.layers.{n}.cross.norm.{kind}", "model.decoder.layers.{n}.encoder_attn_layer_norm.{kind}"},
    {"output.weight", "proj_out.weight"},
};

/* CTranslate2 fuses the linear layers that read the same input, and calls a norm's weight gamma. */
#define CT2_NORM(ours, theirs) {ours ".weight", theirs "/gamma"}, {ours ".bias", theirs "/beta"}
#define CT2_LAYERS(S) \
    {S ".layers.{n}.self.query.{kind}", S "/layer_{n}/self_attention/linear_0/{kind}[0/3]"}, \
        {S ".layers.{n}.self.key.{kind}", S "/layer_{n}/self_attention/linear_0/{kind}[1/3]"}, \
        {S ".layers.{n}.self.value.{kind}", S "/layer_{n}/self_attention/linear_0/{kind}[2/3]"}, \
        {S ".layers.{n}.self.output.{kind}", S "/layer_{n}/self_attention/linear_1/{kind}"}, \
        CT2_NORM(S ".layers.{n}.self.norm", S "/layer_{n}/self_attention/layer_norm"), \
        {S ".layers.{n}.feed_forward.in.{kind}", S "/layer_{n}/ffn/linear_0/{kind}"}, \
        {S ".layers.{n}.feed_forward.out.{kind}", S "/layer_{n}/ffn/linear_1/{kind}"}, \
        CT2_NORM(S ".layers.{n}.feed_forward.norm", S "/layer_{n}/ffn/layer_norm"), \
        CT2_NORM(S ".norm", S "/layer_norm"), {S ".positions.weight", S "/position_encodings/encodings"}
static const clattn_name_rule whisper_ctranslate2[] = {
    {"encoder.convolutions.0.{kind}", "encoder/conv1/{kind}"},
    {"encoder.convolutions.1.{kind}", "encoder/conv2/{kind}"},
    CT2_LAYERS("encoder"),
    {"decoder.tokens.weight", "decoder/embeddings/weight"},
    CT2_LAYERS("decoder"),
    {"decoder.layers.{n}.cross.query.{kind}", "decoder/layer_{n}/attention/linear_0/{kind}"},
    {"decoder.layers.{n}.cross.key.{kind}", "decoder/layer_{n}/attention/linear_1/{kind}[0/2]"},
    {"decoder.layers.{n}.cross.value.{kind}", "decoder/layer_{n}/attention/linear_1/{kind}[1/2]"},
    {"decoder.layers.{n}.cross.output.{kind}", "decoder/layer_{n}/attention/linear_2/{kind}"},
    CT2_NORM("decoder.layers.{n}.cross.norm", "decoder/layer_{n}/attention/layer_norm"),
    {"output.{kind}", "decoder/projection/{kind}"},
};

#define RULES(table) {table, sizeof table / sizeof table[0]}
static const struct {
    const clattn_name_rule *rules;
    size_t count;
} formats[] = {
    {NULL, 0},
    RULES(pytorch_transformer),
    RULES(pytorch_encoder),
    RULES(pytorch_decoder),
    RULES(pytorch_encoder_layer),
    RULES(pytorch_decoder_layer),
    RULES(bert),
    RULES(whisper),
    RULES(whisper_ctranslate2),
};

/* The texts that {n} and {kind} stand for. */
struct captures {
    const char *number, *kind;
    size_t number_length, kind_length;
};

static bool starts(const char *text, const char *with)
{
    return !strncmp(text, with, strlen(with));
}

static bool matches(const char *pattern, const char *name, struct captures *captures)
{
    *captures = (struct captures){0};
    while (*pattern) {
        if (starts(pattern, "{n}")) {
            captures->number = name;
            captures->number_length = strspn(name, "0123456789");
            if (!captures->number_length)
                return false;
            name += captures->number_length;
            pattern += 3;
        } else if (starts(pattern, "{kind}")) {
            captures->kind = name;
            captures->kind_length = starts(name, "weight") ? 6 : starts(name, "bias") ? 4 : 0;
            if (!captures->kind_length)
                return false;
            name += captures->kind_length;
            pattern += 6;
        } else if (*pattern++ != *name++) {
            return false;
        }
    }
    return !*name;
}

/* Appends text, and counts it also if it does not fit, as snprintf does. */
static void put(char *buffer, size_t bytes, size_t *length, const char *text, size_t count)
{
    for (size_t i = 0; i < count; i++, (*length)++)
        if (*length + 1 < bytes)
            buffer[*length] = text[i];
    if (bytes)
        buffer[size_min(*length, bytes - 1)] = '\0';
}

/* Reads "[i/m]" and "^T" at a name's end; returns the length of the name without them. */
static size_t read_suffix(const char *name, size_t *share, size_t *shares, int32_t *transposed)
{
    size_t length = strlen(name);
    const char *open = strrchr(name, '[');
    unsigned i, m;
    int read = 0;
    *share = 0;
    *shares = 1;
    if (open && sscanf(open, "[%u/%u]%n", &i, &m, &read) == 2 && read && !open[read] && i < m) {
        *share = i;
        *shares = m;
        length = (size_t)(open - name);
    }
    *transposed = length >= 2 && !strncmp(name + length - 2, "^T", 2);
    return *transposed ? length - 2 : length;
}

static const clattn_name_rule *find_rule(const clattn_weight_source *source, const char *canonical,
                                         struct captures *captures)
{
    for (size_t i = 0; i < source->rule_count; i++)
        if (matches(source->rules[i].canonical, canonical, captures))
            return &source->rules[i];
    if (source->format < 0 || (size_t)source->format >= sizeof formats / sizeof formats[0])
        return NULL;
    for (size_t i = 0; i < formats[source->format].count; i++)
        if (matches(formats[source->format].rules[i].canonical, canonical, captures))
            return &formats[source->format].rules[i];
    return NULL;
}

void clattn_weight_source_init(clattn_weight_source *source)
{
    struct_init(source, sizeof *source);
}

size_t clattn_weight_name(const clattn_weight_source *source, const char *canonical, char *buffer, size_t bytes,
                          size_t *share, size_t *shares, int32_t *transposed)
{
    struct captures captures;
    size_t length = 0, unused;
    int32_t unused_flag;
    if (bytes)
        buffer[0] = '\0';
    if (!source || !canonical)
        return 0;
    const clattn_name_rule *rule = find_rule(source, canonical, &captures);
    const char *name = rule ? rule->name : canonical;
    if (!name)
        return 0;
    const size_t end =
        read_suffix(name, share ? share : &unused, shares ? shares : &unused, transposed ? transposed : &unused_flag);
    if (source->prefix)
        put(buffer, bytes, &length, source->prefix, strlen(source->prefix));
    for (size_t i = 0; i < end;) {
        if (rule && captures.number && starts(name + i, "{n}")) {
            put(buffer, bytes, &length, captures.number, captures.number_length);
            i += 3;
        } else if (rule && captures.kind && starts(name + i, "{kind}")) {
            put(buffer, bytes, &length, captures.kind, captures.kind_length);
            i += 6;
        } else {
            put(buffer, bytes, &length, name + i++, 1);
        }
    }
    return length;
}
