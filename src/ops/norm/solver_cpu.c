/* Normalisation on CPU devices: one work-item a work-group walks rows with whole vectors, or short rows side by side. */
#include "ops/norm/norm.h"
#include "ops/common/rows.h"
#include "program/defines.h"

static struct cpu_rows rows_of(const struct capabilities *caps, const struct norm_problem *problem)
{
    struct cpu_rows rows = {
        .count = problem->rows, .elements = problem->elements, .unit_columns = problem->unit_columns};
    const norm_args *walk = &problem->walk;
    const double columns = (double)walk->columns;
    rows.is_short = norm_rows_are_plain(walk) && cpu_rows_are_short(caps, problem->rows, (size_t)walk->columns);
    if (rows.is_short) { /* each by itself at the worst */
        rows.iterations = columns * (2 * caps->lanes + 8) + 2 * caps->lanes + 16;
    } else {
        double each = problem->unit_columns ? columns / caps->lanes : 4.0 * (columns + caps->lanes);
        rows.iterations = (double)walk->segments * (3.2 * each + 64) + 64;
    }
    return rows;
}

static const char *refuse(const clattn_context *context, const void *data, bool forced)
{
    const struct cpu_rows rows = rows_of(&context->device.caps, data);
    return cpu_rows_refuse(&context->device.caps, &rows, forced);
}

static clattn_status prepare(clattn_plan *base)
{
    static const size_t one[3] = {1, 1, 1};
    struct norm_plan *plan = (struct norm_plan *)base;
    const struct cpu_rows rows = rows_of(&base->context->device.caps, &plan->problem);
    struct strbuf options = {0};
    norm_defines(&plan->problem, &options);
    if (!rows.is_short)
        define_int(&options, "PREFETCHES", capabilities_prefetch(&base->context->device.caps));
    cpu_rows_plan(base, &rows, &options, &plan->rows_per_group, &plan->longest_row);
    return rows.is_short ? norm_add_kernel(plan, "norm/cpu_short.cl", "norm_cpu_short", &options, one)
                         : norm_add_kernel(plan, "norm/cpu.cl", "norm_cpu", &options, one);
}

const struct solver norm_cpu_solver = {.name = "cpu", .refuse = refuse, .prepare = prepare};
