/* Normalisation's inside: the checked problem, the plan, and the table of solvers. */
#ifndef CLATTN_OPS_NORM_NORM_H
#define CLATTN_OPS_NORM_NORM_H

#include "clattn/norm.h"
#include "norm/args.h"
#include "plan/enqueue.h"

#define NORM_DIMENSIONS 4 /* of a row's index and of a segment's, together */

struct norm_problem {
    clattn_norm_desc desc; /* normalised; axes and epsilon filled in */
    /* Rows and segments as the kernels walk them; offsets 0, flags set for what the description has. */
    norm_args walk;
    size_t rows, elements; /* of a row; 0 where x has no elements */
    bool has_residual;
    bool unit_columns; /* all arrays that are there have their columns next to each other */
};

struct norm_plan {
    clattn_plan base;
    struct norm_problem problem;
    size_t rows_per_group;
    size_t longest_row; /* that its build takes */
};

clattn_status norm_problem_read(const clattn_norm_desc *desc, struct norm_problem *problem, const char **reason);

/* A copy of the caller's args, all bindings checked; kernel_args->rows is what there is to do. */
clattn_status norm_args_read(clattn_context *context, const struct norm_problem *problem, const clattn_norm_args *given,
                             clattn_norm_args *args, norm_args *kernel_args);

/* Rows that one index tells apart, each in one piece. */
bool norm_rows_are_plain(const norm_args *walk);

/* The -D options that all kernels share. */
void norm_defines(const struct norm_problem *problem, struct strbuf *options);

/* Adds the plan's one kernel; `options` is taken over and cleared. */
clattn_status norm_add_kernel(struct norm_plan *plan, const char *file, const char *name, struct strbuf *options,
                              const size_t local[3]);

/* For plan_self_check. */
clattn_status norm_self_check(struct self_check *check);

extern const struct solver norm_cpu_solver;
extern const struct solver norm_sub_group_solver;
extern const struct solver norm_emulated_sub_group_solver;
extern const struct solver norm_tile_solver;
extern const struct solver norm_generic_solver;

#endif
