/* Denoising for GEGL's operations: what knows clattn and nothing of GEGL, whose OpenCL headers are not the system's. */
#ifndef CLATTN_GEGL_ENGINE_H
#define CLATTN_GEGL_ENGINE_H

#include <stdbool.h>
#include <stddef.h>

/* GEGL's own cl_context, cl_device_id and cl_command_queue; NULL: it has none, and the process's own context is used. */
typedef struct engine_opencl {
    void *context, *device, *queue;
} engine_opencl;

/* A rectangle of float pixels with what lies around it.  Rows follow each other without gaps. */
typedef struct engine_block {
    const float *in;
    float *out;
    size_t components;                    /* 1 grey, 2 and alpha, 3 colours, 4 and alpha; alpha is not written */
    size_t height, width;                 /* of `in` */
    size_t y, x, part_height, part_width; /* the part of `in` that becomes `out` */
    double strength;                      /* as `clattn denoise` has it */
    size_t patch, radius;
} engine_block;

/* How many pixels around the part change the result. */
size_t engine_margin(size_t patch, size_t radius);

/* Cleans the block and returns true, or writes why not, in one line.  Any thread may call it, several at once, too. */
bool engine_denoise(const engine_opencl *opencl, const engine_block *block, char *message, size_t bytes);

#endif
