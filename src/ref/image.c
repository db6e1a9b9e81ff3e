#include "ref/ref.h"

#include <float.h>
#include <math.h>

static double decoded(double v)
{
    const double x = fabs(v);
    return copysign(x <= 0.04045 ? x / 12.92 : pow((x + 0.055) / 1.055, 2.4), v);
}

static double encoded(double v)
{
    const double x = fabs(v);
    return copysign(x <= 0.0031308 ? x * 12.92 : 1.055 * pow(x, 1 / 2.4) - 0.055, v);
}

static void multiply(const float *matrix, double colour[4], double error[4])
{
    const double from[3] = {colour[0], colour[1], colour[2]}, wrong[3] = {error[0], error[1], error[2]};
    for (int c = 0; c < 3; c++) {
        const float *row = matrix + 4 * c;
        double magnitude = fabs((double)row[3]);
        colour[c] = row[3];
        error[c] = 0;
        for (int i = 0; i < 3; i++) {
            colour[c] += row[i] * from[i];
            magnitude += fabs(row[i] * from[i]);
            error[c] += fabs((double)row[i]) * wrong[i];
        }
        error[c] += 4 * FLT_EPSILON * magnitude;
    }
}

void ref_image_packed(const ref_image_colours *colours, double colour[4], double error[4])
{
    for (int c = 0; c < 3 && colours->premultiplied; c++) {
        const double alpha = colour[3], v = alpha == 0 ? 0 : colour[c] / alpha;
        error[c] = alpha == 0 ? 0 : (error[c] + fabs(v) * error[3]) / fabs(alpha) + 2.5 * FLT_EPSILON * fabs(v);
        colour[c] = v;
    }
    for (int c = 0; c < 3 && colours->srgb; c++) {
        const double x = fabs(colour[c]),
                     slope = x <= 0.04045 ? 1 / 12.92 : 2.4 / 1.055 * pow((x + 0.055) / 1.055, 1.4);
        colour[c] = decoded(colour[c]);
        error[c] = slope * error[c] + 32 * FLT_EPSILON * fabs(colour[c]);
    }
    if (colours->matrix)
        multiply(colours->matrix, colour, error);
}

void ref_image_unpacked(const ref_image_colours *colours, double colour[4], double error[4])
{
    if (colours->matrix)
        multiply(colours->matrix, colour, error);
    for (int c = 0; c < 3 && colours->srgb; c++) {
        const double x = fabs(colour[c]), slope = x <= 0.0031308 ? 12.92 : 1.055 / 2.4 * pow(x, 1 / 2.4 - 1);
        colour[c] = encoded(colour[c]);
        error[c] = slope * error[c] + 40 * FLT_EPSILON * fmin(fabs(colour[c]), 1) + 8 * FLT_EPSILON * fabs(colour[c]);
    }
    for (int c = 0; c < 3 && colours->premultiplied; c++) {
        error[c] = error[c] * fabs(colour[3]) + error[3] * fabs(colour[c]);
        colour[c] *= colour[3];
        error[c] += FLT_EPSILON * fabs(colour[c]);
    }
}
