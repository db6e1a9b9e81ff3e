/* Matrix products everywhere and for every shape: one work-item for an element of C. */
#include "base/size.h"
#include "ops/matmul/matmul.h"

static const char *refuse(const struct offer *offer)
{
    const struct matmul_problem *problem = offer->problem;
    return refuse_loops(offer->caps, (double)problem->k / 4 + 8);
}

static clattn_status prepare(clattn_plan *base)
{
    struct matmul_plan *plan = (struct matmul_plan *)base;
    const clattn_device_info *info = &base->context->device.caps.info;
    bool cpu = capabilities_on_cpu(&base->context->device.caps);
    const size_t local[3] = {cpu ? 1 : size_min(64, info->max_work_item[0]), 1, 1};
    struct strbuf options = {0};
    matmul_defines(plan, false, &options);
    plan->tile_columns = local[0];
    plan->tile_rows = 1;
    return matmul_add_tiled_kernel(plan, "matmul/generic.cl", "matmul_generic", &options, local);
}

const struct solver matmul_generic_solver = {.name = "generic", .refuse = refuse, .prepare = prepare};
