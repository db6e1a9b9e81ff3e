/* ONNX's own tests of Attention, opsets 23 to 25, by every solver: 3-D and 4-D inputs, grouped heads, masks, causality
 * with past keys and with lengths, windows, softcap, past and present, the score matrix in four modes, 16-bit types.
 *
 * Past keys are put into the present ones' array, and the new ones appended by clattn_kv_append: what an application
 * does. */
#include <stdlib.h>
#include <string.h>

#include "support/onnx.h"

/* The last one at the full level only: its kernels, one for nearly every case, take minutes to compile on a CPU. */
static const char *const solvers[] = {"generic", "cpu", "tile"};

enum { BUFFERS = 16 };

typedef struct node {
    const struct onnx_case *test;
    clattn_attention_desc desc;
    clattn_attention_args args;
    size_t batch, heads, kv_heads, queries, keys, past, d_k, d_v;
    bool flat; /* 3-D inputs */
    cl_mem buffers[BUFFERS];
    size_t buffer_count;
    cl_mem output, scores, present_key, present_value;
} node;

static clattn_binding keep(node *n, cl_mem buffer)
{
    assert_true(n->buffer_count < BUFFERS);
    n->buffers[n->buffer_count++] = buffer;
    return clattn_binding_buffer(buffer, 0);
}

/* (batch, heads, length, size) over an array with these dimensions, or over (batch, length, heads * size). */
static clattn_layout layout_of(const node *n, const clattn_host_tensor *tensor, size_t heads)
{
    const size_t *extent = tensor->extent;

    return n->flat ? clattn_layout_bshd((clattn_dtype)tensor->dtype, extent[0], heads, extent[1], extent[2] / heads)
                   : clattn_layout_bhsd((clattn_dtype)tensor->dtype, extent[0], heads, extent[2], extent[3]);
}

/* One array of present keys or values: the past ones' rows, and room for the new ones. */
static cl_mem present_of(node *n, const char *past_name, const char *present_name)
{
    clattn_host_tensor past = onnx_tensor(n->test, past_name), present = onnx_tensor(n->test, present_name);
    size_t element = clattn_dtype_size((clattn_dtype)present.dtype), size = present.extent[3];
    unsigned char *rows = calloc(1, present.bytes + 1);

    assert_non_null(rows);
    n->past = past.extent[2];
    for (size_t bh = 0; bh < present.extent[0] * present.extent[1] && past.bytes; bh++) {
        memcpy(rows + bh * present.extent[2] * size * element,
               (const unsigned char *)past.data + bh * n->past * size * element, n->past * size * element);
    }
    present.data = rows;
    cl_mem buffer = onnx_input(&present);
    free(rows);
    return buffer;
}

static void append(node *n, const clattn_layout *key, const clattn_layout *value, cl_mem new_key, cl_mem new_value)
{
    clattn_kv_append_desc desc = CLATTN_KV_APPEND_DESC_INIT;
    clattn_kv_append_args args = CLATTN_KV_APPEND_ARGS_INIT;

    desc.key = *key;
    desc.value = *value;
    desc.key_cache = n->desc.key;
    desc.value_cache = n->desc.value;
    args.key = clattn_binding_buffer(new_key, 0);
    args.value = clattn_binding_buffer(new_value, 0);
    args.key_cache = n->args.key;
    args.value_cache = n->args.value;
    args.past_length = (int64_t)n->past;
    assert_status(CLATTN_SUCCESS, clattn_kv_append_run(device_context(), NULL, &desc, &args, 0, NULL, NULL));
}

static void bind_keys(node *n, const clattn_host_tensor *key, const clattn_host_tensor *value)
{
    clattn_layout new_key = layout_of(n, key, n->kv_heads), new_value = layout_of(n, value, n->kv_heads);
    cl_mem key_buffer = onnx_input(key), value_buffer = onnx_input(value);

    n->desc.key = new_key;
    n->desc.value = new_value;
    n->args.key = keep(n, key_buffer);
    n->args.value = keep(n, value_buffer);
    if (onnx_has(n->test, "past_key")) {
        n->present_key = present_of(n, "past_key", "present_key");
        n->present_value = present_of(n, "past_value", "present_value");
        size_t total = n->past + new_key.extent[2];
        n->desc.key = clattn_layout_bhsd((clattn_dtype)key->dtype, n->batch, n->kv_heads, total, n->d_k);
        n->desc.value = clattn_layout_bhsd((clattn_dtype)value->dtype, n->batch, n->kv_heads, total, n->d_v);
        n->args.key = keep(n, n->present_key);
        n->args.value = keep(n, n->present_value);
        append(n, &new_key, &new_value, key_buffer, value_buffer);
    }
    n->keys = n->desc.key.extent[2];
}

static void bind_mask_and_lengths(node *n)
{
    clattn_host_tensor mask = onnx_tensor(n->test, "attn_mask"), lengths = onnx_tensor(n->test, "nonpad_kv_seqlen");
    bool windowed = onnx_attribute(n->test, "left_window_size", -1) >= 0 ||
                    onnx_attribute(n->test, "right_window_size", -1) >= 0;

    if (mask.dtype != CLATTN_DTYPE_NONE) {
        n->desc.mask = clattn_layout_contiguous((clattn_dtype)mask.dtype, mask.rank, mask.extent);
        n->args.mask = keep(n, onnx_input(&mask));
    }
    if (lengths.dtype != CLATTN_DTYPE_NONE) {
        n->desc.key_lengths = clattn_layout_contiguous((clattn_dtype)lengths.dtype, 1, lengths.extent);
        n->args.key_lengths = keep(n, onnx_input(&lengths));
    }
    n->desc.causal = onnx_attribute(n->test, "is_causal", 0) != 0;
    n->desc.windowed = windowed;
    n->desc.window_left = (int64_t)onnx_attribute(n->test, "left_window_size", -1);
    n->desc.window_right = (int64_t)onnx_attribute(n->test, "right_window_size", -1);
    n->desc.alignment = n->past                                ? CLATTN_ALIGN_EXPLICIT
                        : lengths.dtype != CLATTN_DTYPE_NONE ? CLATTN_ALIGN_BOTTOM_RIGHT
                                                             : CLATTN_ALIGN_TOP_LEFT;
    n->args.position = (int64_t)n->past;
}

static void describe(node *n)
{
    clattn_host_tensor query = onnx_tensor(n->test, "Q"), key = onnx_tensor(n->test, "K");
    clattn_host_tensor value = onnx_tensor(n->test, "V"), output = onnx_tensor(n->test, "Y");
    clattn_host_tensor scores = onnx_tensor(n->test, "qk_matmul_output");

    n->flat = query.rank == 3;
    n->batch = query.extent[0];
    n->heads = n->flat ? (size_t)onnx_attribute(n->test, "q_num_heads", 0) : query.extent[1];
    n->kv_heads = n->flat ? (size_t)onnx_attribute(n->test, "kv_num_heads", 0) : key.extent[1];
    n->d_k = key.extent[key.rank - 1] / (n->flat ? n->kv_heads : 1);
    n->d_v = value.extent[value.rank - 1] / (n->flat ? n->kv_heads : 1);
    clattn_attention_desc_init(&n->desc);
    clattn_attention_args_init(&n->args);
    n->desc.query = layout_of(n, &query, n->heads);
    n->desc.output = layout_of(n, &output, n->heads);
    n->args.query = keep(n, onnx_input(&query));
    n->output = onnx_output(&output);
    n->args.output = keep(n, n->output);
    bind_keys(n, &key, &value);
    bind_mask_and_lengths(n);
    n->desc.softcap = (float)onnx_attribute(n->test, "softcap", 0);
    if (strstr(n->test->attributes, "scale=")) {
        n->desc.scale_mode = CLATTN_SCALE_EXPLICIT;
        n->desc.scale = (float)onnx_attribute(n->test, "scale", 0);
    }
    if (scores.dtype != CLATTN_DTYPE_NONE) {
        n->desc.scores = clattn_layout_contiguous((clattn_dtype)scores.dtype, 4, scores.extent);
        n->desc.scores_mode = (int32_t)onnx_attribute(n->test, "qk_matmul_output_mode", 0);
        n->scores = onnx_output(&scores);
        n->args.scores = keep(n, n->scores);
    }
}

static void check(const void *test, const char *solver)
{
    node n = {.test = test};
    clattn_plan *plan;
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;

    describe(&n);
    options.solver = solver;
    assert_status(CLATTN_SUCCESS, clattn_attention_plan_create(device_context(), &n.desc, &options, &plan));
    assert_string_equal(clattn_plan_solver(plan), solver);
    assert_status(CLATTN_SUCCESS, clattn_attention_enqueue(plan, NULL, &n.args, 0, NULL, NULL));
    onnx_check(n.test, "Y", n.output);
    if (n.scores) {
        onnx_check(n.test, "qk_matmul_output", n.scores);
    }
    if (n.present_key) {
        onnx_check(n.test, "present_key", n.present_key);
        onnx_check(n.test, "present_value", n.present_value);
    }
    clattn_plan_release(&plan);
    for (size_t i = 0; i < n.buffer_count; i++) {
        device_release_buffer(n.buffers[i]);
    }
}

int main(int argc, char **argv)
{
    test_suite suite = {0};

    onnx_open();
    size_t asked = getenv("CLATTN_TEST_LEVEL") && strcmp(getenv("CLATTN_TEST_LEVEL"), "full") != 0 ? 2 : 3;

    for (size_t s = 0; s < asked; s++) {
        for (size_t i = 0; i < COUNT_OF(onnx_cases); i++) {
            if (strcmp(onnx_cases[i].op, "Attention") == 0) {
                suite_add_case(&suite, check, &onnx_cases[i], solvers[s], "attention %s: ONNX %s", solvers[s],
                               onnx_cases[i].name);
            }
        }
    }
    int status = suite_run(&suite, "attention, ONNX", true, argc, argv);
    onnx_close();
    return status;
}
