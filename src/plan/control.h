/* What a clattn_control does in the calls that it watches: it cuts launches, waits for them, and looks at the cancel flag. */
#ifndef CLATTN_PLAN_CONTROL_H
#define CLATTN_PLAN_CONTROL_H

#include "clattn/control.h"
#include "plan/plan.h"

/* Begins a call that `control`, which may be NULL, watches; calls of one thread may be nested.  Returns CANCELLED if the control
 * is cancelled already, and INVALID_ARGUMENT if another thread's call uses it.  After SUCCESS, and only then, control_leave
 * follows. */
clattn_status control_enter(clattn_control *control, struct report *report);

/* Ends the call, after SUCCESS when its last launch has ended; returns `status`, or why the waiting failed. */
clattn_status control_leave(clattn_control *control, clattn_status status);

/* Whether steps need events, so that control_launched can wait for them. */
bool control_waits(const clattn_control *control);

/* The share of the call's work that follows, which nested calls divide among their parts. */
struct control_range {
    double begin, end;
};

/* Makes a part of the current range the current one, from `begin` to `end` of 0 ... 1, and returns the range that it is a part of;
 * control_restore makes that one current again.  control_step does so for part `index` of `count` equal ones. */
struct control_range control_part(clattn_control *control, double begin, double end);
struct control_range control_step(clattn_control *control, size_t index, size_t count);
void control_restore(clattn_control *control, struct control_range range);

/* Tells the control about a launch that has the given event, after which `done` of the current range is enqueued.  Waits for the
 * launch before.  If the control is cancelled, waits for this launch too and returns CANCELLED. */
clattn_status control_launched(clattn_control *control, clattn_context *context, cl_command_queue queue, cl_event event,
                               double done);

/* Tells the control about the last command of a chain, whatever it is, which control_leave then waits for. */
clattn_status control_last(clattn_control *control, clattn_context *context, cl_command_queue queue, cl_event event);

/* How many of the `groups` work-groups of a launch may run at once if all of them take `work` floating-point operations; all if
 * the control sets no limit or `work` is 0. */
double control_most_groups(const clattn_control *control, const clattn_plan *plan, double work, double groups);

/* The operations that count for an array element which a kernel only moves or scales. */
#define WORK_OF_ELEMENT 16

#endif
