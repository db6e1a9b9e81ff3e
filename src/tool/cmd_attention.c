/* clattn attention: scaled dot-product attention of .npy files. */
#include <stdlib.h>

#include "device.h"
#include "job.h"
#include "report.h"
#include "verify.h"

typedef struct attention_options {
    const char *query, *key, *value, *output, *mask, *lse, *solver, *device;
    bool causal, verify, json;
    int32_t align, dtype;
    option_float scale;
    size_t repeat;
} attention_options;

#define FIELD(name) offsetof(attention_options, name)

static const option_row rows[] = {
    {"-q", OPTION_TEXT, FIELD(query), "Q.npy", "queries (batch, heads, S_q, d_k)", true, 0, NULL},
    {"-k", OPTION_TEXT, FIELD(key), "K.npy", "keys (batch, key heads, S_k, d_k)", true, 0, NULL},
    {"-v", OPTION_TEXT, FIELD(value), "V.npy", "values (batch, key heads, S_k, d_v)", true, 0, NULL},
    {"-o", OPTION_TEXT, FIELD(output), "OUT.npy", "result (batch, heads, S_q, d_v)", true, 0, NULL},
    {"--mask", OPTION_TEXT, FIELD(mask), "M.npy",
     "(batch, heads, S_q, S_k), each may be 1: bool (true = attend) or float32 (added)", false, 0, NULL},
    OPTION_ROW_CAUSAL(attention_options),
    OPTION_ROW_ALIGN(attention_options),
    {"--scale", OPTION_FLOAT, FIELD(scale), "X", "multiply scores by X; default 1/sqrt(d_k)", false, 0, NULL},
    {"--lse", OPTION_TEXT, FIELD(lse), "OUT.npy", "write the log-sum-exp (batch, heads, S_q) too", false, 0,
     NULL},
    OPTION_ROW_DTYPE(attention_options),
    OPTION_ROW_SOLVER(attention_options),
    OPTION_ROW_DEVICE(attention_options),
    OPTION_ROW_REPEAT(attention_options),
    OPTION_ROW_VERIFY(attention_options),
    OPTION_ROW_JSON(attention_options),
    OPTION_ROW_LATER("--window"),
    OPTION_ROW_LATER("--softcap"),
    OPTION_ROW_LATER("--kv-lengths"),
    OPTION_ROW_LATER("--query-lengths"),
    OPTION_ROW_LATER("--query-offset"),
    OPTION_ROW_LATER("--alibi"),
    OPTION_ROW_LATER("--sinks"),
    OPTION_ROW_LATER("--dropout"),
    OPTION_ROW_LATER("--seed"),
    OPTION_ROW_LATER("--score"),
    OPTION_ROW_LATER("--score-mod"),
    OPTION_ROW_LATER("--scores"),
    OPTION_ROW_END,
};

static const option_table table = {
    .command = "attention",
    .summary = "Scaled dot-product attention: softmax(scale * Q K^T + mask) V, for each batch item and head.",
    .rows = rows,
};

static int load_problem(const attention_options *options, attention_problem *problem)
{
    int status = host_load(options->query, &problem->query);
    if (status == TOOL_DONE)
        status = host_load(options->key, &problem->key);
    if (status == TOOL_DONE)
        status = host_load(options->value, &problem->value);
    if (status == TOOL_DONE && options->mask != NULL)
        status = host_load(options->mask, &problem->mask);
    problem->causal = options->causal;
    problem->align = options->align;
    problem->scale = options->scale;
    problem->with_lse = options->lse != NULL;
    return status == TOOL_DONE ? attention_check(problem) : status;
}

static int check_outputs(const attention_options *options)
{
    int status = host_check_output(options->output);
    if (status == TOOL_DONE)
        status = host_check_output(options->lse);
    return status == TOOL_DONE ? host_check_distinct(options->output, options->lse) : status;
}

/* Runs the job and brings its outputs to the host. */
static int compute(const tool_job *job, const attention_options *options, timing *times, host_array *output,
                   host_array *lse)
{
    /* Without --repeat a single run is what was asked for; with it, one goes ahead that does not count. */
    timing_rule rule = {.repeat = options->repeat > 0 ? options->repeat : 1, .warm_up = options->repeat > 0};
    int status = job_time(job, &rule, "attention", times);
    if (status != TOOL_DONE)
        return status;
    clattn_status read = job_read(job, 0, output->memory);
    if (read == CLATTN_SUCCESS && options->lse != NULL)
        read = job_read(job, 1, lse->memory);
    return read == CLATTN_SUCCESS ? TOOL_DONE : device_failed(job->device, read, NULL);
}

static int deliver(const attention_options *options, const attention_problem *problem, const tool_job *job,
                   const timing *times, const host_array *output, const host_array *lse)
{
    tool_verdict verdict = {0}, lse_verdict = {0};
    tool_report report;
    int status = host_store(options->output, output);
    if (status == TOOL_DONE && options->lse != NULL)
        status = host_store(options->lse, lse);
    if (status == TOOL_DONE && options->verify)
        status = verify_attention(problem, output->memory, options->lse != NULL ? lse->memory : NULL,
                                  &verdict, &lse_verdict);
    if (status != TOOL_DONE)
        return status;

    report_begin(&report);
    report_device(&report, job->device, job_solver(job));
    report_shape(&report, "shape", 4, output->tensor.extent);
    report_timing(&report, times);
    if (options->verify)
        report_verdict(&report, "", &verdict);
    if (options->verify && options->lse != NULL)
        report_verdict(&report, "lse_", &lse_verdict);
    status = report_finish(&report, options->json);
    if (status == TOOL_DONE && !(verdict_holds(&verdict) && verdict_holds(&lse_verdict)))
        status = complain(TOOL_FAILED, "%s: differs from the reference, see max_error", options->output);
    return status;
}

int cmd_attention(int argc, char **argv)
{
    attention_options options = {0};
    attention_problem problem = {0};
    tool_device device = {0};
    tool_job job = {0};
    host_array output = {0}, lse = {0};
    timing times = {0};
    size_t extent[4];

    option_outcome outcome = options_parse(&table, argc, argv, &options);
    if (outcome != OPTIONS_RUN)
        return outcome == OPTIONS_DONE ? TOOL_DONE : TOOL_BAD_INPUT;
    int status = check_outputs(&options);
    if (status == TOOL_DONE)
        status = load_problem(&options, &problem);
    if (status != TOOL_DONE)
        goto done;
    attention_output_extents(&problem, extent);
    status = host_allocate(CLATTN_F32, 4, extent, options.output, &output);
    if (status == TOOL_DONE && options.lse != NULL)
        status = host_allocate(CLATTN_F32, 3, extent, options.lse, &lse);
    if (status == TOOL_DONE)
        status = device_open(options.device, &device);
    if (status != TOOL_DONE)
        goto done;
    clattn_status made = job_attention(&device, &problem, options.solver, &job);
    status = made == CLATTN_SUCCESS ? TOOL_DONE : device_failed(&device, made, NULL);
    if (status == TOOL_DONE)
        status = compute(&job, &options, &times, &output, &lse);
    if (status == TOOL_DONE)
        status = deliver(&options, &problem, &job, &times, &output, &lse);
done:
    job_release(&job);
    device_close(&device);
    host_release(&output);
    host_release(&lse);
    attention_release(&problem);
    return status;
}
