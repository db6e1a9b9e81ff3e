/* Pictures as a model takes them. */
#ifndef CLATTN_PICTURES_FIT_H
#define CLATTN_PICTURES_FIT_H

#include <stdbool.h>

#include "clattn/pictures.h"
#include "clattn/resize.h"

/* What is done to a picture before the model has it: it is resized, the middle is cut out, and numbers 0 ... 255 are
 * multiplied by `scale` and normalised. */
typedef struct fit_rule {
    size_t resized[2]; /* height and width; with `shortest` the first counts, for the shorter of them */
    bool shortest;
    bool half_even; /* half a pixel beside the middle is rounded to even, as torchvision does, not down */
    size_t size[2]; /* height and width that the model takes */
    clattn_resize_mode mode;
    float scale, mean[3], deviation[3];
} fit_rule;

/* Models with processors of their own in Hugging Face's transformers. */
typedef enum fit_family {
    FIT_FAMILY_VIT,
    FIT_FAMILY_DINOV2,
    FIT_FAMILY_CLIP,
    FIT_FAMILY_SWIN,
    FIT_FAMILY_DINOV3,
} fit_family;

/* What such a processor does unless a file says otherwise, for a model of so many pixels (height, width), whose patches have
 * `patch` rows. */
fit_rule fit_rule_of(fit_family family, const size_t pixels[2], size_t patch);

/* Resizes the picture as the rule says, on the device, and cuts out the middle: `cut` gets (height, width, 3) levels of 255.
 * Grey becomes three equal channels, alpha is dropped, and components of 16 bits lose the lower 8.  Where the cut is larger
 * than the picture there is black.  A failure's line goes to *error.  Blocks.  UNSUPPORTED: the resized picture is too large.
 *
 * transformers and timm round to whole levels after the rows and again after the columns, here it is done once: a level may
 * differ by 1. */
clattn_status fit_picture(const fit_rule *rule, clattn_context *context, cl_command_queue queue,
                          clattn_control *control, const clattn_picture *picture, unsigned char *cut,
                          clattn_io_error *error);

/* Makes numbers of the levels as the rule says: (3, height, width). */
void fit_normalise(const fit_rule *rule, const unsigned char *cut, float *values);

#endif
