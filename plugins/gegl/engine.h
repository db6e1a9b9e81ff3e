/* The work of GEGL's operations: what knows clattn and nothing of GEGL, whose OpenCL headers are not the system's. */
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

/* What a SwinIR model tells about its result. */
typedef struct engine_model {
    size_t factor; /* pixels of the result for one of the picture */
    size_t window; /* pixels on an edge: tiles begin at multiples of it */
} engine_model;

/* A tile of a picture of float pixels, which is computed as if it were all of the picture.  Rows follow each other without
 * gaps.  The tile begins at pixel (y, x) of the picture and has whole windows; `in` has what the picture has of it. */
typedef struct engine_tile {
    const char *path;   /* of the model, a safetensors file */
    engine_model model; /* as engine_find_model has found it */
    const float *in;
    size_t components;            /* 1 grey, 2 and alpha, 3 colours, 4 and alpha; limited to 0 ... 1 */
    size_t height, width;         /* of the tile */
    size_t y, x;                  /* where it begins */
    size_t all_height, all_width; /* of the picture */
    size_t overlap;               /* of the parts that a tile is divided into if the device has little memory */
    float *out;                   /* the part of the result that is wanted: part_height rows of part_width pixels, */
    size_t part_y, part_x, part_height, part_width; /* which begins there in the tile's result */
} engine_tile;

/* Finds out about the model, whose weights are loaded if they are not yet; or returns false and writes why not, in one line.
 * Any thread may call it, as engine_restore. */
bool engine_find_model(const engine_opencl *opencl, const char *path, engine_model *model, char *message, size_t bytes);

/* Computes the tile and returns true, or writes why not, in one line. */
bool engine_restore(const engine_opencl *opencl, const engine_tile *tile, char *message, size_t bytes);

#endif
