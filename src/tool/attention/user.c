/* The user's score and mask functions: their source, and what they read. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool/attention/options.h"
#include "tool/cli/os_tool.h"

/* The source of the function `name` as one string. */
static int load_snippet(const char *name, const char *path, char **text)
{
    if (path == NULL)
        return TOOL_DONE;
    FILE *file = os_open_for_reading(path);
    if (file == NULL)
        return complain(TOOL_BAD_INPUT, "%s: cannot be opened: %s", path, strerror(errno));
    char *source = calloc(CLATTN_SNIPPET_LIMIT + 1, 1);
    size_t length = source != NULL ? fread(source, 1, CLATTN_SNIPPET_LIMIT, file) : 0;
    int unread = ferror(file) ? errno : 0;
    fclose(file);
    *text = source;
    if (source == NULL)
        return complain(TOOL_FAILED, "%s: out of memory", path);
    if (unread != 0)
        return complain(TOOL_BAD_INPUT, "%s: cannot be read: %s", path, strerror(unread));
    if (length >= CLATTN_SNIPPET_LIMIT)
        return complain(TOOL_BAD_INPUT, "%s: has %d bytes or more, expected at most %d of OpenCL C", path,
                        CLATTN_SNIPPET_LIMIT, CLATTN_SNIPPET_LIMIT - 1);
    if (length == 0 || memchr(source, '\0', length) != NULL)
        return complain(TOOL_BAD_INPUT, "%s: is %s, expected OpenCL C", path, length == 0 ? "empty" : "no text");
    device_name_file(name, path);
    return TOOL_DONE;
}

/* "2:rest" */
static int split(const char *option, const char *expected, const char *text, const char **rest, size_t *number)
{
    *number = (size_t)(text[0] - '0');
    *rest = text + 2;
    if (text[0] >= '0' && *number < CLATTN_USER_BUFFERS && text[1] == ':' && text[2] != '\0')
        return TOOL_DONE;
    return complain(TOOL_BAD_INPUT, "%s '%s' is not valid, expected %s with N from 0 to %d", option, text, expected,
                    CLATTN_USER_BUFFERS - 1);
}

static int load_buffer(const char *text, attention_request *request)
{
    const char *path;
    size_t number;
    int status;
    TOOL_TRY(split("--user", "N:FILE.npy", text, &path, &number));
    host_array *array = &request->input[INPUT_USER + number];
    if (host_present(array))
        return complain(TOOL_BAD_INPUT, "--user %zu is given twice", number);
    TOOL_TRY(host_load(path, array));
    if (array->tensor.dtype == CLATTN_DTYPE_F64)
        TOOL_TRY(
            complain(TOOL_BAD_INPUT, "%s: element type float64, expected float32, float16 or an integer type", path));
fail:
    return status;
}

static int take_scalar(const char *text, bool *given, attention_request *request)
{
    const char *value;
    size_t number;
    int status = split("--user-scalar", "N:X", text, &value, &number);
    if (status != TOOL_DONE)
        return status;
    if (given[number])
        return complain(TOOL_BAD_INPUT, "--user-scalar %zu is given twice", number);
    given[number] = true;
    if (!option_parse_float(value, &request->args.snippets.scalar[number]))
        return complain(TOOL_BAD_INPUT, "--user-scalar '%s' is not valid, expected a finite float32 number", text);
    return TOOL_DONE;
}

int attention_load_user(const attention_options *options, attention_request *request)
{
    bool given[CLATTN_USER_BUFFERS] = {false};
    int status;
    TOOL_TRY(load_snippet("score_mod", options->score_mod, &request->score_mod));
    TOOL_TRY(load_snippet("mask_mod", options->mask_mod, &request->mask_mod));
    TOOL_TRY(load_snippet("score_mod_grad", options->score_mod_grad, &request->score_mod_grad));
    for (size_t i = 0; i < options->user.count; i++)
        TOOL_TRY(load_buffer(options->user.item[i], request));
    for (size_t i = 0; i < options->user_scalar.count; i++)
        TOOL_TRY(take_scalar(options->user_scalar.item[i], given, request));
fail:
    return status;
}

/* The library found nothing wrong with the functions themselves, but their names may clash with the kernels'.  The first
 * error tells most. */
static int snippets_do_not_fit(const attention_options *options, const char *log)
{
    const char *score = options->score_mod, *mask = options->mask_mod, *grad = options->score_mod_grad;
    const char *found = strstr(log, "error");
    while (found != NULL && found > log && found[-1] != '\n')
        found--;
    if (found == NULL)
        found = log;
    return complain(TOOL_BAD_INPUT, "%s%s%s%s%s: does not compile together with the kernels: %.*s",
                    score != NULL ? score : "", score != NULL && mask != NULL ? " or " : "", mask != NULL ? mask : "",
                    grad != NULL ? " or " : "", grad != NULL ? grad : "", (int)strcspn(found, "\n"), found);
}

int attention_plan_check(const attention_options *options, const tool_device *device, clattn_status made)
{
    const char *names[] = {"score_mod:", "mask_mod:", "score_mod_grad:"};
    const char *files[] = {options->score_mod, options->mask_mod, options->score_mod_grad};
    char text[4096];
    device_message(device, made, text, sizeof text);
    for (int i = 0; i < 3 && made == CLATTN_ERROR_BUILD; i++) {
        const char *found = files[i] != NULL ? strstr(text, names[i]) : NULL;
        if (found != NULL)
            return complain(TOOL_BAD_INPUT, "%s:%.*s", files[i], (int)strcspn(found, "\n") - (int)strlen(names[i]),
                            found + strlen(names[i]));
    }
    if (made == CLATTN_ERROR_BUILD && (files[0] != NULL || files[1] != NULL))
        return snippets_do_not_fit(options, text);
    return device_check(device, made, NULL);
}
