/* The process's clattn contexts, and what waits for the next call.
 *
 * There is one context, on GEGL's OpenCL context and queue if GEGL uses OpenCL, or on the library's own; a process in which
 * OpenCL is turned on or off has both.  They are made when they are first needed, because programs make a list of all
 * operations when they start, and last until the process ends, because drivers have threads that no library can join. */
#include "engine_shared.h"

#include <stdio.h>

#include "base/os/os_threads.h"

static struct {
    mtx_t lock; /* guards all members and shelves; no plan is made and nothing enqueued while it is held */
    clattn_context *own, *adopted;
} shared = {.lock = MTX_INIT};

static void write_log(void *user, clattn_log_level level, const char *line)
{
    (void)user;
    if (level != CLATTN_LOG_LEVEL_ERROR) /* errors are returned */
        fprintf(stderr, "clattn-gegl: %s\n", line);
}

clattn_status engine_context(const engine_opencl *opencl, clattn_context **found)
{
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    params.log = write_log;
    params.opencl_context = opencl->context;
    params.opencl_device = opencl->device;
    params.queue = opencl->queue;
    mtx_lock(&shared.lock);
    bool adopt = params.opencl_context != NULL;
    if (adopt && shared.adopted != NULL && clattn_context_opencl_context(shared.adopted) != params.opencl_context) {
        adopt = false;
        params.opencl_context = NULL;
        params.opencl_device = NULL;
        params.queue = NULL;
    }
    clattn_context **place = adopt ? &shared.adopted : &shared.own;
    clattn_status status = *place != NULL ? CLATTN_SUCCESS : clattn_context_create(&params, place);
    *found = *place;
    mtx_unlock(&shared.lock);
    return status;
}

void *engine_take(engine_shelf *shelf, bool (*fits)(const void *item, const void *wanted), const void *wanted)
{
    void *taken = NULL;
    mtx_lock(&shared.lock);
    for (size_t i = ENGINE_IDLE; i-- > 0 && taken == NULL;)
        if (shelf->item[i] != NULL && fits(shelf->item[i], wanted)) {
            taken = shelf->item[i];
            shelf->item[i] = NULL;
        }
    mtx_unlock(&shared.lock);
    return taken;
}

void *engine_keep(engine_shelf *shelf, void *item)
{
    mtx_lock(&shared.lock);
    for (size_t i = ENGINE_IDLE; i-- > 0 && item != NULL;) {
        void *before = shelf->item[i];
        shelf->item[i] = item;
        item = before;
    }
    mtx_unlock(&shared.lock);
    return item;
}
