#define _GNU_SOURCE /* RTLD_DEFAULT */
#include "support/core/record.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "support/harness.h"

enum { COMMANDS = 512, ARGUMENTS = 1 << 14, MEMORIES = 64, WAITS = 32 };

static struct command {
    cl_command_queue queue;
    cl_event event; /* retained, so that no other event gets its handle */
    cl_event waits[WAITS];
    cl_uint wait_count;
    bool waits_for_all; /* that were enqueued on its queue before it */
    bool holds_all;     /* a barrier: what is enqueued on its queue later waits for it */
    bool touches, behind, before;
} commands[COMMANDS];
static size_t command_count;

/* The arguments of kernels that are memory. */
static struct argument {
    cl_kernel kernel;
    cl_uint index;
    cl_mem memory;
} arguments[ARGUMENTS];
static size_t argument_count;

static cl_mem memories[MEMORIES];
static size_t memory_count;
static cl_event acquired;

static bool is_watched(cl_mem memory)
{
    for (size_t i = 0; i < memory_count; i++)
        if (memories[i] == memory)
            return true;
    return false;
}

static bool kernel_touches(cl_kernel kernel)
{
    for (size_t i = 0; i < argument_count; i++)
        if (arguments[i].kernel == kernel && is_watched(arguments[i].memory))
            return true;
    return false;
}

static void forget_kernel(cl_kernel kernel)
{
    size_t kept = 0;
    for (size_t i = 0; i < argument_count; i++)
        if (arguments[i].kernel != kernel)
            arguments[kept++] = arguments[i];
    argument_count = kept;
}

static void set_argument(cl_kernel kernel, cl_uint index, cl_mem memory)
{
    struct argument *a = arguments;
    while (a < arguments + argument_count && (a->kernel != kernel || a->index != index))
        a++;
    if (a == arguments + argument_count)
        assert_true(++argument_count <= ARGUMENTS);
    *a = (struct argument){kernel, index, memory};
}

static bool in_order(cl_command_queue queue)
{
    cl_command_queue_properties properties = 0;
    assert_cl(clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES, sizeof properties, &properties, NULL));
    return !(properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
}

/* Whether `later` cannot begin before `earlier`, which was enqueued before it, is complete: by what is known of `later` alone. */
static bool follows(const struct command *later, const struct command *earlier)
{
    for (cl_uint i = 0; i < later->wait_count; i++)
        if (later->waits[i] == earlier->event)
            return true;
    return later->queue == earlier->queue && (later->waits_for_all || earlier->holds_all);
}

/* Notes a command that has been enqueued; `event` is its own, or NULL, then the caller did not ask for one. */
static void note(cl_command_queue queue, bool touches, bool waits_for_all, bool holds_all, cl_uint count,
                 const cl_event *waits, cl_event event)
{
    struct command *c = &commands[command_count];
    assert_true(command_count < COMMANDS && count <= WAITS);
    *c = (struct command){
        .queue = queue, .event = event, .wait_count = count, .touches = touches, .holds_all = holds_all};
    c->waits_for_all = (waits_for_all && !count) || in_order(queue);
    assert_cl(clRetainEvent(event));
    for (cl_uint i = 0; i < count; i++) {
        c->waits[i] = waits[i];
        c->behind = c->behind || waits[i] == acquired;
    }
    for (size_t i = 0; i < command_count; i++)
        c->behind = c->behind || (commands[i].behind && follows(c, &commands[i]));
    command_count++;
}

/* Defines a command of `parameters`, that ends in n, waits and event; `touches` says what it does with its memory. */
#define COMMAND(name, touches, all, holds, parameters, arguments) \
    static cl_int CL_API_CALL recorded_##name parameters \
    { \
        cl_event own = NULL, *asked = event; \
        event = &own; \
        const cl_int code = name arguments; \
        if (code == CL_SUCCESS) { \
            note(queue, touches, all, holds, n, waits, own); \
            if (asked) \
                *asked = own; \
            else \
                assert_cl(clReleaseEvent(own)); \
        } \
        return code; \
    }

COMMAND(clEnqueueNDRangeKernel, kernel_touches(kernel), false, false,
        (cl_command_queue queue, cl_kernel kernel, cl_uint rank, const size_t *offset, const size_t *global,
         const size_t *local, cl_uint n, const cl_event *waits, cl_event *event),
        (queue, kernel, rank, offset, global, local, n, waits, event))
COMMAND(clEnqueueMarkerWithWaitList, false, true, false,
        (cl_command_queue queue, cl_uint n, const cl_event *waits, cl_event *event), (queue, n, waits, event))
COMMAND(clEnqueueBarrierWithWaitList, false, true, true,
        (cl_command_queue queue, cl_uint n, const cl_event *waits, cl_event *event), (queue, n, waits, event))
COMMAND(clEnqueueReadBuffer, is_watched(buffer), false, false,
        (cl_command_queue queue, cl_mem buffer, cl_bool blocking, size_t offset, size_t bytes, void *data, cl_uint n,
         const cl_event *waits, cl_event *event),
        (queue, buffer, blocking, offset, bytes, data, n, waits, event))
COMMAND(clEnqueueReadImage, is_watched(image), false, false,
        (cl_command_queue queue, cl_mem image, cl_bool blocking, const size_t *origin, const size_t *region, size_t row,
         size_t slice, void *data, cl_uint n, const cl_event *waits, cl_event *event),
        (queue, image, blocking, origin, region, row, slice, data, n, waits, event))
COMMAND(clEnqueueCopyImageToBuffer, is_watched(image) || is_watched(buffer), false, false,
        (cl_command_queue queue, cl_mem image, cl_mem buffer, const size_t *origin, const size_t *region, size_t offset,
         cl_uint n, const cl_event *waits, cl_event *event),
        (queue, image, buffer, origin, region, offset, n, waits, event))
COMMAND(clEnqueueCopyBufferToImage, is_watched(buffer) || is_watched(image), false, false,
        (cl_command_queue queue, cl_mem buffer, cl_mem image, size_t offset, const size_t *origin, const size_t *region,
         cl_uint n, const cl_event *waits, cl_event *event),
        (queue, buffer, image, offset, origin, region, n, waits, event))
COMMAND(clEnqueueWriteBuffer, is_watched(buffer), false, false,
        (cl_command_queue queue, cl_mem buffer, cl_bool blocking, size_t offset, size_t bytes, const void *data,
         cl_uint n, const cl_event *waits, cl_event *event),
        (queue, buffer, blocking, offset, bytes, data, n, waits, event))
COMMAND(clEnqueueFillBuffer, is_watched(buffer), false, false,
        (cl_command_queue queue, cl_mem buffer, const void *pattern, size_t pattern_bytes, size_t offset, size_t bytes,
         cl_uint n, const cl_event *waits, cl_event *event),
        (queue, buffer, pattern, pattern_bytes, offset, bytes, n, waits, event))
COMMAND(clEnqueueCopyBuffer, is_watched(from) || is_watched(to), false, false,
        (cl_command_queue queue, cl_mem from, cl_mem to, size_t from_offset, size_t to_offset, size_t bytes, cl_uint n,
         const cl_event *waits, cl_event *event),
        (queue, from, to, from_offset, to_offset, bytes, n, waits, event))
COMMAND(clEnqueueCopyBufferRect, is_watched(from) || is_watched(to), false, false,
        (cl_command_queue queue, cl_mem from, cl_mem to, const size_t *from_origin, const size_t *to_origin,
         const size_t *region, size_t from_row, size_t from_slice, size_t to_row, size_t to_slice, cl_uint n,
         const cl_event *waits, cl_event *event),
        (queue, from, to, from_origin, to_origin, region, from_row, from_slice, to_row, to_slice, n, waits, event))

/* Groups alone map memory, and are not recorded. */
static void *CL_API_CALL recorded_clEnqueueMapBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking,
                                                     cl_map_flags flags, size_t offset, size_t bytes, cl_uint n,
                                                     const cl_event *waits, cl_event *event, cl_int *code)
{
    (void)queue, (void)buffer, (void)blocking, (void)flags, (void)offset, (void)bytes, (void)n, (void)waits,
        (void)event, (void)code;
    fail_msg("memory is mapped");
    return NULL;
}

static cl_int CL_API_CALL recorded_clEnqueueUnmapMemObject(cl_command_queue queue, cl_mem memory, void *mapped,
                                                           cl_uint n, const cl_event *waits, cl_event *event)
{
    (void)queue, (void)memory, (void)mapped, (void)n, (void)waits, (void)event;
    fail_msg("memory is unmapped");
    return CL_INVALID_OPERATION;
}

static cl_kernel CL_API_CALL recorded_clCreateKernel(cl_program program, const char *name, cl_int *code)
{
    const cl_kernel kernel = clCreateKernel(program, name, code);
    forget_kernel(kernel); /* one that had this handle and is gone */
    return kernel;
}

static cl_int CL_API_CALL recorded_clSetKernelArg(cl_kernel kernel, cl_uint index, size_t bytes, const void *value)
{
    cl_mem memory = NULL;
    if (bytes == sizeof memory && value)
        memcpy(&memory, value, sizeof memory);
    set_argument(kernel, index, memory);
    return clSetKernelArg(kernel, index, bytes, value);
}

void *record_get_proc(void *user, const char *name)
{
    static const struct {
        const char *name;
        void (*function)(void);
    } table[] = {
#define ENTRY(name) {#name, (void (*)(void))recorded_##name}
        ENTRY(clCreateKernel),
        ENTRY(clSetKernelArg),
        ENTRY(clEnqueueNDRangeKernel),
        ENTRY(clEnqueueMarkerWithWaitList),
        ENTRY(clEnqueueReadBuffer),
        ENTRY(clEnqueueBarrierWithWaitList),
        ENTRY(clEnqueueWriteBuffer),
        ENTRY(clEnqueueFillBuffer),
        ENTRY(clEnqueueCopyBuffer),
        ENTRY(clEnqueueCopyBufferRect),
        ENTRY(clEnqueueReadImage),
        ENTRY(clEnqueueMapBuffer),
        ENTRY(clEnqueueUnmapMemObject),
        ENTRY(clEnqueueCopyImageToBuffer),
        ENTRY(clEnqueueCopyBufferToImage),
#undef ENTRY
    };
    void *function;
    (void)user;
    for (size_t i = 0; i < COUNT_OF(table); i++)
        if (!strcmp(table[i].name, name)) {
            memcpy(&function, &table[i].function, sizeof function);
            return function;
        }
    /* A command that is not noted is none that the library may have. */
    return strncmp(name, "clEnqueue", 9) ? dlsym(RTLD_DEFAULT, name) : NULL;
}

void record_begin(const cl_mem *memory, size_t count, cl_event allowed)
{
    while (command_count)
        assert_cl(clReleaseEvent(commands[--command_count].event));
    assert_true(count <= MEMORIES);
    for (size_t i = 0; i < count; i++)
        memories[i] = memory[i];
    memory_count = count;
    acquired = allowed;
}

recorded record_end(cl_event done)
{
    recorded result = {0};
    for (size_t i = command_count; i-- > 0;) {
        struct command *c = &commands[i];
        c->before = c->event == done;
        for (size_t j = i + 1; j < command_count && !c->before; j++)
            c->before = commands[j].before && follows(&commands[j], c);
        result.touching += c->touches;
        result.early += c->touches && !c->behind;
        result.late += c->touches && !c->before;
    }
    return result;
}
