/* Activation functions on every device and for every layout: a work-group a piece of a row. */
#include "base/size.h"
#include "ops/activation/activation.h"

#define MAX_ITEMS 64
#define LANES 4
#define VECTORS 4 /* of an item */

static clattn_status prepare(clattn_plan *base)
{
    struct activation_plan *plan = (struct activation_plan *)base;
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
    const struct activation_kernel forward = {"activation/generic.cl", "activation_generic"};
    const struct activation_kernel backward = {"activation/backward_generic.cl", "activation_backward_generic"};
    return activation_add_kernel(plan, forward, backward, LANES, items);
}

const struct solver activation_generic_solver = {.name = "generic", .prepare = prepare};
