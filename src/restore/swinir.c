#include "restore/swinir.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text/shape_text.h"
#include "base/size.h"

/* Bytes of the path's end that a message shows, so that the reason fits. */
#define PATH_SHOWN 200

const clattn_stack_desc *swinir_last(const swinir *model)
{
    return &model->stage[model->stages - 1];
}

float swinir_mean(const swinir *model, size_t plane)
{
    static const float means[3] = {0.4488f, 0.4371f, 0.4040f};
    return model->channels == 3 ? means[plane] : 0.0f;
}

bool swinir_is_buffer(const char *name)
{
    static const char *const ends[] = {".relative_position_index", ".attn_mask"};
    const size_t length = strlen(name);
    for (size_t i = 0; i < COUNT_OF(ends); i++)
        if (length > strlen(ends[i]) && strcmp(name + length - strlen(ends[i]), ends[i]) == 0)
            return true;
    return false;
}

clattn_status swinir_refuse(swinir *model, const char *format, ...)
{
    char *text = model->error.message;
    const size_t length = strlen(model->path), bytes = sizeof model->error.message;
    const bool cut = length > PATH_SHOWN;
    const int used =
        snprintf(text, bytes, "%s%s: ", cut ? "..." : "", cut ? model->path + length - PATH_SHOWN : model->path);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + used, bytes - (size_t)used, format, arguments);
    va_end(arguments);
    return CLATTN_ERROR_FORMAT;
}

clattn_status swinir_open(const char *path, swinir *model)
{
    *model = (swinir){.path = path};
    const clattn_status status = clattn_safetensors_create(path, &model->file, &model->error);
    return status == CLATTN_SUCCESS ? swinir_read_shape(model) : status;
}

/* ---- weights ---- */

/* Refuses tensors that SwinIR does not have: they belong to a model that computes something else. */
static clattn_status check_unused(swinir *model)
{
    clattn_safetensors_entry entry;
    const size_t length = strlen(model->prefix);
    for (size_t i = 0; clattn_safetensors_at(model->file, i, &entry) == CLATTN_SUCCESS; i++)
        if (strncmp(entry.name, model->prefix, length) == 0 && !swinir_is_buffer(entry.name) &&
            !clattn_transformer_has_read(model->transformer, entry.name))
            return swinir_refuse(model, "has a tensor %.100s of shape %s, expected those of SwinIR alone", entry.name,
                                 shape_of(&entry.tensor).text);
    return CLATTN_SUCCESS;
}

clattn_status swinir_load(swinir *model, clattn_context *context, clattn_dtype dtype)
{
    clattn_transformer_desc desc = CLATTN_TRANSFORMER_DESC_INIT;
    clattn_weight_source source = CLATTN_WEIGHT_SOURCE_INIT;
    desc.encoder = model->stage;
    desc.dtype = dtype;
    source.lookup = clattn_safetensors_lookup;
    source.user = model->file;
    source.format = CLATTN_NAME_FORMAT_SWINIR;
    source.prefix = model->prefix[0] != '\0' ? model->prefix : NULL;
    const clattn_status status = clattn_transformer_create(context, &desc, &source, &model->transformer);
    return status == CLATTN_SUCCESS ? check_unused(model) : status;
}

void swinir_close(swinir *model)
{
    clattn_transformer_release(&model->transformer);
    clattn_safetensors_release(&model->file);
    *model = (swinir){0};
}
