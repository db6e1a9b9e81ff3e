/* Pictures as a model takes them. */
#ifndef CLATTN_TOOL_EMBED_IMAGE_PIXELS_H
#define CLATTN_TOOL_EMBED_IMAGE_PIXELS_H

#include "tool/embed_image/vision.h"

/* Resizes the picture as the model's rule says, on the model's device, and cuts out the middle: `cut` gets (height, width, 3)
 * levels of 255.  Grey becomes three equal channels, alpha is dropped, and components of 16 bits lose the lower 8.  Where the
 * cut is larger than the picture there is black.  A failure's line goes to `message`.  Returns an exit status.
 *
 * transformers and timm round to whole levels after the rows and again after the columns, here it is done once: a level may
 * differ by 1. */
int pixels_fit(const vision_model *model, const picture *p, const char *path, unsigned char *cut, char *message,
               size_t bytes);

/* Makes numbers of the levels as the rule says: (3, height, width). */
void pixels_normalise(const vision_model *model, const unsigned char *cut, float *values);

#endif
