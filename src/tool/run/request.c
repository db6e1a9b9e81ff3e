#include "tool/run/request.h"

/* Refuses an array unless the extent of `dimension` is `expected`; `of` explains why. */
static int expect_extent(const host_array *array, int dimension, size_t expected, const char *of)
{
    if (array->tensor.extent[dimension] == expected)
        return TOOL_DONE;
    return complain(TOOL_BAD_INPUT, "%s: shape %s, dimension %d is %zu, expected %zu: %s", array->name,
                    shape_of(&array->tensor).text, dimension, array->tensor.extent[dimension], expected, of);
}

int softmax_check(const softmax_request *request)
{
    const clattn_host_tensor *x = &request->x.tensor;
    int status = host_expect_dtype(&request->x, CLATTN_DTYPE_F32);
    if (status != TOOL_DONE)
        return status;
    if (x->rank < 1)
        return complain(TOOL_BAD_INPUT, "%s: shape () has no dimension, expected 1 to %d", request->x.name,
                        CLATTN_MAX_RANK);
    return host_present(&request->mask) ? host_expect_mask(&request->mask, request->short_mask, x->rank, x->extent)
                                        : TOOL_DONE;
}

static int expect_matrix(const host_array *array, size_t rows, size_t columns, const char *of)
{
    int status;
    TOOL_TRY(host_expect_rank(array, 2, "(out, in)"));
    TOOL_TRY(host_expect_dtype(array, CLATTN_DTYPE_F32));
    TOOL_TRY(expect_extent(array, 0, rows, of));
    TOOL_TRY(expect_extent(array, 1, columns, of));
fail:
    return status;
}

static int expect_bias(const host_array *array, size_t length, const char *of)
{
    if (!host_present(array))
        return TOOL_DONE;
    int status;
    TOOL_TRY(host_expect_rank(array, 1, "(out)"));
    TOOL_TRY(host_expect_dtype(array, CLATTN_DTYPE_F32));
    TOOL_TRY(expect_extent(array, 0, length, of));
fail:
    return status;
}

static int expect_sequence(const host_array *array)
{
    int status;
    TOOL_TRY(host_expect_rank(array, 3, "(batch, length, d_model)"));
    TOOL_TRY(host_expect_dtype(array, CLATTN_DTYPE_F32));
    if (array->tensor.extent[2] == 0)
        TOOL_TRY(complain(TOOL_BAD_INPUT, "%s: shape %s, the last dimension is 0, expected at least 1", array->name,
                          shape_of(&array->tensor).text));
fail:
    return status;
}

size_t mha_key_length(const mha_request *request)
{
    return host_present(&request->context) ? request->context.tensor.extent[1] : request->x.tensor.extent[1];
}

int mha_check(const mha_request *request)
{
    int status;
    TOOL_TRY(expect_sequence(&request->x));
    const size_t *x = request->x.tensor.extent;
    size_t d_model = x[2], d_context = d_model, inner = request->inner;
    if (host_present(&request->context)) {
        TOOL_TRY(expect_sequence(&request->context));
        TOOL_TRY(expect_extent(&request->context, 0, x[0], "the batch of x"));
        d_context = request->context.tensor.extent[2];
    }
    if (inner == 0 || inner % request->heads != 0)
        return complain(TOOL_BAD_INPUT, "%s: %zu columns are not a multiple of --heads %zu", request->w_o.name, inner,
                        request->heads);
    if (host_present(&request->w_in)) {
        TOOL_TRY(expect_matrix(&request->w_in, 3 * inner, d_model, "W_Q, W_K and W_V of the columns of x"));
        if (d_context != d_model)
            TOOL_TRY(expect_extent(&request->context, 2, d_model, "packed weights take one d_model"));
    } else {
        TOOL_TRY(expect_matrix(&request->w_q, inner, d_model, "(columns of out_proj, columns of x)"));
        TOOL_TRY(expect_matrix(&request->w_k, inner, d_context, "(columns of out_proj, columns of the context)"));
        TOOL_TRY(expect_matrix(&request->w_v, inner, d_context, "(columns of out_proj, columns of the context)"));
    }
    TOOL_TRY(expect_matrix(&request->w_o, d_model, inner, "(columns of x, heads * head size)"));
    TOOL_TRY(expect_bias(&request->b_in, 3 * inner, "one for each row of W_Q, W_K and W_V"));
    TOOL_TRY(expect_bias(&request->b_o, d_model, "one for each row of W_O"));
    if (host_present(&request->mask))
        TOOL_TRY(host_expect_mask(&request->mask, request->short_mask, 4,
                                  (size_t[]){x[0], request->heads, x[1], mha_key_length(request)}));
fail:
    return status;
}

void softmax_release(softmax_request *request)
{
    host_release(&request->x);
    host_release(&request->mask);
}

void matmul_release(matmul_request *request)
{
    host_release(&request->x);
    host_release(&request->w);
    host_release(&request->bias);
    host_release(&request->operand);
    host_release(&request->w_scale);
}

void norm_release(norm_request *request)
{
    host_release(&request->x);
    host_release(&request->scale);
    host_release(&request->bias);
}

void mha_release(mha_request *request)
{
    host_array *arrays[] = {&request->x,   &request->context, &request->mask, &request->w_in, &request->w_q,
                            &request->w_k, &request->w_v,     &request->b_in, &request->w_o,  &request->b_o};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        host_release(arrays[i]);
}
