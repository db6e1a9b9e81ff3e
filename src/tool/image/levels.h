/* Levels of a picture's components as numbers of 0 ... 1, plane by plane: what a restorer reads and writes. */
#ifndef CLATTN_TOOL_IMAGE_LEVELS_H
#define CLATTN_TOOL_IMAGE_LEVELS_H

#include "tool/cli/png_file.h"

/* The `user` of both functions.  `out` has the channels and bits of `in`. */
typedef struct levels {
    const picture *in;
    picture *out;
} levels;

/* The functions of restore_work (restore.h). */
void levels_read(void *user, size_t y, size_t x, const size_t size[2], float *values);
void levels_write(void *user, size_t y, const float *row, size_t step);

#endif
