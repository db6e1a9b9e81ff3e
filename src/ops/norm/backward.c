/* The gradients of normalisation: planning and enqueueing. */
#include <string.h>

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/norm/norm.h"
#include "plan/enqueue.h"
#include "plan/operator.h"
#include "program/defines.h"

#define ARRAYS 7 /* of the rows' kernels */

/* ---- the plan ---- */

static struct rows rows_of(const void *data)
{
    const struct norm_backward_problem *problem = data;
    return (struct rows){.count = problem->rows,
                         .elements = problem->elements,
                         .segments = (size_t)problem->walk.segments,
                         .gathered = 8,
                         .unit_columns = problem->unit_columns,
                         .plain = false}; /* no kernel has rows across its lanes */
}

static void define_inputs(const struct norm_backward_problem *problem, struct strbuf *options)
{
    const clattn_norm_desc *desc = &problem->desc;
    define_token(options, "X_TYPE", storage_token(desc->x.dtype));
    define_token(options, "DY_TYPE", storage_token(desc->gradients.y.dtype));
    if (problem->has_residual) {
        define_int(options, "NORM_RESIDUAL", 1);
        define_token(options, "RESIDUAL_TYPE", storage_token(desc->residual.dtype));
    }
}

static void define(const clattn_plan *plan, enum row_solver solver, struct strbuf *options)
{
    const struct norm_backward_problem *problem = operator_problem(plan);
    const clattn_norm_desc *desc = &problem->desc;
    (void)solver;
    define_inputs(problem, options);
    define_token(options, "SCALE_TYPE", storage_token(desc->scale.dtype));
    define_token(options, "DSUM_TYPE", storage_token(desc->gradients.sum.dtype));
    define_token(options, "DX_TYPE", storage_token(desc->gradients.x.dtype));
    define_int(options, "SEGMENTED", problem->walk.segments > 1);
}

static bool has_weight(const struct norm_backward_problem *problem, enum norm_weight weight)
{
    return !layout_is_none(norm_weight_gradient(problem, weight));
}

/* The work-groups that sum blocks of terms, and those that add up the blocks. */
static void weight_groups(const struct norm_backward_plan *plan, const norm_weights_args *a, size_t terms[3],
                          size_t sum[3])
{
    const size_t last = (size_t)a->kept_extent[CLATTN_MAX_RANK - 1], outputs = (size_t)a->outputs;
    const size_t chunks = outputs ? outputs / last * divide_up(last, plan->chunk) : 0;
    terms[0] = divide_up(chunks, plan->items);
    terms[1] = (size_t)a->blocks;
    sum[0] = divide_up(outputs, plan->items);
    terms[2] = sum[1] = sum[2] = 1;
}

#define VECTORS 4              /* of norm/weights.cl, if items are wide */
#define WIDE_ITERATIONS 262144 /* more than an item of it loops */

static clattn_status add_more(clattn_plan *base, enum row_solver solver)
{
    clattn_status status = CLATTN_SUCCESS;
    struct norm_backward_plan *plan = (struct norm_backward_plan *)base;
    const struct norm_backward_problem *problem = &plan->problem;
    const struct capabilities *caps = &base->context->device.caps;
    const bool wide = solver == ROW_CPU && capabilities_allow_loops(caps, WIDE_ITERATIONS);
    size_t terms[3] = {1, 1, 1}, sums[NORM_WEIGHTS][3] = {{1, 1, 1}, {1, 1, 1}};
    if (!has_weight(problem, NORM_SCALE) && !has_weight(problem, NORM_BIAS))
        return CLATTN_SUCCESS;
    base->workspace = norm_workspace_bytes(problem);
    plan->chunk = wide ? VECTORS * (size_t)caps->lanes : 1;
    plan->items = capabilities_on_cpu(caps) ? 1 : size_min(64, caps->info.max_work_item[0]);
    for (int i = 0; i < NORM_WEIGHTS; i++) {
        norm_weights_args a;
        size_t groups[3];
        if (!has_weight(problem, i) || !problem->rows)
            continue;
        norm_weights_fill(problem, i, problem->desc.x.extent[0], &a);
        weight_groups(plan, &a, groups, sums[i]);
        for (int n = 0; n < 3; n++)
            terms[n] = size_max(terms[n], groups[n]);
        if (!capabilities_allow_loops(caps, 1.2 * (double)a.blocks))
            return report_error(&base->context->device.report, CLATTN_ERROR_UNSUPPORTED,
                                "norm backward: a gradient has too many terms, and " LOOPS_REASON);
    }
    const size_t local[3] = {plan->items, 1, 1};
    for (int i = NORM_TERMS; i < NORM_KERNELS; i++) {
        const bool is_bias = i == NORM_SUM + NORM_BIAS;
        struct strbuf options = {0};
        define_inputs(problem, &options);
        define_int(&options, "WIDE", wide);
        define_int(&options, "LANES", caps->lanes);
        define_token(&options, "WEIGHT_TYPE",
                     storage_token(norm_weight_gradient(problem, is_bias ? NORM_BIAS : NORM_SCALE)->dtype));
        TRY(plan_add_kernel(base, "norm/weights.cl", &options, i == NORM_TERMS ? "norm_weights" : "norm_weights_sum",
                            i == NORM_TERMS ? 4 : 2, sizeof(norm_weights_args), local,
                            i == NORM_TERMS ? terms : sums[i - NORM_SUM]));
    }
fail:
    return status;
}

static const struct row_operator row_operator = {
    .rows = rows_of,
    .define = define,
    .kernels = {[ROW_CPU] = {"norm/backward_cpu.cl", "norm_backward_cpu"},
                [ROW_TILE] = {"norm/backward_tile.cl", "norm_backward_tile"},
                [ROW_GENERIC] = {"norm/backward_generic.cl", "norm_backward_generic"}},
    .arrays = ARRAYS,
    .args_bytes = sizeof(norm_backward_args),
    .least_items = 32, /* fewer leave some of a GPU's narrowest unit idle */
    .add_more = add_more,
    .keep_step = 32, /* nothing is kept, so programs need not differ */
};

/* ---- an enqueue ---- */

/* What the rows' kernel is told of a call with these args; nothing to do unless it has rows. */
static void fill_args(const struct norm_backward_problem *problem, const clattn_norm_args *args, norm_backward_args *a)
{
    const clattn_norm_desc *desc = &problem->desc;
    *a = problem->walk;
    if (!problem->rows || !args->batch)
        return;
    a->x.offset = args->x.offset;
    a->residual.offset = args->residual.offset;
    a->scale.offset = args->scale.offset;
    a->dy.offset = args->gradients.y.offset;
    a->dsum.offset = args->gradients.sum.offset;
    a->dx.offset = args->gradients.x.offset;
    if (desc->axes < desc->x.rank) /* other dimensions may have been joined to the first one */
        a->row_extent[0] = a->row_extent[0] / (int)desc->x.extent[0] * (int)args->batch;
    a->rows = 1;
    for (int i = 0; i < NORM_DIMENSIONS; i++)
        a->rows *= a->row_extent[i];
}

static clattn_status launch_rows(struct chain *chain, const clattn_plan *plan,
                                 const struct norm_backward_problem *problem, const clattn_norm_args *args,
                                 norm_backward_args *a, bool last)
{
    const size_t groups[3] = {row_groups(plan, (size_t)a->rows), 1, 1};
    const clattn_binding *const bindings[ARRAYS] = {
        &args->x,
        problem->has_residual ? &args->residual : NULL,
        a->has_scale ? &args->scale : NULL,
        &args->gradients.y,
        a->has_dsum ? &args->gradients.sum : NULL,
        a->has_dx ? &args->gradients.x : NULL,
        a->has_statistics ? &chain->workspace : NULL,
    };
    a->statistics = chain->workspace.offset / (int64_t)sizeof(float);
    return chain_launch(chain, plan, NORM_ROWS, bindings, a, groups, last);
}

static clattn_status launch_weight(struct chain *chain, const clattn_plan *base,
                                   const struct norm_backward_problem *problem, const clattn_norm_args *args,
                                   enum norm_weight weight, norm_weights_args *a, bool last)
{
    clattn_status status = CLATTN_SUCCESS;
    const struct norm_backward_plan *plan = (const struct norm_backward_plan *)base;
    const bool of_scale = weight == NORM_SCALE;
    const clattn_binding *gradient = of_scale ? &args->gradients.scale : &args->gradients.bias;
    const clattn_binding *const inputs[4] = {&args->x, problem->has_residual ? &args->residual : NULL,
                                             &args->gradients.y, &chain->workspace};
    const clattn_binding *const sums[2] = {&chain->workspace, gradient};
    size_t terms[3], groups[3];
    weight_groups(plan, a, terms, groups);
    a->x.offset = args->x.offset;
    a->residual.offset = args->residual.offset;
    a->dy.offset = args->gradients.y.offset;
    a->weight.offset = gradient->offset;
    a->statistics.offset = chain->workspace.offset / (int64_t)sizeof(float);
    a->partials = a->statistics.offset + (int64_t)norm_statistics_floats(problem);
    if (a->blocks)
        TRY(chain_launch(chain, base, NORM_TERMS, inputs, a, terms, false));
    TRY(chain_launch(chain, base, NORM_SUM + (size_t)weight, sums, a, groups, last));
fail:
    return status;
}

/* Checks the arrays; those of a row's elements may be unbound if there are no rows. */
static clattn_status check_arrays(const clattn_plan *plan, const struct norm_backward_problem *problem,
                                  const clattn_norm_args *args, bool has_rows)
{
    clattn_status status;
    const clattn_norm_desc *desc = &problem->desc;
    const norm_backward_args *walk = &problem->walk;
    const bool sums = has_weight(problem, NORM_SCALE) || has_weight(problem, NORM_BIAS);
    const unsigned replaced = sums ? BINDING_READ : BINDING_READ | BINDING_IN_PLACE; /* sums read them afterwards */
    struct bound_array arrays[] = {
        {&args->gradients.scale, &desc->gradients.scale, NULL, BINDING_WRITE, "gradients.scale",
         has_weight(problem, NORM_SCALE)},
        {&args->gradients.bias, &desc->gradients.bias, NULL, BINDING_WRITE, "gradients.bias",
         has_weight(problem, NORM_BIAS)},
        {&args->x, &desc->x, NULL, replaced, "x", true},
        {&args->residual, &desc->residual, NULL, replaced, "residual", problem->has_residual},
        {&args->scale, &desc->scale, NULL, BINDING_READ, "scale", walk->has_scale},
        {&args->gradients.y, &desc->gradients.y, NULL, replaced, "gradients.y", true},
        {&args->gradients.sum, &desc->gradients.sum, NULL, BINDING_READ | BINDING_IN_PLACE, "gradients.sum",
         walk->has_dsum},
        {&args->gradients.x, &desc->gradients.x, NULL, BINDING_WRITE | BINDING_IN_PLACE, "gradients.x", walk->has_dx},
        {&args->y, &desc->y, NULL, BINDING_WRITE, "y", false},
        {&args->bias, &desc->bias, NULL, BINDING_READ, "bias", false},
        {&args->mean, &desc->mean, NULL, BINDING_WRITE, "mean", false},
        {&args->inv_std_dev, &desc->inv_std_dev, NULL, BINDING_WRITE, "inv_std_dev", false},
        {&args->sum, &desc->sum, NULL, BINDING_WRITE, "sum", false},
    };
    size_t extent[COUNT_OF(arrays)][CLATTN_MAX_RANK];
    for (size_t i = 0; i < COUNT_OF(arrays); i++) {
        memcpy(extent[i], arrays[i].layout->extent, sizeof extent[i]);
        if (desc->axes < desc->x.rank && extent[i][0] != 1)
            extent[i][0] = args->batch;
        arrays[i].extent = extent[i];
    }
    TRY(bindings_absent(plan->context, arrays, COUNT_OF(arrays)));
    status = bindings_check(plan->context, arrays, has_rows ? COUNT_OF(arrays) : NORM_WEIGHTS);
fail:
    return status;
}

static clattn_status enqueue(const clattn_plan *plan, const struct enqueue_call *call, const void *given)
{
    clattn_status status;
    const struct norm_backward_problem *problem = call->problem;
    const clattn_norm_desc *desc = &problem->desc;
    struct report *report = &plan->context->device.report;
    clattn_norm_args args;
    norm_backward_args rows;
    norm_weights_args weights[NORM_WEIGHTS];
    struct chain chain;
    TRY(args_read(report, "clattn_norm_args", &args, sizeof args, sizeof args, given));
    TRY(args_check(report, "explicit_batch", args.explicit_batch, args.reserved));
    if (args.explicit_batch && desc->axes == desc->x.rank)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "explicit_batch, and all axes are normalised");
    TRY(args_length(report, "batch", args.explicit_batch, &args.batch, desc->x.extent[0]));
    fill_args(problem, &args, &rows);
    int last = rows.rows && (rows.has_dx || rows.has_statistics) ? 0 : -1; /* 0: the rows' kernel; 1 + the weight's */
    for (int i = 0; i < NORM_WEIGHTS; i++) {
        memset(&weights[i], 0, sizeof weights[i]);
        if (has_weight(problem, i))
            norm_weights_fill(problem, i, args.batch, &weights[i]);
        if (weights[i].outputs)
            last = 1 + i;
    }
    TRY(check_arrays(plan, problem, &args, rows.rows != 0));
    if (last < 0)
        return plan_enqueue_nothing(plan, call);
    status = chain_begin(&chain, plan->context, call, &args.workspace);
    chain.work = (double)rows.rows * (double)problem->elements * WORK_OF_ELEMENT;
    if (status == CLATTN_SUCCESS && rows.rows && (rows.has_dx || rows.has_statistics))
        status = launch_rows(&chain, plan, problem, &args, &rows, last == 0);
    for (int i = 0; i < NORM_WEIGHTS && status == CLATTN_SUCCESS; i++)
        if (weights[i].outputs)
            status = launch_weight(&chain, plan, problem, &args, i, &weights[i], last == 1 + i);
    return chain_end(&chain, status);
fail:
    return status;
}

static const struct layout_place layouts[] = {
    LAYOUT_PLACE(norm, x),
    LAYOUT_PLACE(norm, scale),
    LAYOUT_PLACE(norm, residual),
    LAYOUT_PLACE(norm, gradients.y),
    LAYOUT_PLACE(norm, gradients.sum),
    LAYOUT_PLACE(norm, gradients.x),
    LAYOUT_PLACE(norm, gradients.scale),
    LAYOUT_PLACE(norm, gradients.bias),
    {NULL, 0},
};

const struct operator_type norm_backward_operator = {
    .name = "norm backward",
    .bytes = {sizeof(struct norm_backward_plan), offsetof(struct norm_backward_plan, problem),
              sizeof(struct norm_backward_problem), sizeof(clattn_norm_desc), offsetof(clattn_norm_args, control)},
    .read = norm_backward_problem_read,
    .enqueue = enqueue,
    .layouts = layouts,
    .solvers = row_solvers,
    .solver_count = ROW_SOLVER_COUNT,
    .family = &row_operator,
    .check = norm_backward_self_check,
};
