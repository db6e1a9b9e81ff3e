/* Rotary position embedding on every device and for every layout: a work-item a pair of a few heads. */
#include "base/size.h"
#include "ops/rope/rope.h"

/* The most items of a work-group; it has fewer if there are fewer pairs. */
#define MAX_ITEMS 64

static clattn_status prepare(clattn_plan *base)
{
    struct rope_plan *plan = (struct rope_plan *)base;
    const struct capabilities *caps = &base->context->device.caps;
    const size_t slots = (size_t)(plan->problem.kernel.size - plan->problem.kernel.pairs);
    size_t limit = size_min(MAX_ITEMS, caps->info.max_work_item[0]), items = 1;
    struct strbuf options = {0};
    if (caps->quirks & (QUIRK_SLOW_COMPILER | QUIRK_SIMULATOR))
        limit = size_min(limit, 32);
    if (caps->quirks & QUIRK_GROUPS_BREAK)
        limit = 1;
    while (items * 2 <= limit && items < slots)
        items *= 2;
    plan->places_per_group = 0; /* another solver may have set it */
    rope_defines(&plan->problem, &options);
    return rope_add_kernel(plan, "rope/generic.cl", "rope_generic", &options, (const size_t[3]){items, 1, 1});
}

const struct solver rope_generic_solver = {.name = "generic", .prepare = prepare};
