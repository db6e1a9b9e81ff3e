/* The shape of a SwinIR model, read off its tensors. */
#include <stdio.h>
#include <string.h>

#include <clattn/vision.h>

#include "base/text/numbered.h"
#include "base/text/shape_text.h"
#include "base/size.h"
#include "base/try.h"
#include "restore/swinir.h"

#define MOST_LAYERS 64
#define MOST_SIZE 65536 /* of an extent, so that products of two fit into 32 bits */
#define NAME_BYTES 128

/* ---- tensors ---- */

/* The tensor of this name after the prefix; a zeroed one if there is none. */
static clattn_host_tensor tensor_of(const swinir *model, const char *name)
{
    char whole[NAME_BYTES + 16];
    clattn_host_tensor tensor;
    snprintf(whole, sizeof whole, "%s%s", model->prefix, name);
    clattn_safetensors_find(model->file, whole, &tensor, NULL);
    return tensor;
}

static bool has(const swinir *model, const char *name)
{
    return tensor_of(model, name).dtype != CLATTN_DTYPE_NONE;
}

/* Reads the shape of a tensor, which must have as many dimensions as `shape` says. */
static clattn_status read_shape(swinir *model, const char *name, int32_t rank, const char *shape, size_t *extent)
{
    const clattn_host_tensor tensor = tensor_of(model, name);
    bool sizes = tensor.rank == rank;
    if (tensor.dtype == CLATTN_DTYPE_NONE)
        return swinir_refuse(model, "has no tensor %s%s, expected one of shape %s, as SwinIR has", model->prefix, name,
                             shape);
    for (int32_t i = 0; i < rank && sizes; i++) {
        extent[i] = tensor.extent[i];
        sizes = extent[i] >= 1 && extent[i] <= MOST_SIZE;
    }
    return sizes ? CLATTN_SUCCESS
                 : swinir_refuse(model, "%s%s is of shape %s, expected %s, each up to %d", model->prefix, name,
                                 shape_of(&tensor).text, shape, MOST_SIZE);
}

static clattn_status find_prefix(swinir *model)
{
    static const char *const prefixes[] = {"params_ema.", "params.", ""};
    for (size_t i = 0; i < COUNT_OF(prefixes); i++) {
        model->prefix = prefixes[i];
        if (has(model, "conv_first.weight") && has(model, "layers.0.residual_group.blocks.0.attn.qkv.weight"))
            return CLATTN_SUCCESS;
    }
    return swinir_refuse(model, "is no SwinIR model: looked for the tensors conv_first.weight and "
                                "layers.0.residual_group.blocks.0.attn.qkv.weight, also after params. and params_ema.");
}

/* Counts what tensors number: one more than the largest N of the names that begin with the prefix, `stem` and N. */
static clattn_status count_numbered(swinir *model, const char *stem, size_t most, size_t *count)
{
    char whole[NAME_BYTES + 16];
    clattn_safetensors_entry entry;
    size_t found;
    snprintf(whole, sizeof whole, "%s%s", model->prefix, stem);
    *count = 0;
    for (size_t i = 0; clattn_safetensors_at(model->file, i, &entry) == CLATTN_SUCCESS; i++) {
        if (!numbered(entry.name, whole, &found))
            continue;
        if (found >= most)
            return swinir_refuse(model, "has a layer %.20s, expected at most %zu layers", entry.name + strlen(whole),
                                 most);
        *count = size_max(*count, found + 1);
    }
    return CLATTN_SUCCESS;
}

/* ---- the shape ---- */

/* Reads layers, heads, window and d_ff of stage `s`. */
static clattn_status read_stage(swinir *model, size_t s)
{
    clattn_stack_desc *d = &model->stage[s];
    char stem[NAME_BYTES / 2], name[NAME_BYTES];
    size_t table[2], fc1[2], window = 1;
    clattn_status status;
    snprintf(stem, sizeof stem, "layers.%zu.residual_group.blocks.", s);
    TRY(count_numbered(model, stem, MOST_LAYERS, &d->layers));
    snprintf(name, sizeof name, "%s0.attn.relative_position_bias_table", stem);
    TRY(read_shape(model, name, 2, "((2 window - 1)^2, heads)", table));
    snprintf(name, sizeof name, "%s0.mlp.fc1.weight", stem);
    TRY(read_shape(model, name, 2, "(d_ff, d_model)", fc1));
    while ((2 * window - 1) * (2 * window - 1) < table[0])
        window++;
    if ((2 * window - 1) * (2 * window - 1) != table[0] || (s > 0 && window != model->window))
        return swinir_refuse(model,
                             "layers.%zu has %zu rows of position biases, expected (2 w - 1)^2 for windows of w x w, "
                             "the same in all stages",
                             s, table[0]);
    if (d->d_model % table[1] != 0)
        return swinir_refuse(model, "layers.%zu has %zu heads, expected a divisor of the %zu columns", s, table[1],
                             d->d_model);
    d->windows.rows = d->windows.columns = model->window = window;
    d->heads = table[1];
    d->d_ff = fc1[0];
    snprintf(name, sizeof name, "%s0.attn.qkv.bias", stem);
    if (!has(model, name))
        d->without_bias = CLATTN_WITHOUT_QUERY_BIAS | CLATTN_WITHOUT_KEY_BIAS | CLATTN_WITHOUT_VALUE_BIAS;
fail:
    return status;
}

/* Counts the tensors of a list of names. */
static size_t count_names(const swinir *model, const char *const names[3])
{
    size_t count = 0;
    while (count < 3 && has(model, names[count]))
        count++;
    return count;
}

/* Reads how vectors become a picture whose first convolution makes `features` channels. */
static clattn_status read_features(swinir *model, clattn_restoration *r)
{
    static const char *const shuffles[] = {"upsample.0.weight", "upsample.2.weight", "upsample.4.weight"};
    static const char *const doublings[] = {"conv_up1.weight", "conv_up2.weight", "conv_up3.weight"};
    const size_t doubled = count_names(model, doublings), shuffled = count_names(model, shuffles);
    size_t before[4], first[4] = {0};
    clattn_status status;
    TRY(read_shape(model, "conv_before_upsample.0.weight", 4, "(features, d_model, 3, 3)", before));
    r->features = before[0];
    if (doubled > 0) {
        r->kind = CLATTN_RESTORATION_KIND_NEAREST;
        r->factor = (size_t)1 << doubled;
        return CLATTN_SUCCESS;
    }
    r->kind = CLATTN_RESTORATION_KIND_SHUFFLE;
    TRY(read_shape(model, shuffles[0], 4, "(features * r * r, features, 3, 3)", first));
    if (first[0] == 9 * r->features && shuffled == 1)
        r->factor = 3;
    else if (first[0] == 4 * r->features)
        r->factor = (size_t)1 << shuffled;
    else
        return swinir_refuse(model, "%s%s makes %zu channels, expected 4 or 9 times the %zu features", model->prefix,
                             shuffles[0], first[0], r->features);
fail:
    return status;
}

static clattn_status read_restoration(swinir *model, clattn_restoration *r)
{
    size_t shape[4];
    clattn_status status = CLATTN_SUCCESS;
    *r = (clattn_restoration){0};
    if (has(model, "conv_before_upsample.0.weight"))
        return read_features(model, r);
    *r = (clattn_restoration){.kind = CLATTN_RESTORATION_KIND_ADDED, .factor = 1};
    if (!has(model, "upsample.0.weight"))
        return read_shape(model, "conv_last.weight", 4, "(channels, d_model, 3, 3)", shape);
    r->kind = CLATTN_RESTORATION_KIND_SHUFFLE_ONCE;
    TRY(read_shape(model, "upsample.0.weight", 4, "(channels * factor^2, d_model, 3, 3)", shape));
    while (r->factor < 8 && model->channels * r->factor * r->factor < shape[0])
        r->factor++;
    if (model->channels * r->factor * r->factor != shape[0])
        return swinir_refuse(
            model, "%supsample.0.weight makes %zu channels, expected %zu times the square of a factor up to 8",
            model->prefix, shape[0], model->channels);
fail:
    return status;
}

clattn_status swinir_read_shape(swinir *model)
{
    clattn_transformer_desc desc;
    clattn_stack_desc *stage = model->stage;
    size_t first[4];
    clattn_status status;
    clattn_vision_preset(CLATTN_VISION_SWINIR_CLASSICAL, &desc, stage, NULL);
    TRY(find_prefix(model));
    TRY(count_numbered(model, "layers.", CLATTN_MAX_STAGES, &model->stages));
    TRY(read_shape(model, "conv_first.weight", 4, "(d_model, channels, 3, 3)", first));
    if (first[1] != 1 && first[1] != 3)
        return swinir_refuse(model, "the model takes pictures of %zu channels, expected 1 or 3", first[1]);
    model->channels = stage->patches.channels = first[1];
    stage->d_model = first[0];
    stage->residual = has(model, "layers.0.conv.0.weight") ? 3 : 1;
    stage->input_norm = has(model, "patch_embed.norm.weight");
    stage->final_norm = 0;
    stage->next = NULL;
    stage->restoration = (clattn_restoration){0};
    for (size_t s = 0; s < model->stages; s++) {
        if (s > 0) {
            stage[s] = stage[0];
            stage[s].input = CLATTN_STACK_INPUT_CONTINUED;
            stage[s].input_norm = 0;
            stage[s].patches = (clattn_patches){0};
            stage[s].without_bias = 0;
            stage[s - 1].next = &stage[s];
        }
        stage[s].next = NULL;
        TRY(read_stage(model, s));
    }
    clattn_stack_desc *last = &stage[model->stages - 1];
    last->final_norm = 1;
    TRY(read_restoration(model, &last->restoration));
    model->factor = last->restoration.factor;
    /* Tensors do not tell the range.  SwinIR's models for JPEG, the only ones with windows of 7 x 7, have 255. */
    model->range = last->restoration.kind == CLATTN_RESTORATION_KIND_ADDED && model->window == 7 ? 255.0f : 1.0f;
fail:
    return status;
}
