/* What operators of one kernel share: an enqueue that checks the caller's arrays and launches the kernel. */
#ifndef CLATTN_OPS_COMMON_SIMPLE_OPERATOR_H
#define CLATTN_OPS_COMMON_SIMPLE_OPERATOR_H

#include "plan/enqueue.h"

#define SIMPLE_ARRAYS 9 /* a kernel has at most so many */

/* Checks `arrays`, which stand in the order of the kernel's buffers, and launches the plan's kernel with them and
 * `kernel_args`; `elements` of the largest array that the kernel moves say how long it takes.  If a count in `groups` is 0, there is nothing to do: then the arrays may be unbound, but nothing may be
 * bound to an array that the description does not have.  A kernel has a parameter for each array, also for absent ones. */
clattn_status simple_enqueue(const clattn_plan *plan, const struct enqueue_call *call, const struct bound_array *arrays,
                             size_t count, double elements, void *kernel_args, const size_t groups[3]);

#endif
