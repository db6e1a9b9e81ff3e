/* 2-D convolution: planning and enqueueing. */
#include "ops/conv2d/conv2d.h"

#include "base/size.h"
#include "base/try.h"
#include "plan/operator.h"

/* Best first. */
static const struct solver *const solvers[] = {
    &conv2d_cpu_solver,
    &conv2d_generic_solver,
};

/* Floating-point operations of an enqueue. */
static double work_of(const struct conv2d_problem *problem, size_t batch)
{
    const double outputs = (double)batch * (double)problem->groups * (double)problem->out_channels *
                           (double)problem->out[0] * (double)problem->out[1];
    return outputs * (2 * (double)problem->in_channels * (double)problem->kernel[0] * (double)problem->kernel[1] + 1);
}

static clattn_status enqueue(const clattn_plan *handle, const struct enqueue_call *call, const void *given)
{
    clattn_status status;
    const struct conv2d_plan *plan = (const struct conv2d_plan *)handle;
    const struct conv2d_problem *problem = call->problem;
    clattn_conv2d_args args;
    conv2d_args kernel_args;
    struct chain chain;
    TRY(conv2d_args_read(handle->context, problem, given, &args));
    if (conv2d_is_empty(problem, args.batch))
        return plan_enqueue_nothing(handle, call);
    conv2d_fill_args(problem, &args, &kernel_args);
    status = chain_begin(&chain, handle->context, call, &args.workspace);
    chain.work = work_of(problem, args.batch);
    if (status == CLATTN_SUCCESS)
        status = plan->launch(plan, problem, &chain, &args, &kernel_args);
    return chain_end(&chain, status);
fail:
    return status;
}

static const struct layout_place layouts[] = {
    LAYOUT_PLACE(conv2d, x),       LAYOUT_PLACE(conv2d, weight), LAYOUT_PLACE(conv2d, bias),
    LAYOUT_PLACE(conv2d, operand), LAYOUT_PLACE(conv2d, y),      {NULL, 0},
};

static const struct operator_type conv2d_operator = {
    .name = "conv2d",
    .bytes = OPERATOR_BYTES(conv2d),
    .read = conv2d_problem_read,
    .enqueue = enqueue,
    .layouts = layouts,
    .solvers = solvers,
    .solver_count = COUNT_OF(solvers),
    .check = conv2d_self_check,
};

OPERATOR_CALLS(conv2d, clattn_conv2d_desc_init, clattn_conv2d_args_init, clattn_conv2d_supports,
               clattn_conv2d_plan_create, clattn_conv2d_enqueue, clattn_conv2d_prewarm, clattn_conv2d_run)
