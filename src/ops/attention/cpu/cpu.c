#include "ops/attention/cpu/cpu.h"

#include "base/size.h"
#include "ops/common/arrays.h"
#include "program/defines.h"

#define BLOCK_BYTES 393216           /* of a work-item's rows, at the most, */
#define SMALLEST_BLOCK_BYTES 1048576 /* unless they are as few as they can be */

bool cpu_grouped(const struct attention_problem *problem, size_t block, struct tuning *tuning)
{
    bool grouped = problem->heads > problem->kv_heads && problem->query_length < 8 * block;
    if (problem->heads > problem->kv_heads)
        tuning_flag(tuning, "grouped", &grouped);
    return grouped;
}

size_t cpu_rows(const struct attention_problem *problem, bool grouped)
{
    return problem->query_length * (grouped ? problem->heads / problem->kv_heads : 1);
}

size_t cpu_work_groups(const struct capabilities *caps, size_t heads)
{
    return (heads > 1 ? 8 : 2) * (size_t)caps->info.compute_units;
}

const char *cpu_refuse(const struct attention_problem *problem)
{
    if (problem->is_double)
        return "the type is float64";
    return NULL;
}

const char *cpu_refuse_bf16_products(const struct attention_problem *problem)
{
    const clattn_attention_desc *desc = &problem->desc;
    if (desc->scoring.kind != CLATTN_SCORE_DOT)
        return "scores are no dot products";
    if (desc->key.stride[3] != 1 || desc->value.stride[3] != 1)
        return "the elements of a key or of a value are not neighbours";
    return NULL;
}

const char *cpu_refuse_block(const struct cpu_geometry *g, const struct attention_problem *problem)
{
    size_t sizes = problem->d_k + problem->d_v + g->key_tile;
    size_t most = g->rows <= g->lanes && g->heads == 1 ? SMALLEST_BLOCK_BYTES : BLOCK_BYTES;
    return g->rows * g->heads * sizes * sizeof(float) > most ? "a block takes too much memory" : NULL;
}

const char *cpu_refuse_loops(const struct capabilities *caps, const struct cpu_geometry *g,
                             const struct attention_problem *problem, double per_key)
{
    const clattn_attention_desc *desc = &problem->desc;
    double sizes = (double)(problem->d_k + problem->d_v), lanes = (double)g->lanes, rows = (double)g->rows;
    double key = sizes / lanes + 10 + per_key; /* iterations, nothing unrolled except register tiles */
    if (desc->scoring.kind == CLATTN_SCORE_ADDITIVE)
        key += (double)problem->d_k;
    if (attention_has_snippet(problem))
        key += rows;
    if (problem->has[ATTENTION_MASK])
        key += rows;
    if (desc->dropout.probability > 0)
        key += 12;
    return refuse_loops(
        caps, (double)g->heads * ((double)problem->key_length * key + 8 * sizes * rows / lanes + 4 * rows + 8 * sizes));
}

static void grouped_blocks(const struct attention_plan *plan, const attention_args *a, size_t groups[3])
{
    attention_groups_by_key_heads(plan, a, groups);
    groups[1] = divide_up(groups[1], plan->heads_per_group);
}

static void single_blocks(const struct attention_plan *plan, const attention_args *a, size_t groups[3])
{
    attention_groups_by_queries(plan, a, groups);
    groups[1] = divide_up(groups[1], plan->heads_per_group);
}

#define FEW_KEYS 32

const char *cpu_refuse_few_keys(const struct offer *offer)
{
    const struct attention_problem *problem = offer->problem;
    return !offer->forced && problem->key_length <= FEW_KEYS ? "the weights of few keys are not rounded" : NULL;
}

void cpu_plan(struct attention_plan *plan, const struct cpu_geometry *g, size_t wanted, double usual)
{
    const struct attention_problem *problem = &plan->problem;
    plan->rows_per_group = plan->queries_per_group = g->rows;
    plan->heads_per_group = g->heads;
    plan->key_tile = g->key_tile;
    plan->by_lanes = true;
    plan->groups = g->grouped ? grouped_blocks : single_blocks;
    if (g->grouped)
        plan->queries_per_group = size_max(1, g->rows / (problem->heads / problem->kv_heads));
    plan->base.efficiency = problem->desc.scoring.kind == CLATTN_SCORE_ADDITIVE    ? 0.02
                            : attention_has_snippet(problem)                       ? 0.05
                            : problem->desc.dropout.probability > 0 && usual > 0.2 ? 0.2
                                                                                   : usual;
    plan->splits = attention_splits(problem, attention_group_count(plan), wanted);
}

void cpu_defines(const struct attention_plan *plan, const struct cpu_geometry *g, struct strbuf *options)
{
    const clattn_attention_desc *desc = &plan->problem.desc;
    define_int(options, "KEY_TILE", (long long)g->key_tile);
    define_int(options, "GROUPED", g->grouped);
    define_int(options, "UNIT_STRIDE", desc->key.stride[3] == 1 && desc->value.stride[3] == 1);
}
