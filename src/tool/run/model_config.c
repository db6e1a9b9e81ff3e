#include "tool/run/model_config.h"

#include <stdio.h>
#include <string.h>

#include "base/try.h"
#include "io/common.h"
#include "tool/cli/os_tool.h"
#include "tool/run/device.h"

#define MOST_BYTES ((size_t)1 << 20)

int model_file_fail(clattn_status status, const clattn_io_error *error)
{
    return complain(exit_status_of(status), "%s", error->message);
}

/* Whether the subfolder that `name` lies in exists; true if `name` lies in the model's folder itself. */
static bool has_folder(const char *folder, const char *name)
{
    model_path path;
    char *slash = model_path_in(folder, name, &path) && strchr(name, '/') != NULL ? strrchr(path.text, '/') : NULL;
    if (slash == NULL)
        return true;
    *slash = '\0';
    return os_look_at(path.text) != OS_PATH_MISSING;
}

int model_config_open(const char *folder, const char *name, bool optional, model_config *c)
{
    *c = (model_config){0};
    if (!model_path_in(folder, name, &c->path))
        return complain(TOOL_BAD_INPUT, "%s: the folder's name is too long", folder);
    if (optional && (os_look_at(c->path.text) == OS_PATH_MISSING || !has_folder(folder, name)))
        return TOOL_DONE;
    clattn_status status = model_file_json(c->path.text, MOST_BYTES, &c->root, &c->error);
    c->at = c->root;
    return status == CLATTN_SUCCESS ? TOOL_DONE : model_file_fail(status, &c->error);
}

int model_config_close(model_config *c, clattn_status status)
{
    json_decref(c->root);
    c->root = NULL;
    c->at = NULL;
    return status == CLATTN_SUCCESS ? TOOL_DONE : model_file_fail(status, &c->error);
}

const json_t *model_config_value(const model_config *c, const char *name)
{
    const json_t *value = json_object_get(c->at, name);
    return json_is_null(value) ? NULL : value;
}

clattn_status model_config_wrong(model_config *c, const char *name, const char *expected)
{
    const json_t *value = model_config_value(c, name);
    char found[48] = "another type";
    if (value == NULL)
        snprintf(found, sizeof found, "nothing");
    else if (json_is_integer(value))
        snprintf(found, sizeof found, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        snprintf(found, sizeof found, "%g", json_real_value(value));
    else if (json_is_string(value))
        snprintf(found, sizeof found, "\"%.40s\"", json_string_value(value));
    else if (json_is_boolean(value))
        snprintf(found, sizeof found, json_is_true(value) ? "true" : "false");
    return io_fail(&c->error, CLATTN_ERROR_FORMAT, c->path.text, "%s is %s, expected %s", name, found, expected);
}

clattn_status model_config_size(model_config *c, const char *name, size_t most, size_t *size)
{
    char expected[64];
    const json_t *value = model_config_value(c, name);
    json_int_t found = json_integer_value(value);
    if (json_is_integer(value) && found >= 1 && (uint64_t)found <= most) {
        *size = (size_t)found;
        return CLATTN_SUCCESS;
    }
    snprintf(expected, sizeof expected, "a whole number from 1 to %zu", most);
    return model_config_wrong(c, name, expected);
}

clattn_status model_config_optional_size(model_config *c, const char *name, size_t most, size_t *size)
{
    return model_config_value(c, name) == NULL ? CLATTN_SUCCESS : model_config_size(c, name, most, size);
}

clattn_status model_config_number(model_config *c, const char *name, double least, double most, float *number)
{
    char expected[64];
    const json_t *value = model_config_value(c, name);
    const double found = json_number_value(value);
    if (value == NULL)
        return CLATTN_SUCCESS;
    if (json_is_number(value) && found >= least && found <= most) {
        *number = (float)found;
        return CLATTN_SUCCESS;
    }
    snprintf(expected, sizeof expected, "a number from %g to %g", least, most);
    return model_config_wrong(c, name, expected);
}

clattn_status model_config_flag(model_config *c, const char *name, bool *flag)
{
    const json_t *value = model_config_value(c, name);
    if (value == NULL)
        return CLATTN_SUCCESS;
    if (!json_is_boolean(value))
        return model_config_wrong(c, name, "true or false");
    *flag = json_is_true(value);
    return CLATTN_SUCCESS;
}

clattn_status model_config_activation(model_config *c, const char *name, clattn_stack_desc *stack)
{
    static const struct {
        const char *name;
        clattn_activation value;
        float alpha; /* 0: none */
    } known[] = {{"gelu", CLATTN_ACTIVATION_GELU, 0},
                 {"gelu_new", CLATTN_ACTIVATION_GELU_TANH, 0},
                 {"gelu_pytorch_tanh", CLATTN_ACTIVATION_GELU_TANH, 0},
                 {"gelu_tanh", CLATTN_ACTIVATION_GELU_TANH, 0},
                 {"leaky_relu", CLATTN_ACTIVATION_LEAKY_RELU, 0},
                 {"quick_gelu", CLATTN_ACTIVATION_SWISH, 1.702f},
                 {"relu", CLATTN_ACTIVATION_RELU, 0},
                 {"silu", CLATTN_ACTIVATION_SWISH, 0},
                 {"swish", CLATTN_ACTIVATION_SWISH, 0}};
    const char *found = json_string_value(model_config_value(c, name));
    for (size_t i = 0; found != NULL && i < sizeof known / sizeof known[0]; i++)
        if (strcmp(found, known[i].name) == 0) {
            stack->activation = known[i].value;
            stack->explicit_alpha = known[i].alpha != 0;
            stack->alpha = known[i].alpha;
            return CLATTN_SUCCESS;
        }
    return model_config_wrong(c, name,
                              "gelu, gelu_new, gelu_pytorch_tanh, gelu_tanh, leaky_relu, quick_gelu, relu or silu");
}
