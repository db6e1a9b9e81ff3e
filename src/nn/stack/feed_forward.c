/* The feed-forward block by itself: a graph of two or three products over the caller's arrays. */
#include <stdio.h>
#include <string.h>

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "nn/stack/layers.h"
#include "nn/stack/model_plan.h"
#include "ops/common/activation.h"
#include "ops/common/arrays.h"
#include "plan/operator.h"

enum feed_forward_slot {
    SLOT_X = 1,
    SLOT_W_IN,
    SLOT_B_IN,
    SLOT_W_GATE,
    SLOT_B_GATE,
    SLOT_W_OUT,
    SLOT_B_OUT,
    SLOT_Y,
    SLOTS
};

struct feed_forward_problem {
    clattn_feed_forward_desc desc; /* normalised */
};

struct feed_forward_plan {
    clattn_plan base;
    struct feed_forward_problem problem;
    struct graph graph;
    char solver_name[64];
};

static clattn_status read_desc(const void *given, void *data, const char **reason)
{
    clattn_feed_forward_desc *d = &((struct feed_forward_problem *)data)->desc;
    const clattn_status status = struct_read(d, sizeof *d, sizeof *d, given);
    REQUIRE(status == CLATTN_SUCCESS, status,
            "desc is NULL, or its size is none that clattn_feed_forward_desc ever had");
    REQUIRE(d->direction == CLATTN_DIRECTION_FORWARD, CLATTN_ERROR_INVALID_ARGUMENT,
            "direction: only CLATTN_DIRECTION_FORWARD is known");
    REQUIRE(d->activation && activation_name(d->activation), CLATTN_ERROR_INVALID_ARGUMENT,
            "activation is NONE or unknown");
    REQUIRE(is_flag(d->gated) && is_flag(d->bias_in) && is_flag(d->bias_out) && is_flag(d->residual) && !d->reserved,
            CLATTN_ERROR_INVALID_ARGUMENT,
            "gated, bias_in, bias_out or residual is neither 0 nor 1, or reserved is not 0");
    if (!d->dtype)
        d->dtype = CLATTN_DTYPE_F32;
    REQUIRE(dtype_is_storage(d->dtype), CLATTN_ERROR_UNSUPPORTED, "x, y and weights are float32, float16 or bfloat16");
    REQUIRE(d->d_model && d->d_ff, CLATTN_ERROR_INVALID_LAYOUT, "d_model and d_ff are at least 1");
    REQUIRE(d->rows <= LENGTH_LIMIT && d->d_model <= LENGTH_LIMIT && d->d_ff <= LENGTH_LIMIT, CLATTN_ERROR_OVERFLOW,
            "rows, d_model or d_ff is 2^31 or more");
    return CLATTN_SUCCESS;
}

static struct linear_operands caller_linear(struct graph *graph, const clattn_feed_forward_desc *d, int weight,
                                            int bias, size_t rows, size_t columns)
{
    return (struct linear_operands){.weight = operand_of(graph_bound_array(graph, d->dtype, weight, 0)),
                                    .bias = operand_of(bias ? graph_bound_array(graph, d->dtype, bias, 0) : 0),
                                    .weight_dtype = d->dtype,
                                    .bias_dtype = d->dtype,
                                    .rows = rows,
                                    .columns = columns};
}

static clattn_status add_all(struct feed_forward_plan *plan, const clattn_plan_options *options)
{
    clattn_status status;
    const clattn_feed_forward_desc *d = &plan->problem.desc;
    struct graph *graph = &plan->graph;
    const struct builder b = {
        .graph = graph, .product_options = options, .rows = {1, d->rows, NUMBER_ONE, NUMBER_LENGTH}};
    const struct linear_operands in =
        caller_linear(graph, d, SLOT_W_IN, d->bias_in ? SLOT_B_IN : 0, d->d_ff, d->d_model);
    const struct linear_operands gate =
        caller_linear(graph, d, SLOT_W_GATE, d->bias_in ? SLOT_B_GATE : 0, d->d_ff, d->d_model);
    const struct linear_operands out =
        caller_linear(graph, d, SLOT_W_OUT, d->bias_out ? SLOT_B_OUT : 0, d->d_model, d->d_ff);
    const struct matrix x = matrix_bound(graph, d->dtype, d->d_model, SLOT_X);
    const struct matrix y = matrix_bound(graph, d->dtype, d->d_model, SLOT_Y);
    const struct epilogue plus = {.operand = &x, .use = CLATTN_MATMUL_OPERAND_USE_ADD};
    struct matrix hidden;
    TRY(add_hidden(&b, x, &in, d->gated ? &gate : NULL, (struct epilogue){.activation = d->activation}, &hidden));
    TRY(add_product(&b, b.rows, hidden, &out, y, d->residual ? &plus : NULL));
    status = graph_finish(graph);
fail:
    return status;
}

/* Asks for the products that a plan would have, without building anything. */
static clattn_status supports(clattn_context *context, const void *data, const char **reason)
{
    clattn_status status;
    const clattn_feed_forward_desc *d = &((const struct feed_forward_problem *)data)->desc;
    clattn_matmul_desc in = CLATTN_MATMUL_DESC_INIT, out = CLATTN_MATMUL_DESC_INIT;
    const clattn_dtype dtype = d->dtype;
    in.a = out.c = clattn_layout_contiguous(dtype, 2, (const size_t[2]){d->rows, d->d_model});
    in.c = out.a = clattn_layout_contiguous(dtype, 2, (const size_t[2]){d->rows, d->d_ff});
    in.b = (clattn_layout){
        .dtype = d->dtype, .rank = 2, .extent = {d->d_model, d->d_ff}, .stride = {1, (int64_t)d->d_model}};
    out.b =
        (clattn_layout){.dtype = d->dtype, .rank = 2, .extent = {d->d_ff, d->d_model}, .stride = {1, (int64_t)d->d_ff}};
    in.activation = d->activation;
    if (d->residual)
        out.operand = out.c;
    TRY(clattn_matmul_supports(context, &in, reason));
    status = clattn_matmul_supports(context, &out, reason);
fail:
    return status;
}

static void clear(clattn_plan *handle)
{
    graph_clear(&((struct feed_forward_plan *)handle)->graph);
}

static clattn_status make(clattn_plan *handle, const clattn_plan_options *options)
{
    clattn_status status;
    struct feed_forward_plan *plan = (struct feed_forward_plan *)handle;
    handle->clear = clear;
    TRY(graph_begin(&plan->graph, handle->context));
    TRY(add_all(plan, options));
    TRY(model_plan_finish(handle, &(const struct graph *){&plan->graph}, 1, plan->solver_name));
    snprintf(plan->solver_name, sizeof plan->solver_name, "%s+%s", plan->graph.steps[0].plan->solver,
             plan->graph.steps[plan->graph.step_count - 1].plan->solver);
fail:
    return status;
}

static clattn_status check_arrays(const struct feed_forward_plan *plan, const clattn_feed_forward_args *args)
{
    const clattn_feed_forward_desc *d = &plan->problem.desc;
    const clattn_dtype dtype = d->dtype;
    const size_t rows[2] = {args->rows, d->d_model}, in[2] = {d->d_ff, d->d_model}, out[2] = {d->d_model, d->d_ff};
    const clattn_layout x = clattn_layout_contiguous(dtype, 2, rows), w_in = clattn_layout_contiguous(dtype, 2, in),
                        w_out = clattn_layout_contiguous(dtype, 2, out), b_in = clattn_layout_contiguous(dtype, 1, in),
                        b_out = clattn_layout_contiguous(dtype, 1, out);
    const unsigned in_place = d->residual ? BINDING_IN_PLACE : 0;
    const struct bound_array arrays[] = {
        {&args->x, &x, rows, BINDING_READ | in_place, "x", true},
        {&args->w_in, &w_in, in, BINDING_READ, "w_in", true},
        {&args->b_in, &b_in, in, BINDING_READ, "b_in", d->bias_in},
        {&args->w_gate, &w_in, in, BINDING_READ, "w_gate", d->gated},
        {&args->b_gate, &b_in, in, BINDING_READ, "b_gate", d->gated && d->bias_in},
        {&args->w_out, &w_out, out, BINDING_READ, "w_out", true},
        {&args->b_out, &b_out, out, BINDING_READ, "b_out", d->bias_out},
        {&args->y, &x, rows, BINDING_WRITE | in_place, "y", true},
    };
    return model_bindings_check(plan->base.context, arrays, COUNT_OF(arrays), &args->workspace);
}

static clattn_status enqueue(const clattn_plan *handle, const struct enqueue_call *call, const void *given)
{
    clattn_status status;
    const struct feed_forward_plan *plan = (const struct feed_forward_plan *)handle;
    struct report *report = &handle->context->device.report;
    clattn_feed_forward_args args;
    TRY(args_read(report, "clattn_feed_forward_args", &args, sizeof args, sizeof args, given));
    TRY(args_check(report, "explicit_rows", args.explicit_rows, args.reserved));
    TRY(args_length(report, "rows", args.explicit_rows, &args.rows, plan->problem.desc.rows));
    if (!args.rows)
        return plan_enqueue_nothing(handle, call);
    TRY(check_arrays(plan, &args));
    const clattn_binding bound[SLOTS] = {
        [SLOT_X] = args.x,           [SLOT_W_IN] = args.w_in,   [SLOT_B_IN] = args.b_in,   [SLOT_W_GATE] = args.w_gate,
        [SLOT_B_GATE] = args.b_gate, [SLOT_W_OUT] = args.w_out, [SLOT_B_OUT] = args.b_out, [SLOT_Y] = args.y};
    const struct graph_run run = {.bound = bound, .number = {[NUMBER_ONE] = 1, [NUMBER_LENGTH] = args.rows}};
    status = graph_enqueue(&plan->graph, call, &run, &args.workspace);
fail:
    return status;
}

static const struct operator_type feed_forward_operator = {
    .name = "feed_forward",
    .bytes = OPERATOR_BYTES(feed_forward),
    .read = read_desc,
    .enqueue = enqueue,
    .supports = supports,
    .make = make,
};

OPERATOR_CALLS(feed_forward, clattn_feed_forward_desc_init, clattn_feed_forward_args_init, clattn_feed_forward_supports,
               clattn_feed_forward_plan_create, clattn_feed_forward_enqueue, clattn_feed_forward_prewarm,
               clattn_feed_forward_run)
