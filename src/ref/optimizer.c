#include <math.h>

#include "ref/ref.h"

void ref_adam(const ref_adam_step *s, double gradient, double *value, double *magnitude)
{
    const double p = value[0], m = value[1], v = value[2], decay = s->decoupled ? 0 : s->weight_decay;
    const double g = gradient * s->scale + (decay != 0 ? decay * p : 0);
    const double size = fabs(gradient * s->scale) + (decay != 0 ? fabs(decay * p) : 0);
    value[1] = s->beta1 * m + (1 - s->beta1) * g;
    value[2] = s->beta2 * v + (1 - s->beta2) * g * g;
    magnitude[1] = fabs(m) + size;
    magnitude[2] = fabs(v) + size * size;

    const double factor = s->learning_rate / (1 - pow(s->beta1, (double)s->step));
    const double denom = sqrt(value[2]) / sqrt(1 - pow(s->beta2, (double)s->step)) + s->epsilon;
    value[0] = p * (s->decoupled ? 1 - s->learning_rate * s->weight_decay : 1) - factor * value[1] / denom;
    magnitude[0] = fabs(p) + factor * (s->beta1 * fabs(m) + (1 - s->beta1) * size) / denom;
}
