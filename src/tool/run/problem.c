#include "tool/run/problem.h"

/* Refuses an array unless dimension `dimension` is `expected`, which `of` explains. */
static int expect_extent(const host_array *array, int dimension, size_t expected, const char *of)
{
    if (array->tensor.extent[dimension] == expected)
        return TOOL_DONE;
    return complain(TOOL_BAD_INPUT, "%s: shape %s, dimension %d is %zu, expected %zu: %s", array->name,
                    shape_of(&array->tensor).text, dimension, array->tensor.extent[dimension], expected, of);
}

int softmax_check(const softmax_problem *problem)
{
    const clattn_host_tensor *x = &problem->x.tensor;
    int status = host_expect_dtype(&problem->x, CLATTN_DTYPE_F32);
    if (status != TOOL_DONE)
        return status;
    if (x->rank < 1)
        return complain(TOOL_BAD_INPUT, "%s: shape () has no dimension, expected 1 to %d", problem->x.name,
                        CLATTN_MAX_RANK);
    return host_present(&problem->mask) ? host_expect_mask(&problem->mask, problem->short_mask, x->rank, x->extent)
                                        : TOOL_DONE;
}

static int expect_matrix(const host_array *array, size_t rows, size_t columns, const char *of)
{
    int status = host_expect_rank(array, 2, "(out, in)");
    if (status == TOOL_DONE)
        status = host_expect_dtype(array, CLATTN_DTYPE_F32);
    if (status == TOOL_DONE)
        status = expect_extent(array, 0, rows, of);
    if (status == TOOL_DONE)
        status = expect_extent(array, 1, columns, of);
    return status;
}

static int expect_bias(const host_array *array, size_t length, const char *of)
{
    if (!host_present(array))
        return TOOL_DONE;
    int status = host_expect_rank(array, 1, "(out)");
    if (status == TOOL_DONE)
        status = host_expect_dtype(array, CLATTN_DTYPE_F32);
    if (status == TOOL_DONE)
        status = expect_extent(array, 0, length, of);
    return status;
}

static int expect_sequence(const host_array *array)
{
    int status = host_expect_rank(array, 3, "(batch, length, d_model)");
    if (status == TOOL_DONE)
        status = host_expect_dtype(array, CLATTN_DTYPE_F32);
    if (status == TOOL_DONE && array->tensor.extent[2] == 0)
        status = complain(TOOL_BAD_INPUT, "%s: shape %s, the last dimension is 0, expected at least 1", array->name,
                          shape_of(&array->tensor).text);
    return status;
}

size_t mha_key_length(const mha_problem *problem)
{
    return host_present(&problem->context) ? problem->context.tensor.extent[1] : problem->x.tensor.extent[1];
}

int mha_check(const mha_problem *problem)
{
    int status = expect_sequence(&problem->x);
    if (status != TOOL_DONE)
        return status;
    const size_t *x = problem->x.tensor.extent;
    size_t d_model = x[2], d_context = d_model, inner = problem->inner;
    if (host_present(&problem->context)) {
        status = expect_sequence(&problem->context);
        if (status == TOOL_DONE)
            status = expect_extent(&problem->context, 0, x[0], "the batch of x");
        if (status != TOOL_DONE)
            return status;
        d_context = problem->context.tensor.extent[2];
    }
    if (inner == 0 || inner % problem->heads != 0)
        return complain(TOOL_BAD_INPUT, "%s: %zu columns are not a multiple of --heads %zu", problem->w_o.name, inner,
                        problem->heads);
    if (host_present(&problem->w_in)) {
        status = expect_matrix(&problem->w_in, 3 * inner, d_model, "W_Q, W_K and W_V of the columns of x");
        if (status == TOOL_DONE && d_context != d_model)
            status = expect_extent(&problem->context, 2, d_model, "packed weights take one d_model");
    } else {
        status = expect_matrix(&problem->w_q, inner, d_model, "(columns of out_proj, columns of x)");
        if (status == TOOL_DONE)
            status = expect_matrix(&problem->w_k, inner, d_context, "(columns of out_proj, columns of the context)");
        if (status == TOOL_DONE)
            status = expect_matrix(&problem->w_v, inner, d_context, "(columns of out_proj, columns of the context)");
    }
    if (status == TOOL_DONE)
        status = expect_matrix(&problem->w_o, d_model, inner, "(columns of x, heads * head size)");
    if (status == TOOL_DONE)
        status = expect_bias(&problem->b_in, 3 * inner, "one for each row of W_Q, W_K and W_V");
    if (status == TOOL_DONE)
        status = expect_bias(&problem->b_o, d_model, "one for each row of W_O");
    if (status != TOOL_DONE || !host_present(&problem->mask))
        return status;
    return host_expect_mask(&problem->mask, problem->short_mask, 4,
                            (size_t[]){x[0], problem->heads, x[1], mha_key_length(problem)});
}

void softmax_release(softmax_problem *problem)
{
    host_release(&problem->x);
    host_release(&problem->mask);
}

void matmul_release(matmul_problem *problem)
{
    host_release(&problem->x);
    host_release(&problem->w);
    host_release(&problem->bias);
    host_release(&problem->operand);
    host_release(&problem->w_scale);
}

void norm_release(norm_problem *problem)
{
    host_release(&problem->x);
    host_release(&problem->scale);
    host_release(&problem->bias);
}

void mha_release(mha_problem *problem)
{
    host_array *arrays[] = {&problem->x,   &problem->context, &problem->mask, &problem->w_in, &problem->w_q,
                            &problem->w_k, &problem->w_v,     &problem->b_in, &problem->w_o,  &problem->b_o};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        host_release(arrays[i]);
}
