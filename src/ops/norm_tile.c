/* Normalisation on GPU-class devices: a work-group a row, reduced through local memory. */
#include "base/try.h"
#include "ops/norm.h"
#include "ops/rows.h"
#include "program/defines.h"

#define MIN_ITEMS 32 /* fewer leave a part of a GPU's narrowest unit idle */

static struct tile_rows rows_of(const struct norm_problem *problem)
{
    return (struct tile_rows){.elements = problem->elements,
                              .loops = problem->walk.segments > 1 ? 16.0 : 3.2,
                              .least_items = MIN_ITEMS,
                              .keep_step = 4};
}

static const char *refuse(const clattn_context *context, const void *data, bool forced)
{
    const struct tile_rows rows = rows_of(data);
    return tile_rows_refuse(context, &rows, sizeof(float), forced);
}

static clattn_status prepare(clattn_plan *base)
{
    clattn_status status;
    struct norm_plan *plan = (struct norm_plan *)base;
    const struct tile_rows rows = rows_of(&plan->problem);
    size_t local[3] = {1, 1, 1};
    struct strbuf options = {0};
    TRY(tile_rows_items(base, &rows, &local[0]));
    norm_defines(&plan->problem, &options);
    tile_rows_define(&rows, local[0], &options, &plan->longest_row);
    define_int(&options, "UNIT_STRIDE", plan->problem.unit_columns);
    define_int(&options, "PLAIN", norm_rows_are_plain(&plan->problem.walk));
    plan->rows_per_group = 1;
    status = norm_add_kernel(plan, "norm_tile.cl", "norm_tile", &options, local);
fail:
    return status;
}

const struct solver norm_tile_solver = {.name = "tile", .refuse = refuse, .prepare = prepare};
