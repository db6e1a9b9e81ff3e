/* Matrix products everywhere and for every shape: one work-item for an element of C. */
#include "base/size.h"
#include "ops/matmul.h"
#include "program/defines.h"

static const char *refuse(const clattn_context *context, const void *problem, bool forced)
{
    (void)context;
    (void)problem;
    (void)forced;
    return NULL;
}

static clattn_status launch(struct matmul_plan *plan, struct chain *chain, const clattn_matmul_args *args,
                            const matmul_args *kernel_args)
{
    const struct plan_kernel *kernel = &plan->base.kernels[0];
    const clattn_binding *bindings[4] = {&args->a, &args->b};
    size_t count = 2;
    if (plan->problem.has_bias)
        bindings[count++] = &args->bias;
    bindings[count] = &args->c;
    const size_t groups[3] = {divide_up((size_t)kernel_args->n, plan->tile_columns),
                              divide_up((size_t)kernel_args->m, plan->tile_rows), (size_t)kernel_args->batch};
    return chain_launch(chain, kernel, bindings, kernel_args, groups, true);
}

static clattn_status prepare(clattn_plan *base)
{
    struct matmul_plan *plan = (struct matmul_plan *)base;
    const clattn_device_info *info = &base->context->device.caps.info;
    bool cpu = capabilities_on_cpu(&base->context->device.caps);
    const size_t local[3] = {cpu ? 1 : size_min(64, info->max_work_item[0]), 1, 1};
    struct strbuf options = {0};
    matmul_defines(&plan->problem, &options);
    plan->tile_columns = local[0];
    plan->tile_rows = 1;
    plan->launch = launch;
    base->launches = 1;
    return plan_add_kernel(base, "matmul_generic.cl", &options, "matmul_generic", 3u + plan->problem.has_bias,
                           sizeof(matmul_args), local);
}

const struct solver matmul_generic_solver = {"generic", refuse, prepare};
