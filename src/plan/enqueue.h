/* Enqueueing: checking bindings, setting arguments, and chaining kernels by events. */
#ifndef CLATTN_PLAN_ENQUEUE_H
#define CLATTN_PLAN_ENQUEUE_H

#include "plan/control.h"

/* One enqueue of a plan. */
struct enqueue_call {
    const void *problem;    /* the plan's own, or a self-check's that the plan's kernels also fit */
    size_t workspace;       /* bytes that the problem needs */
    cl_command_queue queue; /* NULL: the context's */
    cl_uint wait_count;
    const cl_event *wait_list;
    cl_event *event;         /* receives the event, or NULL */
    clattn_control *control; /* or NULL */
};

/* How kernels access an array, and in a table of arrays what else is allowed. */
enum binding_access {
    BINDING_READ = 1,
    BINDING_WRITE = 2,
    BINDING_READ_WRITE = BINDING_READ | BINDING_WRITE,
    BINDING_IN_PLACE =
        4, /* an input and an output that both have it may be one array: same memory, offset and layout */
    BINDING_OPTIONAL = 8, /* the caller may leave it unbound */
};

/* Checks that `binding` is memory of the plan's OpenCL context, that the device may access it as `access` says, and
 * that it holds all elements that the first extent[i] of each dimension of `layout` reach.  `name` goes into the
 * message. */
clattn_status binding_check(clattn_context *context, const clattn_binding *binding, const clattn_layout *layout,
                            const size_t *extent, enum binding_access access, const char *name);

/* An array of an enqueue. */
struct bound_array {
    const clattn_binding *binding;
    const clattn_layout *layout;
    const size_t *extent; /* how much of each dimension the enqueue reaches */
    unsigned access;      /* of binding_access, ored */
    const char *name;
    bool present; /* the plan's description has it */
};

/* Runs binding_absent on the arrays that are not present. */
clattn_status bindings_absent(clattn_context *context, const struct bound_array *arrays, size_t count);

/* Runs bindings_absent, then binding_check on the arrays that are present.  Returns INVALID_ARGUMENT, with both
 * names, if an output overlaps another array in the same buffer or in shared virtual memory, unless both allow
 * BINDING_IN_PLACE and coincide (base/layout.h says how exactly overlap is found).  Buffers that share memory in
 * other ways, as sub-buffers do, are not detected. */
clattn_status bindings_check(clattn_context *context, const struct bound_array *arrays, size_t count);

/* A list of arrays for bindings_check whose layouts and extents are made on the way; `count` is 0 before the first. */
#define BOUND_MOST 48
struct bound_list {
    size_t count;
    struct bound_array array[BOUND_MOST];
    struct {
        clattn_binding binding;
        clattn_layout layout;
        size_t extent[CLATTN_MAX_RANK];
    } copy[BOUND_MOST];
};

/* Adds an array that is present; all but `name` is copied. */
void bound_add(struct bound_list *list, const clattn_binding *binding, const clattn_layout *layout,
               const size_t *extent, unsigned access, const char *name);

/* Checks that `buffer` is memory of that type, of the plan's OpenCL context, that the device may access as `access`
 * says; stores its size in *bytes. */
clattn_status binding_check_memory(clattn_context *context, cl_mem buffer, cl_mem_object_type expected,
                                   enum binding_access access, const char *name, size_t *bytes);

bool binding_is_none(const clattn_binding *binding);

/* Returns INVALID_ARGUMENT if an array is bound that the plan's description does not have: the caller forgot the
 * layout.  binding_absent_field is for arrays that the description announces by `field` instead of a layout. */
clattn_status binding_absent_field(clattn_context *context, const clattn_binding *binding, const char *name,
                                   const char *field);
clattn_status binding_absent(clattn_context *context, const clattn_binding *binding, const char *name);

/* Does struct_read on an enqueue's arguments, whose type is `name`, and reports a failure. */
clattn_status args_read(struct report *report, const char *name, void *copy, size_t current, size_t first,
                        const void *given);

/* Returns INVALID_ARGUMENT if an enqueue's flag, `name`, is neither 0 nor 1, or if its `reserved` is not 0. */
clattn_status args_check(struct report *report, const char *name, int32_t flag, int32_t reserved);

/* Sets *length to `most`, the plan's length, unless the caller gave it; INVALID_ARGUMENT if the caller's is above
 * `most`. */
clattn_status args_length(struct report *report, const char *name, int32_t is_explicit, size_t *length, size_t most);

/* The sequence of launches of one enqueue.  Set it up with chain_begin, run the steps, and call chain_end whatever
 * happened: the chain then holds nothing. */
struct chain {
    clattn_context *context;
    cl_command_queue queue;
    bool in_order;
    cl_uint wait_count; /* what the first step waits for */
    const cl_event *wait_list;
    cl_event last;    /* the event of the latest step that has one */
    bool started;     /* a step has been enqueued */
    bool uncertain;   /* a step has failed, and may have enqueued a part of itself */
    bool needs_event; /* the caller or the workspace pool needs the last step's event */
    cl_event *event;  /* receives the last step's event, or NULL */
    clattn_control *control;
    double
        work; /* floating-point operations that one kernel of this enqueue takes at the most; 0: nobody has counted */
    struct workspace_lease lease;
    clattn_binding workspace; /* the caller's or the leased one; its offset in bytes */
};

/* Checks the call's queue and wait list, and leases its workspace unless the caller has given one.  Check everything
 * else about the call before.  Log lines are held until chain_end, so that locks may be held in between. */
clattn_status chain_begin(struct chain *chain, clattn_context *context, const struct enqueue_call *call,
                          const clattn_binding *given);

/* The arguments of one step: a launch, or another plan's enqueue. */
struct step {
    cl_uint wait_count;
    const cl_event *wait_list;
    cl_event *event; /* receives the step's event; NULL if none is needed */
    cl_event made;
};
void chain_step(const struct chain *chain, bool last, struct step *step);
/* The step as a call of another plan's enqueue, one that needs no workspace. */
static inline struct enqueue_call chain_call(const struct chain *chain, const struct step *step)
{
    return (struct enqueue_call){.queue = chain->queue,
                                 .wait_count = step->wait_count,
                                 .wait_list = step->wait_list,
                                 .event = step->event,
                                 .control = chain->control};
}
/* Records that the step has been enqueued. */
void chain_stepped(struct chain *chain, struct step *step);
/* Records that a step of several commands has failed and may have enqueued some of them: the workspace is then given
 * back behind everything on the queue. */
void chain_failed(struct chain *chain, struct step *step);

/* Sets the arguments of the plan's kernel `index` (its buffers, then the struct) and launches it, in several pieces if the
 * call's control wants short launches.  `groups` are counts of work-groups.  A binding that is NULL stands for an optional array
 * that is absent: the kernel has NULL there.  `args` begins with a launch_part, which is filled in here.  Takes the plan's lock
 * for each launch. */
clattn_status chain_launch(struct chain *chain, const clattn_plan *plan, size_t index,
                           const clattn_binding *const *bindings, void *args, const size_t groups[3], bool last);

/* Enqueues a marker as the last step, if its event is needed. */
clattn_status chain_mark(struct chain *chain);

/* Stores the event of the step that has been enqueued, which the caller releases. */
clattn_status chain_tell(const struct chain *chain, cl_event *event);

/* Gives the workspace back and, on success, stores the last step's event as the call asks; returns `status`.  No
 * lock may be held. */
clattn_status chain_end(struct chain *chain, clattn_status status);

/* ---- whole enqueues: chain_begin to chain_end ---- */

/* Enqueues a marker, for a problem with nothing to compute. */
clattn_status plan_enqueue_nothing(const clattn_plan *plan, const struct enqueue_call *call);

/* Launches the plan's first kernel once, without a workspace; `work` is chain.work, and the last three arguments are
 * chain_launch's. */
clattn_status plan_enqueue_kernel(const clattn_plan *plan, const struct enqueue_call *call, double work,
                                  const clattn_binding *const *bindings, void *args, const size_t groups[3]);

#endif
