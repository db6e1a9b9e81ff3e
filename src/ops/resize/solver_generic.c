/* Resizing on every device and for every layout: a work-item an element of y. */
#include "base/size.h"
#include "ops/resize/resize.h"

#define MAX_ITEMS 64

static const char *refuse(const struct offer *offer)
{
    const resize_args *kernel = &((const struct resize_problem *)offer->problem)->kernel;
    return refuse_loops(offer->caps, (kernel->rows.taps + 1.0) * (kernel->cols.taps + 1.0) + kernel->rows.taps);
}

static void shape(const struct resize_plan *plan, const struct resize_problem *problem, size_t batch, resize_args *args)
{
    (void)batch;
    args->depth = problem->joined ? args->channels : 1;
    args->tile = (int)plan->items;
    args->band = 1;
}

static clattn_status prepare(clattn_plan *base)
{
    struct resize_plan *plan = (struct resize_plan *)base;
    const struct capabilities *caps = &base->context->device.caps;
    size_t limit = size_min(MAX_ITEMS, caps->info.max_work_item[0]), items = 1;
    if (caps->quirks & (QUIRK_SLOW_COMPILER | QUIRK_SIMULATOR))
        limit = size_min(limit, 32);
    if (caps->quirks & QUIRK_GROUPS_BREAK)
        limit = 1;
    while (items * 2 <= limit && items < (size_t)plan->problem.kernel.cols.target)
        items *= 2;
    plan->items = items;
    plan->shape = shape;
    return resize_add_kernel(plan, "resize/generic.cl", "resize_generic", 4);
}

const struct solver resize_generic_solver = {.name = "generic", .refuse = refuse, .prepare = prepare};
