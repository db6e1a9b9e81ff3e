/* Objects are looked at and changed under the lock of clblast_library.h alone; what CLBlast keeps of them (programs,
 * and the addresses of device and context as keys of its caches) is gone when they are destroyed. */
#include "ops/matmul/clblast/objects.h"

#ifdef CLATTN_ICD_HEADER
#include <stdlib.h>
#include <string.h>

#include "ops/matmul/clblast/shown.h"

static struct clblast_objects *clblast_first;

/* Whether calls reach the driver through the table that its device begins with: the platform says that it has tables,
 * and the function that this library is linked with is not the driver's own, but the loader's. */
static bool calls_are_dispatched(const struct cl_table *cl, const struct capabilities *caps)
{
    char extensions[4096] = "";
    const cl_icd_dispatch *driver;
    if (cl->clGetPlatformInfo(caps->platform, CL_PLATFORM_EXTENSIONS, sizeof extensions - 1, extensions, NULL) !=
            CL_SUCCESS ||
        !strstr(extensions, "cl_khr_icd"))
        return false;
    memcpy(&driver, (const void *)caps->device, sizeof driver);
    return driver && driver->clGetDeviceInfo != cl->clGetDeviceInfo;
}

static struct clblast_objects *make(clattn_context *context)
{
    struct clblast_objects *objects = calloc(1, sizeof *objects);
    if (!objects)
        return NULL;
    objects->cl = context->device.cl;
    objects->usable = (context->device.caps.quirks & QUIRK_COMPILES_BY_GRID) &&
                      calls_are_dispatched(&objects->cl, &context->device.caps);
    if (objects->cl.clRetainContext(context->device.context) != CL_SUCCESS) {
        free(objects);
        return NULL;
    }
    if (objects->cl.clRetainDevice(context->device.caps.device) != CL_SUCCESS) {
        objects->cl.clReleaseContext(context->device.context);
        free(objects);
        return NULL;
    }
    objects->context = context->device.context;
    objects->device = context->device.caps.device;
    objects->shown_device = (struct shown_device){&shown_calls, objects};
    objects->shown_context = (struct shown_context){&shown_calls, objects};
    objects->next = clblast_first;
    clblast_first = objects;
    return objects;
}

struct clblast_objects *clblast_objects_of(clattn_context *context)
{
    struct clblast_objects *objects = clblast_first;
    while (objects && (objects->context != context->device.context || objects->device != context->device.caps.device))
        objects = objects->next;
    if (!objects)
        objects = make(context);
    return objects && objects->usable ? objects : NULL;
}

bool clblast_objects_give_up(clattn_context *context)
{
    struct clblast_objects *objects = clblast_objects_of(context);
    if (objects)
        objects->usable = false;
    return objects;
}

cl_command_queue clblast_objects_queue(struct clblast_objects *objects, cl_command_queue queue,
                                       struct clblast_queue *storage)
{
    if (!objects)
        return queue;
    *storage = (struct clblast_queue){&shown_calls, objects, queue};
    return (cl_command_queue)(void *)storage;
}

void clblast_objects_clear(void)
{
    while (clblast_first) {
        struct clblast_objects *objects = clblast_first;
        clblast_first = objects->next;
        objects->cl.clReleaseDevice(objects->device);
        objects->cl.clReleaseContext(objects->context);
        free(objects);
    }
}

#else

struct clblast_objects *clblast_objects_of(clattn_context *context)
{
    (void)context;
    return NULL;
}

bool clblast_objects_give_up(clattn_context *context)
{
    (void)context;
    return false;
}

cl_command_queue clblast_objects_queue(struct clblast_objects *objects, cl_command_queue queue,
                                       struct clblast_queue *storage)
{
    (void)objects;
    (void)storage;
    return queue;
}

void clblast_objects_clear(void)
{
}

#endif
