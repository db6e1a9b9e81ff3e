#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tool/cli/json_text.h"

static atomic_bool memory_failed;

/* Once memory has failed, what strings that are being read or written grow into: jansson 2.14 leaves out characters that have
 * no room, and may then read beyond a string, or end the process by an assertion.  Their buffers have 32 bytes, 64, 128 and so
 * on; of all else most has another size and gets no memory, so that jansson soon gives up. */
static _Alignas(max_align_t) char reserve[1 << 20];
static atomic_size_t reserve_taken;

static void *take_of_reserve(size_t bytes)
{
    size_t taken = reserve_taken;
    if (bytes < 32 || (bytes & (bytes - 1)) != 0)
        return NULL;
    do {
        if (bytes > sizeof reserve - taken)
            return NULL;
    } while (!atomic_compare_exchange_weak(&reserve_taken, &taken, taken + bytes));
    return reserve + taken;
}

static void *allocate(size_t bytes)
{
    void *memory = memory_failed ? NULL : malloc(bytes);
    if (memory != NULL)
        return memory;
    memory_failed = true;
    return take_of_reserve(bytes);
}

void json_release(void *memory)
{
    if ((uintptr_t)memory - (uintptr_t)reserve >= sizeof reserve)
        free(memory);
}

void json_watch_memory(void)
{
    json_set_alloc_funcs(allocate, json_release);
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
