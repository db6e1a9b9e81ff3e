/* Neighbourhood attention on every device and for every shape: one work-item for some columns of one query. */
#include "base/size.h"
#include "base/try.h"
#include "ops/neighbourhood/neighbourhood.h"
#include "program/defines.h"

/* Output columns of a work-item: many on a CPU, where each chunk computes the scores anew. */
static size_t chunk_of(const struct capabilities *caps, const struct neighbourhood_problem *problem)
{
    bool wide = capabilities_on_cpu(caps) && !(caps->quirks & QUIRK_LOOPS_STOP);
    return size_min(problem->d_v, wide ? 64 : 16);
}

static const char *refuse(const struct offer *offer)
{
    const struct neighbourhood_problem *problem = offer->problem;
    double chunk = (double)chunk_of(offer->caps, problem);
    double keys = (double)neighbourhood_keys(problem, 0) * (double)neighbourhood_keys(problem, 1);
    return refuse_loops(offer->caps, keys * ((double)problem->d_k / 2 + 2 * chunk + 3) + 4 * chunk);
}

static clattn_status groups_of(const struct neighbourhood_plan *plan, const struct neighbourhood_problem *problem,
                               const size_t local[3], size_t batch, size_t query_height, size_t query_width,
                               size_t groups[3])
{
    groups[0] = divide_up(query_width, local[0]);
    groups[1] = divide_up(query_height, local[1]);
    if (size_mul(batch * problem->heads, divide_up(problem->d_v, plan->chunk), &groups[2]))
        return CLATTN_SUCCESS;
    return report_error(&plan->base.context->device.report, CLATTN_ERROR_OVERFLOW, "too many work-groups");
}

static clattn_status launch(const struct neighbourhood_plan *plan, const struct neighbourhood_problem *problem,
                            struct chain *chain, const clattn_neighbourhood_args *args, neighbourhood_args *kernel_args)
{
    const clattn_binding *bindings[] = {&args->query,  &args->key,
                                        &args->value,  problem->has_bias ? &args->bias : NULL,
                                        &args->output, problem->has_lse ? &args->lse : NULL};
    size_t groups[3];
    clattn_status status = groups_of(plan, problem, plan->base.kernels[0].local, args->batch, args->query_height,
                                     args->query_width, groups);
    return status != CLATTN_SUCCESS ? status : chain_launch(chain, &plan->base, 0, bindings, kernel_args, groups, true);
}

static clattn_status prepare(clattn_plan *base)
{
    clattn_status status;
    struct neighbourhood_plan *plan = (struct neighbourhood_plan *)base;
    const struct neighbourhood_problem *problem = &plan->problem;
    const struct capabilities *caps = &base->context->device.caps;
    /* Work-groups have one item on a CPU, where every item is a loop anyway; on a GPU neighbouring queries fill a
     * wave and share keys. */
    const size_t local[3] = {capabilities_on_cpu(caps) ? 1 : size_min(32, caps->info.max_work_item[0]), 1, 1};
    struct strbuf options = {0};
    size_t groups[3];
    plan->chunk = chunk_of(caps, problem);
    plan->launch = launch;
    plan->workspace = NULL;
    TRY(groups_of(plan, problem, local, problem->batch, problem->query_height, problem->query_width, groups));
    neighbourhood_defines(problem, &options);
    define_int(&options, "D_V_CHUNK", (long long)plan->chunk);
    status = plan_add_kernel(base, "neighbourhood/generic.cl", &options, "neighbourhood_generic", 6,
                             sizeof(neighbourhood_args), local, groups);
fail:
    return status;
}

const struct solver neighbourhood_generic_solver = {.name = "generic", .refuse = refuse, .prepare = prepare};
