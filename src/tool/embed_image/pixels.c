#include "tool/embed_image/pixels.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/convert.h"
#include "base/size.h"
#include "base/try.h"

/* The most pixels of a resized picture, which long and thin ones reach. */
#define MOST_RESIZED ((size_t)1 << 24)

/* The size of the whole picture once it is resized; false if it is too large.  Of the longer edge the fraction of a pixel is
 * dropped, as the references do. */
static bool resized_size(const vision_rule *rule, const picture *p, size_t size[2])
{
    const size_t least = size_min(p->height, p->width), edge = rule->resized[0];
    size[0] = rule->shortest ? edge * p->height / least : rule->resized[0];
    size[1] = rule->shortest ? edge * p->width / least : rule->resized[1];
    return size[0] <= MOST_RESIZED / size[1];
}

/* The levels of the colours as bfloat16, which holds 0 ... 255 exactly: (height, width, 3). */
static uint16_t *levels_of(const picture *p)
{
    const size_t step = p->channels < 3 ? 0 : 1, pixels = p->width * p->height;
    const uint16_t one = 1;
    /* The byte that is taken of a component: the only one, or the higher one. */
    const size_t bytes = (size_t)(p->bits / 8), high = bytes == 2 && *(const unsigned char *)&one == 1 ? 1 : 0;
    uint16_t level[256], *levels = malloc(pixels * 3 * sizeof *levels);
    for (int i = 0; i < 256; i++)
        level[i] = bfloat_of_float((float)i);
    for (size_t i = 0; levels != NULL && i < pixels; i++)
        for (size_t c = 0; c < 3; c++)
            levels[i * 3 + c] = level[p->pixels[(i * (size_t)p->channels + c * step) * bytes + high]];
    return levels;
}

static clattn_status resize(const vision_model *model, const picture *p, const uint16_t *levels, const size_t size[2],
                            float *resized)
{
    tool_device *device = model->device;
    const size_t bytes = size[0] * size[1] * 3 * sizeof *resized;
    clattn_resize_desc desc = CLATTN_RESIZE_DESC_INIT;
    clattn_resize_args args = CLATTN_RESIZE_ARGS_INIT;
    const clattn_host_tensor tensor = {.data = levels,
                                       .bytes = p->width * p->height * 3 * sizeof *levels,
                                       .dtype = CLATTN_DTYPE_BF16,
                                       .rank = 3,
                                       .extent = {p->height, p->width, 3}};
    clattn_plan *plan = NULL;
    cl_mem from = NULL, to = NULL;
    clattn_status status;
    desc.mode = model->rule.mode;
    desc.antialias = 1;
    desc.x = clattn_layout_nhwc(CLATTN_DTYPE_BF16, 1, 3, p->height, p->width);
    desc.y = clattn_layout_nhwc(CLATTN_DTYPE_F32, 1, 3, size[0], size[1]);
    TRY(clattn_resize_plan_create(device->context, &desc, NULL, &plan));
    TRY(device_upload(device, &tensor, &from));
    TRY(device_output(device, bytes, &to));
    args.x = clattn_binding_buffer(from, 0);
    args.y = clattn_binding_buffer(to, 0);
    TRY(clattn_resize_enqueue(plan, device->queue, &args, 0, NULL, NULL));
    TRY(device_download(device, to, bytes, resized));
fail:
    if (from != NULL)
        clReleaseMemObject(from);
    if (to != NULL)
        clReleaseMemObject(to);
    clattn_plan_release(&plan);
    return status;
}

/* Where a cut of `size` begins in `length` pixels; below 0 if it is larger. */
static int64_t begin_of(const vision_rule *rule, size_t length, size_t size)
{
    const int64_t more = (int64_t)length - (int64_t)size;
    if (more < 0) /* the picture is padded, at the end by one pixel more if the number is odd */
        return -(-more / 2);
    return rule->half_even ? (int64_t)nearbyint((double)more / 2) : more / 2;
}

static unsigned char level_of(float value)
{
    return (unsigned char)lrintf(fminf(fmaxf(value, 0.0f), 255.0f));
}

static void cut_out(const vision_rule *rule, const float *resized, const size_t size[2], unsigned char *cut)
{
    const int64_t top = begin_of(rule, size[0], rule->size[0]), left = begin_of(rule, size[1], rule->size[1]);
    memset(cut, 0, rule->size[0] * rule->size[1] * 3);
    for (size_t y = 0; y < rule->size[0]; y++) {
        const int64_t row = top + (int64_t)y;
        for (size_t x = 0; x < rule->size[1] && row >= 0 && row < (int64_t)size[0]; x++) {
            const int64_t column = left + (int64_t)x;
            for (size_t c = 0; c < 3 && column >= 0 && column < (int64_t)size[1]; c++)
                cut[(y * rule->size[1] + x) * 3 + c] =
                    level_of(resized[((size_t)row * size[1] + (size_t)column) * 3 + c]);
        }
    }
}

int pixels_fit(const vision_model *model, const picture *p, const char *path, unsigned char *cut, char *message,
               size_t bytes)
{
    char why[512];
    size_t size[2];
    if (!resized_size(&model->rule, p, size)) {
        snprintf(message, bytes, "%s: its %zu x %zu pixels would become %zu x %zu, expected at most %zu", path,
                 p->height, p->width, size[0], size[1], MOST_RESIZED);
        return TOOL_BAD_INPUT;
    }
    uint16_t *levels = levels_of(p);
    float *resized = malloc(size[0] * size[1] * 3 * sizeof *resized);
    int status = TOOL_DONE;
    if (levels == NULL || resized == NULL) {
        snprintf(message, bytes, "%s: no memory for its %zu x %zu pixels", path, p->height, p->width);
        status = TOOL_FAILED;
    } else {
        clattn_status computed = resize(model, p, levels, size, resized);
        if (computed != CLATTN_SUCCESS) {
            device_message(model->device, computed, why, sizeof why);
            snprintf(message, bytes, "%s: %s", path, why);
            status = TOOL_FAILED;
        }
    }
    if (status == TOOL_DONE)
        cut_out(&model->rule, resized, size, cut);
    free(levels);
    free(resized);
    return status;
}

void pixels_normalise(const vision_model *model, const unsigned char *cut, float *values)
{
    const vision_rule *rule = &model->rule;
    const size_t pixels = rule->size[0] * rule->size[1];
    for (size_t c = 0; c < 3; c++)
        for (size_t i = 0; i < pixels; i++)
            values[c * pixels + i] = ((float)cut[i * 3 + c] * rule->scale - rule->mean[c]) / rule->deviation[c];
}
