#include "pictures/levels.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "restore/tiling.h"

static float limited(float value)
{
    return isnan(value) ? 0.0f : fminf(fmaxf(value, 0.0f), 1.0f);
}

float level_at(const clattn_picture *p, const unsigned char *at)
{
    uint16_t wide;
    float value;
    if (p->type == CLATTN_COMPONENT_U8)
        return (float)*at / 255.0f;
    if (p->type == CLATTN_COMPONENT_U16) {
        memcpy(&wide, at, sizeof wide);
        return (float)wide / 65535.0f;
    }
    memcpy(&value, at, sizeof value);
    return limited(value);
}

static void set_level(const clattn_picture *p, unsigned char *at, float value)
{
    const float level = limited(value);
    const uint16_t wide = (uint16_t)lrintf(level * 65535.0f);
    if (p->type == CLATTN_COMPONENT_U8)
        *at = (unsigned char)lrintf(level * 255.0f);
    else if (p->type == CLATTN_COMPONENT_U16)
        memcpy(at, &wide, sizeof wide);
    else
        memcpy(at, &level, sizeof level);
}

void levels_read(void *user, size_t y, size_t x, const size_t size[2], float *values)
{
    const clattn_picture *p = ((const level_pair *)user)->in;
    for (int32_t component = 0; component < p->components; component++)
        for (size_t row = 0; row < size[0]; row++) {
            const unsigned char *begin = picture_row_at(p, tiling_mirrored(y + row, p->height));
            begin += (size_t)component * component_bytes(p);
            for (size_t column = 0; column < size[1]; column++)
                *values++ = level_at(p, begin + tiling_mirrored(x + column, p->width) * pixel_bytes(p));
        }
}

void levels_write(void *user, size_t y, const float *row, size_t step)
{
    const clattn_picture *p = ((const level_pair *)user)->out;
    unsigned char *at = picture_row_at(p, y);
    for (size_t x = 0; x < p->width; x++)
        for (int32_t component = 0; component < p->components; component++, at += component_bytes(p))
            set_level(p, at, row[(size_t)component * step + x]);
}
