/* An attention plan's kernels, and their launches: split keys and their merge, the scores. */
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/try.h"
#include "ops/attention/launch.h"
#include "ops/attention/scores.h"
#include "ops/merge/merge.h"
#include "program/defines.h"

void attention_groups_by_queries(const struct attention_plan *plan, const attention_args *kernel_args, size_t groups[3])
{
    groups[0] = divide_up((size_t)kernel_args->query_length, plan->queries_per_group);
    groups[1] = (size_t)kernel_args->heads;
    groups[2] = (size_t)kernel_args->batch;
}

void attention_groups_by_key_heads(const struct attention_plan *plan, const attention_args *kernel_args,
                                   size_t groups[3])
{
    size_t group = (size_t)kernel_args->group;
    groups[0] = divide_up((size_t)kernel_args->query_length * group, plan->rows_per_group);
    groups[1] = (size_t)kernel_args->heads / group;
    groups[2] = (size_t)kernel_args->batch;
}

/* ---- split keys ---- */

#define SPLIT_KEYS 512 /* keys of a split at least: fewer are not worth a merge */
#define SPLITS_MOST 64

size_t attention_group_count(const struct attention_plan *plan)
{
    const attention_args whole = {.batch = (int)plan->problem.batch,
                                  .heads = (int)plan->problem.heads,
                                  .group = (int)(plan->problem.heads / size_max(plan->problem.kv_heads, 1)),
                                  .query_length = (int)plan->problem.query_length};
    size_t groups[3];
    if (!whole.batch || !whole.heads || !whole.query_length)
        return 0;
    plan->groups(plan, &whole, groups);
    return groups[0] * groups[1] * groups[2];
}

size_t attention_splits(const struct attention_problem *problem, size_t groups, size_t wanted)
{
    const clattn_attention_desc *desc = &problem->desc;
    if (problem->has[ATTENTION_ENTROPY] || problem->packed_queries || problem->is_double ||
        desc->window.explicit_left || !groups || groups >= wanted)
        return 1;
    return size_max(1, size_min(size_min(divide_up(wanted, groups), problem->key_length / SPLIT_KEYS), SPLITS_MOST));
}

/* Floats that the workspace holds: the partials, their log-sum-exps, and the one that nobody but the scores asked
 * for. */
bool attention_workspace(const struct attention_plan *plan, const struct attention_problem *problem, size_t *bytes)
{
    size_t parts = plan->splits > 1 ? plan->splits : 0, rows, width;
    return size_mul(problem->batch, problem->heads, &rows) && size_mul(rows, problem->query_length, &rows) &&
           size_mul(parts, problem->d_v + 1, &width) && size_add(width, plan->lends_lse, &width) &&
           size_mul(rows, width, bytes) && size_mul(*bytes, sizeof(float), bytes);
}

/* Where in the workspace what lies, in floats. */
struct places {
    int64_t partial, partial_lse, lse;
};

static struct places places_of(const struct attention_plan *plan, const struct attention_problem *problem,
                               const struct chain *chain, const clattn_attention_args *args)
{
    size_t rows = args->batch * problem->heads * args->query_length, parts = plan->splits > 1 ? plan->splits : 0;
    struct places places = {.partial = chain->workspace.offset / (int64_t)sizeof(float)};
    places.partial_lse = places.partial + (int64_t)(rows * parts * problem->d_v);
    places.lse = places.partial_lse + (int64_t)(rows * parts);
    return places;
}

/* (batch, heads, S_q, width) in the workspace. */
static array4 placed(const attention_args *whole, int64_t at, size_t width)
{
    int64_t row = (int64_t)width, head = row * whole->query_length;
    return (array4){at, head * whole->heads, head, row, 1};
}

/* ---- the kernels ---- */

/* Records the largest launch. */
static void note_launch(struct attention_plan *plan)
{
    const struct attention_problem *problem = &plan->problem;
    const attention_args whole = {.batch = (int)(problem->batch * plan->splits),
                                  .heads = (int)problem->heads,
                                  .group = (int)(problem->heads / size_max(problem->kv_heads, 1)),
                                  .query_length = (int)problem->query_length};
    size_t groups[3];
    if (!whole.batch || !whole.heads || !whole.query_length)
        return;
    plan->groups(plan, &whole, groups);
    plan_kernel_largest(&plan->base.kernels[0], groups);
}

static clattn_status add_merge(struct attention_plan *plan, bool has_lse)
{
    const struct attention_problem *problem = &plan->problem;
    return merge_add_kernel(&plan->base, problem->desc.output.dtype, problem->has[ATTENTION_SINKS], has_lse,
                            problem->batch * problem->heads * problem->query_length, problem->d_v);
}

static clattn_status add_scores(struct attention_plan *plan)
{
    const struct attention_problem *problem = &plan->problem;
    return attention_scores_add_kernel(&plan->base, problem, &problem->desc.outputs.scores,
                                       problem->desc.outputs.scores_mode, false, plan->by_lanes, &plan->scores_tile);
}

clattn_status attention_add_kernel(struct attention_plan *plan, const char *file, const char *name,
                                   struct strbuf *options, const size_t local[3])
{
    clattn_status status;
    const struct attention_problem *problem = &plan->problem;
    bool has_lse = problem->has[ATTENTION_LSE], is_split = plan->splits > 1;
    plan->splits = size_max(1, plan->splits);
    plan->lends_lse = !has_lse && problem->has[ATTENTION_SCORES] &&
                      problem->desc.outputs.scores_mode == CLATTN_SCORES_MODE_PROBABILITIES;
    has_lse = has_lse || plan->lends_lse;
    define_int(options, "LSE", has_lse || is_split);
    if (is_split)
        define_int(options, "SPLIT", 1);
    TRY(plan_add_kernel(&plan->base, file, options, name, ATTENTION_POINTERS, sizeof(attention_args), local, NULL));
    plan->base.launches = 1;
    note_launch(plan);
    if (is_split)
        TRY(add_merge(plan, has_lse));
    if (problem->has[ATTENTION_SCORES])
        TRY(add_scores(plan));
    if (!attention_workspace(plan, problem, &plan->base.workspace))
        status = report_error(&plan->base.context->device.report, CLATTN_ERROR_OVERFLOW, "a workspace overflows");
fail:
    strbuf_clear(options);
    return status;
}

/* ---- launches ---- */

/* What the merge is told, of the launch of the partials; its output and lse are the caller's. */
static merge_args merge_of(const struct attention_problem *problem, const attention_args *split, const array4 *output,
                           const array4 *lse)
{
    return (merge_args){
        .partial = split->output,
        .partial_lse = split->lse,
        .step = split->output.batch * split->items,
        .step_lse = split->lse.batch * split->items,
        .output = *output,
        .lse = *lse,
        .sinks_offset = split->sinks.offset,
        .sinks_stride = split->sinks.stride,
        .batch = split->items,
        .heads = split->heads,
        .queries = split->query_length,
        .partials = split->splits,
        .columns = (int)problem->d_v,
    };
}

/* Where the rows' log-sum-exp goes: to the caller, into the workspace for the scores, or NULL. */
static const clattn_binding *lse_of(const struct attention_plan *plan, const struct attention_problem *problem,
                                    const clattn_attention_args *args)
{
    return problem->has[ATTENTION_LSE] || plan->lends_lse ? &args->outputs.lse : NULL;
}

/* The partials of all parts, then their merge. */
static clattn_status launch_split(const struct attention_plan *plan, const struct attention_problem *problem,
                                  struct chain *chain, const clattn_attention_args *args, const struct places *places,
                                  const attention_args *whole, bool last)
{
    clattn_status status;
    const clattn_binding *bindings[ATTENTION_POINTERS] = {
        &args->query, &args->key, &args->value, [3 + ATTENTION_INPUTS] = &chain->workspace, &chain->workspace};
    size_t groups[3];
    attention_args split = *whole;
    attention_input_bindings(problem, args, &bindings[3]);
    split.output = placed(whole, places->partial, problem->d_v);
    split.lse = placed(whole, places->partial_lse, 1);
    split.items = whole->batch;
    split.splits = (int)plan->splits;
    split.batch = split.items * split.splits;
    plan->groups(plan, &split, groups);
    TRY(chain_launch(chain, &plan->base, 0, bindings, &split, groups, false));

    merge_args merge = merge_of(problem, &split, &whole->output, &whole->lse);
    const clattn_binding *merged[MERGE_ARRAYS] = {
        &chain->workspace, &chain->workspace,           attention_binding_or_null(problem, args, ATTENTION_SINKS),
        &args->output,     lse_of(plan, problem, args),
    };
    merge_groups(&plan->base.kernels[1], &chain->context->device.caps, &merge, groups);
    TRY(chain_launch(chain, &plan->base, 1, merged, &merge, groups, last));
fail:
    return status;
}

static clattn_status launch_whole(const struct attention_plan *plan, const struct attention_problem *problem,
                                  struct chain *chain, const clattn_attention_args *args, attention_args *whole,
                                  bool last)
{
    size_t groups[3];
    const clattn_binding *bindings[ATTENTION_POINTERS] = {
        &args->query,
        &args->key,
        &args->value,
        [3 + ATTENTION_INPUTS] = &args->output,
        lse_of(plan, problem, args),
        attention_binding_or_null(problem, args, ATTENTION_ENTROPY),
    };
    attention_input_bindings(problem, args, &bindings[3]);
    plan->groups(plan, whole, groups);
    return chain_launch(chain, &plan->base, 0, bindings, whole, groups, last);
}

static clattn_status launch_scores(const struct attention_plan *plan, const struct attention_problem *problem,
                                   struct chain *chain, const clattn_attention_args *args, attention_args *whole)
{
    size_t groups[3];
    const clattn_binding *bindings[ATTENTION_SCORES_POINTERS] = {
        &args->query, &args->key, [2 + ATTENTION_INPUTS] = lse_of(plan, problem, args), &args->outputs.scores};
    attention_input_bindings(problem, args, &bindings[2]);
    attention_scores_groups(&plan->scores_tile, whole, false, groups);
    return chain_launch(chain, &plan->base, plan->base.kernel_count - 1, bindings, whole, groups, true);
}

clattn_status attention_launch(const struct attention_plan *plan, const struct attention_problem *problem,
                               struct chain *chain, clattn_attention_args *args)
{
    clattn_status status;
    const bool has_scores = problem->has[ATTENTION_SCORES] && args->key_length;
    const struct places places = places_of(plan, problem, chain, args);
    attention_args whole;
    attention_fill_args(problem, args, &whole);
    chain->work = attention_work(problem, args);
    if (plan->lends_lse) {
        args->outputs.lse = chain->workspace;
        whole.lse = placed(&whole, places.lse, 1);
    }
    TRY(plan->splits > 1 ? launch_split(plan, problem, chain, args, &places, &whole, !has_scores)
                         : launch_whole(plan, problem, chain, args, &whole, !has_scores));
    if (has_scores)
        TRY(launch_scores(plan, problem, chain, args, &whole));
fail:
    return status;
}
