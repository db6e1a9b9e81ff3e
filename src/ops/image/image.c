/* Images to arrays and back: planning and enqueueing. */
#include "ops/image/image.h"

#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/common/simple_operator.h"
#include "plan/operator.h"
#include "program/defines.h"

static const char *refuse(const struct offer *offer)
{
    const struct image_problem *problem = offer->problem;
    double patch = (double)problem->desc.patch;
    if (!offer->caps->images)
        return "the device has no images";
    return refuse_loops(offer->caps, patch * (patch * 5 + 1));
}

static clattn_status prepare(clattn_plan *base)
{
    clattn_status status;
    const struct image_problem *problem = &((const struct image_plan *)base)->problem;
    const struct capabilities *caps = &base->context->device.caps;
    const bool pack = problem->desc.operation == CLATTN_IMAGE_OPERATION_PACK;
    /* Neighbours along x share cache lines of both the image and the array. */
    const size_t wanted = caps->quirks & QUIRK_GROUPS_BREAK ? 1 : caps->quirks & QUIRK_SIMULATOR ? 4 : 32;
    const size_t items = size_min(wanted, caps->info.max_work_item[0]);
    const size_t local[3] = {items, 1, 1};
    const size_t groups[3] = {divide_up(problem->width, items), problem->height, 1};
    struct strbuf options = {0};
    define_token(&options, "A_TYPE", storage_token(problem->desc.array.dtype));
    define_int(&options, "NORM", problem->has_norm ? problem->desc.norm.rank - 1 : 0);
    define_int(&options, "SRGB", problem->desc.transfer == CLATTN_IMAGE_TRANSFER_SRGB);
    define_int(&options, "PREMULTIPLIED", problem->desc.alpha == CLATTN_IMAGE_ALPHA_PREMULTIPLIED);
    TRY(plan_add_kernel(base, "image/image.cl", &options, pack ? "image_pack" : "image_unpack", pack ? 3 : 2,
                        sizeof(image_args), local, groups));
    base->kernels[0].images = 1;
fail:
    return status;
}

static const struct solver generic = {.name = "generic", .refuse = refuse, .prepare = prepare};
static const struct solver *const solvers[] = {&generic};

static clattn_status enqueue(const clattn_plan *handle, const struct enqueue_call *call, const void *given)
{
    clattn_status status;
    const struct image_problem *problem = call->problem;
    clattn_image_args args;
    image_args kernel_args;
    TRY(image_args_read(handle->context, problem, given, &args, &kernel_args));
    if (!kernel_args.batch)
        return plan_enqueue_nothing(handle, call);
    /* The first buffer is an image, which simple_enqueue does not check. */
    const clattn_binding *bindings[3] = {&args.image, &args.array, problem->has_norm ? &args.norm : NULL};
    const size_t groups[3] = {divide_up(args.width, handle->kernels[0].local[0]), args.height, 1};
    status = plan_enqueue_kernel(handle, call, bindings, &kernel_args, groups);
fail:
    return status;
}

static const struct operator_type image_operator = {
    .name = "image",
    .bytes = OPERATOR_BYTES(image),
    .read = image_problem_read,
    .enqueue = enqueue,
    .solvers = solvers,
    .solver_count = COUNT_OF(solvers),
    .check = image_self_check,
};

OPERATOR_CALLS(image, clattn_image_desc_init, clattn_image_args_init, clattn_image_supports, clattn_image_plan_create,
               clattn_image_enqueue, clattn_image_prewarm, clattn_image_run)
