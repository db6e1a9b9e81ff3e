#include "tool/image/levels.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "restore/tiling.h"

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

void levels_read(void *user, size_t y, size_t x, const size_t size[2], float *values)
{
    const picture *p = ((const levels *)user)->in;
    const size_t channels = (size_t)p->channels;
    for (size_t channel = 0; channel < channels; channel++)
        for (size_t row = 0; row < size[0]; row++) {
            const size_t begin = tiling_mirrored(y + row, p->height) * p->width;
            for (size_t column = 0; column < size[1]; column++)
                *values++ = level(p, (begin + tiling_mirrored(x + column, p->width)) * channels + channel);
        }
}

void levels_write(void *user, size_t y, const float *row, size_t step)
{
    picture *p = ((const levels *)user)->out;
    const size_t channels = (size_t)p->channels;
    for (size_t x = 0; x < p->width; x++)
        for (size_t channel = 0; channel < channels; channel++)
            set_level(p, (y * p->width + x) * channels + channel, row[channel * step + x]);
}
