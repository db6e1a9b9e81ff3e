/* The names of a model's tensors in files of several origins. */
#include "clattn/weights.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
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

/* Models of pictures.  The layers of ViT and DINOv2 have the same names but for norms and feed-forward network. */
#define PICTURE_INPUT(F) \
    {"encoder.patches.{kind}", F "patch_embeddings.projection.{kind}"}, {"encoder.class.weight", F "cls_token"}, \
        {"encoder.registers.weight", F "register_tokens"}, {"encoder.positions.weight", F "position_embeddings"}
#define VIT_ATTENTION(F) \
    {"encoder.layers.{n}.self.query.{kind}", F "attention.attention.query.{kind}"}, \
        {"encoder.layers.{n}.self.key.{kind}", F "attention.attention.key.{kind}"}, \
        {"encoder.layers.{n}.self.value.{kind}", F "attention.attention.value.{kind}"}, \
        {"encoder.layers.{n}.self.output.{kind}", F "attention.output.dense.{kind}"}
static const clattn_name_rule vit[] = {
    PICTURE_INPUT("embeddings."),
    VIT_ATTENTION("encoder.layer.{n}."),
    {"encoder.layers.{n}.self.norm.{kind}", "encoder.layer.{n}.layernorm_before.{kind}"},
    {"encoder.layers.{n}.feed_forward.in.{kind}", "encoder.layer.{n}.intermediate.dense.{kind}"},
    {"encoder.layers.{n}.feed_forward.out.{kind}", "encoder.layer.{n}.output.dense.{kind}"},
    {"encoder.layers.{n}.feed_forward.norm.{kind}", "encoder.layer.{n}.layernorm_after.{kind}"},
    {"encoder.norm.{kind}", "layernorm.{kind}"},
};
#define DINOV2_LAYER "encoder.layer.{n}."
#define DINOV2 \
    PICTURE_INPUT("embeddings."), VIT_ATTENTION(DINOV2_LAYER), \
        {"encoder.layers.{n}.self.norm.{kind}", DINOV2_LAYER "norm1.{kind}"}, \
        {"encoder.layers.{n}.self.scale", DINOV2_LAYER "layer_scale1.lambda1"}, \
        {"encoder.layers.{n}.feed_forward.norm.{kind}", DINOV2_LAYER "norm2.{kind}"}, \
        {"encoder.layers.{n}.feed_forward.scale", DINOV2_LAYER "layer_scale2.lambda1"}, \
        {"encoder.norm.{kind}", "layernorm.{kind}"}
static const clattn_name_rule dinov2[] = {
    DINOV2,
    {"encoder.layers.{n}.feed_forward.in.{kind}", DINOV2_LAYER "mlp.fc1.{kind}"},
    {"encoder.layers.{n}.feed_forward.out.{kind}", DINOV2_LAYER "mlp.fc2.{kind}"},
};
static const clattn_name_rule dinov2_gated[] = {
    DINOV2,
    {"encoder.layers.{n}.feed_forward.gate.{kind}", DINOV2_LAYER "mlp.weights_in.{kind}[0/2]"},
    {"encoder.layers.{n}.feed_forward.in.{kind}", DINOV2_LAYER "mlp.weights_in.{kind}[1/2]"},
    {"encoder.layers.{n}.feed_forward.out.{kind}", DINOV2_LAYER "mlp.weights_out.{kind}"},
};

#define DINOV3 "layer.{n}."
static const clattn_name_rule dinov3[] = {
    {"encoder.patches.{kind}", "embeddings.patch_embeddings.{kind}"},
    {"encoder.class.weight", "embeddings.cls_token"},
    {"encoder.registers.weight", "embeddings.register_tokens"},
    {"encoder.layers.{n}.self.query.{kind}", DINOV3 "attention.q_proj.{kind}"},
    {"encoder.layers.{n}.self.key.{kind}", DINOV3 "attention.k_proj.{kind}"},
    {"encoder.layers.{n}.self.value.{kind}", DINOV3 "attention.v_proj.{kind}"},
    {"encoder.layers.{n}.self.output.{kind}", DINOV3 "attention.o_proj.{kind}"},
    {"encoder.layers.{n}.self.norm.{kind}", DINOV3 "norm1.{kind}"},
    {"encoder.layers.{n}.self.scale", DINOV3 "layer_scale1.lambda1"},
    {"encoder.layers.{n}.feed_forward.gate.{kind}", DINOV3 "mlp.gate_proj.{kind}"},
    {"encoder.layers.{n}.feed_forward.in.{kind}", DINOV3 "mlp.up_proj.{kind}"},
    {"encoder.layers.{n}.feed_forward.out.{kind}", DINOV3 "mlp.down_proj.{kind}"},
    {"encoder.layers.{n}.feed_forward.norm.{kind}", DINOV3 "norm2.{kind}"},
    {"encoder.layers.{n}.feed_forward.scale", DINOV3 "layer_scale2.lambda1"},
    {"encoder.norm.{kind}", "norm.{kind}"},
};

#define CLIP_LAYERS(F) \
    {"encoder.layers.{n}.self.query.{kind}", F ".layers.{n}.self_attn.q_proj.{kind}"}, \
        {"encoder.layers.{n}.self.key.{kind}", F ".layers.{n}.self_attn.k_proj.{kind}"}, \
        {"encoder.layers.{n}.self.value.{kind}", F ".layers.{n}.self_attn.v_proj.{kind}"}, \
        {"encoder.layers.{n}.self.output.{kind}", F ".layers.{n}.self_attn.out_proj.{kind}"}, \
        {"encoder.layers.{n}.self.norm.{kind}", F ".layers.{n}.layer_norm1.{kind}"}, \
        {"encoder.layers.{n}.feed_forward.in.{kind}", F ".layers.{n}.mlp.fc1.{kind}"}, \
        {"encoder.layers.{n}.feed_forward.out.{kind}", F ".layers.{n}.mlp.fc2.{kind}"}, \
        {"encoder.layers.{n}.feed_forward.norm.{kind}", F ".layers.{n}.layer_norm2.{kind}"}
static const clattn_name_rule clip_vision[] = {
    {"encoder.patches.{kind}", "vision_model.embeddings.patch_embedding.{kind}"},
    {"encoder.class.weight", "vision_model.embeddings.class_embedding"},
    {"encoder.positions.weight", "vision_model.embeddings.position_embedding.weight"},
    {"encoder.input_norm.{kind}", "vision_model.pre_layrnorm.{kind}"},
    CLIP_LAYERS("vision_model.encoder"),
    {"encoder.norm.{kind}", "vision_model.post_layernorm.{kind}"},
    {"encoder.projection.weight", "visual_projection.weight"},
};
static const clattn_name_rule clip_text[] = {
    {"encoder.tokens.weight", "text_model.embeddings.token_embedding.weight"},
    {"encoder.positions.weight", "text_model.embeddings.position_embedding.weight"},
    CLIP_LAYERS("text_model.encoder"),
    {"encoder.norm.{kind}", "text_model.final_layer_norm.{kind}"},
    {"encoder.projection.weight", "text_projection.weight"},
};

#define TIMM_LAYER "blocks.{n}."
static const clattn_name_rule timm_vit[] = {
    {"encoder.patches.{kind}", "patch_embed.proj.{kind}"},
    {"encoder.class.weight", "cls_token"},
    {"encoder.registers.weight", "reg_token"},
    {"encoder.positions.weight", "pos_embed"},
    {"encoder.input_norm.{kind}", "norm_pre.{kind}"},
    {"encoder.layers.{n}.self.query.{kind}", TIMM_LAYER "attn.qkv.{kind}[0/3]"},
    {"encoder.layers.{n}.self.key.{kind}", TIMM_LAYER "attn.qkv.{kind}[1/3]"},
    {"encoder.layers.{n}.self.value.{kind}", TIMM_LAYER "attn.qkv.{kind}[2/3]"},
    {"encoder.layers.{n}.self.query_norm.{kind}", TIMM_LAYER "attn.q_norm.{kind}"},
    {"encoder.layers.{n}.self.key_norm.{kind}", TIMM_LAYER "attn.k_norm.{kind}"},
    {"encoder.layers.{n}.self.output.{kind}", TIMM_LAYER "attn.proj.{kind}"},
    {"encoder.layers.{n}.self.norm.{kind}", TIMM_LAYER "norm1.{kind}"},
    {"encoder.layers.{n}.self.scale", TIMM_LAYER "ls1.gamma"},
    {"encoder.layers.{n}.feed_forward.in.{kind}", TIMM_LAYER "mlp.fc1.{kind}"},
    {"encoder.layers.{n}.feed_forward.out.{kind}", TIMM_LAYER "mlp.fc2.{kind}"},
    {"encoder.layers.{n}.feed_forward.norm.{kind}", TIMM_LAYER "norm2.{kind}"},
    {"encoder.layers.{n}.feed_forward.scale", TIMM_LAYER "ls2.gamma"},
    {"encoder.norm.{kind}", "norm.{kind}"},
};

/* Swin's first stage and those after it, whose canonical names begin with C. */
#define SWIN_STAGE(C, F) \
    {C "layers.{n}.self.query.{kind}", F "blocks.{n}.attention.self.query.{kind}"}, \
        {C "layers.{n}.self.key.{kind}", F "blocks.{n}.attention.self.key.{kind}"}, \
        {C "layers.{n}.self.value.{kind}", F "blocks.{n}.attention.self.value.{kind}"}, \
        {C "layers.{n}.self.position_bias", F "blocks.{n}.attention.self.relative_position_bias_table"}, \
        {C "layers.{n}.self.output.{kind}", F "blocks.{n}.attention.output.dense.{kind}"}, \
        {C "layers.{n}.self.norm.{kind}", F "blocks.{n}.layernorm_before.{kind}"}, \
        {C "layers.{n}.feed_forward.in.{kind}", F "blocks.{n}.intermediate.dense.{kind}"}, \
        {C "layers.{n}.feed_forward.out.{kind}", F "blocks.{n}.output.dense.{kind}"}, \
        {C "layers.{n}.feed_forward.norm.{kind}", F "blocks.{n}.layernorm_after.{kind}"}, \
        {C "merge.norm.{kind}", F "downsample.norm.{kind}"}, {C "merge.weight", F "downsample.reduction.weight"}
static const clattn_name_rule swin[] = {
    {"encoder.patches.{kind}", "embeddings.patch_embeddings.projection.{kind}"},
    {"encoder.input_norm.{kind}", "embeddings.norm.{kind}"},
    SWIN_STAGE("encoder.", "encoder.layers.0."),
    SWIN_STAGE("encoder.stages.{s}.", "encoder.layers.{s}."),
    {"encoder.norm.{kind}", "layernorm.{kind}"},
    {"encoder.stages.{s}.norm.{kind}", "layernorm.{kind}"},
};

#define TIMM_SWIN_STAGE(C, F, G) \
    {C "layers.{n}.self.query.{kind}", F "blocks.{n}.attn.qkv.{kind}[0/3]"}, \
        {C "layers.{n}.self.key.{kind}", F "blocks.{n}.attn.qkv.{kind}[1/3]"}, \
        {C "layers.{n}.self.value.{kind}", F "blocks.{n}.attn.qkv.{kind}[2/3]"}, \
        {C "layers.{n}.self.position_bias", F "blocks.{n}.attn.relative_position_bias_table"}, \
        {C "layers.{n}.self.output.{kind}", F "blocks.{n}.attn.proj.{kind}"}, \
        {C "layers.{n}.self.norm.{kind}", F "blocks.{n}.norm1.{kind}"}, \
        {C "layers.{n}.feed_forward.in.{kind}", F "blocks.{n}.mlp.fc1.{kind}"}, \
        {C "layers.{n}.feed_forward.out.{kind}", F "blocks.{n}.mlp.fc2.{kind}"}, \
        {C "layers.{n}.feed_forward.norm.{kind}", F "blocks.{n}.norm2.{kind}"}, \
        {C "merge.norm.{kind}", G "downsample.norm.{kind}"}, {C "merge.weight", G "downsample.reduction.weight"}
static const clattn_name_rule timm_swin[] = {
    {"encoder.patches.{kind}", "patch_embed.proj.{kind}"},
    {"encoder.input_norm.{kind}", "patch_embed.norm.{kind}"},
    TIMM_SWIN_STAGE("encoder.", "layers.0.", "layers.1."),
    TIMM_SWIN_STAGE("encoder.stages.{s}.", "layers.{s}.", "layers.{s+1}."),
    {"encoder.norm.{kind}", "norm.{kind}"},
    {"encoder.stages.{s}.norm.{kind}", "norm.{kind}"},
};

#define SAM_LAYER "vision_encoder.layers.{n}."
static const clattn_name_rule sam[] = {
    {"encoder.patches.{kind}", "vision_encoder.patch_embed.projection.{kind}"},
    {"encoder.positions.weight", "vision_encoder.pos_embed"},
    {"encoder.layers.{n}.self.query.{kind}", SAM_LAYER "attn.qkv.{kind}[0/3]"},
    {"encoder.layers.{n}.self.key.{kind}", SAM_LAYER "attn.qkv.{kind}[1/3]"},
    {"encoder.layers.{n}.self.value.{kind}", SAM_LAYER "attn.qkv.{kind}[2/3]"},
    {"encoder.layers.{n}.self.position_rows", SAM_LAYER "attn.rel_pos_h"},
    {"encoder.layers.{n}.self.position_columns", SAM_LAYER "attn.rel_pos_w"},
    {"encoder.layers.{n}.self.output.{kind}", SAM_LAYER "attn.proj.{kind}"},
    {"encoder.layers.{n}.self.norm.{kind}", SAM_LAYER "layer_norm1.{kind}"},
    {"encoder.layers.{n}.feed_forward.in.{kind}", SAM_LAYER "mlp.lin1.{kind}"},
    {"encoder.layers.{n}.feed_forward.out.{kind}", SAM_LAYER "mlp.lin2.{kind}"},
    {"encoder.layers.{n}.feed_forward.norm.{kind}", SAM_LAYER "layer_norm2.{kind}"},
    {"encoder.neck.in.weight", "vision_encoder.neck.conv1.weight"},
    {"encoder.neck.in_norm.{kind}", "vision_encoder.neck.layer_norm1.{kind}"},
    {"encoder.neck.out.weight", "vision_encoder.neck.conv2.weight"},
    {"encoder.neck.out_norm.{kind}", "vision_encoder.neck.layer_norm2.{kind}"},
};

/* SwinIR's groups of layers; the canonical names of those after the first begin with C. */
#define SWINIR_GROUP(C, F) \
    {C "layers.{n}.self.query.{kind}", F "residual_group.blocks.{n}.attn.qkv.{kind}[0/3]"}, \
        {C "layers.{n}.self.key.{kind}", F "residual_group.blocks.{n}.attn.qkv.{kind}[1/3]"}, \
        {C "layers.{n}.self.value.{kind}", F "residual_group.blocks.{n}.attn.qkv.{kind}[2/3]"}, \
        {C "layers.{n}.self.position_bias", F "residual_group.blocks.{n}.attn.relative_position_bias_table"}, \
        {C "layers.{n}.self.output.{kind}", F "residual_group.blocks.{n}.attn.proj.{kind}"}, \
        {C "layers.{n}.self.norm.{kind}", F "residual_group.blocks.{n}.norm1.{kind}"}, \
        {C "layers.{n}.feed_forward.in.{kind}", F "residual_group.blocks.{n}.mlp.fc1.{kind}"}, \
        {C "layers.{n}.feed_forward.out.{kind}", F "residual_group.blocks.{n}.mlp.fc2.{kind}"}, \
        {C "layers.{n}.feed_forward.norm.{kind}", F "residual_group.blocks.{n}.norm2.{kind}"}, \
        {C "residual.{kind}", F "conv.{kind}"}, {C "residual.0.{kind}", F "conv.0.{kind}"}, \
        {C "residual.1.{kind}", F "conv.2.{kind}"}, {C "residual.2.{kind}", F "conv.4.{kind}"}
static const clattn_name_rule swinir[] = {
    {"encoder.patches.{kind}", "conv_first.{kind}"},
    {"encoder.input_norm.{kind}", "patch_embed.norm.{kind}"},
    SWINIR_GROUP("encoder.", "layers.0."),
    SWINIR_GROUP("encoder.stages.{s}.", "layers.{s}."),
    {"encoder.norm.{kind}", "norm.{kind}"},
    {"encoder.stages.{s}.norm.{kind}", "norm.{kind}"},
    {"encoder.restoration.body.{kind}", "conv_after_body.{kind}"},
    {"encoder.restoration.body.0.{kind}", "conv_after_body.0.{kind}"},
    {"encoder.restoration.body.1.{kind}", "conv_after_body.2.{kind}"},
    {"encoder.restoration.body.2.{kind}", "conv_after_body.4.{kind}"},
    {"encoder.restoration.before.{kind}", "conv_before_upsample.0.{kind}"},
    {"encoder.restoration.shuffle.0.{kind}", "upsample.0.{kind}"},
    {"encoder.restoration.shuffle.1.{kind}", "upsample.2.{kind}"},
    {"encoder.restoration.shuffle.2.{kind}", "upsample.4.{kind}"},
    {"encoder.restoration.nearest.0.{kind}", "conv_up1.{kind}"},
    {"encoder.restoration.nearest.1.{kind}", "conv_up2.{kind}"},
    {"encoder.restoration.nearest.2.{kind}", "conv_up3.{kind}"},
    {"encoder.restoration.detail.{kind}", "conv_hr.{kind}"},
    {"encoder.restoration.last.{kind}", "conv_last.{kind}"},
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
    RULES(vit),
    RULES(dinov2),
    RULES(dinov2_gated),
    RULES(clip_vision),
    RULES(clip_text),
    RULES(timm_vit),
    RULES(swin),
    RULES(timm_swin),
    RULES(sam),
    RULES(swinir),
    RULES(dinov3),
};

/* The texts that {n}, {s} and {kind} stand for. */
struct captures {
    const char *number, *stage, *kind;
    size_t number_length, stage_length, kind_length;
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
        } else if (starts(pattern, "{s}")) {
            captures->stage = name;
            captures->stage_length = strspn(name, "0123456789");
            if (!captures->stage_length)
                return false;
            name += captures->stage_length;
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
        } else if (rule && captures.stage && starts(name + i, "{s}")) {
            put(buffer, bytes, &length, captures.stage, captures.stage_length);
            i += 3;
        } else if (rule && captures.stage && starts(name + i, "{s+1}")) {
            char next[24];
            put(buffer, bytes, &length, next,
                (size_t)snprintf(next, sizeof next, "%lu", strtoul(captures.stage, NULL, 10) + 1));
            i += 5;
        } else if (rule && captures.kind && starts(name + i, "{kind}")) {
            put(buffer, bytes, &length, captures.kind, captures.kind_length);
            i += 6;
        } else {
            put(buffer, bytes, &length, name + i++, 1);
        }
    }
    return length;
}
