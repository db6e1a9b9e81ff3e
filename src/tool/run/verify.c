#include "tool/run/verify.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "tool/cli/progress.h"
#include "ref/attention.h"

#define FEW 64 /* elements, whose mean is a matter of luck */

bool verdict_holds(const tool_verdict *verdict)
{
    double mean = verdict->mean > 0.0 ? verdict->mean : 1.5;
    return verdict->mismatches == 0 && verdict->excess <= 2.0 * verdict->naive_error &&
           (verdict->shorts < FEW || verdict->short_error <= mean * verdict->short_naive + verdict->short_allowance);
}

/* The largest finite number of the type plus half a unit: what is larger is stored as infinity. */
static double overflow_of(clattn_dtype dtype)
{
    return dtype == CLATTN_DTYPE_F16 ? 65520.0 : dtype == CLATTN_DTYPE_F64 ? DBL_MAX : FLT_MAX;
}

void verdict_add(tool_verdict *verdict, clattn_dtype dtype, double result, double reference, double naive,
                 double magnitude)
{
    if (isnan(reference) || isnan(result)) {
        verdict->mismatches += !isnan(reference) || !isnan(result);
        return;
    }
    /* What does not fit its type is stored as an infinity. */
    if (isinf(result) && isfinite(reference) && fabs(reference) * (1 + 0x1p-8) >= overflow_of(dtype) &&
        signbit(result) == signbit(reference))
        return;
    if (isinf(reference) || isinf(result)) {
        verdict->mismatches += result != reference;
        return;
    }
    double epsilon = dtype == CLATTN_DTYPE_F64 ? DBL_EPSILON : (double)FLT_EPSILON;
    double error = fabs(result - reference);
    double allowance = isfinite(magnitude) ? 8.0 * epsilon * magnitude : 0.0;
    verdict->max_error = fmax(verdict->max_error, error);
    verdict->excess = fmax(verdict->excess, error - allowance - ref_unit(dtype, reference)); /* two halves */
    double stored = ref_stored(dtype, naive);
    if ((dtype == CLATTN_DTYPE_F16 || dtype == CLATTN_DTYPE_BF16) && isfinite(stored)) {
        verdict->short_error += error;
        verdict->short_naive += fabs(stored - reference);
        verdict->short_allowance += allowance;
        verdict->shorts++;
    }
    if (isfinite(naive))
        verdict->naive_error = fmax(verdict->naive_error, fabs(naive - reference) * (epsilon / (double)FLT_EPSILON));
}

void verdict_add_zero(tool_verdict *verdict, double result)
{
    verdict->mismatches += !(result == 0.0) || signbit(result);
}

ref_mask_kind mask_walk(const host_array *mask, int32_t rank, const size_t *extent, int64_t *strides, int64_t *covered)
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
    return tensor->dtype == CLATTN_DTYPE_BOOL ? REF_MASK_BOOL : REF_MASK_FLOAT;
}

int verify_softmax(const softmax_request *request, const host_array *output, tool_verdict *verdict)
{
    const clattn_host_tensor *x = &request->x.tensor;
    size_t extent[5];
    int64_t strides[5], covered, stride = 1;
    for (int32_t i = 0; i < 5; i++)
        extent[i] = i < 5 - x->rank ? 1 : x->extent[i - (5 - x->rank)];
    ref_softmax_problem reference = {
        .columns = (int64_t)extent[4],
        .x = x->data,
        .col = 1,
        .mask_kind = mask_walk(&request->mask, 5, extent, strides, &covered),
        .mask = request->mask.tensor.data,
        .mask_col = strides[4],
        .mask_columns = covered,
        .scale = request->scale.given ? request->scale.value : 1.0f,
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

    const float *y = output->tensor.data;
    size_t columns = extent[4];
    double *exact = calloc(columns + 1, sizeof *exact);
    float *plain = calloc(columns + 1, sizeof *plain);
    if (exact == NULL || plain == NULL) {
        free(exact);
        free(plain);
        return complain(TOOL_FAILED, "out of memory for the reference's rows");
    }
    progress_begin("verifying");
    for (int64_t row = 0; row < rows; row++) {
        ref_softmax_row(&reference, row, exact);
        ref_softmax_naive_row(&reference, row, plain);
        for (size_t c = 0; c < columns; c++)
            verdict_add(verdict, CLATTN_DTYPE_F32, (double)y[(size_t)row * columns + c], exact[c], (double)plain[c],
                        exact[c]);
        progress_show((double)(row + 1) / (double)rows);
    }
    progress_end();
    free(exact);
    free(plain);
    return TOOL_DONE;
}
