/* What holds of every operator's refusals and of its plan cache. */
#include "support/operator.h"

#include "support/harness.h"

/* The functions have the operator's own types, so each is wrapped. */
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
    const struct operator_calls name##_operator = {name##_supports, name##_plan_create, name##_enqueue, \
                                                   name##_prewarm, name##_run};

OPERATOR(activation)
OPERATOR(attention)
OPERATOR(conv2d)
OPERATOR(cross_entropy)
OPERATOR(dropout)
OPERATOR(embedding)
OPERATOR(image)
OPERATOR(kv_append)
OPERATOR(matmul)
OPERATOR(merge)
OPERATOR(mha)
OPERATOR(neighbourhood)
OPERATOR(norm)
OPERATOR(pool)
OPERATOR(resize)
OPERATOR(rope)
OPERATOR(softmax)

clattn_status operator_makes(clattn_context *context, const struct operator_calls *op, const void *desc,
                             const char *solver)
{
    const clattn_plan_options options = {.size = sizeof options, .solver = solver};
    clattn_plan *plan = NULL;
    const clattn_status status = op->plan_create(context, desc, solver ? &options : NULL, &plan);

    assert_int_equal(plan != NULL, status == CLATTN_SUCCESS);
    clattn_plan_release(&plan);
    return status;
}

clattn_plan *operator_plan(const struct operator_calls *op, const void *desc, const char *solver)
{
    const clattn_plan_options options = {.size = sizeof options, .solver = solver};
    clattn_plan *plan = NULL;

    assert_status(device_context(), op->plan_create(device_context(), desc, &options, &plan), CLATTN_SUCCESS);
    assert_non_null(plan);
    return plan;
}

void operator_refuses_plan(const struct operator_calls *op, const void *desc, const char *solver,
                           clattn_status expected)
{
    assert_true(expected != CLATTN_SUCCESS);
    assert_status(device_context(), operator_makes(device_context(), op, desc, solver), expected);
}

void operator_answers_to(const struct operator_calls *op, const void *desc, clattn_status expected, const char *file,
                         int line, const char *what)
{
    const char *reason = NULL;

    check_status(device_context(), op->supports(device_context(), desc, &reason), STATUS_BIT(expected), what, file,
                 line);
    assert_true((reason == NULL) == (expected == CLATTN_SUCCESS));
    if (expected != CLATTN_SUCCESS) {
        check_status(device_context(), operator_makes(device_context(), op, desc, NULL), STATUS_BIT(expected), what,
                     file, line);
    }
}

void operator_refuses(const struct operator_calls *op, clattn_plan *plan, const void *args, clattn_status expected,
                      const char *file, int line, const char *what)
{
    assert_true(expected != CLATTN_SUCCESS);
    check_status(device_context(), op->enqueue(plan, NULL, args, 0, NULL, NULL), STATUS_BIT(expected), what, file,
                 line);
}

void operator_needs_both(const struct operator_calls *op, clattn_plan *plan, const void *good)
{
    assert_status(device_context(), op->enqueue(plan, NULL, NULL, 0, NULL, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_status(device_context(), op->enqueue(NULL, NULL, good, 0, NULL, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
}

void operator_runs_prewarmed(const struct operator_calls *op, const void *desc, const void *args)
{
    assert_status(device_context(), op->prewarm(device_context(), desc), CLATTN_SUCCESS);
    const clattn_program_statistics before = device_programs();
    assert_status(device_context(), op->run(device_context(), NULL, desc, args, 0, NULL, NULL), CLATTN_SUCCESS);
    const clattn_program_statistics after = device_programs();
    assert_true(before.built == after.built && before.loaded == after.loaded);
}
