/* The functions of every operator as one type, and tests of refusals and of the plan cache for any operator. */
#ifndef TESTS_OPERATOR_H
#define TESTS_OPERATOR_H

#include <math.h>

#include "support/check.h"

#undef OVERFLOW /* a macro of mingw-w64's <math.h>, and the end of a status's name below */

struct operator_calls {
    clattn_status (*supports)(clattn_context *, const void *, const char **);
    clattn_status (*plan_create)(clattn_context *, const void *, const clattn_plan_options *, clattn_plan **);
    clattn_status (*enqueue)(clattn_plan *, cl_command_queue, const void *, cl_uint, const cl_event *, cl_event *);
    clattn_status (*prewarm)(clattn_context *, const void *);
    clattn_status (*run)(clattn_context *, cl_command_queue, const void *, const void *, cl_uint, const cl_event *,
                         cl_event *);
};

/* NAME_operator has clattn_NAME_…. */
extern const struct operator_calls activation_operator, attention_operator, conv2d_operator, cross_entropy_operator,
    dropout_operator, embedding_operator, image_operator, kv_append_operator, matmul_operator, merge_operator,
    mha_operator, neighbourhood_operator, norm_operator, pool_operator, resize_operator, rope_operator,
    softmax_operator;

/* Makes a plan by `solver` (NULL: the planner's choice), releases it and returns the status; asserts that there is a
 * plan if and only if that is SUCCESS. */
clattn_status operator_makes(clattn_context *context, const struct operator_calls *op, const void *desc,
                             const char *solver);

/* ---- on the device under test, for the programs that run a suite of the harness ---- */

/* Returns a plan by `solver` (NULL: the planner's choice); the test fails if there is none. */
clattn_plan *operator_plan(const struct operator_calls *op, const void *desc, const char *solver);

/* Asserts that a plan by `solver` is refused with `expected`. */
void operator_refuses_plan(const struct operator_calls *op, const void *desc, const char *solver,
                           clattn_status expected);

/* Asserts that supports answers `expected`, with a reason if and only if that is not SUCCESS, and that plan_create then
 * answers the same and makes no plan.  `what` is printed if not. */
#define operator_answers(op, desc, expected) operator_answers_to((op), (desc), (expected), __FILE__, __LINE__, "")
void operator_answers_to(const struct operator_calls *op, const void *desc, clattn_status expected, const char *file,
                         int line, const char *what);

/* Asserts that enqueue answers `expected`, which is not SUCCESS, to those arguments. */
void operator_refuses(const struct operator_calls *op, clattn_plan *plan, const void *args, clattn_status expected,
                      const char *file, int line, const char *what);

/* Asserts that enqueue refuses to do without a plan, and without arguments; with `plan`, `good` ones would do. */
void operator_needs_both(const struct operator_calls *op, clattn_plan *plan, const void *good);

/* Asserts that a copy of the description or the arguments `good` is refused with CLATTN_ERROR_`status` after `change`, an
 * assignment to a member.  In `change` other members are desc.MEMBER or args.MEMBER. */
#define OPERATOR_REFUSES_DESC(name, status, good, change) \
    do { \
        __typeof__(good) desc = good; \
        desc.change; \
        operator_answers_to(&name##_operator, &desc, CLATTN_ERROR_##status, __FILE__, __LINE__, #change); \
    } while (0)
#define OPERATOR_REFUSES_ARGS(name, plan, status, good, change) \
    do { \
        __typeof__(good) args = good; \
        args.change; \
        operator_refuses(&name##_operator, (plan), &args, CLATTN_ERROR_##status, __FILE__, __LINE__, #change); \
    } while (0)

/* Asserts that prewarm makes the plan that run then finds: run succeeds and neither builds nor loads a program. */
void operator_runs_prewarmed(const struct operator_calls *op, const void *desc, const void *args);

#endif
