#include "tool/text/text_model.h"

#include <string.h>

#include "base/try.h"
#include "io/os_file.h"
#include "tool/cli/json_text.h"
#include "tool/cli/os_tool.h"
#include "tool/run/model_config.h"
#include "tool/tool.h"

#define VERSION 1 /* of config.json */

static const char *const kind_names[] = {[TEXT_KIND_TRANSLATION] = "translation", [TEXT_KIND_TEXT] = "text"};
static const char *const place_names[] = {[CLATTN_NORM_PLACE_POST] = "post", [CLATTN_NORM_PLACE_PRE] = "pre"};

bool text_shape_preset(const char *preset, text_kind kind, text_shape *shape)
{
    const bool translation = kind == TEXT_KIND_TRANSLATION;
    if (strcmp(preset, "tiny") == 0)
        *shape = (text_shape){.decoder_layers = translation ? 3 : 4,
                              .d_model = 256,
                              .heads = 4,
                              .d_ff = 1024,
                              .vocabulary = 8000,
                              .target_length = translation ? 128 : 256,
                              .norm_place = CLATTN_NORM_PLACE_PRE};
    else if (strcmp(preset, "base") == 0)
        *shape = (text_shape){.decoder_layers = 6,
                              .d_model = 512,
                              .heads = 8,
                              .d_ff = 2048,
                              .vocabulary = 16000,
                              .target_length = translation ? 256 : 512,
                              .norm_place = CLATTN_NORM_PLACE_POST};
    else
        return false;
    shape->kind = kind;
    shape->encoder_layers = translation ? shape->decoder_layers : 0;
    shape->source_length = translation ? shape->target_length : 0;
    return true;
}

static clattn_stack_desc describe_stack(const text_shape *shape, size_t layers)
{
    clattn_stack_desc stack = CLATTN_STACK_DESC_INIT;
    stack.layers = layers;
    stack.d_model = shape->d_model;
    stack.heads = shape->heads;
    stack.d_ff = shape->d_ff;
    stack.activation = CLATTN_ACTIVATION_RELU;
    stack.norm_place = shape->norm_place;
    stack.final_norm = shape->norm_place == CLATTN_NORM_PLACE_PRE;
    stack.input = CLATTN_STACK_INPUT_TOKENS;
    stack.positions = CLATTN_POSITIONS_SINUSOIDS;
    stack.vocabulary = shape->vocabulary;
    stack.scale_embeddings = 1;
    return stack;
}

void text_shape_describe(const text_shape *shape, clattn_transformer_desc *desc, clattn_stack_desc *encoder,
                         clattn_stack_desc *decoder)
{
    *desc = (clattn_transformer_desc)CLATTN_TRANSFORMER_DESC_INIT;
    *encoder = describe_stack(shape, shape->encoder_layers);
    *decoder = describe_stack(shape, shape->decoder_layers);
    decoder->causal = 1;
    decoder->cross = shape->kind == TEXT_KIND_TRANSLATION;
    desc->encoder = decoder->cross ? encoder : NULL;
    desc->decoder = decoder;
    desc->output = CLATTN_MODEL_OUTPUT_TIED;
}

int text_shape_write(const char *folder, const text_shape *shape)
{
    const bool translation = shape->kind == TEXT_KIND_TRANSLATION;
    model_path path;
    clattn_io_error error;
    if (!model_path_in(folder, TEXT_MODEL_CONFIG, &path))
        return complain(TOOL_BAD_INPUT, "%s: the folder's name is too long", folder);
    json_t *root = json_pack("{s:i, s:s, s:s}", "clattn_text", VERSION, "kind", kind_names[shape->kind], "norm_place",
                             place_names[shape->norm_place]);
    const struct {
        const char *name;
        size_t value;
        bool written;
    } sizes[] = {{"encoder_layers", shape->encoder_layers, translation},
                 {"decoder_layers", shape->decoder_layers, true},
                 {"d_model", shape->d_model, true},
                 {"heads", shape->heads, true},
                 {"d_ff", shape->d_ff, true},
                 {"vocabulary", shape->vocabulary, true},
                 {"source_length", shape->source_length, translation},
                 {"target_length", shape->target_length, true}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (sizes[i].written)
            json_object_set_new(root, sizes[i].name, json_integer((json_int_t)sizes[i].value));
    char *text = json_dumps(root, JSON_INDENT(2));
    json_decref(root);
    int status = TOOL_DONE;
    if (text == NULL || json_memory_failed())
        TOOL_TRY(complain(TOOL_FAILED, "%s: no memory to write it", path.text));
    const os_part parts[] = {{text, strlen(text)}, {"\n", 1}};
    if (os_file_replace(path.text, parts, 2, &error) != CLATTN_SUCCESS)
        status = complain(TOOL_FAILED, "%s", error.message);
fail:
    json_release(text);
    return status;
}

/* Which of two names the value called `name` is. */
static clattn_status read_name(model_config *c, const char *name, const char *const names[2], int *which)
{
    const json_t *value = model_config_value(c, name);
    char expected[64];
    for (*which = 0; json_is_string(value) && *which < 2; ++*which)
        if (strcmp(json_string_value(value), names[*which]) == 0)
            return CLATTN_SUCCESS;
    snprintf(expected, sizeof expected, "\"%s\" or \"%s\"", names[0], names[1]);
    return model_config_wrong(c, name, expected);
}

static clattn_status read_shape(model_config *c, text_shape *shape)
{
    const json_t *version = model_config_value(c, "clattn_text");
    int kind, place;
    clattn_status status;
    if (!json_is_integer(version) || json_integer_value(version) != VERSION)
        return model_config_wrong(c, "clattn_text", "1, the version that this clattn knows");
    TRY(read_name(c, "kind", kind_names, &kind));
    TRY(read_name(c, "norm_place", place_names, &place));
    shape->kind = (text_kind)kind;
    shape->norm_place = (clattn_norm_place)place;
    const struct {
        const char *name;
        size_t most, *size;
    } sizes[] = {{"decoder_layers", 1024, &shape->decoder_layers},
                 {"d_model", 65536, &shape->d_model},
                 {"heads", 65536, &shape->heads},
                 {"d_ff", (size_t)1 << 20, &shape->d_ff},
                 {"vocabulary", VOCABULARY_MOST, &shape->vocabulary},
                 {"target_length", TEXT_MODEL_MOST_TOKENS, &shape->target_length},
                 {"encoder_layers", 1024, &shape->encoder_layers},
                 {"source_length", TEXT_MODEL_MOST_TOKENS, &shape->source_length}};
    const size_t count = sizeof sizes / sizeof sizes[0];
    for (size_t i = 0; i < (shape->kind == TEXT_KIND_TRANSLATION ? count : count - 2); i++)
        TRY(model_config_size(c, sizes[i].name, sizes[i].most, sizes[i].size));
    if (shape->d_model % shape->heads != 0)
        return io_fail(&c->error, CLATTN_ERROR_FORMAT, c->path.text,
                       "d_model is %zu, expected a multiple of heads, %zu", shape->d_model, shape->heads);
fail:
    return status;
}

int text_shape_read(const char *folder, text_shape *shape)
{
    model_config c;
    int status;
    *shape = (text_shape){0};
    TOOL_TRY(model_config_open(folder, TEXT_MODEL_CONFIG, false, &c));
    TOOL_TRY(model_config_close(&c, read_shape(&c, shape)));
fail:
    return status;
}

int text_model_open(const char *folder, text_model *model)
{
    model_path path;
    int status;
    *model = (text_model){.folder = folder};
    if (os_look_at(folder) != OS_PATH_FOLDER)
        return complain(TOOL_BAD_INPUT, "%s: is no folder, expected one with %s, %s and %s", folder, TEXT_MODEL_CONFIG,
                        TEXT_MODEL_VOCABULARY, TEXT_MODEL_WEIGHTS);
    TOOL_TRY(text_shape_read(folder, &model->shape));
    model_path_in(folder, TEXT_MODEL_VOCABULARY, &path);
    TOOL_TRY(vocabulary_open(path.text, &model->vocabulary));
    const size_t pieces = vocabulary_size(model->vocabulary);
    if (pieces != model->shape.vocabulary)
        status = complain(TOOL_BAD_INPUT, "%s: has %zu pieces, expected config.json's vocabulary, %zu", path.text,
                          pieces, model->shape.vocabulary);
fail:
    return status;
}

void text_model_close(text_model *model)
{
    vocabulary_close(model->vocabulary);
    model->vocabulary = NULL;
}
