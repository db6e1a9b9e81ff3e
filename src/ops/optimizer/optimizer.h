/* The optimizer's operators, from inside: their checked problems and their plans. */
#ifndef CLATTN_OPS_OPTIMIZER_OPTIMIZER_H
#define CLATTN_OPS_OPTIMIZER_OPTIMIZER_H

#include "clattn/optimizer.h"
#include "optimizer/args.h"
#include "plan/enqueue.h"

struct adam_problem {
    clattn_adam_desc desc; /* normalised */
    size_t count;          /* elements */
    bool has_stored, has_squares;
};

struct adam_plan {
    clattn_plan base;
    struct adam_problem problem;
    int chunk; /* elements of a work-group */
};

clattn_status adam_problem_read(const void *desc, void *problem, const char **reason);

/* Sets the defaults of the arguments' numbers, and refuses those that are not valid. */
clattn_status adam_read_numbers(struct report *report, bool has_squares, clattn_adam_args *args);

/* The operator's self-check; see plan_self_check. */
clattn_status adam_self_check(struct self_check *check);

struct square_sum_problem {
    clattn_square_sum_desc desc; /* normalised */
    size_t count;                /* elements */
    size_t blocks;               /* partial sums */
};

struct square_sum_plan {
    clattn_plan base;
    struct square_sum_problem problem;
};

clattn_status square_sum_problem_read(const void *desc, void *problem, const char **reason);

/* The operator's self-check; see plan_self_check. */
clattn_status square_sum_self_check(struct self_check *check);

#endif
