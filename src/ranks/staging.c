#include "ranks/staging.h"

#include <stdlib.h>

bool staging_make(struct staging *staging, const struct device *device, cl_command_queue queue, size_t bytes)
{
    const struct cl_table *cl = &device->cl;
    cl_int code;
    *staging = (struct staging){0};
    staging->pinned =
        cl->clCreateBuffer(device->context, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, bytes, NULL, &code);
    if (staging->pinned)
        staging->memory = cl->clEnqueueMapBuffer(queue, staging->pinned, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, bytes,
                                                 0, NULL, NULL, &code);
    if (staging->memory)
        return true;
    staging_release(staging, device, queue);
    staging->memory = malloc(bytes);
    return staging->memory != NULL;
}

void staging_release(struct staging *staging, const struct device *device, cl_command_queue queue)
{
    const struct cl_table *cl = &device->cl;
    if (!staging->pinned) {
        free(staging->memory);
    } else {
        if (staging->memory)
            cl->clEnqueueUnmapMemObject(queue, staging->pinned, staging->memory, 0, NULL, NULL);
        cl->clReleaseMemObject(staging->pinned);
    }
    *staging = (struct staging){0};
}
