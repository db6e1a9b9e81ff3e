/* Resizing's inside: the checked problem, the plan, and the table of solvers. */
#ifndef CLATTN_OPS_RESIZE_RESIZE_H
#define CLATTN_OPS_RESIZE_RESIZE_H

#include "clattn/resize.h"
#include "resize/args.h"
#include "plan/enqueue.h"

struct resize_problem {
    clattn_resize_desc desc; /* normalised; cubic_a filled in */
    resize_args kernel;      /* what every enqueue has in common; pieces, tile and band are 0 */
    bool empty;              /* y has no elements */
};

struct resize_plan {
    clattn_plan base;
    struct resize_problem problem;
    int tile, band;          /* the kernel's; the tile is at most the problem's run */
    size_t pieces_per_group; /* 1 by the generic solver */
};

clattn_status resize_problem_read(const void *desc, void *problem, const char **reason);

/* Makes a kernel the plan's only one: vectors of `lanes` elements, work-groups of `items`. */
clattn_status resize_add_kernel(struct resize_plan *plan, const char *file, const char *name, uint32_t lanes, size_t items);

/* For plan_self_check. */
clattn_status resize_self_check(struct self_check *check);

extern const struct solver resize_cpu_solver;
extern const struct solver resize_generic_solver;

#endif
