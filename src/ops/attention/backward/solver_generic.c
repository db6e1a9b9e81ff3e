/* Attention's backward direction on every device and for every shape. */
#include <math.h>

#include "base/size.h"
#include "base/try.h"
#include "ops/attention/backward/backward.h"
#include "ops/common/arrays.h"
#include "program/defines.h"

#define FILE_NAME "attention/backward/generic.cl"
#define MOST_COLUMNS 1024 /* of an item on a CPU */

/* Columns of a work-item: all on a CPU, because each chunk computes the weights anew; few where registers are. */
static size_t chunk_of(const struct capabilities *caps, const struct attention_problem *problem)
{
    const bool wide = capabilities_on_cpu(caps) && !(caps->quirks & QUIRK_LOOPS_STOP);
    return size_min(size_max(problem->d_k, problem->d_v), wide ? MOST_COLUMNS : 8);
}

double backward_summed(const struct attention_problem *problem)
{
    const double whole[4] = {(double)problem->batch, (double)problem->heads, (double)problem->query_length,
                             (double)problem->key_length};
    const size_t *const extents[] = {problem->mask_extent, problem->bias_extent};
    double most = backward_sums(problem) ? whole[0] * whole[1] * whole[2] : 0;
    for (int i = 0; i < 2; i++) {
        double pairs = (double)(problem->d_k + problem->d_v) / 2 + 1;
        for (int d = 0; d < 4; d++)
            pairs *= extents[i][d] == 1 ? whole[d] : 1;
        if (problem->gradient[i ? GRADIENT_BIAS : GRADIENT_MASK])
            most = fmax(most, pairs);
    }
    return most;
}

static const char *refuse(const struct offer *offer)
{
    const struct attention_problem *problem = offer->problem;
    const double pair = (double)(problem->d_k + problem->d_v) / 2 + 2 * (double)chunk_of(offer->caps, problem);
    const double group = (double)(problem->heads / size_max(problem->kv_heads, 1));
    const double pairs = (double)size_max(problem->key_length, problem->query_length) * group;
    const char *reason = attention_refuse(offer->caps, problem);
    return reason ? reason : refuse_loops(offer->caps, fmax(pairs * pair, backward_summed(problem)));
}

static void groups(const struct attention_backward_plan *plan, const struct attention_problem *problem, int kernel,
                   const attention_args *a, size_t count[3])
{
    const bool has_columns = problem->gradient[GRADIENT_QUERY] || problem->gradient[GRADIENT_VECTOR];
    if (kernel == BACKWARD_ROWS) {
        count[0] = has_columns ? divide_up(problem->d_k, plan->chunk) : 1;
        count[1] = divide_up((size_t)a->query_length, plan->items);
        count[2] = (size_t)a->batch * (size_t)a->heads;
    } else {
        count[0] = (problem->gradient[GRADIENT_KEY] ? divide_up(problem->d_k, plan->chunk) : 0) +
                   (problem->gradient[GRADIENT_VALUE] ? divide_up(problem->d_v, plan->chunk) : 0);
        count[1] = divide_up((size_t)a->key_length, plan->items);
        count[2] = (size_t)a->batch * problem->kv_heads;
    }
}

static void define(const struct attention_backward_plan *plan, struct strbuf *options)
{
    backward_define(plan, options);
    define_int(options, "CHUNK", (long long)plan->chunk);
}

/* Items of a work-group of the kernels for every device. */
static size_t items_of(const struct attention_backward_plan *plan, int dimension)
{
    const struct capabilities *caps = &plan->base.context->device.caps;
    return capabilities_on_cpu(caps) ? 1 : size_min(32, caps->info.max_work_item[dimension]);
}

static clattn_status add(struct attention_backward_plan *plan, int which, const char *name, size_t items)
{
    const size_t local[3] = {items, 1, 1};
    struct strbuf options = {0};
    define(plan, &options);
    return backward_add_kernel(plan, which, FILE_NAME, name, &options, local);
}

/* Records the largest launches of rows and keys. */
static void note_largest(struct attention_backward_plan *plan)
{
    const struct attention_problem *problem = &plan->problem;
    const attention_args whole = {.batch = (int)problem->batch,
                                  .heads = (int)problem->heads,
                                  .query_length = (int)problem->query_length,
                                  .key_length = (int)problem->key_length};
    for (size_t i = 0; i < plan->base.kernel_count; i++) {
        size_t groups[3];
        plan->groups(plan, problem, i == 0 ? BACKWARD_ROWS : BACKWARD_KEYS, &whole, groups);
        if (groups[0] && groups[1] && groups[2])
            plan_kernel_largest(&plan->base.kernels[i], groups);
    }
}

clattn_status backward_finish(struct attention_backward_plan *plan)
{
    clattn_status status = CLATTN_SUCCESS;
    plan->base.launches = plan->base.kernel_count;
    for (int i = GRADIENT_MASK; i < ATTENTION_GRADIENTS; i++)
        plan->base.launches += plan->problem.gradient[i];
    note_largest(plan);
    if (backward_has_pairs(&plan->problem))
        TRY(add(plan, BACKWARD_PAIRS, "attention_backward_pairs", items_of(plan, 0)));
    if (backward_has_pairs(&plan->problem) && plan->problem.heads && plan->problem.batch)
        plan_kernel_largest(&plan->base.kernels[plan->kernel[BACKWARD_PAIRS]],
                            (const size_t[3]){divide_up(size_max(1, plan->problem.key_length), items_of(plan, 0)),
                                              size_max(1, plan->problem.query_length),
                                              plan->problem.batch * plan->problem.heads});
    if (backward_sums(&plan->problem))
        TRY(add(plan, BACKWARD_SUM, "attention_backward_sum", 1));
    if (!backward_workspace(plan, &plan->problem, &plan->base.workspace))
        status = report_error(&plan->base.context->device.report, CLATTN_ERROR_OVERFLOW, "a workspace overflows");
fail:
    return status;
}

static clattn_status prepare(clattn_plan *base)
{
    clattn_status status;
    struct attention_backward_plan *plan = (struct attention_backward_plan *)base;
    const struct attention_problem *problem = &plan->problem;
    const struct capabilities *caps = &base->context->device.caps;
    plan->chunk = chunk_of(caps, problem);
    plan->items = items_of(plan, 1);
    plan->base.efficiency = 0.01;
    plan->groups = groups;
    plan->splits = 1;
    plan->lanes = 0;
    plan->weight_unit = 0;
    const size_t local[3] = {1, plan->items, 1};
    struct strbuf options = {0};
    define(plan, &options);
    TRY(backward_add_walks(plan, FILE_NAME, "attention_backward_rows", "attention_backward_keys", &options, local));
    status = backward_finish(plan);
fail:
    return status;
}

const struct solver attention_backward_generic_solver = {.name = "generic", .refuse = refuse, .prepare = prepare};
