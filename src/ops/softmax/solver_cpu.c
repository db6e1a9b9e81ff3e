/* Softmax on CPU devices: one work-item a work-group walks rows with whole vectors, or short rows side by side. */
#include "ops/common/rows.h"
#include "ops/softmax/softmax.h"

static struct cpu_rows rows_of(const struct capabilities *caps, const struct softmax_problem *problem)
{
    struct cpu_rows rows = {
        .count = softmax_rows(problem), .elements = problem->columns, .unit_columns = problem->unit_columns};
    rows.is_short = cpu_rows_are_short(caps, rows.count, problem->columns);
    if (rows.is_short) { /* each by itself at the worst */
        rows.iterations = (double)problem->columns * (2 * caps->lanes + 5) + 16;
    } else {
        double each = (double)problem->columns / (problem->unit_columns ? caps->lanes : 1);
        rows.iterations = 3.2 * each + 64;
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
    struct softmax_plan *plan = (struct softmax_plan *)base;
    const struct cpu_rows rows = rows_of(&base->context->device.caps, &plan->problem);
    struct strbuf options = {0};
    softmax_defines(&plan->problem, &options);
    cpu_rows_plan(base, &rows, &options, &plan->rows_per_group, &plan->longest_row);
    return rows.is_short ? softmax_add_kernel(plan, "softmax/cpu_short.cl", "softmax_cpu_short", &options, one)
                         : softmax_add_kernel(plan, "softmax/rows.cl", "softmax_cpu", &options, one);
}

const struct solver softmax_cpu_solver = {.name = "cpu", .refuse = refuse, .prepare = prepare};
