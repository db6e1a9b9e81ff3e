#include "ops/common/rows.h"

#include "base/size.h"
#include "base/try.h"
#include "ops/common/sub_groups.h"
#include "plan/operator.h"
#include "program/defines.h"

size_t row_groups(const clattn_plan *plan, size_t rows)
{
    return divide_up(rows, ((const struct row_plan *)plan)->rows_per_group);
}

static struct rows rows_of(const struct operator_type *type, const void *problem)
{
    return ((const struct row_operator *)type->family)->rows(problem);
}

/* Builds the solver's kernels, the first of which has work-groups of `items`; `options` is taken over and cleared. */
static clattn_status add_kernel(clattn_plan *plan, enum row_solver solver, size_t items, struct strbuf *options)
{
    const struct row_operator *type = plan->type->family;
    const size_t local[3] = {items, 1, 1};
    const size_t groups[3] = {row_groups(plan, type->rows(operator_problem(plan)).count), 1, 1};
    type->define(plan, solver, options);
    const clattn_status status = plan_add_kernel(plan, type->kernels[solver].file, options, type->kernels[solver].name,
                                                 type->arrays, type->args_bytes, local, groups);
    return status == CLATTN_SUCCESS && type->add_more ? type->add_more(plan, solver) : status;
}

/* ---- cpu ---- */

/* A work-group of so many elements is worth its launch. */
#define GROUP_ELEMENTS 16384
static const int32_t group_elements[] = {2048, 4096, 8192, 16384, 32768, 65536, 131072, -1};

/* Rows of at most so many columns lie across the lanes (softmax/cpu_short.cl, norm/cpu_short.cl): rows of 128 tie
 * (docs/performance.md).  If there are not enough rows for all lanes, they must be shorter. */
#define SHORT_ROW 127
#define SHORT_ALWAYS 31
/* Rows that lie side by side may be longer, because a vector of them is loaded at once and needs no transposition.  The bound is
 * the kernel's private memory. */
#define SHORT_ABREAST 1024

static bool are_abreast(const struct capabilities *caps, const struct rows *rows)
{
    return rows->abreast >= caps->lanes && rows->elements <= SHORT_ABREAST && !(caps->quirks & QUIRK_SLOW_COMPILER);
}

static bool are_short(const struct capabilities *caps, const struct rows *rows)
{
    return are_abreast(caps, rows) ||
           (rows->plain && rows->elements <= (rows->count < caps->lanes ? SHORT_ALWAYS : SHORT_ROW));
}

/* The most loop iterations for one row. */
static double cpu_iterations(const struct capabilities *caps, const struct rows *rows)
{
    const double lanes = caps->lanes, columns = (double)rows->elements / (double)size_max(1, rows->segments);
    if (are_short(caps, rows))
        return columns * (2 * lanes + 8) + 2 * lanes + 16; /* if each row is moved element by element */
    const double vectors = rows->unit_columns ? columns / lanes : (double)rows->gathered * (columns + lanes);
    return (double)rows->segments * (3.2 * vectors + 64) + 64;
}

static const char *refuse_cpu_device(const struct offer *offer)
{
    const struct rows rows = rows_of(offer->type, offer->problem);
    const char *reason = refuse_loops(offer->caps, cpu_iterations(offer->caps, &rows));
    return reason ? reason : refuse_all_but_cpu(offer);
}

/* Rows of a work-group: no more than there are, nor than the device lets an item loop over. */
static size_t cpu_rows_per_group(const struct capabilities *caps, const struct rows *rows, size_t elements)
{
    size_t count = size_max(1, size_min(rows->count, elements / size_max(1, rows->elements)));
    while (count > 1 && !capabilities_allow_loops(caps, (double)count * cpu_iterations(caps, rows)))
        count /= 2;
    return count;
}

/* Columns of a short row that are moved at once. */
static int window_of(const struct capabilities *caps, const struct rows *rows)
{
    int window = 1;
    while (window * 2 <= (int)size_min(rows->elements, caps->lanes))
        window *= 2;
    return window;
}

static clattn_status prepare_cpu(clattn_plan *base)
{
    struct row_plan *plan = (struct row_plan *)base;
    const struct capabilities *caps = &base->context->device.caps;
    const struct rows rows = rows_of(base->type, operator_problem(base));
    const bool is_short = are_short(caps, &rows);
    struct strbuf options = {0};
    size_t elements = GROUP_ELEMENTS;
    tuning_parameter(&base->tuning, "elements", group_elements, &elements);
    plan->rows_per_group = cpu_rows_per_group(caps, &rows, elements);
    define_int(&options, "LANES", caps->lanes);
    if (is_short) {
        plan->is_abreast = are_abreast(caps, &rows) && rows.elements > SHORT_ROW;
        define_int(&options, "MOST", plan->is_abreast ? SHORT_ABREAST : SHORT_ROW);
        define_int(&options, "WINDOW", window_of(caps, &rows));
        /* The self-check's rows fill all lanes, and have a window and some columns. */
        plan->longest_row = plan->is_abreast ? SHORT_ABREAST : SHORT_ALWAYS;
    } else {
        define_int(&options, "UNIT_STRIDE", rows.unit_columns);
        plan->longest_row = SIZE_MAX;
    }
    return add_kernel(base, is_short ? ROW_CPU_SHORT : ROW_CPU, 1, &options);
}

/* ---- tile ---- */

#define MAX_ITEMS 256
#define MAX_KEEP 16

/* Sub-groups have so many items if the device leaves a choice: with 32, Intel's compiler puts 16 kept values into memory;
 * with 8, a row has many partial results. */
#define SUB_GROUP 16

static size_t most_items(const clattn_context *context)
{
    const clattn_device_info *info = &context->device.caps.info;
    size_t limit = size_min(MAX_ITEMS, size_min(info->max_work_group, info->max_work_item[0]));
    if (context->device.caps.quirks & (QUIRK_SLOW_COMPILER | QUIRK_SIMULATOR))
        limit = size_min(limit, 32);
    return limit;
}

static size_t tile_items(const struct row_operator *type, const clattn_context *context, const struct rows *rows,
                         const struct sub_groups *groups)
{
    size_t limit = most_items(context), items = groups->size;
    while (items * 2 <= limit && (items < rows->elements || items * 2 <= type->least_items))
        items *= 2;
    return items;
}

static double tile_iterations(const struct rows *rows, size_t items)
{
    return (rows->segments > 1 ? 16 : 3.2) * (double)rows->elements / (double)items + 64;
}

static const char *refuse_tile(const struct offer *offer)
{
    const struct row_operator *type = offer->type->family;
    const clattn_context *context = offer->context;
    const struct rows rows = rows_of(offer->type, offer->problem);
    const struct sub_groups groups = sub_groups_for(context, offer->solver, SUB_GROUP);
    const char *reason = refuse_sub_groups(offer);
    if (!reason)
        reason = refuse_loops(offer->caps, tile_iterations(&rows, tile_items(type, context, &rows, &groups)));
    if (reason)
        return reason;
    if (groups.size > most_items(context))
        return "the device's work-groups are smaller than a sub-group";
    if (offer->caps->info.local_memory < MAX_ITEMS * 2 * sizeof(float))
        return "the device has too little local memory";
    return refuse_cpu(offer);
}

/* The items of a work-group; UNSUPPORTED, reported, if a tuning gives a number that the device does not take or that is no
 * multiple of a sub-group's. */
static clattn_status choose_items(const struct row_operator *type, clattn_plan *plan, const struct rows *rows,
                                  const struct sub_groups *groups, size_t *items)
{
    static const int32_t sizes[] = {16, 32, 64, 128, 256, -1};
    const size_t most = most_items(plan->context);
    *items = tile_items(type, plan->context, rows, groups);
    tuning_parameter(&plan->tuning, "items", sizes, items);
    if (*items > most || refuse_loops(&plan->context->device.caps, tile_iterations(rows, *items)))
        return report_error(&plan->context->device.report, CLATTN_ERROR_UNSUPPORTED,
                            "the device takes work-groups of %zu items here, not of %zu", most, *items);
    if (*items < groups->size)
        return report_error(&plan->context->device.report, CLATTN_ERROR_UNSUPPORTED,
                            "a work-group of %zu items is no whole sub-group of %zu", *items, groups->size);
    return CLATTN_SUCCESS;
}

/* The elements that an item keeps in registers, so that a row is read once; 0 for rows that are too long. */
static size_t kept_elements(const struct row_operator *type, const struct rows *rows, size_t items)
{
    size_t keep = 1;
    while (keep * items < rows->elements && keep <= MAX_KEEP)
        keep *= type->keep_step;
    return keep > MAX_KEEP ? 0 : keep;
}

static clattn_status prepare_tile(clattn_plan *base)
{
    clattn_status status;
    const struct row_operator *type = base->type->family;
    struct row_plan *plan = (struct row_plan *)base;
    const struct rows rows = rows_of(base->type, operator_problem(base));
    const struct sub_groups groups = sub_groups_for(base->context, base->trying, SUB_GROUP);
    struct strbuf options = {0};
    size_t items, keep;
    TRY(choose_items(type, base, &rows, &groups, &items));
    keep = kept_elements(type, &rows, items);
    plan->longest_row = keep ? keep * items : SIZE_MAX;
    plan->rows_per_group = 1;
    define_int(&options, "WORK_GROUP", (long long)items);
    define_int(&options, "KEEP", (long long)keep);
    sub_groups_define(&groups, &options);
    sub_groups_explain(&groups, base);
    status = add_kernel(base, ROW_TILE, items, &options);
fail:
    return status;
}

/* ---- generic ---- */

static const char *refuse_generic(const struct offer *offer)
{
    const struct rows rows = rows_of(offer->type, offer->problem);
    return refuse_loops(offer->caps, 3.2 * (double)rows.elements + 16 * (double)rows.segments + 64);
}

static clattn_status prepare_generic(clattn_plan *base)
{
    struct row_plan *plan = (struct row_plan *)base;
    const struct capabilities *caps = &base->context->device.caps;
    const size_t items = capabilities_on_cpu(caps) ? 1 : size_min(64, caps->info.max_work_item[0]);
    struct strbuf options = {0};
    plan->longest_row = SIZE_MAX;
    plan->rows_per_group = items;
    return add_kernel(base, ROW_GENERIC, items, &options);
}

/* ---- the table ---- */

static const struct solver cpu = {.name = "cpu", .refuse = refuse_cpu_device, .prepare = prepare_cpu};
static const struct solver tile = {.name = "tile", .refuse = refuse_tile, .prepare = prepare_tile};
static const struct solver sub_group = {
    .name = "sub-group", .refuse = refuse_tile, .prepare = prepare_tile, .variant = REDUCE_SUB_GROUPS};
static const struct solver emulated = {
    .name = "emulated-sub-group", .refuse = refuse_tile, .prepare = prepare_tile, .variant = REDUCE_EMULATED};
static const struct solver generic = {.name = "generic", .refuse = refuse_generic, .prepare = prepare_generic};

const struct solver *const row_solvers[ROW_SOLVER_COUNT] = {&cpu, &sub_group, &tile, &generic, &emulated};
