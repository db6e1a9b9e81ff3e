#include "ops/attention/scores.h"

#include <string.h>

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "ops/attention/cpu/cpu.h"
#include "ops/attention/launch.h"
#include "ops/common/arrays.h"
#include "plan/operator.h"
#include "program/defines.h"

struct weights_plan {
    clattn_plan base;
    struct attention_problem problem;
    clattn_layout weights;
    bool average;
    struct scores_tile tile;
};

/* Its plans are made and enqueued by the functions below. */
static const struct operator_type weights_operator = {
    .name = "attention weights",
    .bytes = {.plan = sizeof(struct weights_plan), .problem_offset = offsetof(struct weights_plan, problem)},
};

static clattn_status read_weights(const clattn_attention_desc *attention, const clattn_layout *weights, bool average,
                                  struct attention_problem *problem, const char **reason)
{
    clattn_status status;
    TRY(attention_problem_read(attention, problem, reason));
    TRY(layout_check(weights, LAYOUT_OUTPUT, LAYOUT_OF("weights"), reason));
    status = CLATTN_ERROR_INVALID_LAYOUT;
    *reason = "the weights are not (batch, heads or 1, S_q, S_k) float32, or there is no log-sum-exp";
    if (problem->has[ATTENTION_LSE] && weights->dtype == CLATTN_DTYPE_F32 && weights->rank == 4 &&
        weights->extent[0] == problem->batch && weights->extent[1] == (average ? 1 : problem->heads) &&
        weights->extent[2] == problem->query_length && weights->extent[3] == problem->key_length)
        status = CLATTN_SUCCESS;
fail:
    return status;
}

clattn_status attention_weights_supports(clattn_context *context, const clattn_attention_desc *attention,
                                         const clattn_layout *weights, bool average, const char **reason)
{
    struct attention_problem problem;
    clattn_status status = read_weights(attention, weights, average, &problem, reason);
    double items = average ? (double)problem.heads : 1;
    if (status == CLATTN_SUCCESS &&
        !capabilities_allow_loops(&context->device.caps, items * ((double)problem.d_k / 2 + 6))) {
        *reason = LOOPS_REASON;
        status = CLATTN_ERROR_UNSUPPORTED;
    }
    return status;
}

/* ---- the kernels ---- */

#define KEYS_PER_ITEM 960 /* a multiple of both tiles */

struct lanes_geometry {
    struct cpu_geometry cpu;
    size_t vectors, step;
};

/* Two vectors of queries (a simulator: one) whatever their number, so that one program serves all. */
static struct lanes_geometry lanes_geometry_of(const struct capabilities *caps, const struct attention_problem *problem)
{
    bool small = caps->quirks & (QUIRK_SLOW_COMPILER | QUIRK_SIMULATOR);
    struct lanes_geometry g = {.cpu = {.lanes = small ? 4 : caps->lanes, .heads = 1},
                               .vectors = small ? 1 : 2,
                               .step = small               ? 2
                                       : caps->lanes == 16 ? 8
                                                           : 6};
    g.cpu.key_tile = problem->d_k > 256 ? 48 : 96;
    if (g.vectors * g.cpu.lanes * problem->d_k * sizeof(float) > LARGE_BYTES)
        g.vectors = 1;
    g.cpu.rows = g.vectors * g.cpu.lanes;
    return g;
}

static clattn_status add_lanes(clattn_plan *plan, const struct attention_problem *problem,
                               const struct lanes_geometry *g, const size_t groups[3], struct strbuf *options)
{
    static const size_t one[3] = {1, 1, 1};
    define_int(options, "LANES", (long long)g->cpu.lanes);
    define_int(options, "QUERY_VECTORS", (long long)g->vectors);
    define_int(options, "KEY_TILE", (long long)g->cpu.key_tile);
    define_int(options, "KEY_STEP", (long long)g->step);
    define_int(options, "KEYS_PER_ITEM", KEYS_PER_ITEM);
    define_int(options, "UNIT_STRIDE", problem->desc.key.stride[3] == 1);
    define_int(options, "PREFETCHES", capabilities_prefetch(&plan->context->device.caps));
    return plan_add_kernel(plan, "attention/cpu/scores.cl", options, "attention_cpu_scores", ATTENTION_SCORES_POINTERS,
                           sizeof(attention_args), one, groups);
}

clattn_status attention_scores_add_kernel(clattn_plan *plan, const struct attention_problem *problem,
                                          const clattn_layout *weights, int32_t mode, bool average, bool by_lanes,
                                          struct scores_tile *tile)
{
    const struct capabilities *caps = &plan->context->device.caps;
    const struct lanes_geometry g = lanes_geometry_of(caps, problem);
    const size_t local[3] = {capabilities_on_cpu(caps) ? 1 : size_min(64, caps->info.max_work_item[0]), 1, 1};
    struct strbuf options = {0};
    by_lanes = by_lanes && !(caps->quirks & QUIRK_SLOW_COMPILER) && !cpu_refuse(problem) &&
               !cpu_refuse_block(&g.cpu, problem) &&
               !cpu_refuse_loops(caps, &g.cpu, problem, (double)problem->d_k / (double)g.step);
    *tile = by_lanes ? (struct scores_tile){g.cpu.rows, KEYS_PER_ITEM} : (struct scores_tile){1, local[0]};
    const size_t groups[3] = {divide_up(problem->key_length, tile->keys),
                              divide_up(problem->query_length, tile->queries), problem->batch * weights->extent[1]};
    attention_defines(problem, caps, &options);
    define_token(&options, "W_TYPE", storage_token(weights->dtype));
    define_int(&options, "SCORES_MODE", mode);
    define_int(&options, "AVERAGE", average);
    if (by_lanes)
        return add_lanes(plan, problem, &g, groups, &options);
    return plan_add_kernel(plan, "attention/scores.cl", &options, "attention_scores", ATTENTION_SCORES_POINTERS,
                           sizeof(attention_args), local, groups);
}

void attention_scores_groups(const struct scores_tile *tile, const attention_args *kernel_args, bool average,
                             size_t groups[3])
{
    groups[0] = divide_up((size_t)kernel_args->key_length, tile->keys);
    groups[1] = divide_up((size_t)kernel_args->query_length, tile->queries);
    groups[2] = (size_t)kernel_args->batch * (average ? 1 : (size_t)kernel_args->heads);
}

/* ---- multi-head attention's weights ---- */

clattn_status attention_weights_plan_create(clattn_context *context, const clattn_attention_desc *attention,
                                            const clattn_layout *weights, bool average, clattn_plan **result)
{
    clattn_status status;
    struct attention_problem problem;
    const char *reason;
    clattn_plan *plan = NULL;
    *result = NULL;
    status = attention_weights_supports(context, attention, weights, average, &reason);
    if (status == CLATTN_SUCCESS)
        status = read_weights(attention, weights, average, &problem, &reason);
    if (status != CLATTN_SUCCESS)
        return report_error(&context->device.report, status, "attention weights: %s", reason);
    TRY(plan_new(context, &weights_operator, &plan));
    struct weights_plan *made = (struct weights_plan *)plan;
    made->problem = problem;
    made->weights = *weights;
    made->average = average;
    TRY(attention_scores_add_kernel(plan, &made->problem, weights, CLATTN_SCORES_MODE_PROBABILITIES, average,
                                    capabilities_on_cpu(&context->device.caps), &made->tile));
    TRY(plan_warm(plan));
    plan_save(plan, false);
    plan->solver = made->tile.queries > 1 ? "cpu" : "generic";
    *result = plan;
    return CLATTN_SUCCESS;
fail:
    clattn_plan_release(&plan);
    return status;
}

clattn_status attention_weights_enqueue(const clattn_plan *handle, const struct enqueue_call *call,
                                        const clattn_attention_args *given, const clattn_binding *weights)
{
    clattn_status status;
    TRY(plan_check(handle, &weights_operator));
    const struct weights_plan *plan = (const struct weights_plan *)handle;
    const struct attention_problem *problem = &plan->problem;
    clattn_attention_args args;
    attention_args kernel_args;
    TRY(attention_args_read(handle->context, problem, given, &args));
    const size_t extent[4] = {args.batch, plan->weights.extent[1], args.query_length, args.key_length};
    TRY(binding_check(handle->context, weights, &plan->weights, extent, BINDING_WRITE, "weights"));
    if (!args.batch || !problem->heads || !args.query_length || !args.key_length)
        return plan_enqueue_nothing(handle, call);

    const clattn_binding *bindings[ATTENTION_SCORES_POINTERS] = {&args.query, &args.key,
                                                                 [2 + ATTENTION_INPUTS] = &args.outputs.lse, weights};
    size_t groups[3];
    attention_input_bindings(problem, &args, &bindings[2]);
    attention_fill_args(problem, &args, &kernel_args);
    kernel_args.scores = array4_of(&plan->weights, weights->offset);
    attention_scores_groups(&plan->tile, &kernel_args, plan->average, groups);
    status = plan_enqueue_kernel(handle, call, attention_work(problem, &args), bindings, &kernel_args, groups);
fail:
    return status;
}
