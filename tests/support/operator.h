/* The functions of every operator as one type, and tests of refusals and of the plan cache for any operator. */
#ifndef TESTS_OPERATOR_H
#define TESTS_OPERATOR_H

#include <clattn/clattn.h>

struct operator_calls {
    clattn_status (*supports)(clattn_context *, const void *, const char **);
    clattn_status (*plan_create)(clattn_context *, const void *, const clattn_plan_options *, clattn_plan **);
    clattn_status (*enqueue)(clattn_plan *, cl_command_queue, const void *, cl_uint, const cl_event *, cl_event *);
    clattn_status (*prewarm)(clattn_context *, const void *);
    clattn_status (*run)(clattn_context *, cl_command_queue, const void *, const void *, cl_uint, const cl_event *,
                         cl_event *);
};

/* Defines NAME_operator for clattn_NAME_…, without a semicolon behind it. */
#define OPERATOR(name) \
    static clattn_status name##_supports(clattn_context *c, const void *d, const char **r) \
    { \
        return clattn_##name##_supports(c, d, r); \
    } \
    static clattn_status name##_plan_create(clattn_context *c, const void *d, const clattn_plan_options *o, \
                                            clattn_plan **p) \
    { \
        return clattn_##name##_plan_create(c, d, o, p); \
    } \
    static clattn_status name##_enqueue(clattn_plan *p, cl_command_queue q, const void *a, cl_uint n, \
                                        const cl_event *w, cl_event *e) \
    { \
        return clattn_##name##_enqueue(p, q, a, n, w, e); \
    } \
    static clattn_status name##_prewarm(clattn_context *c, const void *d) \
    { \
        return clattn_##name##_prewarm(c, d); \
    } \
    static clattn_status name##_run(clattn_context *c, cl_command_queue q, const void *d, const void *a, cl_uint n, \
                                    const cl_event *w, cl_event *e) \
    { \
        return clattn_##name##_run(c, q, d, a, n, w, e); \
    } \
    static const struct operator_calls name##_operator = {name##_supports, name##_plan_create, name##_enqueue, \
                                                          name##_prewarm, name##_run};

/* ---- on the device under test, for the programs that run a suite of the harness ---- */

/* Asserts that supports answers `expected`, with a reason if and only if that is not SUCCESS, and that plan_create then
 * answers the same and makes no plan. */
void operator_answers(const struct operator_calls *op, const void *desc, clattn_status expected);

/* Asserts that enqueue answers `expected`, which is not SUCCESS, to those arguments. */
void operator_refuses(const struct operator_calls *op, clattn_plan *plan, const void *args, clattn_status expected);

/* Asserts that enqueue refuses to do without a plan, and without arguments; with `plan`, `good` ones would do. */
void operator_needs_both(const struct operator_calls *op, clattn_plan *plan, const void *good);

/* Asserts that a copy of the description or the arguments `good` is refused with CLATTN_ERROR_`status` after `change`, an
 * assignment to a member.  In `change` other members are desc.MEMBER or args.MEMBER. */
#define OPERATOR_REFUSES_DESC(name, status, good, change) \
    do { \
        __typeof__(good) desc = good; \
        desc.change; \
        operator_answers(&name##_operator, &desc, CLATTN_ERROR_##status); \
    } while (0)
#define OPERATOR_REFUSES_ARGS(name, plan, status, good, change) \
    do { \
        __typeof__(good) args = good; \
        args.change; \
        operator_refuses(&name##_operator, (plan), &args, CLATTN_ERROR_##status); \
    } while (0)

/* Asserts that prewarm makes the plan that run then finds: run succeeds and neither builds nor loads a program. */
void operator_runs_prewarmed(const struct operator_calls *op, const void *desc, const void *args);

#endif
