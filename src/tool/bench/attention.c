/* clattn bench attention: with any of attention's options. */
#include "tool/attention/options.h"
#include "tool/bench/bench.h"

int bench_attention_arrays(const size_t s[7], clattn_dtype dtype, attention_request *request)
{
    host_array *input = request->input;
    int status;
    attention_begin(request);
    request->output_dtype = dtype;
    TOOL_TRY(random_array(&input[INPUT_QUERY], "query", dtype, 4, (size_t[]){s[0], s[1], s[3], s[5]}, 1, 1.0f));
    TOOL_TRY(random_array(&input[INPUT_KEY], "key", dtype, 4, (size_t[]){s[0], s[2], s[4], s[5]}, 2, 1.0f));
    TOOL_TRY(random_array(&input[INPUT_VALUE], "value", dtype, 4, (size_t[]){s[0], s[2], s[4], s[6]}, 3, 1.0f));
fail:
    return status;
}

/* The number of (query, key) pairs of a head that lengths, causality and window leave, over all batch items. */
static double attended_pairs(const attention_request *request)
{
    const clattn_attention_desc *desc = &request->desc;
    const ref_attention_problem reference = attention_reference(request);
    double pairs = 0.0;
    for (int64_t b = 0; b < (int64_t)request->args.batch; b++) {
        const ref_attention_item item = ref_attention_item_of(&reference, b);
        for (int64_t i = 0; i < item.queries; i++) {
            int64_t first = item.first_key, last = item.keys - 1, p = i + item.position;
            if (desc->causal && last > p)
                last = p;
            if (desc->window.explicit_right && last > p + desc->window.right)
                last = p + desc->window.right;
            if (desc->window.explicit_left && first < p - desc->window.left)
                first = p - desc->window.left;
            pairs += last >= first ? (double)(last - first + 1) : 0.0;
        }
    }
    return pairs;
}

/* The bytes of every array, counted once, in the device's type. */
static double bytes_of(const attention_request *request)
{
    double bytes = 0.0;
    for (int i = 0; i < INPUT_COUNT; i++)
        bytes += (double)request->input[i].tensor.bytes;
    for (int i = 0; i < RESULT_COUNT; i++) {
        const clattn_layout *layout = attention_result_layout((clattn_attention_desc *)&request->desc, i);
        double size = request->wants[i] ? (double)clattn_dtype_size(layout->dtype) : 0.0;
        for (int32_t d = 0; d < layout->rank; d++)
            size *= (double)layout->extent[d];
        bytes += size;
    }
    return bytes;
}

/* The gradients of queries, keys, values and output. */
static double gradient_bytes_of(const attention_request *request)
{
    const clattn_attention_desc *desc = &request->desc;
    const clattn_layout *const arrays[] = {&desc->query, &desc->key, &desc->value, &desc->output};
    double bytes = 0.0;
    for (int i = 0; i < 4; i++) {
        const size_t *e = arrays[i]->extent;
        bytes +=
            (double)clattn_dtype_size(arrays[i]->dtype) * (double)e[0] * (double)e[1] * (double)e[2] * (double)e[3];
    }
    return bytes;
}

int bench_attention(int argc, char **argv)
{
    attention_options options;
    attention_request request;
    tool_device device = {0};
    tool_job job = {0}, forward = {0};
    const size_t *s = options.shape;
    int status;
    TOOL_TRY(attention_open(ATTENTION_BENCH, argc, argv, &options, &request, &device));
    const bench_work work = {
        .flops = (options.backward ? 5.0 : 2.0) * (double)s[1] * attended_pairs(&request) * (double)(s[5] + s[6]),
        .bytes = bytes_of(&request) + (options.backward ? gradient_bytes_of(&request) : 0.0),
        .attention = &request,
    };
    tool_job *const first = options.backward ? &forward : &job;
    const char *const solver = options.backward ? NULL : options.solver;
    TOOL_TRY(attention_plan_check(&options, &device, job_attention(&device, &request, solver, first)));
    if (options.backward) {
        TOOL_TRY(device_check(&device, job_run(&forward), "attention"));
        TOOL_TRY(attention_plan_check(&options, &device, job_attention_backward(&forward, options.solver, &job)));
    }
    TOOL_TRY(bench_finish(&job, options.backward ? "attention backward" : "attention", 7, s, &work, options.repeat,
                          options.json));
fail:
    job_release(&forward);
    device_close(&device);
    attention_release(&request);
    return status;
}
