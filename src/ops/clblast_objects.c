/* Objects are looked at and changed under the lock of clblast_library.h alone; what CLBlast keeps of them (programs,
 * and the addresses of device and context as keys of its caches) is gone when they are destroyed.
 *
 * Kernels, events and memory: a kernel is stood in for, because CLBlast asks it about the device; events and memory
 * are the driver's. */
#include "ops/clblast_objects.h"

#include <stdlib.h>
#include <string.h>

#ifdef CLATTN_ICD_HEADER
#include <CL/cl_icd.h>

static const cl_icd_dispatch table;

/* Each begins with `dispatch`, where the loader looks. */
struct shown_device {
    const cl_icd_dispatch *dispatch;
    struct clblast_objects *objects;
};

struct shown_context {
    const cl_icd_dispatch *dispatch;
    struct clblast_objects *objects;
};

struct shown_program {
    const cl_icd_dispatch *dispatch;
    struct clblast_objects *objects;
    unsigned references;
    cl_program program; /* the driver's; NULL: not built */
    size_t bytes;
    char text[]; /* the source, `bytes` of it and a zero */
};

struct shown_kernel {
    const cl_icd_dispatch *dispatch;
    struct clblast_objects *objects;
    unsigned references;
    cl_kernel kernel;
};

struct clblast_objects {
    struct clblast_objects *next;
    struct cl_table cl; /* a copy: CLBlast may keep a program for longer than a context lives */
    cl_context context; /* retained, as is the device */
    cl_device_id device;
    bool usable;
    struct shown_device shown_device;
    struct shown_context shown_context;
};

static struct clblast_objects *clblast_first;

/* Part of the key by which CLBlast keeps binaries: no program of ours is taken for one of the application's. */
static const struct {
    const cl_icd_dispatch *dispatch;
} platform = {&table};

#define OBJECTS(type, handle) (((struct type *)(void *)(handle))->objects)

static cl_int answer(const void *value, size_t bytes, size_t room, void *into, size_t *needed)
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
        return answer(&shown, sizeof shown, room, value, bytes);
    return objects->cl.clGetDeviceInfo(objects->device, name, room, value, bytes);
}

static cl_int CL_API_CALL get_context_info(cl_context id, cl_context_info name, size_t room, void *value, size_t *bytes)
{
    const struct clblast_objects *objects = OBJECTS(shown_context, id);
    const void *shown = &objects->shown_device;
    const cl_uint one = 1;
    if (name == CL_CONTEXT_DEVICES)
        return answer(&shown, sizeof shown, room, value, bytes);
    if (name == CL_CONTEXT_NUM_DEVICES)
        return answer(&one, sizeof one, room, value, bytes);
    return objects->cl.clGetContextInfo(objects->context, name, room, value, bytes);
}

static cl_int CL_API_CALL get_queue_info(cl_command_queue id, cl_command_queue_info name, size_t room, void *value,
                                         size_t *bytes)
{
    const struct clblast_queue *queue = (const void *)id;
    const void *device = &queue->objects->shown_device, *context = &queue->objects->shown_context;
    if (name == CL_QUEUE_DEVICE)
        return answer(&device, sizeof device, room, value, bytes);
    if (name == CL_QUEUE_CONTEXT)
        return answer(&context, sizeof context, room, value, bytes);
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

static cl_program create_program(struct clblast_objects *objects, cl_uint count, const char *const *parts,
                                 const size_t *lengths, cl_int *code)
{
    size_t bytes = 0;
    cl_int ignored;
    struct shown_program *program;
    for (cl_uint i = 0; i < count; i++)
        bytes += lengths && lengths[i] ? lengths[i] : strlen(parts[i]);
    program = calloc(1, sizeof *program + bytes + 1);
    *(code ? code : &ignored) = program ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY;
    if (!program)
        return NULL;
    program->dispatch = &table;
    program->objects = objects;
    program->references = 1;
    for (cl_uint i = 0; i < count; i++) {
        size_t length = lengths && lengths[i] ? lengths[i] : strlen(parts[i]);
        memcpy(program->text + program->bytes, parts[i], length);
        program->bytes += length;
    }
    return (cl_program)(void *)program;
}

static cl_program CL_API_CALL create_from_source(cl_context id, cl_uint count, const char **parts,
                                                 const size_t *lengths, cl_int *code)
{
    return create_program(OBJECTS(shown_context, id), count, parts, lengths, code);
}

/* CLBlast has the "binary" from get_program_info: it is the source. */
static cl_program CL_API_CALL create_from_binary(cl_context id, cl_uint count, const cl_device_id *devices,
                                                 const size_t *lengths, const unsigned char **binaries,
                                                 cl_int *statuses, cl_int *code)
{
    const char *text = (const char *)binaries[0];
    (void)devices;
    if (statuses)
        statuses[0] = CL_SUCCESS;
    return create_program(OBJECTS(shown_context, id), count ? 1 : 0, &text, lengths, code);
}

static cl_int CL_API_CALL build_program(cl_program id, cl_uint count, const cl_device_id *devices, const char *options,
                                        void(CL_CALLBACK *notify)(cl_program, void *), void *user)
{
    struct shown_program *shown = (void *)id;
    const struct clblast_objects *objects = shown->objects;
    const char *text = shown->text;
    cl_int code;
    (void)count;
    (void)devices;
    (void)user;
    if (notify || shown->program)
        return CL_INVALID_OPERATION;
    shown->program = objects->cl.clCreateProgramWithSource(objects->context, 1, &text, &shown->bytes, &code);
    if (!shown->program)
        return code;
    return objects->cl.clBuildProgram(shown->program, 1, &objects->device, options, NULL, NULL);
}

static cl_int CL_API_CALL get_build_info(cl_program id, cl_device_id device, cl_program_build_info name, size_t room,
                                         void *value, size_t *bytes)
{
    const struct shown_program *shown = (const void *)id;
    const struct clblast_objects *objects = shown->objects;
    (void)device;
    if (!shown->program)
        return CL_INVALID_PROGRAM;
    return objects->cl.clGetProgramBuildInfo(shown->program, objects->device, name, room, value, bytes);
}

static cl_int CL_API_CALL get_program_info(cl_program id, cl_program_info name, size_t room, void *value, size_t *bytes)
{
    const struct shown_program *shown = (const void *)id;
    if (name == CL_PROGRAM_BINARY_SIZES)
        return answer(&shown->bytes, sizeof shown->bytes, room, value, bytes);
    if (name == CL_PROGRAM_BINARIES) {
        if (bytes)
            *bytes = sizeof(unsigned char *);
        if (value && room < sizeof(unsigned char *))
            return CL_INVALID_VALUE;
        if (value && *(unsigned char **)value)
            memcpy(*(unsigned char **)value, shown->text, shown->bytes);
        return CL_SUCCESS;
    }
    return shown->program ? shown->objects->cl.clGetProgramInfo(shown->program, name, room, value, bytes)
                          : CL_INVALID_PROGRAM;
}

static cl_int CL_API_CALL retain_program(cl_program id)
{
    ((struct shown_program *)(void *)id)->references++;
    return CL_SUCCESS;
}

static cl_int CL_API_CALL release_program(cl_program id)
{
    struct shown_program *shown = (void *)id;
    if (--shown->references)
        return CL_SUCCESS;
    if (shown->program)
        shown->objects->cl.clReleaseProgram(shown->program);
    free(shown);
    return CL_SUCCESS;
}

static cl_kernel CL_API_CALL create_kernel(cl_program id, const char *name, cl_int *code)
{
    const struct shown_program *program = (const void *)id;
    struct shown_kernel *shown = calloc(1, sizeof *shown);
    cl_int failure = CL_OUT_OF_HOST_MEMORY;
    if (shown) {
        failure = CL_INVALID_PROGRAM_EXECUTABLE;
        if (program->program)
            shown->kernel = program->objects->cl.clCreateKernel(program->program, name, &failure);
    }
    if (code)
        *code = failure;
    if (!shown || !shown->kernel) {
        free(shown);
        return NULL;
    }
    shown->dispatch = &table;
    shown->objects = program->objects;
    shown->references = 1;
    return (cl_kernel)(void *)shown;
}

static cl_int CL_API_CALL retain_kernel(cl_kernel id)
{
    ((struct shown_kernel *)(void *)id)->references++;
    return CL_SUCCESS;
}

static cl_int CL_API_CALL release_kernel(cl_kernel id)
{
    struct shown_kernel *shown = (void *)id;
    if (--shown->references)
        return CL_SUCCESS;
    shown->objects->cl.clReleaseKernel(shown->kernel);
    free(shown);
    return CL_SUCCESS;
}

static cl_int CL_API_CALL set_argument(cl_kernel id, cl_uint i, size_t bytes, const void *value)
{
    const struct shown_kernel *shown = (const void *)id;
    return shown->objects->cl.clSetKernelArg(shown->kernel, i, bytes, value);
}

static cl_int CL_API_CALL get_group_info(cl_kernel id, cl_device_id device, cl_kernel_work_group_info name, size_t room,
                                         void *value, size_t *bytes)
{
    const struct shown_kernel *shown = (const void *)id;
    const struct clblast_objects *objects = shown->objects;
    (void)device;
    return objects->cl.clGetKernelWorkGroupInfo(shown->kernel, objects->device, name, room, value, bytes);
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

static const cl_icd_dispatch table = {
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
    .clCreateProgramWithSource = create_from_source,
    .clCreateProgramWithBinary = create_from_binary,
    .clBuildProgram = build_program,
    .clGetProgramBuildInfo = get_build_info,
    .clGetProgramInfo = get_program_info,
    .clRetainProgram = retain_program,
    .clReleaseProgram = release_program,
    .clCreateKernel = create_kernel,
    .clRetainKernel = retain_kernel,
    .clReleaseKernel = release_kernel,
    .clSetKernelArg = set_argument,
    .clGetKernelInfo = no_kernel_info,
    .clGetKernelWorkGroupInfo = get_group_info,
    .clEnqueueNDRangeKernel = enqueue_kernel,
    .clEnqueueCopyBuffer = no_copy,
    .clEnqueueReadBuffer = no_read,
    .clEnqueueWriteBuffer = no_write,
    .clEnqueueFillBuffer = no_fill,
    .clEnqueueMarkerWithWaitList = no_wait_list,
    .clEnqueueBarrierWithWaitList = no_wait_list,
};

/* Whether calls reach the driver through the table that its device begins with: the platform says that it has tables,
 * and the function that this library is linked with is not the driver's own, but the loader's. */
static bool calls_are_dispatched(const struct cl_table *cl, const struct capabilities *caps)
{
    char extensions[4096] = "";
    const cl_icd_dispatch *driver;
    if (cl->clGetPlatformInfo(caps->platform, CL_PLATFORM_EXTENSIONS, sizeof extensions - 1, extensions, NULL) !=
            CL_SUCCESS ||
        !strstr(extensions, "cl_khr_icd"))
        return false;
    memcpy(&driver, (const void *)caps->device, sizeof driver);
    return driver && driver->clGetDeviceInfo != cl->clGetDeviceInfo;
}

static struct clblast_objects *make(clattn_context *context)
{
    struct clblast_objects *objects = calloc(1, sizeof *objects);
    if (!objects)
        return NULL;
    objects->cl = context->device.cl;
    objects->usable = (context->device.caps.quirks & QUIRK_COMPILES_BY_GRID) &&
                      calls_are_dispatched(&objects->cl, &context->device.caps);
    if (objects->cl.clRetainContext(context->device.context) != CL_SUCCESS) {
        free(objects);
        return NULL;
    }
    if (objects->cl.clRetainDevice(context->device.caps.device) != CL_SUCCESS) {
        objects->cl.clReleaseContext(context->device.context);
        free(objects);
        return NULL;
    }
    objects->context = context->device.context;
    objects->device = context->device.caps.device;
    objects->shown_device = (struct shown_device){&table, objects};
    objects->shown_context = (struct shown_context){&table, objects};
    objects->next = clblast_first;
    clblast_first = objects;
    return objects;
}

struct clblast_objects *clblast_objects_of(clattn_context *context)
{
    struct clblast_objects *objects = clblast_first;
    while (objects &&
           (objects->context != context->device.context || objects->device != context->device.caps.device))
        objects = objects->next;
    if (!objects)
        objects = make(context);
    return objects && objects->usable ? objects : NULL;
}

bool clblast_objects_give_up(clattn_context *context)
{
    struct clblast_objects *objects = clblast_objects_of(context);
    if (objects)
        objects->usable = false;
    return objects;
}

cl_command_queue clblast_objects_queue(struct clblast_objects *objects, cl_command_queue queue,
                                       struct clblast_queue *storage)
{
    if (!objects)
        return queue;
    *storage = (struct clblast_queue){&table, objects, queue};
    return (cl_command_queue)(void *)storage;
}

void clblast_objects_clear(void)
{
    while (clblast_first) {
        struct clblast_objects *objects = clblast_first;
        clblast_first = objects->next;
        objects->cl.clReleaseDevice(objects->device);
        objects->cl.clReleaseContext(objects->context);
        free(objects);
    }
}

#else

struct clblast_objects *clblast_objects_of(clattn_context *context)
{
    (void)context;
    return NULL;
}

bool clblast_objects_give_up(clattn_context *context)
{
    (void)context;
    return false;
}

cl_command_queue clblast_objects_queue(struct clblast_objects *objects, cl_command_queue queue,
                                       struct clblast_queue *storage)
{
    (void)objects;
    (void)storage;
    return queue;
}

void clblast_objects_clear(void)
{
}

#endif
