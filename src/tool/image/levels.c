#include "tool/image/levels.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "tool/image/tiling.h"

static size_t colours_of(const picture *p)
{
    return p->channels < 3 ? 1 : 3;
}

static float level(const picture *p, size_t component)
{
    uint16_t wide;
    if (p->bits == 8)
        return (float)p->pixels[component] / 255.0f;
    memcpy(&wide, p->pixels + component * sizeof wide, sizeof wide);
    return (float)wide / 65535.0f;
}

static void set_level(picture *p, size_t component, float value)
{
    const float limited = fminf(fmaxf(value, 0.0f), 1.0f);
    if (p->bits == 8) {
        p->pixels[component] = (unsigned char)lrintf(limited * 255.0f);
        return;
    }
    const uint16_t wide = (uint16_t)lrintf(limited * 65535.0f);
    memcpy(p->pixels + component * sizeof wide, &wide, sizeof wide);
}

void levels_read(const picture *p, size_t y, size_t x, const size_t size[2], size_t planes, float *values)
{
    const size_t channels = (size_t)p->channels, colours = colours_of(p), all = planes + channels - colours;
    for (size_t plane = 0; plane < all; plane++) {
        const size_t channel = plane >= planes ? colours : colours == 1 ? 0 : plane;
        for (size_t row = 0; row < size[0]; row++) {
            const size_t begin = tiling_mirrored(y + row, p->height) * p->width;
            for (size_t column = 0; column < size[1]; column++)
                *values++ = level(p, (begin + tiling_mirrored(x + column, p->width)) * channels + channel);
        }
    }
}

void levels_write(picture *p, size_t y, const float *row, size_t step, size_t planes)
{
    const size_t channels = (size_t)p->channels, colours = colours_of(p);
    for (size_t x = 0; x < p->width; x++) {
        const size_t pixel = (y * p->width + x) * channels;
        for (size_t colour = 0; colour < colours; colour++)
            set_level(p, pixel + colour,
                      colours == 1 && planes == 3 ? (row[x] + row[step + x] + row[2 * step + x]) / 3.0f
                                                  : row[colour * step + x]);
        if (channels > colours)
            set_level(p, pixel + colours, row[planes * step + x]);
    }
}
