/* libFuzzer target for the files of a model of pictures, the weights' values excepted.
 *
 * The input is config.json, a NUL, preprocessor_config.json (absent if it is empty), a NUL, and tensors as
 * fuzz_weights.h explains.  Whatever the bytes: a status, or a model
 * whose sizes fit each other. */
#define _GNU_SOURCE
#include "fuzz_complain.h"
#include "fuzz_file.h"
#include "fuzz_weights.h"

#include <math.h>
#include <string.h>

#include "tool/embed_image/vision.h"

int exit_status_of(clattn_status status)
{
    REQUIRE(status == CLATTN_ERROR_FORMAT || status == CLATTN_ERROR_UNSUPPORTED || status == CLATTN_ERROR_OVERFLOW);
    return TOOL_BAD_INPUT;
}

void clattn_stack_desc_init(clattn_stack_desc *desc)
{
    *desc = (clattn_stack_desc){.size = sizeof *desc};
}

static void write_file(const char *name, const void *data, size_t bytes)
{
    FILE *file = fopen(fuzz_path(name), "wb");
    REQUIRE(file != NULL && fwrite(data, 1, bytes, file) == bytes && fclose(file) == 0);
}

static void check(const vision_model *model)
{
    const clattn_stack_desc *stack = &model->stack;
    const clattn_patches *patches = &stack->patches;
    const size_t others = stack->position_count - patches->grid_rows * patches->grid_columns;
    REQUIRE(stack->layers >= 1 && stack->heads >= 1 && stack->d_model % stack->heads == 0 && stack->d_ff >= 1);
    REQUIRE(patches->channels == 3 && patches->height >= 1 && patches->width >= 1);
    REQUIRE(patches->grid_rows >= 1 && patches->grid_columns >= 1 && others <= (size_t)patches->class_token);
    REQUIRE(stack->epsilon >= 0 && stack->epsilon <= 1);
    REQUIRE(vision_rows(model) >= 1 && vision_columns(model) >= 1 && vision_size(model) >= 1);
    for (int i = 0; i < 2; i++)
        REQUIRE(model->rule.size[i] >= 1 && model->rule.size[i] <= 8192 && model->rule.resized[i] <= 81920);
    REQUIRE(model->rule.resized[0] >= 1 && (model->rule.shortest || model->rule.resized[1] >= 1));
    for (int i = 0; i < 3; i++)
        REQUIRE(isfinite(model->rule.mean[i]) && model->rule.deviation[i] > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *config = (const char *)data, *end = config + size;
    const char *first = size > 0 ? memchr(config, '\0', size) : NULL;
    const char *second = first != NULL ? memchr(first + 1, '\0', (size_t)(end - first - 1)) : NULL;
    vision_model model;
    if (second == NULL)
        return 0;
    write_file("config.json", config, (size_t)(first - config));
    if (second > first + 1)
        write_file("preprocessor_config.json", first + 1, (size_t)(second - first - 1));
    else
        unlink(fuzz_path("preprocessor_config.json"));
    fuzz_write_weights(second + 1, (size_t)(end - second - 1));
    int status = vision_open(fuzz_folder(), &model);
    REQUIRE(status == TOOL_DONE || status == TOOL_BAD_INPUT);
    if (status == TOOL_DONE)
        check(&model);
    clattn_safetensors_release(&model.file);
    return 0;
}
