/* Appending to a cache, from inside: the checked problem and the plan. */
#ifndef CLATTN_OPS_KV_APPEND_KV_APPEND_H
#define CLATTN_OPS_KV_APPEND_KV_APPEND_H

#include "clattn/kv_append.h"
#include "kv_append/args.h"
#include "plan/plan.h"

/* The index into pairs of numbers, of which one is for keys and one for values. */
enum kv_which { KV_KEY, KV_VALUE, KV_BOTH };

struct kv_append_problem {
    clattn_kv_append_desc desc; /* normalised */
    size_t batch, heads, length, size[KV_BOTH];
    size_t unit[KV_BOTH]; /* columns of a work-item */
    bool has_scale[KV_BOTH], is_paged, has_past, has_new;
    rope_args rope;
};

struct kv_append_plan {
    clattn_plan base;
    struct kv_append_problem problem;
};

clattn_status kv_append_problem_read(const void *desc, void *problem, const char **reason);

/* The operator's self-check; see plan_self_check. */
clattn_status kv_append_self_check(struct self_check *check);

#endif
