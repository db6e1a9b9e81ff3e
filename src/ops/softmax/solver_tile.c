/* Softmax on GPU-class devices: a work-group a row, reduced through local memory or first in sub-groups. */
#include "base/try.h"
#include "ops/common/rows.h"
#include "ops/softmax/softmax.h"

static struct tile_rows rows_of(const struct softmax_problem *problem, struct sub_groups groups)
{
    return (struct tile_rows){
        .elements = problem->columns, .loops = 3.2, .least_items = 1, .keep_step = 2, .groups = groups};
}

static clattn_status prepare_reduction(clattn_plan *base, struct sub_groups groups)
{
    clattn_status status;
    struct softmax_plan *plan = (struct softmax_plan *)base;
    const struct tile_rows rows = rows_of(&plan->problem, groups);
    size_t local[3] = {1, 1, 1};
    struct strbuf options = {0};
    TRY(tile_rows_items(base, &rows, &local[0]));
    softmax_defines(&plan->problem, &options);
    tile_rows_define(&rows, local[0], &options, &plan->longest_row);
    sub_groups_explain(&groups, base);
    plan->rows_per_group = 1;
    status = softmax_add_kernel(plan, "softmax/rows.cl", "softmax_tile", &options, local);
fail:
    return status;
}

static const char *refuse(const clattn_context *context, const void *problem, bool forced)
{
    const struct tile_rows rows = rows_of(problem, sub_groups_none());
    return tile_rows_refuse(context, &rows, 2 * sizeof(float), forced);
}

static clattn_status prepare(clattn_plan *base)
{
    return prepare_reduction(base, sub_groups_none());
}

const struct solver softmax_tile_solver = {.name = "tile", .refuse = refuse, .prepare = prepare};

/* ---- in sub-groups ---- */

static const char *refuse_device(const clattn_context *context, const void *problem, bool forced)
{
    const struct tile_rows rows = rows_of(problem, sub_groups_of(context, TILE_ROWS_SUB_GROUP));
    const char *reason = refuse_sub_groups(context, forced);
    return reason ? reason : tile_rows_refuse(context, &rows, 2 * sizeof(float), forced);
}

static clattn_status prepare_device(clattn_plan *base)
{
    return prepare_reduction(base, sub_groups_of(base->context, TILE_ROWS_SUB_GROUP));
}

const struct solver softmax_sub_group_solver = {
    .name = "sub-group", .refuse = refuse_device, .prepare = prepare_device};

/* Hidden from who does not ask by name. */
static const char *refuse_emulation(const clattn_context *context, const void *problem, bool forced)
{
    const struct tile_rows rows = rows_of(problem, sub_groups_emulated());
    return tile_rows_refuse(context, &rows, 2 * sizeof(float), forced);
}

static clattn_status prepare_emulation(clattn_plan *base)
{
    return prepare_reduction(base, sub_groups_emulated());
}

const struct solver softmax_emulated_sub_group_solver = {
    .name = "emulated-sub-group", .refuse = refuse_emulation, .prepare = prepare_emulation};
