/* Levels of a picture's components as numbers of 0 ... 1, plane by plane. */
#ifndef CLATTN_TOOL_IMAGE_LEVELS_H
#define CLATTN_TOOL_IMAGE_LEVELS_H

#include "tool/cli/png_file.h"

/* Reads a part of `size` (height, width) that begins at row y and column x, and in which the picture is continued right and
 * below by its mirror image: (planes, height, width), and alpha behind if the picture has it.  Grey fills all planes. */
void levels_read(const picture *p, size_t y, size_t x, const size_t size[2], size_t planes, float *values);

/* Writes row y, of which plane i begins at row + i * step; alpha follows the planes.  Grey becomes the planes' mean. */
void levels_write(picture *p, size_t y, const float *row, size_t step, size_t planes);

#endif
