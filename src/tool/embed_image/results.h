/* What embed-image prints. */
#ifndef CLATTN_TOOL_EMBED_IMAGE_RESULTS_H
#define CLATTN_TOOL_EMBED_IMAGE_RESULTS_H

#include <jansson.h>

#include "tool/embed_image/encode.h"

/* Vectors of pictures: `given` of the command line, then those of a folder.  All is borrowed. */
typedef struct image_results {
    const char *const *paths;
    size_t given, count;
    size_t size;          /* numbers of a vector */
    const float *vectors; /* (count, size) */
    const vision_left_out *left_out;
} image_results;

/* Prints the vectors of all pictures, a line each, or appends them to `array` unless it is NULL.  Returns an exit status. */
int results_vectors(const image_results *r, json_t *array);

/* Prints the folder's pictures by their cosine to the first picture, the nearest first, `top` of them at most (0: all), or
 * appends them to `array`.  Returns an exit status. */
int results_matches(const image_results *r, const char *folder, size_t top, json_t *array);

#endif
