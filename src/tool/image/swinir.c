#include "tool/image/swinir.h"

#include <string.h>

#include "base/size.h"
#include "tool/image/find.h"
#include "tool/run/model_config.h"

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

int swinir_open(const char *path, swinir *model)
{
    clattn_io_error error;
    int status;
    *model = (swinir){0};
    TOOL_TRY(find_weights(path, &model->path));
    const clattn_status opened = clattn_safetensors_create(model->path.text, &model->file, &error);
    if (opened != CLATTN_SUCCESS)
        return model_file_fail(opened, &error);
    status = swinir_read_shape(model);
fail:
    return status;
}

/* ---- weights ---- */

/* Refuses tensors that SwinIR does not have: they belong to a model that computes something else. */
static int check_unused(const swinir *model)
{
    clattn_safetensors_entry entry;
    const size_t length = strlen(model->prefix);
    for (size_t i = 0; clattn_safetensors_at(model->file, i, &entry) == CLATTN_SUCCESS; i++)
        if (strncmp(entry.name, model->prefix, length) == 0 && !swinir_is_buffer(entry.name) &&
            !clattn_transformer_has_read(model->transformer, entry.name))
            return complain(TOOL_BAD_INPUT, "%s: has a tensor %.100s of shape %s, expected those of SwinIR alone",
                            model->path.text, entry.name, shape_of(&entry.tensor).text);
    return TOOL_DONE;
}

int swinir_load(swinir *model, const tool_device *device, clattn_dtype dtype)
{
    clattn_transformer_desc desc = CLATTN_TRANSFORMER_DESC_INIT;
    clattn_weight_source source = CLATTN_WEIGHT_SOURCE_INIT;
    desc.encoder = model->stage;
    desc.dtype = dtype;
    source.lookup = clattn_safetensors_lookup;
    source.user = model->file;
    source.format = CLATTN_NAME_FORMAT_SWINIR;
    source.prefix = model->prefix[0] != '\0' ? model->prefix : NULL;
    const clattn_status created = clattn_transformer_create(device->context, &desc, &source, &model->transformer);
    const int status = device_check(device, created, model->path.text);
    return status == TOOL_DONE ? check_unused(model) : status;
}

void swinir_close(swinir *model)
{
    clattn_transformer_release(&model->transformer);
    clattn_safetensors_release(&model->file);
    *model = (swinir){0};
}
