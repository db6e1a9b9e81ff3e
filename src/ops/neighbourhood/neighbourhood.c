/* Neighbourhood attention: planning and enqueueing. */
#include "ops/neighbourhood/neighbourhood.h"

#include "base/size.h"
#include "base/try.h"
#include "plan/operator.h"

/* Best first. */
static const struct solver *const solvers[] = {
    &neighbourhood_cpu_solver,
    &neighbourhood_generic_solver,
};

double neighbourhood_work(const struct neighbourhood_problem *problem, const clattn_neighbourhood_args *args)
{
    const double queries = (double)args->query_height * (double)args->query_width;
    const double keys = (double)neighbourhood_keys(problem, 0) * (double)neighbourhood_keys(problem, 1);
    return (double)args->batch * (double)problem->heads * queries * keys * 2 * (double)(problem->d_k + problem->d_v);
}

static clattn_status enqueue(const clattn_plan *handle, const struct enqueue_call *call, const void *given)
{
    clattn_status status;
    const struct neighbourhood_plan *plan = (const struct neighbourhood_plan *)handle;
    const struct neighbourhood_problem *problem = call->problem;
    clattn_neighbourhood_args args;
    neighbourhood_args kernel_args;
    struct chain chain;
    TRY(neighbourhood_args_read(handle->context, problem, given, &args));
    if (!neighbourhood_has_queries(problem, &args))
        return plan_enqueue_nothing(handle, call);
    neighbourhood_fill_args(problem, &args, &kernel_args);
    status = chain_begin(&chain, handle->context, call, &args.workspace);
    chain.work = neighbourhood_work(problem, &args);
    if (status == CLATTN_SUCCESS)
        status = plan->launch(plan, problem, &chain, &args, &kernel_args);
    return chain_end(&chain, status);
fail:
    return status;
}

static const struct layout_place layouts[] = {
    LAYOUT_PLACE(neighbourhood, query),
    LAYOUT_PLACE(neighbourhood, key),
    LAYOUT_PLACE(neighbourhood, value),
    LAYOUT_PLACE(neighbourhood, output),
    LAYOUT_PLACE(neighbourhood, bias),
    LAYOUT_PLACE(neighbourhood, lse),
    {NULL, 0},
};

static const struct operator_type neighbourhood_operator = {
    .name = "neighbourhood",
    .bytes = OPERATOR_BYTES(neighbourhood),
    .read = neighbourhood_problem_read,
    .enqueue = enqueue,
    .layouts = layouts,
    .solvers = solvers,
    .solver_count = COUNT_OF(solvers),
    .backward = &neighbourhood_backward_operator,
    .check = neighbourhood_self_check,
};

OPERATOR_CALLS(neighbourhood, clattn_neighbourhood_desc_init, clattn_neighbourhood_args_init,
               clattn_neighbourhood_supports, clattn_neighbourhood_plan_create, clattn_neighbourhood_enqueue,
               clattn_neighbourhood_prewarm, clattn_neighbourhood_run)
