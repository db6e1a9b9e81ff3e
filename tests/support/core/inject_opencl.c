/* OpenCL functions that inject.h counts and makes fail. */
#include "support/core/inject.h"

#include <stdatomic.h>
#include <string.h>

static atomic_ulong launches;
static atomic_int fail_code;
static const char *watched;
static bool was_launched;
static size_t grid[3];

unsigned long inject_launches(void)
{
    return launches;
}

void inject_watch(const char *kernel)
{
    watched = kernel;
    was_launched = false;
}

bool inject_grid(size_t global[3])
{
    memcpy(global, grid, sizeof grid);
    return was_launched;
}

void inject_start(unsigned long fail_at, cl_int code)
{
    launches = 0;
    fail_code = code;
    inject_begin(INJECT_OPENCL, fail_at, false);
}

static bool fails(const char *name)
{
    return inject_fails(INJECT_OPENCL, name, NULL);
}

static void count_event(cl_int code, cl_event *event)
{
    if (code == CL_SUCCESS && event && *event) {
        inject_count(INJECT_EVENT, 1);
    }
}

/* Defines a call that returns its code. */
#define QUERY(name, parameters, arguments) \
    static cl_int CL_API_CALL wrapped_##name parameters \
    { \
        return fails(#name) ? fail_code : name arguments; \
    }

/* Defines a call that creates an object of `kind` and stores its code. */
#define CREATE(kind, type, name, parameters, arguments) \
    static type CL_API_CALL wrapped_##name parameters \
    { \
        if (fails(#name)) { \
            if (code) \
                *code = fail_code; \
            return NULL; \
        } \
        type object = name arguments; \
        if (object) \
            inject_count(kind, 1); \
        return object; \
    }

#define RETAIN(kind, type, name) \
    static cl_int CL_API_CALL wrapped_##name(type object) \
    { \
        if (fails(#name)) \
            return fail_code; \
        cl_int result = name(object); \
        if (result == CL_SUCCESS) \
            inject_count(kind, 1); \
        return result; \
    }

#define RELEASE(kind, type, name) \
    static cl_int CL_API_CALL wrapped_##name(type object) \
    { \
        bool fail = fails(#name); \
        cl_int result = name(object); \
        if (result == CL_SUCCESS) \
            inject_count(kind, -1); \
        return fail ? fail_code : result; \
    }

/* Defines an enqueue, whose last parameter is the event. */
#define ENQUEUE(name, parameters, arguments) \
    static cl_int CL_API_CALL wrapped_##name parameters \
    { \
        if (fails(#name)) \
            return fail_code; \
        cl_int result = name arguments; \
        count_event(result, event); \
        return result; \
    }

#define INFO(name, object, selector) \
    QUERY(name, (object o, selector s, size_t bytes, void *value, size_t *size), (o, s, bytes, value, size))

QUERY(clGetPlatformIDs, (cl_uint n, cl_platform_id *list, cl_uint *count), (n, list, count))
INFO(clGetPlatformInfo, cl_platform_id, cl_platform_info)
QUERY(clGetDeviceIDs, (cl_platform_id p, cl_device_type t, cl_uint n, cl_device_id *list, cl_uint *count),
      (p, t, n, list, count))
INFO(clGetDeviceInfo, cl_device_id, cl_device_info)
QUERY(clRetainDevice, (cl_device_id device), (device)) /* not counted because it has no effect on root devices */
QUERY(clReleaseDevice, (cl_device_id device), (device))

CREATE(INJECT_CONTEXT, cl_context, clCreateContext,
       (const cl_context_properties *properties, cl_uint n, const cl_device_id *devices,
        void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *), void *user, cl_int *code),
       (properties, n, devices, notify, user, code))
RETAIN(INJECT_CONTEXT, cl_context, clRetainContext)
RELEASE(INJECT_CONTEXT, cl_context, clReleaseContext)
INFO(clGetContextInfo, cl_context, cl_context_info)

CREATE(INJECT_QUEUE, cl_command_queue, clCreateCommandQueue,
       (cl_context context, cl_device_id device, cl_command_queue_properties properties, cl_int *code),
       (context, device, properties, code))
RETAIN(INJECT_QUEUE, cl_command_queue, clRetainCommandQueue)
RELEASE(INJECT_QUEUE, cl_command_queue, clReleaseCommandQueue)
INFO(clGetCommandQueueInfo, cl_command_queue, cl_command_queue_info)

CREATE(INJECT_MEMORY, cl_mem, clCreateBuffer,
       (cl_context context, cl_mem_flags flags, size_t bytes, void *data, cl_int *code),
       (context, flags, bytes, data, code))
CREATE(INJECT_MEMORY, cl_mem, clCreateImage,
       (cl_context context, cl_mem_flags flags, const cl_image_format *format, const cl_image_desc *desc, void *data,
        cl_int *code),
       (context, flags, format, desc, data, code))
INFO(clGetImageInfo, cl_mem, cl_image_info)
RETAIN(INJECT_MEMORY, cl_mem, clRetainMemObject)
RELEASE(INJECT_MEMORY, cl_mem, clReleaseMemObject)
INFO(clGetMemObjectInfo, cl_mem, cl_mem_info)

CREATE(INJECT_PROGRAM, cl_program, clCreateProgramWithSource,
       (cl_context context, cl_uint n, const char **texts, const size_t *lengths, cl_int *code),
       (context, n, texts, lengths, code))
CREATE(INJECT_PROGRAM, cl_program, clCreateProgramWithBinary,
       (cl_context context, cl_uint n, const cl_device_id *devices, const size_t *lengths,
        const unsigned char **binaries, cl_int *each, cl_int *code),
       (context, n, devices, lengths, binaries, each, code))
RETAIN(INJECT_PROGRAM, cl_program, clRetainProgram)
RELEASE(INJECT_PROGRAM, cl_program, clReleaseProgram)
QUERY(clBuildProgram,
      (cl_program program, cl_uint n, const cl_device_id *devices, const char *options,
       void(CL_CALLBACK *notify)(cl_program, void *), void *user),
      (program, n, devices, options, notify, user))
INFO(clGetProgramInfo, cl_program, cl_program_info)
QUERY(clGetProgramBuildInfo,
      (cl_program program, cl_device_id device, cl_program_build_info s, size_t bytes, void *value, size_t *size),
      (program, device, s, bytes, value, size))

CREATE(INJECT_KERNEL, cl_kernel, clCreateKernel, (cl_program program, const char *name, cl_int *code),
       (program, name, code))
RETAIN(INJECT_KERNEL, cl_kernel, clRetainKernel)
RELEASE(INJECT_KERNEL, cl_kernel, clReleaseKernel)
QUERY(clSetKernelArg, (cl_kernel kernel, cl_uint index, size_t bytes, const void *value), (kernel, index, bytes, value))
INFO(clGetKernelInfo, cl_kernel, cl_kernel_info)
QUERY(clGetKernelWorkGroupInfo,
      (cl_kernel kernel, cl_device_id device, cl_kernel_work_group_info s, size_t bytes, void *value, size_t *size),
      (kernel, device, s, bytes, value, size))

static void look_at_launch(cl_kernel kernel, cl_uint dimensions, const size_t *global)
{
    char name[128] = "";
    if (!watched || clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, sizeof name, name, NULL) != CL_SUCCESS ||
        strcmp(name, watched) != 0)
        return;
    was_launched = true;
    for (cl_uint i = 0; i < 3; i++)
        grid[i] = i < dimensions ? global[i] : 1;
}

static cl_int CL_API_CALL wrapped_clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint dimensions,
                                                         const size_t *offset, const size_t *global,
                                                         const size_t *local, cl_uint n, const cl_event *waits,
                                                         cl_event *event)
{
    if (fails("clEnqueueNDRangeKernel"))
        return fail_code;
    cl_int result = clEnqueueNDRangeKernel(queue, kernel, dimensions, offset, global, local, n, waits, event);
    launches += result == CL_SUCCESS;
    look_at_launch(kernel, dimensions, global);
    count_event(result, event);
    return result;
}
ENQUEUE(clEnqueueMarkerWithWaitList, (cl_command_queue queue, cl_uint n, const cl_event *waits, cl_event *event),
        (queue, n, waits, event))
ENQUEUE(clEnqueueBarrierWithWaitList, (cl_command_queue queue, cl_uint n, const cl_event *waits, cl_event *event),
        (queue, n, waits, event))
ENQUEUE(clEnqueueReadBuffer,
        (cl_command_queue queue, cl_mem buffer, cl_bool blocking, size_t offset, size_t bytes, void *data, cl_uint n,
         const cl_event *waits, cl_event *event),
        (queue, buffer, blocking, offset, bytes, data, n, waits, event))
ENQUEUE(clEnqueueReadImage,
        (cl_command_queue queue, cl_mem image, cl_bool blocking, const size_t *origin, const size_t *region, size_t row,
         size_t slice, void *data, cl_uint n, const cl_event *waits, cl_event *event),
        (queue, image, blocking, origin, region, row, slice, data, n, waits, event))
ENQUEUE(clEnqueueCopyImageToBuffer,
        (cl_command_queue queue, cl_mem image, cl_mem buffer, const size_t *origin, const size_t *region, size_t offset,
         cl_uint n, const cl_event *waits, cl_event *event),
        (queue, image, buffer, origin, region, offset, n, waits, event))
ENQUEUE(clEnqueueCopyBufferToImage,
        (cl_command_queue queue, cl_mem buffer, cl_mem image, size_t offset, const size_t *origin, const size_t *region,
         cl_uint n, const cl_event *waits, cl_event *event),
        (queue, buffer, image, offset, origin, region, n, waits, event))
ENQUEUE(clEnqueueWriteBuffer,
        (cl_command_queue queue, cl_mem buffer, cl_bool blocking, size_t offset, size_t bytes, const void *data,
         cl_uint n, const cl_event *waits, cl_event *event),
        (queue, buffer, blocking, offset, bytes, data, n, waits, event))
ENQUEUE(clEnqueueCopyBuffer,
        (cl_command_queue queue, cl_mem from, cl_mem to, size_t from_offset, size_t to_offset, size_t bytes, cl_uint n,
         const cl_event *waits, cl_event *event),
        (queue, from, to, from_offset, to_offset, bytes, n, waits, event))
ENQUEUE(clEnqueueCopyBufferRect,
        (cl_command_queue queue, cl_mem from, cl_mem to, const size_t *from_origin, const size_t *to_origin,
         const size_t *region, size_t from_row, size_t from_slice, size_t to_row, size_t to_slice, cl_uint n,
         const cl_event *waits, cl_event *event),
        (queue, from, to, from_origin, to_origin, region, from_row, from_slice, to_row, to_slice, n, waits, event))
ENQUEUE(clEnqueueFillBuffer,
        (cl_command_queue queue, cl_mem buffer, const void *pattern, size_t pattern_bytes, size_t offset, size_t bytes,
         cl_uint n, const cl_event *waits, cl_event *event),
        (queue, buffer, pattern, pattern_bytes, offset, bytes, n, waits, event))

/* A mapping counts as a reference to its memory. */
static void *CL_API_CALL wrapped_clEnqueueMapBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking,
                                                    cl_map_flags flags, size_t offset, size_t bytes, cl_uint n,
                                                    const cl_event *waits, cl_event *event, cl_int *code)
{
    cl_int own = fail_code;
    void *mapped = fails("clEnqueueMapBuffer")
                       ? NULL
                       : clEnqueueMapBuffer(queue, buffer, blocking, flags, offset, bytes, n, waits, event, &own);
    if (mapped) {
        count_event(own, event);
        inject_count(INJECT_MEMORY, 1);
    }
    if (code)
        *code = own;
    return mapped;
}
static cl_int CL_API_CALL wrapped_clEnqueueUnmapMemObject(cl_command_queue queue, cl_mem memory, void *mapped,
                                                          cl_uint n, const cl_event *waits, cl_event *event)
{
    const bool fail = fails("clEnqueueUnmapMemObject");
    const cl_int result = clEnqueueUnmapMemObject(queue, memory, mapped, n, waits, event);
    count_event(result, event);
    if (result == CL_SUCCESS)
        inject_count(INJECT_MEMORY, -1);
    return fail ? fail_code : result;
}

RETAIN(INJECT_EVENT, cl_event, clRetainEvent)
RELEASE(INJECT_EVENT, cl_event, clReleaseEvent)
INFO(clGetEventInfo, cl_event, cl_event_info)
QUERY(clSetEventCallback,
      (cl_event event, cl_int state, void(CL_CALLBACK *notify)(cl_event, cl_int, void *), void *user),
      (event, state, notify, user))
QUERY(clWaitForEvents, (cl_uint n, const cl_event *events), (n, events))
QUERY(clFlush, (cl_command_queue queue), (queue))
QUERY(clFinish, (cl_command_queue queue), (queue))

static const struct {
    const char *name;
    void (*function)(void);
} table[] = {
#define ENTRY(name) {#name, (void (*)(void))wrapped_##name}
    ENTRY(clGetPlatformIDs),
    ENTRY(clGetPlatformInfo),
    ENTRY(clGetDeviceIDs),
    ENTRY(clGetDeviceInfo),
    ENTRY(clRetainDevice),
    ENTRY(clReleaseDevice),
    ENTRY(clCreateContext),
    ENTRY(clRetainContext),
    ENTRY(clReleaseContext),
    ENTRY(clGetContextInfo),
    ENTRY(clCreateCommandQueue),
    ENTRY(clRetainCommandQueue),
    ENTRY(clReleaseCommandQueue),
    ENTRY(clGetCommandQueueInfo),
    ENTRY(clCreateBuffer),
    ENTRY(clCreateImage),
    ENTRY(clGetImageInfo),
    ENTRY(clRetainMemObject),
    ENTRY(clReleaseMemObject),
    ENTRY(clGetMemObjectInfo),
    ENTRY(clCreateProgramWithSource),
    ENTRY(clCreateProgramWithBinary),
    ENTRY(clRetainProgram),
    ENTRY(clReleaseProgram),
    ENTRY(clBuildProgram),
    ENTRY(clGetProgramInfo),
    ENTRY(clGetProgramBuildInfo),
    ENTRY(clCreateKernel),
    ENTRY(clRetainKernel),
    ENTRY(clReleaseKernel),
    ENTRY(clSetKernelArg),
    ENTRY(clGetKernelInfo),
    ENTRY(clGetKernelWorkGroupInfo),
    ENTRY(clEnqueueNDRangeKernel),
    ENTRY(clEnqueueMarkerWithWaitList),
    ENTRY(clEnqueueBarrierWithWaitList),
    ENTRY(clEnqueueReadBuffer),
    ENTRY(clEnqueueReadImage),
    ENTRY(clEnqueueCopyImageToBuffer),
    ENTRY(clEnqueueCopyBufferToImage),
    ENTRY(clEnqueueWriteBuffer),
    ENTRY(clEnqueueCopyBuffer),
    ENTRY(clEnqueueCopyBufferRect),
    ENTRY(clEnqueueFillBuffer),
    ENTRY(clEnqueueMapBuffer),
    ENTRY(clEnqueueUnmapMemObject),
    ENTRY(clRetainEvent),
    ENTRY(clReleaseEvent),
    ENTRY(clGetEventInfo),
    ENTRY(clSetEventCallback),
    ENTRY(clWaitForEvents),
    ENTRY(clFlush),
    ENTRY(clFinish),
};

void *inject_get_proc(void *user, const char *name)
{
    (void)user;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(table[i].name, name)) {
            void *pointer;
            memcpy(&pointer, &table[i].function, sizeof pointer);
            return pointer;
        }
    return NULL;
}
