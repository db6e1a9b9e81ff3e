/* Sub-groups for solvers whose kernels include cl/lib/sub_group.h.
 *
 * Such a kernel has two solvers: "sub-group", which shuffles by the device's own means, and after it one that reduces through
 * local memory.  Shuffles have never run on a GPU here, so the planner takes the first only if the self-check compares its
 * kernels with the reference on the device itself, and tries the second if they disagree. */
#ifndef CLATTN_OPS_COMMON_SUB_GROUPS_H
#define CLATTN_OPS_COMMON_SUB_GROUPS_H

#include "plan/plan.h"

#define EMULATED_SUB_GROUP 8

/* How a kernel's items exchange values. */
struct sub_groups {
    enum sub_group_means means;
    size_t size; /* items of a sub-group; 1: there are none */
};

/* No sub-groups, and those that tests imitate. */
struct sub_groups sub_groups_none(void);
struct sub_groups sub_groups_emulated(void);

/* The device's sub-groups, of the size nearest to `wanted`, smaller ones first; none if the device has no means. */
struct sub_groups sub_groups_of(const clattn_context *context, size_t wanted);

/* Why a kernel does not use the device's sub-groups, or NULL. */
const char *refuse_sub_groups(const clattn_context *context, bool forced);

/* Adds the kernel's -D options, if there are sub-groups. */
void sub_groups_define(const struct sub_groups *groups, struct strbuf *options);

/* Adds a line to the plan's explanation that says how its kernel reduces. */
void sub_groups_explain(const struct sub_groups *groups, clattn_plan *plan);

#endif
