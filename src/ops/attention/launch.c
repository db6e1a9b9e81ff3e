/* An attention plan's kernels, and their launches: slices, split keys and their merge, the scores. */
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
    groups[0] = divide_up((size_t)kernel_args->launch_queries, plan->queries_per_group);
    groups[1] = (size_t)kernel_args->launch_heads;
    groups[2] = (size_t)kernel_args->batch;
}

void attention_groups_by_key_heads(const struct attention_plan *plan, const attention_args *kernel_args,
                                   size_t groups[3])
{
    size_t group = plan->problem.heads / plan->problem.kv_heads;
    size_t first = (size_t)kernel_args->first_head / group;
    size_t end = divide_up((size_t)kernel_args->first_head + (size_t)kernel_args->launch_heads, group);
    groups[0] = divide_up((size_t)kernel_args->launch_queries * group, plan->rows_per_group);
    groups[1] = end - first;
    groups[2] = (size_t)kernel_args->batch;
}

/* ---- split keys ---- */

#define SPLIT_KEYS 512 /* keys of a split at least: fewer are not worth a merge */
#define SPLITS_MOST 64

size_t attention_group_count(const struct attention_plan *plan)
{
    const attention_args whole = {.batch = (int)plan->problem.batch,
                                  .launch_heads = (int)plan->problem.heads,
                                  .launch_queries = (int)plan->problem.query_length};
    size_t groups[3];
    if (!whole.batch || !whole.launch_heads || !whole.launch_queries)
        return 0;
    plan->groups(plan, &whole, groups);
    return groups[0] * groups[1] * groups[2];
}

size_t attention_splits(const struct attention_problem *problem, size_t groups, size_t wanted)
{
    const clattn_attention_desc *desc = &problem->desc;
    if (problem->has[ATTENTION_ENTROPY] || problem->packed_queries || problem->is_double || desc->launch.max_ms ||
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

/* The largest launch, and how many launches of the first kernel an enqueue has at the most. */
static void note_launches(struct attention_plan *plan)
{
    const struct attention_problem *problem = &plan->problem;
    attention_args whole = {0}, first;
    size_t groups[3], position = 0, batch = problem->batch * plan->splits;
    struct attention_slices slices = attention_slice(plan, problem, batch, problem->query_length, problem->key_length);
    whole.batch = (int)batch;
    whole.launch_heads = (int)problem->heads;
    whole.launch_queries = (int)problem->query_length;
    plan->base.launches = 1;
    if (!slices.batch || !slices.heads || !slices.queries)
        return;
    plan->base.launches = attention_slice_count(&slices, &whole);
    attention_next_slice(&slices, &whole, &position, &first);
    plan->groups(plan, &first, groups);
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
    size_t launches = plan->base.launches, sliced = plan->splits > 1 ? 1 : launches;
    clattn_status status =
        attention_scores_add_kernel(&plan->base, problem, &problem->desc.outputs.scores,
                                    problem->desc.outputs.scores_mode, false, plan->by_lanes, &plan->scores_tile);
    plan->base.launches = launches + sliced;
    return status;
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
    note_launches(plan);
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

/* One enqueue's launches of the attention kernel or of the scores', the last of all of them marked. */
static clattn_status launch(const struct attention_plan *plan, bool scores, struct chain *chain,
                            const clattn_binding *const *bindings, const attention_args *whole,
                            const struct attention_slices *slices, bool last)
{
    clattn_status status = CLATTN_SUCCESS;
    const struct plan_kernel *kernel = &plan->base.kernels[scores ? plan->base.kernel_count - 1 : 0];
    size_t position = 0, count = attention_slice_count(slices, whole), groups[3];
    attention_args part;
    while (attention_next_slice(slices, whole, &position, &part)) {
        if (scores)
            attention_scores_groups(&plan->scores_tile, &part, false, groups);
        else
            plan->groups(plan, &part, groups);
        TRY(chain_launch(chain, kernel, bindings, &part, groups, last && position == count));
    }
fail:
    return status;
}

/* What the merge is told, of the launch of the partials; its output and lse are the caller's. */
static merge_args merge_of(const struct attention_problem *problem, const attention_args *split, const array4 *output,
                           const array4 *lse)
{
    return (merge_args){
        .partial = split->output,
        .partial_lse = split->lse,
        .part = split->output.batch * split->items,
        .part_lse = split->lse.batch * split->items,
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
    const struct attention_slices slices =
        attention_slice(plan, problem, (size_t)split.batch, args->query_length, args->key_length);
    TRY(launch(plan, false, chain, bindings, &split, &slices, false));

    const merge_args merge = merge_of(problem, &split, &whole->output, &whole->lse);
    const clattn_binding *merged[MERGE_ARRAYS] = {
        &chain->workspace, &chain->workspace,           attention_binding_or_null(problem, args, ATTENTION_SINKS),
        &args->output,     lse_of(plan, problem, args),
    };
    merge_groups(&plan->base.kernels[1], &chain->context->device.caps, &merge, groups);
    TRY(chain_launch(chain, &plan->base.kernels[1], merged, &merge, groups, last));
fail:
    return status;
}

static clattn_status launch_whole(const struct attention_plan *plan, const struct attention_problem *problem,
                                  struct chain *chain, const clattn_attention_args *args, const attention_args *whole,
                                  bool last)
{
    const clattn_binding *bindings[ATTENTION_POINTERS] = {
        &args->query,
        &args->key,
        &args->value,
        [3 + ATTENTION_INPUTS] = &args->output,
        lse_of(plan, problem, args),
        attention_binding_or_null(problem, args, ATTENTION_ENTROPY),
    };
    const struct attention_slices slices =
        attention_slice(plan, problem, args->batch, args->query_length, args->key_length);
    attention_input_bindings(problem, args, &bindings[3]);
    return launch(plan, false, chain, bindings, whole, &slices, last);
}

static clattn_status launch_scores(const struct attention_plan *plan, const struct attention_problem *problem,
                                   struct chain *chain, const clattn_attention_args *args, const attention_args *whole)
{
    const clattn_binding *bindings[ATTENTION_SCORES_POINTERS] = {
        &args->query, &args->key, [2 + ATTENTION_INPUTS] = lse_of(plan, problem, args), &args->outputs.scores};
    const struct attention_slices slices =
        attention_slice(plan, problem, args->batch, args->query_length, args->key_length);
    attention_input_bindings(problem, args, &bindings[2]);
    return launch(plan, true, chain, bindings, whole, &slices, true);
}

clattn_status attention_launch(const struct attention_plan *plan, const struct attention_problem *problem,
                               struct chain *chain, clattn_attention_args *args)
{
    clattn_status status;
    const bool has_scores = problem->has[ATTENTION_SCORES] && args->key_length;
    const struct places places = places_of(plan, problem, chain, args);
    attention_args whole;
    attention_fill_args(problem, args, &whole);
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
