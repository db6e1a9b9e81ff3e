#include "plan/wisdom/wisdom.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void wisdom_list_clear(struct wisdom_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->record[i].line);
    free(list->record);
    memset(list, 0, sizeof *list);
}

static void drop(struct wisdom_list *list, size_t index)
{
    free(list->record[index].line);
    list->count--;
    memmove(&list->record[index], &list->record[index + 1], (list->count - index) * sizeof *list->record);
}

static bool has_key(const struct wisdom_record *record, const char *key, size_t length)
{
    return record->key == length && !memcmp(record->line, key, length);
}

bool wisdom_list_add(struct wisdom_list *list, struct wisdom_record record)
{
    size_t prefix = record.key + 1 + record.solver;
    for (size_t i = 0; i < list->count; i++) {
        struct wisdom_record *old = &list->record[i];
        if (old->key == record.key && old->solver == record.solver && !memcmp(old->line, record.line, prefix)) {
            free(old->line);
            *old = record;
            return true;
        }
    }
    if (list->count == WISDOM_RECORDS)
        drop(list, 0);
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 16;
        struct wisdom_record *grown = realloc(list->record, capacity * sizeof *grown);
        if (!grown) {
            free(record.line);
            return false;
        }
        list->record = grown;
        list->capacity = capacity;
    }
    list->record[list->count++] = record;
    return true;
}

const struct wisdom_record *wisdom_list_find(const struct wisdom_list *list, const char *key, uint32_t rank)
{
    const struct wisdom_record *best = NULL;
    size_t length = strlen(key);
    for (size_t i = 0; i < list->count; i++) {
        const struct wisdom_record *record = &list->record[i];
        if (record->rank >= rank && (!best || record->rank < best->rank) && has_key(record, key, length))
            best = record;
    }
    return best;
}

void wisdom_list_forget(struct wisdom_list *list, const char *key)
{
    for (size_t i = list->count, length = strlen(key); i-- > 0;)
        if (has_key(&list->record[i], key, length))
            drop(list, i);
}

clattn_status wisdom_init(struct wisdom *wisdom, const char *kernels)
{
    memset(wisdom, 0, sizeof *wisdom);
    snprintf(wisdom->kernels, sizeof wisdom->kernels, "%s", kernels);
    return mtx_init(&wisdom->lock, mtx_plain) == thrd_success ? CLATTN_SUCCESS : CLATTN_ERROR_OUT_OF_MEMORY;
}

void wisdom_clear(struct wisdom *wisdom)
{
    wisdom_list_clear(&wisdom->list);
    mtx_destroy(&wisdom->lock);
}

bool wisdom_find(struct wisdom *wisdom, const char *key, uint32_t rank, struct advice *advice)
{
    mtx_lock(&wisdom->lock);
    const struct wisdom_record *record = wisdom_list_find(&wisdom->list, key, rank);
    if (record)
        wisdom_read(record, advice);
    mtx_unlock(&wisdom->lock);
    return record != NULL;
}
