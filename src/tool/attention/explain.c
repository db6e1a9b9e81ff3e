/* clattn explain: the solver that `clattn attention` would take, and why it takes no other. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool/attention/options.h"
#include "tool/cli/progress.h"
#include "tool/cli/report.h"
#include "tool/selftest/selftest.h"

/* {"solver": "cpu", "verdict": "refused, ..."} */
static void append(json_t *solvers, const char *name, const char *verdict)
{
    json_array_append_new(solvers, json_pack("{s:o, s:o}", "solver", json_text(name), "verdict", json_text(verdict)));
}

/* The library's lines "  NAME: verdict" as objects; others go on where the last one ended. */
static void split_lines(const char *text, json_t *solvers)
{
    for (const char *line = text; *line != '\0'; line += strcspn(line, "\n"), line += *line == '\n') {
        const char *name = line + strspn(line, " "), *colon = strchr(name, ':');
        int length = (int)strcspn(line, "\n");
        char solver[64], verdict[1024];
        if (name != line + 2 || colon == NULL || colon >= line + length || strcspn(name, " ") <= (size_t)(colon - name))
            continue;
        snprintf(solver, sizeof solver, "%.*s", (int)(colon - name), name);
        snprintf(verdict, sizeof verdict, "%.*s", (int)(line + length - colon - 2), colon + 2);
        append(solvers, solver, verdict);
    }
}

/* "refused, " and why, of a status that is no success; without the operator's name before it. */
static void append_failure(json_t *solvers, const char *name, clattn_status status, const char *message)
{
    static const char operator_name[] = "attention: ";
    char verdict[1024];
    if (strncmp(message, operator_name, sizeof operator_name - 1) == 0)
        message += sizeof operator_name - 1;
    snprintf(verdict, sizeof verdict, "%s, %.*s", status == CLATTN_ERROR_UNSUPPORTED ? "refused" : "failed",
             (int)strcspn(message, "\n"), message);
    append(solvers, name, verdict);
}

/* Each solver's own reason, where the library would choose none. */
static void ask_each(const attention_request *request, tool_device *device, json_t *solvers)
{
    for (size_t i = 0; i < selftest_operator_count; i++) {
        const selftest_operator *op = &selftest_operators[i];
        for (size_t j = 0; strcmp(op->name, "attention") == 0 && op->solvers[j] != NULL; j++) {
            clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
            clattn_plan *plan = NULL;
            char message[1024];
            options.solver = op->solvers[j];
            clattn_status status = clattn_attention_plan_create(device->context, &request->desc, &options, &plan);
            device_message(device, status, message, sizeof message);
            clattn_plan_release(&plan);
            if (status == CLATTN_SUCCESS)
                append(solvers, options.solver, "not chosen, but --solver may ask for it");
            else
                append_failure(solvers, options.solver, status, message);
        }
    }
}

/* Where the solver `asked` refused: what the library would choose otherwise, and why not the others. */
static void ask_the_others(const attention_request *request, tool_device *device, const char *asked,
                           const char *refusal, json_t *solvers)
{
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    clattn_plan *plan = NULL;
    if (clattn_attention_plan_create(device->context, &request->desc, &options, &plan) != CLATTN_SUCCESS) {
        ask_each(request, device, solvers);
        return;
    }
    json_t *rows = json_array();
    split_lines(clattn_plan_explain(plan), rows);
    clattn_plan_release(&plan);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        json_t *row = json_array_get(rows, i);
        const char *name = json_string_value(json_object_get(row, "solver"));
        const char *verdict = json_string_value(json_object_get(row, "verdict"));
        char text[1024];
        snprintf(text, sizeof text, "%s%s", strncmp(verdict, "chosen", 6) == 0 ? "would be " : "", verdict);
        if (strcmp(name, asked) == 0)
            append_failure(solvers, asked, CLATTN_ERROR_UNSUPPORTED, refusal);
        else
            append(solvers, name, text);
    }
    json_decref(rows);
}

static int tell_refusals(const attention_options *options, const attention_request *request, tool_device *device,
                         clattn_status refused)
{
    char reason[1024];
    json_t *solvers = json_array();
    device_message(device, refused, reason, sizeof reason);
    progress_begin("planning");
    if (options->solver == NULL)
        ask_each(request, device, solvers);
    else
        ask_the_others(request, device, options->solver, reason, solvers);
    progress_end();
    if (options->json) {
        tool_report report = report_begin();
        report_device(&report, device, "none");
        report_bool(&report, "supported", false);
        report_text(&report, "reason", reason);
        report_json(&report, "solvers", json_incref(solvers));
        report_finish(&report, true);
    } else {
        printf("attention on %s, %s\n", device->info.platform, device->info.name);
        for (size_t i = 0; i < json_array_size(solvers); i++) {
            const json_t *row = json_array_get(solvers, i);
            printf("  %s: %s\n", json_string_value(json_object_get(row, "solver")),
                   json_string_value(json_object_get(row, "verdict")));
        }
    }
    json_decref(solvers);
    return complain(exit_status_of(refused), "%s", reason);
}

static int tell_plan(const attention_options *options, const tool_device *device, const clattn_plan *plan)
{
    const char *text = clattn_plan_explain(plan);
    if (!options->json) {
        fputs(text, stdout);
        printf("at most %zu kernel launches, %zu bytes of workspace\n", clattn_plan_launch_count(plan),
               clattn_plan_workspace_size(plan));
        return TOOL_DONE;
    }
    json_t *solvers = json_array();
    split_lines(text, solvers);
    tool_report report = report_begin();
    report_device(&report, device, clattn_plan_solver(plan));
    report_bool(&report, "supported", true);
    report_count(&report, "kernel_launches", clattn_plan_launch_count(plan));
    report_count(&report, "workspace_bytes", clattn_plan_workspace_size(plan));
    report_json(&report, "solvers", solvers);
    report_text(&report, "text", text);
    return report_finish(&report, true);
}

static int explain(const attention_options *options, const attention_request *request, tool_device *device)
{
    clattn_plan_options choice = CLATTN_PLAN_OPTIONS_INIT;
    clattn_plan *plan = NULL;
    choice.solver = options->solver;
    progress_begin("planning");
    clattn_status made = clattn_attention_plan_create(device->context, &request->desc, &choice, &plan);
    progress_end();
    int status;
    if (made == CLATTN_SUCCESS)
        status = tell_plan(options, device, plan);
    else if (made == CLATTN_ERROR_UNSUPPORTED || made == CLATTN_ERROR_MISCOMPILED)
        status = tell_refusals(options, request, device, made);
    else
        status = attention_plan_check(options, device, made);
    clattn_plan_release(&plan);
    return status;
}

int cmd_explain(int argc, char **argv)
{
    attention_options options;
    attention_request request;
    tool_device device = {0};
    int status = attention_open(ATTENTION_EXPLAIN, argc, argv, &options, &request, &device);
    if (status == TOOL_DONE && options.backward)
        attention_describe_backward(&request.desc);
    if (status == TOOL_DONE)
        status = explain(&options, &request, &device);
    device_close(&device);
    attention_release(&request);
    return status;
}
