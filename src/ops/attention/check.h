/* The self-check's inside: a small problem, its arrays, and the verdict. */
#ifndef CLATTN_OPS_ATTENTION_CHECK_H
#define CLATTN_OPS_ATTENTION_CHECK_H

#include "ops/attention/plan.h"
#include "plan/self_check.h"

enum attention_check_slot {
    CHECK_QUERY = ATTENTION_ARRAYS, /* before it, the optional arrays */
    CHECK_KEY,
    CHECK_VALUE,
    CHECK_OUTPUT,
    CHECK_WORKSPACE,
    CHECK_ARRAYS
};

struct attention_check {
    const struct attention_problem *original;
    struct attention_problem small;
    size_t keys; /* its, if no lengths say less */
    clattn_attention_args args;
    struct check_array array[CHECK_ARRAYS];
};

/* Where the row of a head of a batch item is among those of the workspace's arrays. */
static inline size_t attention_check_row(const struct attention_check *check, int64_t b, int64_t h, int64_t i)
{
    return ((size_t)b * check->small.heads + (size_t)h) * check->small.query_length + (size_t)i;
}

/* Compares what has been read back with the reference, in some rows; UNSUPPORTED where they differ by more than
 * arithmetic explains, with a message that names the kernel whose work it is, and that kernel's number in *blamed. */
clattn_status attention_check_judge(const struct attention_check *check, const struct attention_plan *plan,
                                    size_t *blamed);

#endif
