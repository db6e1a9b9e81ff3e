/* Arrays in host memory and their files, with the command's error lines. */
#ifndef CLATTN_TOOL_RUN_HOST_H
#define CLATTN_TOOL_RUN_HOST_H

#include <clattn/io.h>
#include <clattn/layout.h>

#include "base/text/shape_text.h"
#include "tool/tool.h"

/* An array and the file that it came from. A zeroed one is absent. Release with host_release. */
typedef struct host_array {
    clattn_host_tensor tensor;
    const char *name; /* the file, for messages; borrowed */
    clattn_npy *file; /* owns the data, or */
    void *memory;     /* this does; neither: a shape to plan for, */
    float limit;      /* and if this is positive, random numbers that random_make (random.h) makes */
    uint64_t seed;
} host_array;

static inline bool host_present(const host_array *array)
{
    return array->tensor.dtype != CLATTN_DTYPE_NONE;
}

/* The array's layout, of rank 0 if the array is absent. */
clattn_layout host_layout(const host_array *array);

/* Reads an .npy file.  Without one (NULL) the array stays as it is. */
int host_load(const char *path, host_array *array);

/* Makes a contiguous array without data; its size is checked. */
int host_describe(clattn_dtype dtype, int32_t rank, const size_t *extent, const char *name, host_array *array);

/* Allocates a contiguous array of zeros. */
int host_allocate(clattn_dtype dtype, int32_t rank, const size_t *extent, const char *name, host_array *array);

void host_release(host_array *array);

/* These refuse what an operator does not take, and name the file, what was found and what was expected. */
int host_expect_dtype(const host_array *array, clattn_dtype dtype);
int host_expect_rank(const host_array *array, int32_t rank, const char *shape);

/* A mask that broadcasts against `rank` extents (its own may be fewer: leading 1s), bool or float32; the last
 * extent may also lie between. */
int host_expect_mask(const host_array *mask, bool may_be_short, int32_t rank, const size_t *extent);

/* host_expect_mask for an array whose element type has been checked. */
int host_expect_broadcast(const host_array *mask, bool may_be_short, int32_t rank, const size_t *extent);

/* Refuses, before any work is done, an output that cannot be written or is one of the inputs.  NULL is
 * accepted for an output and in the list of inputs. */
int host_check_output(const char *path, const char *const *inputs, size_t input_count);

/* Whether host_check_output has accepted standard output as an output: reports then go to standard error. */
bool host_stdout_is_taken(void);

/* Refuses two outputs in one file.  NULLs are accepted. */
int host_check_distinct(const char *first, const char *second);

/* Writes the array whole or not at all. */
int host_store(const char *path, const host_array *array);

#endif
