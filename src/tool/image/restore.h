/* A picture by SwinIR on a device, tile by tile. */
#ifndef CLATTN_TOOL_IMAGE_RESTORE_H
#define CLATTN_TOOL_IMAGE_RESTORE_H

#include "tool/cli/png_file.h"
#include "tool/image/swinir.h"
#include "tool/image/tiling.h"

/* What the caller wants. */
typedef struct restore_params {
    size_t tile;        /* pixels on a tile's edge; 0: as many as `memory` allows */
    size_t memory;      /* bytes on the device for tiles at the most, if `tile` is 0 */
    size_t overlap;     /* pixels */
    const char *solver; /* the attention's; NULL: the best */
} restore_params;

/* Plans, buffers and tiles of one picture.  A zeroed one is closed. */
typedef struct restorer {
    const swinir *model; /* borrowed, as the device and the picture */
    tool_device *device;
    const picture *in;
    size_t planes; /* of colour that the model computes: 1, or 3 at once or by themselves */
    bool alpha;    /* another plane, which is resized */
    tiling tiles;
    size_t memory;        /* bytes on the device for a tile, beside the weights */
    clattn_plan *plan;    /* of a tile's colours */
    clattn_plan *enlarge; /* of its alpha; NULL if the factor is 1 */
    cl_mem from, to, alpha_from, alpha_to;
    float *given; /* a tile: (planes and alpha, height, width) */
    float *made;  /* the same of the result */
    float *band
        [2]; /* results of a row of tiles, and of the row before: (planes and alpha, tile's height, picture's width) */
} restorer;

/* Pixels of a tile of the picture, and of the result. */
static inline size_t given_pixels(const restorer *r)
{
    return r->tiles.tile[0] * r->tiles.tile[1];
}

static inline size_t made_pixels(const restorer *r)
{
    return given_pixels(r) * r->model->factor * r->model->factor;
}

/* Refuses a picture whose result would be too large for a file. */
int restore_check(const char *path, const picture *in, const swinir *model);

/* Makes plans and buffers.  Returns an exit status; what fails leaves a restorer that restore_close accepts. */
int restore_open(restorer *r, const swinir *model, tool_device *device, const picture *in,
                 const restore_params *params);

/* Computes the picture: *out, which the caller releases, has the channels and bits of the one that was given.
 *
 * Models of one channel compute each colour by itself; of three channels, they get grey three times, and the mean of the
 * result counts.  Alpha is resized bicubically, or stays as it is. */
int restore_run(restorer *r, picture *out);

void restore_close(restorer *r);

#endif
