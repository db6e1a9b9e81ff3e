/* The launches of attention's backward direction: first the rows, which fill the workspace, then what reads it. */
#include <string.h>

#include "base/size.h"
#include "base/try.h"
#include "ops/attention/backward/backward.h"
#include "ops/common/arrays.h"

_Static_assert(sizeof(attention_args) + BACKWARD_ROWS_POINTERS * 8 <= 1024, "too many arguments");

#define PARTS 4 /* of the workspace, whose fifth has d_k columns (cl/attention/backward/core.h) */

static size_t state_bytes(const struct attention_problem *problem)
{
    return problem->is_double ? sizeof(double) : sizeof(float);
}

bool backward_workspace(const struct attention_backward_plan *plan, const struct attention_problem *problem,
                        size_t *bytes)
{
    const size_t width = PARTS + (problem->gradient[GRADIENT_VECTOR] ? problem->d_k : 0);
    const size_t length = problem->packed_queries ? problem->desc.query.extent[2] : problem->query_length;
    size_t rows, sums = 0;
    if (!size_mul(problem->heads, length, &rows) ||
        !size_mul(rows, problem->packed_queries ? 1 : problem->batch, &rows) || !size_mul(rows, width, &rows))
        return false;
    if (plan->lanes) {
        const size_t sizes = round_up(problem->d_k, plan->lanes) + round_up(problem->d_v, plan->lanes);
        if (!size_mul(problem->batch, problem->kv_heads, &sums) || !size_mul(sums, plan->splits, &sums) ||
            !size_mul(sums, problem->key_length, &sums) || !size_mul(sums, sizes, &sums))
            return false;
    }
    return size_add(rows, sums, bytes) && size_mul(*bytes, state_bytes(problem), bytes);
}

/* (batch, heads, rows) of the workspace, of which packed queries have one batch. */
static array4 workspace_rows(const struct attention_problem *problem, const struct chain *chain,
                             const attention_args *a)
{
    const int64_t rows = problem->packed_queries ? (int64_t)problem->desc.query.extent[2] : a->query_length;
    return (array4){chain->workspace.offset / (int64_t)state_bytes(problem),
                    problem->packed_queries ? 0 : rows * a->heads, rows, 1, 0};
}

/* The strides of a gradient, which is packed where its array is. */
static array4 gradient_of(const struct attention_problem *problem, const clattn_attention_args *args,
                          enum attention_gradient gradient, bool is_packed)
{
    array4 array = array4_of(attention_gradient_layout(&problem->desc, gradient),
                             attention_gradient_binding(args, gradient)->offset);
    if (is_packed)
        array.batch = 0;
    return array;
}

static const clattn_binding *bound(const struct attention_problem *problem, const clattn_attention_args *args,
                                   enum attention_gradient gradient)
{
    return problem->gradient[gradient] ? attention_gradient_binding(args, gradient) : NULL;
}

/* One enqueue on its way. */
struct backward_call {
    const struct attention_backward_plan *plan;
    const struct attention_problem *problem;
    const clattn_attention_args *args;
    struct chain *chain;
    attention_args whole;
    bool is_empty; /* there are no query rows: inputs may be unbound, and are not read */
    size_t launches;
};

/* An input, or the array that the kernel writes in place of one that it does not read: no argument stays what it was before. */
static const clattn_binding *input(const struct backward_call *call, const clattn_binding *given,
                                   const clattn_binding *written)
{
    return call->is_empty ? written : given;
}

static void add_inputs(const struct backward_call *call, const clattn_binding *written, const clattn_binding **bindings)
{
    attention_input_bindings(call->problem, call->args, bindings);
    for (int i = 0; i < ATTENTION_INPUTS && call->is_empty; i++)
        if (bindings[i] && !(i < ATTENTION_INPUT_ARRAYS && attention_is_length(i)))
            bindings[i] = written;
}

/* The kernels' first three arrays, then the optional inputs, the log-sum-exp, the gradient of the output and the workspace. */
static void add_all(const struct backward_call *call, const clattn_binding *written, const clattn_binding **bindings)
{
    const clattn_attention_args *args = call->args;
    bindings[0] = input(call, &args->query, written);
    bindings[1] = input(call, &args->key, written);
    bindings[2] = input(call, &args->value, written);
    add_inputs(call, written, &bindings[3]);
    bindings[3 + ATTENTION_INPUTS] = input(call, &args->outputs.lse, written);
    bindings[3 + ATTENTION_INPUTS + 1] = input(call, &args->gradients.output, written);
    bindings[3 + ATTENTION_INPUTS + 2] = input(call, &call->chain->workspace, written);
}

static clattn_status launch(struct backward_call *call, int kernel, const clattn_binding *const *bindings,
                            attention_args *a, const size_t groups[3])
{
    call->launches--;
    return chain_launch(call->chain, &call->plan->base, call->plan->kernel[kernel], bindings, a, groups,
                        !call->launches);
}

static clattn_status launch_rows(struct backward_call *call)
{
    const struct attention_problem *problem = call->problem;
    const clattn_attention_args *args = call->args;
    const clattn_binding *bindings[BACKWARD_ROWS_POINTERS] = {
        &args->query,
        &args->key,
        &args->value,
        [3 + ATTENTION_INPUTS] = &args->output,
        &args->outputs.lse,
        &args->gradients.output,
        bound(problem, args, GRADIENT_LSE),
        bound(problem, args, GRADIENT_QUERY),
        &call->chain->workspace,
    };
    attention_args a = call->whole;
    size_t groups[3];
    a.splits = (int)call->plan->splits;
    call->plan->groups(call->plan, problem, BACKWARD_ROWS, &a, groups);
    attention_input_bindings(problem, args, &bindings[3]);
    if (problem->gradient[GRADIENT_QUERY])
        a.key_scale = gradient_of(problem, args, GRADIENT_QUERY, problem->packed_queries);
    return launch(call, BACKWARD_ROWS, bindings, &a, groups);
}

static clattn_status launch_keys(struct backward_call *call)
{
    const struct attention_problem *problem = call->problem;
    const clattn_attention_args *args = call->args;
    const clattn_binding *bindings[BACKWARD_KEYS_POINTERS] = {
        [3 + ATTENTION_INPUTS + 3] = bound(problem, args, GRADIENT_KEY),
        bound(problem, args, GRADIENT_VALUE),
    };
    attention_args a = call->whole;
    size_t groups[3];
    a.splits = (int)call->plan->splits;
    call->plan->groups(call->plan, problem, BACKWARD_KEYS, &a, groups);
    add_all(call, problem->gradient[GRADIENT_KEY] ? &args->gradients.key : &args->gradients.value, bindings);
    if (problem->gradient[GRADIENT_KEY])
        a.key_scale = gradient_of(problem, args, GRADIENT_KEY, problem->packed_keys);
    if (problem->gradient[GRADIENT_VALUE])
        a.output = gradient_of(problem, args, GRADIENT_VALUE, problem->packed_keys);
    return launch(call, BACKWARD_KEYS, bindings, &a, groups);
}

/* Without heads there is nothing to add up, and the kernel runs for the zeros alone. */
static void go_round(const struct attention_problem *problem, attention_args *a)
{
    a->batch = problem->heads ? a->batch : 0;
    a->heads = (int)size_max(problem->heads, 1);
}

/* A broadcast extent stays 1; the others are what the enqueue reaches. */
static clattn_status launch_pairs(struct backward_call *call, enum attention_gradient gradient)
{
    const struct attention_problem *problem = call->problem;
    const clattn_attention_args *args = call->args;
    const size_t *extent = gradient == GRADIENT_MASK ? problem->mask_extent : problem->bias_extent;
    const clattn_binding *bindings[BACKWARD_PAIRS_POINTERS] = {
        [BACKWARD_PAIRS_POINTERS - 1] = attention_gradient_binding(args, gradient),
    };
    attention_args a = call->whole;
    size_t whole[4];
    int64_t stride[4];
    mask_align(attention_gradient_layout(&problem->desc, gradient), 4, whole, stride);
    a.output = (array4){attention_gradient_binding(args, gradient)->offset, stride[0], stride[1], stride[2], stride[3]};
    a.items = extent[0] == 1 ? 1 : a.batch;
    a.splits = extent[1] == 1 ? 1 : a.heads;
    a.block_table.row = extent[2] == 1 ? 1 : a.query_length;
    a.block_table.col = extent[3] == 1 ? 1 : (args_long)size_min(extent[3], args->key_length);
    go_round(problem, &a);
    const size_t items = call->plan->base.kernels[call->plan->kernel[BACKWARD_PAIRS]].local[0];
    const size_t groups[3] = {divide_up((size_t)a.block_table.col, items), (size_t)a.block_table.row,
                              (size_t)a.items * (size_t)a.splits};
    add_all(call, bindings[BACKWARD_PAIRS_POINTERS - 1], bindings);
    return launch(call, BACKWARD_PAIRS, bindings, &a, groups);
}

/* Sums `columns` numbers of each row of a part up for the items and heads of the gradient's layout. */
static clattn_status launch_sum(struct backward_call *call, enum attention_gradient gradient, int part, size_t columns)
{
    const struct attention_problem *problem = call->problem;
    const clattn_layout *layout = attention_gradient_layout(&problem->desc, gradient);
    const clattn_binding *binding = attention_gradient_binding(call->args, gradient);
    const clattn_binding *bindings[BACKWARD_SUM_POINTERS] = {
        [ATTENTION_INPUTS] = input(call, &call->chain->workspace, binding), binding};
    attention_args a = call->whole;
    a.output = (array4){.offset = binding->offset};
    a.items = 1;
    a.splits = (int)problem->heads;
    if (gradient == GRADIENT_VECTOR) { /* (heads or 1, d_k) */
        a.splits = (int)layout->extent[0];
        a.output.head = layout->stride[0];
        a.output.col = layout->stride[1];
    } else { /* (heads), or (batch or 1, heads) */
        a.output.head = layout->stride[layout->rank - 1];
        a.output.batch = layout->rank == 2 ? layout->stride[0] : 0;
        a.items = layout->rank == 2 && layout->extent[0] != 1 ? a.batch : 1;
    }
    a.block_table.row = part * a.block_table.offset;
    a.block_table.col = (args_long)columns;
    go_round(problem, &a);
    const size_t groups[3] = {columns, (size_t)a.splits, (size_t)a.items};
    add_inputs(call, binding, bindings);
    return launch(call, BACKWARD_SUM, bindings, &a, groups);
}

/* What is launched if the plan asks for it, and some of it is there. */
static bool runs(const struct backward_call *call, enum attention_gradient gradient)
{
    const attention_args *a = &call->whole;
    const struct attention_problem *problem = call->problem;
    if (!problem->gradient[gradient])
        return false;
    switch (gradient) {
    case GRADIENT_KEY:
    case GRADIENT_VALUE: return a->batch && a->heads && a->key_length;
    case GRADIENT_MASK:
    case GRADIENT_BIAS: {
        const size_t *extent = gradient == GRADIENT_MASK ? problem->mask_extent : problem->bias_extent;
        return (extent[0] == 1 || a->batch) && (extent[1] == 1 || a->heads) && (extent[2] == 1 || a->query_length) &&
               (extent[3] == 1 || a->key_length);
    }
    case GRADIENT_VECTOR: return problem->desc.scoring.vector.extent[0] != 0;
    case GRADIENT_ALIBI:
        return a->heads &&
               (problem->desc.scoring.alibi.rank == 1 || problem->desc.scoring.alibi.extent[0] == 1 || a->batch);
    case GRADIENT_SINKS: return a->heads != 0;
    default: return false;
    }
}

clattn_status backward_launch(const struct attention_backward_plan *plan, const struct attention_problem *problem,
                              struct chain *chain, const clattn_attention_args *args)
{
    clattn_status status = CLATTN_SUCCESS;
    struct backward_call call = {
        .plan = plan, .problem = problem, .args = args, .chain = chain, .is_empty = attention_is_empty(problem, args)};
    attention_fill_args(problem, args, &call.whole);
    call.whole.scores = gradient_of(problem, args, GRADIENT_OUTPUT, problem->packed_queries);
    if (problem->gradient[GRADIENT_LSE]) {
        const clattn_layout *layout = &problem->desc.gradients.lse;
        call.whole.entropy = (array4){args->gradients.lse.offset, problem->packed_queries ? 0 : layout->stride[0],
                                      layout->stride[1], layout->stride[2], 0};
    }
    call.whole.value_scale = workspace_rows(problem, chain, &call.whole);
    call.whole.block_table.offset = (args_long)backward_rows(problem, args->batch, args->query_length);
    chain->work = 2.5 * attention_work(problem, args);

    const bool has_keys = runs(&call, GRADIENT_KEY) || runs(&call, GRADIENT_VALUE);
    call.launches = !call.is_empty + (size_t)has_keys;
    for (int i = GRADIENT_MASK; i < ATTENTION_GRADIENTS; i++)
        call.launches += runs(&call, i);
    if (!call.launches)
        return chain_mark(chain);
    if (!call.is_empty)
        TRY(launch_rows(&call));
    if (has_keys)
        TRY(launch_keys(&call));
    for (int i = GRADIENT_MASK; i <= GRADIENT_BIAS; i++)
        if (runs(&call, i))
            TRY(launch_pairs(&call, i));
    if (runs(&call, GRADIENT_VECTOR))
        TRY(launch_sum(&call, GRADIENT_VECTOR, PARTS, problem->d_k));
    if (runs(&call, GRADIENT_ALIBI))
        TRY(launch_sum(&call, GRADIENT_ALIBI, 3, 1));
    if (runs(&call, GRADIENT_SINKS))
        TRY(launch_sum(&call, GRADIENT_SINKS, 2, 1));
fail:
    return status;
}
