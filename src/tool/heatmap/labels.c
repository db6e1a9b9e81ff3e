#include "tool/heatmap/labels.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool/cli/os_tool.h"
#include "tool/tool.h"

/* Reads at most one byte more than `count` labels can have, from a file of any kind, pipes included. */
static int read_text(const char *path, size_t count, char **text, size_t *length)
{
    size_t most = count < SIZE_MAX / (LABEL_BYTES + 4) ? (count + 1) * (LABEL_BYTES + 2) : SIZE_MAX - 1;
    size_t capacity = 0;
    if (os_look_at(path) == OS_PATH_FOLDER)
        return complain(TOOL_BAD_INPUT, "%s: is a directory, expected a file of labels", path);
    FILE *file = os_open_for_reading(path);
    if (file == NULL)
        return complain(TOOL_BAD_INPUT, "%s: cannot be opened: %s", path, strerror(errno));
    int status = TOOL_DONE;
    while (!feof(file) && *length <= most) {
        if (capacity - *length < 4096) {
            capacity = 2 * capacity + 4096;
            char *more = realloc(*text, capacity + 1);
            if (more == NULL)
                TOOL_TRY(complain(TOOL_FAILED, "%s: out of memory", path));
            *text = more;
        }
        *length += fread(*text + *length, 1, capacity - *length, file);
        if (ferror(file))
            TOOL_TRY(complain(TOOL_BAD_INPUT, "%s: cannot be read: %s", path, strerror(errno)));
    }
    (*text)[*length] = '\0';
fail:
    fclose(file);
    return status;
}

int labels_load(const char *path, size_t count, const char *of, label_list *result)
{
    size_t length = 0, found = 0;
    *result = (label_list){0};
    int status;
    TOOL_TRY(read_text(path, count, &result->text, &length));
    result->label = calloc(count + 1, sizeof *result->label);
    if (result->label == NULL)
        TOOL_TRY(complain(TOOL_FAILED, "%s: out of memory", path));
    if (memchr(result->text, '\0', length) != NULL)
        TOOL_TRY(complain(TOOL_BAD_INPUT, "%s: is no text, expected a label a line", path));
    for (char *line = result->text, *end = line + length; line < end; found++) {
        char *next = memchr(line, '\n', (size_t)(end - line));
        char *stop = next != NULL ? next : end;
        size_t bytes = (size_t)(stop - line);
        if (bytes > 0 && stop[-1] == '\r')
            bytes--;
        if (bytes > LABEL_BYTES)
            TOOL_TRY(complain(TOOL_BAD_INPUT, "%s: line %zu has more than %d bytes, expected a label", path, found + 1,
                              LABEL_BYTES));
        line[bytes] = '\0';
        if (found < count)
            result->label[found] = line;
        line = stop + 1;
    }
    if (found != count)
        TOOL_TRY(complain(TOOL_BAD_INPUT, "%s: has %zu lines%s, expected %zu: a label for each of the %s", path, found,
                          found > count ? " or more" : "", count, of));
fail:
    if (status != TOOL_DONE)
        labels_release(result);
    return status;
}

void labels_release(label_list *l)
{
    free(l->text);
    free(l->label);
    *l = (label_list){0};
}
