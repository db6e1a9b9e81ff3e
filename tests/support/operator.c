/* What holds of every operator's refusals and of its plan cache. */
#include "support/operator.h"

#include "support/harness.h"

void operator_answers(const struct operator_calls *op, const void *desc, clattn_status expected)
{
    const char *reason = NULL;
    clattn_plan *plan = NULL;

    assert_status(device_context(), op->supports(device_context(), desc, &reason), expected);
    assert_true((reason == NULL) == (expected == CLATTN_SUCCESS));
    if (expected != CLATTN_SUCCESS) {
        assert_status(device_context(), op->plan_create(device_context(), desc, NULL, &plan), expected);
        assert_null(plan);
    }
}

void operator_refuses(const struct operator_calls *op, clattn_plan *plan, const void *args, clattn_status expected)
{
    assert_true(expected != CLATTN_SUCCESS);
    assert_status(device_context(), op->enqueue(plan, NULL, args, 0, NULL, NULL), expected);
}

void operator_needs_both(const struct operator_calls *op, clattn_plan *plan, const void *good)
{
    assert_status(device_context(), op->enqueue(plan, NULL, NULL, 0, NULL, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_status(device_context(), op->enqueue(NULL, NULL, good, 0, NULL, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
}

void operator_runs_prewarmed(const struct operator_calls *op, const void *desc, const void *args)
{
    clattn_program_statistics before = {.size = sizeof before}, after = {.size = sizeof after};

    assert_status(device_context(), op->prewarm(device_context(), desc), CLATTN_SUCCESS);
    assert_status(device_context(), clattn_context_program_statistics(device_context(), &before), CLATTN_SUCCESS);
    assert_status(device_context(), op->run(device_context(), NULL, desc, args, 0, NULL, NULL), CLATTN_SUCCESS);
    assert_status(device_context(), clattn_context_program_statistics(device_context(), &after), CLATTN_SUCCESS);
    assert_true(before.built == after.built && before.loaded == after.loaded);
}
