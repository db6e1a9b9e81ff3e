#include "plan/plan_cache.h"

#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"

struct plan_cache_entry {
    struct plan_cache_entry *next;
    clattn_plan *plan;
    const struct operator_type *type;
    size_t bytes;
    unsigned char desc[];
};

clattn_status plan_cache_init(struct plan_cache *cache, uint32_t capacity)
{
    cache->first = NULL;
    cache->count = 0;
    cache->capacity = capacity;
    if (mtx_init(&cache->lock, mtx_plain) != thrd_success)
        return report_error(NULL, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a lock");
    return CLATTN_SUCCESS;
}

static void free_entries(struct plan_cache_entry *entry)
{
    while (entry) {
        struct plan_cache_entry *next = entry->next;
        clattn_plan_release(&entry->plan);
        free(entry);
        entry = next;
    }
}

void plan_cache_empty(struct plan_cache *cache)
{
    mtx_lock(&cache->lock);
    struct plan_cache_entry *all = cache->first;
    cache->first = NULL;
    cache->count = 0;
    mtx_unlock(&cache->lock);
    free_entries(all);
}

void plan_cache_clear(struct plan_cache *cache)
{
    plan_cache_empty(cache);
    mtx_destroy(&cache->lock);
}

static struct plan_cache_entry **find_link(struct plan_cache *cache, const struct operator_type *type, const void *desc,
                                           size_t bytes)
{
    for (struct plan_cache_entry **link = &cache->first; *link; link = &(*link)->next)
        if ((*link)->type == type && (*link)->bytes == bytes && !memcmp((*link)->desc, desc, bytes))
            return link;
    return NULL;
}

clattn_plan *plan_cache_find(struct plan_cache *cache, const struct operator_type *type, const void *desc, size_t bytes)
{
    clattn_plan *plan = NULL;
    mtx_lock(&cache->lock);
    struct plan_cache_entry **link = find_link(cache, type, desc, bytes);
    if (link) {
        struct plan_cache_entry *found = *link;
        *link = found->next;
        found->next = cache->first;
        cache->first = found;
        plan = found->plan;
        plan_retain(plan);
    }
    mtx_unlock(&cache->lock);
    return plan;
}

/* Unlinks the last entry. */
static struct plan_cache_entry *take_oldest(struct plan_cache *cache)
{
    struct plan_cache_entry **link = &cache->first;
    while ((*link)->next)
        link = &(*link)->next;
    struct plan_cache_entry *oldest = *link;
    *link = NULL;
    cache->count--;
    return oldest;
}

void plan_cache_add(struct plan_cache *cache, const struct operator_type *type, const void *desc, size_t bytes,
                    clattn_plan *plan)
{
    struct plan_cache_entry *entry = malloc(sizeof *entry + bytes), *dropped = NULL;
    if (!entry)
        return;
    entry->type = type;
    entry->plan = plan;
    entry->bytes = bytes;
    memcpy(entry->desc, desc, bytes);
    mtx_lock(&cache->lock);
    if (find_link(cache, type, desc, bytes)) { /* another thread was faster */
        mtx_unlock(&cache->lock);
        free(entry);
        return;
    }
    plan_retain(plan);
    entry->next = cache->first;
    cache->first = entry;
    if (++cache->count > cache->capacity) {
        dropped = take_oldest(cache);
        dropped->next = NULL;
    }
    mtx_unlock(&cache->lock);
    free_entries(dropped);
}
