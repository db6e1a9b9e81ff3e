#include "pictures/means.h"

#include <math.h>
#include <string.h>

double component_of(const clattn_picture *p, size_t y, size_t x, size_t component)
{
    const size_t bytes = p->type == CLATTN_COMPONENT_U8 ? 1 : p->type == CLATTN_COMPONENT_U16 ? 2 : 4;
    const size_t row = p->row_bytes ? p->row_bytes : p->width * (size_t)p->components * bytes;
    const unsigned char *at =
        (const unsigned char *)p->pixels + y * row + (x * (size_t)p->components + component) * bytes;
    uint16_t wide;
    float number;
    memcpy(&wide, at, bytes < 2 ? 1 : 2);
    memcpy(&number, at, bytes == 4 ? 4 : 1);
    return bytes == 1 ? *at / 255.0 : bytes == 2 ? wide / 65535.0 : (double)number;
}

/* A plane of colour: grey, or one of brightness and two differences. */
static double plane_of(const clattn_picture *p, long y, long x, int plane)
{
    static const double basis[3][3] = {{1, 1, 1}, {1, 0, -1}, {1, -2, 1}}, square[3] = {3, 2, 6};
    const size_t row = (size_t)fmin(fmax((double)y, 0), (double)p->height - 1);
    const size_t column = (size_t)fmin(fmax((double)x, 0), (double)p->width - 1);
    double sum = 0;
    if (p->components < 3)
        return component_of(p, row, column, 0);
    for (size_t c = 0; c < 3; c++)
        sum += basis[plane][c] * component_of(p, row, column, c) / sqrt(square[plane]);
    return sum;
}

static double mean_of(const clattn_picture *p, long half, long radius, double strength, long y, long x, int plane)
{
    double total = 0, weights = 0;
    for (long i = (long)fmax((double)(y - radius), 0); i <= y + radius && i < (long)p->height; i++)
        for (long j = (long)fmax((double)(x - radius), 0); j <= x + radius && j < (long)p->width; j++) {
            double squares = 0;
            for (long dy = -half; dy <= half; dy++)
                for (long dx = -half; dx <= half; dx++)
                    squares += pow(plane_of(p, y + dy, x + dx, plane) - plane_of(p, i + dy, j + dx, plane), 2);
            const double size = (double)((2 * half + 1) * (2 * half + 1));
            const double weight = exp(-squares / size / pow(strength / 255, 2));
            weights += weight;
            total += weight * plane_of(p, i, j, plane);
        }
    return total / weights;
}

void means_of(const clattn_picture *p, size_t patch, size_t radius, double strength, size_t y, size_t x,
              double colours[3])
{
    static const double basis[3][3] = {{1, 1, 1}, {1, 0, -1}, {1, -2, 1}}, square[3] = {3, 2, 6};
    double plane[3] = {0};
    for (int i = 0; i < (p->components < 3 ? 1 : 3); i++)
        plane[i] = mean_of(p, (long)patch / 2, (long)radius, strength, (long)y, (long)x, i);
    for (int c = 0; c < 3; c++) {
        colours[c] = p->components < 3 ? plane[0] : 0;
        for (int i = 0; i < 3 && p->components >= 3; i++)
            colours[c] += plane[i] * basis[i][c] / sqrt(square[i]);
    }
}
