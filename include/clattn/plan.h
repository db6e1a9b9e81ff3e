/* Plans: compiled decisions.  Each operator's header has the functions that make and enqueue its own. */
#ifndef CLATTN_PLAN_H
#define CLATTN_PLAN_H

#include "context.h"

CLATTN_BEGIN_DECLS

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
CLATTN_API size_t clattn_plan_kernel_count(const clattn_plan *plan);

CLATTN_END_DECLS

#endif
