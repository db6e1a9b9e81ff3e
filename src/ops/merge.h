/* Merging partials, from inside: another operator's plan takes the kernel in as one of its own. */
#ifndef CLATTN_OPS_MERGE_H
#define CLATTN_OPS_MERGE_H

#include "clattn/merge.h"
#include "inc/merge_args.h"
#include "plan/enqueue.h"

/* Output columns of a work-item of the kernel on this device. */
size_t merge_chunk(const struct capabilities *caps, size_t columns);

/* Adds merge.cl's kernel to a plan, for at most `rows` rows of `columns`. */
clattn_status merge_add_kernel(clattn_plan *plan, int32_t output_dtype, bool sinks, bool lse, size_t rows,
                               size_t columns);

/* The work-groups of its launch. */
void merge_groups(const struct plan_kernel *kernel, const struct capabilities *caps, const merge_args *args,
                  size_t groups[3]);

#endif
