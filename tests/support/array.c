/* Guarded arrays. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/harness.h"

/* An odd length, so that no array is aligned to a vector; longer than a vector and a half. */
#define GUARD_FRONT 37
#define GUARD_BACK 41

/* NaNs with a payload to know them by: the one that outputs start with, and the one around inputs.  16-bit types have
 * the upper half of each alone, 64-bit ones both twice. */
#define POISON_OUTPUT 0x7fc5dead
#define POISON_INPUT 0x7fc1beef

static bool is_output(const test_memory *memory)
{
    return memory->role == ROLE_OUTPUT || memory->role == ROLE_READABLE_OUTPUT;
}

static void poison(const test_memory *memory)
{
    uint32_t pattern = is_output(memory) ? POISON_OUTPUT : POISON_INPUT;
    size_t bytes = memory->count * memory->element_size;

    pattern = memory->element_size == 2 ? (pattern >> 16) * 0x10001u : pattern; /* the upper half is a NaN by itself */
    for (size_t i = 0; i < bytes; i++) {
        /* Bytes of a bool array: a mixture of true, false and 0x80 "true". */
        memory->host[i] = memory->element_size == 1 ? (unsigned char)(i * i % 7 < 3 ? 0 : 0x80 | (i & 1))
                                                    : (unsigned char)(pattern >> (8 * (i % 4)));
    }
}

test_memory *memory_create(array_role role, clattn_dtype dtype, size_t elements)
{
    static const cl_mem_flags flags[] = {[ROLE_INPUT] = CL_MEM_READ_ONLY,
                                         [ROLE_OUTPUT] = CL_MEM_WRITE_ONLY,
                                         [ROLE_READABLE_OUTPUT] = CL_MEM_READ_WRITE,
                                         [ROLE_IN_PLACE] = CL_MEM_READ_WRITE};
    test_memory *made = calloc(1, sizeof *made);

    assert_non_null(made);
    made->role = role;
    made->element_size = dtype == CLATTN_DTYPE_I4 ? 1 : clattn_dtype_size(dtype);
    made->count = GUARD_FRONT + (dtype == CLATTN_DTYPE_I4 ? elements / 2 + 1 : elements) + GUARD_BACK;
    made->host = malloc(made->count * made->element_size);
    made->original = malloc(made->count * made->element_size);
    made->owned = calloc(made->count, 1);
    assert_true(made->element_size && made->host && made->original && made->owned);
    poison(made);
    memcpy(made->original, made->host, made->count * made->element_size);
    cl_int code = CL_SUCCESS;
    made->buffer = clCreateBuffer(clattn_context_opencl_context(device_context()), flags[role] | CL_MEM_COPY_HOST_PTR,
                                  made->count * made->element_size, made->host, &code);
    assert_cl(code);
    return made;
}

void memory_release(test_memory *memory)
{
    if (memory) {
        device_release_buffer(memory->buffer);
        free(memory->host);
        free(memory->original);
        free(memory->owned);
        free(memory);
    }
}

test_array array_view(test_memory *memory, size_t first, clattn_layout layout)
{
    size_t guard = layout.dtype == CLATTN_DTYPE_I4 ? 2 * GUARD_FRONT : GUARD_FRONT;
    return (test_array){.memory = memory, .layout = layout, .offset = (int64_t)(guard + first)};
}

test_array array_create(array_role role, clattn_dtype dtype, int rank, const size_t *extent, array_form form)
{
    clattn_layout layout = {.dtype = dtype ? dtype : CLATTN_DTYPE_F32, .rank = rank};
    int order[CLATTN_MAX_RANK]; /* dimensions, innermost first */
    int row = rank - 2, col = rank - 1;
    int64_t step = form == FORM_SPREAD ? 2 : 1;
    int64_t first = 0;

    for (int d = 0; d < rank; d++) {
        order[d] = rank - 1 - d;
        layout.extent[d] = extent[d];
    }
    if ((form == FORM_TRANSPOSED || form == FORM_ALIGNED_TRANSPOSED) && rank >= 2) {
        order[0] = row;
        order[1] = col;
    } else if (form == FORM_BSHD && rank >= 3) {
        order[1] = rank - 3;
        order[2] = row;
    }
    for (int i = 0; i < rank; i++) {
        int d = order[i];
        bool shared = (form == FORM_SHARED_FIRST && d == 0) || (form == FORM_SHARED_SECOND && d == 1) ||
                      (form == FORM_SHARED_ROWS && d == row);
        layout.stride[d] = shared ? 0 : step;
        step *= shared ? 1 : (int64_t)extent[d];
        step += form == FORM_PADDED ? 3 + 2 * i : 0;
        if (i == 0 && (form == FORM_ALIGNED || form == FORM_ALIGNED_TRANSPOSED)) {
            step = (step + 7) / 8 * 8;
        }
        if ((form == FORM_FLIPPED && d == row) || (form == FORM_MIRRORED && d == col)) {
            first += layout.stride[d] * ((int64_t)extent[d] - 1);
            layout.stride[d] = -layout.stride[d];
        }
    }
    if (form == FORM_ALIGNED || form == FORM_ALIGNED_TRANSPOSED) {
        first = -GUARD_FRONT & 7;
        step += first;
    }
    return array_view(memory_create(role, layout.dtype, (size_t)step), (size_t)(first < 0 ? 0 : first), layout);
}

size_t array_place(const test_array *array, const size_t *index)
{
    int64_t at = array->offset;

    for (int d = 0; d < array->layout.rank; d++) {
        at += (int64_t)index[d] * array->layout.stride[d];
    }
    return (size_t)at;
}

size_t array_places(const test_array *array)
{
    return array->memory->count * (array->layout.dtype == CLATTN_DTYPE_I4 ? 2 : 1);
}

bool array_next(int rank, const size_t *extent, size_t *index)
{
    for (int d = rank - 1; d >= 0; d--) {
        if (++index[d] < extent[d]) {
            return true;
        }
        index[d] = 0;
    }
    return false;
}

size_t array_count(int rank, const size_t *extent)
{
    size_t count = 1;

    for (int d = 0; d < rank; d++) {
        count *= extent[d];
    }
    return count;
}

void array_own(test_array *array, const size_t *extent)
{
    size_t index[CLATTN_MAX_RANK] = {0};

    memcpy(array->written, extent, (size_t)array->layout.rank * sizeof *extent);
    memset(array->memory->owned, 0, array->memory->count);
    if (array_count(array->layout.rank, extent) > 0) {
        do {
            array->memory->owned[array_place(array, index)] = 1;
        } while (array_next(array->layout.rank, extent, index));
    }
}

void array_own_element(test_array *array, const size_t *index)
{
    array->memory->owned[array_place(array, index) / (array->layout.dtype == CLATTN_DTYPE_I4 ? 2 : 1)] = 1;
}

/* int4: the byte of a place, and the half of it. */
static int get_nibble(const test_memory *memory, size_t at)
{
    int bits = at % 2 ? memory->host[at / 2] / 16 : memory->host[at / 2] % 16;
    return bits < 8 ? bits : bits - 16;
}

static void set_nibble(test_memory *memory, size_t at, int value)
{
    int bits = value < 0 ? value + 16 : value, low = memory->host[at / 2] % 16, high = memory->host[at / 2] / 16;
    memory->host[at / 2] = (unsigned char)(at % 2 ? bits * 16 + low : high * 16 + bits);
}

double array_get(const test_array *array, const size_t *index)
{
    size_t at = array_place(array, index);

    assert_true(at < array_places(array));
    if (array->layout.dtype == CLATTN_DTYPE_I4) {
        return get_nibble(array->memory, at);
    }
    return storage_get(array->layout.dtype, array->memory->host + at * array->memory->element_size);
}

void array_set(test_array *array, const size_t *index, double value)
{
    size_t at = array_place(array, index);

    assert_true(at < array_places(array));
    if (array->layout.dtype == CLATTN_DTYPE_I4) {
        set_nibble(array->memory, at, (int)value);
    } else if (array->layout.dtype == CLATTN_DTYPE_BOOL) {
        array->memory->host[at] = value != 0 ? (unsigned char)(1 + at % 255) : 0; /* anything but 0 is true */
    } else {
        storage_set(array->layout.dtype, array->memory->host + at * array->memory->element_size, value);
    }
}

double *zeros(size_t count)
{
    double *made = calloc(count + 1, sizeof *made);

    assert_non_null(made);
    return made;
}

double *array_dense(const test_array *array, int rank, const size_t *extent)
{
    size_t index[CLATTN_MAX_RANK] = {0};
    size_t count = array_count(rank, extent);
    double *dense = zeros(count);
    int skip = rank - array->layout.rank;

    assert_true(skip >= 0);
    for (size_t i = 0; i < count; i++) {
        dense[i] = array_get(array, index + skip);
        array_next(rank, extent, index);
    }
    return dense;
}

void array_fill(test_array *array, array_filler fill, void *context)
{
    size_t index[CLATTN_MAX_RANK] = {0};

    if (array_count(array->layout.rank, array->layout.extent) > 0) {
        do {
            array_set(array, index, fill(context, index));
        } while (array_next(array->layout.rank, array->layout.extent, index));
    }
}

static void write_all(const test_memory *memory, const unsigned char *from)
{
    write_buffer(clattn_context_queue(device_context()), memory->buffer, 0, memory->count * memory->element_size, from);
}

void array_upload(const test_array *array)
{
    /* What goes up in place comes back: the guards and gaps are compared with this. */
    memcpy(array->memory->original, array->memory->host, array->memory->count * array->memory->element_size);
    write_all(array->memory, array->memory->host);
}

void array_poison(const test_array *array)
{
    write_all(array->memory, array->memory->original);
}

void array_download(test_array *array)
{
    test_memory *memory = array->memory;
    size_t size = memory->element_size;

    assert_cl(clEnqueueReadBuffer(clattn_context_queue(device_context()), memory->buffer, CL_TRUE, 0,
                                  memory->count * size, memory->host, 0, NULL, NULL));
    for (size_t i = 0; i < memory->count; i++) {
        bool same = memcmp(memory->host + i * size, memory->original + i * size, size) == 0;

        if (!memory->owned[i] && !same) {
            fail_msg("element %zd of the buffer was overwritten; element 0 of the array is at %zd of %zu", (ptrdiff_t)i,
                     (ptrdiff_t)array->offset, memory->count);
        }
        if (memory->owned[i] && same && is_output(memory)) {
            fail_msg("element %zd of the buffer was never written; element 0 of the array is at %zd of %zu",
                     (ptrdiff_t)i, (ptrdiff_t)array->offset, memory->count);
        }
    }
}

clattn_binding array_binding(const test_array *array)
{
    clattn_binding none = {0};
    return array->memory ? clattn_binding_buffer(array->memory->buffer, array->offset) : none;
}

void array_bind(const test_array *array, clattn_layout *layout, clattn_binding *binding)
{
    *layout = array->layout;
    *binding = array_binding(array);
}
