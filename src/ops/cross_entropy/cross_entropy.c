/* The cross-entropy operator: planning and enqueueing. */
#include "ops/cross_entropy/cross_entropy.h"

#include <math.h>
#include <string.h>

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/common/simple_operator.h"
#include "plan/operator.h"
#include "program/defines.h"

#define ARRAYS 6 /* of the kernels */

static struct rows rows_of(const void *data)
{
    const struct cross_entropy_problem *problem = data;
    return (struct rows){.count = (size_t)problem->kernel.rows,
                         .elements = (size_t)problem->kernel.classes,
                         .segments = 1,
                         .gathered = 1,
                         .unit_columns = problem->unit_columns,
                         .plain = true};
}

static void define(const clattn_plan *plan, enum row_solver solver, struct strbuf *options)
{
    const struct cross_entropy_problem *problem = operator_problem(plan);
    const clattn_cross_entropy_desc *desc = &problem->desc;
    (void)solver;
    define_token(options, "X_TYPE", storage_token(desc->x.dtype));
    define_token(options, "LABEL_TYPE", integer_token(&desc->labels));
    define_token(options, "GRADIENT_TYPE", storage_token(desc->gradients.x.dtype));
    define_int(options, "GRADIENT", !layout_is_none(&desc->gradients.x));
    define_int(options, "LOSS", !layout_is_none(&desc->loss));
    define_int(options, "LSE", !layout_is_none(&desc->lse));
    define_int(options, "WEIGHTS", !layout_is_none(&desc->row_weights));
    define_int(options, "SMOOTHING", desc->smoothing > 0);
}

static const struct row_operator row_operator = {
    .rows = rows_of,
    .define = define,
    .kernels = {[ROW_CPU] = {"cross_entropy/cpu.cl", "cross_entropy_cpu"},
                [ROW_CPU_SHORT] = {"cross_entropy/cpu_short.cl", "cross_entropy_cpu_short"},
                [ROW_TILE] = {"cross_entropy/tile.cl", "cross_entropy_tile"},
                [ROW_GENERIC] = {"cross_entropy/generic.cl", "cross_entropy_generic"}},
    .arrays = ARRAYS,
    .args_bytes = sizeof(cross_entropy_args),
    .least_items = 1,
    .keep_step = 2,
};

/* ---- an enqueue ---- */

/* Joins dimensions that are one in every array, so that as many rows as possible are one stride apart. */
static void join_dimensions(cross_entropy_args *a)
{
    array5 *const arrays[ARRAYS] = {&a->x, &a->gradient, &a->labels, &a->weights, &a->loss, &a->lse};
    int inner = CROSS_ENTROPY_OUTER - 1;
    for (int n = inner - 1; n >= 0; n--) {
        bool joins = true;
        if (a->extent[n] == 1)
            continue;
        for (int i = 0; i < ARRAYS; i++)
            joins = joins && arrays[i]->stride[n] == a->extent[inner] * arrays[i]->stride[inner];
        if (a->extent[inner] == 1) {
            for (int i = 0; i < ARRAYS; i++)
                arrays[i]->stride[inner] = arrays[i]->stride[n];
        } else if (!joins) {
            inner = n;
            continue;
        }
        a->extent[inner] *= a->extent[n];
        a->extent[n] = 1;
    }
}

/* A copy of the caller's args, and what they and the problem tell the kernel. */
static clattn_status read_args(struct report *report, const struct cross_entropy_problem *problem, const void *given,
                               clattn_cross_entropy_args *args, cross_entropy_args *kernel)
{
    clattn_status status;
    TRY(args_read(report, "clattn_cross_entropy_args", args, sizeof *args, sizeof *args, given));
    TRY(args_check(report, "explicit_scale", args->explicit_scale, args->reserved));
    TRY(args_check(report, "explicit_batch", args->explicit_batch, 0));
    TRY(args_length(report, "batch", args->explicit_batch, &args->batch, problem->desc.x.extent[0]));
    if (args->explicit_scale && !isfinite(args->scale))
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "scale is NaN or infinite");
    *kernel = problem->kernel;
    kernel->scale = args->explicit_scale ? args->scale : 1;
    kernel->x.offset = args->x.offset;
    kernel->gradient.offset = args->gradients.x.offset;
    kernel->labels.offset = args->labels.offset;
    kernel->weights.offset = args->row_weights.offset;
    kernel->loss.offset = args->loss.offset;
    kernel->lse.offset = args->lse.offset;
    if (kernel->rows) {
        kernel->rows = kernel->rows / kernel->extent[problem->first] * (args_long)args->batch;
        kernel->extent[problem->first] = (int)args->batch;
    }
    if (kernel->rows)
        join_dimensions(kernel);
fail:
    return status;
}

static clattn_status enqueue(const clattn_plan *plan, const struct enqueue_call *call, const void *given)
{
    clattn_status status;
    const struct cross_entropy_problem *problem = call->problem;
    const clattn_cross_entropy_desc *desc = &problem->desc;
    clattn_cross_entropy_args args;
    cross_entropy_args kernel;
    size_t extent[CLATTN_MAX_RANK];
    TRY(read_args(&plan->context->device.report, problem, given, &args, &kernel));
    memcpy(extent, desc->x.extent, sizeof extent);
    extent[0] = args.batch;
    const struct bound_array arrays[ARRAYS] = {
        {&args.x, &desc->x, extent, BINDING_READ | BINDING_IN_PLACE, "x", true},
        {&args.labels, &desc->labels, extent, BINDING_READ, "labels", true},
        {&args.row_weights, &desc->row_weights, extent, BINDING_READ, "row_weights",
         !layout_is_none(&desc->row_weights)},
        {&args.loss, &desc->loss, extent, BINDING_WRITE, "loss", !layout_is_none(&desc->loss)},
        {&args.lse, &desc->lse, extent, BINDING_WRITE, "lse", !layout_is_none(&desc->lse)},
        {&args.gradients.x, &desc->gradients.x, extent, BINDING_WRITE | BINDING_IN_PLACE, "gradients.x",
         !layout_is_none(&desc->gradients.x)},
    };
    const size_t groups[3] = {row_groups(plan, (size_t)kernel.rows), 1, 1};
    const double elements = (double)kernel.rows * (double)kernel.classes;
    status = simple_enqueue(plan, call, arrays, ARRAYS, elements, &kernel, groups);
fail:
    return status;
}

static void shape_bucket(const void *data, struct strbuf *text)
{
    const struct cross_entropy_problem *problem = data;
    const clattn_cross_entropy_desc *desc = &problem->desc;
    strbuf_printf(text, "r%zu-c%zu-%s-%s", bucket_length((size_t)problem->kernel.rows),
                  bucket_length((size_t)problem->kernel.classes), clattn_dtype_name(desc->x.dtype),
                  problem->unit_columns ? "unit" : "strided");
    if (!layout_is_none(&desc->gradients.x))
        strbuf_printf(text, "-gradient.%s", clattn_dtype_name(desc->gradients.x.dtype));
}

static const struct layout_place layouts[] = {
    LAYOUT_PLACE(cross_entropy, x),
    LAYOUT_PLACE(cross_entropy, labels),
    LAYOUT_PLACE(cross_entropy, row_weights),
    LAYOUT_PLACE(cross_entropy, loss),
    LAYOUT_PLACE(cross_entropy, lse),
    LAYOUT_PLACE(cross_entropy, gradients.x),
    {NULL, 0},
};

static const struct operator_type cross_entropy_operator = {
    .name = "cross_entropy",
    .bytes = OPERATOR_BYTES(cross_entropy),
    .read = cross_entropy_problem_read,
    .enqueue = enqueue,
    .layouts = layouts,
    .solvers = row_solvers,
    .solver_count = ROW_SOLVER_COUNT,
    .family = &row_operator,
    .check = cross_entropy_self_check,
    .shape_bucket = shape_bucket,
};

OPERATOR_CALLS(cross_entropy, clattn_cross_entropy_desc_init, clattn_cross_entropy_args_init,
               clattn_cross_entropy_supports, clattn_cross_entropy_plan_create, clattn_cross_entropy_enqueue,
               clattn_cross_entropy_prewarm, clattn_cross_entropy_run)
