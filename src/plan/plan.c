#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "base/size.h"
#include "base/try.h"
#include "plan/job.h"
#include "plan/operator.h"

#define MAX_ARGS_BYTES 1024

/* PoCL compiles a kernel for launches with fewer than 65,535 items in each dimension, and once more for
 * others. */
#define SMALL_GRID 65535

void clattn_plan_options_init(clattn_plan_options *options)
{
    struct_init(options, sizeof *options);
}

clattn_status plan_options_read(clattn_context *context, const clattn_plan_options *given, clattn_plan_options *options)
{
    clattn_plan_options_init(options);
    if (!given)
        return CLATTN_SUCCESS;
    clattn_status status = struct_read(options, sizeof *options, sizeof *options, given);
    if (status != CLATTN_SUCCESS)
        return report_error(&context->device.report, status, "clattn_plan_options.size is %zu, expected %zu",
                            given->size, sizeof *options);
    if (!options->background.job && (options->background.callback || options->background.user))
        return report_error(&context->device.report, CLATTN_ERROR_INVALID_ARGUMENT,
                            "background.callback or .user without background.job");
    return CLATTN_SUCCESS;
}

void plan_results_clear(const clattn_plan_options *options, clattn_plan **plan)
{
    if (plan)
        *plan = NULL;
    if (options && options->size == sizeof *options && options->background.job)
        *options->background.job = NULL;
}

clattn_status plan_new(clattn_context *context, const struct operator_type *type, clattn_plan **result)
{
    clattn_plan *plan = calloc(1, type->bytes.plan);
    mtx_t *lock = malloc(sizeof *lock);
    *result = NULL;
    if (!plan || !lock || mtx_init(lock, mtx_plain) != thrd_success) {
        free(plan);
        free(lock);
        return report_error(&context->device.report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a plan");
    }
    atomic_init(&plan->references, 1);
    plan->type = type;
    plan->context = context;
    plan->lock = lock;
    context_retain(context);
    *result = plan;
    return CLATTN_SUCCESS;
}

void plan_retain(clattn_plan *plan)
{
    atomic_fetch_add(&plan->references, 1);
}

void plan_drop_kernels(clattn_plan *plan)
{
    for (size_t i = 0; i < plan->kernel_count; i++) {
        struct plan_kernel *kernel = &plan->kernels[i];
        if (kernel->handle)
            plan->context->device.cl.clReleaseKernel(kernel->handle);
        program_release(&plan->context->programs, &kernel->program);
        free(kernel->options);
        memset(kernel, 0, sizeof *kernel);
    }
    plan->kernel_count = 0;
    plan->launches = 0;
    plan->workspace = 0;
    tuning_restart(&plan->tuning);
}

void clattn_plan_release(clattn_plan **handle)
{
    if (!handle || !*handle)
        return;
    clattn_plan *plan = *handle;
    *handle = NULL;
    if (atomic_fetch_sub(&plan->references, 1) != 1)
        return;
    if (device_is_foreign(&plan->context->device))
        cl_table_disown(&plan->context->device.cl);
    if (plan->clear)
        plan->clear(plan);
    plan_drop_kernels(plan);
    strbuf_clear(&plan->explain);
    free(plan->wisdom_key);
    mtx_destroy(plan->lock);
    free(plan->lock);
    context_drop(plan->context);
    free(plan);
}

/* Bytes of memory that the compiled kernel takes.  A driver that cannot answer is no failure: the launch that warms the kernel
 * will show whether it runs. */
static cl_ulong memory_of(const struct device *device, const struct plan_kernel *kernel,
                          cl_kernel_work_group_info query)
{
    cl_ulong bytes = 0;
    cl_int code =
        device->cl.clGetKernelWorkGroupInfo(kernel->handle, device->caps.device, query, sizeof bytes, &bytes, NULL);
    return code == CL_SUCCESS ? bytes : 0;
}

/* Checks that the compiled kernel fits the device. */
static clattn_status check_resources(struct device *device, struct plan_kernel *kernel)
{
    clattn_status status = CLATTN_SUCCESS;
    const size_t *local = kernel->local, items = local[0] *local[1] *local[2];
    size_t limit;
    TRY_CL(&device->report, "clGetKernelWorkGroupInfo",
           device->cl.clGetKernelWorkGroupInfo(kernel->handle, device->caps.device, CL_KERNEL_WORK_GROUP_SIZE,
                                               sizeof limit, &limit, NULL));
    kernel->local_bytes = memory_of(device, kernel, CL_KERNEL_LOCAL_MEM_SIZE);
    kernel->private_bytes = memory_of(device, kernel, CL_KERNEL_PRIVATE_MEM_SIZE);
    if (items > limit)
        return report_error(&device->report, CLATTN_ERROR_UNSUPPORTED,
                            "%s needs work-groups of %zu items, this device gives it %zu", kernel->name, items, limit);
    if (kernel->local_bytes > device->caps.local_most)
        return report_error(&device->report, CLATTN_ERROR_UNSUPPORTED,
                            "%s takes %llu bytes of local memory, this device has %llu", kernel->name,
                            (unsigned long long)kernel->local_bytes, (unsigned long long)device->caps.local_most);
fail:
    return status;
}

clattn_status plan_add_kernel(clattn_plan *plan, const char *file, struct strbuf *options, const char *name,
                              cl_uint pointers, size_t args_bytes, const size_t local[3], const size_t groups[3])
{
    clattn_status status;
    struct device *device = &plan->context->device;
    struct plan_kernel *kernel = &plan->kernels[plan->kernel_count];
    capabilities_define(&device->caps, local[0] *local[1] *local[2], options);
    char *text = strbuf_take(options);
    if (!text || plan->kernel_count == PLAN_KERNELS || args_bytes > MAX_ARGS_BYTES) {
        status = text ? report_error(&device->report, CLATTN_ERROR_INTERNAL, "a plan's kernels overflow")
                      : report_error(&device->report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for build options");
        free(text);
        return status;
    }
    plan->kernel_count++;
    kernel->name = name;
    kernel->file = file;
    kernel->options = text;
    kernel->pointers = pointers;
    kernel->args_bytes = args_bytes;
    memcpy(kernel->local, local, sizeof kernel->local);
    TRY(job_check());
    TRY(program_get(&plan->context->programs, file, text, &plan->snippets, GRID_SMALL, &kernel->program));
    TRY(program_kernel(&plan->context->programs, kernel->program, name, &kernel->handle));
    TRY(check_resources(device, kernel));
    if (groups) {
        plan_kernel_largest(kernel, groups);
        plan->launches++;
    }
fail:
    return status;
}

void plan_kernel_largest(struct plan_kernel *kernel, const size_t groups[3])
{
    for (int i = 0; i < 3; i++) {
        size_t items;
        if (!size_mul(groups[i], kernel->local[i], &items))
            items = SIZE_MAX;
        kernel->widest = size_max(kernel->widest, items);
    }
}

/* Whether any kernel needs code for large grids; then all get it, so that a saved program always holds the same code
 * for all its kernels. */
static bool needs_large_grid(const clattn_plan *plan)
{
    bool large = false;
    for (size_t i = 0; i < plan->kernel_count; i++)
        large = large || plan->kernels[i].widest >= SMALL_GRID;
    return large && (plan->context->device.caps.quirks & QUIRK_COMPILES_BY_GRID);
}

/* Replaces the kernel's program by the one that also holds code for large grids. */
static clattn_status enlarge(clattn_plan *plan, struct plan_kernel *kernel)
{
    clattn_status status;
    struct program_cache *programs = &plan->context->programs;
    struct program *program = NULL;
    cl_kernel handle;
    TRY(program_get(programs, kernel->file, kernel->options, &plan->snippets, GRID_LARGE, &program));
    TRY(program_kernel(programs, program, kernel->name, &handle));
    plan->context->device.cl.clReleaseKernel(kernel->handle);
    program_release(programs, &kernel->program);
    kernel->handle = handle;
    kernel->program = program;
    return CLATTN_SUCCESS;
fail:
    program_release(programs, &program);
    return status;
}

/* An enqueue sets the arrays that it has.  Others have to be NULL, which costs PoCL nothing, rather than what is gone. */
static clattn_status forget_arrays(const clattn_plan *plan, const struct plan_kernel *kernel)
{
    clattn_status status = CLATTN_SUCCESS;
    struct device *device = &plan->context->device;
    for (cl_uint i = kernel->images; i < kernel->pointers; i++)
        TRY_CL(&device->report, "clSetKernelArg", device->cl.clSetKernelArg(kernel->handle, i, sizeof(cl_mem), NULL));
fail:
    return status;
}

clattn_status plan_forget_arrays(const clattn_plan *plan)
{
    clattn_status status = CLATTN_SUCCESS;
    for (size_t i = 0; i < plan->kernel_count; i++)
        TRY(forget_arrays(plan, &plan->kernels[i]));
fail:
    return status;
}

static clattn_status warm_kernel(clattn_plan *plan, const struct plan_kernel *kernel)
{
    static const unsigned char zeros[MAX_ARGS_BYTES];
    clattn_status status = CLATTN_SUCCESS;
    clattn_context *context = plan->context;
    struct report *report = &context->device.report;
    const struct cl_table *cl = &context->device.cl;
    for (cl_uint i = 0; i < kernel->pointers; i++)
        TRY_CL(report, "clSetKernelArg",
               cl->clSetKernelArg(kernel->handle, i, sizeof(cl_mem),
                                  i < kernel->images ? &context->warm_image : &context->warm_buffer));
    TRY_CL(report, "clSetKernelArg", cl->clSetKernelArg(kernel->handle, kernel->pointers, kernel->args_bytes, zeros));
    TRY_CL(report, "clEnqueueNDRangeKernel",
           cl->clEnqueueNDRangeKernel(context->warm_queue, kernel->handle, 3, NULL, kernel->local, kernel->local, 0,
                                      NULL, NULL));
    if (needs_large_grid(plan)) {
        const size_t large[3] = {round_up(SMALL_GRID + 1, kernel->local[0]), kernel->local[1], kernel->local[2]};
        TRY_CL(report, "clEnqueueNDRangeKernel",
               cl->clEnqueueNDRangeKernel(context->warm_queue, kernel->handle, 3, NULL, large, kernel->local, 0, NULL,
                                          NULL));
    }
    status = forget_arrays(plan, kernel);
fail:
    return status;
}

static clattn_status warm_kernels(clattn_plan *plan)
{
    clattn_status status;
    clattn_context *context = plan->context;
    TRY(context_warm_objects(context));
    for (size_t i = 0; i < plan->kernel_count; i++)
        if (plan->kernels[i].images)
            TRY(context_warm_image(context));
    for (size_t i = 0; i < plan->kernel_count; i++)
        TRY(warm_kernel(plan, &plan->kernels[i]));
    TRY_CL(&context->device.report, "clFinish", context->device.cl.clFinish(context->warm_queue));
fail:
    return status;
}

clattn_status plan_warm(clattn_plan *plan)
{
    clattn_status status;
    clattn_context *context = plan->context;
    for (size_t i = 0; i < plan->kernel_count && needs_large_grid(plan); i++)
        TRY(enlarge(plan, &plan->kernels[i]));
    TRY(job_check());
    report_hold();
    mtx_lock(&context->warm_lock);
    status = warm_kernels(plan);
    mtx_unlock(&context->warm_lock);
    report_deliver();
fail:
    return status;
}

void plan_save(const clattn_plan *plan, bool trial)
{
    clattn_context *context = plan->context;
    bool left = false;
    for (size_t i = 0; i < plan->kernel_count; i++)
        left |= program_save(&context->programs, plan->kernels[i].program, trial);
    if (left && context->save_mode == CLATTN_SAVE_MODE_BACKGROUND && !worker_wake(context->worker))
        report_log(&context->device.report, CLATTN_LOG_LEVEL_WARNING, "no thread that saves programs could be started");
}

clattn_status plan_self_check(const clattn_plan *plan)
{
    clattn_context *context = plan->context;
    struct program_cache *programs = &context->programs;
    struct self_check check = {.plan = plan, .always = programs->checks_always};
    bool trusted = !check.always;
    char message[512];
    if (!plan->type->check || !programs->checks)
        return CLATTN_SUCCESS;
    /* A simulator interprets kernels one by one and checks them itself. */
    if ((context->device.caps.quirks & QUIRK_SIMULATOR) && !check.always)
        return CLATTN_SUCCESS;
    for (size_t i = 0; i < plan->kernel_count; i++) {
        const char *distrust = program_distrusted(programs, plan->kernels[i].program);
        if (distrust)
            return report_error(&context->device.report, CLATTN_ERROR_MISCOMPILED, "%s", distrust);
        trusted = trusted && program_trusted(programs, plan->kernels[i].program);
    }
    if (trusted)
        return CLATTN_SUCCESS;
    clattn_status status = plan->type->check(&check);
    if (status == CLATTN_ERROR_MISCOMPILED && check.blamed < plan->kernel_count) {
        report_copy(&context->device.report, message, sizeof message);
        program_distrust(programs, plan->kernels[check.blamed].program, message);
    }
    for (size_t i = 0; i < plan->kernel_count && status == CLATTN_SUCCESS && !check.unchecked; i++)
        program_trust(programs, plan->kernels[i].program);
    return status;
}

void plan_explain_workspace(clattn_plan *plan)
{
    size_t limit = plan->context->workspaces.limit;
    if (plan->workspace <= limit)
        return;
    strbuf_printf(&plan->explain,
                  "  its workspace is over the context's workspace_limit of %zu bytes: each enqueue must bring one\n",
                  limit);
    report_log(&plan->context->device.report, CLATTN_LOG_LEVEL_WARNING,
               "a plan's workspace of %zu bytes is over the context's workspace_limit of %zu: each enqueue must "
               "bring one",
               plan->workspace, limit);
}

clattn_status plan_check(const clattn_plan *plan, const struct operator_type *type)
{
    if (!plan)
        return report_error(NULL, CLATTN_ERROR_INVALID_ARGUMENT, "plan is NULL");
    clattn_status status = context_check(plan->context);
    if (status == CLATTN_SUCCESS && plan->type != type)
        status = report_error(&plan->context->device.report, CLATTN_ERROR_INVALID_ARGUMENT,
                              "the plan is of another operator");
    return status;
}

size_t clattn_plan_workspace_size(const clattn_plan *plan)
{
    return plan ? plan->workspace : 0;
}

const char *clattn_plan_solver(const clattn_plan *plan)
{
    return plan ? plan->solver : NULL;
}

const char *clattn_plan_explain(const clattn_plan *plan)
{
    return plan && plan->explain.text ? plan->explain.text : "";
}

size_t clattn_plan_launch_count(const clattn_plan *plan)
{
    return plan ? plan->launches : 0;
}
