/* Normalisation on CPU devices: one work-item a work-group walks rows with whole vectors, or short rows side by side. */
#include "base/size.h"
#include "ops/norm.h"
#include "program/defines.h"

/* Elements that make a work-group worth its launch. */
#define GROUP_ELEMENTS 16384
static const int32_t group_elements[] = {2048, 4096, 8192, 16384, 32768, 65536, 131072, -1};

/* Columns up to which rows lie across the lanes (norm_cpu_short.cl; docs/performance.md); where there are not rows for all
 * lanes, up to fewer. */
#define SHORT_ROW 127
#define SHORT_ALWAYS 31

static bool is_short(const struct capabilities *caps, const struct norm_problem *problem)
{
    const norm_args *walk = &problem->walk;
    bool plain = walk->segments == 1 && walk->row_extent[1] == 1 && walk->row_extent[2] == 1 && walk->row_extent[3] == 1;
    return plain && walk->columns <= (problem->rows < caps->lanes ? SHORT_ALWAYS : SHORT_ROW);
}

/* Columns of a short row that are moved at once. */
static int window_of(const struct capabilities *caps, const struct norm_problem *problem)
{
    int window = 1, most = (int)size_min((size_t)problem->walk.columns, caps->lanes);
    while (window * 2 <= most)
        window *= 2;
    return window;
}

/* Loops of a work-item with that many rows, at the most. */
static double iterations(const struct capabilities *caps, const struct norm_problem *problem, size_t rows)
{
    double columns = (double)problem->walk.columns;
    if (is_short(caps, problem)) /* each by itself at the worst */
        return (double)rows * (columns * (2 * caps->lanes + 8) + 2 * caps->lanes + 16);
    double each = problem->unit_columns ? columns / caps->lanes : 4.0 * (columns + caps->lanes);
    return (double)rows * ((double)problem->walk.segments * (3.2 * each + 64) + 64);
}

/* Rows of a work-group: no more than there are, nor than the device lets an item loop over. */
static size_t rows_of(const struct capabilities *caps, const struct norm_problem *problem, size_t elements)
{
    size_t rows = size_max(1, size_min(problem->rows, elements / size_max(1, problem->elements)));
    while (rows > 1 && !capabilities_allow_loops(caps, iterations(caps, problem, rows)))
        rows /= 2;
    return rows;
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
    struct norm_plan *plan = (struct norm_plan *)base;
    size_t elements = GROUP_ELEMENTS;
    struct strbuf options = {0};
    tuning_parameter(&base->tuning, "elements", group_elements, &elements);
    norm_defines(&plan->problem, &options);
    define_int(&options, "LANES", base->context->device.caps.lanes);
    plan->rows_per_group = rows_of(&base->context->device.caps, &plan->problem, elements);
    if (is_short(&base->context->device.caps, &plan->problem)) {
        define_int(&options, "MOST", SHORT_ROW);
        define_int(&options, "WINDOW", window_of(&base->context->device.caps, &plan->problem));
        plan->longest_row = SHORT_ALWAYS; /* compared on rows for all lanes, of a window and some columns */
        return norm_add_kernel(plan, "norm_cpu_short.cl", "norm_cpu_short", &options, one);
    }
    define_int(&options, "UNIT_STRIDE", plan->problem.unit_columns);
    plan->longest_row = SIZE_MAX;
    return norm_add_kernel(plan, "norm_cpu.cl", "norm_cpu", &options, one);
}

const struct solver norm_cpu_solver = {.name = "cpu", .refuse = refuse, .prepare = prepare};
