/* Softmax on every device and for every layout: one work-item a row. */
#include "base/size.h"
#include "ops/softmax/softmax.h"

static const char *refuse(const clattn_context *context, const void *data, bool forced)
{
    const struct softmax_problem *problem = data;
    (void)forced;
    return refuse_loops(&context->device.caps, 3.2 * (double)problem->columns + 64);
}

static clattn_status prepare(clattn_plan *base)
{
    struct softmax_plan *plan = (struct softmax_plan *)base;
    const struct capabilities *caps = &base->context->device.caps;
    const size_t local[3] = {capabilities_on_cpu(caps) ? 1 : size_min(64, caps->info.max_work_item[0]), 1, 1};
    struct strbuf options = {0};
    softmax_defines(&plan->problem, &options);
    plan->longest_row = SIZE_MAX;
    plan->rows_per_group = local[0];
    return softmax_add_kernel(plan, "softmax/rows.cl", "softmax_generic", &options, local);
}

const struct solver softmax_generic_solver = {.name = "generic", .refuse = refuse, .prepare = prepare};
