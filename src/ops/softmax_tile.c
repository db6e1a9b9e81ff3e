/* Softmax on GPU-class devices: a work-group a row, reduced through local memory. */
#include "base/try.h"
#include "ops/rows.h"
#include "ops/softmax.h"

static struct tile_rows rows_of(const struct softmax_problem *problem)
{
    return (struct tile_rows){.elements = problem->columns, .loops = 3.2, .least_items = 1, .keep_step = 2};
}

static const char *refuse(const clattn_context *context, const void *data, bool forced)
{
    const struct tile_rows rows = rows_of(data);
    return tile_rows_refuse(context, &rows, 2 * sizeof(float), forced);
}

static clattn_status prepare(clattn_plan *base)
{
    clattn_status status;
    struct softmax_plan *plan = (struct softmax_plan *)base;
    const struct tile_rows rows = rows_of(&plan->problem);
    size_t local[3] = {1, 1, 1};
    struct strbuf options = {0};
    TRY(tile_rows_items(base, &rows, &local[0]));
    softmax_defines(&plan->problem, &options);
    tile_rows_define(&rows, local[0], &options, &plan->longest_row);
    plan->rows_per_group = 1;
    status = softmax_add_kernel(plan, "softmax.cl", "softmax_tile", &options, local);
fail:
    return status;
}

const struct solver softmax_tile_solver = {.name = "tile", .refuse = refuse, .prepare = prepare};
