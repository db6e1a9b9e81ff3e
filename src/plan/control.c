#include "plan/control.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/size.h"
#include "base/try.h"

#define PROGRESS_WHOLE (1 << 24)
#define EFFICIENCY_LEAST 0.02 /* of plans that do not say what they reach */

struct clattn_control {
    clattn_control_params params;
    atomic_bool cancelled;
    atomic_int progress;    /* of PROGRESS_WHOLE */
    atomic_uintptr_t owner; /* the thread whose call uses the control, or 0 */
    /* The owner's: */
    size_t expected, done; /* calls whose progress counts together, and how many of them have returned */
    size_t depth;          /* of nested calls */
    struct control_range range;
    cl_event launched; /* the latest launch, which has not been waited for */
    clattn_context *launched_by;
    double launched_done;
};

static _Thread_local const char thread_mark;

/* A number that no other thread has at the same time. */
static uintptr_t this_thread(void)
{
    return (uintptr_t)&thread_mark;
}

void clattn_control_params_init(clattn_control_params *params)
{
    struct_init(params, sizeof *params);
}

clattn_status clattn_control_create(const clattn_control_params *given, clattn_control **control)
{
    clattn_control_params params;
    if (!control)
        return report_error(NULL, CLATTN_ERROR_INVALID_ARGUMENT, "control is NULL");
    *control = NULL;
    clattn_status status = struct_read(&params, sizeof params, sizeof params, given);
    if (status != CLATTN_SUCCESS)
        return report_error(NULL, status, "params is NULL, or its size is none that clattn_control_params ever had");
    if (params.cancellable != 0 && params.cancellable != 1)
        return report_error(NULL, CLATTN_ERROR_INVALID_ARGUMENT, "cancellable is %d, neither 0 nor 1",
                            (int)params.cancellable);
    clattn_control *made = calloc(1, sizeof *made);
    if (!made)
        return report_error(NULL, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a control");
    made->params = params;
    made->expected = 1;
    atomic_init(&made->cancelled, false);
    atomic_init(&made->progress, 0);
    atomic_init(&made->owner, 0);
    *control = made;
    return CLATTN_SUCCESS;
}

void clattn_control_release(clattn_control **control)
{
    if (!control)
        return;
    free(*control);
    *control = NULL;
}

void clattn_control_cancel(clattn_control *control)
{
    if (control)
        atomic_store(&control->cancelled, true);
}

void clattn_control_reset(clattn_control *control)
{
    if (!control)
        return;
    atomic_store(&control->cancelled, false);
    if (!atomic_load(&control->owner))
        atomic_store(&control->progress, 0);
    clattn_control_expect(control, 1);
}

void clattn_control_expect(clattn_control *control, size_t calls)
{
    uintptr_t nobody = 0;
    if (!control || !atomic_compare_exchange_strong(&control->owner, &nobody, this_thread()))
        return;
    control->expected = control->done = calls; /* the next call begins the chain */
    atomic_store(&control->owner, 0);
}

int32_t clattn_control_is_cancelled(const clattn_control *control)
{
    return control && atomic_load(&control->cancelled);
}

double clattn_control_progress(const clattn_control *control)
{
    return control ? (double)atomic_load(&control->progress) / PROGRESS_WHOLE : 0;
}

/* ---- in a call ---- */

bool control_waits(const clattn_control *control)
{
    return control && control->params.cancellable;
}

static clattn_status report_cancelled(struct report *report)
{
    return report_error(report, CLATTN_ERROR_CANCELLED, "the call's control was cancelled");
}

clattn_status control_enter(clattn_control *control, struct report *report)
{
    uintptr_t nobody = 0;
    if (!control)
        return CLATTN_SUCCESS;
    if (atomic_load(&control->owner) == this_thread()) {
        control->depth++;
        return CLATTN_SUCCESS;
    }
    if (!atomic_compare_exchange_strong(&control->owner, &nobody, this_thread()))
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "control: a call of another thread is using it");
    control->depth = 1;
    control->launched = NULL;
    if (control->done >= control->expected) {
        control->done = 0;
        atomic_store(&control->progress, 0);
    }
    control->range = (struct control_range){0, 1};
    control_step(control, control->done, control->expected);
    if (!control_waits(control) || !atomic_load(&control->cancelled))
        return CLATTN_SUCCESS;
    atomic_store(&control->owner, 0);
    return report_cancelled(report);
}

static void show(clattn_control *control, double done)
{
    int progress = (int)(done * PROGRESS_WHOLE);
    if (progress > atomic_load(&control->progress))
        atomic_store(&control->progress, progress);
}

/* Waits for the latest launch. */
static clattn_status wait_for_launched(clattn_control *control)
{
    clattn_status status = CLATTN_SUCCESS;
    const cl_event event = control->launched;
    if (!event)
        return CLATTN_SUCCESS;
    const struct cl_table *cl = &control->launched_by->device.cl;
    control->launched = NULL;
    TRY_CL(&control->launched_by->device.report, "clWaitForEvents", cl->clWaitForEvents(1, &event));
    show(control, control->launched_done);
fail:
    cl->clReleaseEvent(event);
    return status;
}

clattn_status control_leave(clattn_control *control, clattn_status status)
{
    if (!control || --control->depth > 0)
        return status;
    if (status == CLATTN_SUCCESS)
        status = wait_for_launched(control);
    if (control->launched)
        control->launched_by->device.cl.clReleaseEvent(control->launched);
    control->launched = NULL;
    control->done++;
    if (status == CLATTN_SUCCESS && control_waits(control))
        show(control, (double)control->done / (double)size_max(control->expected, 1));
    atomic_store(&control->owner, 0);
    return status;
}

struct control_range control_part(clattn_control *control, double begin, double end)
{
    if (!control)
        return (struct control_range){0, 0};
    const struct control_range whole = control->range;
    const double length = whole.end - whole.begin;
    control->range = (struct control_range){whole.begin + length * begin, whole.begin + length * end};
    return whole;
}

struct control_range control_step(clattn_control *control, size_t index, size_t count)
{
    const double part = 1.0 / (double)size_max(count, 1);
    return control_part(control, part * (double)index, part * (double)(index + 1));
}

void control_restore(clattn_control *control, struct control_range range)
{
    if (control)
        control->range = range;
}

clattn_status control_launched(clattn_control *control, clattn_context *context, cl_command_queue queue, cl_event event,
                               double done)
{
    clattn_status status = CLATTN_SUCCESS;
    struct report *report = &context->device.report;
    const struct cl_table *cl = &context->device.cl;
    if (!control_waits(control) || !event)
        return CLATTN_SUCCESS;
    TRY_CL(report, "clFlush", cl->clFlush(queue));
    TRY(wait_for_launched(control));
    TRY_CL(report, "clRetainEvent", cl->clRetainEvent(event));
    control->launched = event;
    control->launched_by = context;
    control->launched_done = control->range.begin + (control->range.end - control->range.begin) * done;
    if (!atomic_load(&control->cancelled))
        return CLATTN_SUCCESS;
    TRY(wait_for_launched(control));
    status = report_cancelled(report);
fail:
    return status;
}

clattn_status control_last(clattn_control *control, clattn_context *context, cl_command_queue queue, cl_event event)
{
    clattn_status status = CLATTN_SUCCESS;
    struct report *report = &context->device.report;
    const struct cl_table *cl = &context->device.cl;
    if (!control_waits(control) || !event || event == control->launched)
        return CLATTN_SUCCESS;
    TRY_CL(report, "clFlush", cl->clFlush(queue));
    TRY_CL(report, "clRetainEvent", cl->clRetainEvent(event));
    if (control->launched)
        control->launched_by->device.cl.clReleaseEvent(control->launched);
    control->launched = event;
    control->launched_by = context;
fail:
    return status;
}

/* Floating-point operations a second that the plan's kernels reach at least, from what the device says of itself. */
static double speed(const clattn_plan *plan)
{
    const struct capabilities *caps = &plan->context->device.caps;
    const double units = caps->info.compute_units, clock = caps->info.clock_mhz ? caps->info.clock_mhz : 500;
    const double lanes = capabilities_on_cpu(caps) ? caps->lanes : 32;
    const double efficiency = plan->efficiency > 0 ? plan->efficiency : EFFICIENCY_LEAST;
    return (units > 1 ? units : 1) * clock * 1e6 * lanes * 2 * efficiency;
}

double control_most_groups(const clattn_control *control, const clattn_plan *plan, double work, double groups)
{
    if (!control || !control->params.max_launch_ms || !(work > 0))
        return groups;
    const double most = control->params.max_launch_ms * 1e-3 * speed(plan) / work * groups;
    return most < 1 ? 1 : most < groups ? most : groups;
}
