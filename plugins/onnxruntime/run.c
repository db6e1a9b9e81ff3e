#include "run.h"

#include <string.h>

/* An array of a call. */
typedef struct run_array {
    size_t rank;
    int64_t dim[MOST_DIMENSIONS];
    clattn_dtype dtype;
    void *data;
    size_t bytes;
    clattn_layout layout;
    cl_mem buffer;
} run_array;

typedef struct run_call {
    const OrtApi *ort;
    const struct cl_table *cl;
    clattn_context *context;
    cl_command_queue queue;
    bool shares;
    const group *what;
    run_array input[RUN_INPUTS], output;
} run_call;

static OrtStatus *failed(const run_call *c, clattn_status status)
{
    char text[768];
    clattn_context_message(c->context, text, sizeof text);
    return ort_failure(c->ort, status == CLATTN_ERROR_INVALID_LAYOUT ? ORT_INVALID_ARGUMENT : ORT_EP_FAIL, "clattn: %s",
                       *text ? text : clattn_status_string(status));
}

static clattn_dtype dtype_of(ONNXTensorElementDataType type)
{
    switch (type) {
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT: return CLATTN_DTYPE_F32;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16: return CLATTN_DTYPE_F16;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL: return CLATTN_DTYPE_BOOL;
    default: return CLATTN_DTYPE_NONE;
    }
}

/* Reads an input's shape, and where its elements are. */
static OrtStatus *read_input(const run_call *c, OrtKernelContext *arrays, size_t place, run_array *a)
{
    const OrtApi *ort = c->ort;
    OrtStatus *failure = NULL;
    const OrtValue *value = NULL;
    OrtTensorTypeAndShapeInfo *shape = NULL;
    ONNXTensorElementDataType type;
    const void *data = NULL;
    size_t count = 0;
    ORT_TRY(ort->KernelContext_GetInput(arrays, place, &value));
    if (!value)
        return ort_failure(ort, ORT_INVALID_ARGUMENT, "clattn: input %zu is not there", place);
    ORT_TRY(ort->GetTensorTypeAndShape(value, &shape));
    ORT_TRY(ort->GetDimensionsCount(shape, &a->rank));
    if (a->rank < 1 || a->rank > 4) {
        failure = ort_failure(ort, ORT_INVALID_ARGUMENT, "clattn: input %zu has %zu dimensions, expected up to 4",
                              place, a->rank);
        goto fail;
    }
    ORT_TRY(ort->GetDimensions(shape, a->dim, a->rank));
    ORT_TRY(ort->GetTensorShapeElementCount(shape, &count));
    ORT_TRY(ort->GetTensorElementType(shape, &type));
    ORT_TRY(ort->GetTensorData(value, &data));
    a->data = (void *)(uintptr_t)data;
    a->dtype = dtype_of(type);
    a->bytes = count * clattn_dtype_size(a->dtype);
fail:
    if (shape)
        ort->ReleaseTensorTypeAndShapeInfo(shape);
    return failure;
}

static void set(clattn_layout *layout, size_t dimension, int64_t extent, int64_t stride)
{
    layout->extent[dimension] = (size_t)extent;
    layout->stride[dimension] = stride;
}

/* Lays an array out as (batch, heads, length, size). */
static OrtStatus *arrange(const run_call *c, const group_view *view, run_array *a)
{
    const int64_t *dim = a->dim, heads = (int64_t)view->split;
    clattn_layout *layout = &a->layout;
    *layout = (clattn_layout){.dtype = a->dtype, .rank = 4};
    if (a->rank != view->rank || (heads && dim[2] % heads))
        return ort_failure(
            c->ort, ORT_INVALID_ARGUMENT,
            "clattn: an array has %zu dimensions, expected %zu, and its last is no multiple of %zu heads", a->rank,
            view->rank, view->split);
    if (view->rank == 3) {
        int64_t size = heads ? dim[2] / heads : dim[2];
        set(layout, 0, dim[0], dim[1] * dim[2]);
        set(layout, 1, heads ? heads : 1, size);
        set(layout, 2, dim[1], dim[2]);
        set(layout, 3, size, 1);
        return NULL;
    }
    const int64_t stride[4] = {dim[1] * dim[2] * dim[3], dim[2] * dim[3], dim[3], 1};
    for (size_t i = 0; i < 4; i++)
        set(layout, i, dim[view->axis[i]], stride[view->axis[i]]);
    return NULL;
}

/* ONNX broadcasts arrays that have one batch, head or row where another has more. */
static void widen(run_array *a, size_t dimension, size_t extent)
{
    if (a->layout.extent[dimension] == 1 && extent > 1)
        set(&a->layout, dimension, (int64_t)extent, 0);
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* The extent of a mask in one of attention's dimensions. */
static size_t mask_extent(const run_array *mask, size_t dimension)
{
    size_t missing = 4 - mask->rank;
    return dimension < missing ? 1 : (size_t)mask->dim[dimension - missing];
}

static void broadcast(run_call *c)
{
    run_array *query = &c->input[RUN_QUERY], *key = &c->input[RUN_KEY], *value = &c->input[RUN_VALUE];
    run_array *const arrays[] = {query, key, value};
    size_t most[2] = {1, 1};
    for (size_t d = 0; d < 2; d++) {
        for (size_t i = 0; i < 3; i++)
            most[d] = larger(most[d], arrays[i]->layout.extent[d]);
        if (c->what->mask != NO_PLACE)
            most[d] = larger(most[d], mask_extent(&c->input[RUN_MASK], d));
    }
    for (size_t i = 0; i < 3; i++)
        widen(arrays[i], 0, most[0]);
    widen(query, 1, most[1]);
    widen(key, 1, value->layout.extent[1]);
    widen(value, 1, key->layout.extent[1]);
    if (c->what->mask != NO_PLACE)
        widen(query, 2, mask_extent(&c->input[RUN_MASK], 2));
    widen(key, 2, value->layout.extent[2]);
}

/* Makes the output's array, whose shape follows from the inputs'. */
static OrtStatus *make_output(run_call *c, OrtKernelContext *arrays)
{
    const OrtApi *ort = c->ort;
    OrtStatus *failure = NULL;
    run_array *out = &c->output;
    const group_view *view = &c->what->output;
    const size_t *query = c->input[RUN_QUERY].layout.extent;
    const int64_t extent[4] = {(int64_t)query[0], (int64_t)query[1], (int64_t)query[2],
                               (int64_t)c->input[RUN_VALUE].layout.extent[3]};
    OrtValue *value = NULL;
    out->rank = view->rank;
    out->dtype = c->input[RUN_QUERY].dtype;
    for (size_t i = 0; i < 4 && view->rank == 4; i++)
        out->dim[view->axis[i]] = extent[i];
    if (view->rank == 3) {
        out->dim[0] = extent[0];
        out->dim[1] = extent[2];
        out->dim[2] = extent[1] * extent[3];
    }
    out->bytes = (size_t)(extent[0] * extent[1] * extent[2] * extent[3]) * clattn_dtype_size(out->dtype);
    ORT_TRY(arrange(c, view, out));
    ORT_TRY(ort->KernelContext_GetOutput(arrays, 0, out->dim, out->rank, &value));
    ORT_TRY(ort->GetTensorMutableData(value, &out->data));
fail:
    return failure;
}

static OrtStatus *make_buffer(const run_call *c, run_array *a, bool written)
{
    cl_int code = CL_SUCCESS;
    cl_mem_flags flags = (written ? CL_MEM_READ_WRITE : CL_MEM_READ_ONLY) | (c->shares ? CL_MEM_USE_HOST_PTR
                                                                             : written ? 0
                                                                                       : CL_MEM_COPY_HOST_PTR);
    a->buffer = c->cl->clCreateBuffer(clattn_context_opencl_context(c->context), flags, a->bytes,
                                      c->shares || !written ? a->data : NULL, &code);
    return code == CL_SUCCESS ? NULL : ort_failure(c->ort, ORT_EP_FAIL, "clattn: clCreateBuffer returned %d", code);
}

static OrtStatus *compute(run_call *c)
{
    clattn_attention_desc desc = CLATTN_ATTENTION_DESC_INIT;
    clattn_attention_args args = CLATTN_ATTENTION_ARGS_INIT;
    OrtStatus *failure = NULL;
    cl_event event = NULL;
    const group *what = c->what;
    desc.query = c->input[RUN_QUERY].layout;
    desc.key = c->input[RUN_KEY].layout;
    desc.value = c->input[RUN_VALUE].layout;
    desc.mask = c->input[RUN_MASK].layout;
    desc.output = c->output.layout;
    desc.causal = what->causal;
    desc.short_mask = what->short_mask;
    desc.scoring.explicit_scale = what->has_scale;
    desc.scoring.scale = what->scale;
    desc.scoring.softcap = what->softcap;
    clattn_binding *const bindings[RUN_INPUTS] = {&args.query, &args.key, &args.value, &args.mask};
    for (size_t i = 0; i < RUN_INPUTS; i++)
        if (c->input[i].rank) {
            ORT_TRY(make_buffer(c, &c->input[i], false));
            *bindings[i] = clattn_binding_buffer(c->input[i].buffer, 0);
        }
    ORT_TRY(make_buffer(c, &c->output, true));
    args.output = clattn_binding_buffer(c->output.buffer, 0);
    clattn_status status = clattn_attention_run(c->context, c->queue, &desc, &args, 0, NULL, &event);
    if (status != CLATTN_SUCCESS) {
        failure = failed(c, status);
        goto fail;
    }
    cl_int code = c->shares ? c->cl->clWaitForEvents(1, &event)
                            : c->cl->clEnqueueReadBuffer(c->queue, c->output.buffer, CL_TRUE, 0, c->output.bytes,
                                                         c->output.data, 1, &event, NULL);
    if (code != CL_SUCCESS)
        failure = ort_failure(c->ort, ORT_EP_FAIL, "clattn: waiting for attention returned %d", code);
fail:
    if (event)
        c->cl->clReleaseEvent(event);
    return failure;
}

OrtStatus *run_group(const OrtApi *ort, const struct cl_table *cl, clattn_context *context, bool shares,
                     const group *what, const run_places *places, OrtKernelContext *arrays)
{
    run_call c = {.ort = ort,
                  .cl = cl,
                  .context = context,
                  .queue = clattn_context_queue(context),
                  .shares = shares,
                  .what = what};
    const group_view *const views[] = {&what->query, &what->key, &what->value};
    OrtStatus *failure = NULL;
    bool empty = false;
    for (size_t i = 0; i < RUN_INPUTS; i++)
        if (places->input[i] != NO_PLACE)
            ORT_TRY(read_input(&c, arrays, places->input[i], &c.input[i]));
    for (size_t i = 0; i < RUN_MASK; i++)
        ORT_TRY(arrange(&c, views[i], &c.input[i]));
    run_array *mask = &c.input[RUN_MASK];
    if (mask->rank) {
        size_t extent[4];
        for (size_t d = 0; d < mask->rank; d++)
            extent[d] = (size_t)mask->dim[d];
        mask->layout = clattn_layout_contiguous(mask->dtype, (int32_t)mask->rank, extent);
    }
    broadcast(&c);
    ORT_TRY(make_output(&c, arrays));
    for (size_t i = 0; i < RUN_INPUTS; i++)
        empty = empty || (c.input[i].rank && c.input[i].bytes == 0);
    if (empty) /* there is nothing to compute, or nothing to attend */
        memset(c.output.data, 0, c.output.bytes);
    else
        ORT_TRY(compute(&c));
fail:
    for (size_t i = 0; i < RUN_INPUTS; i++)
        if (c.input[i].buffer)
            cl->clReleaseMemObject(c.input[i].buffer);
    if (c.output.buffer)
        cl->clReleaseMemObject(c.output.buffer);
    return failure;
}
