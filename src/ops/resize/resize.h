/* Resizing's inside: the checked problem, the plan, and the table of solvers. */
#ifndef CLATTN_OPS_RESIZE_RESIZE_H
#define CLATTN_OPS_RESIZE_RESIZE_H

#include "clattn/resize.h"
#include "resize/args.h"
#include "plan/enqueue.h"

struct resize_problem {
    clattn_resize_desc desc; /* normalised; cubic_a filled in */
    resize_args kernel;      /* what every enqueue has in common; lines, pieces, depth, tile and band 0 */
    bool empty;              /* y has no elements */
    bool joined;             /* pixels are neighbours in x and in y, and so are their channels */
};

struct resize_plan {
    clattn_plan base;
    struct resize_problem problem;
    size_t items; /* of a work-group */
    /* Sets depth, tile and band for the first `batch` items of a problem that is not empty. */
    void (*shape)(const struct resize_plan *plan, const struct resize_problem *problem, size_t batch,
                  resize_args *args);
};

clattn_status resize_problem_read(const void *desc, void *problem, const char **reason);

/* Makes a kernel the plan's only one: vectors of `lanes` elements, work-groups of plan->items. */
clattn_status resize_add_kernel(struct resize_plan *plan, const char *file, const char *name, uint32_t lanes);

/* The operator's self-check; see plan_self_check. */
clattn_status resize_self_check(struct self_check *check);

extern const struct solver resize_cpu_solver;
extern const struct solver resize_generic_solver;

#endif
