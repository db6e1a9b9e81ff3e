/* Attention in float64 on CPU devices, with queries across vector lanes. */
#include "base/size.h"
#include "ops/attention/cpu/cpu.h"
#include "ops/common/arrays.h"
#include "program/defines.h"

#define STEP 6      /* keys, or output columns, of a register tile */
#define KEY_TILE 48 /* keys for each rescaling */

static const int32_t vectors[] = {1, 2, -1};

/* A vector of doubles is as wide as one of floats.  A work-item has two of them, unless one has lanes enough for all rows or
 * two would be too large. */
static struct cpu_geometry geometry_of(const struct capabilities *caps, const struct attention_problem *problem,
                                       struct tuning *tuning)
{
    struct cpu_geometry g = {.lanes = size_max(2, caps->lanes / 2), .heads = 1, .key_tile = KEY_TILE};
    g.grouped = cpu_grouped(problem, 2 * g.lanes, tuning);
    const size_t pair_bytes = 2 * g.lanes * (problem->d_k + problem->d_v) * sizeof(double);
    size_t count = cpu_rows(problem, g.grouped) > g.lanes && pair_bytes <= LARGE_BYTES ? 2 : 1;
    tuning_parameter(tuning, "vectors", vectors, &count);
    g.rows = count * g.lanes;
    return g;
}

/* A row takes the memory of two rows of floats. */
static const char *refuse_size(const struct capabilities *caps, const struct cpu_geometry *g,
                               const struct attention_problem *problem)
{
    struct cpu_geometry floats = *g;
    floats.rows *= 2;
    floats.lanes *= 2;
    const char *reason = cpu_refuse_block(&floats, problem);
    return reason ? reason : cpu_refuse_loops(caps, g, problem, (double)(problem->d_k + problem->d_v) / STEP);
}

const char *cpu_double_refuse(const struct offer *offer)
{
    const struct attention_problem *problem = offer->problem;
    if (problem->desc.scoring.kind != CLATTN_SCORE_DOT)
        return "scores are no dot products";
    const struct cpu_geometry g = geometry_of(offer->caps, problem, NULL);
    const char *reason = attention_refuse(offer->caps, problem);
    reason = reason ? reason : refuse_size(offer->caps, &g, problem);
    return reason ? reason : refuse_all_but_cpu(offer);
}

clattn_status cpu_double_prepare(struct attention_plan *plan)
{
    static const size_t one[3] = {1, 1, 1};
    const struct capabilities *caps = &plan->base.context->device.caps;
    const struct cpu_geometry g = geometry_of(caps, &plan->problem, &plan->base.tuning);
    const char *reason = refuse_size(caps, &g, &plan->problem);
    struct strbuf options = {0};
    if (reason)
        return report_error(&plan->base.context->device.report, CLATTN_ERROR_UNSUPPORTED, "%s", reason);
    attention_begin_geometry(plan);
    cpu_plan(plan, &g, cpu_work_groups(caps, 1), 0.1);
    attention_defines(&plan->problem, caps, &options);
    define_int(&options, "DOUBLES", (long long)g.lanes);
    define_int(&options, "QUERY_VECTORS", (long long)(g.rows / g.lanes));
    define_int(&options, "KEY_TILE", KEY_TILE);
    define_int(&options, "STEP", STEP);
    define_int(&options, "GROUPED", g.grouped);
    return attention_add_kernel(plan, "attention/cpu/double.cl", "attention_cpu_double", &options, one);
}
