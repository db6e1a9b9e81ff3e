/* The self-check's inside: a small problem, its arrays, and the verdict. */
#ifndef CLATTN_OPS_ATTENTION_CHECK_H
#define CLATTN_OPS_ATTENTION_CHECK_H

#include "ops/attention/plan.h"
#include "plan/self_check.h"
#include "ref/attention.h"

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

/* Makes a layout row-major over the first extents, with gaps between columns where the original has some: kernels are built for
 * neighbouring columns, or for any. */
void attention_check_shrink(clattn_layout *layout, const size_t *extent);

/* Makes the arrays of *desc small, but for gradients; every -D of its kernels stays the same. */
void attention_check_make_small(const struct attention_problem *problem, size_t queries, size_t keys,
                                clattn_attention_desc *desc);

/* Makes, fills and uploads all arrays of the small problem but gradients. */
clattn_status attention_check_make_arrays(struct attention_check *check, clattn_context *context);

/* What the reference reads. */
ref_attention_data attention_check_data(const struct attention_check *check);

/* Compares what has been read back with the reference, in some rows; UNSUPPORTED where they differ by more than
 * arithmetic explains, with a message that names the kernel whose work it is, and that kernel's number in *blamed. */
clattn_status attention_check_judge(const struct attention_check *check, const struct attention_plan *plan,
                                    size_t *blamed);

#endif
