/* Every wrong binding or length and every foreign object is refused at enqueue with a status, and the output stays as
 * it was. */
#include <math.h>

#include "support/core/refusals.h"

static void missing_and_strange_bindings_are_refused(void **state)
{
    (void)state;
    ARGS_WITH(INVALID, a.query.buffer = NULL)
    ARGS_WITH(INVALID, a.key.buffer = NULL)
    ARGS_WITH(INVALID, a.value.buffer = NULL)
    ARGS_WITH(INVALID, a.output.buffer = NULL)
    ARGS_WITH(INVALID, a.query.kind = 2)
    ARGS_WITH(INVALID, a.output.kind = -1)
    ARGS_WITH(INVALID, (a.query.kind = CLATTN_BINDING_KIND_SVM, a.query.svm = NULL))
    ARGS_WITH(INVALID, a.mask = a.query) /* the description has no mask */
    ARGS_WITH(INVALID, a.outputs.lse = a.output)
    ARGS_WITH(INVALID, a.explicit_lengths = 2)
    ARGS_WITH(INVALID, a.bias = a.query) /* the description has no bias */
    ARGS_WITH(INVALID, a.query.reserved = 1)
    ARGS_WITH(INVALID, a.key.reserved = -1)
    ARGS_WITH(INVALID, a.value.reserved = 1)
    ARGS_WITH(INVALID, a.output.reserved = INT32_MIN)
}

/* The product of the extents does not fit 64 bits, but one extent makes the array empty. */
static void empty_softmaxes_of_any_extents_do_nothing(void **state)
{
    static const size_t extents[][4] = {{(size_t)1 << 40, (size_t)1 << 40, 0, 5},
                                        {0, (size_t)1 << 40, (size_t)1 << 40, 5},
                                        {(size_t)1 << 40, (size_t)3 << 40, 1, 0},
                                        {(size_t)1 << 40, 0, 7, (size_t)1 << 40}};
    (void)state;
    for (size_t i = 0; i < sizeof extents / sizeof *extents; i++) {
        clattn_softmax_desc desc = CLATTN_SOFTMAX_DESC_INIT;
        clattn_softmax_args args = CLATTN_SOFTMAX_ARGS_INIT;
        desc.x = desc.y = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, extents[i]);
        assert_status(context, clattn_softmax_run(context, NULL, &desc, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    }
}

static void buffers_that_are_too_small_are_refused(void **state)
{
    const unsigned small = STATUS_BIT(CLATTN_ERROR_BUFFER_TOO_SMALL);
    cl_context opencl = clattn_context_opencl_context(context);
    (void)state;
    ARGS_WITH(small, a.query.offset = 1)
    ARGS_WITH(small, a.key.offset = 1)
    ARGS_WITH(small, a.value.offset = 1)
    ARGS_WITH(small, a.output.offset = 1)
    ARGS_WITH(small, a.output.offset = -1)
    ARGS_WITH(small, a.query.offset = -1)
    ARGS_WITH(small | TOO_BIG, a.query.offset = INT64_MAX)
    ARGS_WITH(small | TOO_BIG, a.output.offset = INT64_MAX / 4)
    ARGS_WITH(small | TOO_BIG, a.key.offset = INT64_MIN)
    cl_mem shorter = new_buffer(opencl, CL_MEM_READ_WRITE, problem.count * sizeof(float) - 1, NULL);
    ARGS_WITH(small, a.output.buffer = shorter)
    ARGS_WITH(small, a.query.buffer = shorter)
    clReleaseMemObject(shorter);
    assert_message_has(context, "query");
}

static void buffers_that_kernels_may_not_touch_are_refused(void **state)
{
    const unsigned access = STATUS_BIT(CLATTN_ERROR_BUFFER_ACCESS);
    cl_context opencl = clattn_context_opencl_context(context);
    cl_mem read_only = new_buffer(opencl, CL_MEM_READ_ONLY, 4096, NULL);
    cl_mem write_only = new_buffer(opencl, CL_MEM_WRITE_ONLY, 4096, NULL);
    (void)state;
    ARGS_WITH(access, a.output.buffer = read_only)
    ARGS_WITH(access, a.query.buffer = write_only)
    ARGS_WITH(access, a.key.buffer = write_only)
    ARGS_WITH(access, a.value.buffer = write_only)
    clReleaseMemObject(read_only);
    clReleaseMemObject(write_only);
}

static void foreign_objects_are_refused(void **state)
{
    const unsigned wrong = STATUS_BIT(CLATTN_ERROR_WRONG_CONTEXT);
    cl_int code;
    cl_device_id device = clattn_context_opencl_device(context);
    (void)state;
    cl_context foreign = clCreateContext(NULL, 1, &device, NULL, NULL, &code);
    assert_cl(code);
    cl_command_queue queue = clCreateCommandQueue(foreign, device, 0, &code);
    assert_cl(code);
    cl_mem buffer = new_buffer(foreign, CL_MEM_READ_WRITE, 4096, NULL);
    ARGS_WITH(wrong, a.query.buffer = buffer)
    ARGS_WITH(wrong, a.output.buffer = buffer)
    cl_event event = new_user_event(foreign);
    assert_status(context, clattn_attention_enqueue(plan, queue, &problem.args, 0, NULL, NULL),
                  CLATTN_ERROR_WRONG_CONTEXT);
    assert_status_in(context, clattn_attention_enqueue(plan, NULL, &problem.args, 1, &event, NULL),
                     wrong | STATUS_BIT(CLATTN_ERROR_OPENCL));
    assert_status_in(context, clattn_attention_enqueue(plan, NULL, &problem.args, 1, NULL, NULL),
                     INVALID | STATUS_BIT(CLATTN_ERROR_OPENCL));
    assert_status_in(context, clattn_attention_enqueue(plan, NULL, &problem.args, 0, &event, NULL),
                     INVALID | STATUS_BIT(CLATTN_ERROR_OPENCL));
    clSetUserEventStatus(event, CL_COMPLETE);
    clReleaseEvent(event);
    clReleaseMemObject(buffer);
    clReleaseCommandQueue(queue);
    clReleaseContext(foreign);
}

static void lengths_beyond_the_plan_are_refused(void **state)
{
    (void)state;
#define LENGTHS(b, q, k) (a.explicit_lengths = 1, a.batch = (b), a.query_length = (q), a.key_length = (k))
    ARGS_WITH(INVALID, LENGTHS(2, 5, 7))
    ARGS_WITH(INVALID, LENGTHS(1, 6, 7))
    ARGS_WITH(INVALID, LENGTHS(1, 5, 8))
    ARGS_WITH(INVALID, LENGTHS(SIZE_MAX, SIZE_MAX, SIZE_MAX))
    /* With a batch of 0 or no queries the enqueue succeeds, writes nothing, and its event completes. */
    for (int i = 0; i < 2; i++) {
        clattn_attention_args a = problem.args;
        cl_event event = NULL;
        float after[128];
        LENGTHS(i == 0 ? 0 : 1, i == 1 ? 0 : 5, 7);
        assert_status(context, clattn_attention_enqueue(plan, NULL, &a, 0, NULL, &event), CLATTN_SUCCESS);
        assert_non_null(event);
        assert_cl(clWaitForEvents(1, &event));
        clReleaseEvent(event);
        read_buffer(clattn_context_queue(context), problem.output, problem.count * sizeof(float), after);
        for (size_t j = 0; j < problem.count; j++)
            assert_true(isnan(after[j]));
    }
    /* Without keys, rows attend nothing and are exactly +0. */
    clattn_attention_args a = problem.args;
    LENGTHS(1, 5, 0);
    float after[128];
    assert_status(context, clattn_attention_enqueue(plan, NULL, &a, 0, NULL, NULL), CLATTN_SUCCESS);
    read_buffer(clattn_context_queue(context), problem.output, problem.count * sizeof(float), after);
    for (size_t j = 0; j < problem.count; j++)
        assert_true(after[j] == 0.0f && !signbit(after[j]));
#undef LENGTHS
}

static void plans_are_not_taken_for_another_operators(void **state)
{
    clattn_softmax_args softmax = CLATTN_SOFTMAX_ARGS_INIT;
    clattn_matmul_args matmul = CLATTN_MATMUL_ARGS_INIT;
    clattn_mha_args mha = CLATTN_MHA_ARGS_INIT;
    (void)state;
    assert_status(context, clattn_softmax_enqueue(plan, NULL, &softmax, 0, NULL, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_status(context, clattn_matmul_enqueue(plan, NULL, &matmul, 0, NULL, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_status(context, clattn_mha_enqueue(plan, NULL, &mha, 0, NULL, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
}

/* Runs an activation whose x and y lie in one buffer of 64 floats. */
static clattn_status activate_within_a_buffer(cl_mem buffer, int64_t x_row, int64_t y_row, int64_t y_at, size_t columns)
{
    clattn_activation_desc desc = CLATTN_ACTIVATION_DESC_INIT;
    clattn_activation_args args = CLATTN_ACTIVATION_ARGS_INIT;
    desc.function = CLATTN_ACTIVATION_RELU;
    desc.x = desc.y = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[2]){4, columns});
    desc.x.stride[0] = x_row;
    desc.y.stride[0] = y_row;
    args.x = clattn_binding_buffer(buffer, 0);
    args.y = clattn_binding_buffer(buffer, y_at);
    return clattn_activation_run(context, NULL, &desc, &args, 0, NULL, NULL);
}

/* Outputs may not overlap other arrays, unless they lie exactly in an input's place and the operator's header allows
 * that. */
static void outputs_that_overlap_are_refused(void **state)
{
    cl_mem buffer = new_buffer(clattn_context_opencl_context(context), CL_MEM_READ_WRITE, 64 * sizeof(float), NULL);
    (void)state;
    assert_status(context, activate_within_a_buffer(buffer, 8, 8, 32, 8), CLATTN_SUCCESS);  /* y lies behind x */
    assert_status(context, activate_within_a_buffer(buffer, 16, 16, 8, 8), CLATTN_SUCCESS); /* columns side by side */
    assert_status(context, activate_within_a_buffer(buffer, 16, 16, 0, 8), CLATTN_SUCCESS); /* in place */
    assert_status(context, activate_within_a_buffer(buffer, 8, 8, 31, 8), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_message_has(context, "y overlaps x");
    assert_status(context, activate_within_a_buffer(buffer, 16, 16, 7, 8), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_status(context, activate_within_a_buffer(buffer, 8, 16, 0, 8), CLATTN_ERROR_INVALID_ARGUMENT);

    clattn_matmul_desc product = CLATTN_MATMUL_DESC_INIT;
    product.a = product.c = product.operand = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[2]){2, 4});
    product.b = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[2]){4, 4});
    const struct {
        int64_t c;
        const char *message; /* NULL: the call succeeds */
    } products[] = {{40, NULL}, {32, NULL}, {36, "c overlaps operand"}, {4, "c overlaps a"}, {12, "c overlaps b"}};
    for (size_t i = 0; i < COUNT_OF(products); i++) {
        clattn_matmul_args args = CLATTN_MATMUL_ARGS_INIT;
        args.a = clattn_binding_buffer(buffer, 0);
        args.b = clattn_binding_buffer(buffer, 16);
        args.operand = clattn_binding_buffer(buffer, 32);
        args.c = clattn_binding_buffer(buffer, products[i].c);
        assert_status(context, clattn_matmul_run(context, NULL, &product, &args, 0, NULL, NULL),
                      products[i].message ? CLATTN_ERROR_INVALID_ARGUMENT : CLATTN_SUCCESS);
        if (products[i].message)
            assert_message_has(context, products[i].message);
    }

    clattn_norm_desc desc = CLATTN_NORM_DESC_INIT;
    desc.x = desc.y = desc.residual = desc.sum = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[2]){2, 8});
    desc.mean = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[2]){2, 1});
    const struct {
        int64_t y, sum, mean;
        const char *message; /* NULL: the call succeeds */
    } norms[] = {
        {32, 48, 30, "mean overlaps residual"}, {0, 16, 32, NULL},
        {16, 0, 14, "sum overlaps mean"},       {16, 0, 62, NULL},
        {0, 0, 40, "y overlaps sum"},           {8, 48, 40, "y overlaps x"},
    };
    for (size_t i = 0; i < COUNT_OF(norms); i++) {
        clattn_norm_args args = CLATTN_NORM_ARGS_INIT;
        args.x = clattn_binding_buffer(buffer, 0);
        args.residual = clattn_binding_buffer(buffer, 16);
        args.y = clattn_binding_buffer(buffer, norms[i].y);
        args.sum = clattn_binding_buffer(buffer, norms[i].sum);
        args.mean = clattn_binding_buffer(buffer, norms[i].mean);
        assert_status(context, clattn_norm_run(context, NULL, &desc, &args, 0, NULL, NULL),
                      norms[i].message ? CLATTN_ERROR_INVALID_ARGUMENT : CLATTN_SUCCESS);
        if (norms[i].message)
            assert_message_has(context, norms[i].message);
    }
    assert_cl(clFinish(clattn_context_queue(context)));
    clReleaseMemObject(buffer);
}

/* The same of attention and multi-head attention, which nothing lets work in place. */
static void attention_in_place_is_refused(void **state)
{
    cl_mem buffer = new_buffer(clattn_context_opencl_context(context), CL_MEM_READ_WRITE, 256 * sizeof(float), NULL);
    clattn_attention_desc attention = CLATTN_ATTENTION_DESC_INIT;
    (void)state;
    attention.query = attention.key = attention.value = attention.output =
        clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 1, 4, 8);
    attention.outputs.lse = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, (const size_t[3]){1, 1, 4});
    attention.lengths.key = clattn_layout_contiguous(CLATTN_DTYPE_I32, 1, (const size_t[1]){1});
    const struct {
        int64_t output, lse, lengths;
        const char *message; /* NULL: the call succeeds */
    } attentions[] = {
        {96, 128, 140, NULL},
        {0, 128, 140, "output overlaps query"},
        {65, 128, 140, "output overlaps value"},
        {96, 127, 140, "outputs.lse"},
        {96, 28, 140, "outputs.lse overlaps query"},
        {96, 128, 131, "outputs.lse"},
        {96, 128, 96, "output overlaps lengths.key"},
    };
    for (size_t i = 0; i < COUNT_OF(attentions); i++) {
        clattn_attention_args args = CLATTN_ATTENTION_ARGS_INIT;
        args.query = clattn_binding_buffer(buffer, 0);
        args.key = clattn_binding_buffer(buffer, 32);
        args.value = clattn_binding_buffer(buffer, 64);
        args.output = clattn_binding_buffer(buffer, attentions[i].output);
        args.outputs.lse = clattn_binding_buffer(buffer, attentions[i].lse);
        args.lengths.key = clattn_binding_buffer(buffer, attentions[i].lengths);
        assert_status(context, clattn_attention_run(context, NULL, &attention, &args, 0, NULL, NULL),
                      attentions[i].message ? CLATTN_ERROR_INVALID_ARGUMENT : CLATTN_SUCCESS);
        if (attentions[i].message)
            assert_message_has(context, attentions[i].message);
    }

    clattn_mha_desc mha = CLATTN_MHA_DESC_INIT;
    mha.batch = 1;
    mha.query_length = 3;
    mha.d_model = 4;
    mha.heads = 1;
    mha.dtype = CLATTN_DTYPE_F32;
    mha.packed_weights = 1;
    const struct {
        int64_t y;
        const char *message; /* NULL: the call succeeds */
    } mhas[] = {{80, NULL}, {0, "y overlaps x"}, {60, "y overlaps w_in"}, {68, "y overlaps w_o"}};
    for (size_t i = 0; i < COUNT_OF(mhas); i++) {
        clattn_mha_args args = CLATTN_MHA_ARGS_INIT;
        args.x = clattn_binding_buffer(buffer, 0);
        args.w_in = clattn_binding_buffer(buffer, 16);
        args.w_o = clattn_binding_buffer(buffer, 64);
        args.y = clattn_binding_buffer(buffer, mhas[i].y);
        assert_status(context, clattn_mha_run(context, NULL, &mha, &args, 0, NULL, NULL),
                      mhas[i].message ? CLATTN_ERROR_INVALID_ARGUMENT : CLATTN_SUCCESS);
        if (mhas[i].message)
            assert_message_has(context, mhas[i].message);
    }
    assert_cl(clFinish(clattn_context_queue(context)));
    clReleaseMemObject(buffer);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(missing_and_strange_bindings_are_refused, refusals_start, refusals_stop),
        cmocka_unit_test_setup_teardown(empty_softmaxes_of_any_extents_do_nothing, refusals_start, refusals_stop),
        cmocka_unit_test_setup_teardown(buffers_that_are_too_small_are_refused, refusals_start, refusals_stop),
        cmocka_unit_test_setup_teardown(buffers_that_kernels_may_not_touch_are_refused, refusals_start, refusals_stop),
        cmocka_unit_test_setup_teardown(foreign_objects_are_refused, refusals_start, refusals_stop),
        cmocka_unit_test_setup_teardown(lengths_beyond_the_plan_are_refused, refusals_start, refusals_stop),
        cmocka_unit_test_setup_teardown(plans_are_not_taken_for_another_operators, refusals_start, refusals_stop),
        cmocka_unit_test_setup_teardown(outputs_that_overlap_are_refused, refusals_start, refusals_stop),
        cmocka_unit_test_setup_teardown(attention_in_place_is_refused, refusals_start, refusals_stop),
    };
    return RUN_TESTS("errors of bindings", tests, argc, argv);
}
