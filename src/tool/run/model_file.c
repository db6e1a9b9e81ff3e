#include "tool/run/model_file.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/try.h"
#include "io/os_file.h"
#include "tool/cli/json_text.h"

bool model_path_in(const char *folder, const char *name, model_path *path)
{
    int length = snprintf(path->text, sizeof path->text, "%s/%s", folder, name);
    return length > 0 && (size_t)length < sizeof path->text;
}

clattn_status model_file_read(const char *path, size_t most, char **text, size_t *bytes, clattn_io_error *error)
{
    os_file file = OS_FILE_INIT;
    char *contents = NULL;
    clattn_status status;
    *text = NULL;
    TRY(os_file_open(&file, path, error));
    if (file.size > most)
        TRY(io_fail(error, CLATTN_ERROR_UNSUPPORTED, path, "has %zu bytes, expected at most %zu", file.size, most));
    contents = malloc(file.size + 1);
    if (contents == NULL)
        TRY(io_fail(error, CLATTN_ERROR_OUT_OF_MEMORY, path, "no memory for its contents"));
    TRY(os_file_read(&file, 0, contents, file.size, error));
    contents[file.size] = '\0';
    *text = contents;
    *bytes = file.size;
    contents = NULL;
fail:
    free(contents);
    os_file_close(&file);
    return status;
}

json_t *model_json(const char *text, size_t bytes, size_t flags, json_error_t *problem, bool *no_memory)
{
    json_t *value = json_loadb(text, bytes, flags, problem);
    *no_memory = json_memory_failed();
    if (*no_memory) {
        json_decref(value);
        value = NULL;
    }
    return value;
}

clattn_status model_file_json(const char *path, size_t most, json_t **root, clattn_io_error *error)
{
    char *text = NULL;
    size_t bytes = 0;
    json_error_t problem;
    *root = NULL;
    clattn_status status = model_file_read(path, most, &text, &bytes, error);
    if (status != CLATTN_SUCCESS)
        return status;
    bool no_memory;
    *root = model_json(text, bytes, JSON_REJECT_DUPLICATES, &problem, &no_memory);
    free(text);
    if (no_memory)
        return io_fail(error, CLATTN_ERROR_OUT_OF_MEMORY, path, "no memory for its contents");
    return *root != NULL ? CLATTN_SUCCESS
                         : io_fail(error, CLATTN_ERROR_FORMAT, path, "is not JSON, at byte %d: %s", problem.position,
                                   problem.text);
}
