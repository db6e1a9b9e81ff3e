/* Attention on CPU devices: queries across vector lanes, one work-item a work-group. */
#include "ops/attention.h"
#include "program/defines.h"

#define MAX_SIZE 256

static const char *refuse(const clattn_context *context, const void *data, bool forced)
{
    const struct attention_problem *problem = data;
    if (problem->d_k > MAX_SIZE || problem->d_v > MAX_SIZE)
        return "a head size is above 256";
    if (!forced && !capabilities_on_cpu(&context->device.caps))
        return "the device is no CPU";
    return NULL;
}

/* How many vectors of queries an item takes: as many as there are queries for, at most four, and only so many
 * that every compute unit has two items. */
static size_t query_vectors(const clattn_context *context, const struct attention_problem *problem)
{
    size_t lanes = context->device.caps.lanes, vectors = 4;
    size_t rows = problem->batch * problem->heads,
           wanted = 2 * (size_t)context->device.caps.info.compute_units;
    if (context->device.caps.quirks & (QUIRK_SLOW_COMPILER | QUIRK_SIMULATOR))
        return 1;
    while (vectors > 1 &&
           (problem->query_length <= lanes * vectors / 2 ||
            rows * ((problem->query_length + lanes * vectors - 1) / (lanes * vectors)) < wanted))
        vectors /= 2;
    return vectors;
}

static clattn_status prepare(clattn_plan *base)
{
    static const size_t one[3] = {1, 1, 1};
    struct attention_plan *plan = (struct attention_plan *)base;
    const struct attention_problem *problem = &plan->problem;
    const clattn_context *context = base->context;
    size_t vectors = query_vectors(context, problem);
    struct strbuf options = {0};
    attention_defines(problem, &options);
    define_int(&options, "LANES", context->device.caps.lanes);
    define_int(&options, "QUERY_VECTORS", (long long)vectors);
    define_int(&options, "KEY_TILE", problem->d_k <= 64 && problem->d_v <= 64 ? 96 : 48);
    define_int(&options, "UNIT_STRIDE",
               problem->desc.key.stride[3] == 1 && problem->desc.value.stride[3] == 1);
    plan->queries_per_group = vectors * context->device.caps.lanes;
    plan->groups = attention_groups_by_queries;
    return attention_add_kernel(plan, "attention_cpu.cl", "attention_cpu", &options, one);
}

const struct solver attention_cpu_solver = {"cpu", refuse, prepare};
