#include "ref/ref.h"

#include <math.h>

static double filter(const ref_resize_axis *axis, double distance)
{
    const double d = fabs(distance), a = axis->cubic_a;
    if (axis->mode == CLATTN_RESIZE_MODE_BILINEAR)
        return d < 1 ? 1 - d : 0;
    return d <= 1 ? ((a + 2) * d - (a + 3)) * d * d + 1 : d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

void ref_resize_weights(const ref_resize_axis *axis, int64_t i, double *weight)
{
    const int64_t last = axis->source - 1;
    for (int64_t k = 0; k <= last; k++)
        weight[k] = 0;
    if (axis->mode == CLATTN_RESIZE_MODE_NEAREST || axis->mode == CLATTN_RESIZE_MODE_NEAREST_EXACT) {
        const float half = axis->mode == CLATTN_RESIZE_MODE_NEAREST ? 0.0f : 0.5f;
        const int64_t k = (int64_t)floorf(((float)i + half) * (float)axis->ratio);
        weight[k < last ? k : last] = 1;
        return;
    }
    const double position = axis->align_corners ? (double)i * axis->ratio : ((double)i + 0.5) * axis->ratio - 0.5;
    const double stretch = axis->antialias && axis->ratio > 1 ? axis->ratio : 1, support = 2 * stretch;
    double sum = 0;
    for (int64_t k = (int64_t)floor(position - support); (double)k <= position + support; k++) {
        const double w = filter(axis, ((double)k - position) / stretch);
        if (axis->antialias && (k < 0 || k > last))
            continue;
        weight[k < 0 ? 0 : k > last ? last : k] += w;
        sum += w;
    }
    for (int64_t k = 0; k <= last && axis->antialias; k++)
        weight[k] /= sum;
}
