/* The normalisation operator: planning and enqueueing. */
#include "ops/norm/norm.h"

#include <string.h>

#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/common/simple_operator.h"
#include "plan/operator.h"
#include "program/defines.h"

#define ARRAYS 8 /* of the kernels */

/* Whether one index tells rows apart, and each is one segment. */
static bool is_plain(const norm_args *walk)
{
    return walk->segments == 1 && walk->row_extent[1] == 1 && walk->row_extent[2] == 1 && walk->row_extent[3] == 1;
}

static struct rows rows_of(const void *data)
{
    const struct norm_problem *problem = data;
    const norm_args *walk = &problem->walk;
    const int last = walk->row_extent[1] > 1; /* norm/cpu_short.cl has lanes along this dimension */
    const bool few_indices = walk->segments == 1 && walk->row_extent[2] == 1 && walk->row_extent[3] == 1;
    const bool side_by_side = few_indices && walk->x.stride[last] == 1 && walk->y.stride[last] == 1;
    const size_t abreast = side_by_side ? (size_t)walk->row_extent[last] : 0;
    return (struct rows){.count = problem->rows,
                         .elements = problem->elements,
                         .segments = (size_t)problem->walk.segments,
                         .gathered = 4,
                         .unit_columns = problem->unit_columns,
                         .plain = is_plain(walk),
                         .abreast = abreast};
}

static void define(const clattn_plan *plan, enum row_solver solver, struct strbuf *options)
{
    const struct norm_problem *problem = operator_problem(plan);
    const clattn_norm_desc *desc = &problem->desc;
    define_token(options, "X_TYPE", storage_token(desc->x.dtype));
    define_token(options, "Y_TYPE", storage_token(desc->y.dtype));
    define_token(options, "SCALE_TYPE", storage_token(desc->scale.dtype));
    define_token(options, "BIAS_TYPE", storage_token(desc->bias.dtype));
    if (problem->has_residual) {
        define_int(options, "NORM_RESIDUAL", 1);
        define_token(options, "RESIDUAL_TYPE", storage_token(desc->residual.dtype));
        define_token(options, "SUM_TYPE", storage_token(desc->sum.dtype));
    }
    if (solver == ROW_CPU)
        define_int(options, "PREFETCHES", capabilities_prefetch(&plan->context->device.caps));
    if (solver == ROW_TILE) {
        define_int(options, "UNIT_STRIDE", problem->unit_columns);
        define_int(options, "PLAIN", is_plain(&problem->walk));
    }
}

static const struct row_operator row_operator = {
    .rows = rows_of,
    .define = define,
    .kernels = {[ROW_CPU] = {"norm/cpu.cl", "norm_cpu"},
                [ROW_CPU_SHORT] = {"norm/cpu_short.cl", "norm_cpu_short"},
                [ROW_TILE] = {"norm/tile.cl", "norm_tile"},
                [ROW_GENERIC] = {"norm/generic.cl", "norm_generic"}},
    .arrays = ARRAYS,
    .args_bytes = sizeof(norm_args),
    .least_items = 32, /* fewer leave some of a GPU's narrowest unit idle */
    .keep_step = 4,
};

/* ---- an enqueue ---- */

/* What the kernel is told of a call with these args; nothing to do unless it has rows. */
static void fill_args(const struct norm_problem *problem, const clattn_norm_args *args, norm_args *a)
{
    const clattn_norm_desc *desc = &problem->desc;
    *a = problem->walk;
    if (!problem->rows || !args->batch)
        return;
    a->x.offset = args->x.offset;
    a->y.offset = args->y.offset;
    a->scale.offset = args->scale.offset;
    a->bias.offset = args->bias.offset;
    a->mean.offset = args->mean.offset;
    a->inverse.offset = args->inv_std_dev.offset;
    a->residual.offset = args->residual.offset;
    a->sum.offset = args->sum.offset;
    if (desc->axes < desc->x.rank) /* other dimensions may have been joined to the first one */
        a->row_extent[0] = a->row_extent[0] / (int)desc->x.extent[0] * (int)args->batch;
    a->rows = 1;
    for (int i = 0; i < NORM_DIMENSIONS; i++)
        a->rows *= a->row_extent[i];
}

static clattn_status enqueue(const clattn_plan *plan, const struct enqueue_call *call, const void *given)
{
    clattn_status status;
    const struct norm_problem *problem = call->problem;
    const clattn_norm_desc *desc = &problem->desc;
    struct report *report = &plan->context->device.report;
    clattn_norm_args args;
    norm_args kernel_args;
    TRY(args_read(report, "clattn_norm_args", &args, sizeof args, offsetof(clattn_norm_args, residual), given));
    TRY(args_check(report, "explicit_batch", args.explicit_batch, args.reserved));
    if (args.explicit_batch && desc->axes == desc->x.rank)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "explicit_batch, and all axes are normalised");
    TRY(args_length(report, "batch", args.explicit_batch, &args.batch, desc->x.extent[0]));
    TRY(binding_absent(plan->context, &args.gradients.x, "gradients.x"));
    TRY(binding_absent(plan->context, &args.gradients.y, "gradients.y"));
    TRY(binding_absent(plan->context, &args.gradients.sum, "gradients.sum"));
    TRY(binding_absent(plan->context, &args.gradients.scale, "gradients.scale"));
    TRY(binding_absent(plan->context, &args.gradients.bias, "gradients.bias"));
    fill_args(problem, &args, &kernel_args);
    struct bound_array arrays[ARRAYS] = {
        {&args.x, &desc->x, NULL, BINDING_READ | BINDING_IN_PLACE, "x", true},
        {&args.scale, &desc->scale, NULL, BINDING_READ, "scale", kernel_args.has_scale},
        {&args.bias, &desc->bias, NULL, BINDING_READ, "bias", kernel_args.has_bias},
        {&args.residual, &desc->residual, NULL, BINDING_READ | BINDING_IN_PLACE, "residual", problem->has_residual},
        {&args.y, &desc->y, NULL, BINDING_WRITE | BINDING_IN_PLACE, "y", true},
        {&args.sum, &desc->sum, NULL, BINDING_WRITE | BINDING_IN_PLACE, "sum", kernel_args.has_sum},
        {&args.mean, &desc->mean, NULL, BINDING_WRITE, "mean", kernel_args.has_mean},
        {&args.inv_std_dev, &desc->inv_std_dev, NULL, BINDING_WRITE, "inv_std_dev", kernel_args.has_inverse},
    };
    size_t extent[ARRAYS][CLATTN_MAX_RANK];
    for (size_t i = 0; i < ARRAYS; i++) {
        memcpy(extent[i], arrays[i].layout->extent, sizeof extent[i]);
        if (desc->axes < desc->x.rank && extent[i][0] != 1)
            extent[i][0] = args.batch;
        arrays[i].extent = extent[i];
    }
    const size_t groups[3] = {row_groups(plan, (size_t)kernel_args.rows), 1, 1};
    const double elements = (double)kernel_args.rows * (double)problem->elements;
    status = simple_enqueue(plan, call, arrays, ARRAYS, elements, &kernel_args, groups);
fail:
    return status;
}

static void shape_bucket(const void *data, struct strbuf *text)
{
    const struct norm_problem *problem = data;
    const clattn_norm_desc *desc = &problem->desc;
    strbuf_printf(text, "%s-r%zu-c%zu-%s-%s-%s", desc->kind == CLATTN_NORM_KIND_LAYER ? "layer" : "rms",
                  bucket_length(problem->rows), bucket_length(problem->elements), clattn_dtype_name(desc->x.dtype),
                  clattn_dtype_name(desc->y.dtype), problem->unit_columns ? "unit" : "strided");
    strbuf_printf(text, "-f%d%d%d%d", problem->walk.has_scale != 0, problem->walk.has_bias != 0,
                  problem->walk.has_mean != 0, problem->walk.has_inverse != 0);
    if (problem->has_residual)
        strbuf_printf(text, "-residual.%s", clattn_dtype_name(desc->residual.dtype));
    if (problem->walk.has_sum)
        strbuf_printf(text, "-sum.%s", clattn_dtype_name(desc->sum.dtype));
}

static const struct layout_place layouts[] = {
    LAYOUT_PLACE(norm, x),        LAYOUT_PLACE(norm, y),    LAYOUT_PLACE(norm, scale),
    LAYOUT_PLACE(norm, bias),     LAYOUT_PLACE(norm, mean), LAYOUT_PLACE(norm, inv_std_dev),
    LAYOUT_PLACE(norm, residual), LAYOUT_PLACE(norm, sum),  {NULL, 0},
};

static const struct operator_type norm_operator = {
    .name = "norm",
    .bytes = OPERATOR_BYTES(norm),
    .read = norm_problem_read,
    .enqueue = enqueue,
    .layouts = layouts,
    .solvers = row_solvers,
    .solver_count = ROW_SOLVER_COUNT,
    .family = &row_operator,
    .backward = &norm_backward_operator,
    .check = norm_self_check,
    .shape_bucket = shape_bucket,
};

OPERATOR_CALLS(norm, clattn_norm_desc_init, clattn_norm_args_init, clattn_norm_supports, clattn_norm_plan_create,
               clattn_norm_enqueue, clattn_norm_prewarm, clattn_norm_run)
