/* The gradients of neighbourhood attention, by one solver: planning and enqueueing of the backward direction. */
#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/neighbourhood/neighbourhood.h"
#include "program/defines.h"

#define ROW_BYTES (3 * sizeof(float)) /* of the workspace, for a query */

/* The kernels; a plan has those whose results it needs, in this order. */
enum { ROWS, QUERIES, KEYS, BIAS, KERNELS };
static const char *const names[KERNELS] = {"neighbourhood_backward_rows", "neighbourhood_backward_queries",
                                           "neighbourhood_backward_keys", "neighbourhood_backward_bias"};

/* How many buffers each has: query, key, value, bias, the output's gradient and the workspace, then what it writes. */
static const size_t buffers[KERNELS] = {6, 7, 8, 7};

static bool writes(const struct neighbourhood_problem *problem, int kernel)
{
    const clattn_neighbourhood_desc *desc = &problem->desc;
    switch (kernel) {
    case QUERIES: return !layout_is_none(&desc->gradients.query);
    case KEYS: return !layout_is_none(&desc->gradients.key) || !layout_is_none(&desc->gradients.value);
    case BIAS: return !layout_is_none(&desc->gradients.bias);
    default: return true;
    }
}

/* Columns of a work-item.  Each chunk computes the scores anew, so they are many on a CPU, and few where an item has few registers. */
static size_t chunk_of(const struct capabilities *caps, const struct neighbourhood_problem *problem)
{
    const bool wide = capabilities_on_cpu(caps) && !(caps->quirks & QUIRK_LOOPS_STOP);
    const bool narrow = caps->registers && caps->registers < 256;
    return size_min(size_max(problem->d_k, problem->d_v), wide ? 64 : narrow ? 8 : 16);
}

static const char *refuse(const struct offer *offer)
{
    const struct neighbourhood_problem *problem = offer->problem;
    const double chunk = (double)chunk_of(offer->caps, problem), heads = (double)problem->heads;
    const double keys = (double)neighbourhood_keys(problem, 0) * (double)neighbourhood_keys(problem, 1);
    /* Shifted windows that have one key are at most half as many again as the keys of a window, in each dimension. */
    const double shared = writes(problem, BIAS) && problem->bias_batch == 1 ? heads * (double)problem->batch : heads;
    const double pairs = keys * (problem->desc.edge == CLATTN_EDGE_CLIP ? 1 : 2.25);
    return refuse_loops(
        offer->caps,
        pairs * size_max(1, (size_t)shared) * ((double)(problem->d_k + problem->d_v) / 2 + 2 * chunk + 6) + 6 * chunk);
}

static clattn_status groups_of(const struct neighbourhood_plan *plan, const struct neighbourhood_problem *problem,
                               int kernel, const size_t local[3], const clattn_neighbourhood_args *args,
                               size_t groups[3])
{
    const size_t d_k = problem->d_k, d_v = problem->d_v;
    const size_t columns = kernel == QUERIES ? d_k : kernel == KEYS ? size_max(d_k, d_v) : 0;
    const size_t planes = kernel == KEYS   ? args->batch * problem->kv_heads
                          : kernel == BIAS ? size_min(problem->bias_batch, args->batch) * problem->bias_heads
                                           : args->batch * problem->heads;
    const bool of_keys = kernel == KEYS || kernel == BIAS;
    groups[0] = divide_up(of_keys ? args->key_width : args->query_width, local[0]);
    groups[1] = divide_up(of_keys ? args->key_height : args->query_height, local[1]);
    if (size_mul(planes, columns ? divide_up(columns, plan->chunk) : 1, &groups[2]))
        return CLATTN_SUCCESS;
    return report_error(&plan->base.context->device.report, CLATTN_ERROR_OVERFLOW, "too many work-groups");
}

static clattn_status workspace(const struct neighbourhood_plan *plan, const struct neighbourhood_problem *problem,
                               size_t *bytes)
{
    size_t rows;
    if (!size_mul(problem->batch * problem->heads, problem->query_height, &rows) ||
        !size_mul(rows, problem->query_width, &rows) || !size_mul(size_max(rows, 1), ROW_BYTES, bytes) ||
        *bytes > INT64_MAX / 2)
        return report_error(&plan->base.context->device.report, CLATTN_ERROR_OVERFLOW,
                            "neighbourhood: the workspace overflows");
    return CLATTN_SUCCESS;
}

static clattn_status prepare(clattn_plan *base)
{
    clattn_status status;
    struct neighbourhood_plan *plan = (struct neighbourhood_plan *)base;
    const struct neighbourhood_problem *problem = &plan->problem;
    const clattn_neighbourhood_desc *desc = &problem->desc;
    const struct capabilities *caps = &base->context->device.caps;
    const size_t local[3] = {capabilities_on_cpu(caps) ? 1 : size_min(32, caps->info.max_work_item[0]), 1, 1};
    const clattn_neighbourhood_args largest = {.batch = problem->batch,
                                               .query_height = problem->query_height,
                                               .query_width = problem->query_width,
                                               .key_height = problem->height,
                                               .key_width = problem->width};
    plan->chunk = chunk_of(caps, problem);
    plan->workspace = workspace;
    TRY(workspace(plan, problem, &base->workspace));
    for (int i = ROWS; i < KERNELS; i++) {
        struct strbuf options = {0};
        size_t groups[3];
        if (!writes(problem, i))
            continue;
        TRY(groups_of(plan, problem, i, local, &largest, groups));
        neighbourhood_defines(problem, &options);
        define_token(&options, "QUERY_GRADIENT_TYPE", storage_token(desc->gradients.query.dtype));
        define_token(&options, "KEY_GRADIENT_TYPE", storage_token(desc->gradients.key.dtype));
        define_token(&options, "VALUE_GRADIENT_TYPE", storage_token(desc->gradients.value.dtype));
        define_int(&options, "KEY_GRADIENT", !layout_is_none(&desc->gradients.key));
        define_int(&options, "VALUE_GRADIENT", !layout_is_none(&desc->gradients.value));
        define_int(&options, "CHUNK", (long long)plan->chunk);
        TRY(plan_add_kernel(base, "neighbourhood/backward_generic.cl", &options, names[i], buffers[i],
                            sizeof(neighbourhood_backward_args), local, groups));
    }
fail:
    return status;
}

static const clattn_binding *present(const clattn_layout *layout, const clattn_binding *binding)
{
    return layout_is_none(layout) ? NULL : binding;
}

/* Fills what a kernel's buffers are bound to, and more, which it does not have. */
static void bind(const struct neighbourhood_problem *problem, int kernel, const clattn_neighbourhood_args *args,
                 const clattn_binding *rows, const clattn_binding *bindings[8])
{
    const clattn_neighbourhood_desc *desc = &problem->desc;
    bindings[0] = &args->query;
    bindings[1] = &args->key;
    bindings[2] = &args->value;
    bindings[3] = present(&desc->bias, &args->bias);
    bindings[4] = &args->gradients.output;
    bindings[5] = rows;
    bindings[6] = kernel == QUERIES ? &args->gradients.query
                  : kernel == KEYS  ? present(&desc->gradients.key, &args->gradients.key)
                                    : &args->gradients.bias;
    bindings[7] = present(&desc->gradients.value, &args->gradients.value);
}

static clattn_status launch(const struct neighbourhood_plan *plan, const struct neighbourhood_problem *problem,
                            struct chain *chain, const clattn_neighbourhood_args *args)
{
    clattn_status status = CLATTN_SUCCESS;
    const clattn_neighbourhood_desc *desc = &problem->desc;
    neighbourhood_backward_args a = {
        .query_gradient = neighbourhood_map(&desc->gradients.query, args->gradients.query.offset),
        .key_gradient = neighbourhood_map(&desc->gradients.key, args->gradients.key.offset),
        .value_gradient = neighbourhood_map(&desc->gradients.value, args->gradients.value.offset),
        .bias_gradient = neighbourhood_map(&desc->gradients.bias, args->gradients.bias.offset),
        .rows_offset = chain->workspace.offset / (int64_t)sizeof(float),
        .kv_heads = (int)problem->kv_heads,
    };
    size_t groups[KERNELS][3] = {{0}}, index = 0;
    int last = -1;
    neighbourhood_fill_args(problem, args, &a.forward);
    for (int i = ROWS; i < KERNELS; i++)
        if (writes(problem, i)) {
            TRY(groups_of(plan, problem, i, plan->base.kernels[index++].local, args, groups[i]));
            last = groups[i][0] && groups[i][1] && groups[i][2] ? i : last;
        }
    if (last < 0)
        return chain_mark(chain);
    index = 0;
    for (int i = ROWS; i <= last; i++) {
        const clattn_binding *bindings[8];
        if (!writes(problem, i))
            continue;
        bind(problem, i, args, &chain->workspace, bindings);
        if (groups[i][0] && groups[i][1] && groups[i][2])
            TRY(chain_launch(chain, &plan->base, index, bindings, &a, groups[i], i == last));
        index++;
    }
fail:
    return status;
}

static clattn_status enqueue(const clattn_plan *handle, const struct enqueue_call *call, const void *given)
{
    clattn_status status;
    const struct neighbourhood_plan *plan = (const struct neighbourhood_plan *)handle;
    const struct neighbourhood_problem *problem = call->problem;
    clattn_neighbourhood_args args;
    struct chain chain;
    TRY(neighbourhood_args_read(handle->context, problem, given, &args));
    if (!args.batch)
        return plan_enqueue_nothing(handle, call);
    status = chain_begin(&chain, handle->context, call, &args.workspace);
    chain.work = 3 * neighbourhood_work(problem, &args);
    if (status == CLATTN_SUCCESS)
        status = launch(plan, problem, &chain, &args);
    return chain_end(&chain, status);
fail:
    return status;
}

static const struct layout_place layouts[] = {
    LAYOUT_PLACE(neighbourhood, query),
    LAYOUT_PLACE(neighbourhood, key),
    LAYOUT_PLACE(neighbourhood, value),
    LAYOUT_PLACE(neighbourhood, bias),
    LAYOUT_PLACE(neighbourhood, gradients.output),
    LAYOUT_PLACE(neighbourhood, gradients.query),
    LAYOUT_PLACE(neighbourhood, gradients.key),
    LAYOUT_PLACE(neighbourhood, gradients.value),
    LAYOUT_PLACE(neighbourhood, gradients.bias),
    {NULL, 0},
};

static const struct solver generic_solver = {.name = "generic", .refuse = refuse, .prepare = prepare};
static const struct solver *const solvers[] = {&generic_solver};

const struct operator_type neighbourhood_backward_operator = {
    .name = "neighbourhood backward",
    .bytes = OPERATOR_BYTES(neighbourhood),
    .read = neighbourhood_problem_read,
    .enqueue = enqueue,
    .layouts = layouts,
    .solvers = solvers,
    .solver_count = COUNT_OF(solvers),
    .check = neighbourhood_backward_self_check,
};
