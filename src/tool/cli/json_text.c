#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "tool/cli/json_text.h"

static atomic_bool memory_failed;

static void *allocate(size_t bytes)
{
    void *memory = malloc(bytes);
    if (memory == NULL)
        memory_failed = true;
    return memory;
}

void json_watch_memory(void)
{
    json_set_alloc_funcs(allocate, free);
}

bool json_memory_failed(void)
{
    return memory_failed;
}

json_t *json_text(const char *text)
{
    json_t *value = json_string(text);
    if (value != NULL)
        return value;
    /* Device names come from drivers: a damaged name is better than no report. */
    size_t length = strlen(text);
    char *ascii = malloc(length + 1);
    if (ascii == NULL)
        return NULL;
    for (size_t i = 0; i <= length; i++)
        ascii[i] = (unsigned char)text[i] < 0x80 ? text[i] : '?';
    value = json_string(ascii);
    free(ascii);
    return value;
}
