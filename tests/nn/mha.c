/* Multi-head attention: self and cross, packed and separate weights, biases, masks, grouped heads, the weights as an
 * output; and a real encoder layer against PyTorch's result.
 *
 * Holds: Meaning 2 to 4, 7 and 8 of docs/numerics.md through the whole layer, the accuracy rule, guard bands; and
 * that examples/minilm comes out within 1e-5. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/ops/mha_case.h"

#ifdef TESTS_MINILM
#include <clattn/io.h>
#endif

#define BIASES .bias_in = true, .bias_out = true

static const mha_case cases[] = {
    {"self", ALL, .batch = 2, .queries = 5, .d_model = 16, .heads = 2},
    {"self, packed", ALL, .batch = 2, .queries = 5, .d_model = 16, .heads = 2, .packed = true, BIASES},
    {"one head", BIG, .batch = 2, .queries = 7, .d_model = 8, .heads = 1, .packed = true},
    {"one token", ALL, .batch = 1, .queries = 1, .d_model = 16, .heads = 2, BIASES},
    {"as the paper has it", BIG, .batch = 2, .queries = 67, .d_model = 512, .heads = 8, .packed = true, BIASES},
    {"as the paper has it, causal", FULL, .batch = 1, .queries = 131, .d_model = 512, .heads = 8, .packed = true,
     BIASES, .causal = true},
    {"twelve heads of 32", FULL, .batch = 1, .queries = 35, .d_model = 384, .heads = 12, BIASES},
    {"odd division", FULL, .batch = 2, .queries = 19, .d_model = 35, .heads = 5, .packed = true, .bias_in = true},
    {"inner size of its own", BIG, .batch = 2, .queries = 19, .d_model = 20, .heads = 3, .head_size = 8,
     .bias_out = true},
    {"grouped heads", ALL, .batch = 2, .queries = 5, .d_model = 32, .heads = 4, .kv_heads = 2, BIASES},
    {"one key/value head", BIG, .batch = 2, .queries = 35, .d_model = 32, .heads = 4, .kv_heads = 1, BIASES},
    {"cross", ALL, .batch = 2, .queries = 5, .keys = 7, .d_model = 16, .heads = 2, .cross = true, BIASES},
    {"cross, packed", BIG, .batch = 2, .queries = 35, .keys = 67, .d_model = 32, .heads = 4, .cross = true,
     .packed = true, BIASES},
    {"cross, packed, no biases", BIG, .batch = 2, .queries = 5, .keys = 7, .d_model = 16, .heads = 2, .cross = true,
     .packed = true},
    {"cross, other context", BIG, .batch = 2, .queries = 35, .keys = 67, .d_model = 32, .heads = 4, .cross = true,
     .d_context = 48, BIASES},
    {"cross, values apart", BIG, .batch = 2, .queries = 5, .keys = 7, .d_model = 16, .heads = 2, .cross = true,
     .d_context = 24, .d_context_value = 40, BIASES},
    {"cross, values apart, equal sizes", ALL, .batch = 2, .queries = 5, .keys = 7, .d_model = 16, .heads = 2,
     .cross = true, .d_context = 16, .d_context_value = 16, BIASES},
    {"cross, packed, values apart", ALL, .batch = 2, .queries = 5, .keys = 7, .d_model = 16, .heads = 2, .cross = true,
     .packed = true, .d_context_value = 16, BIASES},
    {"cross, packed, values apart, no biases", BIG, .batch = 2, .queries = 35, .keys = 67, .d_model = 32, .heads = 4,
     .cross = true, .packed = true, .d_context_value = 32, .weights = CLATTN_WEIGHTS_OUTPUT_AVERAGE},
    {"cross, grouped heads, more queries", BIG, .batch = 2, .queries = 67, .keys = 5, .d_model = 32, .heads = 4,
     .kv_heads = 2, .cross = true, BIASES},
    {"causal", ALL, .batch = 2, .queries = 9, .d_model = 16, .heads = 2, .packed = true, .causal = true},
    {"causal cross, bottom-right", BIG, .batch = 2, .queries = 19, .keys = 35, .d_model = 32, .heads = 4, .cross = true,
     .causal = true, .alignment = CLATTN_ALIGNMENT_BOTTOM_RIGHT},
    {"causal cross, leading rows empty", BIG, .batch = 2, .queries = 35, .keys = 19, .d_model = 32, .heads = 4,
     .cross = true, .causal = true, .alignment = CLATTN_ALIGNMENT_BOTTOM_RIGHT, BIASES},
    {"causal, position -2", BIG, .batch = 2, .queries = 19, .d_model = 32, .heads = 4, .packed = true, .causal = true,
     .alignment = CLATTN_ALIGNMENT_EXPLICIT, .position = -2, BIASES},
    {"key padding", ALL, .batch = 2, .queries = 9, .d_model = 16, .heads = 2, .packed = true, .mask = MASK_BOOL,
     .mask_rank = 4, .mask_extent = {2, 1, 1, 9}},
    {"float mask for each head", BIG, .batch = 2, .queries = 35, .d_model = 32, .heads = 4, .packed = true,
     .mask = MASK_FLOAT, BIASES},
    {"nothing attended: the bias", BIG, .batch = 1, .queries = 9, .d_model = 16, .heads = 2, .packed = true,
     .mask = MASK_FALSE, BIASES},
    {"scaled", BIG, .batch = 1, .queries = 9, .d_model = 16, .heads = 2, .packed = true, .scaled = true, .scale = -1},
    {"weights for each head", ALL, .batch = 2, .queries = 5, .d_model = 16, .heads = 2, .packed = true,
     .weights = CLATTN_WEIGHTS_OUTPUT_PER_HEAD},
    {"weights for each head", BIG, .batch = 2, .queries = 35, .keys = 67, .d_model = 32, .heads = 4, .cross = true,
     .mask = MASK_BOOL, .weights = CLATTN_WEIGHTS_OUTPUT_PER_HEAD},
    {"weights for each head, causal", BIG, .batch = 2, .queries = 35, .d_model = 32, .heads = 4, .causal = true,
     .alignment = CLATTN_ALIGNMENT_EXPLICIT, .position = -3, .weights = CLATTN_WEIGHTS_OUTPUT_PER_HEAD},
    {"weights averaged", ALL, .batch = 2, .queries = 5, .d_model = 16, .heads = 2, .packed = true,
     .weights = CLATTN_WEIGHTS_OUTPUT_AVERAGE},
    {"weights averaged", FULL, .batch = 2, .queries = 67, .d_model = 512, .heads = 8, .packed = true, BIASES,
     .weights = CLATTN_WEIGHTS_OUTPUT_AVERAGE},
    {"weights averaged, masked", BIG, .batch = 2, .queries = 35, .keys = 67, .d_model = 32, .heads = 4, .kv_heads = 2,
     .cross = true, .mask = MASK_FLOAT, .causal = true, .weights = CLATTN_WEIGHTS_OUTPUT_AVERAGE},
    {"smaller at enqueue", ALL, .batch = 3, .queries = 9, .d_model = 16, .heads = 2, .packed = true, BIASES,
     .shorter = true, .actual = {2, 5, 5}},
    {"smaller at enqueue, weights", BIG, .batch = 3, .queries = 35, .keys = 67, .d_model = 32, .heads = 4,
     .cross = true, BIASES, .shorter = true, .actual = {2, 19, 33}, .weights = CLATTN_WEIGHTS_OUTPUT_PER_HEAD},
    {"no keys at enqueue: the bias", BIG, .batch = 2, .queries = 5, .keys = 7, .d_model = 16, .heads = 2, .cross = true,
     BIASES, .shorter = true, .actual = {2, 5, 0}},
    {"float16", ALL, .batch = 2, .queries = 5, .d_model = 16, .heads = 2, .packed = true, BIASES,
     .type = CLATTN_DTYPE_F16},
    {"float16, weights averaged", BIG, .batch = 2, .queries = 35, .d_model = 64, .heads = 4, .packed = true, BIASES,
     .weights = CLATTN_WEIGHTS_OUTPUT_AVERAGE, .type = CLATTN_DTYPE_F16},
    {"float16, cross, grouped heads", BIG, .batch = 2, .queries = 35, .keys = 67, .d_model = 32, .heads = 4,
     .kv_heads = 2, .cross = true, .d_context = 48, BIASES, .mask = MASK_BOOL, .type = CLATTN_DTYPE_F16},
    {"float16, smaller at enqueue, weights", BIG, .batch = 3, .queries = 35, .keys = 67, .d_model = 24, .heads = 3,
     .cross = true, BIASES, .shorter = true, .actual = {2, 19, 33}, .weights = CLATTN_WEIGHTS_OUTPUT_PER_HEAD,
     .type = CLATTN_DTYPE_F16},
    {"bfloat16", ALL, .batch = 2, .queries = 5, .d_model = 16, .heads = 2, BIASES, .type = CLATTN_DTYPE_BF16},
    {"bfloat16, as the paper has it", BIG, .batch = 2, .queries = 67, .d_model = 512, .heads = 8, .packed = true,
     BIASES, .type = CLATTN_DTYPE_BF16},
    {"bfloat16, causal, weights", BIG, .batch = 2, .queries = 35, .d_model = 64, .heads = 4, .packed = true, BIASES,
     .causal = true, .weights = CLATTN_WEIGHTS_OUTPUT_PER_HEAD, .type = CLATTN_DTYPE_BF16},
    {"bfloat16, cross, packed, odd sizes", BIG, .batch = 3, .queries = 19, .keys = 37, .d_model = 35, .heads = 5,
     .cross = true, .packed = true, BIASES, .type = CLATTN_DTYPE_BF16},
    {"bfloat16, no keys at enqueue: the bias", BIG, .batch = 2, .queries = 5, .keys = 7, .d_model = 16, .heads = 2,
     .cross = true, BIASES, .shorter = true, .actual = {2, 5, 0}, .type = CLATTN_DTYPE_BF16},
    {"nothing at enqueue", ALL, .batch = 2, .queries = 5, .d_model = 16, .heads = 2, .shorter = true,
     .actual = {0, 5, 5}},
};

#ifdef TESTS_MINILM

static test_array load(test_job *job, const clattn_host_tensor *tensor)
{
    assert_int_equal(tensor->dtype, CLATTN_DTYPE_F32);
    test_array made = job_array(job, ROLE_INPUT, CLATTN_DTYPE_F32, tensor->rank, tensor->extent, FORM_PLAIN);

    memcpy(made.memory->host + (size_t)made.offset * sizeof(float), tensor->data, tensor->bytes);
    array_upload(&made);
    return made;
}

static clattn_host_tensor weight(clattn_safetensors *file, const char *name)
{
    clattn_host_tensor tensor;

    assert_status(device_context(), clattn_safetensors_find(file, name, &tensor, NULL), CLATTN_SUCCESS);
    assert_true(tensor.bytes > 0);
    return tensor;
}

static clattn_npy *sample(const char *path)
{
    clattn_npy *npy = NULL;

    assert_status(device_context(), clattn_npy_create(path, &npy, NULL), CLATTN_SUCCESS);
    return npy;
}

/* One layer of all-MiniLM-L6-v2 over a paragraph agrees with PyTorch in float64: y and the averaged weights. */
static void minilm(const void *unused, const char *solver)
{
    clattn_safetensors *file = NULL;
    clattn_npy *hidden = sample(TESTS_MINILM "/hidden.npy"), *expected = sample(TESTS_MINILM "/expected.npy");
    clattn_npy *expected_weights = sample(TESTS_MINILM "/expected_weights.npy");
    clattn_mha_desc desc = CLATTN_MHA_DESC_INIT;
    clattn_mha_args args = CLATTN_MHA_ARGS_INIT;
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    test_job job = {.calls = &mha_operator};

    if (device_breaks(solver))
        skip();
    (void)unused;
    assert_status(device_context(), clattn_safetensors_create(TESTS_MINILM "/weights.safetensors", &file, NULL),
                  CLATTN_SUCCESS);
    clattn_host_tensor x = clattn_npy_tensor(hidden), w_in = weight(file, "in_proj_weight");
    clattn_host_tensor b_in = weight(file, "in_proj_bias"), w_o = weight(file, "out_proj.weight");
    clattn_host_tensor b_o = weight(file, "out_proj.bias");
    clattn_host_tensor y = clattn_npy_tensor(expected), mean = clattn_npy_tensor(expected_weights);
    test_array inputs[] = {load(&job, &x), load(&job, &w_in), load(&job, &b_in), load(&job, &w_o), load(&job, &b_o)};
    job.output[0] = job_array(&job, ROLE_OUTPUT, CLATTN_DTYPE_F32, 3, y.extent, FORM_PLAIN);
    job.output[1] = job_array(&job, ROLE_OUTPUT, CLATTN_DTYPE_F32, 3, mean.extent, FORM_PLAIN);
    array_own(&job.output[0], y.extent);
    array_own(&job.output[1], mean.extent);

    desc.packed_weights = desc.bias_in = desc.bias_out = 1;
    desc.weights = CLATTN_WEIGHTS_OUTPUT_AVERAGE;
    desc.batch = x.extent[0];
    desc.query_length = x.extent[1];
    desc.d_model = x.extent[2];
    desc.heads = 12;
    args.x = array_binding(&inputs[0]);
    args.w_in = array_binding(&inputs[1]);
    args.b_in = array_binding(&inputs[2]);
    args.w_o = array_binding(&inputs[3]);
    args.b_o = array_binding(&inputs[4]);
    args.y = array_binding(&job.output[0]);
    args.weights = array_binding(&job.output[1]);
    job.args.mha = args;
    options.solver = solver;
    assert_status(device_context(), clattn_mha_plan_create(device_context(), &desc, &options, &job.plan),
                  CLATTN_SUCCESS);
    job_run(&job, NULL);

    double *given = array_dense(&job.output[0], 3, y.extent);
    double *given_mean = array_dense(&job.output[1], 3, mean.extent);
    assert_int_equal(y.dtype, CLATTN_DTYPE_F64);
    for (size_t i = 0; i < y.bytes / sizeof(double); i++) {
        double difference = fabs(given[i] - ((const double *)y.data)[i]);
        assert_true(difference <= 1e-5); /* NaN fails too */
    }
    for (size_t i = 0; i < mean.bytes / sizeof(float); i++) {
        double difference = fabs(given_mean[i] - (double)((const float *)mean.data)[i]);
        assert_true(difference <= 1e-5);
    }
    free(given);
    free(given_mean);
    job_release(&job);
    clattn_safetensors_release(&file);
    clattn_npy_release(&hidden);
    clattn_npy_release(&expected);
    clattn_npy_release(&expected_weights);
}

#endif

static void refused_types(void **state)
{
    static const clattn_dtype refused[] = {CLATTN_DTYPE_F64, CLATTN_DTYPE_I8, CLATTN_DTYPE_I4, CLATTN_DTYPE_I32,
                                           CLATTN_DTYPE_BOOL};
    clattn_mha_desc desc = CLATTN_MHA_DESC_INIT;

    (void)state;
    desc.batch = 1;
    desc.query_length = 3;
    desc.d_model = 8;
    desc.heads = 2;
    for (size_t i = 0; i < COUNT_OF(refused); i++) {
        const char *reason = NULL;
        desc.dtype = refused[i];
        assert_status(device_context(), clattn_mha_supports(device_context(), &desc, &reason),
                      CLATTN_ERROR_UNSUPPORTED);
        assert_string_equal(reason, "inputs, weights and output are float32, float16 or bfloat16");
    }
    desc.dtype = CLATTN_DTYPE_BF16;
    assert_status(device_context(), clattn_mha_supports(device_context(), &desc, NULL), CLATTN_SUCCESS);
}

int main(int argc, char **argv)
{
    mha_add(cases, COUNT_OF(cases));
    suite_add(refused_types, "mha: elements that are no float32, float16 or bfloat16 are refused");
#ifdef TESTS_MINILM
    if (level() != LEVEL_TINY) {
        suite_add_case(minilm, NULL, NULL, "mha: all-MiniLM-L6-v2 against PyTorch, the plan's choice");
        for (int n = 0; n < MHA_SOLVERS && level() == LEVEL_FULL; n++) {
            suite_add_case(minilm, NULL, mha_solvers[n], "mha %s: all-MiniLM-L6-v2 against PyTorch", mha_solvers[n]);
        }
    }
#endif
    return suite_run("mha", argc, argv);
}
