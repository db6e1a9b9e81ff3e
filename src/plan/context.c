#include "plan/context.h"

#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "base/size.h"
#include "base/strbuf.h"
#include "base/try.h"
#include "device/enumerate.h"

#define WARM_BYTES 4096
#define DEFAULT_PLANS 64

void clattn_context_params_init(clattn_context_params *params)
{
    struct_init(params, sizeof *params);
}

static clattn_log_level log_level_of(const clattn_context_params *params)
{
    static const char *const names[] = {"none", "error", "warning", "info", "debug"};
    if (params->log_level != CLATTN_LOG_LEVEL_DEFAULT)
        return (clattn_log_level)params->log_level;
    const char *variable = os_environment("CLATTN_LOG");
    for (int i = 0; variable && i < 5; i++)
        if (!strcmp(variable, names[i]))
            return i == 0 ? CLATTN_LOG_LEVEL_NONE : (clattn_log_level)i;
    return CLATTN_LOG_LEVEL_WARNING;
}

static clattn_save_mode save_mode_of(const clattn_context_params *params)
{
    if (params->save_mode != CLATTN_SAVE_MODE_DEFAULT)
        return params->save_mode;
    const char *variable = os_environment("CLATTN_SAVE");
    return params->cache_store || (variable && !strcmp(variable, "release")) ? CLATTN_SAVE_MODE_RELEASE
                                                                             : CLATTN_SAVE_MODE_EXPLICIT;
}

/* Reads the caller's params.  Failures go to the thread's message, since the context's report does not exist yet. */
static clattn_status read_params(const clattn_context_params *given, clattn_context_params *params)
{
    clattn_context_params_init(params);
    if (!given)
        return CLATTN_SUCCESS;
    clattn_status status = struct_read(params, sizeof *params, sizeof *params, given);
    if (status != CLATTN_SUCCESS)
        return report_error(NULL, status, "clattn_context_params.size is %zu, expected %zu", given->size,
                            sizeof *params);
    if (!params->opencl_context && (params->opencl_device || params->queue))
        return report_error(NULL, CLATTN_ERROR_INVALID_ARGUMENT, "opencl_device and queue need opencl_context");
    if (params->opencl_context && params->device)
        return report_error(NULL, CLATTN_ERROR_INVALID_ARGUMENT,
                            "`device` chooses a device, which adopting an OpenCL context has done already");
    if (!enum_within(params->cache_mode, CLATTN_CACHE_MODE_ON) ||
        !enum_within(params->clblast, CLATTN_CLBLAST_MODE_PREFER) ||
        !enum_within(params->self_check, CLATTN_SELF_CHECK_ALWAYS) ||
        !enum_within(params->save_mode, CLATTN_SAVE_MODE_BACKGROUND) || params->log_level < CLATTN_LOG_LEVEL_NONE ||
        params->log_level > CLATTN_LOG_LEVEL_DEBUG || (params->denied_solver_count && !params->denied_solvers))
        return report_error(NULL, CLATTN_ERROR_INVALID_ARGUMENT, "a field of clattn_context_params is out of range");
    return CLATTN_SUCCESS;
}

/* Finds the device to adopt, and whether it and the queue belong to the adopted context. */
static clattn_status find_adopted(const struct cl_table *cl, const clattn_context_params *params, cl_device_id *device)
{
    clattn_status status = CLATTN_SUCCESS;
    cl_device_id devices[64] = {NULL}, queue_device = NULL;
    cl_context queue_context = params->opencl_context;
    size_t bytes = 0;
    bool found = false;
    *device = NULL;
    if (params->queue) {
        TRY_CL(NULL, "clGetCommandQueueInfo",
               cl->clGetCommandQueueInfo(params->queue, CL_QUEUE_CONTEXT, sizeof(cl_context), &queue_context, NULL));
        TRY_CL(NULL, "clGetCommandQueueInfo",
               cl->clGetCommandQueueInfo(params->queue, CL_QUEUE_DEVICE, sizeof(cl_device_id), &queue_device, NULL));
    }
    TRY_CL(NULL, "clGetContextInfo",
           cl->clGetContextInfo(params->opencl_context, CL_CONTEXT_DEVICES, sizeof devices, devices, &bytes));
    *device = params->opencl_device ? params->opencl_device : queue_device ? queue_device : devices[0];
    for (size_t i = 0; i < bytes / sizeof devices[0]; i++)
        found = found || devices[i] == *device;
    if (!found)
        return report_error(NULL, CLATTN_ERROR_WRONG_CONTEXT, "the adopted device is not of the adopted context");
    if (queue_context != params->opencl_context || (queue_device && queue_device != *device))
        return report_error(NULL, CLATTN_ERROR_WRONG_CONTEXT, "the adopted queue is of another context or device");
fail:
    return status;
}

static clattn_status adopt(clattn_context *context, const clattn_context_params *params)
{
    clattn_status status;
    const struct cl_table *cl = &context->device.cl;
    cl_platform_id platform;
    cl_device_id device;
    TRY(find_adopted(cl, params, &device));
    TRY_CL(NULL, "clGetDeviceInfo", cl->clGetDeviceInfo(device, CL_DEVICE_PLATFORM, sizeof platform, &platform, NULL));
    TRY(capabilities_read(cl, platform, device, &context->device.caps));
    TRY_CL(NULL, "clRetainDevice", cl->clRetainDevice(device));
    context->device.caps.device = device;
    context->device.process = os_process_id();
    TRY_CL(NULL, "clRetainContext", cl->clRetainContext(params->opencl_context));
    context->device.context = params->opencl_context;
    if (params->queue) {
        TRY_CL(NULL, "clRetainCommandQueue", cl->clRetainCommandQueue(params->queue));
        context->queue = params->queue;
    }
fail:
    return status;
}

static clattn_status choose_and_create(clattn_context *context, const clattn_context_params *params)
{
    clattn_status status;
    struct clattn_devices devices = {.cl = context->device.cl};
    const char *spec = params->device ? params->device : os_environment("CLATTN_DEVICE");
    size_t index;
    TRY(devices_enumerate(&devices));
    TRY(devices_choose(&devices, spec, &index));
    struct capabilities *chosen = &devices.caps[index];
    cl_context_properties properties[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)(uintptr_t)chosen->platform, 0};
    cl_int code;
    TRY_CL(NULL, "clRetainDevice", context->device.cl.clRetainDevice(chosen->device));
    context->device.caps = *chosen;
    memset(chosen, 0, sizeof *chosen); /* its strings have moved */
    context->device.process = os_process_id();
    context->device.context =
        context->device.cl.clCreateContext(properties, 1, &context->device.caps.device, NULL, NULL, &code);
    if (!context->device.context) {
        status = report_opencl(NULL, "clCreateContext", code);
        goto fail;
    }
fail:
    devices_clear(&devices);
    return status;
}

static clattn_status copy_denied(clattn_context *context, const clattn_context_params *params)
{
    if (!params->denied_solver_count)
        return CLATTN_SUCCESS;
    context->denied = calloc(params->denied_solver_count, sizeof *context->denied);
    if (!context->denied)
        return report_error(NULL, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for the denied solvers");
    for (size_t i = 0; i < params->denied_solver_count; i++) {
        context->denied[i] = string_copy(params->denied_solvers[i] ? params->denied_solvers[i] : "");
        if (!context->denied[i])
            return report_error(NULL, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for the denied solvers");
        context->denied_count++;
    }
    return CLATTN_SUCCESS;
}

/* The stages of a context's creation; destroy() undoes exactly those that were reached. */
enum stage { STAGE_NONE, STAGE_REPORT, STAGE_LOCK, STAGE_POOL, STAGE_PLANS, STAGE_PROGRAMS, STAGE_WISDOM };

/* Whether what the lock guards can be used.  A thread that the child of a fork does not have may hold the lock for
 * ever; what it guards is then left alone. */
static bool is_usable(const clattn_context *context, mtx_t *lock)
{
    if (!device_is_foreign(&context->device))
        return true;
    if (mtx_trylock(lock) != thrd_success)
        return false;
    mtx_unlock(lock);
    return true;
}

static void destroy(clattn_context *context, enum stage reached)
{
    const struct cl_table *cl = &context->device.cl;
    worker_stop(&context->worker, device_is_foreign(&context->device));
    if (reached >= STAGE_WISDOM && is_usable(context, &context->wisdom.lock))
        wisdom_clear(&context->wisdom);
    if (reached >= STAGE_PROGRAMS && is_usable(context, &context->programs.lock))
        program_cache_clear(&context->programs);
    if (reached >= STAGE_PLANS && is_usable(context, &context->plans.lock))
        plan_cache_clear(&context->plans);
    if (reached >= STAGE_POOL && is_usable(context, &context->workspaces.lock))
        workspace_pool_clear(&context->workspaces);
    if (reached >= STAGE_LOCK)
        mtx_destroy(&context->warm_lock);
    if (context->warm_image)
        cl->clReleaseMemObject(context->warm_image);
    if (context->warm_buffer)
        cl->clReleaseMemObject(context->warm_buffer);
    if (context->warm_queue)
        cl->clReleaseCommandQueue(context->warm_queue);
    if (context->queue)
        cl->clReleaseCommandQueue(context->queue);
    if (context->device.context)
        cl->clReleaseContext(context->device.context);
    if (context->device.process)
        cl->clReleaseDevice(context->device.caps.device);
    capabilities_clear(&context->device.caps);
    for (size_t i = 0; i < context->denied_count; i++)
        free(context->denied[i]);
    free(context->denied);
    if (reached >= STAGE_REPORT)
        report_clear(&context->device.report);
    free(context);
}

static bool save_next(void *context)
{
    return program_save_next(&((clattn_context *)context)->programs);
}

static size_t workspace_limit_of(const clattn_context_params *params, const struct capabilities *caps)
{
    if (params->workspace_limit)
        return params->workspace_limit;
    uint64_t quarter = caps->info.global_memory / 4;
    return quarter < ((uint64_t)1 << 30) ? (size_t)quarter : (size_t)1 << 30;
}

clattn_status clattn_context_create(const clattn_context_params *given, clattn_context **result)
{
    clattn_status status;
    clattn_context_params params;
    enum stage reached = STAGE_NONE;
    cl_int code;
    if (!result)
        return report_error(NULL, CLATTN_ERROR_INVALID_ARGUMENT, "context is NULL");
    *result = NULL;
    clattn_context *context = calloc(1, sizeof *context);
    if (!context)
        return report_error(NULL, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a context");
    atomic_init(&context->references, 1);
    TRY(read_params(given, &params));
    context->clblast = (clattn_clblast_mode)params.clblast;
    context->save_mode = save_mode_of(&params);
    context->foreign_opencl = params.get_proc != NULL;
    TRY(report_init(&context->device.report, params.log, params.log_user, log_level_of(&params)));
    reached = STAGE_REPORT;
    if (mtx_init(&context->warm_lock, mtx_plain) != thrd_success) {
        status = report_error(NULL, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a lock");
        goto fail;
    }
    reached = STAGE_LOCK;
    TRY(cl_table_fill(&context->device.cl, params.get_proc, params.get_proc_user));
    TRY(copy_denied(context, &params));
    TRY(params.opencl_context ? adopt(context, &params) : choose_and_create(context, &params));
    if (!context->queue) {
        context->queue =
            context->device.cl.clCreateCommandQueue(context->device.context, context->device.caps.device, 0, &code);
        if (!context->queue) {
            status = report_opencl(NULL, "clCreateCommandQueue", code);
            goto fail;
        }
    }
    TRY(workspace_pool_init(&context->workspaces, &context->device,
                            workspace_limit_of(&params, &context->device.caps)));
    reached = STAGE_POOL;
    TRY(plan_cache_init(&context->plans, params.plan_capacity ? params.plan_capacity : DEFAULT_PLANS));
    reached = STAGE_PLANS;
    status = program_cache_init(&context->programs, &context->device, &params);
    if (status != CLATTN_SUCCESS) {
        char message[512];
        report_copy(&context->device.report, message, sizeof message);
        report_error(NULL, status, "%s", message);
        goto fail;
    }
    reached = STAGE_PROGRAMS;
    TRY(context_wisdom_init(context));
    reached = STAGE_WISDOM;
    TRY(worker_new(save_next, context, &context->worker));
    report_log(&context->device.report, CLATTN_LOG_LEVEL_INFO, "device: %s, %s", context->device.caps.info.platform,
               context->device.caps.info.name);
    *result = context;
    return CLATTN_SUCCESS;
fail:
    destroy(context, reached);
    return status;
}

void context_retain(clattn_context *context)
{
    atomic_fetch_add(&context->references, 1);
}

static void save_at_release(clattn_context *context)
{
    if (context->save_mode == CLATTN_SAVE_MODE_RELEASE && !device_is_foreign(&context->device))
        program_save_due(&context->programs);
}

void context_drop(clattn_context *context)
{
    if (atomic_fetch_sub(&context->references, 1) != 1)
        return;
    /* Plans and models may have built programs since the application released the context. */
    save_at_release(context);
    destroy(context, STAGE_WISDOM);
}

void clattn_context_release(clattn_context **context)
{
    if (!context || !*context)
        return;
    if (device_is_foreign(&(*context)->device))
        cl_table_disown(&(*context)->device.cl);
    save_at_release(*context);
    if (is_usable(*context, &(*context)->plans.lock))
        plan_cache_empty(&(*context)->plans);
    context_drop(*context);
    *context = NULL;
}

clattn_status context_check(clattn_context *context)
{
    if (!context)
        return report_error(NULL, CLATTN_ERROR_INVALID_ARGUMENT, "context is NULL");
    /* The failure goes to the thread's message, because the context's lock may have been held at the fork. */
    if (device_is_foreign(&context->device))
        return report_error(NULL, CLATTN_ERROR_FORKED,
                            "the context was made in process %ld; OpenCL does not survive a fork",
                            context->device.process);
    return CLATTN_SUCCESS;
}

bool context_denies(const clattn_context *context, const char *operator_name, const char *solver)
{
    size_t length = strlen(operator_name);
    for (size_t i = 0; i < context->denied_count; i++) {
        const char *denied = context->denied[i];
        if (!strcmp(denied, solver) ||
            (!strncmp(denied, operator_name, length) && denied[length] == '/' && !strcmp(denied + length + 1, solver)))
            return true;
    }
    return false;
}

clattn_status context_warm_objects(clattn_context *context)
{
    const struct cl_table *cl = &context->device.cl;
    cl_int code;
    if (!context->warm_queue) {
        context->warm_queue = cl->clCreateCommandQueue(context->device.context, context->device.caps.device, 0, &code);
        if (!context->warm_queue)
            return report_opencl(&context->device.report, "clCreateCommandQueue", code);
    }
    if (!context->warm_buffer) {
        context->warm_buffer = cl->clCreateBuffer(context->device.context, CL_MEM_READ_WRITE, WARM_BYTES, NULL, &code);
        if (!context->warm_buffer)
            return report_opencl(&context->device.report, "clCreateBuffer", code);
    }
    return CLATTN_SUCCESS;
}

/* The image has one pixel, of a format that every device with images has. */
clattn_status context_warm_image(clattn_context *context)
{
    const cl_image_format format = {CL_RGBA, CL_UNORM_INT8};
    const cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 1, .image_height = 1};
    cl_int code;
    if (!context->warm_image) {
        context->warm_image =
            context->device.cl.clCreateImage(context->device.context, CL_MEM_READ_WRITE, &format, &desc, NULL, &code);
        if (!context->warm_image)
            return report_opencl(&context->device.report, "clCreateImage", code);
    }
    return CLATTN_SUCCESS;
}

cl_context clattn_context_opencl_context(const clattn_context *context)
{
    return context ? context->device.context : NULL;
}

cl_device_id clattn_context_opencl_device(const clattn_context *context)
{
    return context ? context->device.caps.device : NULL;
}

cl_command_queue clattn_context_queue(const clattn_context *context)
{
    return context ? context->queue : NULL;
}

size_t clattn_context_message(const clattn_context *context, char *buffer, size_t bytes)
{
    /* The report locks itself; only its const-ness is in the way.  clattn.hpp also asks for the message of a context that
     * the application has released, while a plan, model or state of it is alive. */
    struct report *report =
        context && !device_is_foreign(&context->device) ? &((clattn_context *)(uintptr_t)context)->device.report : NULL;
    return report_copy(report, buffer, bytes);
}

clattn_status clattn_context_device_info(const clattn_context *context, clattn_device_info *info)
{
    if (!context || !info)
        return report_error(NULL, CLATTN_ERROR_INVALID_ARGUMENT, "context or info is NULL");
    return device_info_write(&context->device.caps, info);
}

clattn_status clattn_context_save_programs(clattn_context *context)
{
    clattn_status status = context_check(context);
    if (status == CLATTN_SUCCESS)
        program_save_due(&context->programs);
    return status;
}

clattn_status clattn_context_program_statistics(const clattn_context *context, clattn_program_statistics *statistics)
{
    if (!context || !statistics)
        return report_error(NULL, CLATTN_ERROR_INVALID_ARGUMENT, "context or statistics is NULL");
    clattn_status status = context_check((clattn_context *)(uintptr_t)context);
    if (status != CLATTN_SUCCESS)
        return status;
    struct program_cache *programs = &((clattn_context *)(uintptr_t)context)->programs;
    mtx_lock(&programs->lock);
    const clattn_program_statistics counted = programs->statistics;
    mtx_unlock(&programs->lock);
    if (!struct_write(statistics, sizeof counted, sizeof counted, &counted))
        return report_error(NULL, CLATTN_ERROR_INVALID_STRUCT,
                            "clattn_program_statistics.size is %zu, expected at least %zu", statistics->size,
                            sizeof counted);
    return CLATTN_SUCCESS;
}

const char *clattn_context_cache_dir(const clattn_context *context, const char **reason)
{
    if (reason)
        *reason = context ? context->programs.binaries.reason : "there is no context";
    return context ? context->programs.binaries.path : NULL;
}
