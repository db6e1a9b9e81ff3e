/* The self-check's inside: a small problem, its arrays, and the verdict. */
#ifndef CLATTN_OPS_ATTENTION_CHECK_H
#define CLATTN_OPS_ATTENTION_CHECK_H

#include "ops/attention.h"
#include "plan/self_check.h"

enum attention_check_slot {
    CHECK_QUERY = ATTENTION_ARRAYS, /* before it, the optional arrays */
    CHECK_KEY,
    CHECK_VALUE,
    CHECK_OUTPUT,
    CHECK_CANCEL,
    CHECK_ARRAYS
};

struct attention_check {
    const struct attention_problem *original;
    struct attention_problem small;
    clattn_attention_args args;
    struct check_array array[CHECK_ARRAYS];
};

/* Compares what has been read back with the reference, in some rows; UNSUPPORTED with a message where they differ by more
 * than arithmetic explains.  `kernel` is named there. */
clattn_status attention_check_judge(const struct attention_check *check, struct report *report, const char *kernel);

#endif
