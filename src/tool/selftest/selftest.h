/* The operators that `clattn selftest` plans, with their solvers and some small problems of each. */
#ifndef CLATTN_TOOL_SELFTEST_SELFTEST_H
#define CLATTN_TOOL_SELFTEST_SELFTEST_H

#include <clattn/clattn.h>

typedef struct selftest_case {
    const char *name;
    clattn_dtype dtype;
    size_t size[7]; /* the operator's own sizes, in the order that its table in cases.c tells */
    int variant;    /* the operator's own flags or enum */
} selftest_case;

typedef struct selftest_operator {
    const char *name;
    const char *const *solvers; /* ended by NULL; the library's own choice is tried before them */
    const selftest_case *cases;
    size_t case_count;
    clattn_status (*plan)(clattn_context *context, const selftest_case *c, const clattn_plan_options *options,
                          clattn_plan **plan);
} selftest_operator;

extern const selftest_operator selftest_operators[];
extern const size_t selftest_operator_count;

#endif
