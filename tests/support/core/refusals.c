#include "support/core/refusals.h"

#include <string.h>

struct small_attention problem;
clattn_plan *plan;

int refusals_start(void **state)
{
    open_context(state);
    small_attention_open(&problem, clattn_context_opencl_context(context));
    assert_status(context, clattn_attention_plan_create(context, &problem.desc, NULL, &plan), CLATTN_SUCCESS);
    return 0;
}

int refusals_stop(void **state)
{
    clattn_plan_release(&plan);
    small_attention_release(&problem);
    return close_context(state);
}

void refused_attention(const clattn_attention_desc *desc, unsigned set, const char *file, int line)
{
    clattn_plan *none = (clattn_plan *)(void *)&line; /* must be NULL afterwards */
    const char *reason = NULL;
    clattn_status status = clattn_attention_supports(context, desc, &reason);
    check_status(context, status, set, "attention_supports", file, line);
    if (!reason || strlen(reason) < 4)
        fail_msg("%s:%d: no reason", file, line);
    check_status(context, clattn_attention_plan_create(context, desc, NULL, &none), set, "attention_plan_create", file,
                 line);
    assert_null(none);
    assert_true(clattn_context_message(context, NULL, 0) > 4);
    check_status(context, clattn_attention_run(context, NULL, desc, &problem.args, 0, NULL, NULL), set, "attention_run",
                 file, line);
}

void refused_desc(const struct operator_calls *op, const void *desc, unsigned set, const char *change, int line)
{
    check_status(context, operator_makes(context, op, desc, NULL), set, change, __FILE__, line);
    check_status(context, op->supports(context, desc, NULL), set, change, __FILE__, line);
}

void refused_by_name(const struct operator_calls *op, const void *desc, unsigned set, const char *begins, int line)
{
    const char *reason = NULL;
    refused_desc(op, desc, set, begins, line);
    op->supports(context, desc, &reason);
    assert_non_null(reason);
    if (strncmp(reason, begins, strlen(begins)) != 0)
        fail_msg("line %d: \"%s\" does not begin with \"%s\"", line, reason, begins);
    assert_int_not_equal(operator_makes(context, op, desc, NULL), CLATTN_SUCCESS);
    check_message(context, begins, __FILE__, line);
}

void refused_enqueue(const clattn_attention_args *args, unsigned set, const char *file, int line)
{
    cl_event event = NULL;
    float before[128], after[128];
    cl_command_queue queue = clattn_context_queue(context);
    read_buffer(queue, problem.output, problem.count * sizeof(float), before);
    check_status(context, clattn_attention_enqueue(plan, NULL, args, 0, NULL, &event), set, "attention_enqueue", file,
                 line);
    assert_null(event);
    assert_true(clattn_context_message(context, NULL, 0) > 4);
    read_buffer(queue, problem.output, problem.count * sizeof(float), after);
    assert_memory_equal(before, after, problem.count * sizeof(float));
}
