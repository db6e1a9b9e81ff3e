/* The table that CLBlast's calls come to: devices, contexts and queues, and what is refused. */
#include "ops/matmul/clblast/shown.h"

#include <string.h>

/* Part of the key by which CLBlast keeps binaries: no program of ours is taken for one of the application's. */
static const struct {
    const cl_icd_dispatch *dispatch;
} platform = {&shown_calls};

cl_int shown_answer(const void *value, size_t bytes, size_t room, void *into, size_t *needed)
{
    if (needed)
        *needed = bytes;
    if (!into)
        return CL_SUCCESS;
    if (room < bytes)
        return CL_INVALID_VALUE;
    memcpy(into, value, bytes);
    return CL_SUCCESS;
}

static cl_int CL_API_CALL get_device_info(cl_device_id id, cl_device_info name, size_t room, void *value, size_t *bytes)
{
    const struct clblast_objects *objects = OBJECTS(shown_device, id);
    const void *shown = &platform;
    if (name == CL_DEVICE_PLATFORM)
        return shown_answer(&shown, sizeof shown, room, value, bytes);
    return objects->cl.clGetDeviceInfo(objects->device, name, room, value, bytes);
}

static cl_int CL_API_CALL get_context_info(cl_context id, cl_context_info name, size_t room, void *value, size_t *bytes)
{
    const struct clblast_objects *objects = OBJECTS(shown_context, id);
    const void *shown = &objects->shown_device;
    const cl_uint one = 1;
    if (name == CL_CONTEXT_DEVICES)
        return shown_answer(&shown, sizeof shown, room, value, bytes);
    if (name == CL_CONTEXT_NUM_DEVICES)
        return shown_answer(&one, sizeof one, room, value, bytes);
    return objects->cl.clGetContextInfo(objects->context, name, room, value, bytes);
}

static cl_int CL_API_CALL get_queue_info(cl_command_queue id, cl_command_queue_info name, size_t room, void *value,
                                         size_t *bytes)
{
    const struct clblast_queue *queue = (const void *)id;
    const void *device = &queue->objects->shown_device, *context = &queue->objects->shown_context;
    if (name == CL_QUEUE_DEVICE)
        return shown_answer(&device, sizeof device, room, value, bytes);
    if (name == CL_QUEUE_CONTEXT)
        return shown_answer(&context, sizeof context, room, value, bytes);
    return queue->objects->cl.clGetCommandQueueInfo(queue->queue, name, room, value, bytes);
}

static cl_int CL_API_CALL keep_device(cl_device_id id)
{
    return id ? CL_SUCCESS : CL_INVALID_DEVICE;
}

static cl_int CL_API_CALL keep_context(cl_context id)
{
    return id ? CL_SUCCESS : CL_INVALID_CONTEXT;
}

static cl_int CL_API_CALL keep_queue(cl_command_queue id)
{
    return id ? CL_SUCCESS : CL_INVALID_COMMAND_QUEUE;
}

static cl_int CL_API_CALL finish(cl_command_queue id)
{
    const struct clblast_queue *queue = (const void *)id;
    return queue->objects->cl.clFinish(queue->queue);
}

static cl_mem CL_API_CALL create_buffer(cl_context id, cl_mem_flags flags, size_t bytes, void *host, cl_int *code)
{
    const struct clblast_objects *objects = OBJECTS(shown_context, id);
    return objects->cl.clCreateBuffer(objects->context, flags, bytes, host, code);
}

static cl_int CL_API_CALL enqueue_kernel(cl_command_queue id, cl_kernel kernel, cl_uint dimensions,
                                         const size_t *offset, const size_t *global, const size_t *local, cl_uint count,
                                         const cl_event *events, cl_event *event)
{
    const struct clblast_queue *queue = (const void *)id;
    const struct shown_kernel *shown = (const void *)kernel;
    return queue->objects->cl.clEnqueueNDRangeKernel(queue->queue, shown->kernel, dimensions, offset, global, local,
                                                     count, events, event);
}

/* What CLBlast asks for in other routines than those that are called, and what it might: a failure, which is its own
 * failure then, and no call through an empty entry. */
static cl_int CL_API_CALL no_copy(cl_command_queue id, cl_mem from, cl_mem to, size_t from_offset, size_t to_offset,
                                  size_t bytes, cl_uint count, const cl_event *events, cl_event *event)
{
    (void)id, (void)from, (void)to, (void)from_offset, (void)to_offset, (void)bytes, (void)count, (void)events;
    (void)event;
    return CL_INVALID_OPERATION;
}

static cl_int CL_API_CALL no_read(cl_command_queue id, cl_mem from, cl_bool blocking, size_t offset, size_t bytes,
                                  void *to, cl_uint count, const cl_event *events, cl_event *event)
{
    (void)id, (void)from, (void)blocking, (void)offset, (void)bytes, (void)to, (void)count, (void)events, (void)event;
    return CL_INVALID_OPERATION;
}

static cl_int CL_API_CALL no_write(cl_command_queue id, cl_mem to, cl_bool blocking, size_t offset, size_t bytes,
                                   const void *from, cl_uint count, const cl_event *events, cl_event *event)
{
    (void)id, (void)to, (void)blocking, (void)offset, (void)bytes, (void)from, (void)count, (void)events, (void)event;
    return CL_INVALID_OPERATION;
}

static cl_int CL_API_CALL no_fill(cl_command_queue id, cl_mem to, const void *pattern, size_t pattern_bytes,
                                  size_t offset, size_t bytes, cl_uint count, const cl_event *events, cl_event *event)
{
    (void)id, (void)to, (void)pattern, (void)pattern_bytes, (void)offset, (void)bytes, (void)count, (void)events;
    (void)event;
    return CL_INVALID_OPERATION;
}

static cl_int CL_API_CALL no_wait_list(cl_command_queue id, cl_uint count, const cl_event *events, cl_event *event)
{
    (void)id, (void)count, (void)events, (void)event;
    return CL_INVALID_OPERATION;
}

static cl_int CL_API_CALL no_flush(cl_command_queue id)
{
    (void)id;
    return CL_INVALID_OPERATION;
}

static cl_int CL_API_CALL no_kernel_info(cl_kernel id, cl_kernel_info name, size_t room, void *value, size_t *bytes)
{
    (void)id, (void)name, (void)room, (void)value, (void)bytes;
    return CL_INVALID_OPERATION;
}

static cl_int CL_API_CALL no_platform_info(cl_platform_id id, cl_platform_info name, size_t room, void *value,
                                           size_t *bytes)
{
    (void)id, (void)name, (void)room, (void)value, (void)bytes;
    return CL_INVALID_OPERATION;
}

static cl_command_queue CL_API_CALL no_queue(cl_context id, cl_device_id device, cl_command_queue_properties wanted,
                                             cl_int *code)
{
    (void)id, (void)device, (void)wanted;
    if (code)
        *code = CL_INVALID_OPERATION;
    return NULL;
}

const cl_icd_dispatch shown_calls = {
    .clGetPlatformInfo = no_platform_info,
    .clGetDeviceInfo = get_device_info,
    .clRetainDevice = keep_device,
    .clReleaseDevice = keep_device,
    .clGetContextInfo = get_context_info,
    .clRetainContext = keep_context,
    .clReleaseContext = keep_context,
    .clCreateCommandQueue = no_queue,
    .clGetCommandQueueInfo = get_queue_info,
    .clRetainCommandQueue = keep_queue,
    .clReleaseCommandQueue = keep_queue,
    .clFinish = finish,
    .clFlush = no_flush,
    .clCreateBuffer = create_buffer,
    .clCreateProgramWithSource = shown_program_of_source,
    .clCreateProgramWithBinary = shown_program_of_binary,
    .clBuildProgram = shown_program_build,
    .clGetProgramBuildInfo = shown_program_build_info,
    .clGetProgramInfo = shown_program_info,
    .clRetainProgram = shown_program_retain,
    .clReleaseProgram = shown_program_release,
    .clCreateKernel = shown_kernel_create,
    .clRetainKernel = shown_kernel_retain,
    .clReleaseKernel = shown_kernel_release,
    .clSetKernelArg = shown_kernel_set_argument,
    .clGetKernelInfo = no_kernel_info,
    .clGetKernelWorkGroupInfo = shown_kernel_group_info,
    .clEnqueueNDRangeKernel = enqueue_kernel,
    .clEnqueueCopyBuffer = no_copy,
    .clEnqueueReadBuffer = no_read,
    .clEnqueueWriteBuffer = no_write,
    .clEnqueueFillBuffer = no_fill,
    .clEnqueueMarkerWithWaitList = no_wait_list,
    .clEnqueueBarrierWithWaitList = no_wait_list,
};
