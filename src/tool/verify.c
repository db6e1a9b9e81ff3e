#include "verify.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "progress.h"

bool verdict_holds(const tool_verdict *verdict)
{
    return verdict->mismatches == 0 && verdict->excess <= 2.0 * verdict->naive_error;
}

void verdict_add(tool_verdict *verdict, float result, double reference, float naive, double magnitude)
{
    verdict->compared++;
    if (isnan(reference) || isnan(result)) {
        verdict->mismatches += !isnan(reference) || !isnan(result);
        return;
    }
    if (isinf(reference) || isinf(result)) {
        verdict->mismatches += (double)result != reference;
        return;
    }
    double error = fabs((double)result - reference);
    double allowance = isfinite(magnitude) ? 8.0 * (double)FLT_EPSILON * magnitude : 0.0;
    verdict->max_error = fmax(verdict->max_error, error);
    verdict->excess = fmax(verdict->excess, error - allowance);
    if (isfinite(naive))
        verdict->naive_error = fmax(verdict->naive_error, fabs((double)naive - reference));
}

void verdict_add_zero(tool_verdict *verdict, float result)
{
    verdict->compared++;
    verdict->mismatches += !(result == 0.0f) || signbit(result);
}

ref_mask_kind mask_walk(const host_array *mask, int32_t rank, const size_t *extent, int64_t *strides,
                        int64_t *covered)
{
    const clattn_host_tensor *tensor = &mask->tensor;
    *covered = (int64_t)extent[rank - 1];
    for (int32_t i = 0; i < rank; i++)
        strides[i] = 0;
    if (tensor->dtype == CLATTN_DTYPE_NONE)
        return REF_MASK_NONE;
    int64_t stride = 1;
    for (int32_t i = tensor->rank - 1; i >= 0; i--) {
        size_t own = tensor->extent[i];
        if (own != 1)
            strides[rank - tensor->rank + i] = stride;
        stride *= (int64_t)own;
    }
    if (tensor->extent[tensor->rank - 1] != 1)
        *covered = (int64_t)tensor->extent[tensor->rank - 1];
    return tensor->dtype == CLATTN_BOOL ? REF_MASK_BOOL : REF_MASK_FLOAT;
}

int64_t position_of(int32_t align, size_t query_length, size_t key_length)
{
    return align == CLATTN_ALIGN_BOTTOM_RIGHT ? (int64_t)key_length - (int64_t)query_length : 0;
}

static ref_view view_of(const host_array *array)
{
    const size_t *extent = array->tensor.extent;
    int64_t row = (int64_t)extent[3], head = row * (int64_t)extent[2];
    return (ref_view){array->tensor.data, head * (int64_t)extent[1], head, row, 1};
}

static ref_attention_problem reference_of(const attention_problem *problem)
{
    const size_t *q = problem->query.tensor.extent, *k = problem->key.tensor.extent;
    int64_t strides[4], covered;
    ref_attention_problem reference = {
        .batch = (int64_t)q[0],
        .heads = (int64_t)q[1],
        .group = k[1] > 0 ? (int64_t)(q[1] / k[1]) : 1,
        .query_length = (int64_t)q[2],
        .key_length = (int64_t)k[2],
        .d_k = (int64_t)q[3],
        .d_v = (int64_t)problem->value.tensor.extent[3],
        .query = view_of(&problem->query),
        .key = view_of(&problem->key),
        .value = view_of(&problem->value),
        .mask = problem->mask.tensor.data,
        .causal = problem->causal,
        .position = position_of(problem->align, q[2], k[2]),
        .scale = problem->scale.given ? problem->scale.value : (float)(1.0 / sqrt((double)q[3])),
    };
    reference.mask_kind = mask_walk(&problem->mask, 4, (size_t[]){q[0], q[1], q[2], k[2]}, strides, &covered);
    reference.mask_batch = strides[0];
    reference.mask_head = strides[1];
    reference.mask_row = strides[2];
    reference.mask_col = strides[3];
    reference.mask_keys = covered;
    return reference;
}

/* Room for one row of each kind; `doubles` and `floats` are released by the caller. */
static int row_room(size_t doubles, size_t floats, double **double_room, float **float_room)
{
    *double_room = calloc(doubles + 1, sizeof **double_room);
    *float_room = calloc(floats + 1, sizeof **float_room);
    if (*double_room != NULL && *float_room != NULL)
        return TOOL_DONE;
    free(*double_room);
    free(*float_room);
    return complain(TOOL_FAILED, "out of memory for the reference's rows");
}

int verify_attention(const attention_problem *problem, const float *output, const float *lse,
                     tool_verdict *verdict, tool_verdict *second)
{
    const ref_attention_problem reference = reference_of(problem);
    size_t keys = (size_t)reference.key_length, d_v = (size_t)reference.d_v;
    double *exact, row_lse;
    float *plain, naive_lse;
    if (row_room(2 * d_v + keys, d_v + keys, &exact, &plain) != TOOL_DONE)
        return TOOL_FAILED;

    int64_t rows = reference.batch * reference.heads * reference.query_length;
    progress_begin("verifying");
    for (int64_t row = 0; row < rows; row++) {
        int64_t i = row % reference.query_length, bh = row / reference.query_length;
        int64_t h = bh % reference.heads, b = bh / reference.heads;
        double *magnitude = exact + d_v;
        ref_attention_row(&reference, b, h, i, exact, magnitude, &row_lse, magnitude + d_v);
        ref_attention_naive_row(&reference, b, h, i, plain, &naive_lse, plain + d_v);
        bool nothing = row_lse == -INFINITY;
        for (size_t e = 0; e < d_v; e++) {
            float result = output[(size_t)row * d_v + e];
            if (nothing)
                verdict_add_zero(verdict, result);
            else
                verdict_add(verdict, result, exact[e], plain[e], magnitude[e]);
        }
        if (lse != NULL)
            verdict_add(second, lse[row], row_lse, naive_lse, 1.0 + fabs(row_lse));
        progress_show((double)(row + 1) / (double)rows);
    }
    progress_end();
    free(exact);
    free(plain);
    return TOOL_DONE;
}

int verify_softmax(const softmax_problem *problem, const float *output, tool_verdict *verdict)
{
    const clattn_host_tensor *x = &problem->x.tensor;
    size_t extent[5];
    int64_t strides[5], covered, stride = 1;
    for (int32_t i = 0; i < 5; i++)
        extent[i] = i < 5 - x->rank ? 1 : x->extent[i - (5 - x->rank)];
    ref_softmax_problem reference = {
        .columns = (int64_t)extent[4],
        .x = x->data,
        .col = 1,
        .mask_kind = mask_walk(&problem->mask, 5, extent, strides, &covered),
        .mask = problem->mask.tensor.data,
        .mask_col = strides[4],
        .mask_columns = covered,
        .scale = problem->scale.given ? problem->scale.value : 1.0f,
    };
    int64_t rows = 1;
    stride = reference.columns;
    for (int i = 3; i >= 0; i--) {
        reference.extent[i] = (int64_t)extent[i];
        reference.stride[i] = stride;
        reference.mask_stride[i] = strides[i];
        stride *= reference.extent[i];
        rows *= reference.extent[i];
    }

    double *exact;
    float *plain;
    size_t columns = extent[4];
    if (row_room(columns, columns, &exact, &plain) != TOOL_DONE)
        return TOOL_FAILED;
    progress_begin("verifying");
    for (int64_t row = 0; row < rows; row++) {
        ref_softmax_row(&reference, row, exact);
        ref_softmax_naive_row(&reference, row, plain);
        for (size_t c = 0; c < columns; c++)
            verdict_add(verdict, output[(size_t)row * columns + c], exact[c], plain[c], exact[c]);
        progress_show((double)(row + 1) / (double)rows);
    }
    progress_end();
    free(exact);
    free(plain);
    return TOOL_DONE;
}

int verify_matmul(const matmul_problem *problem, const float *output, tool_verdict *verdict)
{
    size_t m = problem->x.tensor.extent[0], k = problem->x.tensor.extent[1], n = problem->w.tensor.extent[0];
    ref_matmul_problem reference = {
        .batch = 1,
        .m = (int64_t)m,
        .n = (int64_t)n,
        .k = (int64_t)k,
        .a = {problem->x.tensor.data, 0, 0, (int64_t)k, 1},
        .b = {problem->w.tensor.data, 0, 0, 1, (int64_t)k},
        .bias = problem->bias.tensor.data,
        .bias_col = 1,
    };
    double *exact;
    float *plain;
    if (row_room(2 * n, n, &exact, &plain) != TOOL_DONE)
        return TOOL_FAILED;
    progress_begin("verifying");
    for (size_t i = 0; i < m; i++) {
        ref_matmul_row(&reference, 0, (int64_t)i, exact, exact + n);
        ref_matmul_naive_row(&reference, 0, (int64_t)i, plain);
        for (size_t j = 0; j < n; j++)
            verdict_add(verdict, output[i * n + j], exact[j], plain[j], exact[n + j]);
        progress_show((double)(i + 1) / (double)m);
    }
    progress_end();
    free(exact);
    free(plain);
    return TOOL_DONE;
}
