/* Images to arrays and back: planning and enqueueing. */
#include "ops/image/image.h"

#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "plan/operator.h"
#include "program/defines.h"

static const char *refuse(const clattn_context *context, const void *data, bool forced)
{
    const struct image_problem *problem = data;
    double patch = (double)problem->desc.patch;
    (void)forced;
    if (!context->device.caps.images)
        return "the device has no images";
    return refuse_loops(&context->device.caps, patch * (patch * 5 + 1));
}

static void groups_of(const struct plan_kernel *kernel, size_t width, size_t height, size_t groups[3])
{
    groups[0] = divide_up(width, kernel->local[0]);
    groups[1] = divide_up(height, kernel->local[1]);
    groups[2] = 1;
}

static clattn_status prepare(clattn_plan *base)
{
    clattn_status status;
    struct image_plan *plan = (struct image_plan *)base;
    const struct image_problem *problem = &plan->problem;
    const struct capabilities *caps = &base->context->device.caps;
    bool pack = problem->desc.operation == CLATTN_IMAGE_OPERATION_PACK;
    struct strbuf options = {0};
    size_t groups[3];
    /* Neighbours along x share cache lines of both the image and the array. */
    const size_t local[3] = {size_min(caps->quirks & QUIRK_SIMULATOR ? 4 : 32, caps->info.max_work_item[0]), 1, 1};
    define_token(&options, "A_TYPE", storage_token(problem->desc.array.dtype));
    define_int(&options, "NORM", problem->has_norm ? problem->desc.norm.rank - 1 : 0);
    TRY(plan_add_kernel(base, "image/image.cl", &options, pack ? "image_pack" : "image_unpack", 2u + problem->has_norm,
                        sizeof(image_args), local));
    base->kernels[0].images = 1;
    groups_of(&base->kernels[0], problem->width, problem->height, groups);
    plan_kernel_largest(&base->kernels[0], groups);
    base->launches = 1;
fail:
    return status;
}

static const struct solver generic = {.name = "generic", .refuse = refuse, .prepare = prepare};
static const struct solver *const solvers[] = {&generic};

static clattn_status read_desc(const void *desc, void *problem, const char **reason)
{
    return image_problem_read(desc, problem, reason);
}

static clattn_status enqueue(const clattn_plan *handle, const struct enqueue_call *call, const void *given)
{
    clattn_status status;
    const struct image_problem *problem = call->problem;
    clattn_image_args args;
    image_args kernel_args;
    TRY(image_args_read(handle->context, problem, given, &args, &kernel_args));
    if (!kernel_args.batch)
        return plan_enqueue_nothing(handle, call);
    const clattn_binding *bindings[3] = {&args.image, &args.array, &args.norm};
    size_t groups[3];
    groups_of(&handle->kernels[0], args.width, args.height, groups);
    status = plan_enqueue_kernel(handle, call, bindings, &kernel_args, groups);
fail:
    return status;
}

static const struct operator_type image_operator = {
    .name = "image",
    .plan_bytes = sizeof(struct image_plan),
    .problem_offset = offsetof(struct image_plan, problem),
    .problem_bytes = sizeof(struct image_problem),
    .desc_bytes = sizeof(clattn_image_desc),
    .read = read_desc,
    .enqueue = enqueue,
    .solvers = solvers,
    .solver_count = sizeof solvers / sizeof solvers[0],
    .check = image_self_check,
};

OPERATOR_CALLS(image, clattn_image_desc_init, clattn_image_args_init, clattn_image_supports, clattn_image_plan_create,
               clattn_image_enqueue, clattn_image_prewarm, clattn_image_run)
