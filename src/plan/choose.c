/* Choosing among an operator's solvers. */
#include <string.h>

#include "base/os.h"
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

static bool is_hidden(const struct solver *solver)
{
    static const char start[] = "emulated-";
    return !strncmp(solver->name, start, sizeof start - 1);
}

const char *refuse_slow_bf16(const clattn_context *context)
{
    return context->device.caps.fast_bf16
               ? NULL
               : "no AVX512-BF16 that is faster than fma, or a compiler not known to take it";
}

const char *refuse_emulated_amx(const clattn_context *context)
{
    return context->device.caps.amx_bf16 ? NULL : "no AMX for bfloat16, or a compiler not known to take it";
}

bool has_bf16_parts(clattn_dtype dtype)
{
    return dtype == CLATTN_DTYPE_F32 || dtype == CLATTN_DTYPE_F16 || dtype == CLATTN_DTYPE_BF16;
}

clattn_status choose_amx(clattn_plan *plan, bool *has)
{
    *has = plan->context->device.caps.amx_bf16;
    return !*has || os_processor_permit_amx_bf16()
               ? CLATTN_SUCCESS
               : report_error(&plan->context->device.report, CLATTN_ERROR_UNSUPPORTED,
                              "the system does not permit AMX");
}

/* Why `solver` may not even be asked, or NULL. */
static const char *excluded(const clattn_context *context, const char *operator_name, const struct solver *solver,
                            const char *forced)
{
    if (forced && strcmp(forced, solver->name) != 0)
        return "another solver was asked for";
    if (context_denies(context, operator_name, solver->name))
        return "denied by the application";
    return NULL;
}

static const char *held_back(const clattn_context *context, const struct solver *solver, const char *forced)
{
    return forced || !solver->only_named ? NULL : solver->only_named(context);
}

clattn_status plan_supports(const clattn_context *context, const char *operator_name, const struct solver *const *table,
                            size_t count, const void *problem, const char **reason)
{
    const char *why = "the operator has no solver";
    for (size_t i = 0; i < count; i++) {
        if (is_hidden(table[i]))
            continue;
        why = excluded(context, operator_name, table[i], NULL);
        if (!why)
            why = table[i]->refuse(context, problem, false);
        if (!why)
            why = held_back(context, table[i], NULL);
        if (!why)
            return CLATTN_SUCCESS;
    }
    *reason = why;
    return CLATTN_ERROR_UNSUPPORTED;
}

/* The source of a geometry whose plan may be one of many that are only measured. */
static const char source_caller[] = "the caller";

/* `source`: whose choice the geometry is. */
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

/* Prepares and warms the plan by `solver` with what plan->tuning gives; undone on failure.  `source`: whose that is. */
static clattn_status try_solver(clattn_plan *plan, const struct solver *solver,
                                clattn_status (*check)(clattn_plan *plan), const char *source)
{
    clattn_status status;
    TRY(solver->prepare(plan));
    TRY(plan_warm(plan));
    TRY(plan_self_check(plan, check));
    plan_save(plan, source == source_caller);
    plan->solver = solver->name;
    explain_choice(plan, source);
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
    report_log(report, CLATTN_LOG_LEVEL_WARNING, "%s solver %s failed, trying the next: %s", operator_name,
               solver->name, message);
    strbuf_printf(&plan->explain, "  %s: failed, %s\n", solver->name, message);
}

/* The same of a record: the choice then goes on as if there were none. */
static void explain_wisdom_failure(clattn_plan *plan, const char *operator_name, const struct advice *advice)
{
    struct report *report = &plan->context->device.report;
    char message[512];
    report_copy(report, message, sizeof message);
    message[strcspn(message, "\n")] = '\0';
    report_log(report, CLATTN_LOG_LEVEL_WARNING, "wisdom for %s is ignored, its solver %s failed: %s", operator_name,
               advice->solver, message);
    strbuf_printf(&plan->explain, "    that is ignored: %s\n", message);
}

/* What another solver would meet with too: no host memory, another process. */
static bool is_final(clattn_status status)
{
    return status == CLATTN_ERROR_FORKED || (status == CLATTN_ERROR_OUT_OF_MEMORY && report_host_memory());
}

struct choosing {
    clattn_plan *plan;
    const char *operator_name;
    const struct solver *const *table;
    size_t count;
    clattn_status (*check)(clattn_plan *plan);
    const void *problem;
    const char *forced; /* a solver's name, or NULL */
};

/* The solver that a record names and that may be asked; otherwise NULL and why not, a static string. */
static const struct solver *advised_solver(const struct choosing *c, const struct advice *advice, const char **reason)
{
    const clattn_context *context = c->plan->context;
    *reason = "there is no such solver";
    for (size_t i = 0; i < c->count; i++) {
        if (strcmp(c->table[i]->name, advice->solver) != 0)
            continue;
        *reason = excluded(context, c->operator_name, c->table[i], c->forced);
        if (!*reason && is_hidden(c->table[i]) && !c->forced)
            *reason = "only a caller may ask for it";
        if (!*reason && c->plan->number == OPERATOR_MATMUL && context->clblast == CLATTN_CLBLAST_MODE_PREFER &&
            strcmp(advice->solver, "clblast") != 0)
            *reason = "the context's params prefer CLBlast";
        if (!*reason)
            *reason = c->table[i]->refuse(context, c->problem, true);
        if (!*reason)
            *reason = held_back(context, c->table[i], c->forced);
        return *reason ? NULL : c->table[i];
    }
    return NULL;
}

/* Tries what wisdom has for the problem's class, best first; plan->solver says whether that has led to anything. */
static clattn_status try_wisdom(const struct choosing *c)
{
    clattn_plan *plan = c->plan;
    struct wisdom *wisdom = &plan->context->wisdom;
    struct advice advice;
    const struct setting *ignored;
    for (uint32_t rank = 0; plan->wisdom_key && wisdom_find(wisdom, plan->wisdom_key, rank, &advice);
         rank = advice.rank + 1) {
        const char *reason;
        const struct solver *solver = advised_solver(c, &advice, &reason);
        strbuf_printf(&plan->explain, "    wisdom has %s, rank %u, %.6g ms, for %s\n", advice.solver,
                      (unsigned)advice.rank, (double)advice.nanoseconds * 1e-6, plan->wisdom_key);
        if (!solver) {
            strbuf_printf(&plan->explain, "    that is ignored: %s\n", reason);
            continue;
        }
        plan->tuning.given = &advice.settings;
        clattn_status status = try_solver(plan, solver, c->check, "wisdom");
        if (status == CLATTN_SUCCESS && !tuning_all_taken(&plan->tuning, &ignored))
            strbuf_printf(&plan->explain, "    of wisdom %s=%d, for one, is ignored: the solver does not take it\n",
                          ignored->name, (int)ignored->value);
        plan->tuning.given = NULL;
        if (status == CLATTN_SUCCESS || is_final(status))
            return status;
        explain_wisdom_failure(plan, c->operator_name, &advice);
    }
    return CLATTN_SUCCESS;
}

/* The caller's own parameters: the solver takes all, or the plan fails. */
static clattn_status try_given(const struct choosing *c, const struct solver *solver, const char *text)
{
    struct settings settings;
    const struct setting *refused;
    struct report *report = &c->plan->context->device.report;
    if (!settings_parse(text, strlen(text), &settings))
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT,
                            "tuning is not \"NAME=NUMBER NAME=NUMBER ...\": \"%.100s\"", text);
    c->plan->tuning.given = &settings;
    clattn_status status = try_solver(c->plan, solver, c->check, source_caller);
    if (status == CLATTN_SUCCESS && !tuning_all_taken(&c->plan->tuning, &refused))
        status = report_error(report, CLATTN_ERROR_UNSUPPORTED, "%s's solver %s does not take %s=%d", c->operator_name,
                              solver->name, refused->name, (int)refused->value);
    c->plan->tuning.given = NULL;
    return status;
}

/* A solver's line, where it was not tried or another one already serves. */
static void explain_solver(clattn_plan *plan, const char *solver, const char *verdict, const char *why)
{
    strbuf_printf(&plan->explain, "  %s: %s, %s\n", solver, verdict, why);
}

clattn_status plan_choose(clattn_plan *plan, const char *operator_name, const struct solver *const *table, size_t count,
                          clattn_status (*check)(clattn_plan *plan), const void *problem,
                          const clattn_plan_options *options)
{
    clattn_context *context = plan->context;
    struct report *report = &context->device.report;
    const clattn_device_info *info = &context->device.caps.info;
    const char *forced = options->solver, *refusal = "there is no such solver";
    const struct choosing choosing = {plan, operator_name, table, count, check, problem, forced};
    clattn_status status = CLATTN_SUCCESS, failure = CLATTN_SUCCESS;
    bool known = !forced, by_wisdom;
    strbuf_printf(&plan->explain, "%s on %s, %s\n", operator_name, info->platform, info->name);
    if (options->tuning && !forced)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "tuning needs a solver");
    if (!options->tuning)
        status = try_wisdom(&choosing);
    if (status != CLATTN_SUCCESS)
        return status;
    by_wisdom = plan->solver != NULL;
    for (size_t i = 0; i < count; i++) {
        const struct solver *solver = table[i];
        const char *reason = excluded(context, operator_name, solver, forced);
        known = known || !strcmp(forced, solver->name);
        if (is_hidden(solver) && (!forced || strcmp(forced, solver->name) != 0))
            continue;
        if (plan->solver) {
            if (!by_wisdom || strcmp(plan->solver, solver->name) != 0)
                explain_solver(plan, solver->name, "not asked",
                               by_wisdom ? "wisdom has another" : "the one before took it");
            continue;
        }
        if (!reason)
            reason = solver->refuse(context, problem, forced != NULL);
        if (!reason)
            reason = held_back(context, solver, forced);
        if (reason) {
            explain_solver(plan, solver->name, "refused", reason);
            if (!forced || !strcmp(forced, solver->name))
                refusal = reason;
            continue;
        }
        status = options->tuning ? try_given(&choosing, solver, options->tuning)
                                 : try_solver(plan, solver, check, "the cost model");
        if (status == CLATTN_SUCCESS)
            continue;
        if (forced || is_final(status))
            return status;
        failure = status;
        explain_failure(plan, operator_name, solver);
    }
    if (plan->explain.failed)
        return report_error(report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a plan");
    if (!known)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "%s has no solver \"%s\"", operator_name, forced);
    if (!plan->solver && failure != CLATTN_SUCCESS)
        return failure; /* the last failure's message stands, build log and all */
    if (!plan->solver)
        return report_error(report, CLATTN_ERROR_UNSUPPORTED, "%s: %s", operator_name, refusal);
    return CLATTN_SUCCESS;
}
