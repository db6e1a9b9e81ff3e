#include "plan/enqueue.h"

#include <limits.h>

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "lib/array.h"

bool binding_is_none(const clattn_binding *binding)
{
    return binding->kind == CLATTN_BINDING_KIND_BUFFER && !binding->buffer;
}

clattn_status binding_absent_field(clattn_context *context, const clattn_binding *binding, const char *name,
                                   const char *field)
{
    if (binding_is_none(binding))
        return CLATTN_SUCCESS;
    return report_error(&context->device.report, CLATTN_ERROR_INVALID_ARGUMENT,
                        "%s: bound, but the plan's description has no %s for it", name, field);
}

clattn_status binding_absent(clattn_context *context, const clattn_binding *binding, const char *name)
{
    return binding_absent_field(context, binding, name, "layout");
}

clattn_status args_read(struct report *report, const char *name, void *copy, size_t current, size_t first,
                        const void *given)
{
    clattn_status status = struct_read(copy, current, first, given);
    if (status == CLATTN_SUCCESS)
        return CLATTN_SUCCESS;
    return report_error(report, status, "args is NULL, or its size is none that %s ever had", name);
}

clattn_status args_check(struct report *report, const char *name, int32_t flag, int32_t reserved)
{
    if (flag != 0 && flag != 1)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "%s is %d, neither 0 nor 1", name, (int)flag);
    if (reserved != 0)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "reserved is %d, and not 0", (int)reserved);
    return CLATTN_SUCCESS;
}

clattn_status args_length(struct report *report, const char *name, int32_t is_explicit, size_t *length, size_t most)
{
    if (!is_explicit)
        *length = most;
    if (*length <= most)
        return CLATTN_SUCCESS;
    return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "%s %zu is above the plan's %zu", name, *length, most);
}

clattn_status binding_check_memory(clattn_context *context, cl_mem buffer, cl_mem_object_type expected,
                                   enum binding_access access, const char *name, size_t *bytes)
{
    clattn_status status = CLATTN_SUCCESS;
    struct report *report = &context->device.report;
    const struct cl_table *cl = &context->device.cl;
    cl_context owner;
    cl_mem_flags flags;
    cl_mem_object_type type;
    TRY_CL(report, "clGetMemObjectInfo", cl->clGetMemObjectInfo(buffer, CL_MEM_TYPE, sizeof type, &type, NULL));
    if (type != expected)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT,
                            expected == CL_MEM_OBJECT_BUFFER    ? "%s: a buffer is expected, not an image"
                            : expected == CL_MEM_OBJECT_IMAGE2D ? "%s: a 2D image is expected"
                                                                : "%s: an array of 2D images is expected",
                            name);
    TRY_CL(report, "clGetMemObjectInfo", cl->clGetMemObjectInfo(buffer, CL_MEM_CONTEXT, sizeof owner, &owner, NULL));
    TRY_CL(report, "clGetMemObjectInfo", cl->clGetMemObjectInfo(buffer, CL_MEM_SIZE, sizeof *bytes, bytes, NULL));
    TRY_CL(report, "clGetMemObjectInfo", cl->clGetMemObjectInfo(buffer, CL_MEM_FLAGS, sizeof flags, &flags, NULL));
    if (owner != context->device.context)
        return report_error(report, CLATTN_ERROR_WRONG_CONTEXT, "%s: the buffer is of another OpenCL context", name);
    if ((access & BINDING_WRITE) && (flags & CL_MEM_READ_ONLY))
        return report_error(report, CLATTN_ERROR_BUFFER_ACCESS, "%s: kernels may not write this buffer", name);
    if ((access & BINDING_READ) && (flags & CL_MEM_WRITE_ONLY))
        return report_error(report, CLATTN_ERROR_BUFFER_ACCESS, "%s: kernels may not read this buffer", name);
fail:
    return status;
}

clattn_status binding_check(clattn_context *context, const clattn_binding *binding, const clattn_layout *layout,
                            const size_t *extent, enum binding_access access, const char *name)
{
    struct report *report = &context->device.report;
    size_t bytes = 0, bits = clattn_dtype_bits(layout->dtype), elements;
    int64_t lowest, highest;
    if (binding->reserved != 0)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "%s: the binding's reserved is not 0", name);
    if (binding->kind == CLATTN_BINDING_KIND_SVM) {
        if (!binding->svm)
            return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "%s: the SVM pointer is NULL", name);
        if (!context->device.cl.clSetKernelArgSVMPointer || context->device.caps.info.opencl_version < 200)
            return report_error(report, CLATTN_ERROR_UNSUPPORTED, "%s: the device has no shared virtual memory", name);
    } else if (binding->kind == CLATTN_BINDING_KIND_IMAGE) {
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT,
                            "%s: an image; clattn_image packs images into buffers", name);
    } else if (binding->kind != CLATTN_BINDING_KIND_BUFFER) {
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "%s: unknown binding kind %d", name,
                            (int)binding->kind);
    } else if (!binding->buffer) {
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "%s: no buffer is bound", name);
    }
    for (int32_t i = 0; i < layout->rank; i++)
        if (extent[i] == 0)
            return CLATTN_SUCCESS;
    if (!layout_reach(layout, extent, binding->offset, &lowest, &highest))
        return report_error(report, CLATTN_ERROR_OVERFLOW, "%s: the offset overflows", name);
    if (binding->kind == CLATTN_BINDING_KIND_SVM)
        return CLATTN_SUCCESS;
    clattn_status status = binding_check_memory(context, binding->buffer, CL_MEM_OBJECT_BUFFER, access, name, &bytes);
    if (status != CLATTN_SUCCESS)
        return status;
    elements = bits < 8 ? bytes * (8 / bits) : bytes / (bits / 8);
    if (lowest < 0 || (uint64_t)highest >= elements)
        return report_error(report, CLATTN_ERROR_BUFFER_TOO_SMALL,
                            "%s: elements %lld to %lld are addressed, the buffer holds %zu", name, (long long)lowest,
                            (long long)highest, elements);
    return CLATTN_SUCCESS;
}

clattn_status bindings_absent(clattn_context *context, const struct bound_array *arrays, size_t count)
{
    clattn_status status = CLATTN_SUCCESS;
    for (size_t i = 0; i < count; i++)
        if (!arrays[i].present)
            TRY(binding_absent(context, arrays[i].binding, arrays[i].name));
fail:
    return status;
}

static bool is_bound(const struct bound_array *array)
{
    return array->present && !((array->access & BINDING_OPTIONAL) && binding_is_none(array->binding));
}

static struct array_place place_of(const struct bound_array *array)
{
    const clattn_binding *binding = array->binding;
    return (struct array_place){.layout = array->layout,
                                .extent = array->extent,
                                .address = binding->kind == CLATTN_BINDING_KIND_SVM ? (uintptr_t)binding->svm : 0,
                                .offset = binding->offset};
}

/* Refuses an output that overlaps `other`, which may be an output too. */
static clattn_status check_overlap(clattn_context *context, const struct bound_array *output,
                                   const struct bound_array *other)
{
    const bool may_coincide = (output->access & other->access & BINDING_IN_PLACE) && !(other->access & BINDING_WRITE);
    if (output->binding->kind != other->binding->kind ||
        (output->binding->kind == CLATTN_BINDING_KIND_BUFFER && output->binding->buffer != other->binding->buffer))
        return CLATTN_SUCCESS;
    const struct array_place a = place_of(output), b = place_of(other);
    if (!arrays_overlap(&a, &b) || (may_coincide && arrays_coincide(&a, &b)))
        return CLATTN_SUCCESS;
    return report_error(&context->device.report, CLATTN_ERROR_INVALID_ARGUMENT,
                        may_coincide ? "%s overlaps %s, and is not in its place: the same memory, offset and layout"
                                     : "%s overlaps %s in memory",
                        output->name, other->name);
}

clattn_status bindings_check(clattn_context *context, const struct bound_array *arrays, size_t count)
{
    clattn_status status;
    TRY(bindings_absent(context, arrays, count));
    for (size_t i = 0; i < count; i++)
        if (is_bound(&arrays[i]))
            TRY(binding_check(context, arrays[i].binding, arrays[i].layout, arrays[i].extent,
                              arrays[i].access & BINDING_READ_WRITE, arrays[i].name));
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < count && (arrays[i].access & BINDING_WRITE) && is_bound(&arrays[i]); j++)
            if (is_bound(&arrays[j]) && (j > i || (j < i && !(arrays[j].access & BINDING_WRITE))))
                TRY(check_overlap(context, &arrays[i], &arrays[j]));
fail:
    return status;
}

void bound_add(struct bound_list *list, const clattn_binding *binding, const clattn_layout *layout,
               const size_t *extent, unsigned access, const char *name)
{
    const size_t i = list->count++;
    list->copy[i].binding = *binding;
    list->copy[i].layout = *layout;
    memcpy(list->copy[i].extent, extent, (size_t)layout->rank * sizeof *extent);
    list->array[i] = (struct bound_array){.binding = &list->copy[i].binding,
                                          .layout = &list->copy[i].layout,
                                          .extent = list->copy[i].extent,
                                          .access = access,
                                          .name = name,
                                          .present = true};
}

static clattn_status check_queue(struct chain *chain)
{
    clattn_status status = CLATTN_SUCCESS;
    clattn_context *context = chain->context;
    struct report *report = &context->device.report;
    const struct cl_table *cl = &context->device.cl;
    cl_context owner;
    cl_device_id device;
    cl_command_queue_properties properties;
    TRY_CL(report, "clGetCommandQueueInfo",
           cl->clGetCommandQueueInfo(chain->queue, CL_QUEUE_PROPERTIES, sizeof properties, &properties, NULL));
    chain->in_order = !(properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    if (chain->queue == context->queue)
        return CLATTN_SUCCESS;
    TRY_CL(report, "clGetCommandQueueInfo",
           cl->clGetCommandQueueInfo(chain->queue, CL_QUEUE_CONTEXT, sizeof owner, &owner, NULL));
    TRY_CL(report, "clGetCommandQueueInfo",
           cl->clGetCommandQueueInfo(chain->queue, CL_QUEUE_DEVICE, sizeof device, &device, NULL));
    if (owner != context->device.context || device != context->device.caps.device)
        status = report_error(report, CLATTN_ERROR_WRONG_CONTEXT, "the queue is of another OpenCL context or device");
fail:
    return status;
}

static clattn_status check_waits(struct chain *chain)
{
    clattn_status status = CLATTN_SUCCESS;
    struct report *report = &chain->context->device.report;
    if (!chain->wait_count != !chain->wait_list)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "wait_count and wait_list contradict each other");
    for (cl_uint i = 0; i < chain->wait_count; i++) {
        cl_context owner;
        if (!chain->wait_list[i])
            return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "wait_list[%u] is NULL", i);
        TRY_CL(report, "clGetEventInfo",
               chain->context->device.cl.clGetEventInfo(chain->wait_list[i], CL_EVENT_CONTEXT, sizeof owner, &owner,
                                                        NULL));
        if (owner != chain->context->device.context)
            return report_error(report, CLATTN_ERROR_WRONG_CONTEXT, "wait_list[%u] is of another OpenCL context", i);
    }
fail:
    return status;
}

clattn_status chain_begin(struct chain *chain, clattn_context *context, const struct enqueue_call *call,
                          const clattn_binding *given)
{
    clattn_status status;
    const size_t workspace = call->workspace;
    *chain = (struct chain){.context = context,
                            .queue = call->queue ? call->queue : context->queue,
                            .wait_count = call->wait_count,
                            .wait_list = call->wait_list,
                            .needs_event = call->event != NULL,
                            .event = call->event,
                            .control = call->control};
    report_hold();
    TRY(check_queue(chain));
    TRY(check_waits(chain));
    if (!workspace)
        return CLATTN_SUCCESS;
    if (given && !binding_is_none(given)) {
        clattn_layout bytes = {.dtype = CLATTN_DTYPE_U8, .rank = 1, .extent = {workspace}, .stride = {1}};
        TRY(binding_check(context, given, &bytes, &workspace, BINDING_READ_WRITE, "workspace"));
        if (given->offset % 128)
            return report_error(&context->device.report, CLATTN_ERROR_INVALID_ARGUMENT,
                                "workspace: the offset %lld is no multiple of 128 bytes", (long long)given->offset);
        chain->workspace = *given;
        return CLATTN_SUCCESS;
    }
    TRY(workspace_lease(&context->workspaces, workspace, chain->queue, chain->in_order, &chain->lease));
    chain->workspace = clattn_binding_buffer(chain->lease.buffer, 0);
    chain->needs_event = true;
fail:
    return status;
}

void chain_step(const struct chain *chain, bool last, struct step *step)
{
    bool chained = chain->started && !chain->in_order && chain->last;
    step->wait_count = chained ? 1 : chain->started ? 0 : chain->wait_count;
    step->wait_list = chained ? &chain->last : chain->started ? NULL : chain->wait_list;
    step->made = NULL;
    const bool needed = (last ? chain->needs_event : !chain->in_order) || control_waits(chain->control);
    step->event = needed ? &step->made : NULL;
}

void chain_stepped(struct chain *chain, struct step *step)
{
    if (chain->last)
        chain->context->device.cl.clReleaseEvent(chain->last);
    chain->last = step->made;
    chain->started = true;
}

void chain_failed(struct chain *chain, struct step *step)
{
    if (step->made)
        chain->context->device.cl.clReleaseEvent(step->made);
    step->made = NULL;
    chain->uncertain = true;
}

static cl_int bind_pointer(const struct cl_table *cl, cl_kernel kernel, cl_uint index, const clattn_binding *binding)
{
    return binding->kind == CLATTN_BINDING_KIND_SVM
               ? cl->clSetKernelArgSVMPointer(kernel, index, binding->svm)
               : cl->clSetKernelArg(kernel, index, sizeof(cl_mem), &binding->buffer);
}

/* Sets the kernel's arguments and launches `count` work-groups.  The plan's lock is held. */
static clattn_status launch_part_of(struct chain *chain, const struct plan_kernel *kernel,
                                    const clattn_binding *const *bindings, const void *args, const int count[3],
                                    bool last)
{
    clattn_status status = CLATTN_SUCCESS;
    struct report *report = &chain->context->device.report;
    const struct cl_table *cl = &chain->context->device.cl;
    struct step step;
    size_t global[3];
    for (int i = 0; i < 3; i++)
        if (!size_mul((size_t)count[i], kernel->local[i], &global[i]))
            return report_error(report, CLATTN_ERROR_OVERFLOW, "%s: too many work-items", kernel->name);
    for (cl_uint i = 0; i < kernel->pointers; i++)
        if (bindings[i])
            TRY_CL(report, "clSetKernelArg", bind_pointer(cl, kernel->handle, i, bindings[i]));
    TRY_CL(report, "clSetKernelArg", cl->clSetKernelArg(kernel->handle, kernel->pointers, kernel->args_bytes, args));
    chain_step(chain, last, &step);
    TRY_CL(report, "clEnqueueNDRangeKernel",
           cl->clEnqueueNDRangeKernel(chain->queue, kernel->handle, 3, NULL, global, kernel->local, step.wait_count,
                                      step.wait_list, step.event));
    chain_stepped(chain, &step);
fail:
    return status;
}

/* How many groups a launch takes of each dimension if `most` may run at once: all of the first dimension, then all of the second,
 * as long as that is no more than `most`. */
static void piece_of(const int groups[3], double most, int piece[3])
{
    for (int i = 0; i < 3; i++) {
        piece[i] = most < groups[i] ? (int)most : groups[i];
        piece[i] = piece[i] > 0 ? piece[i] : 1;
        most = most / groups[i];
    }
}

/* Gives the kernel its share of an enqueue's progress. */
static struct control_range kernel_range(clattn_control *control, const clattn_plan *plan, size_t index)
{
    double all = 0, begin = 0, end = 0;
    for (size_t i = 0; i < plan->kernel_count; i++) {
        begin = i == index ? all : begin;
        all += plan->kernels[i].prepares ? 0.1 : 1;
        end = i == index ? all : end;
    }
    return control_part(control, begin / all, end / all);
}

clattn_status chain_launch(struct chain *chain, const clattn_plan *plan, size_t index,
                           const clattn_binding *const *bindings, void *args, const size_t groups[3], bool last)
{
    clattn_status status = CLATTN_SUCCESS;
    const struct plan_kernel *kernel = &plan->kernels[index];
    launch_part *part = args;
    int piece[3], count[3];
    for (int i = 0; i < 3; i++) {
        if (groups[i] > INT_MAX)
            return report_error(&chain->context->device.report, CLATTN_ERROR_OVERFLOW, "%s: too many work-items",
                                kernel->name);
        part->groups[i] = (int)groups[i];
    }
    const double all = (double)groups[0] * (double)groups[1] * (double)groups[2];
    piece_of(part->groups, control_most_groups(chain->control, plan, chain->work, all), piece);
    const size_t pieces[3] = {divide_up(groups[0], (size_t)piece[0]), divide_up(groups[1], (size_t)piece[1]),
                              divide_up(groups[2], (size_t)piece[2])};
    const size_t launches = pieces[0] * pieces[1] * pieces[2];
    const struct control_range range = kernel_range(chain->control, plan, index);
    for (size_t i = 0; i < launches; i++) {
        const size_t place[3] = {i % pieces[0], i / pieces[0] % pieces[1], i / pieces[0] / pieces[1]};
        for (int d = 0; d < 3; d++) {
            part->first[d] = (int)place[d] * piece[d];
            count[d] = part->groups[d] - part->first[d] < piece[d] ? part->groups[d] - part->first[d] : piece[d];
        }
        mtx_lock(plan->lock);
        status = launch_part_of(chain, kernel, bindings, args, count, last && i + 1 == launches);
        mtx_unlock(plan->lock);
        if (status != CLATTN_SUCCESS)
            break;
        TRY(control_launched(chain->control, chain->context, chain->queue, chain->last,
                             (double)(i + 1) / (double)launches));
    }
fail:
    control_restore(chain->control, range);
    return status;
}

/* Gives the workspace back.  A chain that failed half-way has no event that says when the workspace is free: an
 * in-order queue was asked for none, and a failed step has none for what it enqueued.  A marker behind everything on
 * the queue serves instead. */
static void give_back(struct chain *chain)
{
    const struct cl_table *cl = &chain->context->device.cl;
    struct workspace_pool *pool = &chain->context->workspaces;
    cl_event end = chain->last;
    bool marked = false;
    if (chain->lease.workspace && (chain->uncertain || (chain->started && !chain->last))) {
        marked = cl->clEnqueueMarkerWithWaitList(chain->queue, 0, NULL, &end) == CL_SUCCESS;
        if (!marked) {
            workspace_abandon(pool, &chain->lease);
            return;
        }
    }
    workspace_return(pool, &chain->lease, chain->queue, end);
    if (marked)
        cl->clReleaseEvent(end);
}

clattn_status chain_end(struct chain *chain, clattn_status status)
{
    const struct cl_table *cl = &chain->context->device.cl;
    if (status == CLATTN_SUCCESS)
        status = control_last(chain->control, chain->context, chain->queue, chain->last);
    give_back(chain);
    if (status == CLATTN_SUCCESS && chain->event) {
        *chain->event = chain->last;
        chain->last = NULL;
    }
    if (chain->last)
        cl->clReleaseEvent(chain->last);
    chain->last = NULL;
    report_deliver();
    return status;
}

clattn_status chain_mark(struct chain *chain)
{
    clattn_status status = CLATTN_SUCCESS;
    struct step step;
    chain_step(chain, true, &step);
    if (!step.event)
        return CLATTN_SUCCESS;
    TRY_CL(&chain->context->device.report, "clEnqueueMarkerWithWaitList",
           chain->context->device.cl.clEnqueueMarkerWithWaitList(chain->queue, step.wait_count, step.wait_list,
                                                                 step.event));
    chain_stepped(chain, &step);
fail:
    return status;
}

clattn_status chain_tell(const struct chain *chain, cl_event *event)
{
    clattn_status status = CLATTN_SUCCESS;
    struct device *device = &chain->context->device;
    *event = NULL;
    if (!chain->in_order && chain->last) {
        TRY_CL(&device->report, "clRetainEvent", device->cl.clRetainEvent(chain->last));
        *event = chain->last;
    } else {
        TRY_CL(&device->report, "clEnqueueMarkerWithWaitList",
               device->cl.clEnqueueMarkerWithWaitList(chain->queue, 0, NULL, event));
    }
fail:
    return status;
}

clattn_status plan_enqueue_nothing(const clattn_plan *plan, const struct enqueue_call *call)
{
    struct chain chain;
    struct enqueue_call nothing = *call;
    nothing.workspace = 0;
    clattn_status status = chain_begin(&chain, plan->context, &nothing, NULL);
    if (status == CLATTN_SUCCESS)
        status = chain_mark(&chain);
    return chain_end(&chain, status);
}

clattn_status plan_enqueue_kernel(const clattn_plan *plan, const struct enqueue_call *call, double work,
                                  const clattn_binding *const *bindings, void *args, const size_t groups[3])
{
    struct chain chain;
    clattn_status status = chain_begin(&chain, plan->context, call, NULL);
    chain.work = work;
    if (status == CLATTN_SUCCESS)
        status = chain_launch(&chain, plan, 0, bindings, args, groups, true);
    return chain_end(&chain, status);
}
