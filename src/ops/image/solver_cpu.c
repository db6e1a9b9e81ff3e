/* Images on CPU devices: the pixels are copied from the image to the workspace, or back, by the driver, and a kernel with whole
 * vectors converts them there.  A band of rows at a time, so that the workspace stays small. */
#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/image/image.h"
#include "program/defines.h"

#define BAND_BYTES ((size_t)2 << 20)
#define PREFETCH_DISTANCE 384 /* elements: 1.5 KiB of float32 */
#define MOST_PIXEL_BYTES 16   /* of four floats */

/* A work-group of so many pixels is worth its launch. */
#define GROUP_PIXELS 8192

/* The bytes of a row of pixels with the patch's margin, if each takes the most that there is. */
static size_t widest_row(const struct image_problem *problem)
{
    return (problem->width + (size_t)problem->desc.patch - 1) * MOST_PIXEL_BYTES;
}

size_t image_cpu_workspace(const struct image_problem *problem)
{
    const size_t patch = (size_t)problem->desc.patch, row = widest_row(problem);
    if (!problem->width || !problem->height)
        return 0;
    return size_min(row * (problem->height + patch - 1), size_max(BAND_BYTES, row * patch));
}

/* The rows of a region that the workspace holds at a time, with the patch's margin, if a row of it takes so many bytes. */
static size_t band_rows(const struct image_problem *problem, size_t row)
{
    return image_cpu_workspace(problem) / row - ((size_t)problem->desc.patch - 1);
}

/* The most loop iterations of a work-item with so many rows. */
static double iterations(const struct capabilities *caps, const struct image_problem *problem, double rows)
{
    const double taps = (double)problem->desc.patch * problem->desc.patch, lanes = caps->lanes;
    return rows * (1 + ((double)problem->width / lanes + 1) * (1 + taps * (20 + 13 * lanes)));
}

static const char *refuse(const struct offer *offer)
{
    const char *reason = offer->caps->images ? NULL : "the device has no images";
    reason = reason ? reason : refuse_loops(offer->caps, iterations(offer->caps, offer->problem, 1));
    /* No other solver takes an array of images. */
    return reason || ((const struct image_problem *)offer->problem)->desc.image_array ? reason
                                                                                      : refuse_all_but_cpu(offer);
}

static size_t groups_of(const struct capabilities *caps, const struct image_problem *problem, size_t rows)
{
    const size_t taps = (size_t)problem->desc.patch * (size_t)problem->desc.patch;
    size_t each = size_max(1, GROUP_PIXELS / size_max(1, problem->width * taps));
    while (each > 1 && !capabilities_allow_loops(caps, iterations(caps, problem, (double)each)))
        each /= 2;
    return divide_up(rows, each);
}

/* Sets *first and *count to the pixels of one dimension of the image that `length` pixels from `origin` on and a margin around
 * them stand for: at least one, the nearest. */
static void clamp_range(int64_t origin, size_t length, int margin, int size, int *first, int *count)
{
    int64_t begin = origin - margin, last = origin + (int64_t)length - 1 + margin;
    begin = begin < 0 ? 0 : begin >= size ? size - 1 : begin;
    last = last < 0 ? 0 : last >= size ? size - 1 : last;
    *first = (int)begin;
    *count = (int)(last - begin + 1);
}

/* Copies the rectangle of pixels that `a` names from the image to the workspace, or back. */
static clattn_status copy(struct chain *chain, cl_mem image, bool pack, const image_args *a, bool last)
{
    clattn_status status = CLATTN_SUCCESS;
    struct report *report = &chain->context->device.report;
    const struct cl_table *cl = &chain->context->device.cl;
    const size_t origin[3] = {(size_t)a->raw_x, (size_t)a->raw_y, (size_t)a->layer};
    const size_t region[3] = {(size_t)a->raw_width, (size_t)a->raw_height, 1};
    const size_t offset = (size_t)a->raw_offset;
    cl_mem buffer = chain->workspace.buffer;
    struct step step;
    chain_step(chain, last, &step);
    if (pack)
        TRY_CL(report, "clEnqueueCopyImageToBuffer",
               cl->clEnqueueCopyImageToBuffer(chain->queue, image, buffer, origin, region, offset, step.wait_count,
                                              step.wait_list, step.event));
    else
        TRY_CL(report, "clEnqueueCopyBufferToImage",
               cl->clEnqueueCopyBufferToImage(chain->queue, buffer, image, offset, origin, region, step.wait_count,
                                              step.wait_list, step.event));
    chain_stepped(chain, &step);
fail:
    return status;
}

static clattn_status launch(const struct image_plan *plan, const struct image_problem *problem, struct chain *chain,
                            const clattn_image_args *args, image_args *whole)
{
    clattn_status status = CLATTN_SUCCESS;
    const bool pack = problem->desc.operation == CLATTN_IMAGE_OPERATION_PACK;
    const clattn_binding *bindings[3] = {&chain->workspace, &args->array, problem->has_norm ? &args->norm : NULL};
    const struct capabilities *caps = &chain->context->device.caps;
    const int margin = whole->patch / 2;
    image_args band = *whole;
    if (chain->workspace.kind != CLATTN_BINDING_KIND_BUFFER)
        return report_error(&chain->context->device.report, CLATTN_ERROR_UNSUPPORTED,
                            "workspace: the driver copies images to buffers only, not to an SVM pointer");
    band.raw_offset = chain->workspace.offset;
    clamp_range(whole->origin_x, args->width, margin, whole->image_width, &band.raw_x, &band.raw_width);
    const size_t row = (size_t)band.raw_width * (size_t)(band.components * band.component);
    const size_t most = band_rows(problem, row);
    const double work = chain->work;
    for (size_t done = 0, rows; done < args->height; done += rows) {
        rows = size_min(args->height - done, most);
        chain->work = work * (double)rows / (double)args->height;
        const struct control_range range = control_step(chain->control, done / most, divide_up(args->height, most));
        const bool last = done + rows == args->height;
        const size_t groups[3] = {groups_of(caps, problem, rows), 1, 1};
        band.height = (int)rows;
        band.origin_y = whole->origin_y + (int)done;
        band.array_offset = whole->array_offset + (int64_t)done * whole->array_row;
        band.norm_offset = whole->norm_offset + (int64_t)done * whole->norm_row;
        clamp_range(band.origin_y, rows, margin, whole->image_height, &band.raw_y, &band.raw_height);
        if (pack)
            TRY(copy(chain, args->image.buffer, pack, &band, false));
        TRY(chain_launch(chain, &plan->base, 0, bindings, &band, groups, pack && last));
        if (!pack)
            TRY(copy(chain, args->image.buffer, pack, &band, last));
        control_restore(chain->control, range);
    }
fail:
    return status;
}

static clattn_status prepare(clattn_plan *base)
{
    clattn_status status;
    struct image_plan *plan = (struct image_plan *)base;
    const struct image_problem *problem = &plan->problem;
    const struct capabilities *caps = &base->context->device.caps;
    const bool pack = problem->desc.operation == CLATTN_IMAGE_OPERATION_PACK;
    const clattn_layout *array = &problem->desc.array;
    static const size_t one[3] = {1, 1, 1};
    const size_t groups[3] = {groups_of(caps, problem, problem->height), 1, 1};
    struct strbuf options = {0};
    image_defines(problem, &options);
    define_int(&options, "CHANNELS", (int)problem->channels);
    define_int(&options, "PATCHES", problem->desc.patch > 1);
    define_int(&options, "IN_TURN", array->stride[2] == 1 && array->stride[1] == (int64_t)problem->channels);
    define_int(&options, "PREFETCH_DISTANCE", capabilities_prefetch(caps) ? PREFETCH_DISTANCE : 0);
    define_int(&options, "LANES", caps->lanes);
    base->workspace = image_cpu_workspace(problem);
    plan->launch = launch;
    TRY(plan_add_kernel(base, "image/cpu.cl", &options, pack ? "image_pack_cpu" : "image_unpack_cpu", pack ? 3 : 2,
                        sizeof(image_args), one, groups));
    if (base->workspace)
        base->launches = divide_up(problem->height, band_rows(problem, widest_row(problem)));
fail:
    return status;
}

const struct solver image_cpu_solver = {.name = "cpu", .refuse = refuse, .prepare = prepare};
