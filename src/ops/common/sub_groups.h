/* Sub-groups, as solvers use them whose kernels include cl/inc/sub_group.h.
 *
 * Such a kernel has two solvers: "sub-group" by the device's means, and behind it the one that reduces through local memory.
 * Shuffles have never run on a GPU from here, so the planner takes the first only where the self-check compares its kernels
 * with the reference on the device itself, and goes on to the second where they disagree. */
#ifndef CLATTN_OPS_COMMON_SUB_GROUPS_H
#define CLATTN_OPS_COMMON_SUB_GROUPS_H

#include "plan/plan.h"

#define EMULATED_SUB_GROUP 8

/* How a kernel's items exchange values. */
struct sub_groups {
    enum sub_group_means means;
    size_t size; /* items of one; 1: none */
};

/* None at all, and those that tests imitate. */
struct sub_groups sub_groups_none(void);
struct sub_groups sub_groups_emulated(void);

/* The device's: the size nearest to `wanted`, smaller ones first; none where it has no means. */
struct sub_groups sub_groups_of(const clattn_context *context, size_t wanted);

/* Why a kernel does not use the device's, or NULL. */
const char *refuse_sub_groups(const clattn_context *context, bool forced);

/* The kernel's -D options, and nothing for none. */
void sub_groups_define(const struct sub_groups *groups, struct strbuf *options);

/* A line about how the plan's kernel reduces. */
void sub_groups_explain(const struct sub_groups *groups, clattn_plan *plan);

#endif
