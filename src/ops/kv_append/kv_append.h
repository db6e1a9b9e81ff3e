/* Appending to a cache, from inside: the checked problem and the plan. */
#ifndef CLATTN_OPS_KV_APPEND_KV_APPEND_H
#define CLATTN_OPS_KV_APPEND_KV_APPEND_H

#include "clattn/kv_append.h"
#include "kv_append/args.h"
#include "plan/enqueue.h"

/* Everything of an array of keys and the one of values alike. */
enum kv_which { KV_KEY, KV_VALUE, KV_BOTH };

struct kv_append_problem {
    clattn_kv_append_desc desc; /* normalised */
    size_t batch, heads, length, size[KV_BOTH];
    size_t unit[KV_BOTH]; /* columns of a work-item */
    bool has_scale[KV_BOTH], has_past, has_new;
    rope_args rope;
};

struct kv_append_plan {
    clattn_plan base;
    struct kv_append_problem problem;
};

clattn_status kv_append_problem_read(const clattn_kv_append_desc *desc, struct kv_append_problem *problem,
                                     const char **reason);

/* A copy of the caller's args with lengths filled in, all bindings checked. */
clattn_status kv_append_args_read(clattn_context *context, const struct kv_append_problem *problem,
                                  const clattn_kv_append_args *given, clattn_kv_append_args *args);

/* What the kernel is told; `args` has passed kv_append_args_read. */
void kv_append_fill_args(const struct kv_append_problem *problem, const clattn_kv_append_args *args,
                         kv_append_args *kernel_args);

/* For plan_self_check. */
clattn_status kv_append_self_check(struct self_check *check);

#endif
