/* Non-local means as attention: plans and memory.
 *
 * The weights of denoise.h are a softmax of (2 P(p)·P(k) − |P(k)|²) / h², since |P(p)|² is the same for all k: patches are
 * queries and keys, −|P(k)|²/h² is a bias for each key, pixels are values, planes heads, and the window is that of
 * neighbourhood attention with clipped edges.  What the kernels see is divided by h already (tiles.c), so that one plan
 * serves all strengths. */
#include "denoise/denoise.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/opencl_check.h"
#include "base/size.h"
#include "base/try.h"

/* The largest tile: a larger one saves little of the margins' cost, and progress would be shown less often. */
#define MOST_TILE 256
#define LEAST_TILE 8

/* Bytes on the device for tiles of that size, as a double, which no size of a picture overflows. */
static double memory_for(const denoise_params *params, size_t height, size_t width)
{
    const size_t margin = params->radius + params->patch / 2;
    double map_height = (double)(height + 2 * params->radius), map_width = (double)(width + 2 * params->radius);
    double planes = (double)params->colours, size = (double)(params->patch * params->patch);
    double patches = map_height * map_width * planes * (size + 1);
    double packed = map_height * (map_width + 64) * planes * (size + 2);
    double floats = params->type == CL_FLOAT ? 4 : 2; /* of a pixel of an image; as many for 8 bits as for 16 */
    double image = (double)(height + 2 * margin) * (double)(width + 2 * margin) * floats;
    return 4 * (patches + packed + 2 * image + planes * (double)height * (double)width);
}

size_t denoise_least_memory(const denoise_params *params)
{
    return (size_t)memory_for(params, size_min(params->height, LEAST_TILE), size_min(params->width, LEAST_TILE));
}

/* Divides the largest part into equal tiles, as few as the budget and the device's largest buffer allow. */
static clattn_status choose_tile(denoiser *d)
{
    const denoise_params *params = &d->params;
    clattn_device_info info = {.size = sizeof info};
    size_t rows = 1, columns = 1;
    clattn_status status = clattn_context_device_info(d->context, &info);
    if (status != CLATTN_SUCCESS)
        return status;
    for (;;) {
        size_t height = divide_up(params->height, rows), width = divide_up(params->width, columns);
        double need = memory_for(params, height, width);
        d->tile[0] = height;
        d->tile[1] = width;
        d->memory = (size_t)need;
        if (height <= MOST_TILE && width <= MOST_TILE && need <= (double)params->memory &&
            (info.max_allocation == 0 || need / 2 <= (double)info.max_allocation))
            return CLATTN_SUCCESS;
        if (height <= LEAST_TILE && width <= LEAST_TILE) {
            snprintf(d->message, sizeof d->message,
                     "a tile of %zu x %zu pixels takes %zu bytes on the device, of which %zu may be used and %llu lie "
                     "in one "
                     "buffer",
                     height, width, d->memory, params->memory, (unsigned long long)info.max_allocation);
            return CLATTN_ERROR_OUT_OF_MEMORY;
        }
        if (width > height)
            columns++;
        else
            rows++;
    }
}

static clattn_layout layout_of(size_t heads, size_t height, size_t width, size_t size, size_t row, size_t col,
                               size_t step)
{
    clattn_layout made = {.dtype = CLATTN_DTYPE_F32, .rank = 5, .extent = {1, heads, height, width, size}};
    made.stride[1] = 1;
    made.stride[2] = (int64_t)row;
    made.stride[3] = (int64_t)col;
    made.stride[4] = (int64_t)step;
    return made;
}

static clattn_status make_plans(denoiser *d)
{
    const size_t height = d->tile[0] + 2 * d->params.radius, width = d->tile[1] + 2 * d->params.radius;
    const size_t planes = (size_t)d->params.colours, size = d->params.patch * d->params.patch;
    clattn_image_desc pack = CLATTN_IMAGE_DESC_INIT, unpack = CLATTN_IMAGE_DESC_INIT;
    clattn_neighbourhood_desc attend = CLATTN_NEIGHBOURHOOD_DESC_INIT;
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    clattn_control_params control = CLATTN_CONTROL_PARAMS_INIT;
    pack.patch = (int32_t)d->params.patch;
    pack.array = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, (const size_t[]){height, width, size * planes});
    pack.norm = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, (const size_t[]){height, width, planes});
    unpack.operation = CLATTN_IMAGE_OPERATION_UNPACK;
    unpack.array = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, (const size_t[]){d->tile[0], d->tile[1], planes});
    attend.edge = CLATTN_EDGE_CLIP;
    attend.window[0] = attend.window[1] = (int32_t)(2 * d->params.radius + 1);
    attend.explicit_scale = 1;
    attend.scale = 2;
    attend.query = layout_of(planes, d->tile[0], d->tile[1], size, width * size * planes, size * planes, planes);
    attend.key = layout_of(planes, height, width, size, width * size * planes, size * planes, planes);
    attend.value = layout_of(planes, height, width, 1, width * size * planes, size * planes, 1);
    attend.bias = layout_of(planes, height, width, 1, width * planes, planes, 1);
    attend.bias.rank = 4;
    attend.output = layout_of(planes, d->tile[0], d->tile[1], 1, d->tile[1] * planes, planes, 1);
    options.solver = d->params.solver;
    control.max_launch_ms = d->params.max_launch_ms;
    clattn_status status;
    TRY(clattn_control_create(&control, &d->control));
    TRY(clattn_image_plan_create(d->context, &pack, NULL, &d->pack));
    TRY(clattn_image_plan_create(d->context, &unpack, NULL, &d->unpack));
    TRY(clattn_neighbourhood_plan_create(d->context, &attend, &options, &d->attend));
fail:
    return status;
}

static clattn_status make_buffer(denoiser *d, size_t floats, cl_mem *buffer)
{
    cl_int code = CL_SUCCESS;
    *buffer = clCreateBuffer(clattn_context_opencl_context(d->context), CL_MEM_READ_WRITE, floats * sizeof(float), NULL,
                             &code);
    return denoiser_opencl_check(d, "clCreateBuffer", code);
}

static clattn_status make_memory(denoiser *d)
{
    const size_t map = (d->tile[0] + 2 * d->params.radius) * (d->tile[1] + 2 * d->params.radius);
    const size_t planes = (size_t)d->params.colours, size = d->params.patch * d->params.patch;
    const size_t component = d->params.type == CL_UNORM_INT8 ? 1 : d->params.type == CL_UNORM_INT16 ? 2 : 4;
    const cl_image_format format = {CL_RGBA, d->params.type};
    const cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D,
                                .image_width = d->tile[1] + 2 * d->margin,
                                .image_height = d->tile[0] + 2 * d->margin};
    cl_context context = clattn_context_opencl_context(d->context);
    cl_int code = CL_SUCCESS;
    clattn_status status;
    d->staging = malloc(desc.image_width * desc.image_height * 4 * component);
    if (d->staging == NULL) {
        snprintf(d->message, sizeof d->message, "no memory for a tile of %zu x %zu pixels", desc.image_height,
                 desc.image_width);
        return CLATTN_ERROR_OUT_OF_MEMORY;
    }
    d->in = clCreateImage(context, CL_MEM_READ_ONLY, &format, &desc, NULL, &code);
    if (code == CL_SUCCESS)
        d->out = clCreateImage(context, CL_MEM_WRITE_ONLY, &format, &desc, NULL, &code);
    TRY(denoiser_opencl_check(d, "clCreateImage", code));
    TRY(make_buffer(d, map * size * planes, &d->patches));
    TRY(make_buffer(d, map * planes, &d->norms));
    TRY(make_buffer(d, d->tile[0] * d->tile[1] * planes, &d->cleaned));
    const size_t workspace = clattn_plan_workspace_size(d->attend);
    if (workspace > 0)
        TRY(make_buffer(d, divide_up(workspace, sizeof(float)), &d->workspace));
fail:
    return status;
}

clattn_status denoiser_open(denoiser *d, clattn_context *context, cl_command_queue queue, const denoise_params *params)
{
    *d = (denoiser){.context = context, .queue = queue, .params = *params};
    d->margin = params->radius + params->patch / 2;
    clattn_status status;
    TRY(choose_tile(d));
    TRY(make_plans(d));
    TRY(make_memory(d));
fail:
    d->params.solver = NULL;
    return status;
}

void denoiser_close(denoiser *d)
{
    cl_mem *all[] = {&d->in, &d->out, &d->patches, &d->norms, &d->cleaned, &d->workspace};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        if (*all[i] != NULL && !context_is_of_another_process(d->context))
            clReleaseMemObject(*all[i]);
    clattn_plan_release(&d->pack);
    clattn_plan_release(&d->attend);
    clattn_plan_release(&d->unpack);
    clattn_control_release(&d->control);
    free(d->staging);
    *d = (denoiser){0};
}

void denoiser_message(const denoiser *d, clattn_status status, char *text, size_t bytes)
{
    text[0] = '\0';
    if (d->message[0] != '\0')
        snprintf(text, bytes, "%s", d->message);
    else
        clattn_context_message(d->context, text, bytes);
    if (text[0] == '\0')
        snprintf(text, bytes, "%s", clattn_status_string(status));
    text[strcspn(text, "\n")] = '\0'; /* what a compiler says goes on */
}

clattn_status denoiser_opencl_check(denoiser *d, const char *call, cl_int code)
{
    return opencl_check(call, code, d->message, sizeof d->message);
}
