/* The step of Adam: reading, planning and enqueueing. */
#include <math.h>
#include <string.h>

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/common/simple_operator.h"
#include "ops/optimizer/optimizer.h"
#include "plan/operator.h"
#include "program/defines.h"

_Static_assert(sizeof(adam_args) == 24 + 6 * 8 + 14 * 4, "adam_args has padding");

#define ARRAYS 6 /* of the kernel */

/* ---- reading ---- */

static clattn_status read_layouts(struct adam_problem *problem, const char **reason)
{
    clattn_status status = CLATTN_SUCCESS;
    clattn_adam_desc *desc = &problem->desc;
    const struct layout_rule all[] = {
        {&desc->parameter, LAYOUT_OF("parameter"), LAYOUT_OUTPUT, 1, false},
        {&desc->gradient, LAYOUT_OF("gradient"), LAYOUT_INPUT, 1, false},
        {&desc->first_moment, LAYOUT_OF("first_moment"), LAYOUT_OUTPUT, 1, false},
        {&desc->second_moment, LAYOUT_OF("second_moment"), LAYOUT_OUTPUT, 1, false},
        {&desc->stored, LAYOUT_OF("stored"), LAYOUT_OUTPUT, 1, true},
        {&desc->squares, LAYOUT_OF("squares"), LAYOUT_INPUT, 1, true},
    };
    TRY(layouts_read(all, COUNT_OF(all), "parameter, gradient, moments, stored and squares have 1 dimension", reason));
    problem->count = desc->parameter.extent[0];
    problem->has_stored = !layout_is_none(&desc->stored);
    problem->has_squares = !layout_is_none(&desc->squares);
    REQUIRE(desc->parameter.dtype == CLATTN_DTYPE_F32 && desc->first_moment.dtype == CLATTN_DTYPE_F32 &&
                desc->second_moment.dtype == CLATTN_DTYPE_F32 &&
                (!problem->has_squares || desc->squares.dtype == CLATTN_DTYPE_F32),
            CLATTN_ERROR_UNSUPPORTED, "parameter, moments and squares are float32");
    REQUIRE(dtype_is_storage(desc->gradient.dtype), CLATTN_ERROR_UNSUPPORTED,
            "the gradient is float32, float16 or bfloat16");
    REQUIRE(!problem->has_stored || desc->stored.dtype == CLATTN_DTYPE_F16 || desc->stored.dtype == CLATTN_DTYPE_BF16,
            CLATTN_ERROR_UNSUPPORTED, "stored is float16 or bfloat16");
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        const clattn_layout *layout = all[i].layout;
        const size_t count = layout == &desc->squares ? 1 : problem->count;
        if (layout_is_none(layout))
            continue;
        REQUIRE(layout->extent[0] == count, CLATTN_ERROR_INVALID_LAYOUT,
                "extents of parameter, gradient, moments and stored differ, or squares is not (1)");
        REQUIRE(count < 2 || layout->stride[0] == 1, CLATTN_ERROR_INVALID_LAYOUT,
                "parameter, gradient, moments and stored have stride 1");
    }
    REQUIRE(problem->count <= LENGTH_LIMIT, CLATTN_ERROR_OVERFLOW, "an extent is above 2^31 - 65537");
fail:
    return status;
}

clattn_status adam_problem_read(const void *given, void *result, const char **reason)
{
    clattn_status status;
    struct adam_problem *problem = result;
    clattn_adam_desc *desc = &problem->desc;
    memset(problem, 0, sizeof *problem);
    *reason = "desc is NULL, or its size is none that clattn_adam_desc ever had";
    TRY(struct_read(desc, sizeof *desc, sizeof *desc, given));
    REQUIRE(desc->direction == CLATTN_DIRECTION_FORWARD, CLATTN_ERROR_INVALID_ARGUMENT,
            "direction: only CLATTN_DIRECTION_FORWARD is known");
    REQUIRE(desc->reserved == 0, CLATTN_ERROR_INVALID_ARGUMENT, "reserved is not 0");
    status = read_layouts(problem, reason);
fail:
    return status;
}

/* ---- planning ---- */

static clattn_status prepare(clattn_plan *base)
{
    struct adam_plan *plan = (struct adam_plan *)base;
    const struct adam_problem *problem = &plan->problem;
    const struct capabilities *caps = &base->context->device.caps;
    const bool on_cpu = capabilities_on_cpu(caps) && !(caps->quirks & QUIRK_LOOPS_STOP);
    const uint32_t lanes = on_cpu ? caps->lanes : 4;
    size_t
        local[3] = {on_cpu || caps->quirks & QUIRK_GROUPS_BREAK ? 1 : size_min(64, caps->info.max_work_item[0]), 1, 1};
    if (caps->quirks & (QUIRK_SLOW_COMPILER | QUIRK_SIMULATOR)) local
        [0] = size_min(local[0], 32);
    plan->chunk = on_cpu ? 16384 : (int)(local[0] * lanes * 4);
    const size_t groups[3] = {divide_up(problem->count, (size_t)plan->chunk), 1, 1};
    struct strbuf options = {0};
    define_token(&options, "G_TYPE", storage_token(problem->desc.gradient.dtype));
    define_int(&options, "STORED", problem->has_stored);
    if (problem->has_stored)
        define_token(&options, "STORED_TYPE", storage_token(problem->desc.stored.dtype));
    define_int(&options, "SQUARES", problem->has_squares);
    define_int(&options, "LANES", lanes);
    return plan_add_kernel(base, "optimizer/adam.cl", &options, "adam", ARRAYS, sizeof(adam_args), local, groups);
}

static const struct solver generic_solver = {.name = "generic", .prepare = prepare};
static const struct solver *const solvers[] = {&generic_solver};

/* ---- the calls ---- */

/* Whether a float can hold it and it is not negative. */
static bool is_amount(double x)
{
    return x >= 0 && isfinite((float)x);
}

clattn_status adam_read_numbers(struct report *report, bool has_squares, clattn_adam_args *args)
{
    if (!args->explicit_betas) {
        args->beta1 = 0.9;
        args->beta2 = 0.999;
    }
    if (!args->explicit_epsilon)
        args->epsilon = 1e-8;
    if (args->gradient_scale == 0)
        args->gradient_scale = 1;
    const struct {
        bool holds;
        const char *refusal;
    } rules[] = {
        {is_flag(args->explicit_epsilon), "explicit_epsilon is neither 0 nor 1"},
        {is_flag(args->decoupled), "decoupled is neither 0 nor 1"},
        {is_amount(args->learning_rate), "learning_rate is negative, NaN or infinite"},
        {args->beta1 >= 0 && (float)args->beta1 < 1, "beta1 is not in [0, 1)"},
        {args->beta2 >= 0 && (float)args->beta2 < 1, "beta2 is not in [0, 1)"},
        {is_amount(args->epsilon), "epsilon is negative, NaN or infinite"},
        {is_amount(args->weight_decay), "weight_decay is negative, NaN or infinite"},
        {isfinite((float)args->gradient_scale), "gradient_scale is NaN or infinite"},
        {is_amount(args->clip_norm), "clip_norm is negative, NaN or infinite"},
        {args->clip_norm == 0 || has_squares, "clip_norm needs squares"},
        {args->step >= 1, "step counts from 1"},
    };
    for (size_t i = 0; i < COUNT_OF(rules); i++)
        if (!rules[i].holds)
            return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "%s", rules[i].refusal);
    return CLATTN_SUCCESS;
}

/* What the kernel is told of a call with these args. */
static adam_args kernel_args(const struct adam_plan *plan, const struct adam_problem *problem,
                             const clattn_adam_args *args)
{
    return (adam_args){
        .parameter = args->parameter.offset,
        .gradient = args->gradient.offset,
        .first_moment = args->first_moment.offset,
        .second_moment = args->second_moment.offset,
        .stored = args->stored.offset,
        .squares = args->squares.offset,
        .count = (int)problem->count,
        .chunk = plan->chunk,
        .gradient_scale = (float)args->gradient_scale,
        .clip_norm = (float)args->clip_norm,
        .decay = args->decoupled ? 0 : (float)args->weight_decay,
        .shrink = args->decoupled ? (float)(1 - args->learning_rate * args->weight_decay) : 1,
        .beta1 = (float)args->beta1,
        .beta2 = (float)args->beta2,
        .fresh1 = (float)(1 - args->beta1),
        .fresh2 = (float)(1 - args->beta2),
        .root_scale = (float)(1 / sqrt(1 - pow(args->beta2, (double)args->step))),
        .epsilon = (float)args->epsilon,
        .step_size = (float)(args->learning_rate / (1 - pow(args->beta1, (double)args->step))),
    };
}

static clattn_status enqueue(const clattn_plan *plan, const struct enqueue_call *call, const void *given)
{
    clattn_status status;
    const struct adam_problem *problem = call->problem;
    const clattn_adam_desc *desc = &problem->desc;
    const size_t *extent = desc->parameter.extent;
    struct report *report = &plan->context->device.report;
    clattn_adam_args args;
    TRY(args_read(report, "clattn_adam_args", &args, sizeof args, sizeof args, given));
    TRY(args_check(report, "explicit_betas", args.explicit_betas, args.reserved));
    TRY(adam_read_numbers(report, problem->has_squares, &args));
    adam_args a = kernel_args((const struct adam_plan *)plan, problem, &args);
    const size_t groups[3] = {divide_up(problem->count, (size_t)a.chunk), 1, 1};
    const struct bound_array arrays[ARRAYS] = {
        {&args.parameter, &desc->parameter, extent, BINDING_READ_WRITE, "parameter", true},
        {&args.gradient, &desc->gradient, extent, BINDING_READ, "gradient", true},
        {&args.first_moment, &desc->first_moment, extent, BINDING_READ_WRITE, "first_moment", true},
        {&args.second_moment, &desc->second_moment, extent, BINDING_READ_WRITE, "second_moment", true},
        {&args.stored, &desc->stored, extent, BINDING_WRITE, "stored", problem->has_stored},
        {&args.squares, &desc->squares, desc->squares.extent, BINDING_READ, "squares", problem->has_squares},
    };
    status = simple_enqueue(plan, call, arrays, ARRAYS, (double)problem->count, &a, groups);
fail:
    return status;
}

static const struct layout_place layouts[] = {
    LAYOUT_PLACE(adam, parameter),
    LAYOUT_PLACE(adam, gradient),
    LAYOUT_PLACE(adam, first_moment),
    LAYOUT_PLACE(adam, second_moment),
    LAYOUT_PLACE(adam, stored),
    LAYOUT_PLACE(adam, squares),
    {NULL, 0},
};

static const struct operator_type adam_operator = {
    .name = "adam",
    .bytes = OPERATOR_BYTES(adam),
    .read = adam_problem_read,
    .enqueue = enqueue,
    .layouts = layouts,
    .solvers = solvers,
    .solver_count = COUNT_OF(solvers),
    .check = adam_self_check,
};

OPERATOR_CALLS(adam, clattn_adam_desc_init, clattn_adam_args_init, clattn_adam_supports, clattn_adam_plan_create,
               clattn_adam_enqueue, clattn_adam_prewarm, clattn_adam_run)
