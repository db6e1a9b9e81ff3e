/* Softmax on CPU devices: one work-item a work-group walks rows with whole vectors, or short rows side by side. */
#include "base/size.h"
#include "ops/softmax.h"
#include "program/defines.h"

/* Elements that make a work-group worth its launch. */
#define GROUP_ELEMENTS 16384
static const int32_t group_elements[] = {2048, 4096, 8192, 16384, 32768, 65536, 131072, -1};

/* Columns up to which rows lie across the lanes (softmax_cpu_short.cl): rows of 128 tie (docs/performance.md).  Where there
 * are not rows for all lanes, up to fewer. */
#define SHORT_ROW 127
#define SHORT_ALWAYS 31

static size_t all_rows(const struct softmax_problem *problem)
{
    size_t rows = 1;
    for (int i = 0; i < SOFTMAX_OUTER; i++)
        rows *= problem->outer[i];
    return rows;
}

static bool is_short(const struct capabilities *caps, const struct softmax_problem *problem)
{
    return problem->columns <= SHORT_ALWAYS || (problem->columns <= SHORT_ROW && all_rows(problem) >= caps->lanes);
}

/* Loops of a work-item with that many rows, at the most. */
static double iterations(const struct capabilities *caps, const struct softmax_problem *problem, size_t rows)
{
    if (is_short(caps, problem)) /* each row by itself at the worst */
        return (double)rows * ((double)problem->columns * (2 * caps->lanes + 5) + 16);
    double each = (double)problem->columns / (problem->unit_columns ? caps->lanes : 1);
    return (double)rows * (3.2 * each + 64);
}

/* Rows of a work-group: no more than there are, nor than the device lets an item loop over. */
static size_t rows_of(const struct capabilities *caps, const struct softmax_problem *problem, size_t elements)
{
    size_t rows = size_max(1, size_min(all_rows(problem), elements / size_max(1, problem->columns)));
    while (rows > 1 && !capabilities_allow_loops(caps, iterations(caps, problem, rows)))
        rows /= 2;
    return rows;
}

/* Columns of a short row that are moved at once. */
static int window_of(const struct capabilities *caps, const struct softmax_problem *problem)
{
    int window = 1;
    while (window * 2 <= (int)size_min(problem->columns, caps->lanes))
        window *= 2;
    return window;
}

static const char *refuse(const clattn_context *context, const void *data, bool forced)
{
    const struct capabilities *caps = &context->device.caps;
    const char *reason = refuse_loops(caps, iterations(caps, data, 1));
    return reason ? reason : refuse_all_but_cpu(caps, forced);
}

static clattn_status prepare(clattn_plan *base)
{
    static const size_t one[3] = {1, 1, 1};
    struct softmax_plan *plan = (struct softmax_plan *)base;
    size_t elements = GROUP_ELEMENTS;
    struct strbuf options = {0};
    tuning_parameter(&base->tuning, "elements", group_elements, &elements);
    softmax_defines(&plan->problem, &options);
    define_int(&options, "LANES", base->context->device.caps.lanes);
    plan->rows_per_group = rows_of(&base->context->device.caps, &plan->problem, elements);
    if (is_short(&base->context->device.caps, &plan->problem)) {
        define_int(&options, "MOST", SHORT_ROW);
        define_int(&options, "WINDOW", window_of(&base->context->device.caps, &plan->problem));
        plan->longest_row = SHORT_ALWAYS; /* compared on rows for all lanes, of a window and some columns */
        return softmax_add_kernel(plan, "softmax_cpu_short.cl", "softmax_cpu_short", &options, one);
    }
    define_int(&options, "UNIT_STRIDE", plan->problem.unit_columns);
    plan->longest_row = SIZE_MAX;
    return softmax_add_kernel(plan, "softmax.cl", "softmax_cpu", &options, one);
}

const struct solver softmax_cpu_solver = {.name = "cpu", .refuse = refuse, .prepare = prepare};
