/* Dropout on every device and for every layout: a work-group a piece of a row. */
#include "base/size.h"
#include "ops/dropout/dropout.h"

#define MAX_ITEMS 64
#define LANES 4
#define VECTORS 4 /* of an item */

static clattn_status prepare(clattn_plan *base)
{
    struct dropout_plan *plan = (struct dropout_plan *)base;
    const struct capabilities *caps = &base->context->device.caps;
    size_t limit = size_min(MAX_ITEMS, caps->info.max_work_item[0]), items = 1;
    if (caps->quirks & (QUIRK_SLOW_COMPILER | QUIRK_SIMULATOR))
        limit = size_min(limit, 32);
    if (caps->quirks & QUIRK_GROUPS_BREAK)
        limit = 1;
    while (items * 2 <= limit && items * LANES < (size_t)plan->problem.columns)
        items *= 2;
    plan->chunk = (int)items * LANES * VECTORS;
    plan->pieces_per_group = 1;
    return dropout_add_kernel(plan, "dropout/generic.cl", "dropout_generic", LANES, items);
}

const struct solver dropout_generic_solver = {.name = "generic", .prepare = prepare};
