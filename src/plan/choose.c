/* Choosing among an operator's solvers. */
#include <string.h>

#include "base/try.h"
#include "plan/plan.h"

const char *refuse_loops(const struct capabilities *caps, double iterations)
{
    return capabilities_allow_loops(caps, iterations) ? NULL : LOOPS_REASON;
}

const char *refuse_all_but_cpu(const struct capabilities *caps, bool forced)
{
    return forced || capabilities_on_cpu(caps) ? NULL : "the device is no CPU";
}

const char *refuse_cpu(const struct capabilities *caps, bool forced)
{
    return forced || !capabilities_on_cpu(caps) ? NULL : "barriers and local memory are slow on a CPU";
}

/* Why `solver` may not even be asked, or NULL. */
static const char *excluded(const clattn_context *context, const char *operator_name,
                            const struct solver *solver, const char *forced)
{
    if (forced && strcmp(forced, solver->name) != 0)
        return "another solver was asked for";
    if (context_denies(context, operator_name, solver->name))
        return "denied by the application";
    return NULL;
}

clattn_status plan_supports(const clattn_context *context, const char *operator_name,
                            const struct solver *const *table, size_t count, const void *problem,
                            const char **reason)
{
    const char *why = "the operator has no solver";
    for (size_t i = 0; i < count; i++) {
        why = excluded(context, operator_name, table[i], NULL);
        if (!why)
            why = table[i]->refuse(context, problem, false);
        if (!why)
            return CLATTN_SUCCESS;
    }
    *reason = why;
    return CLATTN_ERROR_UNSUPPORTED;
}

static void explain_choice(clattn_plan *plan)
{
    strbuf_printf(&plan->explain, "  %s: chosen;", plan->solver);
    for (size_t i = 0; i < plan->kernel_count; i++) {
        const struct plan_kernel *kernel = &plan->kernels[i];
        strbuf_printf(&plan->explain, " kernel %s in work-groups of %zux%zux%zu with %llu bytes of local and",
                      kernel->name, kernel->local[0], kernel->local[1], kernel->local[2],
                      (unsigned long long)kernel->local_bytes);
        strbuf_printf(&plan->explain, " %llu of private memory,", (unsigned long long)kernel->private_bytes);
    }
    strbuf_printf(&plan->explain, " at most %zu launch%s, workspace %zu bytes\n", plan->launches,
                  plan->launches == 1 ? "" : "es", plan->workspace);
    plan_explain_workspace(plan);
}

/* Prepares and warms the plan by `solver`; undone on failure. */
static clattn_status try_solver(clattn_plan *plan, const struct solver *solver,
                                clattn_status (*check)(clattn_plan *plan))
{
    clattn_status status;
    TRY(solver->prepare(plan));
    TRY(plan_warm(plan));
    TRY(plan_self_check(plan, check));
    plan_save(plan);
    plan->solver = solver->name;
    explain_choice(plan);
    return CLATTN_SUCCESS;
fail:
    plan_drop_kernels(plan);
    return status;
}

/* A failed solver's message goes into the log and, its first line, into `explain`. */
static void explain_failure(clattn_plan *plan, const char *operator_name, const struct solver *solver)
{
    struct report *report = &plan->context->device.report;
    char message[512];
    report_copy(report, message, sizeof message);
    message[strcspn(message, "\n")] = '\0';
    report_log(report, CLATTN_LOG_WARNING, "%s solver %s failed, trying the next: %s", operator_name,
               solver->name, message);
    strbuf_printf(&plan->explain, "  %s: failed, %s\n", solver->name, message);
}

clattn_status plan_choose(clattn_plan *plan, const char *operator_name, const struct solver *const *table,
                          size_t count, clattn_status (*check)(clattn_plan *plan), const void *problem,
                          const clattn_plan_options *options)
{
    clattn_context *context = plan->context;
    struct report *report = &context->device.report;
    const clattn_device_info *info = &context->device.caps.info;
    const char *forced = options->solver, *refusal = "there is no such solver";
    clattn_status failure = CLATTN_SUCCESS;
    bool known = !forced;
    strbuf_printf(&plan->explain, "%s on %s, %s\n", operator_name, info->platform, info->name);
    for (size_t i = 0; i < count; i++) {
        const struct solver *solver = table[i];
        const char *reason = excluded(context, operator_name, solver, forced);
        known = known || !strcmp(forced, solver->name);
        if (plan->solver) {
            strbuf_printf(&plan->explain, "  %s: not asked, the one before took it\n", solver->name);
            continue;
        }
        if (!reason)
            reason = solver->refuse(context, problem, forced != NULL);
        if (reason) {
            strbuf_printf(&plan->explain, "  %s: refused, %s\n", solver->name, reason);
            if (!forced || !strcmp(forced, solver->name))
                refusal = reason;
            continue;
        }
        clattn_status status = try_solver(plan, solver, check);
        if (status == CLATTN_SUCCESS)
            continue;
        /* What another solver would meet with too ends it: no host memory, another process. */
        if (forced || status == CLATTN_ERROR_FORKED ||
            (status == CLATTN_ERROR_OUT_OF_MEMORY && report_host_memory()))
            return status;
        failure = status;
        explain_failure(plan, operator_name, solver);
    }
    if (plan->explain.failed)
        return report_error(report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a plan");
    if (!known)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "%s has no solver \"%s\"", operator_name,
                            forced);
    if (!plan->solver && failure != CLATTN_SUCCESS)
        return failure; /* the last failure's message stands, build log and all */
    if (!plan->solver)
        return report_error(report, CLATTN_ERROR_UNSUPPORTED, "%s: %s", operator_name, refusal);
    return CLATTN_SUCCESS;
}
