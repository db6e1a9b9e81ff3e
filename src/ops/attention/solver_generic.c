/* Attention on every device and for every shape: one work-item for some output columns of one query. */
#include "base/size.h"
#include "ops/attention/plan.h"
#include "program/defines.h"

#define MOST_COLUMNS 16384 /* of an item on a CPU: 128 KiB of double */

/* Output columns of a work-item: all on a CPU, because each chunk computes the scores anew; few where an item has
 * few registers: on Intel's dg2 16 spill with ALiBi and lengths, and 8 let twice the items share a thread. */
static size_t chunk_of(const struct capabilities *caps, const struct attention_problem *problem)
{
    bool wide = capabilities_on_cpu(caps) && !(caps->quirks & QUIRK_LOOPS_STOP);
    bool narrow = caps->registers && caps->registers < 256;
    return size_min(problem->d_v, wide ? MOST_COLUMNS : narrow ? 8 : 16);
}

static const char *refuse(const struct offer *offer)
{
    const struct attention_problem *problem = offer->problem;
    double chunk = (double)chunk_of(offer->caps, problem);
    double each = (double)problem->d_k / 2 + 2 * chunk + 2;
    const char *reason = attention_refuse(offer->caps, problem);
    if (reason)
        return reason;
    const size_t keys = size_max(problem->key_length, attention_check_keys(problem)); /* the self-check runs, too */
    return refuse_loops(offer->caps, (double)keys * each + 4 * chunk);
}

static void groups(const struct attention_plan *plan, const attention_args *kernel_args, size_t count[3])
{
    count[0] = divide_up(plan->problem.d_v, plan->column_chunk);
    count[1] = divide_up((size_t)kernel_args->query_length, plan->queries_per_group);
    count[2] = (size_t)kernel_args->batch * (size_t)kernel_args->heads;
}

static clattn_status prepare(clattn_plan *base)
{
    struct attention_plan *plan = (struct attention_plan *)base;
    /* On a CPU every item is a loop anyway; on a GPU neighbouring queries fill a wave. */
    bool cpu = capabilities_on_cpu(&base->context->device.caps);
    size_t items = cpu ? 1 : size_min(32, base->context->device.caps.info.max_work_item[1]);
    const size_t local[3] = {1, items, 1};
    struct strbuf options = {0};
    attention_begin_geometry(plan);
    plan->column_chunk = chunk_of(&base->context->device.caps, &plan->problem);
    plan->queries_per_group = items;
    plan->groups = groups;
    plan->base.efficiency = 0.01;
    attention_defines(&plan->problem, &base->context->device.caps, &options);
    define_int(&options, "D_V_CHUNK", (long long)plan->column_chunk);
    return attention_add_kernel(plan, "attention/generic.cl", "attention_generic", &options, local);
}

const struct solver attention_generic_solver = {.name = "generic", .refuse = refuse, .prepare = prepare};
