/* Images to arrays and back: planning and enqueueing. */
#include "ops/image/image.h"

#include "ops/common/arrays.h"
#include "plan/operator.h"
#include "program/defines.h"

void image_defines(const struct image_problem *problem, struct strbuf *options)
{
    define_token(options, "A_TYPE", storage_token(problem->desc.array.dtype));
    define_int(options, "NORM", problem->has_norm ? problem->desc.norm.rank - 1 : 0);
    define_int(options, "SRGB", problem->desc.transfer == CLATTN_IMAGE_TRANSFER_SRGB);
    define_int(options, "PREMULTIPLIED", problem->desc.alpha == CLATTN_IMAGE_ALPHA_PREMULTIPLIED);
}

static const struct solver *const solvers[] = {&image_cpu_solver, &image_generic_solver};

static clattn_status enqueue(const clattn_plan *handle, const struct enqueue_call *call, const void *given)
{
    const struct image_plan *plan = (const struct image_plan *)handle;
    const struct image_problem *problem = call->problem;
    clattn_image_args args;
    image_args kernel_args;
    struct chain chain;
    clattn_status status = image_args_read(handle->context, problem, given, &args, &kernel_args);
    if (status != CLATTN_SUCCESS)
        return status;
    if (!kernel_args.batch)
        return plan_enqueue_nothing(handle, call);
    status = chain_begin(&chain, handle->context, call, &args.workspace);
    chain.work = WORK_OF_ELEMENT * (double)args.width * (double)args.height * (double)problem->channels *
                 (double)(problem->desc.patch * problem->desc.patch);
    if (status == CLATTN_SUCCESS)
        status = plan->launch(plan, problem, &chain, &args, &kernel_args);
    return chain_end(&chain, status);
}

static const struct layout_place layouts[] = {
    LAYOUT_PLACE(image, array),
    LAYOUT_PLACE(image, norm),
    {NULL, 0},
};

static const struct operator_type image_operator = {
    .name = "image",
    .bytes = OPERATOR_BYTES(image),
    .read = image_problem_read,
    .enqueue = enqueue,
    .layouts = layouts,
    .solvers = solvers,
    .solver_count = COUNT_OF(solvers),
    .check = image_self_check,
};

OPERATOR_CALLS(image, clattn_image_desc_init, clattn_image_args_init, clattn_image_supports, clattn_image_plan_create,
               clattn_image_enqueue, clattn_image_prewarm, clattn_image_run)
