/* Elements that are moved, by copies from one layout to another. */
#include <string.h>

#include "run.h"

void strides_of(const run_array *array, int64_t stride[MOST_DIMENSIONS])
{
    int64_t next = 1;
    for (size_t i = array->rank; i-- > 0;) {
        stride[i] = array->pitch && next >= (int64_t)array->columns
                        ? next / (int64_t)array->columns * (int64_t)array->pitch
                        : next;
        next *= array->dim[i];
    }
}

/* A copy of dimensions that do not lie together in both arrays. */
typedef struct strided_copy {
    size_t rank;
    size_t extent[MOST_DIMENSIONS];
    int64_t x_stride[MOST_DIMENSIONS], y_stride[MOST_DIMENSIONS];
} strided_copy;

run_array shifted(const run_array *array, int64_t elements)
{
    run_array made = *array;
    made.offset += (size_t)elements * clattn_dtype_size(array->dtype);
    return made;
}

/* Enqueues the copy from dimension `first` on; if there are more dimensions than a layout has, one copy for each index of it. */
static OrtStatus *copy_from(const engine *e, const strided_copy *j, size_t first, const run_array *x,
                            const run_array *y)
{
    OrtStatus *failure = NULL;
    const size_t rank = j->rank - first;
    if (rank > CLATTN_MAX_RANK) {
        for (size_t i = 0; i < j->extent[first]; i++) {
            const run_array from = shifted(x, (int64_t)i * j->x_stride[first]);
            const run_array to = shifted(y, (int64_t)i * j->y_stride[first]);
            ORT_TRY(copy_from(e, j, first + 1, &from, &to));
        }
        return NULL;
    }
    clattn_activation_desc desc = CLATTN_ACTIVATION_DESC_INIT;
    clattn_activation_args args = CLATTN_ACTIVATION_ARGS_INIT;
    desc.x = (clattn_layout){.dtype = x->dtype, .rank = (int32_t)rank};
    memcpy(desc.x.extent, j->extent + first, rank * sizeof *j->extent);
    desc.y = desc.x;
    desc.y.dtype = y->dtype;
    memcpy(desc.x.stride, j->x_stride + first, rank * sizeof *j->x_stride);
    memcpy(desc.y.stride, j->y_stride + first, rank * sizeof *j->y_stride);
    args.x = binding_of(x);
    args.y = binding_of(y);
    failure = judge(e, clattn_activation_run(e->context, e->queue, &desc, &args, 0, NULL, NULL));
fail:
    return failure;
}

OrtStatus *copy(const engine *e, size_t rank, const int64_t *extent, const int64_t *x_stride, const int64_t *y_stride,
                const run_array *x, const run_array *y)
{
    strided_copy j = {.rank = 0};
    for (size_t i = 0; i < rank; i++) {
        if (extent[i] == 1)
            continue;
        if (j.rank && j.x_stride[j.rank - 1] == extent[i] * x_stride[i] &&
            j.y_stride[j.rank - 1] == extent[i] * y_stride[i])
            j.extent[--j.rank] *= (size_t)extent[i];
        else
            j.extent[j.rank] = (size_t)extent[i];
        j.x_stride[j.rank] = x_stride[i];
        j.y_stride[j.rank++] = y_stride[i];
    }
    if (!j.rank)
        j = (strided_copy){1, {1}, {1}, {1}};
    return copy_from(e, &j, 0, x, y);
}

void strides_within(const run_array *array, const run_array *shape, int64_t stride[MOST_DIMENSIONS])
{
    int64_t own[MOST_DIMENSIONS];
    const size_t missing = shape->rank - array->rank;
    strides_of(array, own);
    for (size_t i = 0; i < shape->rank; i++)
        stride[i] = i < missing || array->dim[i - missing] == 1 ? 0 : own[i - missing];
}

OrtStatus *expand(const engine *e, const run_array *shape, run_array *array, cl_mem *buffer)
{
    OrtStatus *failure = NULL;
    int64_t x_stride[MOST_DIMENSIONS], y_stride[MOST_DIMENSIONS];
    run_array made = *shape;
    if (array->elements == shape->elements)
        return NULL;
    ORT_TRY(engine_buffer(e, NULL, array_bytes(shape), true, buffer));
    made.buffer = *buffer;
    made.offset = 0;
    strides_of(shape, y_stride);
    strides_within(array, shape, x_stride);
    ORT_TRY(copy(e, shape->rank, shape->dim, x_stride, y_stride, array, &made));
    *array = made;
fail:
    return failure;
}

static OrtStatus *enqueue_slice(const engine *e, const step *s, size_t part, const run_array *x, const run_array *y)
{
    int64_t stride[MOST_DIMENSIONS], y_stride[MOST_DIMENSIONS], start[MOST_DIMENSIONS], extent[MOST_DIMENSIONS];
    int64_t begin = 0;
    strides_of(x, stride);
    strides_of(y, y_stride);
    slice_bounds(s, part, x, start, extent);
    for (size_t i = 0; i < x->rank; i++) {
        begin += start[i] * stride[i];
        if (s->kind == STEP_SLICE && extent[i] > 1)
            stride[i] *= s->stride[i];
    }
    const run_array from = shifted(x, begin);
    return copy(e, y->rank, y->dim, stride, y_stride, &from, y);
}

static OrtStatus *enqueue_concat(const engine *e, const step *s, run_array *const input[], const run_array *y)
{
    OrtStatus *failure = NULL;
    int64_t x_stride[MOST_DIMENSIONS], y_stride[MOST_DIMENSIONS], begin = 0;
    strides_of(y, y_stride);
    for (size_t i = 0; i < STEP_INPUTS && input[i]; i++) {
        const run_array to = shifted(y, begin * y_stride[s->axis[0]]);
        strides_of(input[i], x_stride);
        if (input[i]->elements)
            ORT_TRY(copy(e, y->rank, input[i]->dim, x_stride, y_stride, input[i], &to));
        begin += input[i]->dim[s->axis[0]];
    }
fail:
    return failure;
}

OrtStatus *enqueue_move(const engine *e, const step *s, size_t part, run_array *const input[STEP_INPUTS],
                        const run_array *output)
{
    int64_t own[MOST_DIMENSIONS], x_stride[MOST_DIMENSIONS], y_stride[MOST_DIMENSIONS];
    const run_array *x = input[0];
    if (s->kind == STEP_SLICE || s->kind == STEP_SPLIT)
        return enqueue_slice(e, s, part, x, output);
    if (s->kind == STEP_CONCAT)
        return enqueue_concat(e, s, input, output);
    strides_of(output, y_stride);
    strides_of(x, own);
    if (s->kind == STEP_EXPAND)
        strides_within(x, output, x_stride);
    for (size_t i = 0; i < output->rank && s->kind == STEP_TRANSPOSE; i++)
        x_stride[i] = own[s->axis[i]];
    return copy(e, output->rank, output->dim, x_stride, y_stride, x, output);
}
