#include "pictures/fit.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/convert.h"
#include "base/size.h"
#include "base/text/opencl_check.h"
#include "base/try.h"
#include "clattn/plan.h"
#include "pictures/common.h"
#include "pictures/levels.h"

/* The most pixels of a resized picture, which long and thin ones reach. */
#define MOST_RESIZED ((size_t)1 << 24)

/* The size of the whole picture once it is resized; false if it is too large.  Of the longer edge the fraction of a pixel is
 * dropped, as the references do. */
static bool resized_size(const fit_rule *rule, const clattn_picture *p, size_t size[2])
{
    const size_t least = size_min(p->height, p->width), edge = rule->resized[0];
    size[0] = rule->shortest ? edge * p->height / least : rule->resized[0];
    size[1] = rule->shortest ? edge * p->width / least : rule->resized[1];
    return size[0] <= MOST_RESIZED / size[1];
}

/* A component as a level of 255. */
static unsigned char byte_at(const clattn_picture *p, const unsigned char *at)
{
    uint16_t wide;
    if (p->type == CLATTN_COMPONENT_U8)
        return *at;
    if (p->type == CLATTN_COMPONENT_F32)
        return (unsigned char)lrintf(255.0f * level_at(p, at));
    memcpy(&wide, at, sizeof wide);
    return (unsigned char)(wide >> 8);
}

/* The levels of the colours as bfloat16, which holds 0 ... 255 exactly: (height, width, 3). */
static uint16_t *levels_of(const clattn_picture *p)
{
    const size_t step = p->components < 3 ? 0 : component_bytes(p);
    uint16_t level[256], *levels = NULL, *to;
    if (p->height <= SIZE_MAX / (3 * sizeof *levels) / p->width)
        levels = malloc(p->height * p->width * 3 * sizeof *levels);
    for (int i = 0; i < 256; i++)
        level[i] = bfloat_of_float((float)i);
    to = levels;
    for (size_t y = 0; levels != NULL && y < p->height; y++)
        for (size_t x = 0; x < p->width; x++)
            for (size_t c = 0; c < 3; c++)
                *to++ = level[byte_at(p, picture_row_at(p, y) + x * pixel_bytes(p) + c * step)];
    return levels;
}

static clattn_status resize(const fit_rule *rule, clattn_context *context, cl_command_queue queue,
                            clattn_control *control, const clattn_picture *p, uint16_t *levels, const size_t size[2],
                            float *resized, clattn_io_error *error)
{
    const size_t given = p->width * p->height * 3 * sizeof *levels, made = size[0] * size[1] * 3 * sizeof *resized;
    cl_context opencl = clattn_context_opencl_context(context);
    clattn_resize_desc desc = CLATTN_RESIZE_DESC_INIT;
    clattn_resize_args args = CLATTN_RESIZE_ARGS_INIT;
    clattn_plan *plan = NULL;
    cl_mem from = NULL, to = NULL;
    char own[256] = "";
    cl_int code = CL_SUCCESS;
    clattn_status status;
    desc.mode = rule->mode;
    desc.antialias = 1;
    desc.x = clattn_layout_nhwc(CLATTN_DTYPE_BF16, 1, 3, p->height, p->width);
    desc.y = clattn_layout_nhwc(CLATTN_DTYPE_F32, 1, 3, size[0], size[1]);
    TRY(clattn_resize_plan_create(context, &desc, NULL, &plan));
    from = clCreateBuffer(opencl, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, given, levels, &code);
    if (code == CL_SUCCESS)
        to = clCreateBuffer(opencl, CL_MEM_WRITE_ONLY, made, NULL, &code);
    TRY(opencl_check("clCreateBuffer", code, own, sizeof own));
    args.x = clattn_binding_buffer(from, 0);
    args.y = clattn_binding_buffer(to, 0);
    args.control = control;
    TRY(clattn_resize_enqueue(plan, queue, &args, 0, NULL, NULL));
    code = clEnqueueReadBuffer(queue, to, CL_TRUE, 0, made, resized, 0, NULL, NULL);
    status = opencl_check("clEnqueueReadBuffer", code, own, sizeof own);
fail:
    if (from != NULL)
        clReleaseMemObject(from);
    if (to != NULL)
        clReleaseMemObject(to);
    clattn_plan_release(&plan);
    return call_check(error, status, own, context);
}

/* Where a cut of `size` begins in `length` pixels; below 0 if it is larger. */
static int64_t begin_of(const fit_rule *rule, size_t length, size_t size)
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

static void cut_out(const fit_rule *rule, const float *resized, const size_t size[2], unsigned char *cut)
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

clattn_status fit_picture(const fit_rule *rule, clattn_context *context, cl_command_queue queue,
                          clattn_control *control, const clattn_picture *picture, unsigned char *cut,
                          clattn_io_error *error)
{
    size_t size[2];
    if (!resized_size(rule, picture, size))
        return call_fail(error, CLATTN_ERROR_UNSUPPORTED,
                         "%zu x %zu pixels would become %zu x %zu, expected at most %zu in all", picture->height,
                         picture->width, size[0], size[1], MOST_RESIZED);
    uint16_t *levels = levels_of(picture);
    float *resized = malloc(size[0] * size[1] * 3 * sizeof *resized);
    clattn_status status;
    if (levels == NULL || resized == NULL)
        status = call_fail(error, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for %zu x %zu pixels", picture->height,
                           picture->width);
    else
        status = resize(rule, context, queue, control, picture, levels, size, resized, error);
    if (status == CLATTN_SUCCESS)
        cut_out(rule, resized, size, cut);
    free(levels);
    free(resized);
    return status;
}

void fit_normalise(const fit_rule *rule, const unsigned char *cut, float *values)
{
    const size_t pixels = rule->size[0] * rule->size[1];
    for (size_t c = 0; c < 3; c++)
        for (size_t i = 0; i < pixels; i++)
            values[c * pixels + i] = ((float)cut[i * 3 + c] * rule->scale - rule->mean[c]) / rule->deviation[c];
}
