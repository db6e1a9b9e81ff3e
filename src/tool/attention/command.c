/* clattn attention: attention over .npy files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool/attention/split.h"
#include "tool/cli/report.h"
#include "tool/run/verify.h"

/* Removes the scores of rows of the last page that hold no key. */
static void crop_scores(const attention_request *request, host_array *scores)
{
    clattn_host_tensor *tensor = &scores->tensor;
    size_t keys = request->sizes.keys, padded = tensor->extent[3], rows = 1;
    if (scores->memory == NULL || padded == keys)
        return;
    for (int i = 0; i < 3; i++)
        rows *= tensor->extent[i];
    for (size_t i = 0; i < rows; i++)
        memmove((float *)scores->memory + i * keys, (float *)scores->memory + i * padded, keys * sizeof(float));
    tensor->extent[3] = keys;
    tensor->bytes = rows * keys * sizeof(float);
}

/* The file of a result, for messages: scores that are written to no other file go into the heat maps'. */
static const char *file_of(const attention_options *options, int result)
{
    return options->result[result] != NULL ? options->result[result] : options->heat.files.item[0];
}

static int deliver(const attention_options *options, const attention_request *request, heatmap_request *heat,
                   attention_split *split, const timing *times, const host_array results[RESULT_COUNT])
{
    const tool_job *job = &split_first(split)->job;
    tool_verdict verdicts[RESULT_COUNT] = {0};
    int status = TOOL_DONE;
    for (int i = 0; i < RESULT_COUNT; i++)
        if (options->result[i] != NULL)
            TOOL_TRY(host_store(options->result[i], &results[i]));
    TOOL_TRY(heatmap_request_store(heat, results[RESULT_SCORES].memory));
    if (options->verify)
        TOOL_TRY(verify_attention(request, job, results, verdicts));

    tool_report report = report_begin();
    report_device(&report, job->device, job_solver(job));
    report_shape(&report, "shape", results[RESULT_OUTPUT].tensor.rank, results[RESULT_OUTPUT].tensor.extent);
    split_report(split, &report);
    report_attention(&report, request);
    report_timing(&report, times);
    for (int i = 0; i < RESULT_COUNT; i++)
        if (options->verify && request->wants[i])
            report_verdict(&report, attention_results[i].name, &verdicts[i]);
    TOOL_TRY(report_finish(&report, options->json));
    for (int i = 0; i < RESULT_COUNT; i++)
        if (!verdict_holds(&verdicts[i]))
            TOOL_TRY(complain(TOOL_FAILED, "%s: differs from the reference, see %smax_error", file_of(options, i),
                              attention_results[i].name));
fail:
    return status;
}

int cmd_attention(int argc, char **argv)
{
    attention_options options;
    attention_request request;
    attention_split split = {0};
    host_array results[RESULT_COUNT] = {0};
    heatmap_request heat = {0};
    timing times = {0};
    int status;
    attention_begin(&request);
    TOOL_TRY(attention_options_parse(ATTENTION_RUN, argc, argv, &options));
    TOOL_TRY(attention_take_results(&options, &request));
    for (int i = 0; i < RESULT_COUNT; i++)
        TOOL_TRY(attention_check_output(&options, options.result[i]));
    for (size_t i = 0; i < options.heat.files.count; i++)
        TOOL_TRY(attention_check_output(&options, options.heat.files.item[i]));
    TOOL_TRY(attention_load(&options, &request));
    const attention_sizes *sizes = &request.sizes;
    const heatmap_shape shape = {sizes->batch, sizes->heads, sizes->queries, sizes->keys};
    TOOL_TRY(heatmap_request_begin(&options.heat, &shape, true, request.input[INPUT_QUERY].name, &heat));
    for (int i = 0; i < RESULT_COUNT; i++)
        if (request.wants[i])
            TOOL_TRY(attention_result_allocate(&request, i, file_of(&options, i), &results[i]));
    TOOL_TRY(split_open(&split, &options, &request));
    TOOL_TRY(split_compute(&split, results, &times));
    crop_scores(&request, &results[RESULT_SCORES]);
    TOOL_TRY(deliver(&options, &request, &heat, &split, &times, results));
fail:
    heatmap_request_release(&heat);
    split_close(&split);
    for (int i = 0; i < RESULT_COUNT; i++)
        host_release(&results[i]);
    attention_release(&request);
    return status;
}
