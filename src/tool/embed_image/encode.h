/* Pictures to vectors. */
#ifndef CLATTN_TOOL_EMBED_IMAGE_ENCODE_H
#define CLATTN_TOOL_EMBED_IMAGE_ENCODE_H

#include "tool/embed_image/vision.h"

/* Pictures of a folder that could not be read. */
typedef struct vision_left_out {
    size_t count, place; /* how many, and which of all the first of them is */
    char first[4608];    /* what is wrong with it */
} vision_left_out;

/* Reads and encodes the PNG files at `paths`: `vectors` gets (count, vision_size), of length 1.  A file that cannot be read
 * fails the call, but from `required` on it is left out: its vector begins with NaN, and it is counted in *left_out.
 * Blocks, and shows its progress.  Returns an exit status. */
int vision_encode(vision_model *model, const char *const *paths, size_t count, size_t required, float *vectors,
                  vision_left_out *left_out);

/* The attention's solver in one of the plans; "" before the first call. */
const char *vision_solver(const vision_model *model);

/* Reads a file and makes the model's input of it, on that device: `cut` gets what the model sees (fit.h), and `values` its numbers.
 * A failure's line goes to `message`.  Returns an exit status. */
int vision_prepare(const vision_model *model, const tool_device *device, const char *path, unsigned char *cut,
                   float *values, char *message, size_t bytes);

#endif
