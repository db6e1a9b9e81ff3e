/* What the tensors of a model of pictures say about its sizes. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/try.h"
#include "io/common.h"
#include "tool/embed_image/vision.h"
#include "tool/run/model_tensors.h"

#define MOST_LAYERS 1024
#define MOST_SIZE ((size_t)1 << 20)
#define NAME_BYTES 256

static size_t name_of(const vision_model *model, const char *prefix, const char *canonical, char name[NAME_BYTES],
                      size_t *shares)
{
    clattn_weight_source source = CLATTN_WEIGHT_SOURCE_INIT;
    size_t share;
    int32_t transposed;
    source.format = model->format;
    source.prefix = prefix;
    return clattn_weight_name(&source, canonical, name, NAME_BYTES, &share, shares, &transposed);
}

static clattn_host_tensor find(const vision_model *model, const char *canonical, char name[NAME_BYTES], size_t *shares)
{
    clattn_host_tensor tensor = {0};
    if (name_of(model, model->prefix, canonical, name, shares) < NAME_BYTES)
        clattn_safetensors_find(model->file, name, &tensor, NULL);
    return tensor;
}

clattn_host_tensor vision_tensor(const vision_model *model, const char *canonical)
{
    char name[NAME_BYTES];
    size_t shares;
    return find(model, canonical, name, &shares);
}

clattn_host_tensor vision_named_tensor(const vision_model *model, const char *name)
{
    char whole[NAME_BYTES];
    clattn_host_tensor tensor = {0};
    snprintf(whole, sizeof whole, "%s%s", model->prefix, name);
    clattn_safetensors_find(model->file, whole, &tensor, NULL);
    return tensor;
}

static clattn_status read_prefix(vision_model *model, clattn_io_error *error)
{
    char name[NAME_BYTES];
    size_t shares;
    if (find_prefix(model->file, model->format, model->prefix))
        return CLATTN_SUCCESS;
    name_of(model, NULL, "encoder.patches.weight", name, &shares);
    return io_fail(error, CLATTN_ERROR_FORMAT, model->weights.text,
                   "has no tensor %s, expected the weights of the model in config.json", name);
}

/* Extent `from_last` of a tensor, counted from the last, which must be a size. */
static clattn_status read_extent(const vision_model *model, const char *canonical, int32_t from_last, size_t *size,
                                 clattn_io_error *error)
{
    char name[NAME_BYTES];
    size_t shares;
    const clattn_host_tensor tensor = find(model, canonical, name, &shares);
    const int32_t at = tensor.rank - from_last;
    if (tensor.dtype == CLATTN_DTYPE_NONE)
        return io_fail(error, CLATTN_ERROR_FORMAT, model->weights.text,
                       "has no tensor %s, expected the weights of the model in config.json", name);
    if (at < 0 || tensor.extent[at] < 1 || tensor.extent[at] > MOST_SIZE || tensor.extent[at] % shares != 0)
        return io_fail(error, CLATTN_ERROR_FORMAT, model->weights.text, "%s is of shape %s, which no model has", name,
                       shape_of(&tensor).text);
    *size = tensor.extent[at] / shares;
    return CLATTN_SUCCESS;
}

/* Counts the layers. */
static clattn_status count_layers(vision_model *model, clattn_io_error *error)
{
    char stem[NAME_BYTES], *number;
    size_t shares;
    clattn_status status;
    name_of(model, model->prefix, "encoder.layers.0.self.norm.weight", stem, &shares);
    number = strstr(stem, ".0.");
    if (number == NULL)
        return io_fail(error, CLATTN_ERROR_INTERNAL, model->weights.text, "layers have no numbers");
    number[1] = '\0';
    TRY(model_count_numbered(model->file, model->weights.text, stem, MOST_LAYERS, &model->stack.layers, error));
    if (model->stack.layers == 0)
        status = io_fail(error, CLATTN_ERROR_FORMAT, model->weights.text, "has no tensor %s0.", stem);
fail:
    return status;
}

clattn_status vision_read_tensors(vision_model *model, clattn_io_error *error)
{
    clattn_stack_desc *stack = &model->stack;
    clattn_patches *patches = &stack->patches;
    clattn_status status;
    TRY(read_prefix(model, error));
    TRY(read_extent(model, "encoder.patches.weight", 4, &stack->d_model, error));
    TRY(read_extent(model, "encoder.patches.weight", 3, &patches->channels, error));
    TRY(read_extent(model, "encoder.patches.weight", 2, &patches->height, error));
    TRY(read_extent(model, "encoder.patches.weight", 1, &patches->width, error));
    TRY(read_extent(model, "encoder.positions.weight", 2, &stack->position_count, error));
    TRY(count_layers(model, error));
    TRY(read_extent(model, "encoder.layers.0.feed_forward.in.weight", 2, &stack->d_ff, error));
fail:
    return status;
}

clattn_status vision_set_grid(vision_model *model, const model_config *c, size_t others, const size_t pixels[2],
                              clattn_io_error *error)
{
    clattn_patches *patches = &model->stack.patches;
    const size_t rows = model->stack.position_count;
    for (int i = 0; i < 2; i++) {
        const size_t patch = i == 0 ? patches->height : patches->width;
        if (pixels[i] % patch != 0)
            return io_fail(error, CLATTN_ERROR_FORMAT, c->path.text,
                           "pictures of %zu x %zu pixels are not divisible into patches of %zu x %zu", pixels[0],
                           pixels[1], patches->height, patches->width);
    }
    if (pixels[0] != 0) {
        patches->grid_rows = pixels[0] / patches->height;
        patches->grid_columns = pixels[1] / patches->width;
    } else {
        const size_t cells = rows > others ? rows - others : 0, root = (size_t)lrint(sqrt((double)cells));
        if (cells == 0 || root * root != cells)
            return io_fail(error, CLATTN_ERROR_FORMAT, model->weights.text,
                           "has %zu positions, expected %zu and those of a square grid of patches", rows, others);
        patches->grid_rows = patches->grid_columns = root;
    }
    model->stack.position_count = patches->grid_rows * patches->grid_columns + others;
    return CLATTN_SUCCESS;
}
