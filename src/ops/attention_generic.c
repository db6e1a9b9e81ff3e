/* Attention on every device and for every shape: one work-item for some output columns of one query. */
#include "base/size.h"
#include "ops/attention.h"
#include "program/defines.h"

static const char *refuse(const clattn_context *context, const void *data, bool forced)
{
    (void)context;
    (void)data;
    (void)forced;
    return NULL;
}

static void groups(const struct attention_plan *plan, size_t batch, size_t query_length, size_t count[3])
{
    count[0] = divide_up(plan->problem.d_v, plan->column_chunk);
    count[1] = divide_up(query_length, plan->queries_per_group);
    count[2] = batch * plan->problem.heads;
}

static clattn_status prepare(clattn_plan *base)
{
    struct attention_plan *plan = (struct attention_plan *)base;
    /* On a CPU every item is a loop anyway; on a GPU neighbouring queries fill a wave. */
    bool cpu = capabilities_on_cpu(&base->context->device.caps);
    size_t items = cpu ? 1 : size_min(32, base->context->device.caps.info.max_work_item[1]);
    const size_t local[3] = {1, items, 1};
    struct strbuf options = {0};
    plan->column_chunk = size_min(plan->problem.d_v, cpu ? 64 : 16);
    plan->queries_per_group = items;
    plan->groups = groups;
    attention_defines(&plan->problem, &options);
    define_int(&options, "D_V_CHUNK", (long long)plan->column_chunk);
    return attention_add_kernel(plan, "attention_generic.cl", "attention_generic", &options, local);
}

const struct solver attention_generic_solver = {"generic", refuse, prepare};
