/* A run of a chain: shapes, memory, and the steps in their order. */
#include "run.h"

#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "memory/memory.h"

#define ALIGNMENT 128 /* of arrays in the arena, in bytes */

/* A piece of the arena in use. */
typedef struct piece {
    size_t begin, end, last; /* bytes; the last step that reads it */
} piece;

typedef struct run {
    engine *e;
    const chain *c;
    OrtKernelContext *context;
    run_array *array;  /* of each value */
    run_array *result; /* of each value that the chain has in another type or place than its output: the output */
    void **copy;       /* of each value that is an input of whole numbers on the device: these numbers */
    int64_t (*number)[MOST_DIMENSIONS]; /* of each value that is whole numbers which the chain computes */
    piece *pieces;                      /* ascending */
    size_t used;
    bool apart;   /* joint products are computed alone */
    cl_mem *made; /* buffers of this run */
    size_t made_count;
} run;

static clattn_dtype dtype_of(ONNXTensorElementDataType type)
{
    switch (type) {
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT: return CLATTN_DTYPE_F32;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16: return CLATTN_DTYPE_F16;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL: return CLATTN_DTYPE_BOOL;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32: return CLATTN_DTYPE_I32;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64: return CLATTN_DTYPE_I64;
    default: return CLATTN_DTYPE_NONE;
    }
}

/* Reads an array's shape, and where its elements are. */
static OrtStatus *read_array(const engine *e, const OrtValue *value, run_array *a)
{
    const OrtApi *ort = e->ort;
    OrtStatus *failure = NULL;
    OrtTensorTypeAndShapeInfo *shape = NULL;
    ONNXTensorElementDataType type;
    const void *data = NULL;
    bool on_device = false;
    size_t bytes = 0;
    ORT_TRY(ort->GetTensorTypeAndShape(value, &shape));
    ORT_TRY(ort->GetDimensionsCount(shape, &a->rank));
    if (a->rank > MOST_DIMENSIONS) {
        failure = ort_failure(ort, ORT_INVALID_ARGUMENT, "clattn: an array has %zu dimensions, expected up to %d",
                              a->rank, MOST_DIMENSIONS);
        goto fail;
    }
    ORT_TRY(ort->GetDimensions(shape, a->dim, a->rank));
    ORT_TRY(ort->GetTensorShapeElementCount(shape, &a->elements));
    ORT_TRY(ort->GetTensorElementType(shape, &type));
    ORT_TRY(ort->GetTensorData(value, &data));
    a->dtype = dtype_of(type);
    a->host = NULL;
    a->buffer = NULL;
    a->offset = 0;
    if (e->memory)
        ORT_TRY(memory_is_of(ort, e->memory, value, &on_device));
    if (!on_device)
        a->host = (void *)(uintptr_t)data;
    else if (a->elements) {
        ORT_TRY(ort->GetTensorSizeInBytes(value, &bytes));
        failure = memory_find(ort, clattn_context_opencl_context(e->context), data, bytes, &a->buffer, &a->offset);
    }
fail:
    if (shape)
        ort->ReleaseTensorTypeAndShapeInfo(shape);
    return failure;
}

static OrtStatus *read_input(const run *r, size_t place, run_array *a)
{
    const OrtApi *ort = r->e->ort;
    const OrtValue *value = NULL;
    OrtStatus *failure = ort->KernelContext_GetInput(r->context, place, &value);
    if (failure)
        return failure;
    return value ? read_array(r->e, value, a)
                 : ort_failure(ort, ORT_INVALID_ARGUMENT, "clattn: input %zu is not there", place);
}

/* Copies whole numbers from the device, as steps read them on the host. */
static OrtStatus *read_back(const engine *e, run_array *a, void **copy)
{
    if (!a->buffer || (a->dtype != CLATTN_DTYPE_I32 && a->dtype != CLATTN_DTYPE_I64))
        return NULL;
    a->host = *copy = malloc(array_bytes(a));
    if (!a->host)
        return ort_failure(e->ort, ORT_FAIL, "clattn: no memory for a run");
    const cl_int code =
        e->cl.clEnqueueReadBuffer(e->queue, a->buffer, CL_TRUE, a->offset, array_bytes(a), a->host, 0, NULL, NULL);
    if (code == CL_SUCCESS)
        return NULL;
    free(*copy);
    a->host = *copy = NULL;
    return ort_failure(e->ort, ORT_EP_FAIL, "clattn: clEnqueueReadBuffer returned %d", code);
}

/* A buffer for an array at `host`, which lasts as long as the run; an array on the device has one. */
static OrtStatus *attach(run *r, run_array *a, bool written)
{
    if (a->buffer)
        return NULL;
    OrtStatus *failure = engine_buffer(r->e, a->host, array_bytes(a), written, &a->buffer);
    if (!failure)
        r->made[r->made_count++] = a->buffer;
    return failure;
}

/* Says in a failure which step it was. */
static OrtStatus *in_step(const run *r, size_t number, OrtStatus *failure)
{
    if (!failure)
        return NULL;
    const OrtApi *ort = r->e->ort;
    OrtStatus *named =
        ort_failure(ort, ort->GetErrorCode(failure), "%s (%s)", ort->GetErrorMessage(failure), r->c->name[number]);
    ort->ReleaseStatus(failure);
    return named;
}

/* Says in a failure of an input or a constant which step reads it first. */
static OrtStatus *in_reader(const run *r, size_t value, OrtStatus *failure)
{
    for (size_t n = 0; failure && n < r->c->steps; n++)
        for (size_t i = 0; i < STEP_INPUTS; i++)
            if (r->c->step[n].input[i] == value)
                return in_step(r, n, failure);
    return failure;
}

/* Reads the inputs that change. */
static OrtStatus *read_inputs(run *r)
{
    OrtStatus *failure = NULL;
    for (size_t v = 0; v < r->c->values; v++) {
        const chain_value *value = &r->c->value[v];
        run_array *a = &r->array[v];
        a->owner = v;
        if (value->input == NO_PLACE || value->constant || !value->read)
            continue;
        ORT_TRY(in_reader(r, v, read_input(r, value->input, a)));
        ORT_TRY(in_reader(r, v, read_back(r->e, a, &r->copy[v])));
        if (value->readers && a->elements)
            ORT_TRY(in_reader(r, v, attach(r, a, false)));
    }
fail:
    return failure;
}

/* Copies an array to another of its shape, perhaps of another type. */
static OrtStatus *convert(const engine *e, const run_array *from, const run_array *to)
{
    int64_t stride[MOST_DIMENSIONS];
    strides_of(from, stride);
    return copy(e, from->rank, from->dim, stride, stride, from, to);
}

/* Whether an array of the session's is to be stored otherwise in chains. */
static bool is_converted(const engine *e, const run_array *a)
{
    return e->stored != CLATTN_DTYPE_NONE && a->dtype == CLATTN_DTYPE_F32;
}

/* Makes an array what chains store it as, in a new buffer if it has elements. */
static OrtStatus *store(const engine *e, run_array *a, cl_mem *buffer)
{
    OrtStatus *failure = NULL;
    run_array made = *a;
    *buffer = NULL;
    made.dtype = e->stored;
    made.host = NULL;
    if (!a->elements) {
        *a = made;
        return NULL;
    }
    ORT_TRY(engine_buffer(e, NULL, array_bytes(&made), true, buffer));
    made.buffer = *buffer;
    made.offset = 0;
    failure = convert(e, a, &made);
    if (failure) {
        e->cl.clReleaseMemObject(*buffer);
        *buffer = NULL;
    } else
        *a = made;
fail:
    return failure;
}

/* Stores the inputs that change. */
static OrtStatus *store_inputs(run *r)
{
    OrtStatus *failure = NULL;
    for (size_t v = 0; v < r->c->values; v++) {
        run_array *a = &r->array[v];
        if (!r->c->value[v].readers || r->c->value[v].constant || !is_converted(r->e, a))
            continue;
        ORT_TRY(in_reader(r, v, store(r->e, a, &r->made[r->made_count])));
        r->made_count += a->elements > 0;
    }
fail:
    return failure;
}

/* A buffer for a constant, which outlasts runs; none if it is empty. */
static OrtStatus *keep_constant(const engine *e, run_array *a, cl_mem *buffer)
{
    cl_mem own = a->buffer;
    OrtStatus *failure = NULL;
    if (own)
        e->cl.clRetainMemObject(own);
    else if (a->elements)
        failure = engine_buffer(e, a->host, array_bytes(a), false, &own);
    a->buffer = *buffer = own;
    if (failure || !is_converted(e, a))
        return failure;
    failure = store(e, a, buffer);
    if (own)
        e->cl.clReleaseMemObject(own); /* OpenCL keeps it until it has been read */
    return failure;
}

/* Reads the constants; their buffers are made once, in the first run. */
static OrtStatus *read_constants(run *r)
{
    OrtStatus *failure = NULL;
    for (size_t v = 0; v < r->c->values; v++) {
        chain_value *value = &r->c->value[v];
        run_array *shape = &value->shape;
        if (!value->constant)
            continue;
        if (!value->buffer && !value->copy) {
            ORT_TRY(in_reader(r, v, read_input(r, value->input, shape)));
            ORT_TRY(in_reader(r, v, read_back(r->e, shape, &value->copy)));
            shape->owner = v;
            if (value->readers)
                ORT_TRY(in_reader(r, v, keep_constant(r->e, shape, &value->buffer)));
        }
        r->array[v] = *shape;
    }
fail:
    return failure;
}

static void inputs_of(const run *r, const step *s, run_array *input[STEP_INPUTS])
{
    for (size_t i = 0; i < STEP_INPUTS; i++)
        input[i] = s->input[i] == NO_PLACE ? NULL : &r->array[s->input[i]];
}

/* Whether attention writes what the transposition of its output would make: they are step `n` and another.  It does if reshapes
 * between them change nothing. */
static bool is_turned(const run *r, size_t n)
{
    const size_t other = r->c->turn[n];
    if (other == NO_PLACE)
        return false;
    const bool turns = r->c->step[n].kind == STEP_TRANSPOSE;
    const run_array *made = &r->array[r->c->step[turns ? other : n].output[ATTENDED]];
    const run_array *read = &r->array[r->c->step[turns ? n : other].input[0]];
    return made->rank == read->rank && memcmp(made->dim, read->dim, made->rank * sizeof *made->dim) == 0;
}

/* Whose memory the output of a step is, and how it lies there.  `input`: the step's first, or NULL for whole numbers. */
static void place(const run *r, size_t n, size_t part, const run_array *input, run_array *output)
{
    const step *s = &r->c->step[n];
    const chain_joint *joint = &r->c->joint[n];
    output->owner = s->output[part];
    output->columns = output->pitch = output->shift = 0;
    if (!input)
        return;
    if (s->kind == STEP_RESHAPE || (s->kind == STEP_TRANSPOSE && is_turned(r, n))) {
        output->owner = input->owner;
        output->columns = input->columns;
        output->pitch = input->pitch;
        output->shift = input->shift;
    } else if (joint->first != NO_PLACE && !r->apart) {
        output->owner = r->c->step[joint->first].output[0];
        output->columns = (size_t)output->dim[output->rank - 1];
        output->pitch = joint->pitch;
        output->shift = joint->column * clattn_dtype_size(output->dtype);
    }
}

/* Whether what attention reads of joint products has dimensions that do not go beyond a row's columns. */
static bool are_in_rows(const run *r)
{
    for (size_t n = 0; n < r->c->steps; n++)
        for (size_t i = QUERY; r->c->step[n].kind == STEP_ATTENTION && i <= VALUE; i++) {
            const run_array *a = &r->array[r->c->step[n].input[i]];
            size_t d = a->rank, elements = 1;
            while (d > 0 && elements < a->columns)
                elements *= (size_t)a->dim[--d];
            if (a->pitch && a->elements && elements != a->columns)
                return false;
        }
    return true;
}

static OrtStatus *find_shapes(run *r)
{
    OrtStatus *failure = NULL;
    for (size_t n = 0; n < r->c->steps; n++) {
        const step *s = &r->c->step[n];
        run_array *input[STEP_INPUTS];
        inputs_of(r, s, input);
        for (size_t part = 0; part < STEP_OUTPUTS; part++) {
            if (s->output[part] == NO_PLACE)
                continue;
            run_array *output = &r->array[s->output[part]];
            ORT_TRY(in_step(r, n, step_shape(r->e->ort, s, part, input, output)));
            /* Whole numbers that steps make stay on the host. */
            const bool numbers = output->dtype == CLATTN_DTYPE_NONE || output->dtype == CLATTN_DTYPE_I64;
            if (numbers)
                output->dtype = CLATTN_DTYPE_NONE;
            place(r, n, part, numbers ? NULL : input[0], output);
            output->last = n;
            output->host = numbers ? r->number[s->output[part]] : NULL;
            output->buffer = NULL;
            output->offset = 0;
            if (numbers)
                ORT_TRY(in_step(r, n, numbers_compute(r->e->ort, s, input, output)));
        }
        for (size_t i = 0; i < STEP_INPUTS; i++)
            if (input[i])
                r->array[input[i]->owner].last = n;
    }
fail:
    return failure;
}

/* Whole numbers that steps have made, as an output; they last as long as the run. */
static OrtStatus *write_numbers(const engine *e, const run_array *numbers, const run_array *result)
{
    const size_t bytes = numbers->elements * sizeof(int64_t);
    if (bytes && result->buffer) {
        const cl_int code = e->cl.clEnqueueWriteBuffer(e->queue, result->buffer, CL_FALSE, result->offset, bytes,
                                                       numbers->host, 0, NULL, NULL);
        if (code != CL_SUCCESS)
            return ort_failure(e->ort, ORT_EP_FAIL, "clattn: clEnqueueWriteBuffer returned %d", code);
    } else if (bytes)
        memcpy(result->host, numbers->host, bytes);
    return NULL;
}

/* Makes the outputs' arrays.  The first output of each owner is where the owner lies. */
static OrtStatus *make_outputs(run *r)
{
    const OrtApi *ort = r->e->ort;
    OrtStatus *failure = NULL;
    for (size_t v = 0; v < r->c->values; v++) {
        const chain_value *value = &r->c->value[v];
        run_array *a = &r->array[v], *owner = &r->array[a->owner];
        run_array result = {.owner = v};
        OrtValue *made = NULL;
        if (value->output == NO_PLACE)
            continue;
        ORT_TRY(ort->KernelContext_GetOutput(r->context, value->output, a->dim, a->rank, &made));
        ORT_TRY(read_array(r->e, made, &result));
        if (a->dtype == CLATTN_DTYPE_NONE) {
            ORT_TRY(write_numbers(r->e, a, &result));
            continue;
        }
        if (a->elements && (result.dtype != a->dtype || (result.buffer && owner->buffer))) {
            r->result[v] = result;
            owner->last = SIZE_MAX; /* it is read when all steps are done */
            ORT_TRY(attach(r, &r->result[v], true));
            continue;
        }
        a->host = result.host;
        if (!owner->buffer && a->elements) {
            owner->host = a->host;
            owner->buffer = result.buffer;
            owner->offset = result.offset;
            ORT_TRY(attach(r, owner, true));
        }
    }
fail:
    return failure;
}

/* Finds room in the arena for an array that step `made` makes. */
static size_t take_room(run *r, size_t made, size_t last, size_t bytes)
{
    size_t kept = 0, at = 0, begin = 0;
    for (size_t i = 0; i < r->used; i++)
        if (r->pieces[i].last >= made)
            r->pieces[kept++] = r->pieces[i];
    r->used = kept;
    for (; at < r->used && r->pieces[at].begin < begin + bytes; at++)
        begin = r->pieces[at].end;
    memmove(&r->pieces[at + 1], &r->pieces[at], (r->used++ - at) * sizeof *r->pieces);
    r->pieces[at] = (piece){begin, begin + bytes, last};
    return begin;
}

/* Lays what is neither input nor output into the arena. */
static OrtStatus *lay_out(run *r)
{
    OrtStatus *failure = NULL;
    size_t needed = 0;
    for (size_t n = 0; n < r->c->steps; n++)
        for (size_t part = 0; part < STEP_OUTPUTS; part++) {
            const size_t v = r->c->step[n].output[part];
            run_array *a = v == NO_PLACE ? NULL : &r->array[v];
            if (!a || a->owner != v || a->buffer || !a->elements || a->dtype == CLATTN_DTYPE_NONE)
                continue;
            const size_t bytes = round_up(array_bytes(a), ALIGNMENT);
            a->offset = take_room(r, n, a->last, bytes);
            needed = a->offset + bytes > needed ? a->offset + bytes : needed;
        }
    if (needed > r->e->arena_bytes) {
        if (r->e->arena)
            r->e->cl.clReleaseMemObject(r->e->arena);
        r->e->arena = NULL;
        r->e->arena_bytes = 0;
        ORT_TRY(engine_buffer(r->e, NULL, needed, true, &r->e->arena));
        r->e->arena_bytes = needed;
    }
    for (size_t n = 0; n < r->c->steps; n++)
        for (size_t part = 0; part < STEP_OUTPUTS; part++) {
            const size_t v = r->c->step[n].output[part];
            if (v == NO_PLACE)
                continue;
            run_array *a = &r->array[v], *owner = &r->array[a->owner];
            if (!owner->buffer)
                owner->buffer = r->e->arena;
            a->buffer = owner->buffer;
            a->offset = owner->offset + a->shift;
        }
fail:
    return failure;
}

/* Enqueues the reading of the outputs that are not where they belong. */
static OrtStatus *read_outputs(run *r)
{
    for (size_t v = 0; v < r->c->values; v++) {
        const run_array *a = &r->array[v], *owner = &r->array[a->owner];
        if (r->c->value[v].output == NO_PLACE || !a->elements || a->dtype == CLATTN_DTYPE_NONE)
            continue;
        if (r->result[v].buffer) {
            OrtStatus *failure = convert(r->e, a, &r->result[v]);
            if (failure)
                return failure;
            a = owner = &r->result[v];
        }
        if (!a->host || (r->e->shares && owner->host == a->host))
            continue;
        const cl_int code = r->e->cl.clEnqueueReadBuffer(r->e->queue, owner->buffer, CL_FALSE, owner->offset,
                                                         array_bytes(a), a->host, 0, NULL, NULL);
        if (code != CL_SUCCESS)
            return ort_failure(r->e->ort, ORT_EP_FAIL, "clattn: clEnqueueReadBuffer returned %d", code);
    }
    return NULL;
}

/* Enqueues attention that writes what a transposition would make of its output. */
static OrtStatus *enqueue_turned(const run *r, size_t n, run_array *const input[STEP_INPUTS],
                                 const run_array *const outputs[STEP_OUTPUTS])
{
    const step *turn = &r->c->step[r->c->turn[n]];
    const run_array *turned[STEP_OUTPUTS];
    step s = r->c->step[n];
    attention_view *view = &s.attention.output;
    memcpy(turned, outputs, sizeof turned);
    turned[ATTENDED] = &r->array[turn->output[0]];
    for (size_t i = 4 - view->rank; i < 4; i++)
        for (size_t d = 0; d < view->rank; d++)
            if (turn->axis[d] == r->c->step[n].attention.output.axis[i])
                view->axis[i] = d;
    return turned[ATTENDED]->elements ? enqueue_attention(r->e, &s, ATTENDED, input, turned) : NULL;
}

/* Whether a step has nothing to do: another has done it, or nobody reads what it would move. */
static bool is_idle(const run *r, size_t n)
{
    const size_t first = r->c->joint[n].first;
    return r->c->idle[n] || (r->c->step[n].kind == STEP_TRANSPOSE && is_turned(r, n)) ||
           (first != NO_PLACE && first != n && !r->apart);
}

/* Enqueues the outputs of a step, the last first: attention reads the cache that it writes. */
static OrtStatus *enqueue_step(run *r, size_t n)
{
    OrtStatus *failure = NULL;
    const step *s = &r->c->step[n];
    run_array *input[STEP_INPUTS];
    const run_array *outputs[STEP_OUTPUTS];
    inputs_of(r, s, input);
    if (is_idle(r, n))
        return NULL;
    for (size_t part = 0; part < STEP_OUTPUTS; part++)
        outputs[part] = s->output[part] == NO_PLACE ? NULL : &r->array[s->output[part]];
    for (size_t part = STEP_OUTPUTS; part-- > 0;)
        if (!outputs[part])
            continue;
        else if (outputs[part]->pitch && s->kind == STEP_PRODUCT)
            ORT_TRY(outputs[part]->elements ? enqueue_joint(r->e, r->c, n, r->array) : NULL);
        else if (part == ATTENDED && is_turned(r, n))
            ORT_TRY(enqueue_turned(r, n, input, outputs));
        else
            ORT_TRY(step_enqueue(r->e, r->c, n, part, input, outputs));
fail:
    return in_step(r, n, failure);
}

/* Everything that is done with the engine's lock held. */
static OrtStatus *enqueue(run *r, cl_event *event)
{
    OrtStatus *failure = NULL;
    ORT_TRY(store_inputs(r));
    ORT_TRY(read_constants(r));
    r->apart = !r->e->shares; /* on other devices the matrices would be there twice */
    ORT_TRY(find_shapes(r));
    if (!are_in_rows(r)) {
        r->apart = true;
        ORT_TRY(find_shapes(r));
    }
    ORT_TRY(make_outputs(r));
    ORT_TRY(lay_out(r));
    for (size_t n = 0; n < r->c->steps; n++)
        ORT_TRY(enqueue_step(r, n));
    ORT_TRY(read_outputs(r));
    const cl_int code = r->e->cl.clEnqueueMarkerWithWaitList(r->e->queue, 0, NULL, event);
    if (code != CL_SUCCESS)
        failure = ort_failure(r->e->ort, ORT_EP_FAIL, "clattn: clEnqueueMarkerWithWaitList returned %d", code);
fail:
    return failure;
}

static OrtStatus *run_chain(engine *e, const chain *c, OrtKernelContext *context)
{
    OrtStatus *failure = NULL;
    cl_event event = NULL;
    run r = {.e = e, .c = c, .context = context};
    r.array = calloc(c->values + 1, sizeof *r.array);
    r.number = calloc(c->values + 1, sizeof *r.number);
    r.result = calloc(c->values + 1, sizeof *r.result);
    r.copy = calloc(c->values + 1, sizeof *r.copy);
    r.made = calloc(3 * c->values + 1, sizeof *r.made); /* an input, what it is stored as, and an output */
    r.pieces = calloc(c->steps * STEP_OUTPUTS + 1, sizeof *r.pieces);
    if (!r.array || !r.result || !r.copy || !r.number || !r.made || !r.pieces) {
        failure = ort_failure(e->ort, ORT_FAIL, "clattn: no memory for a run");
        goto fail;
    }
    ORT_TRY(read_inputs(&r));
    mtx_lock(&e->lock);
    failure = enqueue(&r, &event);
    mtx_unlock(&e->lock);
    /* After a failure, too, arrays are not given back before what was enqueued is done with them. */
    const cl_int code = event ? e->cl.clWaitForEvents(1, &event) : e->cl.clFinish(e->queue);
    if (code != CL_SUCCESS && !failure)
        failure = ort_failure(e->ort, ORT_EP_FAIL, "clattn: waiting for the device returned %d", code);
fail:
    if (event)
        e->cl.clReleaseEvent(event);
    for (size_t i = 0; i < r.made_count; i++)
        e->cl.clReleaseMemObject(r.made[i]);
    for (size_t v = 0; r.copy && v < c->values; v++)
        free(r.copy[v]);
    free(r.copy);
    free(r.array);
    free(r.result);
    free(r.number);
    free(r.made);
    free(r.pieces);
    return failure;
}

/* A run while the session's threads sleep. */
typedef struct quiet_run {
    engine *e;
    const chain *c;
    OrtKernelContext *context;
    OrtStatus *failure;
    mtx_t lock; /* of the flags */
    cnd_t ended;
    bool begins, ends;
} quiet_run;

/* Whichever thread comes first runs the chain; the others wait for it. */
static void run_or_wait(void *user, size_t index)
{
    quiet_run *r = user;
    (void)index;
    mtx_lock(&r->lock);
    if (!r->begins) {
        r->begins = true;
        mtx_unlock(&r->lock);
        r->failure = run_chain(r->e, r->c, r->context);
        mtx_lock(&r->lock);
        r->ends = true;
        cnd_broadcast(&r->ended);
    }
    while (!r->ends)
        cnd_wait(&r->ended, &r->lock);
    mtx_unlock(&r->lock);
}

OrtStatus *chain_run(engine *e, const chain *c, OrtKernelContext *context)
{
    OrtStatus *failure = NULL;
    quiet_run r = {.e = e, .c = c, .context = context};
    if (e->spinning < 2 || mtx_init(&r.lock, mtx_plain) != thrd_success)
        return run_chain(e, c, context);
    if (cnd_init(&r.ended) != thrd_success) {
        mtx_destroy(&r.lock);
        return run_chain(e, c, context);
    }
    failure = e->ort->KernelContext_ParallelFor(context, run_or_wait, e->spinning, 0, &r);
    if (failure && !r.begins) {
        e->ort->ReleaseStatus(failure);
        failure = run_chain(e, c, context);
    } else if (failure && r.failure)
        e->ort->ReleaseStatus(r.failure);
    cnd_destroy(&r.ended);
    mtx_destroy(&r.lock);
    return failure ? failure : r.failure;
}

static void release_product(const engine *e, chain_product *product)
{
    clattn_plan_release(&product->plan);
    if (product->packed)
        e->cl.clReleaseMemObject(product->packed);
}

void chain_release(const engine *e, chain *c)
{
    for (size_t n = 0; n < c->steps && c->product; n++)
        release_product(e, &c->product[n]);
    for (size_t n = 0; n < c->steps && c->joint; n++) {
        release_product(e, &c->joint[n].product);
        if (c->joint[n].matrix)
            e->cl.clReleaseMemObject(c->joint[n].matrix);
        if (c->joint[n].bias)
            e->cl.clReleaseMemObject(c->joint[n].bias);
    }
    for (size_t v = 0; v < c->values && c->value; v++) {
        if (c->value[v].buffer)
            e->cl.clReleaseMemObject(c->value[v].buffer);
        free(c->value[v].copy);
    }
    free(c->step);
    free(c->product);
    free(c->value);
    free(c->idle);
    free(c->turn);
    free(c->joint);
    free(c->name);
    *c = (chain){0};
}
