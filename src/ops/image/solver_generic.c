/* Images on every device that has them: a work-item a pixel, by the device's own functions for images. */
#include "base/size.h"
#include "base/try.h"
#include "ops/image/image.h"

static const char *refuse(const struct offer *offer)
{
    const struct image_problem *problem = offer->problem;
    double patch = (double)problem->desc.patch;
    if (!offer->caps->images)
        return "the device has no images";
    if (problem->desc.image_array)
        return "an array of images is copied, by cpu";
    return refuse_loops(offer->caps, patch * (patch * 5 + 1));
}

static clattn_status launch(const struct image_plan *plan, const struct image_problem *problem, struct chain *chain,
                            const clattn_image_args *args, image_args *kernel_args)
{
    const struct plan_kernel *kernel = &plan->base.kernels[0];
    const clattn_binding *bindings[3] = {&args->image, &args->array, problem->has_norm ? &args->norm : NULL};
    const size_t groups[3] = {divide_up(args->width, kernel->local[0]), args->height, 1};
    return chain_launch(chain, &plan->base, 0, bindings, kernel_args, groups, true);
}

static clattn_status prepare(clattn_plan *base)
{
    clattn_status status;
    struct image_plan *plan = (struct image_plan *)base;
    const struct image_problem *problem = &plan->problem;
    const struct capabilities *caps = &base->context->device.caps;
    const bool pack = problem->desc.operation == CLATTN_IMAGE_OPERATION_PACK;
    /* Neighbours along x share cache lines of both the image and the array. */
    const size_t wanted = caps->quirks & QUIRK_GROUPS_BREAK ? 1 : caps->quirks & QUIRK_SIMULATOR ? 4 : 32;
    const size_t items = size_min(wanted, caps->info.max_work_item[0]);
    const size_t local[3] = {items, 1, 1};
    const size_t groups[3] = {divide_up(problem->width, items), problem->height, 1};
    struct strbuf options = {0};
    image_defines(problem, &options);
    plan->launch = launch;
    TRY(plan_add_kernel(base, "image/image.cl", &options, pack ? "image_pack" : "image_unpack", pack ? 3 : 2,
                        sizeof(image_args), local, groups));
    base->kernels[0].images = 1;
fail:
    return status;
}

const struct solver image_generic_solver = {.name = "generic", .refuse = refuse, .prepare = prepare};
