/* Makes a request of the options: reads files, or takes the shapes that explain and bench are given. */
#include <string.h>

#include "tool/attention/array_order.h"
#include "tool/attention/options.h"
#include "tool/run/random.h"

static const int32_t dtypes[] = {CLATTN_DTYPE_F32, CLATTN_DTYPE_F16, CLATTN_DTYPE_BF16, CLATTN_DTYPE_F64};

/* "raw:OUT.npy" */
static int split_scores(attention_options *options, attention_request *request)
{
    static const char *const modes[] = {"raw", "softcap", "bias", "probabilities"}; /* as clattn_scores_mode */
    const char *text = options->result[RESULT_SCORES], *colon = strchr(text, ':');
    for (int32_t i = 0; i < 4 && colon != NULL && colon[1] != '\0'; i++) {
        if (strlen(modes[i]) != (size_t)(colon - text) || memcmp(modes[i], text, strlen(modes[i])) != 0)
            continue;
        request->desc.outputs.scores_mode = i;
        options->result[RESULT_SCORES] = colon + 1;
        return TOOL_DONE;
    }
    return complain(TOOL_BAD_INPUT,
                    "--scores '%s' is not valid, expected raw, softcap, bias or probabilities, a colon and a file",
                    text);
}

int attention_take_results(attention_options *options, attention_request *request)
{
    int status = TOOL_DONE;
    if (options->result[RESULT_SCORES] != NULL)
        TOOL_TRY(split_scores(options, request));
    for (int i = 0; i < RESULT_COUNT; i++) {
        for (int j = 0; j < i; j++)
            TOOL_TRY(host_check_distinct(options->result[i], options->result[j]));
        request->wants[i] = i == RESULT_OUTPUT || options->result[i] != NULL || (i == RESULT_LSE && options->backward);
    }
    if (options->heat.files.count == 0)
        return TOOL_DONE;
    if (request->wants[RESULT_SCORES] && request->desc.outputs.scores_mode != CLATTN_SCORES_MODE_PROBABILITIES)
        return complain(TOOL_BAD_INPUT,
                        "--attention shows probabilities, and --scores asks for others, expected --scores "
                        "probabilities:FILE");
    request->wants[RESULT_SCORES] = true;
    request->desc.outputs.scores_mode = CLATTN_SCORES_MODE_PROBABILITIES;
    TOOL_TRY(heatmap_files_check_distinct(&options->heat.files, options->result, RESULT_COUNT));
fail:
    return status;
}

int attention_check_output(const attention_options *o, const char *path)
{
    const char *const others[] = {o->fused,          o->score_mod,   o->mask_mod,
                                  o->score_mod_grad, o->heat.labels, o->heat.key_labels};
    int status = host_check_output(path, o->input, INPUT_USER);
    if (status == TOOL_DONE)
        status = host_check_output(path, others, sizeof others / sizeof others[0]);
    for (size_t i = 0; i < o->user.count && status == TOOL_DONE && path != NULL; i++) {
        const char *colon = strchr(o->user.item[i], ':'), *file = colon != NULL ? colon + 1 : NULL; /* N:FILE.npy */
        status = host_check_output(path, &file, 1);
    }
    return status;
}

/* Makes an array of the given shape: random numbers for bench, a shape without data for explain. */
static int shape_array(const attention_options *o, attention_request *request, attention_input input, size_t heads,
                       size_t length, size_t size)
{
    host_array *array = &request->input[input];
    size_t extent[CLATTN_MAX_RANK];
    clattn_dtype dtype = o->dtype >= 0 ? dtypes[o->dtype] : CLATTN_DTYPE_F32;
    int32_t rank = order_extents(request->order, o->shape[0], heads, length, size, extent);
    if (o->mode == ATTENTION_BENCH)
        return random_array(array, "--shape", dtype, rank, extent, (uint64_t)input + 1, 1.0f);
    *array = (host_array){.name = "--shape", .tensor = {.dtype = dtype, .rank = rank}};
    memcpy(array->tensor.extent, extent, (size_t)rank * sizeof *extent);
    return TOOL_DONE;
}

static int load_sources(const attention_options *o, attention_request *request)
{
    const size_t *s = o->shape;
    int status;
    request->fused = o->fused != NULL;
    if (s[0] > 0) {
        const char *order = request->order;
        bool one_head = order_find(order, 'h') < 0 && order_find(order, 'e') < 0;
        if (order_find(order, 'b') < 0 && s[0] != 1)
            return complain(TOOL_BAD_INPUT, "--shape: B is %zu, expected 1 with --layout %s", s[0], order);
        if (one_head && (s[1] != 1 || s[2] != 1))
            return complain(TOOL_BAD_INPUT, "--shape: HQ is %zu, expected 1 with --layout %s", s[1], order);
        TOOL_TRY(shape_array(o, request, INPUT_QUERY, s[1], s[3], s[5]));
        TOOL_TRY(shape_array(o, request, INPUT_KEY, s[2], s[4], s[5]));
        return shape_array(o, request, INPUT_VALUE, s[2], s[4], s[6]);
    }
    status = host_load(o->fused, &request->input[INPUT_QUERY]);
fail:
    return status;
}

/* What needs no file. */
static void take_options(const attention_options *o, attention_request *request)
{
    clattn_attention_desc *desc = &request->desc;
    if (o->layout != NULL)
        request->order = o->layout;
    memcpy(request->given_heads, o->heads, sizeof request->given_heads);
    request->output_dtype = o->dtype >= 0 ? dtypes[o->dtype] : CLATTN_DTYPE_NONE;
    request->kv_dtype = o->kv_int8 ? CLATTN_DTYPE_I8 : o->kv_int4 ? CLATTN_DTYPE_I4 : CLATTN_DTYPE_NONE;
    request->kv_group = o->kv_group;
    request->page_size = o->page_size;
    desc->causal = o->causal;
    desc->short_mask = o->short_mask;
    desc->alignment = o->input[INPUT_POSITIONS] != NULL ? CLATTN_ALIGNMENT_EXPLICIT : o->align >= 0 ? o->align : 0;
    desc->scoring.explicit_scale = o->scale.given;
    desc->scoring.scale = o->scale.value;
    desc->scoring.kind = o->score;
    desc->scoring.softcap = o->softcap.value;
    desc->window.explicit_left = o->window.given && o->window.value[0] >= 0;
    desc->window.explicit_right = o->window.given && o->window.value[1] >= 0;
    desc->window.left = o->window.value[0];
    desc->window.right = o->window.value[1];
    desc->cache.kind = o->ring ? CLATTN_CACHE_KIND_RING : CLATTN_CACHE_KIND_PLAIN;
    desc->dropout.probability = o->dropout.value;
    request->args.dropout.seed = o->seed.value;
    request->args.dropout.offset = (uint32_t)o->dropout_offset.value;
}

/* With --max-launch-ms the enqueue has a control. */
static int make_control(const attention_options *options, attention_request *request)
{
    clattn_control_params params = CLATTN_CONTROL_PARAMS_INIT;
    params.max_launch_ms = (uint32_t)options->max_launch_ms;
    if (params.max_launch_ms > 0 && clattn_control_create(&params, &request->args.control) != CLATTN_SUCCESS)
        return complain(TOOL_FAILED, "out of memory for --max-launch-ms");
    return TOOL_DONE;
}

int attention_load(const attention_options *options, attention_request *request)
{
    int status;
    take_options(options, request);
    TOOL_TRY(make_control(options, request));
    TOOL_TRY(load_sources(options, request));
    for (int i = 0; i < INPUT_USER; i++)
        TOOL_TRY(host_load(options->input[i], &request->input[i]));
    TOOL_TRY(attention_load_user(options, request));
    TOOL_TRY(attention_complete(request));
fail:
    return status;
}

int attention_open(attention_mode mode, int argc, char **argv, attention_options *options, attention_request *request,
                   tool_device *device)
{
    int status;
    attention_begin(request);
    TOOL_TRY(attention_options_parse(mode, argc, argv, options));
    TOOL_TRY(attention_take_results(options, request));
    TOOL_TRY(attention_load(options, request));
    TOOL_TRY(device_open(options->device, device));
fail:
    return status;
}
