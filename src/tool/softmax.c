/* clattn softmax: softmax over the last dimension of an .npy file. */
#include "tool/run/device.h"
#include "tool/run/job.h"
#include "tool/cli/report.h"
#include "tool/run/verify.h"

typedef struct softmax_options {
    const char *x, *output, *mask, *solver, *device;
    bool short_mask, verify, json;
    option_float scale;
    size_t repeat;
} softmax_options;

#define FIELD(name) offsetof(softmax_options, name)

static const option_row rows[] = {
    {"-o", OPTION_TEXT, FIELD(output), "Y.npy", .help = "result, of the shape of X", .required = true},
    {"--scale", OPTION_FLOAT, FIELD(scale), "S", .help = "multiply X by S first; default 1"},
    {"--mask", OPTION_TEXT, FIELD(mask), "M.npy",
     .help = "each extent 1 or X's: bool (true = attend) or float32 (added)"},
    OPTION_ROW_SHORT_MASK(softmax_options),
    OPTION_ROW_SOLVER(softmax_options),
    OPTION_ROW_DEVICE(softmax_options),
    OPTION_ROW_REPEAT(softmax_options),
    OPTION_ROW_VERIFY(softmax_options),
    OPTION_ROW_JSON(softmax_options),
    OPTION_ROW_END,
};

static const option_table table = {
    .command = "softmax",
    .summary = "Softmax over the last dimension.",
    .operands = "X.npy",
    .operand_offset = FIELD(x),
    .operand_least = 1,
    .operand_count = 1,
    .rows = rows,
};

static int deliver(const softmax_options *options, const softmax_request *request, const tool_job *job,
                   const timing *times, const host_array *output)
{
    tool_verdict verdict = {0};
    int status;
    TOOL_TRY(host_store(options->output, output));
    if (options->verify)
        TOOL_TRY(verify_softmax(request, output, &verdict));
    tool_report report = report_begin();
    report_device(&report, job->device, job_solver(job));
    report_shape(&report, "shape", output->tensor.rank, output->tensor.extent);
    report_timing(&report, times);
    if (options->verify)
        report_verdict(&report, "", &verdict);
    TOOL_TRY(report_finish(&report, options->json));
    if (!verdict_holds(&verdict))
        TOOL_TRY(complain(TOOL_FAILED, "%s: differs from the reference, see max_error", options->output));
fail:
    return status;
}

int cmd_softmax(int argc, char **argv)
{
    softmax_options options = {0};
    softmax_request request = {0};
    tool_device device = {0};
    tool_job job = {0};
    host_array output = {0};
    timing times = {0};

    int status;
    TOOL_TRY(options_parse(&table, argc, argv, &options));
    request.scale = options.scale;
    request.short_mask = options.short_mask;
    TOOL_TRY(host_check_output(options.output, (const char *[]){options.x, options.mask}, 2));
    TOOL_TRY(host_load(options.x, &request.x));
    TOOL_TRY(host_load(options.mask, &request.mask));
    TOOL_TRY(softmax_check(&request));
    TOOL_TRY(host_allocate(CLATTN_DTYPE_F32, request.x.tensor.rank, request.x.tensor.extent, options.output, &output));
    TOOL_TRY(device_open(options.device, &device));
    TOOL_TRY(device_check(&device, job_softmax(&device, &request, options.solver, &job), NULL));
    TOOL_TRY(job_compute(&job, options.repeat, "softmax", &output, &times));
    TOOL_TRY(deliver(&options, &request, &job, &times, &output));
fail:
    job_release(&job);
    device_close(&device);
    host_release(&output);
    softmax_release(&request);
    return status;
}
