/* Rotary position embedding's inside: the checked problem, the plan, and the table of solvers. */
#ifndef CLATTN_OPS_ROPE_ROPE_H
#define CLATTN_OPS_ROPE_ROPE_H

#include "clattn/rope.h"
#include "rope/args.h"
#include "plan/enqueue.h"

struct rope_problem {
    /* Normalised; base and rotary size filled in.  Backward, x is what the kernels read, the gradient of y, and y what
     * they write, the gradient of x. */
    clattn_rope_desc desc;
    rope_args kernel;  /* what every enqueue has in common; batch 0 */
    bool empty;        /* x has no elements */
    bool unit_columns; /* x and y have their columns next to each other */
};

struct rope_plan {
    clattn_plan base;
    struct rope_problem problem;
    size_t places_per_group; /* 0: rope_generic, of whose work-groups several share a place */
};

clattn_status rope_problem_read(const void *desc, void *problem, const char **reason);

/* The -D options that all kernels share. */
void rope_defines(const struct rope_problem *problem, struct strbuf *options);

/* Adds the plan's one kernel; `options` is taken over and cleared. */
clattn_status rope_add_kernel(struct rope_plan *plan, const char *file, const char *name, struct strbuf *options,
                              const size_t local[3]);

/* The operator's self-check; see plan_self_check. */
clattn_status rope_self_check(struct self_check *check);

extern const struct solver rope_cpu_solver;
extern const struct solver rope_generic_solver;

#endif
