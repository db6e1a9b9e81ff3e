/* The sum of squares: reading, planning and enqueueing. */
#include <string.h>

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/optimizer/optimizer.h"
#include "plan/operator.h"
#include "program/defines.h"

_Static_assert(sizeof(square_sum_args) == 24 + 3 * 8 + 4 * 4, "square_sum_args has padding");

enum { SUM, ADD }; /* the plan's kernels */

clattn_status square_sum_problem_read(const void *given, void *result, const char **reason)
{
    clattn_status status;
    struct square_sum_problem *problem = result;
    clattn_square_sum_desc *desc = &problem->desc;
    memset(problem, 0, sizeof *problem);
    *reason = "desc is NULL, or its size is none that clattn_square_sum_desc ever had";
    TRY(struct_read(desc, sizeof *desc, sizeof *desc, given));
    REQUIRE(desc->direction == CLATTN_DIRECTION_FORWARD, CLATTN_ERROR_INVALID_ARGUMENT,
            "direction: only CLATTN_DIRECTION_FORWARD is known");
    REQUIRE(desc->reserved == 0, CLATTN_ERROR_INVALID_ARGUMENT, "reserved is not 0");
    const struct layout_rule all[] = {
        {&desc->x, LAYOUT_OF("x"), LAYOUT_INPUT, 1, false},
        {&desc->result, LAYOUT_OF("result"), LAYOUT_OUTPUT, 1, false},
    };
    TRY(layouts_read(all, COUNT_OF(all), "x and result have 1 dimension", reason));
    REQUIRE(dtype_is_storage(desc->x.dtype), CLATTN_ERROR_UNSUPPORTED, "x is float32, float16 or bfloat16");
    REQUIRE(desc->result.dtype == CLATTN_DTYPE_F32, CLATTN_ERROR_UNSUPPORTED, "result is float32");
    REQUIRE(desc->result.extent[0] == 1, CLATTN_ERROR_INVALID_LAYOUT, "result is not (1)");
    problem->count = desc->x.extent[0];
    problem->blocks = divide_up(problem->count, SQUARE_BLOCK);
    REQUIRE(problem->count < 2 || desc->x.stride[0] == 1, CLATTN_ERROR_INVALID_LAYOUT, "x has stride 1");
    REQUIRE(problem->count <= LENGTH_LIMIT, CLATTN_ERROR_OVERFLOW, "an extent is above 2^31 - 65537");
fail:
    return status;
}

/* ---- planning ---- */

/* The work-items of a group, and the lanes of their vectors: together at most the columns. */
static size_t choose_items(const struct capabilities *caps, uint32_t *lanes)
{
    size_t items = 1;
    *lanes = capabilities_on_cpu(caps) && !(caps->quirks & QUIRK_LOOPS_STOP) ? caps->lanes : 4;
    if (capabilities_on_cpu(caps) || caps->quirks & QUIRK_GROUPS_BREAK)
        return 1;
    while (2 * items * *lanes <= SQUARE_COLUMNS && 2 * items <= caps->info.max_work_item[0])
        items *= 2;
    return items;
}

static const char *refuse(const struct offer *offer)
{
    const struct square_sum_problem *problem = offer->problem;
    uint32_t lanes;
    const double items = (double)choose_items(offer->caps, &lanes);
    return refuse_loops(offer->caps, SQUARE_BLOCK / items / lanes + (double)problem->blocks / items + SQUARE_COLUMNS);
}

static clattn_status prepare(clattn_plan *base)
{
    clattn_status status = CLATTN_SUCCESS;
    const struct square_sum_problem *problem = &((struct square_sum_plan *)base)->problem;
    uint32_t lanes;
    const size_t items = choose_items(&base->context->device.caps, &lanes), local[3] = {items, 1, 1};
    const size_t groups[2][3] = {[SUM] = {problem->blocks, 1, 1}, [ADD] = {1, 1, 1}};
    for (int i = SUM; i <= ADD; i++) {
        struct strbuf options = {0};
        define_token(&options, "X_TYPE", storage_token(problem->desc.x.dtype));
        define_int(&options, "LANES", lanes);
        define_int(&options, "ITEMS", (long long)items);
        TRY(plan_add_kernel(base, "optimizer/square_sum.cl", &options, i == SUM ? "square_sum" : "square_sum_add", 2,
                            sizeof(square_sum_args), local, groups[i]));
    }
    base->workspace = problem->blocks * sizeof(float);
fail:
    return status;
}

static const struct solver generic_solver = {.name = "generic", .refuse = refuse, .prepare = prepare};
static const struct solver *const solvers[] = {&generic_solver};

/* ---- the calls ---- */

static clattn_status launch(const clattn_plan *plan, struct chain *chain, const struct square_sum_problem *problem,
                            const clattn_square_sum_args *args)
{
    clattn_status status = CLATTN_SUCCESS;
    const size_t blocks[3] = {problem->blocks, 1, 1}, one[3] = {1, 1, 1};
    const clattn_binding *const sum[2] = {&args->x, &chain->workspace};
    const clattn_binding *const add[2] = {problem->blocks ? &chain->workspace : NULL, &args->result};
    square_sum_args a = {
        .x = args->x.offset,
        .partials = chain->workspace.offset / (int64_t)sizeof(float),
        .result = args->result.offset,
        .count = (int)problem->count,
        .blocks = (int)problem->blocks,
        .accumulate = args->accumulate,
        .results = 1,
    };
    if (problem->blocks)
        TRY(chain_launch(chain, plan, SUM, sum, &a, blocks, false));
    TRY(chain_launch(chain, plan, ADD, add, &a, one, true));
fail:
    return status;
}

static clattn_status enqueue(const clattn_plan *plan, const struct enqueue_call *call, const void *given)
{
    clattn_status status;
    const struct square_sum_problem *problem = call->problem;
    const clattn_square_sum_desc *desc = &problem->desc;
    struct report *report = &plan->context->device.report;
    clattn_square_sum_args args;
    struct chain chain;
    TRY(args_read(report, "clattn_square_sum_args", &args, sizeof args, sizeof args, given));
    TRY(args_check(report, "accumulate", args.accumulate, args.reserved));
    const unsigned read = BINDING_READ | (problem->count ? 0 : BINDING_OPTIONAL);
    const unsigned written = args.accumulate ? BINDING_READ_WRITE : BINDING_WRITE;
    const struct bound_array arrays[] = {
        {&args.x, &desc->x, desc->x.extent, read, "x", true},
        {&args.result, &desc->result, desc->result.extent, written, "result", true},
    };
    TRY(bindings_check(plan->context, arrays, COUNT_OF(arrays)));
    status = chain_begin(&chain, plan->context, call, &args.workspace);
    chain.work = (double)problem->count * WORK_OF_ELEMENT;
    if (status == CLATTN_SUCCESS)
        status = launch(plan, &chain, problem, &args);
    return chain_end(&chain, status);
fail:
    return status;
}

static const struct layout_place layouts[] = {
    LAYOUT_PLACE(square_sum, x),
    LAYOUT_PLACE(square_sum, result),
    {NULL, 0},
};

static const struct operator_type square_sum_operator = {
    .name = "square_sum",
    .bytes = OPERATOR_BYTES(square_sum),
    .read = square_sum_problem_read,
    .enqueue = enqueue,
    .layouts = layouts,
    .solvers = solvers,
    .solver_count = COUNT_OF(solvers),
    .check = square_sum_self_check,
};

OPERATOR_CALLS(square_sum, clattn_square_sum_desc_init, clattn_square_sum_args_init, clattn_square_sum_supports,
               clattn_square_sum_plan_create, clattn_square_sum_enqueue, clattn_square_sum_prewarm,
               clattn_square_sum_run)
