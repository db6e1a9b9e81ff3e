/* clattn tune: measures the solvers' parameters, and saves the best as wisdom that later plans follow. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/os_file.h"
#include "tool/bench/bench.h"
#include "tool/cli/os_tool.h"
#include "tool/cli/progress.h"
#include "tool/cli/report.h"
#include "tool/tool.h"
#include "tool/tune/tune.h"

#define BUDGET 300.0       /* seconds, unless --budget says otherwise */
#define SHAPE_SECONDS 30.0 /* for one shape, if so much of the budget is left */
#define WISDOM_LIMIT ((size_t)8 << 20)

typedef struct tune_options {
    const char *operators[TUNE_OPERATORS]; /* NULL: all */
    option_list shapes;
    option_float budget;
    clattn_dtype dtype;
    bool causal, again, reset, json;
    const char *export_file, *import_file, *device;
} tune_options;

#define FIELD(name) offsetof(tune_options, name)

static const option_row rows[] = {
    {"--shape", OPTION_LIST, FIELD(shapes), "SIZES",
     .help = "of the one operator that is named, as 'clattn bench OPERATOR' takes them; may be repeated"},
    {"--causal", OPTION_FLAG, FIELD(causal), .help = "with --shape of attention: causal"},
    OPTION_ROW_DTYPE(tune_options, "with --shape"),
    {"--budget", OPTION_FLOAT, FIELD(budget), "SECONDS", .help = "stop after that time (default 300); a rerun goes on"},
    {"--again", OPTION_FLAG, FIELD(again), .help = "measure what is known already too"},
    {"--export", OPTION_TEXT, FIELD(export_file), "FILE", .help = "write all wisdom to FILE"},
    {"--import", OPTION_TEXT, FIELD(import_file), "FILE", .help = "add the wisdom of FILE"},
    {"--reset", OPTION_FLAG, FIELD(reset), .help = "forget all wisdom first"},
    OPTION_ROW_DEVICE(tune_options),
    OPTION_ROW_JSON(tune_options),
    OPTION_ROW_END,
};

static const option_table table = {
    .command = "tune",
    .summary =
        "Measures what the solvers have to offer on the shapes that users have, or on yours, and keeps the best as\n"
        "wisdom, which later plans of the same shape bucket follow.  Each shape is kept as soon as it has been "
        "measured.\n"
        "With --reset, --import or --export and no operator nothing is measured.",
    .operands = "[attention|matmul|softmax|layernorm] ...",
    .operand_offset = FIELD(operators),
    .operand_count = TUNE_OPERATORS,
    .rows = rows,
};

typedef struct tuning_run {
    const tune_options *options;
    tool_device *device;
    double started, budget;
    size_t measured, begun, known, left, skipped;
    bool saves; /* there is a cache folder */
    json_t *shapes;
} tuning_run;

/* ---- the command line ---- */

static int find_operator(const char *name, tune_operator *found)
{
    for (int i = 0; i < TUNE_OPERATORS; i++)
        if (strcmp(tune_operators[i].name, name) == 0) {
            *found = (tune_operator)i;
            return TOOL_DONE;
        }
    return complain(TOOL_BAD_INPUT, "tune: unknown operator '%s', expected attention, matmul, softmax or layernorm",
                    name);
}

static int read_shape(const tune_options *options, tune_operator operator_index, const char *text, tune_shape *shape)
{
    const tune_operator_info *info = &tune_operators[operator_index];
    const option_row row = {"--shape", OPTION_SIZES, 0, info->expected, .count = info->sizes};
    *shape = (tune_shape){operator_index, options->causal, option_dtypes[options->dtype], {0}};
    int status = option_store(&table, &row, text, shape->size);
    if (status == TOOL_DONE && operator_index == TUNE_ATTENTION &&
        (shape->size[1] % shape->size[2] != 0 || shape->size[2] > shape->size[1]))
        status = complain(TOOL_BAD_INPUT, "tune: --shape %s: %zu query heads are no multiple of %zu key heads", text,
                          shape->size[1], shape->size[2]);
    return status;
}

/* Chooses the shapes to measure; the caller frees *shapes. */
static int choose_shapes(const tune_options *options, tune_shape **shapes, size_t *count)
{
    tune_operator named[TUNE_OPERATORS];
    size_t names = 0;
    int status;
    *count = 0;
    *shapes = calloc(tune_shape_count + OPTION_LIST_LIMIT, sizeof **shapes);
    if (*shapes == NULL)
        return complain(TOOL_FAILED, "out of memory for the shapes");
    for (; names < TUNE_OPERATORS && options->operators[names] != NULL; names++)
        TOOL_TRY(find_operator(options->operators[names], &named[names]));
    if (options->shapes.count > 0 && names != 1)
        return complain(TOOL_BAD_INPUT,
                        "tune: --shape needs one operator, as in 'clattn tune matmul --shape 512,512,512'");
    if (options->shapes.count == 0 && (options->causal || options->dtype != 0))
        return complain(TOOL_BAD_INPUT, "tune: --causal and --dtype belong to --shape");
    if (options->causal && named[0] != TUNE_ATTENTION)
        return complain(TOOL_BAD_INPUT, "tune: --causal is attention's");
    for (size_t i = 0; i < options->shapes.count; i++)
        TOOL_TRY(read_shape(options, named[0], options->shapes.item[i], &(*shapes)[(*count)++]));
    bool acts = options->reset || options->export_file != NULL || options->import_file != NULL;
    for (size_t i = 0; i < tune_shape_count && options->shapes.count == 0 && !(acts && names == 0); i++)
        for (size_t j = 0; j < names || (names == 0 && j == 0); j++)
            if (names == 0 || named[j] == tune_shapes[i].operator_index) {
                (*shapes)[(*count)++] = tune_shapes[i];
                break;
            }
    return TOOL_DONE;
fail:
    return status;
}

/* ---- files ---- */

static int import_wisdom(tool_device *device, const char *file)
{
    FILE *from = os_open_for_reading(file);
    char *text = malloc(WISDOM_LIMIT + 1);
    size_t bytes = from != NULL && text != NULL ? fread(text, 1, WISDOM_LIMIT + 1, from) : 0;
    int status = TOOL_DONE;
    if (text == NULL)
        status = complain(TOOL_FAILED, "out of memory for wisdom");
    else if (from == NULL || ferror(from))
        status = complain(TOOL_BAD_INPUT, "%s: could not be read", file);
    if (status == TOOL_DONE) {
        clattn_status imported = clattn_wisdom_import(device->context, text, bytes, NULL);
        if (imported != CLATTN_SUCCESS)
            status = device_check(device, imported, file);
    }
    if (from != NULL)
        fclose(from);
    free(text);
    return status;
}

/* Exports the context's wisdom as text, which the caller frees. */
static int wisdom_text(tool_device *device, char **text, size_t *bytes)
{
    clattn_status status = clattn_wisdom_export(device->context, NULL, 0, bytes);
    *text = malloc(*bytes + 1);
    if (*text == NULL)
        return complain(TOOL_FAILED, "out of memory for wisdom");
    if (status == CLATTN_SUCCESS)
        status = clattn_wisdom_export(device->context, *text, *bytes, bytes);
    (*text)[*bytes] = '\0';
    return device_check(device, status, NULL);
}

static int export_wisdom(tool_device *device, const char *file)
{
    char *text = NULL;
    size_t bytes = 0;
    int status;
    clattn_io_error error;
    TOOL_TRY(wisdom_text(device, &text, &bytes));
    const os_part part = {text, bytes};
    if (os_file_replace(file, &part, 1, &error) != CLATTN_SUCCESS)
        TOOL_TRY(complain(TOOL_FAILED, "%s", error.message));
fail:
    free(text);
    return status;
}

/* Saves the context's wisdom, unless there is no folder: then only --export writes it. */
static int save(const tuning_run *run, clattn_wisdom_mode mode)
{
    if (!run->saves)
        return TOOL_DONE;
    clattn_status status = clattn_wisdom_save(run->device->context, mode);
    return device_check(run->device, status, NULL);
}

/* ---- searches that ran out of time ---- */

/* A search that ran out of time leaves a record in the wisdom, whose solver is NOTE and whose nanoseconds are the
 * number of steps done.  The library has no such solver, so plans ignore the record; learning and forgetting drop it
 * with its bucket's other records. */
#define NOTE "-"

static clattn_status note_steps(const tool_device *device, const clattn_plan *plan, uint64_t steps)
{
    char text[4096]; /* a record's line is never longer */
    int bytes = snprintf(text, sizeof text, "clattn-wisdom 1\n%s " NOTE " 7 %llu\n", clattn_wisdom_key(plan),
                         (unsigned long long)steps);
    return clattn_wisdom_import(device->context, text, (size_t)bytes, NULL);
}

/* Reads one record, "SOLVER RANK NANOSECONDS [NAME=VALUE ...]", which follows its key; false if it is not a
 * solver's. */
static bool read_record(const char *record, const char *const *solvers, tune_past *past)
{
    char solver[32] = "";
    unsigned long long number = 0;
    int parameters = 0;
    sscanf(record, "%31s %*u %llu %n", solver, &number, &parameters);
    if (strcmp(solver, NOTE) == 0)
        past->steps = number;
    for (size_t i = 0; i < TUNE_SOLVERS && solvers[i] != NULL; i++)
        if (strcmp(solver, solvers[i]) == 0)
            snprintf(past->text[i], TUNE_TEXT, "%.*s", (int)strcspn(record + parameters, "\n"), record + parameters);
    return strcmp(solver, NOTE) != 0;
}

/* Finds whether the plan's shape bucket has been measured, and what an earlier search found before its time ran out. */
static int recall(const tool_job *job, const char *const *solvers, tune_past *past, bool *measured)
{
    char *text = NULL;
    size_t bytes;
    const char *key = clattn_wisdom_key(job->plan);
    int status;
    *measured = false;
    TOOL_TRY(wisdom_text(job->device, &text, &bytes));
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, strlen(key)) == 0 && line[strlen(key)] == ' ' &&
            read_record(line + strlen(key) + 1, solvers, past))
            *measured = true;
    }
fail:
    free(text);
    return status;
}

/* ---- measuring ---- */

static int learn(tuning_run *run, tune_outcome *outcome)
{
    clattn_status status = CLATTN_SUCCESS;
    /* Sorts the others by their medians; best[0] stays first, whatever noise makes of the medians. */
    for (size_t i = 1; i < outcome->count; i++)
        for (size_t j = i; j > 1 && outcome->best[j].seconds < outcome->best[j - 1].seconds; j--) {
            tune_best best = outcome->best[j];
            outcome->best[j] = outcome->best[j - 1];
            outcome->best[j - 1] = best;
        }
    for (size_t i = 0; i < outcome->count && status == CLATTN_SUCCESS; i++)
        status = clattn_wisdom_learn(outcome->best[i].plan, (uint32_t)i, (uint64_t)(outcome->best[i].seconds * 1e9));
    if (outcome->cut && status == CLATTN_SUCCESS)
        status = note_steps(run->device, outcome->best[0].plan, outcome->steps);
    return status == CLATTN_SUCCESS ? save(run, CLATTN_WISDOM_MODE_MERGE) : device_check(run->device, status, NULL);
}

static int tell(tuning_run *run, const char *name, const char *state, const tune_outcome *outcome, double seconds)
{
    progress_hide();
    if (run->options->json) {
        json_t *row = json_pack("{s:s, s:s}", "shape", name, "state", state);
        if (row != NULL && outcome != NULL)
            json_object_update_new(row, json_pack("{s:s, s:s, s:s, s:f, s:f, s:f, s:I, s:b, s:f}", "untuned_solver",
                                                  outcome->original, "solver", outcome->best[0].solver, "parameters",
                                                  outcome->best[0].text, "untuned_seconds", outcome->original_seconds,
                                                  "seconds_median", outcome->best[0].seconds, "gain", outcome->gain,
                                                  "candidates", (json_int_t)outcome->candidates, "cut",
                                                  outcome->cut ? 1 : 0, "spent", seconds));
        return row != NULL && json_array_append_new(run->shapes, row) == 0 ? TOOL_DONE : print_json(NULL);
    }
    if (outcome == NULL)
        printf("%-44s %s\n", name, state);
    else if (outcome->gain > 0)
        printf("%-44s %s %s: %.1f %% less time than untuned %s (%.4g ms, %zu candidates%s)\n", name,
               outcome->best[0].solver, outcome->best[0].text[0] != '\0' ? outcome->best[0].text : "as it is",
               outcome->gain * 100, outcome->original, outcome->best[0].seconds * 1e3, outcome->candidates,
               outcome->cut ? ", to be continued" : "");
    else
        printf("%-44s %s as it is: nothing is better beyond noise (%.4g ms, %zu candidates%s)\n", name,
               outcome->best[0].solver, outcome->best[0].seconds * 1e3, outcome->candidates,
               outcome->cut ? ", to be continued" : "");
    fflush(stdout);
    return TOOL_DONE;
}

static int measure(tuning_run *run, const tune_shape *shape, const char *name, const tune_past *past, tool_job *job,
                   size_t rest)
{
    tune_outcome outcome;
    double before = os_seconds(), left = run->started + run->budget - before;
    double share = left / (double)rest, limit = share > SHAPE_SECONDS ? share : SHAPE_SECONDS;
    double deadline = before + (limit < left ? limit : left);
    int status = tune_search(job, tune_operators[shape->operator_index].solvers, past, deadline, &outcome);
    if (status == TOOL_DONE && outcome.count > 0) {
        status = learn(run, &outcome);
        *(outcome.cut ? &run->begun : &run->measured) += 1;
        if (status == TOOL_DONE)
            status = tell(run, name, outcome.cut ? "begun" : "measured", &outcome, os_seconds() - before);
    }
    tune_outcome_release(&outcome);
    return status;
}

/* Replaces the job's plan by the untuned choice. */
static int without_wisdom(tuning_run *run, tool_job *job)
{
    clattn_plan_options untuned = CLATTN_PLAN_OPTIONS_INIT;
    clattn_plan *plan = NULL;
    clattn_status made = clattn_wisdom_forget(job->plan);
    if (made == CLATTN_SUCCESS)
        made = job->create(job, &untuned, &plan);
    if (made != CLATTN_SUCCESS)
        return device_check(run->device, made, NULL);
    clattn_plan_release(&job->plan);
    job->plan = plan;
    return TOOL_DONE;
}

/* Measures the job's shape, unless that has been done; `rest` shapes are left, this one included. */
static int tune_planned(tuning_run *run, const tune_shape *shape, const char *name, tool_job *job, size_t rest)
{
    tune_past past = {0};
    static const tune_past none;
    bool measured, again = run->options->again;
    int status;
    TOOL_TRY(recall(job, tune_operators[shape->operator_index].solvers, &past, &measured));
    if (measured && past.steps == 0 && !again) {
        run->known++;
        return tell(run, name, "known already", NULL, 0);
    }
    if (measured)
        TOOL_TRY(without_wisdom(run, job));
    status = measure(run, shape, name, again || past.steps == 0 ? &none : &past, job, rest);
fail:
    return status;
}

static int tune_one(tuning_run *run, const tune_shape *shape, size_t rest)
{
    char name[TUNE_NAME];
    tool_job job = {0};
    clattn_status made;
    int status;
    tune_shape_name(shape, name);
    if (os_seconds() >= run->started + run->budget && run->measured + run->begun > 0) {
        run->left++;
        return tell(run, name, "left for the next run", NULL, 0);
    }
    TOOL_TRY(tune_operators[shape->operator_index].make_job(run->device, shape, &job, &made));
    if (made == CLATTN_SUCCESS) {
        status = tune_planned(run, shape, name, &job, rest);
    } else if (made == CLATTN_ERROR_UNSUPPORTED || made == CLATTN_ERROR_MISCOMPILED ||
               made == CLATTN_ERROR_OUT_OF_MEMORY) {
        run->skipped++;
        status = tell(run, name, "skipped: not for this device", NULL, 0);
    } else {
        status = device_check(run->device, made, NULL);
    }
fail:
    job_release(&job);
    return status;
}

static int report(const tuning_run *run)
{
    const char *reason, *folder = clattn_context_cache_dir(run->device->context, &reason);
    if (!run->options->json) {
        if (run->measured + run->begun + run->known + run->left + run->skipped > 0)
            printf("%zu measured, %zu begun, %zu known already, %zu left for the next run, %zu skipped\n",
                   run->measured, run->begun, run->known, run->left, run->skipped);
        if (folder != NULL)
            printf("wisdom: %s/wisdom\n", folder);
        else
            printf("wisdom: not kept, %s\n", reason);
        return TOOL_DONE;
    }
    tool_report report = report_begin();
    report_text(&report, "device", run->device->info.name);
    report_text(&report, "platform", run->device->info.platform);
    report_json(&report, "shapes", json_incref(run->shapes));
    report_count(&report, "measured", run->measured);
    report_count(&report, "begun", run->begun);
    report_count(&report, "known", run->known);
    report_count(&report, "left", run->left);
    report_count(&report, "skipped", run->skipped);
    report_number(&report, "seconds", os_seconds() - run->started);
    if (folder != NULL) {
        char path[4096];
        snprintf(path, sizeof path, "%s/wisdom", folder);
        report_text(&report, "wisdom", path);
    } else {
        report_json(&report, "wisdom", json_null());
    }
    return report_finish(&report, true);
}

static int tune(tuning_run *run, const tune_shape *shapes, size_t count)
{
    const tune_options *options = run->options;
    int status = TOOL_DONE;
    if (options->reset) {
        clattn_wisdom_clear(run->device->context);
        /* With --export the folder keeps its wisdom until the file has been written. */
        if (options->export_file == NULL)
            TOOL_TRY(save(run, CLATTN_WISDOM_MODE_REPLACE));
    }
    if (options->import_file != NULL) {
        TOOL_TRY(import_wisdom(run->device, options->import_file));
        TOOL_TRY(save(run, CLATTN_WISDOM_MODE_MERGE));
    }
    progress_begin_within("tuning", run->budget);
    for (size_t i = 0; i < count && status == TOOL_DONE; i++) {
        status = tune_one(run, &shapes[i], count - i);
        progress_show((double)(i + 1) / (double)count);
    }
    progress_end();
    if (options->export_file != NULL && (status == TOOL_DONE || run->measured + run->begun > 0)) {
        int exported = export_wisdom(run->device, options->export_file);
        if (exported == TOOL_DONE && options->reset)
            exported = save(run, CLATTN_WISDOM_MODE_REPLACE);
        status = status == TOOL_DONE ? exported : status;
    }
fail:
    return status == TOOL_DONE ? report(run) : status;
}

int cmd_tune(int argc, char **argv)
{
    tune_options options = {0};
    tool_device device = {0};
    tune_shape *shapes = NULL;
    size_t count = 0;
    const char *reason;
    tuning_run run = {.options = &options, .device = &device};
    int status;
    TOOL_TRY(options_parse(&table, argc, argv, &options));
    run.budget = options.budget.given ? options.budget.value : BUDGET;
    TOOL_TRY(choose_shapes(&options, &shapes, &count));
    if (run.budget <= 0)
        TOOL_TRY(complain(TOOL_BAD_INPUT, "tune: --budget %g is not positive", run.budget));
    TOOL_TRY(host_check_output(options.export_file, NULL, 0));
    TOOL_TRY(device_open(options.device, &device));
    run.started = os_seconds();
    run.shapes = json_array();
    run.saves = clattn_context_cache_dir(device.context, &reason) != NULL;
    if (!run.saves && count > 0 && options.export_file == NULL)
        TOOL_TRY(complain(TOOL_FAILED, "tune: there is no folder for wisdom (%s), and no --export", reason));
    TOOL_TRY(tune(&run, shapes, count));
fail:
    json_decref(run.shapes);
    free(shapes);
    device_close(&device);
    return status;
}
