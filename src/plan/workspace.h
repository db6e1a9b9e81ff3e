/* Scratch memory for enqueues to which the caller binds none: a buffer is free again when the event of its work
 * completes. */
#ifndef CLATTN_PLAN_WORKSPACE_H
#define CLATTN_PLAN_WORKSPACE_H

#include "device/device.h"

struct workspace;

/* Thread-safe. */
struct workspace_pool {
    mtx_t lock;
    struct device *device;
    struct workspace *first;
    size_t held, limit; /* bytes */
};

/* A buffer leased for one enqueue. */
struct workspace_lease {
    struct workspace *workspace; /* NULL: none leased */
    cl_mem buffer;
};

clattn_status workspace_pool_init(struct workspace_pool *pool, struct device *device, size_t limit);
void workspace_pool_clear(struct workspace_pool *pool);

/* Leases at least `bytes` for work on `queue`.  A buffer is free when the event that it was given back with has
 * completed, and at once for further work on the same in-order queue, which runs after that event anyway.  Never
 * waits: returns BUSY if earlier work uses up the limit.  Other statuses: OUT_OF_MEMORY (also for more than the
 * limit, which no waiting mends), OPENCL. */
clattn_status workspace_lease(struct workspace_pool *pool, size_t bytes, cl_command_queue queue, bool in_order,
                              struct workspace_lease *lease);

/* Gives a lease back, once all work that uses it is enqueued on `queue`: the buffer is free when `event` has
 * completed.  If `event` is NULL, nothing was enqueued, and the buffer is free when it would have been without the
 * lease.  The pool retains queue and event until then. */
void workspace_return(struct workspace_pool *pool, struct workspace_lease *lease, cl_command_queue queue,
                      cl_event event);

/* Gives up a lease if no event says when its work ends: the buffer leaves the pool, and OpenCL frees it after that
 * work. */
void workspace_abandon(struct workspace_pool *pool, struct workspace_lease *lease);

#endif
