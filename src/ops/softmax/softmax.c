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
    return (struct rows){.count = softmax_rows(problem),
                         .elements = problem->columns,
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
    define_int(options, "MASK", problem->has_mask);
    if (problem->has_mask)
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

static bool joins(const array5 *array, int outer, int inner, int64_t extent)
{
    return array->stride[outer] == extent * array->stride[inner];
}

static void move_dimension(array5 *array, int to, int from)
{
    array->stride[to] = array->stride[from];
}

/* Joins dimensions that are one in every array, so that as many rows as possible are one stride apart. */
static void join_dimensions(softmax_args *a)
{
    int inner = SOFTMAX_OUTER - 1;
    for (int n = inner - 1; n >= 0; n--) {
        if (a->extent[n] == 1)
            continue;
        if (a->extent[inner] == 1) {
            move_dimension(&a->x, inner, n);
            move_dimension(&a->y, inner, n);
            move_dimension(&a->mask, inner, n);
        } else if (!joins(&a->x, n, inner, a->extent[inner]) || !joins(&a->y, n, inner, a->extent[inner]) ||
                   !joins(&a->mask, n, inner, a->extent[inner])) {
            inner = n;
            continue;
        }
        a->extent[inner] *= a->extent[n];
        a->extent[n] = 1;
    }
}

/* What the kernel is told of a call with these args; nothing to do unless it has rows. */
static void fill_args(const struct softmax_problem *problem, const clattn_softmax_args *args, const size_t *extent,
                      const size_t *mask_extent, softmax_args *a)
{
    const int last = problem->desc.x.rank - 1;
    memset(a, 0, sizeof *a);
    a->x = problem->x;
    a->y = problem->y;
    a->mask = problem->mask;
    a->x.offset = args->x.offset;
    a->y.offset = args->y.offset;
    a->mask.offset = args->mask.offset;
    a->columns = (int)problem->columns;
    a->mask_columns = problem->has_mask && mask_extent[last] != 1 ? (int)mask_extent[last] : a->columns;
    a->scale = problem->scale;
    a->rows = problem->columns ? 1 : 0;
    for (int i = 0; i < SOFTMAX_OUTER; i++) {
        a->extent[i] = i < problem->first ? 1 : (int)extent[i - problem->first];
        a->rows *= a->extent[i];
    }
    if (a->rows)
        join_dimensions(a);
}

static clattn_status enqueue(const clattn_plan *plan, const struct enqueue_call *call, const void *given)
{
    clattn_status status;
    const struct softmax_problem *problem = call->problem;
    const clattn_softmax_desc *desc = &problem->desc;
    struct report *report = &plan->context->device.report;
    clattn_softmax_args args;
    softmax_args kernel_args;
    size_t extent[CLATTN_MAX_RANK], mask_extent[CLATTN_MAX_RANK];
    TRY(args_read(report, "clattn_softmax_args", &args, sizeof args, sizeof args, given));
    TRY(args_check(report, "explicit_batch", args.explicit_batch, args.reserved));
    if (args.explicit_batch && desc->x.rank < 2)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "explicit_batch, and x has no batch");
    TRY(args_length(report, "batch", args.explicit_batch, &args.batch, desc->x.extent[0]));
    memcpy(extent, desc->x.extent, sizeof extent);
    memcpy(mask_extent, problem->mask_extent, sizeof mask_extent);
    extent[0] = args.batch;
    if (args.explicit_batch && mask_extent[0] != 1)
        mask_extent[0] = args.batch;
    clattn_layout mask = {.dtype = desc->mask.dtype, .rank = desc->x.rank}; /* aligned with x */
    for (int i = problem->first; i < SOFTMAX_OUTER; i++)
        mask.stride[i - problem->first] = problem->mask.stride[i];
    mask.stride[desc->x.rank - 1] = problem->mask.col;
    fill_args(problem, &args, extent, mask_extent, &kernel_args);
    const struct bound_array arrays[ARRAYS] = {
        {&args.x, &desc->x, extent, BINDING_READ | BINDING_IN_PLACE, "x", true},
        {&args.mask, &mask, mask_extent, BINDING_READ, "mask", problem->has_mask},
        /* Kernels keep exponentials in y and read them again. */
        {&args.y, &desc->y, extent, BINDING_READ_WRITE | BINDING_IN_PLACE, "y", true},
    };
    const size_t groups[3] = {row_groups(plan, (size_t)kernel_args.rows), 1, 1};
    const double elements = (double)kernel_args.rows * (double)problem->columns;
    status = simple_enqueue(plan, call, arrays, ARRAYS, elements, &kernel_args, groups);
fail:
    return status;
}

static void shape_bucket(const void *data, struct strbuf *text)
{
    const struct softmax_problem *problem = data;
    strbuf_printf(text, "r%zu-c%zu-%s-%s", bucket_length(softmax_rows(problem)), bucket_length(problem->columns),
                  clattn_dtype_name(problem->desc.x.dtype), problem->unit_columns ? "unit" : "strided");
    if (problem->has_mask)
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
    .check = softmax_self_check,
    .shape_bucket = shape_bucket,
};

OPERATOR_CALLS(softmax, clattn_softmax_desc_init, clattn_softmax_args_init, clattn_softmax_supports,
               clattn_softmax_plan_create, clattn_softmax_enqueue, clattn_softmax_prewarm, clattn_softmax_run)
