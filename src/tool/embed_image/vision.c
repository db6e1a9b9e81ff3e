#include "tool/embed_image/vision.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/try.h"
#include "io/common.h"
#include "tool/cli/os_tool.h"

size_t vision_rows(const vision_model *model)
{
    return model->rule.size[0] / model->stack.patches.height;
}

size_t vision_columns(const vision_model *model)
{
    return model->rule.size[1] / model->stack.patches.width;
}

size_t vision_first_patch(const vision_model *model)
{
    return (size_t)model->stack.patches.class_token + model->stack.patches.registers;
}

size_t vision_positions(const vision_model *model)
{
    return vision_first_patch(model) + vision_rows(model) * vision_columns(model);
}

size_t vision_size(const vision_model *model)
{
    return model->stack.projection != 0 ? model->stack.projection : model->stack.d_model;
}

/* Refuses pictures that the model's patches do not divide. */
static clattn_status check(const vision_model *model, const model_config *c, clattn_io_error *error)
{
    const clattn_patches *patches = &model->stack.patches;
    const size_t *size = model->rule.size;
    if (patches->channels != 3)
        return io_fail(error, CLATTN_ERROR_UNSUPPORTED, c->path.text,
                       "the model takes pictures of %zu channels, expected 3", patches->channels);
    if (size[0] % patches->height != 0 || size[1] % patches->width != 0)
        return io_fail(error, CLATTN_ERROR_FORMAT, c->path.text,
                       "pictures become %zu x %zu pixels, expected multiples of the patches' %zu x %zu", size[0],
                       size[1], patches->height, patches->width);
    return CLATTN_SUCCESS;
}

static int read_configs(vision_model *model)
{
    model_config c, processor;
    int status;
    TOOL_TRY(model_config_open(model->folder, "config.json", false, &c));
    if (model_config_value(&c, "model_type") == NULL && json_is_string(model_config_value(&c, "architecture"))) {
        clattn_status read = vision_read_timm(model, &c);
        if (read == CLATTN_SUCCESS)
            read = check(model, &c, &c.error);
        return model_config_close(&c, read);
    }
    TOOL_TRY(model_config_close(&c, vision_read_hugging_face(model, &c)));
    TOOL_TRY(model_config_open(model->folder, "preprocessor_config.json", true, &processor));
    clattn_status read = vision_read_processor(model, &processor);
    if (read == CLATTN_SUCCESS)
        read = check(model, processor.root != NULL ? &processor : &c, &processor.error);
    status = model_config_close(&processor, read);
fail:
    return status;
}

int vision_open(const char *folder, vision_model *model)
{
    clattn_io_error error;
    *model = (vision_model){.folder = folder};
    clattn_stack_desc_init(&model->stack);
    model->stack.input = CLATTN_STACK_INPUT_PICTURES;
    model->stack.positions = CLATTN_POSITIONS_TABLE;
    model->stack.activation = CLATTN_ACTIVATION_GELU;
    model->stack.norm_place = CLATTN_NORM_PLACE_PRE;
    model->stack.final_norm = 1;
    model->stack.explicit_epsilon = 1;
    if (os_look_at(folder) != OS_PATH_FOLDER)
        return complain(TOOL_BAD_INPUT, "%s: is no folder, expected one with config.json and model.safetensors",
                        folder);
    if (!model_path_in(folder, "model.safetensors", &model->weights))
        return complain(TOOL_BAD_INPUT, "%s: the folder's name is too long", folder);
    clattn_status status = clattn_safetensors_create(model->weights.text, &model->file, &error);
    return status == CLATTN_SUCCESS ? read_configs(model) : model_file_fail(status, &error);
}

/* ---- weights ---- */

/* The file, and which of its tensors the model has asked for. */
typedef struct tensors {
    clattn_safetensors *file;
    bool *used; /* one a tensor */
} tensors;

static clattn_status look_up(void *user, const char *name, clattn_host_tensor *tensor, clattn_io_error *error)
{
    const tensors *t = user;
    size_t low = 0, high = clattn_safetensors_count(t->file);
    clattn_safetensors_entry entry;
    while (low < high) { /* the first whose name is not below */
        const size_t middle = low + (high - low) / 2;
        clattn_safetensors_at(t->file, middle, &entry);
        if (strcmp(entry.name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (low < clattn_safetensors_count(t->file))
        t->used[low] = true;
    return clattn_safetensors_lookup(t->file, name, tensor, error);
}

/* Refuses tensors that a VisionTransformer does not have: they belong to a model that computes something else.  What makes
 * classes of the vector may be there. */
static int check_unused(const vision_model *model, const tensors *t)
{
    static const char *const heads[] = {"head.", "pre_logits."};
    clattn_safetensors_entry entry;
    for (size_t i = 0; clattn_safetensors_at(t->file, i, &entry) == CLATTN_SUCCESS; i++) {
        const size_t length = strlen(model->prefix);
        bool known = t->used[i] || strncmp(entry.name, model->prefix, length) != 0;
        for (size_t j = 0; j < COUNT_OF(heads); j++)
            known = known || strncmp(entry.name + length, heads[j], strlen(heads[j])) == 0;
        if (!known)
            return complain(TOOL_BAD_INPUT,
                            "%s: has a tensor %.100s of shape %s, expected those of a VisionTransformer alone",
                            model->weights.text, entry.name, shape_of(&entry.tensor).text);
    }
    return TOOL_DONE;
}

int vision_load(vision_model *model, tool_device *device)
{
    static const clattn_name_rule gated[] = {
        {"encoder.layers.{n}.feed_forward.gate.{kind}", "blocks.{n}.mlp.fc1.{kind}[0/2]"},
        {"encoder.layers.{n}.feed_forward.in.{kind}", "blocks.{n}.mlp.fc1.{kind}[1/2]"},
    };
    clattn_transformer_desc desc = CLATTN_TRANSFORMER_DESC_INIT;
    clattn_weight_source source = CLATTN_WEIGHT_SOURCE_INIT;
    tensors all = {.file = model->file, .used = calloc(clattn_safetensors_count(model->file) + 1, sizeof *all.used)};
    if (all.used == NULL)
        return complain(TOOL_FAILED, "%s: out of memory for its names", model->weights.text);
    desc.encoder = &model->stack;
    desc.dtype = model->dtype;
    source.lookup = look_up;
    source.user = &all;
    source.format = model->format;
    source.prefix = model->prefix[0] != '\0' ? model->prefix : NULL;
    source.rules = model->gated_timm ? gated : NULL;
    source.rule_count = model->gated_timm ? COUNT_OF(gated) : 0;
    model->device = device;
    clattn_status created = clattn_transformer_create(device->context, &desc, &source, &model->transformer);
    int status = device_check(device, created, model->weights.text);
    if (status == TOOL_DONE && model->format == CLATTN_NAME_FORMAT_TIMM_VIT)
        status = check_unused(model, &all);
    free(all.used);
    return status;
}

void vision_close(vision_model *model)
{
    clattn_plan_release(&model->plan);
    clattn_transformer_release(&model->transformer);
    clattn_safetensors_release(&model->file);
    *model = (vision_model){0};
}
