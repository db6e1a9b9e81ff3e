/* Choosing among an operator's solvers. */
#include <stdio.h>
#include <string.h>

#include "base/try.h"
#include "plan/job.h"
#include "plan/operator.h"

const char *refuse_loops(const struct capabilities *caps, double iterations)
{
    return capabilities_allow_loops(caps, iterations) ? NULL : LOOPS_REASON;
}

const char *refuse_all_but_cpu(const struct offer *offer)
{
    return offer->forced || capabilities_on_cpu(offer->caps) ? NULL : "the device is no CPU";
}

const char *refuse_cpu(const struct offer *offer)
{
    return offer->forced || !capabilities_on_cpu(offer->caps) ? NULL : "barriers and local memory are slow on a CPU";
}

/* ---- which solvers may serve ---- */

/* Why a solver is considered: the library's own choice, wisdom's, or the caller's by name. */
enum asker { BY_DEFAULT, BY_WISDOM, BY_NAME };

static bool is_hidden(const struct solver *solver)
{
    static const char start[] = "emulated-";
    return !strncmp(solver->name, start, sizeof start - 1);
}

/* Why the solver may not serve the problem, a static string, or NULL. */
static const char *why_not(const clattn_context *context, const struct operator_type *type, const struct solver *solver,
                           const void *problem, enum asker asker)
{
    if (context_denies(context, type->name, solver->name))
        return "denied by the application";
    if (is_hidden(solver) && asker != BY_NAME)
        return "only a caller may ask for it";
    const struct offer offer = {type, solver, context, &context->device.caps, problem, asker != BY_DEFAULT};
    const char *reason = solver->refuse ? solver->refuse(&offer) : NULL;
    if (!reason && solver->only_named && asker != BY_NAME)
        reason = solver->only_named(context);
    return reason;
}

clattn_status plan_supports(const clattn_context *context, const struct operator_type *type, const void *problem,
                            const char **reason)
{
    *reason = "the operator has no solver";
    for (size_t i = 0; i < type->solver_count; i++) {
        if (is_hidden(type->solvers[i]))
            continue;
        *reason = why_not(context, type, type->solvers[i], problem, BY_DEFAULT);
        if (!*reason)
            return CLATTN_SUCCESS;
    }
    return CLATTN_ERROR_UNSUPPORTED;
}

static const struct solver *find_solver(const struct operator_type *type, const char *name)
{
    for (size_t i = 0; i < type->solver_count; i++)
        if (!strcmp(type->solvers[i]->name, name))
            return type->solvers[i];
    return NULL;
}

/* Whether the context's params prefer one of the operator's solvers, and not this one. */
static bool another_is_preferred(const clattn_context *context, const struct operator_type *type,
                                 const struct solver *solver)
{
    for (size_t i = 0; i < type->solver_count; i++)
        if (type->solvers[i] != solver && type->solvers[i]->preferred && type->solvers[i]->preferred(context))
            return true;
    return false;
}

/* ---- explaining ---- */

/* The source of a plan's geometry, as `explain` names it. */
static const char source_model[] = "the cost model", source_wisdom[] = "wisdom", source_caller[] = "the caller";

static void explain_choice(clattn_plan *plan, const char *source)
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
    if (plan->tuning.count) {
        strbuf_printf(&plan->explain, "    geometry by %s:", source);
        tuning_print(&plan->tuning, &plan->explain);
        strbuf_printf(&plan->explain, "\n");
    }
    plan_explain_workspace(plan);
}

/* Lists the solvers from `first` on that were never asked, because plan->solver already serves. */
static void explain_unasked(clattn_plan *plan, size_t first, const char *why)
{
    const struct operator_type *type = plan->type;
    for (size_t i = first; i < type->solver_count; i++)
        if (!is_hidden(type->solvers[i]) && strcmp(type->solvers[i]->name, plan->solver) != 0)
            strbuf_printf(&plan->explain, "  %s: not asked, %s\n", type->solvers[i]->name, why);
}

/* Appends the first line of the last failure's message to `explain`, behind `heading`, and logs it, behind `warning`. */
static void explain_failure(clattn_plan *plan, const char *heading, const char *warning, const char *solver)
{
    struct report *report = &plan->context->device.report;
    char message[512];
    report_copy(report, message, sizeof message);
    message[strcspn(message, "\n")] = '\0';
    report_log(report, CLATTN_LOG_LEVEL_WARNING, "%s: solver %s failed, %s: %s", plan->type->name, solver, warning,
               message);
    strbuf_printf(&plan->explain, "%s%s\n", heading, message);
}

/* ---- trying ---- */

/* Prepares and warms the plan by `solver` with the parameters in plan->tuning, which `source` names; undone on
 * failure. */
static clattn_status try_solver(clattn_plan *plan, const struct solver *solver, const char *source)
{
    clattn_status status;
    plan->trying = solver;
    plan->efficiency = solver->efficiency;
    TRY(job_check());
    TRY(solver->prepare(plan));
    TRY(plan_warm(plan));
    TRY(job_check());
    TRY(plan_self_check(plan));
    plan_save(plan, source == source_caller); /* a caller's plan may be one of many that are only measured */
    plan->solver = solver->name;
    explain_choice(plan, source);
    return CLATTN_SUCCESS;
fail:
    plan_drop_kernels(plan);
    return status;
}

/* Whether another solver would fail for the same reason: no host memory, another process, a job that was cancelled. */
static bool is_final(clattn_status status)
{
    return status == CLATTN_ERROR_FORKED || status == CLATTN_ERROR_CANCELLED ||
           (status == CLATTN_ERROR_OUT_OF_MEMORY && report_host_memory());
}

/* Tries the solvers that wisdom has for the problem, best first; plan->solver is set if one served.  `named`: the
 * solver that the caller asks for, or NULL. */
static clattn_status try_wisdom(clattn_plan *plan, const char *named)
{
    const clattn_context *context = plan->context;
    struct advice advice;
    const struct setting *ignored;
    for (uint32_t rank = 0; plan->wisdom_key && wisdom_find(&plan->context->wisdom, plan->wisdom_key, rank, &advice);
         rank = advice.rank + 1) {
        const struct solver *solver = find_solver(plan->type, advice.solver);
        const char *reason =
            !solver                                      ? "there is no such solver"
            : named && strcmp(named, advice.solver) != 0 ? "another solver was asked for"
            : another_is_preferred(context, plan->type, solver)
                ? "the context's params prefer another"
                : why_not(context, plan->type, solver, operator_problem(plan), named ? BY_NAME : BY_WISDOM);
        strbuf_printf(&plan->explain, "    wisdom has %s, rank %u, %.6g ms, for %s\n", advice.solver,
                      (unsigned)advice.rank, (double)advice.nanoseconds * 1e-6, plan->wisdom_key);
        if (reason) {
            strbuf_printf(&plan->explain, "    that is ignored: %s\n", reason);
            continue;
        }
        plan->tuning.given = &advice.settings;
        clattn_status status = try_solver(plan, solver, source_wisdom);
        if (status == CLATTN_SUCCESS && !tuning_all_taken(&plan->tuning, &ignored))
            strbuf_printf(&plan->explain, "    of wisdom %s=%d, for one, is ignored: the solver does not take it\n",
                          ignored->name, (int)ignored->value);
        plan->tuning.given = NULL;
        if (status == CLATTN_SUCCESS || is_final(status))
            return status;
        explain_failure(plan, "    that is ignored: ", "wisdom for it is ignored", advice.solver);
    }
    return CLATTN_SUCCESS;
}

/* Tries the caller's own parameters: the solver takes all of them, or the plan fails. */
static clattn_status try_given(clattn_plan *plan, const struct solver *solver, const char *text)
{
    struct settings settings;
    const struct setting *refused;
    struct report *report = &plan->context->device.report;
    if (!settings_parse(text, strlen(text), &settings))
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT,
                            "tuning is not \"NAME=NUMBER NAME=NUMBER ...\": \"%.100s\"", text);
    plan->tuning.given = &settings;
    clattn_status status = try_solver(plan, solver, source_caller);
    if (status == CLATTN_SUCCESS && !tuning_all_taken(&plan->tuning, &refused))
        status = report_error(report, CLATTN_ERROR_UNSUPPORTED, "%s's solver %s does not take %s=%d", plan->type->name,
                              solver->name, refused->name, (int)refused->value);
    plan->tuning.given = NULL;
    return status;
}

static clattn_status choose_named(clattn_plan *plan, const clattn_plan_options *options)
{
    struct report *report = &plan->context->device.report;
    const struct solver *solver = find_solver(plan->type, options->solver);
    if (!solver) {
        char names[256] = "none";
        for (size_t i = 0, used = 0; i < plan->type->solver_count && used < sizeof names; i++)
            if (!is_hidden(plan->type->solvers[i]))
                used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "",
                                         plan->type->solvers[i]->name);
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "%s has no solver \"%s\", expected one of: %s",
                            plan->type->name, options->solver, names);
    }
    const char *reason = why_not(plan->context, plan->type, solver, operator_problem(plan), BY_NAME);
    if (reason)
        return report_error(report, CLATTN_ERROR_UNSUPPORTED, "%s: %s", plan->type->name, reason);
    return options->tuning ? try_given(plan, solver, options->tuning) : try_solver(plan, solver, source_model);
}

static clattn_status choose_best(clattn_plan *plan)
{
    const struct operator_type *type = plan->type;
    const char *refusal = "the operator has no solver";
    clattn_status failure = CLATTN_SUCCESS;
    for (size_t i = 0; i < type->solver_count; i++) {
        const struct solver *solver = type->solvers[i];
        if (is_hidden(solver))
            continue;
        const char *reason = why_not(plan->context, type, solver, operator_problem(plan), BY_DEFAULT);
        if (reason) {
            strbuf_printf(&plan->explain, "  %s: refused, %s\n", solver->name, reason);
            refusal = reason;
            continue;
        }
        clattn_status status = try_solver(plan, solver, source_model);
        if (status == CLATTN_SUCCESS)
            explain_unasked(plan, i + 1, "the one before took it");
        if (status == CLATTN_SUCCESS || is_final(status))
            return status;
        failure = status;
        strbuf_printf(&plan->explain, "  %s: ", solver->name);
        explain_failure(plan, "failed, ", "trying the next", solver->name);
    }
    if (failure != CLATTN_SUCCESS)
        return failure; /* the message of the last failure stays, with its build log */
    return report_error(&plan->context->device.report, CLATTN_ERROR_UNSUPPORTED, "%s: %s", type->name, refusal);
}

clattn_status plan_choose(clattn_plan *plan, const clattn_plan_options *options)
{
    clattn_status status = CLATTN_SUCCESS;
    struct report *report = &plan->context->device.report;
    const clattn_device_info *info = &plan->context->device.caps.info;
    strbuf_printf(&plan->explain, "%s on %s, %s\n", plan->type->name, info->platform, info->name);
    if (!info->saves_programs)
        strbuf_printf(
            &plan->explain,
            "  programs are not saved: asking driver %s for a binary may end the process; it has its own cache\n",
            info->driver);
    if (plan->type->begin)
        TRY(plan->type->begin(plan));
    if (options->tuning && !options->solver)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "tuning needs a solver");
    if (!options->tuning)
        TRY(try_wisdom(plan, options->solver));
    const bool by_wisdom = plan->solver != NULL;
    if (!by_wisdom)
        TRY(options->solver ? choose_named(plan, options) : choose_best(plan));
    if (options->solver)
        explain_unasked(plan, 0, "another was asked for");
    else if (by_wisdom)
        explain_unasked(plan, 0, "wisdom has another");
    if (plan->explain.failed)
        status = report_error(report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a plan");
fail:
    return status;
}
