/* Sub-groups for solvers whose kernels include cl/lib/sub_group.h.
 *
 * Such a kernel has two solvers: "sub-group", which shuffles by the device's own means, and after it one that reduces through
 * local memory.  Of the shuffles only NVIDIA's have run on a GPU, and on one, so the planner takes the first only if the
 * self-check compares its kernels with the reference on the device itself, and tries the second if they disagree. */
#ifndef CLATTN_OPS_COMMON_SUB_GROUPS_H
#define CLATTN_OPS_COMMON_SUB_GROUPS_H

#include "plan/plan.h"

#define EMULATED_SUB_GROUP 8

/* How a kernel's items exchange values. */
struct sub_groups {
    enum sub_group_means means;
    size_t size; /* items of a sub-group; 1: there are none */
};

/* Variants of such a solver: a work-group reduces through local memory alone, or first in sub-groups of the device or in
 * those that tests imitate. */
enum reduction { REDUCE_LOCAL_MEMORY, REDUCE_SUB_GROUPS, REDUCE_EMULATED };

/* The sub-groups of the variant; the device's are of the size nearest to `wanted`, smaller ones first.  None if the device has
 * no means. */
struct sub_groups sub_groups_for(const clattn_context *context, const struct solver *solver, size_t wanted);

/* Why the variant cannot or should not use the device's sub-groups, or NULL. */
const char *refuse_sub_groups(const struct offer *offer);

/* Adds the kernel's -D options, if there are sub-groups. */
void sub_groups_define(const struct sub_groups *groups, struct strbuf *options);

/* Adds a line to the plan's explanation that says how its kernel reduces. */
void sub_groups_explain(const struct sub_groups *groups, clattn_plan *plan);

#endif
