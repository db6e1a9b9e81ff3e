/* Attention on CPU devices: queries across vector lanes, one work-item a work-group. */
#include "base/size.h"
#include "ops/attention.h"
#include "program/defines.h"

#define MAX_SIZE 256

/* `vectors` of queries an item, and `step` keys or output columns of a register tile. */
struct geometry {
    size_t lanes, vectors, step;
};

#define KEY_TILE 96 /* 48 to 192 tie; a multiple of every step */

/* Measured on Zen 4 (docs/performance.md): 4 vectors x 6 for long sequences; for short ones, and where four
 * would leave compute units idle, a single vector, whose register tile is then 8 deep. */
static struct geometry geometry_of(const clattn_context *context, const struct attention_problem *problem)
{
    const struct capabilities *caps = &context->device.caps;
    if (caps->quirks & (QUIRK_SLOW_COMPILER | QUIRK_SIMULATOR))
        return (struct geometry){4, 1, 2};
    struct geometry g = {caps->lanes, caps->lanes == 16 ? 4 : 2, 6};
    size_t blocks = problem->batch * problem->heads * divide_up(problem->query_length, g.lanes * g.vectors);
    if (problem->query_length < 32 * caps->lanes || blocks < 4 * (size_t)caps->info.compute_units) {
        g.vectors = 1;
        g.step = caps->lanes == 16 ? 8 : 6;
    }
    return g;
}

/* At the most; attention_cpu.cl's loops, nothing unrolled but the register tile. */
static double iterations(const struct geometry *g, const struct attention_problem *problem)
{
    double sizes = (double)(problem->d_k + problem->d_v), step = (double)g->step, lanes = (double)g->lanes;
    return (double)problem->key_length * (sizes / step + sizes / lanes + 10) + 8 * sizes * (double)g->vectors;
}

static const char *refuse(const clattn_context *context, const void *data, bool forced)
{
    const struct attention_problem *problem = data;
    if (problem->d_k > MAX_SIZE || problem->d_v > MAX_SIZE)
        return "a head size is above 256";
    struct geometry g = geometry_of(context, problem);
    if (!capabilities_allow_loops(&context->device.caps, iterations(&g, problem)))
        return LOOPS_REASON;
    if (!forced && !capabilities_on_cpu(&context->device.caps))
        return "the device is no CPU";
    return NULL;
}

static clattn_status prepare(clattn_plan *base)
{
    static const size_t one[3] = {1, 1, 1};
    struct attention_plan *plan = (struct attention_plan *)base;
    const struct attention_problem *problem = &plan->problem;
    struct geometry g = geometry_of(base->context, problem);
    struct strbuf options = {0};
    attention_defines(problem, &base->context->device.caps, &options);
    define_int(&options, "LANES", (long long)g.lanes);
    define_int(&options, "QUERY_VECTORS", (long long)g.vectors);
    define_int(&options, "KEY_STEP", (long long)g.step);
    define_int(&options, "COLUMN_STEP", (long long)g.step);
    define_int(&options, "KEY_TILE", KEY_TILE);
    define_int(&options, "UNIT_STRIDE",
               problem->desc.key.stride[3] == 1 && problem->desc.value.stride[3] == 1);
    plan->queries_per_group = g.vectors * g.lanes;
    plan->groups = attention_groups_by_queries;
    return attention_add_kernel(plan, "attention_cpu.cl", "attention_cpu", &options, one);
}

const struct solver attention_cpu_solver = {"cpu", refuse, prepare};
