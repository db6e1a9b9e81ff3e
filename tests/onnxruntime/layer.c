/* A layer of the OpenCL loader that makes calls fail, and counts: OPENCL_LAYERS names it, as a shared library.  The calls that fail
 * are those that make buffers and kernels, and that enqueue. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl_layer.h>
#include <stdatomic.h>
#include <string.h>

/* ---- what tests call ---- */

static cl_icd_dispatch below, above;
static atomic_long left; /* calls until one fails; 0: none does */
static atomic_long live; /* references to buffers */
static atomic_long compiled;
static atomic_long copied; /* bytes */

/* The `number`-th call from now on fails; 0: none. */
__attribute__((visibility("default"))) void layer_fail(long number)
{
    atomic_store(&left, number);
}

/* How many calls are left until one fails; negative: so many have been made since. */
__attribute__((visibility("default"))) long layer_left(void)
{
    return atomic_load(&left);
}

/* How many references to buffers are held. */
__attribute__((visibility("default"))) long layer_live(void)
{
    return atomic_load(&live);
}

/* How many programs have been made of their sources. */
__attribute__((visibility("default"))) long layer_compiled(void)
{
    return atomic_load(&compiled);
}

/* How many bytes have been copied between buffers and the host's memory. */
__attribute__((visibility("default"))) long layer_copied(void)
{
    return atomic_load(&copied);
}

/* ---- calls ---- */

static int fails(void)
{
    return atomic_fetch_sub(&left, 1) == 1;
}

static cl_mem CL_API_CALL create_buffer(cl_context context, cl_mem_flags flags, size_t bytes, void *host, cl_int *code)
{
    cl_mem made = NULL;
    if (!fails())
        made = below.clCreateBuffer(context, flags, bytes, host, code);
    else if (code)
        *code = CL_MEM_OBJECT_ALLOCATION_FAILURE;
    atomic_fetch_add(&live, made != NULL);
    if (flags & CL_MEM_COPY_HOST_PTR)
        atomic_fetch_add(&copied, (long)bytes);
    return made;
}

static cl_int CL_API_CALL release_buffer(cl_mem buffer)
{
    atomic_fetch_sub(&live, 1);
    return below.clReleaseMemObject(buffer);
}

static cl_int CL_API_CALL retain_buffer(cl_mem buffer)
{
    atomic_fetch_add(&live, 1);
    return below.clRetainMemObject(buffer);
}

static cl_program CL_API_CALL create_program(cl_context context, cl_uint count, const char **source,
                                             const size_t *bytes, cl_int *code)
{
    atomic_fetch_add(&compiled, 1);
    return below.clCreateProgramWithSource(context, count, source, bytes, code);
}

static cl_kernel CL_API_CALL create_kernel(cl_program program, const char *name, cl_int *code)
{
    if (!fails())
        return below.clCreateKernel(program, name, code);
    if (code)
        *code = CL_OUT_OF_HOST_MEMORY;
    return NULL;
}

static cl_int CL_API_CALL enqueue_kernel(cl_command_queue queue, cl_kernel kernel, cl_uint dimensions,
                                         const size_t *offset, const size_t *global, const size_t *local, cl_uint count,
                                         const cl_event *list, cl_event *event)
{
    return fails() ? CL_OUT_OF_RESOURCES
                   : below.clEnqueueNDRangeKernel(queue, kernel, dimensions, offset, global, local, count, list, event);
}

static cl_int CL_API_CALL fill_buffer(cl_command_queue queue, cl_mem buffer, const void *pattern, size_t pattern_bytes,
                                      size_t offset, size_t bytes, cl_uint count, const cl_event *list, cl_event *event)
{
    return fails()
               ? CL_OUT_OF_RESOURCES
               : below.clEnqueueFillBuffer(queue, buffer, pattern, pattern_bytes, offset, bytes, count, list, event);
}

static cl_int CL_API_CALL read_buffer(cl_command_queue queue, cl_mem buffer, cl_bool waits, size_t offset, size_t bytes,
                                      void *to, cl_uint count, const cl_event *list, cl_event *event)
{
    atomic_fetch_add(&copied, (long)bytes);
    return fails() ? CL_OUT_OF_RESOURCES
                   : below.clEnqueueReadBuffer(queue, buffer, waits, offset, bytes, to, count, list, event);
}

static cl_int CL_API_CALL write_buffer(cl_command_queue queue, cl_mem buffer, cl_bool waits, size_t offset,
                                       size_t bytes, const void *from, cl_uint count, const cl_event *list,
                                       cl_event *event)
{
    atomic_fetch_add(&copied, (long)bytes);
    return fails() ? CL_OUT_OF_RESOURCES
                   : below.clEnqueueWriteBuffer(queue, buffer, waits, offset, bytes, from, count, list, event);
}

static cl_int CL_API_CALL enqueue_marker(cl_command_queue queue, cl_uint count, const cl_event *list, cl_event *event)
{
    return fails() ? CL_OUT_OF_HOST_MEMORY : below.clEnqueueMarkerWithWaitList(queue, count, list, event);
}

/* ---- the layer ---- */

CL_API_ENTRY cl_int CL_API_CALL clGetLayerInfo(cl_layer_info name, size_t bytes, void *value, size_t *needed)
{
    if (name != CL_LAYER_API_VERSION || (value && bytes < sizeof(cl_layer_api_version)))
        return CL_INVALID_VALUE;
    if (value)
        *(cl_layer_api_version *)value = CL_LAYER_API_VERSION_100;
    if (needed)
        *needed = sizeof(cl_layer_api_version);
    return CL_SUCCESS;
}

CL_API_ENTRY cl_int CL_API_CALL clInitLayer(cl_uint entries, const cl_icd_dispatch *target, cl_uint *made,
                                            const cl_icd_dispatch **dispatch)
{
    if (entries > sizeof below / sizeof(void *))
        entries = sizeof below / sizeof(void *);
    memcpy(&below, target, entries * sizeof(void *));
    above = below;
    above.clCreateBuffer = create_buffer;
    above.clReleaseMemObject = release_buffer;
    above.clRetainMemObject = retain_buffer;
    above.clCreateProgramWithSource = create_program;
    above.clCreateKernel = create_kernel;
    above.clEnqueueNDRangeKernel = enqueue_kernel;
    above.clEnqueueFillBuffer = fill_buffer;
    above.clEnqueueReadBuffer = read_buffer;
    above.clEnqueueWriteBuffer = write_buffer;
    above.clEnqueueMarkerWithWaitList = enqueue_marker;
    *made = entries;
    *dispatch = &above;
    return CL_SUCCESS;
}
