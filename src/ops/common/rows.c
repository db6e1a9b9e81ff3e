#include "ops/common/rows.h"

#include "base/size.h"
#include "program/defines.h"

/* ---- CPU devices ---- */

/* Elements that make a work-group worth its launch. */
#define GROUP_ELEMENTS 16384
static const int32_t group_elements[] = {2048, 4096, 8192, 16384, 32768, 65536, 131072, -1};

/* Columns up to which rows lie across the lanes (softmax/cpu_short.cl, norm/cpu_short.cl): rows of 128 tie
 * (docs/notes/sizes.md).  Where there are not rows for all lanes, up to fewer. */
#define SHORT_ROW 127
#define SHORT_ALWAYS 31

bool cpu_rows_are_short(const struct capabilities *caps, size_t count, size_t columns)
{
    return columns <= (count < caps->lanes ? SHORT_ALWAYS : SHORT_ROW);
}

const char *cpu_rows_refuse(const struct capabilities *caps, const struct cpu_rows *rows, bool forced)
{
    const char *reason = refuse_loops(caps, rows->iterations);
    return reason ? reason : refuse_all_but_cpu(caps, forced);
}

/* Rows of a work-group: no more than there are, nor than the device lets an item loop over. */
static size_t rows_of_group(const struct capabilities *caps, const struct cpu_rows *rows, size_t elements)
{
    size_t count = size_max(1, size_min(rows->count, elements / size_max(1, rows->elements)));
    while (count > 1 && !capabilities_allow_loops(caps, (double)count * rows->iterations))
        count /= 2;
    return count;
}

/* Columns of a short row that are moved at once. */
static int window_of(const struct capabilities *caps, const struct cpu_rows *rows)
{
    int window = 1;
    while (window * 2 <= (int)size_min(rows->elements, caps->lanes))
        window *= 2;
    return window;
}

void cpu_rows_plan(clattn_plan *plan, const struct cpu_rows *rows, struct strbuf *options, size_t *rows_per_group,
                   size_t *longest_row)
{
    const struct capabilities *caps = &plan->context->device.caps;
    size_t elements = GROUP_ELEMENTS;
    tuning_parameter(&plan->tuning, "elements", group_elements, &elements);
    *rows_per_group = rows_of_group(caps, rows, elements);
    define_int(options, "LANES", caps->lanes);
    if (rows->is_short) {
        define_int(options, "MOST", SHORT_ROW);
        define_int(options, "WINDOW", window_of(caps, rows));
        *longest_row = SHORT_ALWAYS; /* compared on rows for all lanes, of a window and some columns */
    } else {
        define_int(options, "UNIT_STRIDE", rows->unit_columns);
        *longest_row = SIZE_MAX;
    }
}

/* ---- GPU-class devices ---- */

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

static size_t items_of(const clattn_context *context, const struct tile_rows *rows)
{
    size_t limit = most_items(context), items = rows->groups.size;
    while (items * 2 <= limit && (items < rows->elements || items * 2 <= rows->least_items))
        items *= 2;
    return items;
}

static double iterations(const struct tile_rows *rows, size_t items)
{
    return rows->loops * (double)rows->elements / (double)items + 64;
}

const char *tile_rows_refuse(const clattn_context *context, const struct tile_rows *rows, size_t local_bytes,
                             bool forced)
{
    const struct capabilities *caps = &context->device.caps;
    const char *reason = refuse_loops(caps, iterations(rows, items_of(context, rows)));
    if (reason)
        return reason;
    if (rows->groups.size > most_items(context))
        return "the device's work-groups are smaller than a sub-group";
    if (caps->info.local_memory < MAX_ITEMS * local_bytes)
        return "the device has too little local memory";
    return refuse_cpu(caps, forced);
}

clattn_status tile_rows_items(clattn_plan *plan, const struct tile_rows *rows, size_t *items)
{
    static const int32_t sizes[] = {16, 32, 64, 128, 256, -1};
    const size_t most = most_items(plan->context);
    *items = items_of(plan->context, rows);
    tuning_parameter(&plan->tuning, "items", sizes, items);
    if (*items > most || refuse_loops(&plan->context->device.caps, iterations(rows, *items)))
        return report_error(&plan->context->device.report, CLATTN_ERROR_UNSUPPORTED,
                            "the device takes work-groups of %zu items here, not of %zu", most, *items);
    if (*items < rows->groups.size)
        return report_error(&plan->context->device.report, CLATTN_ERROR_UNSUPPORTED,
                            "a work-group of %zu items is no whole sub-group of %zu", *items, rows->groups.size);
    return CLATTN_SUCCESS;
}

void tile_rows_define(const struct tile_rows *rows, size_t items, struct strbuf *options, size_t *longest_row)
{
    size_t keep = 1;
    while (keep * items < rows->elements && keep <= MAX_KEEP)
        keep *= rows->keep_step;
    if (keep > MAX_KEEP)
        keep = 0;
    define_int(options, "WORK_GROUP", (long long)items);
    define_int(options, "KEEP", (long long)keep);
    sub_groups_define(&rows->groups, options);
    *longest_row = keep ? keep * items : SIZE_MAX;
}
