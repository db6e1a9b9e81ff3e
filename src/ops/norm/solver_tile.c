/* Normalisation on GPU-class devices: a work-group a row, reduced through local memory or first in sub-groups. */
#include "base/try.h"
#include "ops/norm/norm.h"
#include "ops/common/rows.h"
#include "program/defines.h"

#define MIN_ITEMS 32 /* fewer leave a part of a GPU's narrowest unit idle */

static struct tile_rows rows_of(const struct norm_problem *problem, struct sub_groups groups)
{
    return (struct tile_rows){.elements = problem->elements,
                              .loops = problem->walk.segments > 1 ? 16.0 : 3.2,
                              .least_items = MIN_ITEMS,
                              .keep_step = 4,
                              .groups = groups};
}

static clattn_status prepare_reduction(clattn_plan *base, struct sub_groups groups)
{
    clattn_status status;
    struct norm_plan *plan = (struct norm_plan *)base;
    const struct tile_rows rows = rows_of(&plan->problem, groups);
    size_t local[3] = {1, 1, 1};
    struct strbuf options = {0};
    TRY(tile_rows_items(base, &rows, &local[0]));
    norm_defines(&plan->problem, &options);
    tile_rows_define(&rows, local[0], &options, &plan->longest_row);
    define_int(&options, "UNIT_STRIDE", plan->problem.unit_columns);
    define_int(&options, "PLAIN", norm_rows_are_plain(&plan->problem.walk));
    sub_groups_explain(&groups, base);
    plan->rows_per_group = 1;
    status = norm_add_kernel(plan, "norm/tile.cl", "norm_tile", &options, local);
fail:
    return status;
}

static const char *refuse(const clattn_context *context, const void *problem, bool forced)
{
    const struct tile_rows rows = rows_of(problem, sub_groups_none());
    return tile_rows_refuse(context, &rows, sizeof(float), forced);
}

static clattn_status prepare(clattn_plan *base)
{
    return prepare_reduction(base, sub_groups_none());
}

const struct solver norm_tile_solver = {.name = "tile", .refuse = refuse, .prepare = prepare};

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

const struct solver norm_sub_group_solver = {.name = "sub-group", .refuse = refuse_device, .prepare = prepare_device};

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

const struct solver norm_emulated_sub_group_solver = {
    .name = "emulated-sub-group", .refuse = refuse_emulation, .prepare = prepare_emulation};
