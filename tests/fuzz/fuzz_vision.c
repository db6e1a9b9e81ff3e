/* libFuzzer target for the files of a model of pictures, the weights' values excepted.
 *
 * The input is config.json, a NUL, preprocessor_config.json (absent if it is empty), a NUL, and lines of a tensor's name, a
 * space and its extents with commas between, of which a file of zeros is made.  Whatever the bytes: a status, or a model
 * whose sizes fit each other. */
#define _GNU_SOURCE
#include "fuzz_complain.h"
#include "fuzz_file.h"

#include <math.h>
#include <string.h>

#include "tool/embed_image/vision.h"

#define MOST_BYTES ((size_t)1 << 24) /* of a file of zeros */

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

/* The entry of one line, if it is one; returns the bytes of the tensor. */
static size_t write_entry(FILE *header, const char *line, size_t length, size_t at)
{
    const char *space = memchr(line, ' ', length);
    size_t bytes = 2, extents = 0;
    char shape[256] = "";
    if (space == NULL || space == line)
        return 0;
    for (const char *c = line; c < space; c++)
        if (*c < ' ' || *c > '~' || *c == '"' || *c == '\\')
            return 0;
    for (const char *from = space + 1; from < line + length && extents < 6; extents++) {
        char *end;
        const unsigned long extent = strtoul(from, &end, 10);
        if (end == from || (extent != 0 && bytes > MOST_BYTES / extent))
            return 0;
        bytes *= extent;
        snprintf(shape + strlen(shape), sizeof shape - strlen(shape), "%s%lu", extents > 0 ? "," : "", extent);
        from = end + 1;
    }
    fprintf(header, "%s\"%.*s\":{\"dtype\":\"F16\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
            ftell(header) > 9 ? "," : "", (int)(space - line), line, shape, at, at + bytes);
    return bytes;
}

static void write_weights(const char *lines, size_t length)
{
    size_t bytes = 0;
    FILE *header = fopen(fuzz_path("model.safetensors"), "wb");
    REQUIRE(header != NULL && fwrite("12345678{", 1, 9, header) == 9);
    while (length > 0 && bytes < MOST_BYTES) {
        const char *end = memchr(lines, '\n', length);
        const size_t line = end != NULL ? (size_t)(end - lines) : length;
        bytes += write_entry(header, lines, line, bytes);
        lines += end != NULL ? line + 1 : line;
        length -= end != NULL ? line + 1 : line;
    }
    fputc('}', header);
    const uint64_t size = (uint64_t)ftell(header) - 8;
    rewind(header);
    REQUIRE(fwrite(&size, sizeof size, 1, header) == 1 && fflush(header) == 0);
    REQUIRE(ftruncate(fileno(header), (off_t)(8 + size + bytes)) == 0 && fclose(header) == 0);
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
    write_weights(second + 1, (size_t)(end - second - 1));
    int status = vision_open(fuzz_folder(), &model);
    REQUIRE(status == TOOL_DONE || status == TOOL_BAD_INPUT);
    if (status == TOOL_DONE)
        check(&model);
    clattn_safetensors_release(&model.file);
    return 0;
}
