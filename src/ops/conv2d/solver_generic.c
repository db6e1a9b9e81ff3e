/* 2-D convolution on every device and for every shape: one work-item for some output channels of a pixel. */
#include "base/size.h"
#include "base/try.h"
#include "ops/conv2d/conv2d.h"

#define CHANNELS 4 /* of an item */

static const char *refuse(const struct offer *offer)
{
    const struct conv2d_problem *problem = offer->problem;
    const double taps = (double)problem->kernel[0] * (double)problem->kernel[1];
    if ((double)problem->batch * (double)problem->out[0] > INT32_MAX)
        return "all pictures together have more than 2^31 - 1 rows";
    return refuse_loops(offer->caps, taps * ((double)problem->in_channels + 1) + (double)problem->kernel[0] + 24);
}

/* Neighbouring items store neighbouring channels if these are neighbours in memory and columns are not. */
static bool lanes_along_channels(const struct conv2d_problem *problem)
{
    const int64_t *y = problem->desc.y.stride;
    return y[1] == 1 && y[3] != 1;
}

static void groups_of(const struct conv2d_plan *plan, const struct conv2d_problem *problem, const size_t local[3],
                      size_t batch, size_t groups[3])
{
    const bool along = lanes_along_channels(problem);
    const size_t blocks = problem->groups * divide_up(problem->out_channels, plan->panel), columns = problem->out[1];
    groups[0] = divide_up(along ? blocks : columns, local[0]);
    groups[1] = divide_up(along ? columns : blocks, local[1]);
    groups[2] = batch * problem->out[0];
}

static clattn_status launch(const struct conv2d_plan *plan, const struct conv2d_problem *problem, struct chain *chain,
                            const clattn_conv2d_args *args, conv2d_args *kernel_args)
{
    const clattn_binding *bindings[] = {&args->x, &args->weight, problem->has_bias ? &args->bias : NULL,
                                        problem->has_operand ? &args->operand : NULL, &args->y};
    size_t groups[3];
    kernel_args->lanes_along_channels = lanes_along_channels(problem);
    groups_of(plan, problem, plan->base.kernels[0].local, args->batch, groups);
    return chain_launch(chain, &plan->base, 0, bindings, kernel_args, groups, true);
}

static clattn_status prepare(clattn_plan *base)
{
    struct conv2d_plan *plan = (struct conv2d_plan *)base;
    const struct conv2d_problem *problem = &plan->problem;
    const struct capabilities *caps = &base->context->device.caps;
    const uint32_t *most = caps->info.max_work_item;
    const bool wide = !capabilities_on_cpu(caps) && caps->info.max_work_group >= 64 && most[0] >= 16 && most[1] >= 4;
    const size_t local[3] = {wide ? 16 : 1, wide ? 4 : 1, 1};
    struct strbuf options = {0};
    size_t groups[3];
    plan->lanes = plan->panel = CHANNELS;
    plan->launch = launch;
    plan->workspace = NULL;
    groups_of(plan, problem, local, problem->batch, groups);
    conv2d_defines(problem, &options);
    return plan_add_kernel(base, "conv2d/generic.cl", &options, "conv2d_generic", 5, sizeof(conv2d_args), local,
                           groups);
}

const struct solver conv2d_generic_solver = {.name = "generic", .refuse = refuse, .prepare = prepare};
