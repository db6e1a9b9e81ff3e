/* ONNX's own tests of Attention, opsets 23 to 25, by every solver: 3-D and 4-D inputs, grouped heads, masks, causality
 * with past keys and with lengths, windows, softcap, past and present, the score matrix in four modes, 16-bit types.
 *
 * Past keys are put into the present ones' array, and the new ones appended by clattn_kv_append: what an application
 * does. */
#include "onnx/onnx.h"

/* The last one at the full level only: its kernels, one for nearly every case, take minutes to compile on a CPU. */
static const char *const solvers[] = {"generic", "cpu", "tile"};

typedef struct node {
    const onnx_case *test;
    test_job job;
    clattn_attention_desc desc;
    size_t heads, kv_heads;
    int64_t past;
    bool flat; /* 3-D inputs */
} node;

enum { OUTPUT, SCORES, PRESENT_KEY, PRESENT_VALUE };

/* (batch, heads, length, size) over an array with these dimensions, or over (batch, length, heads * size). */
static clattn_layout layout_of(const node *n, const test_array *array, size_t heads)
{
    const size_t *extent = array->layout.extent;
    clattn_dtype dtype = array->layout.dtype;

    return n->flat ? clattn_layout_bshd(dtype, extent[0], heads, extent[1], extent[2] / heads)
                   : clattn_layout_bhsd(dtype, extent[0], heads, extent[2], extent[3]);
}

static void append(node *n, const test_array *key, const test_array *value)
{
    clattn_kv_append_desc desc = CLATTN_KV_APPEND_DESC_INIT;
    clattn_kv_append_args args = CLATTN_KV_APPEND_ARGS_INIT;

    desc.key = layout_of(n, key, n->kv_heads);
    desc.value = layout_of(n, value, n->kv_heads);
    desc.key_cache = n->desc.key;
    desc.value_cache = n->desc.value;
    args.key = array_binding(key);
    args.value = array_binding(value);
    args.key_cache = n->job.args.attention.key;
    args.value_cache = n->job.args.attention.value;
    args.past_length = n->past;
    assert_status(device_context(), clattn_kv_append_run(device_context(), NULL, &desc, &args, 0, NULL, NULL),
                  CLATTN_SUCCESS);
}

static void bind_keys(node *n, const test_array *key, const test_array *value)
{
    clattn_attention_args *args = &n->job.args.attention;
    test_array past_key = node_input(&n->job, n->test, "past_key");

    n->desc.key = layout_of(n, key, n->kv_heads);
    n->desc.value = layout_of(n, value, n->kv_heads);
    args->key = array_binding(key);
    args->value = array_binding(value);
    if (past_key.memory) {
        test_array past_value = node_input(&n->job, n->test, "past_value"), *present = n->job.output;
        present[PRESENT_KEY] = node_output_after(&n->job, n->test, &past_key, "present_key");
        present[PRESENT_VALUE] = node_output_after(&n->job, n->test, &past_value, "present_value");
        n->past = (int64_t)past_key.layout.extent[2];
        array_bind(&present[PRESENT_KEY], &n->desc.key, &args->key);
        array_bind(&present[PRESENT_VALUE], &n->desc.value, &args->value);
        append(n, key, value);
    }
}

static void bind_mask_and_lengths(node *n)
{
    test_array mask = node_input(&n->job, n->test, "attn_mask");
    test_array lengths = node_input(&n->job, n->test, "nonpad_kv_seqlen");

    array_bind(&mask, &n->desc.mask, &n->job.args.attention.mask);
    array_bind(&lengths, &n->desc.lengths.key, &n->job.args.attention.lengths.key);
    n->desc.causal = node_int(n->test, "is_causal", 0) != 0;
    n->desc.window.left = node_int(n->test, "left_window_size", -1);
    n->desc.window.right = node_int(n->test, "right_window_size", -1);
    n->desc.window.explicit_left = n->desc.window.left >= 0;
    n->desc.window.explicit_right = n->desc.window.right >= 0;
    n->desc.short_mask = 1;
    n->desc.alignment = n->past          ? CLATTN_ALIGNMENT_EXPLICIT
                        : lengths.memory ? CLATTN_ALIGNMENT_BOTTOM_RIGHT
                                         : CLATTN_ALIGNMENT_TOP_LEFT;
    n->job.args.attention.position = n->past;
}

static void bind_outputs(node *n)
{
    test_array *output = &n->job.output[OUTPUT], *scores = &n->job.output[SCORES];

    *output = node_output(&n->job, n->test, "Y");
    *scores = node_output(&n->job, n->test, "qk_matmul_output");
    n->desc.output = layout_of(n, output, n->heads);
    n->desc.outputs.scores_mode = (clattn_scores_mode)node_int(n->test, "qk_matmul_output_mode", 0);
    n->job.args.attention.output = array_binding(output);
    array_bind(scores, &n->desc.outputs.scores, &n->job.args.attention.outputs.scores);
}

static void describe(node *n)
{
    test_array query = node_input(&n->job, n->test, "Q"), key = node_input(&n->job, n->test, "K");
    test_array value = node_input(&n->job, n->test, "V");

    clattn_attention_desc_init(&n->desc);
    clattn_attention_args_init(&n->job.args.attention);
    n->flat = query.layout.rank == 3;
    n->heads = n->flat ? (size_t)node_int(n->test, "q_num_heads", 0) : query.layout.extent[1];
    n->kv_heads = n->flat ? (size_t)node_int(n->test, "kv_num_heads", 0) : key.layout.extent[1];
    n->desc.query = layout_of(n, &query, n->heads);
    n->job.args.attention.query = array_binding(&query);
    n->desc.scoring.softcap = (float)node_float(n->test, "softcap", 0);
    if (node_sets(n->test, "scale")) {
        n->desc.scoring.explicit_scale = 1;
        n->desc.scoring.scale = (float)node_float(n->test, "scale", 0);
    }
    bind_keys(n, &key, &value);
    bind_mask_and_lengths(n);
    bind_outputs(n);
}

static void check(const void *test, const char *solver)
{
    static const char *const names[] = {"Y", "qk_matmul_output", "present_key", "present_value"};
    node n = {.test = test};

    describe(&n);
    assert_true(job_plan(&n.job, &attention_operator, &n.desc, solver, JOB_TAKEN));
    job_run(&n.job, NULL);
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        node_compare(&n.job.output[i], n.test, names[i]);
    }
    job_release(&n.job);
}

int main(int argc, char **argv)
{
    size_t asked = level() == LEVEL_FULL ? 3 : 2;

    for (size_t s = 0; s < asked; s++) {
        for (size_t i = 0; i < onnx_case_count; i++) {
            if (node_of(&onnx_cases[i], "Attention")) {
                suite_add_case(check, &onnx_cases[i], solvers[s], "attention %s: ONNX %s", solvers[s],
                               onnx_cases[i].name);
            }
        }
    }
    return suite_run("attention, ONNX", argc, argv);
}
