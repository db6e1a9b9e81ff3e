/* What the operations have in common.  gegl-op.h, which each of them includes before, cannot be included twice. */
#ifndef CLATTN_GEGL_OPERATION_H
#define CLATTN_GEGL_OPERATION_H

#include "engine.h"

/* Colours as they are encoded, in the picture's own space; grey stays grey. */
static inline const Babl *format_of(GeglOperation *operation)
{
    const Babl *source = gegl_operation_get_source_format(operation, "input");
    const Babl *space = source ? babl_format_get_space(source) : NULL;
    const gboolean alpha = !source || babl_format_has_alpha(source);
    const gboolean grey =
        source && !babl_format_is_palette(source) && babl_format_get_n_components(source) - (alpha ? 1 : 0) == 1;
    const char *names[2][2] = {{"R'G'B' float", "R'G'B'A float"}, {"Y' float", "Y'A float"}};
    return babl_format_with_space(names[grey][alpha], space);
}

/* The input's extent; empty if nothing is connected. */
static inline GeglRectangle bounds_of(GeglOperation *operation)
{
    const GeglRectangle *input = gegl_operation_source_get_bounding_box(operation, "input");
    return input ? *input : *GEGL_RECTANGLE(0, 0, 0, 0);
}

/* Where the work runs: on GEGL's own OpenCL, if it uses it. */
static inline engine_opencl opencl_of(const GeglOperation *operation)
{
    engine_opencl found = {NULL, NULL, NULL};
    if (gegl_operation_use_opencl(operation)) {
        found.context = gegl_cl_get_context();
        found.device = gegl_cl_get_device();
        found.queue = gegl_cl_get_command_queue();
    }
    return found;
}

#endif
