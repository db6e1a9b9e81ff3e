/* Softmax's inside: the checked problem, the plan, and the table of solvers. */
#ifndef CLATTN_OPS_SOFTMAX_SOFTMAX_H
#define CLATTN_OPS_SOFTMAX_SOFTMAX_H

#include "clattn/softmax.h"
#include "softmax/args.h"
#include "plan/enqueue.h"

#define SOFTMAX_OUTER 4 /* dimensions ahead of the row's own */

struct softmax_problem {
    clattn_softmax_desc desc;    /* normalised */
    size_t outer[SOFTMAX_OUTER]; /* extents, leading ones 1 */
    size_t columns;
    int first;         /* which of `outer` is the description's first dimension; SOFTMAX_OUTER: none */
    array5 x, y, mask; /* strides; offsets 0 */
    bool has_mask;
    size_t mask_extent[CLATTN_MAX_RANK]; /* aligned with x's dimensions */
    float scale;
    bool unit_columns; /* x and y have their columns next to each other */
};

struct softmax_plan {
    clattn_plan base;
    struct softmax_problem problem;
    size_t rows_per_group;
    size_t longest_row; /* that its build takes */
};

clattn_status softmax_problem_read(const clattn_softmax_desc *desc, struct softmax_problem *problem,
                                   const char **reason);

/* A copy of the caller's args, all bindings checked; *rows is what there is to do. */
clattn_status softmax_args_read(clattn_context *context, const struct softmax_problem *problem,
                                const clattn_softmax_args *given, clattn_softmax_args *args, softmax_args *kernel_args);

/* All rows of the problem. */
size_t softmax_rows(const struct softmax_problem *problem);

/* The -D options that all softmax kernels share. */
void softmax_defines(const struct softmax_problem *problem, struct strbuf *options);

/* Adds the plan's one kernel; `options` is taken over and cleared. */
clattn_status softmax_add_kernel(struct softmax_plan *plan, const char *file, const char *name, struct strbuf *options,
                                 const size_t local[3]);

/* Compares the plan's kernel with the reference on some rows (plan_self_check). */
clattn_status softmax_self_check(struct self_check *check);

extern const struct solver softmax_cpu_solver;
extern const struct solver softmax_sub_group_solver;
extern const struct solver softmax_emulated_sub_group_solver;
extern const struct solver softmax_tile_solver;
extern const struct solver softmax_generic_solver;

#endif
