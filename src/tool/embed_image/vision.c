#include "tool/embed_image/vision.h"

#include <stdio.h>
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
