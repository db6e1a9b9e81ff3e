#include "plan/workspace.h"

#include <stdlib.h>

struct workspace {
    struct workspace *next;
    cl_mem buffer;
    size_t bytes;
    cl_event event;         /* of the work that used it last; NULL: none */
    cl_command_queue queue; /* of that event */
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
    /* OpenCL keeps a released buffer until the commands that use it have completed. */
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

/* Free, or given back by work that has completed (or failed: a negative status). */
static bool is_free(struct workspace_pool *pool, struct workspace *workspace)
{
    cl_int state = CL_QUEUED;
    if (workspace->leased)
        return false;
    if (!workspace->event)
        return true;
    if (pool->device->cl.clGetEventInfo(workspace->event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state,
                                        &state, NULL) != CL_SUCCESS ||
        state > CL_COMPLETE)
        return false;
    forget_event(pool, workspace);
    return true;
}

/* Drops free buffers until `bytes` more fit under the limit. */
static void make_room(struct workspace_pool *pool, size_t bytes)
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
        return report_error(
            report, CLATTN_ERROR_BUSY,
            "a workspace of %zu bytes is over the context's limit of %zu: raise workspace_limit or "
            "bring a workspace",
            bytes, pool->limit);
    make_room(pool, bytes);
    if (pool->held > pool->limit - bytes)
        return report_error(report, CLATTN_ERROR_BUSY,
                            "%zu bytes of workspace are in use, %zu more are over the limit of %zu: wait for "
                            "earlier work",
                            pool->held, bytes, pool->limit);
    struct workspace *workspace = calloc(1, sizeof *workspace);
    if (!workspace)
        return report_error(report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a workspace");
    workspace->buffer =
        pool->device->cl.clCreateBuffer(pool->device->context, CL_MEM_READ_WRITE, bytes, NULL, &code);
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

clattn_status workspace_lease(struct workspace_pool *pool, size_t bytes, cl_command_queue queue,
                              bool in_order, struct workspace_lease *lease)
{
    clattn_status status = CLATTN_SUCCESS;
    struct workspace *best = NULL;
    mtx_lock(&pool->lock);
    for (struct workspace *each = pool->first; each; each = each->next)
        if (each->bytes >= bytes && (!best || each->bytes < best->bytes) &&
            (is_free(pool, each) || (in_order && !each->leased && each->queue == queue)))
            best = each;
    if (!best)
        status = grow(pool, bytes, &best);
    if (status == CLATTN_SUCCESS) {
        forget_event(pool, best);
        best->leased = true;
        lease->workspace = best;
        lease->buffer = best->buffer;
    }
    mtx_unlock(&pool->lock);
    return status;
}

void workspace_return(struct workspace_pool *pool, struct workspace_lease *lease, cl_command_queue queue,
                      cl_event event)
{
    struct workspace *workspace = lease->workspace;
    const struct cl_table *cl = &pool->device->cl;
    if (!workspace)
        return;
    mtx_lock(&pool->lock);
    if (!event) {
        workspace->leased = false;
    } else if (cl->clRetainEvent(event) == CL_SUCCESS) {
        if (cl->clRetainCommandQueue(queue) == CL_SUCCESS) {
            workspace->event = event;
            workspace->queue = queue;
            workspace->leased = false;
        } else {
            cl->clReleaseEvent(event);
        }
    }
    /* What could not be retained stays leased: nobody would know when it is free. */
    mtx_unlock(&pool->lock);
    lease->workspace = NULL;
    lease->buffer = NULL;
}
