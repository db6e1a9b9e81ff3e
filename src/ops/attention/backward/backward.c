/* Attention's backward direction: planning and enqueueing. */
#include "ops/attention/backward/backward.h"

#include "base/size.h"
#include "base/try.h"
#include "plan/operator.h"

static const struct solver *const solvers[] = {
    &attention_backward_cpu_amx_solver,      &attention_backward_cpu_bf16_solver, &attention_backward_cpu_solver,
    &attention_backward_matrix_solver,       &attention_backward_tile_solver,     &attention_backward_generic_solver,
    &attention_backward_emulated_mma_solver,
};

static clattn_status enqueue(const clattn_plan *handle, const struct enqueue_call *call, const void *given)
{
    clattn_status status;
    const struct attention_backward_plan *plan = (const struct attention_backward_plan *)handle;
    clattn_attention_args args;
    struct chain chain;
    TRY(attention_args_read(handle->context, call->problem, given, &args));
    status = chain_begin(&chain, handle->context, call, &args.workspace);
    if (status == CLATTN_SUCCESS)
        status = backward_launch(plan, call->problem, &chain, &args);
    return chain_end(&chain, status);
fail:
    return status;
}

static const struct layout_place layouts[] = {
    LAYOUT_PLACE(attention, query),
    LAYOUT_PLACE(attention, key),
    LAYOUT_PLACE(attention, value),
    LAYOUT_PLACE(attention, output),
    LAYOUT_PLACE(attention, mask),
    LAYOUT_PLACE(attention, bias),
    LAYOUT_PLACE(attention, gradients.output),
    LAYOUT_PLACE(attention, gradients.lse),
    LAYOUT_PLACE(attention, gradients.query),
    LAYOUT_PLACE(attention, gradients.key),
    LAYOUT_PLACE(attention, gradients.value),
    LAYOUT_PLACE(attention, gradients.mask),
    LAYOUT_PLACE(attention, gradients.bias),
    {NULL, 0},
};

const struct operator_type attention_backward_operator = {
    .name = "attention backward",
    .bytes = {sizeof(struct attention_backward_plan), offsetof(struct attention_backward_plan, problem),
              sizeof(struct attention_problem), ATTENTION_DESC_BYTES, offsetof(clattn_attention_args, control)},
    .read = attention_backward_problem_read,
    .enqueue = enqueue,
    .layouts = layouts,
    .take = attention_take_snippets,
    .begin = attention_check_snippets,
    .solvers = solvers,
    .solver_count = COUNT_OF(solvers),
    .check = backward_self_check,
};
