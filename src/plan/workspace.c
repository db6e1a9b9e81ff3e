#include "plan/workspace.h"

#include <stdlib.h>

struct workspace {
    struct workspace *next;
    cl_mem buffer;
    size_t bytes;
    cl_event event;         /* of the work that used it last, or NULL; also during a lease */
    cl_command_queue queue; /* the queue of `event` */
    bool leased;
};

clattn_status workspace_pool_init(struct workspace_pool *pool, struct device *device, size_t limit)
{
    pool->device = device;
    pool->first = NULL;
    pool->held = 0;
    pool->limit = limit;
    if (mtx_init(&pool->lock, mtx_plain) != thrd_success)
        return report_error(NULL, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a lock");
    return CLATTN_SUCCESS;
}

static void forget_event(struct workspace_pool *pool, struct workspace *workspace)
{
    if (workspace->event) {
        pool->device->cl.clReleaseEvent(workspace->event);
        pool->device->cl.clReleaseCommandQueue(workspace->queue);
    }
    workspace->event = NULL;
    workspace->queue = NULL;
}

static void destroy(struct workspace_pool *pool, struct workspace *workspace)
{
    /* OpenCL frees a released buffer only after the commands that use it have completed. */
    forget_event(pool, workspace);
    if (workspace->buffer)
        pool->device->cl.clReleaseMemObject(workspace->buffer);
    pool->held -= workspace->bytes;
    free(workspace);
}

void workspace_pool_clear(struct workspace_pool *pool)
{
    while (pool->first) {
        struct workspace *gone = pool->first;
        pool->first = gone->next;
        destroy(pool, gone);
    }
    mtx_destroy(&pool->lock);
}

/* Whether the workspace is not leased, and the work that used it last has completed (or failed: a negative status). */
static bool is_free(struct workspace_pool *pool, struct workspace *workspace)
{
    cl_int state = CL_QUEUED;
    if (workspace->leased)
        return false;
    if (!workspace->event)
        return true;
    if (pool->device->cl.clGetEventInfo(workspace->event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state,
                                        NULL) != CL_SUCCESS ||
        state > CL_COMPLETE)
        return false;
    forget_event(pool, workspace);
    return true;
}

/* Drops free buffers until `bytes` more fit under the limit. */
static void drop_free(struct workspace_pool *pool, size_t bytes)
{
    for (struct workspace **link = &pool->first; *link && pool->held > pool->limit - bytes;) {
        struct workspace *workspace = *link;
        if (is_free(pool, workspace)) {
            *link = workspace->next;
            destroy(pool, workspace);
        } else {
            link = &workspace->next;
        }
    }
}

static clattn_status grow(struct workspace_pool *pool, size_t bytes, struct workspace **made)
{
    struct report *report = &pool->device->report;
    cl_int code;
    if (bytes > pool->limit)
        return report_error(report, CLATTN_ERROR_OUT_OF_MEMORY,
                            "a workspace of %zu bytes is over the context's workspace_limit of %zu, now and "
                            "always: bind a buffer of clattn_plan_workspace_size bytes as the workspace, or raise "
                            "the limit",
                            bytes, pool->limit);
    drop_free(pool, bytes);
    if (pool->held > pool->limit - bytes)
        return report_error(report, CLATTN_ERROR_BUSY,
                            "%zu bytes of workspace are in use, %zu more are over the limit of %zu: wait for "
                            "earlier work",
                            pool->held, bytes, pool->limit);
    struct workspace *workspace = calloc(1, sizeof *workspace);
    if (!workspace)
        return report_error(report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a workspace");
    workspace->buffer = pool->device->cl.clCreateBuffer(pool->device->context, CL_MEM_READ_WRITE, bytes, NULL, &code);
    if (!workspace->buffer) {
        free(workspace);
        return report_opencl(report, "clCreateBuffer", code);
    }
    workspace->bytes = bytes;
    pool->held += bytes;
    workspace->next = pool->first;
    pool->first = workspace;
    *made = workspace;
    return CLATTN_SUCCESS;
}

clattn_status workspace_lease(struct workspace_pool *pool, size_t bytes, cl_command_queue queue, bool in_order,
                              struct workspace_lease *lease)
{
    clattn_status status = CLATTN_SUCCESS;
    struct workspace *best = NULL;
    report_hold();
    mtx_lock(&pool->lock);
    for (struct workspace *each = pool->first; each; each = each->next)
        if (each->bytes >= bytes && (!best || each->bytes < best->bytes) &&
            (is_free(pool, each) || (in_order && !each->leased && each->queue == queue)))
            best = each;
    if (!best)
        status = grow(pool, bytes, &best);
    /* The event of earlier work on the queue is not dropped: if nothing is enqueued under this lease, it counts
     * again. */
    if (status == CLATTN_SUCCESS) {
        best->leased = true;
        lease->workspace = best;
        lease->buffer = best->buffer;
    }
    mtx_unlock(&pool->lock);
    report_deliver();
    return status;
}

void workspace_return(struct workspace_pool *pool, struct workspace_lease *lease, cl_command_queue queue,
                      cl_event event)
{
    struct workspace *workspace = lease->workspace;
    const struct cl_table *cl = &pool->device->cl;
    if (!workspace)
        return;
    if (event) {
        if (cl->clRetainEvent(event) != CL_SUCCESS) {
            workspace_abandon(pool, lease);
            return;
        }
        if (cl->clRetainCommandQueue(queue) != CL_SUCCESS) {
            cl->clReleaseEvent(event);
            workspace_abandon(pool, lease);
            return;
        }
    }
    mtx_lock(&pool->lock);
    if (event) {
        forget_event(pool, workspace);
        workspace->event = event;
        workspace->queue = queue;
    }
    workspace->leased = false;
    mtx_unlock(&pool->lock);
    *lease = (struct workspace_lease){0};
}

void workspace_abandon(struct workspace_pool *pool, struct workspace_lease *lease)
{
    if (!lease->workspace)
        return;
    mtx_lock(&pool->lock);
    struct workspace **link = &pool->first;
    while (*link != lease->workspace)
        link = &(*link)->next;
    *link = lease->workspace->next;
    destroy(pool, lease->workspace);
    mtx_unlock(&pool->lock);
    *lease = (struct workspace_lease){0};
}
