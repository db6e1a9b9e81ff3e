/* clattn mha: multi-head attention of .npy files with the weights of a safetensors file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool/run/device.h"
#include "tool/heatmap/options.h"
#include "tool/run/job.h"
#include "tool/cli/report.h"
#include "tool/run/verify.h"

typedef struct mha_options {
    const char *weights, *x, *context, *output, *mask, *attention_weights, *solver, *device;
    bool causal, short_mask, average, verify, json;
    int32_t align;
    option_float scale;
    size_t heads, repeat;
    heatmap_options heat;
} mha_options;

#define FIELD(name) offsetof(mha_options, name)

static const option_row rows[] = {
    {"--weights", OPTION_TEXT, FIELD(weights), "W.safetensors",
     .help = "in_proj_weight, in_proj_bias, out_proj.weight, out_proj.bias, or q_proj_weight, k_proj_weight, "
             "v_proj_weight; biases optional",
     .required = true},
    {"--heads", OPTION_COUNT, FIELD(heads), "H", .help = "number of heads", .required = true},
    {"-x", OPTION_TEXT, FIELD(x), "X.npy", .help = "input (batch, length, d_model)", .required = true},
    {"-o", OPTION_TEXT, FIELD(output), "OUT.npy", .help = "result (batch, length, d_model)", .required = true},
    {"--context", OPTION_TEXT, FIELD(context), "C.npy",
     .help = "keys and values come from here (batch, key length, d_context); default: from X"},
    OPTION_ROW_CAUSAL(mha_options),
    OPTION_ROW_ALIGN(mha_options),
    {"--mask", OPTION_TEXT, FIELD(mask), "M.npy",
     .help = "(batch, heads, S_q, S_k), each may be 1: bool (true = attend) or float32 (added)"},
    OPTION_ROW_SHORT_MASK(mha_options),
    {"--scale", OPTION_FLOAT, FIELD(scale), "S", .help = "multiply scores by S; default 1/sqrt(head size)"},
    {"--attention-weights", OPTION_TEXT, FIELD(attention_weights), "OUT.npy",
     .help = "write the probabilities (batch, heads, S_q, S_k) too"},
    {"--average", OPTION_FLAG, FIELD(average), .help = "their mean over the heads (batch, S_q, S_k) instead"},
    HEATMAP_OPTION_ROWS(mha_options, heat),
    OPTION_ROW_SOLVER(mha_options),
    OPTION_ROW_DEVICE(mha_options),
    OPTION_ROW_REPEAT(mha_options),
    OPTION_ROW_VERIFY(mha_options),
    OPTION_ROW_JSON(mha_options),
    OPTION_ROW_END,
};

static const option_table table = {
    .command = "mha",
    .summary = "Multi-head attention with weights named as in the state dict of PyTorch's nn.MultiheadAttention.",
    .rows = rows,
};

/* "FILE: tensor", for messages, one for each of the file's tensors. */
#define TENSORS 7
typedef struct tensor_labels {
    char text[TENSORS][320];
    size_t used;
} tensor_labels;

/* Copies a tensor if the file has it: in the file it may not be aligned. */
static int take_tensor(const clattn_safetensors *file, const char *path, const char *name, tensor_labels *labels,
                       host_array *array)
{
    clattn_host_tensor tensor;
    clattn_io_error error;
    clattn_status status = clattn_safetensors_find(file, name, &tensor, &error);
    if (status != CLATTN_SUCCESS)
        return complain(TOOL_BAD_INPUT, "%s", error.message);
    if (tensor.dtype == CLATTN_DTYPE_NONE)
        return TOOL_DONE;
    char *label = labels->text[labels->used++];
    snprintf(label, sizeof labels->text[0], "%.240s: %s", path, name);
    int outcome = host_allocate(tensor.dtype, tensor.rank, tensor.extent, label, array);
    if (outcome == TOOL_DONE && tensor.bytes > 0)
        memcpy(array->memory, tensor.data, tensor.bytes);
    return outcome;
}

/* Refuses the file unless its tensors are one of the two complete sets. */
static int check_names(const clattn_safetensors *file, const char *path, const mha_request *request)
{
    bool packed = host_present(&request->w_in), q = host_present(&request->w_q);
    bool k = host_present(&request->w_k), v = host_present(&request->w_v);
    clattn_host_tensor tensor;
    if (packed && (q || k || v))
        return complain(TOOL_BAD_INPUT,
                        "%s: has both in_proj_weight and q_proj_weight, k_proj_weight or "
                        "v_proj_weight, expected one of the two sets",
                        path);
    if (!packed && !(q && k && v))
        return complain(TOOL_BAD_INPUT,
                        "%s: has no tensor %s, expected in_proj_weight, or q_proj_weight, "
                        "k_proj_weight and v_proj_weight",
                        path,
                        !(q || k || v) ? "in_proj_weight"
                        : !q           ? "q_proj_weight"
                        : !k           ? "k_proj_weight"
                                       : "v_proj_weight");
    if (!host_present(&request->w_o))
        return complain(TOOL_BAD_INPUT, "%s: has no tensor out_proj.weight, expected (d_model, d_model)", path);
    /* The tensors of nn.MultiheadAttention(add_bias_kv=True) are refused: without them the result would be wrong. */
    if (clattn_safetensors_find(file, "bias_k", &tensor, NULL) != CLATTN_SUCCESS || tensor.dtype != CLATTN_DTYPE_NONE ||
        clattn_safetensors_find(file, "bias_v", &tensor, NULL) != CLATTN_SUCCESS || tensor.dtype != CLATTN_DTYPE_NONE)
        return complain(TOOL_BAD_INPUT,
                        "%s: has the tensors bias_k and bias_v (add_bias_kv), which are not "
                        "supported",
                        path);
    return TOOL_DONE;
}

static int load_weights(const mha_options *options, tensor_labels *labels, mha_request *request)
{
    const char *path = options->weights;
    clattn_safetensors *file = NULL;
    clattn_io_error error;
    clattn_status opened = clattn_safetensors_create(path, &file, &error);
    if (opened != CLATTN_SUCCESS)
        return complain(opened == CLATTN_ERROR_OUT_OF_MEMORY ? TOOL_FAILED : TOOL_BAD_INPUT, "%s", error.message);

    const struct {
        const char *name;
        host_array *array;
    } wanted[TENSORS] = {
        {"in_proj_weight", &request->w_in}, {"q_proj_weight", &request->w_q}, {"k_proj_weight", &request->w_k},
        {"v_proj_weight", &request->w_v},   {"in_proj_bias", &request->b_in}, {"out_proj.weight", &request->w_o},
        {"out_proj.bias", &request->b_o},
    };
    int status = TOOL_DONE;
    for (size_t i = 0; i < TENSORS; i++)
        TOOL_TRY(take_tensor(file, path, wanted[i].name, labels, wanted[i].array));
    TOOL_TRY(check_names(file, path, request));
    TOOL_TRY(host_expect_rank(&request->w_o, 2, "(out, in)"));
    request->inner = request->w_o.tensor.extent[1];
fail:
    clattn_safetensors_release(&file);
    return status;
}

static bool wants_weights(const mha_options *options)
{
    return options->attention_weights != NULL || options->heat.files.count > 0;
}

static int load_problem(const mha_options *options, tensor_labels *labels, mha_request *request)
{
    if (options->align != CLATTN_ALIGNMENT_TOP_LEFT && !options->causal)
        return complain(TOOL_BAD_INPUT, "mha: --align is for --causal");
    request->heads = options->heads;
    request->causal = options->causal;
    request->align = options->align;
    request->scale = options->scale;
    request->short_mask = options->short_mask;
    request->weights = !wants_weights(options) ? CLATTN_WEIGHTS_OUTPUT_NONE
                       : options->average      ? CLATTN_WEIGHTS_OUTPUT_AVERAGE
                                               : CLATTN_WEIGHTS_OUTPUT_PER_HEAD;
    if (options->average && !wants_weights(options))
        return complain(TOOL_BAD_INPUT,
                        "mha: --average is given without --attention-weights OUT.npy or --attention OUT.html");
    int status;
    TOOL_TRY(host_load(options->x, &request->x));
    TOOL_TRY(host_load(options->context, &request->context));
    TOOL_TRY(host_load(options->mask, &request->mask));
    TOOL_TRY(load_weights(options, labels, request));
    TOOL_TRY(mha_check(request));
fail:
    return status;
}

/* The file that messages name. */
static const char *weights_file(const mha_options *options)
{
    return options->attention_weights != NULL ? options->attention_weights : options->heat.files.item[0];
}

/* Allocates the output and, if they are wanted, the weights. */
static int allocate_results(const mha_options *options, const mha_request *request, host_array results[2])
{
    const size_t *x = request->x.tensor.extent;
    const size_t mean[] = {x[0], x[1], mha_key_length(request)}, each[] = {x[0], request->heads, x[1], mean[2]};
    int status = host_allocate(CLATTN_DTYPE_F32, 3, x, options->output, &results[0]);
    if (status != TOOL_DONE || !wants_weights(options))
        return status;
    return host_allocate(CLATTN_DTYPE_F32, options->average ? 3 : 4, options->average ? mean : each,
                         weights_file(options), &results[1]);
}

static int deliver(const mha_options *options, const mha_request *request, heatmap_request *heat, const tool_job *job,
                   const timing *times, const host_array results[2])
{
    tool_verdict verdicts[2] = {0};
    int status;
    TOOL_TRY(host_store(options->output, &results[0]));
    if (options->attention_weights != NULL)
        TOOL_TRY(host_store(options->attention_weights, &results[1]));
    TOOL_TRY(heatmap_request_store(heat, results[1].memory));
    if (options->verify)
        TOOL_TRY(verify_mha(request, results, verdicts));
    tool_report report = report_begin();
    report_device(&report, job->device, job_solver(job));
    report_shape(&report, "shape", 3, results[0].tensor.extent);
    report_count(&report, "heads", options->heads);
    report_timing(&report, times);
    if (options->verify)
        report_verdict(&report, "", &verdicts[0]);
    if (options->verify && wants_weights(options))
        report_verdict(&report, "weights_", &verdicts[1]);
    TOOL_TRY(report_finish(&report, options->json));
    if (!(verdict_holds(&verdicts[0]) && verdict_holds(&verdicts[1])))
        TOOL_TRY(complain(TOOL_FAILED, "%s: differs from the reference, see max_error", options->output));
fail:
    return status;
}

static int check_outputs(const mha_options *options)
{
    const char *const inputs[] = {options->weights, options->x,           options->context,
                                  options->mask,    options->heat.labels, options->heat.key_labels};
    const char *const outputs[] = {options->output, options->attention_weights};
    int status;
    TOOL_TRY(heatmap_options_check("mha", &options->heat));
    for (size_t i = 0; i < 2; i++)
        TOOL_TRY(host_check_output(outputs[i], inputs, sizeof inputs / sizeof inputs[0]));
    for (size_t i = 0; i < options->heat.files.count; i++)
        TOOL_TRY(host_check_output(options->heat.files.item[i], inputs, sizeof inputs / sizeof inputs[0]));
    TOOL_TRY(host_check_distinct(options->output, options->attention_weights));
    TOOL_TRY(heatmap_files_check_distinct(&options->heat.files, outputs, 2));
fail:
    return status;
}

static int begin_heat(const mha_options *options, const mha_request *request, heatmap_request *heat)
{
    const size_t *x = request->x.tensor.extent;
    const heatmap_shape shape = {x[0], options->average ? 1 : request->heads, x[1], mha_key_length(request)};
    return heatmap_request_begin(&options->heat, &shape, options->context == NULL, options->x, heat);
}

int cmd_mha(int argc, char **argv)
{
    mha_options options = {0};
    mha_request request = {0};
    tensor_labels labels = {0};
    tool_device device = {0};
    tool_job job = {0};
    host_array results[2] = {0};
    heatmap_request heat = {0};
    timing times = {0};

    int status;
    TOOL_TRY(options_parse(&table, argc, argv, &options));
    TOOL_TRY(check_outputs(&options));
    TOOL_TRY(load_problem(&options, &labels, &request));
    TOOL_TRY(begin_heat(&options, &request, &heat));
    TOOL_TRY(allocate_results(&options, &request, results));
    TOOL_TRY(device_open(options.device, &device));
    TOOL_TRY(device_check(&device, job_mha(&device, &request, options.solver, &job), NULL));
    TOOL_TRY(job_compute(&job, options.repeat, "mha", results, &times));
    TOOL_TRY(deliver(&options, &request, &heat, &job, &times, results));
fail:
    job_release(&job);
    device_close(&device);
    heatmap_request_release(&heat);
    host_release(&results[0]);
    host_release(&results[1]);
    mha_release(&request);
    return status;
}
