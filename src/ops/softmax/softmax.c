/* The softmax operator: planning and enqueueing. */
#include "ops/softmax/softmax.h"

#include <string.h>

#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/common/simple_operator.h"
#include "plan/operator.h"
#include "program/defines.h"

#define ARRAYS 3 /* of the kernels */

static struct rows rows_of(const void *data)
{
    const struct softmax_problem *problem = data;
    return (struct rows){.count = softmax_rows(&problem->shape),
                         .elements = problem->shape.columns,
                         .segments = 1,
                         .gathered = 1,
                         .unit_columns = problem->unit_columns,
                         .plain = true};
}

static void define(const clattn_plan *plan, enum row_solver solver, struct strbuf *options)
{
    const struct softmax_problem *problem = operator_problem(plan);
    (void)solver;
    define_token(options, "X_TYPE", storage_token(problem->desc.x.dtype));
    define_token(options, "Y_TYPE", storage_token(problem->desc.y.dtype));
    define_int(options, "MASK", problem->shape.has_mask);
    if (problem->shape.has_mask)
        define_token(options, "MASK_TYPE", storage_token(problem->desc.mask.dtype));
}

static const struct row_operator row_operator = {
    .rows = rows_of,
    .define = define,
    .kernels = {[ROW_CPU] = {"softmax/cpu.cl", "softmax_cpu"},
                [ROW_CPU_SHORT] = {"softmax/cpu_short.cl", "softmax_cpu_short"},
                [ROW_TILE] = {"softmax/tile.cl", "softmax_tile"},
                [ROW_GENERIC] = {"softmax/generic.cl", "softmax_generic"}},
    .arrays = ARRAYS,
    .args_bytes = sizeof(softmax_args),
    .least_items = 1,
    .keep_step = 2,
};

/* ---- an enqueue ---- */

static bool join(array5 *const *arrays, size_t count, int outer, int inner, int64_t extent)
{
    for (size_t i = 0; i < count; i++)
        if (arrays[i]->stride[outer] != extent * arrays[i]->stride[inner])
            return false;
    return true;
}

static void join_dimensions(int extent[SOFTMAX_OUTER], array5 *const *arrays, size_t count)
{
    int inner = SOFTMAX_OUTER - 1;
    for (int n = inner - 1; n >= 0; n--) {
        if (extent[n] == 1)
            continue;
        if (extent[inner] == 1) {
            for (size_t i = 0; i < count; i++)
                arrays[i]->stride[inner] = arrays[i]->stride[n];
        } else if (!join(arrays, count, n, inner, extent[inner])) {
            inner = n;
            continue;
        }
        extent[inner] *= extent[n];
        extent[n] = 1;
    }
}

args_long softmax_call_rows(const struct softmax_call *call, const struct softmax_shape *shape,
                            int extent[SOFTMAX_OUTER], array5 *const *arrays, size_t count)
{
    args_long rows = shape->columns ? 1 : 0;
    for (int i = 0; i < SOFTMAX_OUTER; i++) {
        extent[i] = i < shape->first ? 1 : (int)call->extent[i - shape->first];
        rows *= extent[i];
    }
    if (rows)
        join_dimensions(extent, arrays, count);
    return rows;
}

clattn_status softmax_call_read(const clattn_plan *plan, const clattn_softmax_desc *desc,
                                const struct softmax_shape *shape, const void *given, struct softmax_call *call)
{
    clattn_status status;
    struct report *report = &plan->context->device.report;
    clattn_softmax_args *args = &call->args;
    const int last = shape->rank - 1;
    TRY(args_read(report, "clattn_softmax_args", args, sizeof *args, sizeof *args, given));
    TRY(args_check(report, "explicit_batch", args->explicit_batch, args->reserved));
    if (args->explicit_batch && shape->rank < 2)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "explicit_batch, and x has no batch");
    TRY(args_length(report, "batch", args->explicit_batch, &args->batch, desc->y.extent[0]));
    memcpy(call->extent, desc->y.extent, sizeof call->extent);
    memcpy(call->mask_extent, shape->mask_extent, sizeof call->mask_extent);
    call->extent[0] = args->batch;
    if (args->explicit_batch && call->mask_extent[0] != 1)
        call->mask_extent[0] = args->batch;
    call->mask = (clattn_layout){.dtype = desc->mask.dtype, .rank = shape->rank};
    for (int i = shape->first; i < SOFTMAX_OUTER; i++)
        call->mask.stride[i - shape->first] = shape->mask.stride[i];
    call->mask.stride[last] = shape->mask.col;
    call->mask_columns =
        (int)(shape->has_mask && call->mask_extent[last] != 1 ? call->mask_extent[last] : shape->columns);
fail:
    return status;
}

/* What the kernel is told of a call; nothing to do unless it has rows. */
static void fill_args(const struct softmax_problem *problem, const struct softmax_call *call, softmax_args *a)
{
    const struct softmax_shape *shape = &problem->shape;
    memset(a, 0, sizeof *a);
    a->x = problem->x;
    a->y = problem->y;
    a->mask = shape->mask;
    a->x.offset = call->args.x.offset;
    a->y.offset = call->args.y.offset;
    a->mask.offset = call->args.mask.offset;
    a->columns = (int)shape->columns;
    a->mask_columns = call->mask_columns;
    a->scale = shape->scale;
    a->rows = softmax_call_rows(call, shape, a->extent, (array5 *const[]){&a->x, &a->y, &a->mask}, ARRAYS);
}

static clattn_status enqueue(const clattn_plan *plan, const struct enqueue_call *call, const void *given)
{
    clattn_status status;
    const struct softmax_problem *problem = call->problem;
    const clattn_softmax_desc *desc = &problem->desc;
    struct softmax_call now;
    softmax_args kernel_args;
    TRY(softmax_call_read(plan, desc, &problem->shape, given, &now));
    TRY(binding_absent(plan->context, &now.args.gradients.x, "gradients.x"));
    TRY(binding_absent(plan->context, &now.args.gradients.y, "gradients.y"));
    fill_args(problem, &now, &kernel_args);
    const struct bound_array arrays[ARRAYS] = {
        {&now.args.x, &desc->x, now.extent, BINDING_READ | BINDING_IN_PLACE, "x", true},
        {&now.args.mask, &now.mask, now.mask_extent, BINDING_READ, "mask", problem->shape.has_mask},
        /* Kernels keep exponentials in y and read them again. */
        {&now.args.y, &desc->y, now.extent, BINDING_READ_WRITE | BINDING_IN_PLACE, "y", true},
    };
    const size_t groups[3] = {row_groups(plan, (size_t)kernel_args.rows), 1, 1};
    const double elements = (double)kernel_args.rows * (double)problem->shape.columns;
    status = simple_enqueue(plan, call, arrays, ARRAYS, elements, &kernel_args, groups);
fail:
    return status;
}

static void shape_bucket(const void *data, struct strbuf *text)
{
    const struct softmax_problem *problem = data;
    strbuf_printf(text, "r%zu-c%zu-%s-%s", bucket_length(softmax_rows(&problem->shape)),
                  bucket_length(problem->shape.columns), clattn_dtype_name(problem->desc.x.dtype),
                  problem->unit_columns ? "unit" : "strided");
    if (problem->shape.has_mask)
        strbuf_printf(text, "-mask.%s", clattn_dtype_name(problem->desc.mask.dtype));
}

static const struct layout_place layouts[] = {
    LAYOUT_PLACE(softmax, x),
    LAYOUT_PLACE(softmax, y),
    LAYOUT_PLACE(softmax, mask),
    {NULL, 0},
};

static const struct operator_type softmax_operator = {
    .name = "softmax",
    .bytes = OPERATOR_BYTES(softmax),
    .read = softmax_problem_read,
    .enqueue = enqueue,
    .layouts = layouts,
    .solvers = row_solvers,
    .solver_count = ROW_SOLVER_COUNT,
    .family = &row_operator,
    .backward = &softmax_backward_operator,
    .check = softmax_self_check,
    .shape_bucket = shape_bucket,
};

OPERATOR_CALLS(softmax, clattn_softmax_desc_init, clattn_softmax_args_init, clattn_softmax_supports,
               clattn_softmax_plan_create, clattn_softmax_enqueue, clattn_softmax_prewarm, clattn_softmax_run)
