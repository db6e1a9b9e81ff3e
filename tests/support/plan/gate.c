#include "support/plan/gate.h"

#include <stdatomic.h>
#include <string.h>

#include "support/core/inject.h"
#include "support/core/threads.h"

static mtx_t lock = MTX_INIT;
static cnd_t changed = CND_INIT;
static int closed, waiting; /* guarded by the lock */
static atomic_ulong builds;
static void (*_Atomic hooked)(void);

static void set_closed(int value)
{
    mtx_lock(&lock);
    closed = value;
    cnd_broadcast(&changed);
    mtx_unlock(&lock);
}

void gate_close(void)
{
    set_closed(1);
}

void gate_open(void)
{
    set_closed(0);
}

void gate_await(void)
{
    mtx_lock(&lock);
    while (!waiting)
        cnd_wait(&changed, &lock);
    mtx_unlock(&lock);
}

unsigned long gate_builds(void)
{
    return builds;
}

void gate_hook(void (*hook)(void))
{
    hooked = hook;
}

static void *real(const char *name)
{
    return inject_get_proc(NULL, name);
}

static void before(void)
{
    void (*hook)(void) = hooked;
    if (hook)
        hook();
}

static cl_int CL_API_CALL gated_build(cl_program program, cl_uint count, const cl_device_id *devices,
                                      const char *options, void(CL_CALLBACK *notify)(cl_program, void *), void *user)
{
    cl_int(CL_API_CALL * function)(cl_program, cl_uint, const cl_device_id *, const char *,
                                   void(CL_CALLBACK *)(cl_program, void *), void *);
    void *pointer = real("clBuildProgram");
    memcpy(&function, &pointer, sizeof pointer);
    before();
    builds++;
    mtx_lock(&lock);
    waiting++;
    cnd_broadcast(&changed);
    while (closed)
        cnd_wait(&changed, &lock);
    waiting--;
    mtx_unlock(&lock);
    return function(program, count, devices, options, notify, user);
}

static cl_kernel CL_API_CALL hooked_kernel(cl_program program, const char *name, cl_int *code)
{
    cl_kernel(CL_API_CALL * function)(cl_program, const char *, cl_int *);
    void *pointer = real("clCreateKernel");
    memcpy(&function, &pointer, sizeof pointer);
    before();
    return function(program, name, code);
}

static cl_int CL_API_CALL hooked_launch(cl_command_queue queue, cl_kernel kernel, cl_uint dimensions,
                                        const size_t *offset, const size_t *global, const size_t *local, cl_uint count,
                                        const cl_event *list, cl_event *event)
{
    cl_int(CL_API_CALL * function)(cl_command_queue, cl_kernel, cl_uint, const size_t *, const size_t *, const size_t *,
                                   cl_uint, const cl_event *, cl_event *);
    void *pointer = real("clEnqueueNDRangeKernel");
    memcpy(&function, &pointer, sizeof pointer);
    before();
    return function(queue, kernel, dimensions, offset, global, local, count, list, event);
}

static cl_int CL_API_CALL hooked_finish(cl_command_queue queue)
{
    cl_int(CL_API_CALL * function)(cl_command_queue);
    void *pointer = real("clFinish");
    memcpy(&function, &pointer, sizeof pointer);
    before();
    return function(queue);
}

#define REPLACES(name, replacement) \
    if (!strcmp(wanted, #name)) { \
        __typeof__(&name) function = replacement; \
        void *pointer; \
        memcpy(&pointer, &function, sizeof pointer); \
        return pointer; \
    }

void *gate_get_proc(void *user, const char *wanted)
{
    REPLACES(clBuildProgram, gated_build)
    REPLACES(clCreateKernel, hooked_kernel)
    REPLACES(clEnqueueNDRangeKernel, hooked_launch)
    REPLACES(clFinish, hooked_finish)
    return inject_get_proc(user, wanted);
}
