/* The gradients of a matrix product: the checked problem, the plan of other plans, and the one kernel of its own. */
#ifndef CLATTN_OPS_MATMUL_BACKWARD_BACKWARD_H
#define CLATTN_OPS_MATMUL_BACKWARD_BACKWARD_H

#include "clattn/norm.h"
#include "ops/matmul/matmul.h"
#include "plan/operator.h"

struct matmul_backward_problem {
    struct matmul_problem forward; /* whose c is the gradient of c */
    bool multiplies;               /* there is an operand, which forward multiplies */
    bool b_shared, operand_shared; /* the gradient is a sum over the batch */
    bool reads_sums;               /* the sums of forward are computed anew */
    bool writes_sums;              /* their gradient is not that of c itself */
    clattn_layout sums;            /* that gradient, (batch, m, n): in the workspace, or c's */
};

clattn_status matmul_backward_problem_read(const void *desc, void *problem, const char **reason);

static inline const clattn_matmul_desc *matmul_backward_desc(const struct matmul_backward_problem *problem)
{
    return &problem->forward.desc;
}

/* ---- the elements between the products: cl/matmul/backward.cl ---- */

/* An internal operator of the same descriptions, whose plans take these arguments. */
extern const struct operator_type matmul_elements_operator;

struct matmul_elements_args {
    clattn_binding sums; /* float32 */
    clattn_binding c_gradient, operand, operand_gradient;
    size_t batch, m;
};

struct matmul_elements_plan {
    clattn_plan base;
    struct matmul_backward_problem problem;
    size_t chunk; /* columns of a piece, which an item owns */
};

/* How the kernel walks the first rows of the first items; offsets 0.  Without elements there are no pieces. */
void matmul_elements_walk(const struct matmul_backward_problem *problem, size_t batch, size_t m, size_t chunk,
                          matmul_backward_args *a);

/* Whether the columns of that walk are neighbours in all arrays. */
bool matmul_elements_unit(const struct matmul_backward_problem *problem, const matmul_backward_args *a);

/* The operator's self-check; see plan_self_check. */
clattn_status matmul_elements_self_check(struct self_check *check);

/* ---- the plan ---- */

/* Its parts, each a plan of another operator, in the order in which they run. */
enum matmul_part {
    PART_SUMS,     /* the sums of forward */
    PART_ELEMENTS, /* their gradient, and that of the operand */
    PART_A,        /* the gradient of a */
    PART_B_FIRST,  /* the gradient of b, of the first rows, */
    PART_B_MORE,   /* and of more rows, added to it */
    PART_B_STORED, /* the same in another type */
    PART_BIAS,     /* the gradient of bias */
    PARTS
};

union matmul_part_desc {
    clattn_matmul_desc matmul;
    clattn_activation_desc activation;
    clattn_norm_desc norm;
};

struct matmul_backward_plan {
    clattn_plan base;
    struct matmul_backward_problem problem;
    clattn_plan *part[PARTS]; /* NULL: not needed */
    size_t most_rows;         /* of a product for the gradient of b */
    size_t b_gradient_at,
        parts_at; /* bytes in the workspace, behind the sums: float32 sums for b, and what parts need */
    char solver_name[64];
};

/* The rows that are one axis of a product for the gradient of b: all of an item or, if items that share b lie one behind the
 * other, of the batch.  *items is how many such products there are. */
size_t matmul_backward_rows(const struct matmul_backward_problem *problem, size_t batch, size_t m, size_t *items);

/* The description of the gradient of bias, a norm's with nothing but that: the sums of columns are the same. */
void matmul_backward_bias_desc(const struct matmul_backward_problem *problem, size_t batch, size_t m,
                               clattn_norm_desc *desc);

clattn_status matmul_backward_enqueue(const clattn_plan *plan, const struct enqueue_call *call, const void *args);

#endif
