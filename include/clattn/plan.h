/* Plans: compiled decisions.  Each operator's header has the functions that make and enqueue its own. */
#ifndef CLATTN_PLAN_H
#define CLATTN_PLAN_H

#include "context.h"

CLATTN_BEGIN_DECLS

/* Which way a computation goes; other values are refused. */
typedef enum clattn_direction {
    CLATTN_DIRECTION_FORWARD = 0,
    CLATTN_DIRECTION_FORCE_32BIT = 0x7fffffff
} clattn_direction;

/* How the keys lie in `key` and `value`. */
typedef enum clattn_cache_kind {
    CLATTN_CACHE_KIND_PLAIN = 0, /* key j in row j */
    CLATTN_CACHE_KIND_RING = 1,  /* key j in row j mod S_k, the last S_k keys being held.  Lengths count all keys
                             * ever appended and may exceed S_k; older keys are not attended.  No mask or bias with
                             * more than one key, no scores */
    CLATTN_CACHE_KIND_PAGED = 2, /* `key` is (pages, kv_heads, page_size, d_k), `value` alike; key j of item b in
                             * row j mod page_size of page block_table[b, j / page_size] */
    CLATTN_CACHE_KIND_FORCE_32BIT = 0x7fffffff
} clattn_cache_kind;

/* An immutable, compiled decision for one description on one context: kernels, geometry, workspace.
 * Thread-safety: any number of threads may enqueue one plan at once.
 * Ownership: the caller releases it with clattn_plan_release; enqueued work keeps what it needs. */
typedef struct clattn_plan clattn_plan;

/* Choices about a plan that do not change what it computes.  CLATTN_PLAN_OPTIONS_INIT sets it up; NULL in its
 * place means all defaults. */
typedef struct clattn_plan_options {
    size_t size;        /* sizeof(clattn_plan_options) */
    const char *solver; /* this solver or none: UNSUPPORTED if it refuses; NULL: the best that takes it.
                         * "cpu-amx", on Linux and a processor with AMX, asks the system for permission to use it
                         * (arch_prctl): for the whole process and for good, which makes signal frames larger */

    /* With `solver`: its parameters, "rows=6 depth=512", as tuning.h and clattn_plan_explain name them; UNSUPPORTED if
     * it does not take them.  Those that are not named are the cost model's, so "" is its choice alone.  NULL: wisdom's
     * where there is any, otherwise the cost model's.  On PoCL such a plan's programs are not kept in the cache. */
    const char *tuning;
} clattn_plan_options;

#define CLATTN_PLAN_OPTIONS_INIT CLATTN_INIT(clattn_plan_options)

/* What CLATTN_PLAN_OPTIONS_INIT does.  NULL is accepted. */
CLATTN_API void clattn_plan_options_init(clattn_plan_options *options);

/* Releases and nulls; NULL and a NULL handle are accepted.  Does not wait for enqueued work. */
CLATTN_API void clattn_plan_release(clattn_plan **plan);

/* Bytes of workspace that an enqueue of this plan takes; 0 if none.  An enqueue whose arguments bring no
 * workspace leases one of this size from the context until the work completes. */
CLATTN_API size_t clattn_plan_workspace_size(const clattn_plan *plan);

/* The chosen solver's name, for instance "cpu"; of a plan made of several, the names joined by "+". */
CLATTN_API const char *clattn_plan_solver(const clattn_plan *plan);

/* Several lines of text: the device, the chosen solver and why, its kernels, geometry, launches and workspace, and each
 * other solver with the reason why it was not chosen.  Owned by the plan. */
CLATTN_API const char *clattn_plan_explain(const clattn_plan *plan);

/* How many kernels one enqueue of the plan launches at the most. */
CLATTN_API size_t clattn_plan_launch_count(const clattn_plan *plan);

CLATTN_END_DECLS

#endif
