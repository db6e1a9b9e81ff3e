/* Non-local means of a picture, tile by tile on a device. */
#ifndef CLATTN_TOOL_DENOISE_DENOISE_H
#define CLATTN_TOOL_DENOISE_DENOISE_H

#include "tool/run/device.h"
#include "tool/cli/png_file.h"

typedef struct denoise_rule {
    float strength;     /* levels of 255: patches whose root mean square difference is this weigh 1/e */
    size_t patch;       /* odd */
    size_t radius;      /* the window is 2 radius + 1 pixels high and wide */
    size_t memory;      /* bytes on the device at the most */
    const char *solver; /* of the attention, or NULL */
} denoise_rule;

typedef struct denoise_result {
    size_t tile_height, tile_width, tiles;
    size_t memory; /* bytes on the device, as estimated when the tile was chosen */
    char solver[32];
} denoise_result;

/* Replaces the colours of `p` by their means; alpha stays.  Shows its progress.  Returns an exit status. */
int denoise_picture(tool_device *device, picture *p, const denoise_rule *rule, denoise_result *result);

#endif
