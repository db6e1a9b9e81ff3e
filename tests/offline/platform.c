/* An OpenCL platform whose one device answers queries but builds and computes nothing. */
#include <stdlib.h>
#include <string.h>

#include "offline.h"

#define UUID_QUERY 0x106A
#define SUB_GROUP_SIZES_QUERY 0x4108
#define CAPABILITY_QUERY 0x4000
#define CAPABILITY_MINOR_QUERY 0x4001
#define WARP_QUERY 0x4003
#define WAVEFRONT_QUERY 0x4043
#define SUB_GROUPS_QUERY 0x105C /* CL_DEVICE_MAX_NUM_SUB_GROUPS of OpenCL 2.1 */

static const offline_target *device;

/* Every OpenCL object is one of these, so that handles are distinct and reference counts are kept. */
typedef struct object {
    int references;
    char *source, *options; /* of a program */
    char *binary;           /* from which a program was made */
    struct object *program; /* of a kernel, as are the next two */
    char *name;
    size_t local[3];
    cl_context context;  /* of a buffer or queue */
    size_t bytes;        /* of a buffer */
    struct object *next; /* in the list of kernels */
} object;

static object *kernels;

const char platform_ptx[] = ".version 8.4\n.target sm_90, texmode_independent\n.entry matmul_wgmma()\n{\n"
                            "\t//clattn.wgmma proxy\n\t//clattn.wgmma fence\n"
                            "\t//clattn.wgmma multiply 8 bf16 0 0 %rd1 %rd2 %f1 %f2 %f3 %f4\n"
                            "\t//clattn.wgmma commit\n\t//clattn.wgmma wait 0\n\tret;\n}\n";
static const char *given_binary = platform_ptx;
static char *source_of_binary; /* source of the program whose binary was read last */

void platform_give_binary(const char *text)
{
    given_binary = text;
}

void platform_use(const offline_target *chosen)
{
    device = chosen;
}

void platform_visit_kernels(void (*visit)(void *user, const built_kernel *kernel), void *user)
{
    for (const object *k = kernels; k; k = k->next) {
        built_kernel kernel = {k->name,
                               k->program->source,
                               k->program->options,
                               k->program->binary,
                               {k->local[0], k->local[1], k->local[2]}};
        visit(user, &kernel);
    }
}

static void *allocate(size_t bytes)
{
    void *memory = calloc(1, bytes);
    if (!memory)
        abort();
    return memory;
}

static char *copy(const char *text)
{
    return strcpy(allocate(strlen(text) + 1), text);
}

static object *make(cl_int *code)
{
    object *made = allocate(sizeof *made);
    made->references = 1;
    if (code)
        *code = CL_SUCCESS;
    return made;
}

static void drop(object *o)
{
    if (--o->references > 0)
        return;
    if (o->program) {
        object **link = &kernels;
        while (*link != o)
            link = &(*link)->next;
        *link = o->next;
        drop(o->program);
    }
    free(o->source);
    free(o->options);
    free(o->binary);
    free(o->name);
    free(o);
}

/* Answers a query like OpenCL, refusing truncation. */
static cl_int answer(const void *data, size_t data_bytes, size_t bytes, void *value, size_t *size)
{
    if (size)
        *size = data_bytes;
    if (value && bytes < data_bytes)
        return CL_INVALID_VALUE;
    if (value)
        memcpy(value, data, data_bytes);
    return CL_SUCCESS;
}

#define ANSWER(type, data) answer(&(type){data}, sizeof(type), bytes, value, size)
#define ANSWER_TEXT(text) answer(text, strlen(text) + 1, bytes, value, size)

static cl_int CL_API_CALL GetPlatformIDs(cl_uint n, cl_platform_id *list, cl_uint *count)
{
    if (count)
        *count = 1;
    if (list && n)
        *list = (cl_platform_id)(uintptr_t)device;
    return CL_SUCCESS;
}

static cl_int CL_API_CALL GetPlatformInfo(cl_platform_id p, cl_platform_info query, size_t bytes, void *value,
                                          size_t *size)
{
    (void)p;
    switch (query) {
    case CL_PLATFORM_NAME: return ANSWER_TEXT(device->platform);
    case CL_PLATFORM_VENDOR: return ANSWER_TEXT(device->vendor);
    case CL_PLATFORM_VERSION: return ANSWER_TEXT(device->version);
    case CL_PLATFORM_EXTENSIONS: return ANSWER_TEXT("");
    default: return CL_INVALID_VALUE;
    }
}

static cl_int CL_API_CALL GetDeviceIDs(cl_platform_id p, cl_device_type type, cl_uint n, cl_device_id *list,
                                       cl_uint *count)
{
    (void)p, (void)type;
    if (count)
        *count = 1;
    if (list && n)
        *list = (cl_device_id)(uintptr_t)device;
    return CL_SUCCESS;
}

static cl_int vendor_query(cl_device_info query, size_t bytes, void *value, size_t *size)
{
    size_t count = 0;
    if (query == CAPABILITY_QUERY && device->capability)
        return ANSWER(cl_uint, device->capability);
    if (query == CAPABILITY_MINOR_QUERY && device->capability)
        return ANSWER(cl_uint, device->capability_minor);
    if (query == WARP_QUERY && device->warp)
        return ANSWER(cl_uint, device->warp);
    if (query == WAVEFRONT_QUERY && device->wavefront)
        return ANSWER(cl_uint, device->wavefront);
    while (count < 3 && device->sub_groups[count])
        count++;
    if (query == SUB_GROUP_SIZES_QUERY && count)
        return answer(device->sub_groups, count * sizeof device->sub_groups[0], bytes, value, size);
    if (query == SUB_GROUPS_QUERY)
        return ANSWER(cl_uint, device->sub_groups_per_group);
    if (query == UUID_QUERY)
        return answer("\1\2\3\4\5\6\7\10\11\12\13\14\15\16\17", 16, bytes, value, size);
    return CL_INVALID_VALUE;
}

static cl_int CL_API_CALL GetDeviceInfo(cl_device_id id, cl_device_info query, size_t bytes, void *value, size_t *size)
{
    const cl_device_fp_config ieee = CL_FP_DENORM | CL_FP_INF_NAN | CL_FP_ROUND_TO_NEAREST | CL_FP_FMA;
    (void)id;
    switch (query) {
    case CL_DEVICE_AVAILABLE:
    case CL_DEVICE_COMPILER_AVAILABLE: return ANSWER(cl_bool, CL_TRUE);
    case CL_DEVICE_PLATFORM: return ANSWER(cl_platform_id, (cl_platform_id)(uintptr_t)device);
    case CL_DEVICE_NAME: return ANSWER_TEXT(device->device);
    case CL_DEVICE_VENDOR: return ANSWER_TEXT(device->vendor);
    case CL_DRIVER_VERSION: return ANSWER_TEXT(device->driver);
    case CL_DEVICE_VERSION: return ANSWER_TEXT(device->version);
    case CL_DEVICE_EXTENSIONS: return ANSWER_TEXT(device->extensions);
    case CL_DEVICE_TYPE: return ANSWER(cl_device_type, CL_DEVICE_TYPE_GPU);
    case CL_DEVICE_MAX_COMPUTE_UNITS: return ANSWER(cl_uint, device->compute_units);
    case CL_DEVICE_MAX_CLOCK_FREQUENCY: return ANSWER(cl_uint, device->clock_mhz);
    case CL_DEVICE_PREFERRED_VECTOR_WIDTH_FLOAT:
    case CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT: return ANSWER(cl_uint, 1);
    case CL_DEVICE_GLOBAL_MEM_SIZE: return ANSWER(cl_ulong, device->global_memory);
    case CL_DEVICE_MAX_MEM_ALLOC_SIZE: return ANSWER(cl_ulong, device->max_allocation);
    case CL_DEVICE_LOCAL_MEM_SIZE: return ANSWER(cl_ulong, device->local_memory);
    case CL_DEVICE_LOCAL_MEM_TYPE: return ANSWER(cl_device_local_mem_type, CL_LOCAL);
    case CL_DEVICE_MAX_WORK_GROUP_SIZE: return ANSWER(size_t, device->max_work_group);
    case CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS: return ANSWER(cl_uint, 3);
    case CL_DEVICE_MAX_WORK_ITEM_SIZES:
        return answer(device->max_work_item, sizeof device->max_work_item, bytes, value, size);
    case CL_DEVICE_MEM_BASE_ADDR_ALIGN: return ANSWER(cl_uint, 1024);
    case CL_DEVICE_QUEUE_PROPERTIES:
        return ANSWER(cl_command_queue_properties, CL_QUEUE_PROFILING_ENABLE | CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    case CL_DEVICE_SINGLE_FP_CONFIG: return ANSWER(cl_device_fp_config, ieee);
    case CL_DEVICE_DOUBLE_FP_CONFIG: return ANSWER(cl_device_fp_config, device->fp64 ? ieee : 0);
    case CL_DEVICE_HOST_UNIFIED_MEMORY: return ANSWER(cl_bool, CL_FALSE);
    case CL_DEVICE_IMAGE_SUPPORT:
    case CL_DEVICE_ENDIAN_LITTLE: return ANSWER(cl_bool, CL_TRUE);
    default: return vendor_query(query, bytes, value, size);
    }
}

static cl_int CL_API_CALL RetainDevice(cl_device_id id)
{
    (void)id;
    return CL_SUCCESS;
}

#define RELEASE(Kind, type) \
    static cl_int CL_API_CALL Release##Kind(type o) \
    { \
        drop((object *)(void *)o); \
        return CL_SUCCESS; \
    }
RELEASE(Context, cl_context)
RELEASE(CommandQueue, cl_command_queue)
RELEASE(MemObject, cl_mem)
RELEASE(Program, cl_program)
RELEASE(Kernel, cl_kernel)
RELEASE(Event, cl_event)

static cl_context CL_API_CALL CreateContext(const cl_context_properties *properties, cl_uint n,
                                            const cl_device_id *devices,
                                            void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *),
                                            void *user, cl_int *code)
{
    (void)properties, (void)n, (void)devices, (void)notify, (void)user;
    return (cl_context)(void *)make(code);
}

static cl_command_queue CL_API_CALL CreateCommandQueue(cl_context c, cl_device_id d,
                                                       cl_command_queue_properties properties, cl_int *code)
{
    object *queue = make(code);
    (void)d, (void)properties;
    queue->context = c;
    return (cl_command_queue)(void *)queue;
}

/* The library queries queues and buffers only once work is enqueued, which never happens here. */
static cl_int CL_API_CALL GetCommandQueueInfo(cl_command_queue q, cl_command_queue_info query, size_t bytes,
                                              void *value, size_t *size)
{
    const object *queue = (object *)(void *)q;
    switch (query) {
    case CL_QUEUE_CONTEXT: return ANSWER(cl_context, queue->context);
    case CL_QUEUE_DEVICE: return ANSWER(cl_device_id, (cl_device_id)(uintptr_t)device);
    case CL_QUEUE_PROPERTIES: return ANSWER(cl_command_queue_properties, 0);
    default: return CL_INVALID_VALUE;
    }
}

static cl_int CL_API_CALL GetMemObjectInfo(cl_mem m, cl_mem_info query, size_t bytes, void *value, size_t *size)
{
    const object *buffer = (object *)(void *)m;
    switch (query) {
    case CL_MEM_TYPE: return ANSWER(cl_mem_object_type, CL_MEM_OBJECT_BUFFER);
    case CL_MEM_CONTEXT: return ANSWER(cl_context, buffer->context);
    case CL_MEM_SIZE: return ANSWER(size_t, buffer->bytes);
    case CL_MEM_FLAGS: return ANSWER(cl_mem_flags, CL_MEM_READ_WRITE);
    default: return CL_INVALID_VALUE;
    }
}

static cl_mem CL_API_CALL CreateBuffer(cl_context c, cl_mem_flags flags, size_t bytes, void *data, cl_int *code)
{
    object *buffer = make(code);
    (void)flags, (void)data;
    buffer->context = c;
    buffer->bytes = bytes;
    return (cl_mem)(void *)buffer;
}

static cl_mem CL_API_CALL CreateImage(cl_context c, cl_mem_flags flags, const cl_image_format *format,
                                      const cl_image_desc *desc, void *data, cl_int *code)
{
    (void)c, (void)flags, (void)format, (void)desc, (void)data;
    return (cl_mem)(void *)make(code);
}

static cl_program CL_API_CALL CreateProgramWithSource(cl_context c, cl_uint n, const char **texts,
                                                      const size_t *lengths, cl_int *code)
{
    object *program = make(code);
    size_t total = 0;
    (void)c;
    program->source = copy("");
    for (cl_uint i = 0; i < n; i++) {
        size_t length = lengths && lengths[i] ? lengths[i] : strlen(texts[i]);
        char *longer = allocate(total + length + 1);
        memcpy(longer, program->source, total);
        memcpy(longer + total, texts[i], length);
        free(program->source);
        program->source = longer;
        total += length;
    }
    return (cl_program)(void *)program;
}

static cl_program CL_API_CALL CreateProgramWithBinary(cl_context c, cl_uint n, const cl_device_id *devices,
                                                      const size_t *lengths, const unsigned char **binaries,
                                                      cl_int *each, cl_int *code)
{
    (void)c, (void)n, (void)devices, (void)each;
    if (!source_of_binary) {
        *code = CL_INVALID_BINARY;
        return NULL;
    }
    object *program = make(code);
    program->source = copy(source_of_binary);
    program->binary = allocate(lengths[0] + 1);
    memcpy(program->binary, binaries[0], lengths[0]);
    return (cl_program)(void *)program;
}

static cl_int CL_API_CALL BuildProgram(cl_program p, cl_uint n, const cl_device_id *devices, const char *options,
                                       void(CL_CALLBACK *notify)(cl_program, void *), void *user)
{
    object *program = (object *)(void *)p;
    (void)n, (void)devices, (void)notify, (void)user;
    free(program->options);
    program->options = copy(options ? options : "");
    return CL_SUCCESS;
}

/* No log: the compilers run later. */
static cl_int CL_API_CALL GetProgramBuildInfo(cl_program p, cl_device_id d, cl_program_build_info query, size_t bytes,
                                              void *value, size_t *size)
{
    (void)p, (void)d, (void)query;
    return ANSWER(char, '\0');
}

static cl_int CL_API_CALL GetProgramInfo(cl_program p, cl_program_info query, size_t bytes, void *value, size_t *size)
{
    const object *program = (object *)(void *)p;
    if (!given_binary || !program->options || !strstr(program->options, "-DPTX_SPLICE=1"))
        return CL_INVALID_VALUE; /* there is no binary */
    switch (query) {
    case CL_PROGRAM_NUM_DEVICES: return ANSWER(cl_uint, 1);
    case CL_PROGRAM_DEVICES: return ANSWER(cl_device_id, (cl_device_id)(uintptr_t)device);
    case CL_PROGRAM_BINARY_SIZES: return ANSWER(size_t, strlen(given_binary) + 1);
    case CL_PROGRAM_BINARIES:
        memcpy(((unsigned char **)value)[0], given_binary, strlen(given_binary) + 1);
        free(source_of_binary);
        source_of_binary = copy(program->source);
        return CL_SUCCESS;
    default: return CL_INVALID_VALUE;
    }
}

static cl_kernel CL_API_CALL CreateKernel(cl_program p, const char *name, cl_int *code)
{
    object *kernel = make(code), **last = &kernels;
    kernel->program = (object *)(void *)p;
    kernel->program->references++;
    kernel->name = copy(name);
    while (*last)
        last = &(*last)->next;
    *last = kernel;
    return (cl_kernel)(void *)kernel;
}

static cl_int CL_API_CALL SetKernelArg(cl_kernel k, cl_uint index, size_t bytes, const void *value)
{
    (void)k, (void)index, (void)bytes, (void)value;
    return CL_SUCCESS;
}

static cl_int CL_API_CALL GetKernelWorkGroupInfo(cl_kernel k, cl_device_id d, cl_kernel_work_group_info query,
                                                 size_t bytes, void *value, size_t *size)
{
    (void)k, (void)d;
    switch (query) {
    case CL_KERNEL_WORK_GROUP_SIZE: return ANSWER(size_t, device->max_work_group);
    case CL_KERNEL_LOCAL_MEM_SIZE:
    case CL_KERNEL_PRIVATE_MEM_SIZE: return ANSWER(cl_ulong, 0);
    default: return CL_INVALID_VALUE;
    }
}

static cl_int finished(cl_event *event)
{
    if (event)
        *event = (cl_event)(void *)make(NULL);
    return CL_SUCCESS;
}

static cl_int CL_API_CALL EnqueueNDRangeKernel(cl_command_queue q, cl_kernel k, cl_uint dimensions,
                                               const size_t *offset, const size_t *global, const size_t *local,
                                               cl_uint n, const cl_event *waits, cl_event *event)
{
    (void)q, (void)offset, (void)global, (void)n, (void)waits;
    for (cl_uint i = 0; i < 3; i++)
        ((object *)(void *)k)->local[i] = i < dimensions &&local ? local[i] : 1;
    return finished(event);
}

static cl_int CL_API_CALL EnqueueReadBuffer(cl_command_queue q, cl_mem m, cl_bool blocking, size_t offset, size_t bytes,
                                            void *data, cl_uint n, const cl_event *waits, cl_event *event)
{
    (void)q, (void)m, (void)blocking, (void)offset, (void)n, (void)waits;
    memset(data, 0, bytes);
    return finished(event);
}

static cl_int CL_API_CALL Finish(cl_command_queue q)
{
    (void)q;
    return CL_SUCCESS;
}

/* Stands for functions that the library needs and calls only to compute. */
static void not_here(void)
{
    abort();
}

static const struct {
    const char *name;
    void (*function)(void);
} table[] = {
#define ENTRY(name) {"cl" #name, (void (*)(void))name}
#define NOT_HERE(name) {"cl" #name, not_here}
    ENTRY(GetPlatformIDs),
    ENTRY(GetPlatformInfo),
    ENTRY(GetDeviceIDs),
    ENTRY(GetDeviceInfo),
    ENTRY(RetainDevice),
    {"clReleaseDevice", (void (*)(void))RetainDevice},
    ENTRY(CreateContext),
    NOT_HERE(RetainContext),
    ENTRY(ReleaseContext),
    NOT_HERE(GetContextInfo),
    ENTRY(CreateCommandQueue),
    NOT_HERE(RetainCommandQueue),
    ENTRY(ReleaseCommandQueue),
    ENTRY(GetCommandQueueInfo),
    ENTRY(CreateBuffer),
    NOT_HERE(RetainMemObject),
    ENTRY(ReleaseMemObject),
    ENTRY(GetMemObjectInfo),
    ENTRY(CreateImage),
    NOT_HERE(GetImageInfo),
    ENTRY(CreateProgramWithSource),
    ENTRY(CreateProgramWithBinary),
    ENTRY(ReleaseProgram),
    ENTRY(BuildProgram),
    ENTRY(GetProgramInfo),
    ENTRY(GetProgramBuildInfo),
    ENTRY(CreateKernel),
    ENTRY(ReleaseKernel),
    ENTRY(SetKernelArg),
    ENTRY(GetKernelWorkGroupInfo),
    ENTRY(EnqueueNDRangeKernel),
    NOT_HERE(EnqueueMarkerWithWaitList),
    NOT_HERE(EnqueueBarrierWithWaitList),
    NOT_HERE(EnqueueWriteBuffer),
    NOT_HERE(EnqueueFillBuffer),
    NOT_HERE(EnqueueCopyBuffer),
    NOT_HERE(EnqueueCopyBufferRect),
    NOT_HERE(EnqueueMapBuffer),
    NOT_HERE(EnqueueUnmapMemObject),
    ENTRY(EnqueueReadBuffer),
    NOT_HERE(EnqueueReadImage),
    NOT_HERE(EnqueueCopyImageToBuffer),
    NOT_HERE(EnqueueCopyBufferToImage),
    NOT_HERE(RetainEvent),
    ENTRY(ReleaseEvent),
    NOT_HERE(GetEventInfo),
    ENTRY(Finish),
    NOT_HERE(Flush),
    NOT_HERE(WaitForEvents),
};

void *platform_get_proc(void *user, const char *name)
{
    (void)user;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (!strcmp(table[i].name, name)) {
            void *pointer;
            memcpy(&pointer, &table[i].function, sizeof pointer);
            return pointer;
        }
    return NULL;
}
