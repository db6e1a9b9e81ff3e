#include <string.h>

#include "pictures/fit.h"

fit_rule fit_rule_of(fit_family family, const size_t pixels[2], size_t patch)
{
    static const float half[3] = {0.5f, 0.5f, 0.5f};
    static const float imagenet[2][3] = {{0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f}};
    static const float clip[2][3] = {{0.48145466f, 0.4578275f, 0.40821073f}, {0.26862954f, 0.26130258f, 0.27577711f}};
    const float *mean = imagenet[0], *deviation = imagenet[1];
    fit_rule rule = {.scale = 1.0f / 255, .mode = CLATTN_RESIZE_MODE_BICUBIC};
    if (family == FIT_FAMILY_VIT)
        mean = deviation = half;
    if (family == FIT_FAMILY_CLIP) {
        mean = clip[0];
        deviation = clip[1];
    }
    memcpy(rule.mean, mean, sizeof rule.mean);
    memcpy(rule.deviation, deviation, sizeof rule.deviation);
    if (family == FIT_FAMILY_VIT || family == FIT_FAMILY_DINOV3)
        rule.mode = CLATTN_RESIZE_MODE_BILINEAR;
    rule.shortest = family == FIT_FAMILY_CLIP || family == FIT_FAMILY_DINOV2;
    for (int i = 0; i < 2; i++)
        rule.size[i] = rule.resized[i] = pixels[i];
    if (family == FIT_FAMILY_DINOV2) {
        /* The published models are used so, whatever size they were learned with. */
        rule.size[0] = rule.size[1] = 16 * patch;
        rule.resized[0] = rule.size[0] * 8 / 7;
    }
    return rule;
}
