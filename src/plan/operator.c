#include "plan/operator.h"

#include <stdlib.h>
#include <string.h>

#include "base/try.h"
#include "plan/control.h"
#include "plan/enqueue.h"
#include "plan/job.h"

/* The operator itself, or the one for the description's direction. */
static const struct operator_type *directed(const struct operator_type *type, const void *desc)
{
    struct {
        size_t size;
        clattn_direction direction;
    } head = {0, CLATTN_DIRECTION_FORWARD}; /* descriptions begin so */
    if (desc)
        memcpy(&head.size, desc, sizeof head.size);
    if (head.size >= sizeof head)
        memcpy(&head, desc, sizeof head);
    return type->backward && head.direction == CLATTN_DIRECTION_BACKWARD ? type->backward : type;
}

/* Reads a description into an allocated problem, which the caller frees; NULL with *status and *reason on failure. */
static void *read_problem(const struct operator_type *type, const void *desc, clattn_status *status,
                          const char **reason)
{
    void *problem = malloc(type->bytes.problem);
    *status = CLATTN_ERROR_OUT_OF_MEMORY;
    *reason = "no memory for a description";
    if (problem)
        *status = type->read(desc, problem, reason);
    if (*status == CLATTN_SUCCESS)
        return problem;
    free(problem);
    return NULL;
}

clattn_status operator_supports(const struct operator_type *type, clattn_context *context, const void *desc,
                                const char **reason)
{
    const char *why = "context is NULL";
    clattn_status status = CLATTN_ERROR_INVALID_ARGUMENT;
    type = directed(type, desc);
    void *problem = context ? read_problem(type, desc, &status, &why) : NULL;
    if (problem)
        status = type->solvers ? plan_supports(context, type, problem, &why) : type->supports(context, problem, &why);
    free(problem);
    if (reason)
        *reason = status == CLATTN_SUCCESS ? NULL : why;
    return status;
}

/* Makes the plan's key in wisdom, which ends in the shape bucket of its problem. */
static clattn_status find_wisdom_key(const struct operator_type *type, clattn_plan *plan)
{
    struct strbuf text = {0};
    type->shape_bucket(operator_problem(plan), &text);
    if (!text.failed && text.length <= BUCKET_BYTES)
        plan->wisdom_key = context_wisdom_key(plan->context, type->name, text.text);
    strbuf_clear(&text);
    return plan->wisdom_key
               ? CLATTN_SUCCESS
               : report_error(&plan->context->device.report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a plan");
}

clattn_status plan_finish(clattn_plan *plan, const clattn_plan_options *options)
{
    return plan->type->solvers ? plan_choose(plan, options) : plan->type->make(plan, options);
}

static clattn_status make_plan(const struct operator_type *type, clattn_context *context, const void *problem,
                               const clattn_plan_options *options, clattn_plan **plan)
{
    clattn_status status;
    clattn_plan *made = NULL;
    TRY(plan_new(context, type, &made));
    memcpy((unsigned char *)made + type->bytes.problem_offset, problem, type->bytes.problem);
    if (type->shape_bucket)
        TRY(find_wisdom_key(type, made));
    if (type->take)
        TRY(type->take(made));
    return job_finish_plan(made, options, plan);
fail:
    clattn_plan_release(&made);
    return status;
}

/* Writes the extents of the description's arrays: "; query 1 x 2 x 5 x 64, key ...". */
static void write_extents(const struct layout_place *place, const void *desc, struct strbuf *text)
{
    const char *before = "; ";
    size_t size;
    memcpy(&size, desc, sizeof size);
    for (; place && place->name && place->offset + sizeof(clattn_layout) <= size; place++) {
        clattn_layout layout;
        memcpy(&layout, (const unsigned char *)desc + place->offset, sizeof layout);
        if (layout.rank < 1 || layout.rank > CLATTN_MAX_RANK)
            continue;
        strbuf_printf(text, "%s%s %zu", before, place->name, layout.extent[0]);
        for (int i = 1; i < layout.rank; i++)
            strbuf_printf(text, " x %zu", layout.extent[i]);
        before = ", ";
    }
}

/* Does read_problem and reports a failure on the context. */
static clattn_status read_reported(const struct operator_type *type, clattn_context *context, const void *desc,
                                   void **problem)
{
    clattn_status status;
    const char *reason;
    struct strbuf extents = {0};
    *problem = read_problem(type, desc, &status, &reason);
    if (status == CLATTN_ERROR_INVALID_LAYOUT)
        write_extents(type->layouts, desc, &extents);
    if (!*problem)
        report_error(&context->device.report, status, "%s: %s%s", type->name, reason,
                     extents.length && !extents.failed ? extents.text : "");
    strbuf_clear(&extents);
    return status;
}

clattn_status operator_plan_create(const struct operator_type *type, clattn_context *context, const void *desc,
                                   const clattn_plan_options *options, clattn_plan **plan)
{
    clattn_status status;
    clattn_plan_options own;
    void *problem = NULL;
    plan_results_clear(options, plan);
    type = directed(type, desc);
    TRY(context_check(context));
    TRY(plan_options_read(context, options, &own));
    if (!plan && !own.background.job)
        return report_error(&context->device.report, CLATTN_ERROR_INVALID_ARGUMENT, "plan is NULL");
    TRY(read_reported(type, context, desc, &problem));
    TRY(make_plan(type, context, problem, &own, plan));
fail:
    free(problem);
    return status;
}

clattn_status operator_plan_find(const struct operator_type *type, clattn_context *context, const void *desc,
                                 clattn_plan **plan)
{
    clattn_status status;
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    void *problem = NULL;
    *plan = NULL;
    type = directed(type, desc);
    TRY(context_check(context));
    TRY(read_reported(type, context, desc, &problem));
    *plan = plan_cache_find(&context->plans, type, problem, type->bytes.desc);
    if (!*plan) {
        TRY(make_plan(type, context, problem, &options, plan));
        plan_cache_add(&context->plans, type, problem, type->bytes.desc, *plan);
    }
fail:
    free(problem);
    return status;
}

clattn_status operator_prewarm(const struct operator_type *type, clattn_context *context, const void *desc)
{
    clattn_plan *plan;
    clattn_status status = operator_plan_find(type, context, desc, &plan);
    clattn_plan_release(&plan);
    return status;
}

/* The control in the caller's arguments; NULL if there is none. */
static clattn_control *control_of(const struct operator_type *type, const void *args)
{
    const size_t offset = type->bytes.control_offset;
    size_t size;
    clattn_control *control = NULL;
    if (!args)
        return NULL;
    memcpy(&size, args, sizeof size);
    if (size >= offset + sizeof control)
        memcpy(&control, (const unsigned char *)args + offset, sizeof control);
    return control;
}

clattn_status operator_enqueue(const struct operator_type *type, clattn_plan *plan, cl_command_queue queue,
                               const void *args, cl_uint wait_count, const cl_event *wait_list, cl_event *event)
{
    if (plan && type->backward && plan->type == type->backward)
        type = type->backward;
    clattn_status status = plan_check(plan, type);
    if (status != CLATTN_SUCCESS)
        return status;
    const struct enqueue_call call = {.problem = operator_problem(plan),
                                      .workspace = plan->workspace,
                                      .queue = queue,
                                      .wait_count = wait_count,
                                      .wait_list = wait_list,
                                      .event = event,
                                      .control = control_of(type, args)};
    status = control_enter(call.control, &plan->context->device.report);
    if (status != CLATTN_SUCCESS)
        return status;
    const char *before = report_about(type->name);
    status = control_leave(call.control, type->enqueue(plan, &call, args));
    report_about(before);
    return status;
}

clattn_status operator_run(const struct operator_type *type, clattn_context *context, cl_command_queue queue,
                           const void *desc, const void *args, cl_uint wait_count, const cl_event *wait_list,
                           cl_event *event)
{
    clattn_plan *plan = NULL;
    clattn_control *control = control_of(type, args);
    clattn_status status = context_check(context);
    if (status == CLATTN_SUCCESS) /* nothing is compiled for a call that is cancelled */
        status = control_enter(control, &context->device.report);
    if (status != CLATTN_SUCCESS)
        return status;
    status = operator_plan_find(type, context, desc, &plan);
    if (status == CLATTN_SUCCESS)
        status = operator_enqueue(type, plan, queue, args, wait_count, wait_list, event);
    clattn_plan_release(&plan);
    return control_leave(control, status);
}
