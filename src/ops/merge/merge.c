/* The merge operator: reading, planning and enqueueing. */
#include "ops/merge/merge.h"

#include <string.h>

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/common/simple_operator.h"
#include "plan/operator.h"
#include "program/defines.h"

_Static_assert(sizeof(merge_args) == 24 + 4 * 40 + 4 * 8 + 6 * 4, "merge_args has padding");

/* ---- reading ---- */

static clattn_status read_layouts(struct merge_problem *problem, const char **reason)
{
    clattn_status status = CLATTN_SUCCESS;
    clattn_merge_desc *desc = &problem->desc;
    const struct layout_rule all[] = {
        {&desc->partial, LAYOUT_OF("partial"), LAYOUT_INPUT, 5, false},
        {&desc->partial_lse, LAYOUT_OF("partial_lse"), LAYOUT_INPUT, 4, false},
        {&desc->sinks, LAYOUT_OF("sinks"), LAYOUT_INPUT, 1, true},
        {&desc->output, LAYOUT_OF("output"), LAYOUT_OUTPUT, 4, false},
        {&desc->lse, LAYOUT_OF("lse"), LAYOUT_OUTPUT, 3, true},
    };
    TRY(layouts_read(all, COUNT_OF(all),
                     "partial is (partials, batch, heads, S_q, d_v), partial_lse lacks d_v, output partials, lse both",
                     reason));
    problem->has_sinks = !layout_is_none(&desc->sinks);
    problem->has_lse = !layout_is_none(&desc->lse);
    REQUIRE(desc->partial.dtype == CLATTN_DTYPE_F32 && desc->partial_lse.dtype == CLATTN_DTYPE_F32 &&
                (!problem->has_sinks || desc->sinks.dtype == CLATTN_DTYPE_F32) &&
                (!problem->has_lse || desc->lse.dtype == CLATTN_DTYPE_F32),
            CLATTN_ERROR_UNSUPPORTED, "partials, log-sum-exps and sinks are float32");
    REQUIRE(dtype_is_storage(desc->output.dtype), CLATTN_ERROR_UNSUPPORTED,
            "the output is float32, float16 or bfloat16");
fail:
    return status;
}

clattn_status merge_problem_read(const void *given, void *result, const char **reason)
{
    clattn_status status;
    struct merge_problem *problem = result;
    clattn_merge_desc *desc = &problem->desc;
    memset(problem, 0, sizeof *problem);
    *reason = "desc is NULL, or its size is none that clattn_merge_desc ever had";
    TRY(struct_read(desc, sizeof *desc, sizeof *desc, given));
    REQUIRE(desc->direction == CLATTN_DIRECTION_FORWARD, CLATTN_ERROR_INVALID_ARGUMENT,
            "direction: only CLATTN_DIRECTION_FORWARD is known");
    REQUIRE(desc->reserved == 0, CLATTN_ERROR_INVALID_ARGUMENT, "reserved is not 0");
    TRY(read_layouts(problem, reason));
    const size_t *p = desc->partial.extent;
    REQUIRE(!memcmp(p, desc->partial_lse.extent, 4 * sizeof *p) && !memcmp(p + 1, desc->output.extent, 4 * sizeof *p) &&
                (!problem->has_lse || !memcmp(p + 1, desc->lse.extent, 3 * sizeof *p)) &&
                (!problem->has_sinks || desc->sinks.extent[0] == p[2]) && p[4],
            CLATTN_ERROR_INVALID_LAYOUT, "extents of partials, log-sum-exps, output and sinks differ, or d_v is 0");
    for (int i = 0; i < 5; i++)
        REQUIRE(p[i] <= LENGTH_LIMIT, CLATTN_ERROR_OVERFLOW, "an extent is above 2^31 - 65537");
    problem->partials = p[0];
    problem->batch = p[1];
    problem->heads = p[2];
    problem->query_length = p[3];
    problem->columns = p[4];
fail:
    return status;
}

/* What the kernel is told of a call with these args; its batch is 0 if there is nothing to do. */
static void fill_args(const struct merge_problem *problem, const clattn_merge_args *args, merge_args *a)
{
    const clattn_merge_desc *desc = &problem->desc;
    const int64_t *p = desc->partial.stride, *l = desc->partial_lse.stride, *r = desc->lse.stride;
    memset(a, 0, sizeof *a);
    a->partial = (array4){args->partial.offset, p[1], p[2], p[3], p[4]};
    a->partial_lse = (array4){args->partial_lse.offset, l[1], l[2], l[3], 0};
    a->output = array4_of(&desc->output, args->output.offset);
    a->lse = (array4){args->lse.offset, r[0], r[1], r[2], 0};
    a->step = p[0];
    a->step_lse = l[0];
    a->sinks_offset = args->sinks.offset;
    a->sinks_stride = desc->sinks.stride[0];
    a->batch = problem->heads && args->query_length ? (int)args->batch : 0;
    a->heads = (int)problem->heads;
    a->queries = (int)args->query_length;
    a->partials = (int)args->partials;
    a->columns = (int)problem->columns;
}

/* ---- planning ---- */

size_t merge_chunk(const struct capabilities *caps, size_t columns)
{
    return size_min(columns, capabilities_on_cpu(caps) && !(caps->quirks & QUIRK_LOOPS_STOP) ? 64 : 4);
}

clattn_status merge_add_kernel(clattn_plan *plan, clattn_dtype output_dtype, bool sinks, bool lse, size_t rows,
                               size_t columns)
{
    const struct capabilities *caps = &plan->context->device.caps;
    const size_t local[3] = {1, capabilities_on_cpu(caps) ? 1 : size_min(64, caps->info.max_work_item[1]), 1};
    const size_t groups[3] = {divide_up(columns, merge_chunk(caps, columns)), divide_up(rows, local[1]), 1};
    struct strbuf options = {0};
    define_token(&options, "O_TYPE", storage_token(output_dtype));
    define_int(&options, "SINKS", sinks);
    define_int(&options, "LSE", lse);
    define_int(&options, "CHUNK", (long long)merge_chunk(caps, columns));
    return plan_add_kernel(plan, "merge/merge.cl", &options, "merge", MERGE_ARRAYS, sizeof(merge_args), local, groups);
}

void merge_groups(const struct plan_kernel *kernel, const struct capabilities *caps, const merge_args *args,
                  size_t groups[3])
{
    size_t rows = (size_t)args->batch * (size_t)args->heads * (size_t)args->queries;
    groups[0] = divide_up((size_t)args->columns, merge_chunk(caps, (size_t)args->columns));
    groups[1] = divide_up(rows, kernel->local[1]);
    groups[2] = 1;
}

static const char *refuse(const struct offer *offer)
{
    const struct merge_problem *problem = offer->problem;
    const struct capabilities *caps = offer->caps;
    double chunk = (double)merge_chunk(caps, problem->columns);
    return refuse_loops(caps, (double)problem->partials * (chunk + 3) + 2 * chunk);
}

static clattn_status prepare(clattn_plan *base)
{
    const struct merge_problem *problem = &((struct merge_plan *)base)->problem;
    return merge_add_kernel(base, problem->desc.output.dtype, problem->has_sinks, problem->has_lse,
                            problem->batch * problem->heads * problem->query_length, problem->columns);
}

static const struct solver merge_generic_solver = {.name = "generic", .refuse = refuse, .prepare = prepare};
static const struct solver *const solvers[] = {&merge_generic_solver};

/* ---- the calls ---- */

static clattn_status enqueue(const clattn_plan *plan, const struct enqueue_call *call, const void *given)
{
    clattn_status status;
    const struct merge_problem *problem = call->problem;
    const clattn_merge_desc *desc = &problem->desc;
    struct report *report = &plan->context->device.report;
    clattn_merge_args args;
    merge_args kernel_args;
    size_t groups[3] = {0};
    TRY(args_read(report, "clattn_merge_args", &args, sizeof args, sizeof args, given));
    TRY(args_check(report, "explicit_lengths", args.explicit_lengths, args.reserved));
    TRY(args_length(report, "partials", args.explicit_lengths, &args.partials, problem->partials));
    TRY(args_length(report, "batch", args.explicit_lengths, &args.batch, problem->batch));
    TRY(args_length(report, "query_length", args.explicit_lengths, &args.query_length, problem->query_length));
    fill_args(problem, &args, &kernel_args);
    const size_t extent[5] = {args.partials, args.batch, problem->heads, args.query_length, problem->columns};
    const struct bound_array arrays[MERGE_ARRAYS] = {
        {&args.partial, &desc->partial, extent, BINDING_READ, "partial", true},
        {&args.partial_lse, &desc->partial_lse, extent, BINDING_READ, "partial_lse", true},
        {&args.sinks, &desc->sinks, extent + 2, BINDING_READ, "sinks", problem->has_sinks},
        {&args.output, &desc->output, extent + 1, BINDING_WRITE, "output", true},
        {&args.lse, &desc->lse, extent + 1, BINDING_WRITE, "lse", problem->has_lse},
    };
    if (kernel_args.batch)
        merge_groups(&plan->kernels[0], &plan->context->device.caps, &kernel_args, groups);
    const double rows = (double)args.batch * (double)problem->heads * (double)args.query_length;
    const double elements = rows * (double)args.partials * (double)problem->columns;
    status = simple_enqueue(plan, call, arrays, MERGE_ARRAYS, elements, &kernel_args, groups);
fail:
    return status;
}

static const struct layout_place layouts[] = {
    LAYOUT_PLACE(merge, partial), LAYOUT_PLACE(merge, partial_lse), LAYOUT_PLACE(merge, sinks),
    LAYOUT_PLACE(merge, output),  LAYOUT_PLACE(merge, lse),         {NULL, 0},
};

static const struct operator_type merge_operator = {
    .name = "merge",
    .bytes = OPERATOR_BYTES(merge),
    .read = merge_problem_read,
    .enqueue = enqueue,
    .layouts = layouts,
    .solvers = solvers,
    .solver_count = COUNT_OF(solvers),
    .check = merge_self_check,
};

OPERATOR_CALLS(merge, clattn_merge_desc_init, clattn_merge_args_init, clattn_merge_supports, clattn_merge_plan_create,
               clattn_merge_enqueue, clattn_merge_prewarm, clattn_merge_run)
