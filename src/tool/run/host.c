#include "tool/run/host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "tool/cli/os_tool.h"

clattn_layout host_layout(const host_array *array)
{
    const clattn_host_tensor *tensor = &array->tensor;
    return host_present(array) ? clattn_layout_contiguous(tensor->dtype, tensor->rank, tensor->extent)
                               : (clattn_layout){0};
}

int host_load(const char *path, host_array *array)
{
    clattn_io_error error;
    if (path == NULL)
        return TOOL_DONE;
    *array = (host_array){.name = path};
    clattn_status status = clattn_npy_create(path, &array->file, &error);
    if (status != CLATTN_SUCCESS)
        return complain(status == CLATTN_ERROR_OUT_OF_MEMORY ? TOOL_FAILED : TOOL_BAD_INPUT, "%s", error.message);
    array->tensor = clattn_npy_tensor(array->file);
    return TOOL_DONE;
}

int host_describe(clattn_dtype dtype, int32_t rank, const size_t *extent, const char *name, host_array *array)
{
    size_t bytes = clattn_dtype_bits(dtype);
    *array = (host_array){.name = name};
    array->tensor.dtype = dtype;
    array->tensor.rank = rank;
    for (int32_t i = 0; i < rank; i++) {
        array->tensor.extent[i] = extent[i];
        if (!size_mul(bytes, extent[i], &bytes))
            return complain(TOOL_BAD_INPUT, "%s: the size of shape %s overflows", name,
                            shape_of_extents(rank, extent).text);
    }
    array->tensor.bytes = divide_up(bytes, 8);
    return TOOL_DONE;
}

int host_allocate(clattn_dtype dtype, int32_t rank, const size_t *extent, const char *name, host_array *array)
{
    int status = host_describe(dtype, rank, extent, name, array);
    if (status != TOOL_DONE)
        return status;
    const size_t bytes = array->tensor.bytes;
    array->memory = calloc(bytes > 0 ? bytes : 1, 1);
    array->tensor.data = array->memory;
    if (array->memory == NULL)
        return complain(TOOL_FAILED, "%s: out of memory for shape %s (%zu bytes)", name,
                        shape_of_extents(rank, extent).text, bytes);
    return TOOL_DONE;
}

void host_release(host_array *array)
{
    clattn_npy_release(&array->file);
    free(array->memory);
    *array = (host_array){0};
}

int host_expect_dtype(const host_array *array, clattn_dtype dtype)
{
    if (array->tensor.dtype == dtype)
        return TOOL_DONE;
    clattn_dtype found = array->tensor.dtype;
    bool later = found == CLATTN_DTYPE_F16 || found == CLATTN_DTYPE_BF16;
    const char *name = clattn_dtype_name(dtype);
    /* NumPy's default type is float64, so that the message says how to convert. */
    return complain(TOOL_BAD_INPUT, "%s: element type %s, expected %s%s%s%s", array->name, clattn_dtype_name(found),
                    name, later ? " (16-bit types are not supported yet)" : " (in NumPy: .astype(\"", later ? "" : name,
                    later ? "" : "\"))");
}

int host_expect_rank(const host_array *array, int32_t rank, const char *shape)
{
    if (array->tensor.rank == rank)
        return TOOL_DONE;
    return complain(TOOL_BAD_INPUT, "%s: shape %s has %d dimension%s, expected %d: %s", array->name,
                    shape_of(&array->tensor).text, (int)array->tensor.rank, array->tensor.rank == 1 ? "" : "s",
                    (int)rank, shape);
}

int host_expect_mask(const host_array *mask, bool may_be_short, int32_t rank, const size_t *extent)
{
    const clattn_host_tensor *tensor = &mask->tensor;
    if (tensor->dtype != CLATTN_DTYPE_BOOL && tensor->dtype != CLATTN_DTYPE_F32)
        return complain(TOOL_BAD_INPUT, "%s: element type %s, expected bool (true = attend) or float32 (added)",
                        mask->name, clattn_dtype_name(tensor->dtype));
    return host_expect_broadcast(mask, may_be_short, rank, extent);
}

int host_expect_broadcast(const host_array *mask, bool may_be_short, int32_t rank, const size_t *extent)
{
    const clattn_host_tensor *tensor = &mask->tensor;
    if (tensor->rank < 1 || tensor->rank > rank)
        return complain(TOOL_BAD_INPUT, "%s: shape %s has %d dimensions, expected 1 to %d", mask->name,
                        shape_of(tensor).text, (int)tensor->rank, (int)rank);
    for (int32_t i = 0; i < tensor->rank; i++) {
        size_t own = tensor->extent[i], whole = extent[rank - tensor->rank + i];
        bool is_short = i == tensor->rank - 1 && own > 1 && own < whole;
        if (is_short && !may_be_short)
            return complain(TOOL_BAD_INPUT, "%s: shape %s covers %zu of %zu keys, expected all (or --short-mask)",
                            mask->name, shape_of(tensor).text, own, whole);
        if (own != 1 && own != whole && !is_short)
            return complain(TOOL_BAD_INPUT,
                            "%s: shape %s does not broadcast to %s: dimension %d is %zu, expected 1 or %zu", mask->name,
                            shape_of(tensor).text, shape_of_extents(rank, extent).text, (int)i, own, whole);
    }
    return TOOL_DONE;
}

static bool stdout_is_taken;

bool host_stdout_is_taken(void)
{
    return stdout_is_taken;
}

int host_check_output(const char *path, const char *const *inputs, size_t input_count)
{
    if (path == NULL)
        return TOOL_DONE;
    switch (os_look_at(path)) {
    case OS_PATH_FOLDER: return complain(TOOL_BAD_INPUT, "%s: is a directory, expected a file to write", path);
    case OS_PATH_UNREACHABLE:
        return complain(TOOL_BAD_INPUT, "%s: cannot be written, expected a path in an existing directory", path);
    case OS_PATH_MISSING:
    case OS_PATH_FILE:
    case OS_PATH_OTHER: break;
    }
    for (size_t i = 0; i < input_count; i++)
        if (inputs[i] != NULL && os_same_file(path, inputs[i]))
            return complain(TOOL_BAD_INPUT, "%s: is the input %s, expected another file to write", path, inputs[i]);
    stdout_is_taken = stdout_is_taken || os_is_stdout(path);
    return TOOL_DONE;
}

int host_check_distinct(const char *first, const char *second)
{
    if (first == NULL || second == NULL || !os_same_file(first, second))
        return TOOL_DONE;
    return complain(TOOL_BAD_INPUT, "%s: is given for two outputs, expected two different files", second);
}

int host_store(const char *path, const host_array *array)
{
    clattn_io_error error;
    const clattn_host_tensor *tensor = &array->tensor;
    clattn_status status = clattn_npy_write(path, tensor->dtype, tensor->rank, tensor->extent, tensor->data, &error);
    if (status != CLATTN_SUCCESS)
        return complain(TOOL_FAILED, "%s", error.message);
    return TOOL_DONE;
}
