/* Pooling on every device and for every layout: a few work-items an element of y, more if windows are large. */
#include "base/size.h"
#include "ops/pool/pool.h"

/* An item combines at least so many elements of a window. */
#define ITEM_ELEMENTS 16

static size_t area_of(const pool_args *args)
{
    return (size_t)args->rows.window * (size_t)args->cols.window;
}

size_t pool_items_of(const struct capabilities *caps)
{
    size_t limit = size_min(POOL_ITEMS, caps->info.max_work_item[0]), items = 1;
    if (caps->quirks & (QUIRK_SLOW_COMPILER | QUIRK_SIMULATOR))
        limit = size_min(limit, 32);
    if (caps->quirks & QUIRK_GROUPS_BREAK)
        limit = 1;
    while (items * 2 <= limit)
        items *= 2;
    return items;
}

static const char *refuse(const struct offer *offer)
{
    const pool_args *kernel = &((const struct pool_problem *)offer->problem)->kernel;
    return refuse_loops(offer->caps, (double)area_of(kernel) / (double)pool_items_of(offer->caps) + ITEM_ELEMENTS + 8);
}

static void shape(const struct pool_plan *plan, const struct pool_problem *problem, size_t batch, pool_args *args)
{
    size_t part = 1;
    (void)batch;
    while (part < plan->items && part * ITEM_ELEMENTS < area_of(args))
        part *= 2;
    args->depth = problem->joined ? args->channels : 1;
    args->share = (int)part;
    args->tile = (int)(plan->items / part);
    args->band = 1;
}

static clattn_status prepare(clattn_plan *base)
{
    struct pool_plan *plan = (struct pool_plan *)base;
    plan->items = pool_items_of(&base->context->device.caps);
    plan->shape = shape;
    return pool_add_kernel(plan, "pool/generic.cl", "pool_generic", 4);
}

const struct solver pool_generic_solver = {.name = "generic", .refuse = refuse, .prepare = prepare};
