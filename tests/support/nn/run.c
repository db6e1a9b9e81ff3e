#include "support/nn/run.h"

#include <math.h>
#include <stdlib.h>

#include "support/harness.h"
#include "support/storage.h"

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

static size_t element_bytes(const nn_encoder_run *run)
{
    return clattn_dtype_size(run->model.dtype ? run->model.dtype : CLATTN_DTYPE_F32);
}

static size_t input_count(const nn_encoder_run *run)
{
    const size_t columns = run->d->input == CLATTN_STACK_INPUT_TOKENS     ? 1
                           : run->d->input == CLATTN_STACK_INPUT_FEATURES ? run->d->features
                                                                          : run->d->d_model;
    const clattn_layout *picture = &run->desc.picture;
    size_t reach = 1;
    for (int axis = 0; axis < picture->rank; axis++)
        reach += (picture->extent[axis] - 1) * (size_t)picture->stride[axis];
    return picture->rank ? reach : run->desc.batch * run->desc.length * columns;
}

size_t nn_encoder_positions(const nn_encoder_run *run)
{
    const clattn_patches *p = &run->d->patches;
    const size_t *extent = run->desc.picture.extent;
    if (run->d->input == CLATTN_STACK_INPUT_PICTURES && !run->d->next)
        return clattn_stack_positions(run->d, extent[2] / p->height * (extent[3] / p->width));
    if (run->d->next) {
        size_t rows = extent[2] / p->height, columns = extent[3] / p->width;
        for (const clattn_stack_desc *d = run->d; d->next; d = d->next) {
            const bool merged = d->next->input == CLATTN_STACK_INPUT_MERGED;
            rows = merged ? (rows + 1) / 2 : rows;
            columns = merged ? (columns + 1) / 2 : columns;
        }
        return rows * columns;
    }
    return clattn_stack_positions(run->d, run->desc.length);
}

/* The columns of the output: the last stage's. */
static size_t output_columns(const nn_encoder_run *run)
{
    const clattn_stack_desc *d = run->d;
    while (d->next)
        d = d->next;
    return d->neck ? d->neck : d->d_model;
}

void nn_encode(clattn_context *context, clattn_transformer *model, const nn_encoder_run *run, cl_mem output)
{
    const size_t columns = run->d->projection ? run->d->projection : output_columns(run);
    const size_t pooled_bytes = run->desc.batch * columns * sizeof(float);
    const bool tokens = run->d->input == CLATTN_STACK_INPUT_TOKENS;
    const bool pictures = run->d->input == CLATTN_STACK_INPUT_PICTURES;
    const size_t input_bytes = input_count(run) * (tokens || pictures ? 4 : element_bytes(run));
    clattn_encoder_args args = CLATTN_ENCODER_ARGS_INIT;
    clattn_plan *plan = NULL;
    cl_mem in = nn_buffer(context, input_bytes, run->input), pooled = nn_buffer(context, pooled_bytes, NULL);
    cl_mem segments = run->segments ? nn_buffer(context, input_bytes, run->segments) : NULL;
    assert_status(context, clattn_encoder_plan_create(model, &run->desc, NULL, &plan), CLATTN_SUCCESS);
    args.input = clattn_binding_buffer(in, 0);
    args.output = clattn_binding_buffer(output, 0);
    if (run->pooled)
        args.pooled = clattn_binding_buffer(pooled, 0);
    if (segments)
        args.segments = clattn_binding_buffer(segments, 0);
    args.lengths = run->lengths;
    assert_status(context, clattn_encoder_enqueue(plan, NULL, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    if (run->pooled)
        read_buffer(clattn_context_queue(context), pooled, pooled_bytes, run->pooled);
    clReleaseMemObject(in);
    clReleaseMemObject(pooled);
    if (segments)
        clReleaseMemObject(segments);
    clattn_plan_release(&plan);
}

void *nn_run_encoder(clattn_context *context, const nn_encoder_run *run)
{
    const size_t bytes = run->desc.batch * nn_encoder_positions(run) * output_columns(run) * element_bytes(run);
    const clattn_weight_source source = run->source ? *run->source : nn_source(run->store);
    clattn_transformer_desc desc = run->model;
    clattn_transformer *model = NULL;
    void *y = malloc(bytes);
    assert_non_null(y);
    desc.size = sizeof desc;
    desc.encoder = run->d;
    assert_status(context, clattn_transformer_create(context, &desc, &source, &model), CLATTN_SUCCESS);
    if (desc.weight_dtype == CLATTN_DTYPE_I8)
        nn_store_quantise(run->store);
    cl_mem out = nn_buffer(context, bytes, NULL);
    nn_encode(context, model, run, out);
    read_buffer(clattn_context_queue(context), out, bytes, y);
    clReleaseMemObject(out);
    clattn_transformer_release(&model);
    return y;
}

double *nn_encoder_expected(const nn_encoder_run *run, clattn_dtype dtype)
{
    nn_reference r = {.store = run->store,
                      .name = "encoder",
                      .desc = run->d,
                      .batch = run->desc.batch,
                      .length = nn_encoder_positions(run),
                      .lengths = run->lengths,
                      .dtype = dtype};
    char name[32];
    if (run->d->input == CLATTN_STACK_INPUT_PICTURES) {
        r.grid_rows = run->desc.picture.extent[2] / run->d->patches.height;
        r.grid_columns = run->desc.picture.extent[3] / run->d->patches.width;
        if (run->d->next)
            r.length = r.grid_rows * r.grid_columns;
    }
    double *y = run->d->input == CLATTN_STACK_INPUT_TOKENS ? nn_reference_tokens(&r, run->input, run->segments)
                : run->d->input == CLATTN_STACK_INPUT_FEATURES
                    ? nn_reference_convolutions(&r, run->desc.length, run->input)
                : run->d->input == CLATTN_STACK_INPUT_PICTURES
                    ? nn_reference_pictures(&r, run->desc.picture.extent[2], run->desc.picture.extent[3], run->input)
                    : nn_doubles(run->input, input_count(run));
    nn_reference_layers(&r, y);
    for (int stage = 1; r.desc->next; stage++) {
        if (r.desc->next->input == CLATTN_STACK_INPUT_MERGED) {
            double *merged = nn_reference_merge(&r, y);
            free(y);
            y = merged;
            r.grid_rows = (r.grid_rows + 1) / 2;
            r.grid_columns = (r.grid_columns + 1) / 2;
            r.length = r.grid_rows * r.grid_columns;
        }
        r.desc = r.desc->next;
        snprintf(name, sizeof name, "encoder.stages.%d", stage);
        r.name = name;
        nn_reference_layers(&r, y);
    }
    if (r.desc->neck) {
        double *made = nn_reference_neck(&r, y);
        free(y);
        y = made;
    }
    return y;
}

double nn_encoder_apart(clattn_context *context, const nn_encoder_run *run)
{
    const size_t positions = nn_encoder_positions(run), count = run->desc.batch * positions * output_columns(run);
    void *y = nn_run_encoder(context, run);
    double *expected = nn_encoder_expected(run, 0);
    float *got = malloc(count * sizeof *got);
    assert_non_null(got);
    for (size_t i = 0; i < count; i++)
        got[i] = (float)storage_get(run->model.dtype ? run->model.dtype : CLATTN_DTYPE_F32,
                                    (const char *)y + i * element_bytes(run));
    const double apart =
        nn_difference(got, expected, run->desc.batch * positions, output_columns(run), positions, run->lengths);
    free(y);
    free(got);
    free(expected);
    return apart;
}

clattn_encoder_desc nn_encoder_desc(size_t batch, size_t length)
{
    clattn_encoder_desc desc = CLATTN_ENCODER_DESC_INIT;
    desc.batch = batch;
    desc.length = length;
    return desc;
}
