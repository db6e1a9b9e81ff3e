/* The plans of the one-call forms: the most recently used ones of a context. */
#ifndef CLATTN_PLAN_PLAN_CACHE_H
#define CLATTN_PLAN_PLAN_CACHE_H

#include <stdint.h>

#include "base/os/os_threads.h"
#include "clattn/plan.h"

struct operator_type;
struct plan_cache_entry;

/* Thread-safe.  Each entry holds a reference to its plan, which holds one to the context. */
struct plan_cache {
    mtx_t lock;
    struct plan_cache_entry *first; /* most recently used first */
    uint32_t count, capacity;
};

clattn_status plan_cache_init(struct plan_cache *cache, uint32_t capacity);
void plan_cache_empty(struct plan_cache *cache);
void plan_cache_clear(struct plan_cache *cache);

/* The operator's plan for a normalised description of `bytes` bytes, with a reference for the caller, or NULL. */
clattn_plan *plan_cache_find(struct plan_cache *cache, const struct operator_type *type, const void *desc,
                             size_t bytes);

/* Adds the plan, and drops the least recently used one above capacity.  If memory runs out, nothing is added. */
void plan_cache_add(struct plan_cache *cache, const struct operator_type *type, const void *desc, size_t bytes,
                    clattn_plan *plan);

#endif
