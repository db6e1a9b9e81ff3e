/* ONNX's node tests of Softmax, LayerNormalization, RMSNormalization, RotaryEmbedding, Gelu, Swish and LeakyRelu, each
 * case by every solver, with ONNX's tolerances.
 *
 * Holds: that these operators are ONNX's, attribute by attribute.  The tests are named after the cases. */
#include <math.h>

#include "onnx/onnx.h"

/* Runs the job by a solver and compares its outputs, which have these names in the case. */
static void run_and_compare(test_job *job, const struct operator_calls *calls, const void *desc, const char *solver,
                            const onnx_case *test, const char *const names[JOB_OUTPUTS])
{
    assert_true(job_plan(job, calls, desc, solver, JOB_TAKEN));
    job_run(job, NULL);
    for (size_t n = 0; n < JOB_OUTPUTS && names[n]; n++) {
        node_compare(&job->output[n], test, names[n]);
    }
    job_release(job);
}

static int axis_of(const onnx_case *test, int rank)
{
    long axis = node_int(test, "axis", -1);
    return (int)(axis < 0 ? axis + rank : axis);
}

/* The layout with dimension `axis` last. */
static clattn_layout with_last(const clattn_layout *layout, int axis)
{
    clattn_layout turned = *layout;

    for (int d = axis; d + 1 < layout->rank; d++) {
        turned.extent[d] = layout->extent[d + 1];
        turned.stride[d] = layout->stride[d + 1];
    }
    turned.extent[layout->rank - 1] = layout->extent[axis];
    turned.stride[layout->rank - 1] = layout->stride[axis];
    return turned;
}

static void check_softmax(const void *which, const char *solver)
{
    const onnx_case *test = which;
    clattn_softmax_desc desc = CLATTN_SOFTMAX_DESC_INIT;
    test_job job = {.args.softmax = CLATTN_SOFTMAX_ARGS_INIT};
    test_array x = node_input(&job, test, "input");

    job.output[0] = node_output(&job, test, "output");
    int axis = axis_of(test, x.layout.rank);
    desc.x = with_last(&x.layout, axis);
    desc.y = with_last(&job.output[0].layout, axis);
    job.args.softmax.x = array_binding(&x);
    job.args.softmax.y = array_binding(&job.output[0]);
    run_and_compare(&job, &softmax_operator, &desc, solver, test, (const char *[JOB_OUTPUTS]){"output"});
}

static void check_norm(const void *which, const char *solver)
{
    const onnx_case *test = which;
    bool rms = node_of(test, "RMSNormalization");
    clattn_norm_desc desc = CLATTN_NORM_DESC_INIT;
    test_job job = {.args.norm = CLATTN_NORM_ARGS_INIT};
    clattn_norm_args *args = &job.args.norm;
    test_array x = node_input(&job, test, "X"), scale = node_input(&job, test, rms ? "scale" : "Scale");
    test_array bias = node_input(&job, test, "B");

    job.output[0] = node_output(&job, test, "Y");
    job.output[1] = node_output(&job, test, "Mean");
    job.output[2] = node_output(&job, test, "InvStdDev");
    assert_true((job.output[1].memory && job.output[2].memory) || rms);
    desc.kind = rms ? CLATTN_NORM_KIND_RMS : CLATTN_NORM_KIND_LAYER;
    desc.axes = x.layout.rank - axis_of(test, x.layout.rank);
    desc.explicit_epsilon = 1;
    desc.epsilon = (float)node_float(test, "epsilon", 1e-5);
    array_bind(&x, &desc.x, &args->x);
    array_bind(&scale, &desc.scale, &args->scale);
    array_bind(&bias, &desc.bias, &args->bias);
    array_bind(&job.output[0], &desc.y, &args->y);
    array_bind(&job.output[1], &desc.mean, &args->mean);
    array_bind(&job.output[2], &desc.inv_std_dev, &args->inv_std_dev);
    run_and_compare(&job, &norm_operator, &desc, solver, test, (const char *[JOB_OUTPUTS]){"Y", "Mean", "InvStdDev"});
}

/* (batch, length, heads · size) as (batch, heads, length, size); what has four dimensions already stays. */
static void split_heads(clattn_layout *layout, size_t heads)
{
    if (layout->rank == 3) {
        size_t size = layout->extent[2] / heads;
        *layout = clattn_layout_bshd(layout->dtype, layout->extent[0], heads, layout->extent[1], size);
    }
}

static void check_rope(const void *which, const char *solver)
{
    const onnx_case *test = which;
    clattn_rope_desc desc = CLATTN_ROPE_DESC_INIT;
    test_job job = {.args.rope = CLATTN_ROPE_ARGS_INIT};
    clattn_rope_args *args = &job.args.rope;
    test_array x = node_input(&job, test, "X"), positions = node_input(&job, test, "position_ids");
    test_array cosines = node_input(&job, test, "cos_cache"), sines = node_input(&job, test, "sin_cache");
    size_t heads = (size_t)node_int(test, "num_heads", 0);

    job.output[0] = node_output(&job, test, "Y");
    desc.pairing = node_int(test, "interleaved", 0) ? CLATTN_ROPE_PAIRING_INTERLEAVED : CLATTN_ROPE_PAIRING_HALVES;
    desc.rotary_size = (size_t)node_int(test, "rotary_embedding_dim", 0);
    array_bind(&x, &desc.x, &args->x);
    array_bind(&job.output[0], &desc.y, &args->y);
    array_bind(&cosines, &desc.cos, &args->cos);
    array_bind(&sines, &desc.sin, &args->sin);
    array_bind(&positions, &desc.positions, &args->positions);
    split_heads(&desc.x, heads);
    split_heads(&desc.y, heads);
    run_and_compare(&job, &rope_operator, &desc, solver, test, (const char *[JOB_OUTPUTS]){"Y"});
}

static void check_activation(const void *which, const char *solver)
{
    const onnx_case *test = which;
    clattn_activation_desc desc = CLATTN_ACTIVATION_DESC_INIT;
    test_job job = {.args.activation = CLATTN_ACTIVATION_ARGS_INIT};
    clattn_activation_args *args = &job.args.activation;
    test_array x = node_input(&job, test, "X");
    const double alpha = node_float(test, "alpha", NAN);

    job.output[0] = node_output(&job, test, "Y");
    desc.function = node_of(test, "Swish")                 ? CLATTN_ACTIVATION_SWISH
                    : node_of(test, "LeakyRelu")           ? CLATTN_ACTIVATION_LEAKY_RELU
                    : node_is(test, "approximate", "tanh") ? CLATTN_ACTIVATION_GELU_TANH
                                                           : CLATTN_ACTIVATION_GELU;
    desc.explicit_alpha = !isnan(alpha); /* ONNX's defaults are the library's */
    desc.alpha = (float)alpha;
    array_bind(&x, &desc.x, &args->x);
    array_bind(&job.output[0], &desc.y, &args->y);
    run_and_compare(&job, &activation_operator, &desc, solver, test, (const char *[JOB_OUTPUTS]){"Y"});
}

static const char *const with_tile[] = {"generic", "cpu", "tile"};

static const struct operator_cases {
    const char *op, *name;
    size_t expected; /* cases of the release */
    case_check check;
    size_t solvers;
} operators[] = {
    {"Softmax", "softmax", 7, check_softmax, 3},         {"LayerNormalization", "norm", 19, check_norm, 3},
    {"RMSNormalization", "norm", 19, check_norm, 3},     {"RotaryEmbedding", "rope", 8, check_rope, 2},
    {"Gelu", "activation", 4, check_activation, 2},      {"Swish", "activation", 1, check_activation, 2},
    {"LeakyRelu", "activation", 3, check_activation, 2},
};

static void all_there(void **state)
{
    (void)state;
    for (size_t o = 0; o < COUNT_OF(operators); o++) {
        size_t count = 0;
        for (size_t i = 0; i < onnx_case_count; i++) {
            count += node_of(&onnx_cases[i], operators[o].op);
        }
        assert_int_equal(count, operators[o].expected);
    }
}

int main(int argc, char **argv)
{
    suite_add(all_there, "onnx: every case of the release is there");
    for (size_t o = 0; o < COUNT_OF(operators); o++) {
        for (size_t i = 0; i < onnx_case_count * operators[o].solvers; i++) {
            const onnx_case *test = &onnx_cases[i / operators[o].solvers];
            const char *solver = with_tile[i % operators[o].solvers];
            if (node_of(test, operators[o].op)) {
                suite_add_case(operators[o].check, test, solver, "%s %s: ONNX %s", operators[o].name, solver,
                               test->name);
            }
        }
    }
    return suite_run("onnx", argc, argv);
}
