/* Normalisation on GPU-class devices: a work-group a row, reduced through local memory. */
#include "base/size.h"
#include "ops/norm.h"
#include "program/defines.h"

#define MIN_ITEMS 32 /* fewer leave a part of a GPU's narrowest unit idle */
#define MAX_ITEMS 256
#define MAX_KEEP 16

static size_t most_items(const clattn_context *context)
{
    const clattn_device_info *info = &context->device.caps.info;
    size_t limit = size_min(MAX_ITEMS, size_min(info->max_work_group, info->max_work_item[0]));
    if (context->device.caps.quirks & (QUIRK_SLOW_COMPILER | QUIRK_SIMULATOR))
        limit = size_min(limit, 32);
    return limit;
}

static size_t items_of(const clattn_context *context, const struct norm_problem *problem)
{
    size_t limit = most_items(context), items = 1;
    while (items * 2 <= size_min(limit, MIN_ITEMS))
        items *= 2;
    while (items * 2 <= limit && items < problem->elements)
        items *= 2;
    return items;
}

static double iterations(const struct norm_problem *problem, size_t items)
{
    return (problem->walk.segments > 1 ? 16.0 : 3.2) * (double)problem->elements / (double)items + 64;
}

static const char *refuse(const clattn_context *context, const void *data, bool forced)
{
    const struct norm_problem *problem = data;
    const char *reason = refuse_loops(&context->device.caps, iterations(problem, items_of(context, problem)));
    if (reason)
        return reason;
    if (context->device.caps.info.local_memory < MAX_ITEMS * sizeof(float))
        return "the device has too little local memory";
    return refuse_cpu(&context->device.caps, forced);
}

/* Elements that an item keeps in registers so that x is read once: a power of four, since each is a program
 * of its own, or 0 for rows that are too long. */
static size_t keep_of(const struct norm_problem *problem, size_t items)
{
    size_t keep = 1;
    while (keep * items < problem->elements && keep <= MAX_KEEP)
        keep *= 4;
    return keep <= MAX_KEEP ? keep : 0;
}

/* Rows that one index tells apart, each in one piece. */
static bool is_plain(const norm_args *walk)
{
    return walk->segments == 1 && walk->row_extent[1] == 1 && walk->row_extent[2] == 1 &&
           walk->row_extent[3] == 1;
}

static clattn_status prepare(clattn_plan *base)
{
    struct norm_plan *plan = (struct norm_plan *)base;
    static const int32_t sizes[] = {16, 32, 64, 128, 256, -1};
    size_t items = items_of(base->context, &plan->problem), most = most_items(base->context);
    tuning_parameter(&base->tuning, "items", sizes, &items);
    if (items > most || refuse_loops(&base->context->device.caps, iterations(&plan->problem, items)))
        return report_error(&base->context->device.report, CLATTN_ERROR_UNSUPPORTED,
                            "the device takes work-groups of %zu items here, not of %zu", most, items);
    const size_t local[3] = {items, 1, 1};
    const size_t keep = keep_of(&plan->problem, local[0]);
    struct strbuf options = {0};
    norm_defines(&plan->problem, &options);
    define_int(&options, "WORK_GROUP", (long long)local[0]);
    define_int(&options, "KEEP", (long long)keep);
    define_int(&options, "UNIT_STRIDE", plan->problem.unit_columns);
    define_int(&options, "PLAIN", is_plain(&plan->problem.walk));
    plan->longest_row = keep ? keep * local[0] : SIZE_MAX;
    plan->rows_per_group = 1;
    return norm_add_kernel(plan, "norm_tile.cl", "norm_tile", &options, local);
}

const struct solver norm_tile_solver = {.name = "tile", .refuse = refuse, .prepare = prepare};
