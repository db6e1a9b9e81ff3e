/* Merging partials, from inside: the checked problem, and how another operator's plan uses the kernel as one of its own. */
#ifndef CLATTN_OPS_MERGE_MERGE_H
#define CLATTN_OPS_MERGE_MERGE_H

#include "clattn/merge.h"
#include "merge/args.h"
#include "plan/enqueue.h"

struct merge_problem {
    clattn_merge_desc desc; /* normalised */
    size_t partials, batch, heads, query_length, columns;
    bool has_sinks, has_lse;
};

struct merge_plan {
    clattn_plan base;
    struct merge_problem problem;
};

clattn_status merge_problem_read(const void *desc, void *problem, const char **reason);

/* The operator's self-check; see plan_self_check. */
clattn_status merge_self_check(struct self_check *check);

/* Output columns of a work-item of the kernel on this device. */
size_t merge_chunk(const struct capabilities *caps, size_t columns);

#define MERGE_ARRAYS 5 /* of the kernel */

/* Adds merge/merge.cl's kernel to a plan, for at most `rows` rows of `columns`.  Its buffers are the partials, their
 * log-sum-exps, the sinks, the output and the log-sum-exp; absent ones may be any buffers. */
clattn_status merge_add_kernel(clattn_plan *plan, clattn_dtype output_dtype, bool sinks, bool lse, size_t rows,
                               size_t columns);

/* The work-groups of its launch. */
void merge_groups(const struct plan_kernel *kernel, const struct capabilities *caps, const merge_args *args,
                  size_t groups[3]);

#endif
