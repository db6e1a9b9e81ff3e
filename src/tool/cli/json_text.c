#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tool/cli/json_text.h"

static atomic_bool memory_failed;

/* What strings that are being read grow into once memory has failed: jansson 2.14 leaves out characters that have no room,
 * and ends the process by an assertion if one stood behind a backslash.  Their buffers have 32 bytes, 64, 128 and so on; all
 * else gets no memory from then on, so that jansson soon gives up. */
static _Alignas(max_align_t) char reserve[1 << 20];
static atomic_size_t reserve_taken;

static void *allocate(size_t bytes)
{
    void *memory = memory_failed ? NULL : malloc(bytes);
    if (memory != NULL)
        return memory;
    memory_failed = true;
    errno = ENOMEM; /* json_load counts on it */
    const bool power_of_2 = bytes >= 32 && (bytes & (bytes - 1)) == 0;
    if (!power_of_2 || bytes > sizeof reserve)
        return NULL;
    const size_t at = atomic_fetch_add(&reserve_taken, bytes);
    return at <= sizeof reserve - bytes ? reserve + at : NULL;
}

static void give_back(void *memory)
{
    if ((uintptr_t)memory - (uintptr_t)reserve >= sizeof reserve)
        free(memory);
}

void json_watch_memory(void)
{
    json_set_alloc_funcs(allocate, give_back);
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
