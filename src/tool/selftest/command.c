/* clattn selftest: plans small problems of every operator with every solver, so that the library checks their kernels. */
#include <stdio.h>
#include <string.h>

#include "tool/cli/progress.h"
#include "tool/cli/report.h"
#include "tool/run/device.h"
#include "tool/selftest/selftest.h"

typedef struct selftest_options {
    const char *device;
    bool json;
    const char *operators[]; /* ended by NULL; none: all */
} selftest_options;

static const option_row rows[] = {
    OPTION_ROW_DEVICE(selftest_options),
    OPTION_ROW_JSON(selftest_options),
    OPTION_ROW_END,
};

static const option_table table = {
    .command = "selftest",
    .summary = "Plans small problems of every operator with each of its solvers, whose kernels the library then "
               "compares with\n"
               "a double-precision reference on the host.",
    .operands = "OPERATOR ...",
    .operand_offset = offsetof(selftest_options, operators),
    .rows = rows,
};

/* One operator with one solver. */
typedef struct solver_outcome {
    size_t passed, refused, failed;
    char detail[700]; /* the first failure, with the case's name; or the first refusal */
} solver_outcome;

static void run_solver(tool_device *device, const selftest_operator *op, const char *solver, solver_outcome *outcome,
                       size_t *done, size_t total)
{
    for (size_t i = 0; i < op->case_count; i++) {
        clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
        clattn_plan *plan = NULL;
        char message[512];
        options.solver = solver;
        clattn_status status = op->plan(device->context, &op->cases[i], &options, &plan);
        clattn_plan_release(&plan);
        device_message(device, status, message, sizeof message);
        if (status == CLATTN_SUCCESS)
            outcome->passed++;
        else if (status != CLATTN_ERROR_UNSUPPORTED && !(status == CLATTN_ERROR_INVALID_ARGUMENT && solver != NULL)) {
            if (outcome->failed++ == 0)
                snprintf(outcome->detail, sizeof outcome->detail, "%s: %s", op->cases[i].name, message);
        } else if (outcome->refused++ == 0 && outcome->failed == 0) {
            /* INVALID_ARGUMENT: this build does not have the solver. */
            snprintf(outcome->detail, sizeof outcome->detail, "%s", message);
        }
        progress_show((double)++*done / (double)total);
    }
}

static const char *word_for(const solver_outcome *outcome)
{
    return outcome->failed > 0 ? "failed" : outcome->passed > 0 ? "ok" : "refused";
}

/* The first line alone: a build log has many. */
static void print_row(const char *operator_name, const char *solver, const solver_outcome *outcome, size_t cases)
{
    const char *detail = outcome->detail;
    printf("%-13s  %-9s  %-7s  %zu of %zu%s%.*s\n", operator_name, solver, word_for(outcome), outcome->passed, cases,
           detail[0] != '\0' ? "  " : "", (int)strcspn(detail, "\n"), detail);
    fflush(stdout);
}

/* Whether an operator is one of those that were asked for. */
static bool is_wanted(const char *const *names, const char *operator_name)
{
    bool found = names[0] == NULL;
    for (size_t i = 0; names[i] != NULL && !found; i++)
        found = strcmp(names[i], operator_name) == 0;
    return found;
}

static int check_names(const char *const *names)
{
    for (size_t i = 0; names[i] != NULL; i++) {
        bool known = false;
        for (size_t j = 0; j < selftest_operator_count; j++)
            known = known || strcmp(selftest_operators[j].name, names[i]) == 0;
        if (!known)
            return complain(TOOL_BAD_INPUT,
                            "selftest: unknown operator '%s', expected one of those that clattn selftest prints",
                            names[i]);
    }
    return TOOL_DONE;
}

static size_t count_steps(const char *const *names)
{
    size_t total = 0;
    for (size_t i = 0; i < selftest_operator_count; i++) {
        size_t solvers = 1;
        if (!is_wanted(names, selftest_operators[i].name))
            continue;
        while (selftest_operators[i].solvers[solvers - 1] != NULL)
            solvers++;
        total += solvers * selftest_operators[i].case_count;
    }
    return total;
}

static int run_wanted(tool_device *device, const selftest_options *options, json_t *results, size_t *failed)
{
    const bool json = options->json;
    size_t done = 0, total = count_steps(options->operators);
    if (!json)
        printf("device: %s (%s)\n%-13s  %-9s  %-7s  cases\n", device->info.name, device->info.platform, "operator",
               "solver", "result");
    for (size_t i = 0; i < selftest_operator_count; i++) {
        const selftest_operator *op = &selftest_operators[i];
        if (!is_wanted(options->operators, op->name))
            continue;
        /* The library's own choice first, then each solver by name. */
        const char *solver = NULL;
        for (size_t j = 0; j == 0 || solver != NULL; j++) {
            const char *shown = solver != NULL ? solver : "(any)";
            solver_outcome outcome = {0};
            run_solver(device, op, solver, &outcome, &done, total);
            progress_hide();
            *failed += outcome.failed;
            if (!json)
                print_row(op->name, shown, &outcome, op->case_count);
            else if (json_array_append_new(
                         results, json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:o}", "operator", op->name, "solver",
                                            shown, "result", word_for(&outcome), "passed", (json_int_t)outcome.passed,
                                            "refused", (json_int_t)outcome.refused, "failed",
                                            (json_int_t)outcome.failed, "detail", json_text(outcome.detail))) != 0)
                return print_json(NULL);
            solver = op->solvers[j];
        }
    }
    return TOOL_DONE;
}

static int run(const void *fields)
{
    const selftest_options *options = fields;
    tool_device device = {0};
    size_t failed = 0;
    int status = check_names(options->operators);
    if (status != TOOL_DONE)
        return status;
    status = device_open_checked(options->device, CLATTN_SELF_CHECK_ALWAYS, &device);
    if (status != TOOL_DONE)
        return status;
    json_t *results = json_array();
    progress_begin("self-test");
    status = run_wanted(&device, options, results, &failed);
    progress_end();
    if (status == TOOL_DONE && options->json) {
        tool_report report = report_begin();
        report_text(&report, "device", device.info.name);
        report_text(&report, "platform", device.info.platform);
        report_bool(&report, "ok", failed == 0);
        report_count(&report, "failed", failed);
        report_json(&report, "results", json_incref(results));
        status = report_finish(&report, true);
    }
    json_decref(results);
    if (status == TOOL_DONE && failed > 0)
        status = complain(TOOL_FAILED, "selftest: %zu problem%s failed on %s", failed, failed == 1 ? "" : "s",
                          device.info.name);
    device_close(&device);
    return status;
}

int cmd_selftest(int argc, char **argv)
{
    return options_run(table, sizeof(selftest_options), argc, argv, run);
}
