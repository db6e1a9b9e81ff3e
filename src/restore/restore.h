/* A picture by SwinIR on a device, tile by tile, over the public API: what `clattn image` and the plug-ins share. */
#ifndef CLATTN_RESTORE_RESTORE_H
#define CLATTN_RESTORE_RESTORE_H

#include "restore/swinir.h"
#include "restore/tiling.h"

#define RESTORE_STANDARD_OVERLAP 32

/* What the caller wants. */
typedef struct restore_params {
    size_t height, width;   /* of the picture */
    size_t colours;         /* 1: grey, 3: red, green and blue */
    bool alpha;             /* another plane, which is resized bicubically, or stays as it is if the factor is 1 */
    size_t tile;            /* pixels on a tile's edge; 0: as many as `memory` allows */
    size_t memory;          /* bytes on the device for tiles at the most, if `tile` is 0 */
    size_t overlap;         /* pixels, at least 1 */
    uint32_t max_launch_ms; /* as of a control (control.h); 0: kernels in one piece */
    const char *solver;     /* the attention's; NULL: the best */
} restore_params;

/* What a failure is due to, if it is what the caller has given. */
typedef enum restore_fault {
    RESTORE_FAULT_NONE,
    RESTORE_FAULT_MODEL,
    RESTORE_FAULT_MEMORY,
    RESTORE_FAULT_OVERLAP,
} restore_fault;

/* Plans, buffers and tiles for pictures of one size.  A zeroed one is closed.  One call at a time uses it. */
typedef struct restorer {
    const swinir *model; /* borrowed, as the context and its queue */
    clattn_context *context;
    cl_command_queue queue;
    restore_params params; /* without the solver */
    size_t planes;         /* of colour that the model computes: 1, or 3 at once or by themselves */
    tiling tiles;
    size_t memory; /* bytes on the device for a tile, beside the weights */
    clattn_control *control;
    clattn_plan *plan;    /* of a tile's colours */
    clattn_plan *enlarge; /* of its alpha; NULL if the factor is 1 */
    cl_mem from, to, alpha_from, alpha_to;
    cl_mem workspace; /* the plan's, so that nobody's other work delays it */
    float *given;     /* a tile: (planes and alpha, height, width) */
    float *made;      /* the same of the result */
    float *band[2];   /* results of a row of tiles, and of the row before: (planes and alpha, tile's height, picture's
                       width) */
    restore_fault fault;
    char message[256]; /* of a failure of the restorer's own; otherwise empty */
} restorer;

/* Where the picture comes from and where the result goes.  Components are numbers of 0 ... 1, plane by plane: colours, then
 * alpha.  Those of the result may exceed the range. */
typedef struct restore_work {
    /* Reads the part of `size` (height, width) that begins at row y and column x: (colours and alpha, height, width).  The
     * part may exceed the picture right and below, where tiling_mirrored continues it. */
    void (*read)(void *user, size_t y, size_t x, const size_t size[2], float *values);
    /* Writes row y of the result, of which plane i begins at row + i * step. */
    void (*write)(void *user, size_t y, const float *row, size_t step);
    void (*progress)(void *user, double done); /* NULL, or called after each tile with the fraction that is done */
    void *user;
    clattn_control *control; /* the caller's, for all tiles together; NULL: the restorer's own */
} restore_work;

/* Pixels of a tile of the picture, and of the result. */
static inline size_t given_pixels(const restorer *r)
{
    return r->tiles.tile[0] * r->tiles.tile[1];
}

static inline size_t made_pixels(const restorer *r)
{
    return given_pixels(r) * r->model->factor * r->model->factor;
}

/* The memory for tiles on such a device: `most` bytes or, if that is 0, a quarter of all, up to 1 GiB; no more than lie in one
 * buffer, because a tile's memory is for the most part one. */
size_t restore_memory(const clattn_device_info *info, size_t most);

/* Makes plans and buffers, and blocks; what fails leaves a restorer that restorer_close accepts.  The model has its weights in
 * `context`.  INVALID_ARGUMENT: too little memory, or an overlap that is too large for tiles. */
clattn_status restorer_open(restorer *r, const swinir *model, clattn_context *context, const restore_params *params);

/* Computes the picture, and blocks.  FORMAT: the result is not finite.
 *
 * Models of one channel compute each colour by itself; of three channels, they get grey three times, and the mean of the
 * result counts. */
clattn_status restorer_run(restorer *r, const restore_work *work);

void restorer_close(restorer *r);

#endif
