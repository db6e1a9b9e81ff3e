#include "support/nn/run.h"

#include <math.h>
#include <stdlib.h>

#include "support/harness.h"

cl_mem nn_buffer(clattn_context *context, size_t bytes, const void *data)
{
    return new_buffer(clattn_context_opencl_context(context), CL_MEM_READ_WRITE, bytes, data);
}

clattn_weight_source nn_source(nn_store *store)
{
    clattn_weight_source source = CLATTN_WEIGHT_SOURCE_INIT;
    source.lookup = nn_store_lookup;
    source.user = store;
    return source;
}

clattn_transformer *nn_transformer(clattn_context *context, const clattn_transformer_desc *desc, nn_store *store)
{
    clattn_transformer *model = NULL;
    const clattn_weight_source source = nn_source(store);
    assert_status(context, clattn_transformer_create(context, desc, &source, &model), CLATTN_SUCCESS);
    return model;
}

float *nn_floats(size_t count, uint32_t seed)
{
    float *values = malloc((count ? count : 1) * sizeof *values);
    assert_non_null(values);
    fill_floats(values, count, seed);
    return values;
}

double nn_difference(const float *got, const double *expected, size_t rows, size_t columns, size_t item,
                     const int32_t *lengths)
{
    double largest = 0;
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < columns && (!lengths || r % item < (size_t)lengths[r / item]); c++) {
            const double apart =
                fabs(got[r * columns + c] - expected[r * columns + c]) / fmax(1, fabs(expected[r * columns + c]));
            largest = apart <= largest ? largest : isnan(apart) ? INFINITY : apart;
        }
    return largest;
}

void *nn_run_encoder(clattn_context *context, const nn_encoder_run *run)
{
    const size_t positions = clattn_stack_positions(run->d, run->desc.length);
    const clattn_dtype dtype = run->model.dtype;
    const size_t element = dtype == CLATTN_DTYPE_F16 || dtype == CLATTN_DTYPE_BF16 ? 2 : sizeof(float);
    const size_t bytes = run->desc.batch * positions * run->d->d_model * element;
    const size_t pooled_bytes = run->desc.batch * run->d->d_model * element;
    clattn_transformer_desc desc = run->model;
    clattn_encoder_args args = CLATTN_ENCODER_ARGS_INIT;
    clattn_plan *plan = NULL;
    void *y = malloc(bytes);
    assert_non_null(y);
    desc.size = sizeof desc;
    desc.encoder = run->d;
    clattn_transformer *model = nn_transformer(context, &desc, run->store);
    cl_mem in = nn_buffer(context, run->input_bytes, run->input), out = nn_buffer(context, bytes, NULL);
    cl_mem pooled = nn_buffer(context, pooled_bytes, NULL);
    cl_mem segments = run->segments ? nn_buffer(context, run->input_bytes, run->segments) : NULL;
    assert_status(context, clattn_encoder_plan_create(model, &run->desc, NULL, &plan), CLATTN_SUCCESS);
    args.input = clattn_binding_buffer(in, 0);
    args.output = clattn_binding_buffer(out, 0);
    if (run->pooled)
        args.pooled = clattn_binding_buffer(pooled, 0);
    if (segments)
        args.segments = clattn_binding_buffer(segments, 0);
    args.lengths = run->lengths;
    assert_status(context, clattn_encoder_enqueue(plan, NULL, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    read_buffer(clattn_context_queue(context), out, bytes, y);
    if (run->pooled)
        read_buffer(clattn_context_queue(context), pooled, pooled_bytes, run->pooled);
    clReleaseMemObject(in);
    clReleaseMemObject(out);
    clReleaseMemObject(pooled);
    if (segments)
        clReleaseMemObject(segments);
    clattn_plan_release(&plan);
    clattn_transformer_release(&model);
    return y;
}

clattn_encoder_desc nn_encoder_desc(size_t batch, size_t length)
{
    clattn_encoder_desc desc = CLATTN_ENCODER_DESC_INIT;
    desc.batch = batch;
    desc.length = length;
    return desc;
}
