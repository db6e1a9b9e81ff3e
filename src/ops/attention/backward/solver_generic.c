/* Attention's backward direction on every device and for every shape. */
#include "base/size.h"
#include "base/try.h"
#include "ops/attention/backward/backward.h"
#include "ops/common/arrays.h"
#include "program/defines.h"

#define FILE_NAME "attention/backward/generic.cl"
#define MOST_COLUMNS 1024 /* of an item on a CPU */

/* Columns of a work-item: all on a CPU, because each chunk computes the weights anew; few where registers are. */
static size_t chunk_of(const struct capabilities *caps, const struct attention_problem *problem)
{
    const bool wide = capabilities_on_cpu(caps) && !(caps->quirks & QUIRK_LOOPS_STOP);
    return size_min(size_max(problem->d_k, problem->d_v), wide ? MOST_COLUMNS : 8);
}

static const char *refuse(const struct offer *offer)
{
    const struct attention_problem *problem = offer->problem;
    const double pair = (double)(problem->d_k + problem->d_v) / 2 + 2 * (double)chunk_of(offer->caps, problem);
    const double group = (double)(problem->heads / size_max(problem->kv_heads, 1));
    const double pairs = (double)size_max(problem->key_length, problem->query_length) * group;
    const char *reason = attention_refuse(offer->caps, problem);
    return reason ? reason : refuse_loops(offer->caps, pairs * pair);
}

static void define(const struct attention_backward_plan *plan, struct strbuf *options)
{
    const struct attention_problem *problem = &plan->problem;
    static const struct {
        enum attention_gradient gradient;
        const char *flag, *type;
    } gradients[] = {
        {GRADIENT_OUTPUT, NULL, "DO_TYPE"},
        {GRADIENT_LSE, "GRADIENT_LSE", NULL},
        {GRADIENT_QUERY, "GRADIENT_QUERY", "DQ_TYPE"},
        {GRADIENT_KEY, "GRADIENT_KEY", "DK_TYPE"},
        {GRADIENT_VALUE, "GRADIENT_VALUE", "DV_TYPE"},
        {GRADIENT_VECTOR, "GRADIENT_VECTOR", NULL},
    };
    attention_defines(problem, &plan->base.context->device.caps, options);
    define_int(options, "CHUNK", (long long)plan->chunk);
    for (size_t i = 0; i < COUNT_OF(gradients); i++) {
        if (!problem->gradient[gradients[i].gradient])
            continue;
        if (gradients[i].flag)
            define_int(options, gradients[i].flag, 1);
        if (gradients[i].type)
            define_token(options, gradients[i].type,
                         storage_token(attention_gradient_layout(&problem->desc, gradients[i].gradient)->dtype));
    }
}

static clattn_status add(struct attention_backward_plan *plan, int which, const char *name, cl_uint pointers,
                         const size_t local[3])
{
    struct strbuf options = {0};
    define(plan, &options);
    plan->kernel[which] = plan->base.kernel_count;
    return plan_add_kernel(&plan->base, FILE_NAME, &options, name, pointers, sizeof(attention_args), local, NULL);
}

static clattn_status prepare(clattn_plan *base)
{
    clattn_status status;
    struct attention_backward_plan *plan = (struct attention_backward_plan *)base;
    const struct attention_problem *problem = &plan->problem;
    const struct capabilities *caps = &base->context->device.caps;
    static const size_t one[3] = {1, 1, 1};
    plan->chunk = chunk_of(caps, problem);
    plan->items = capabilities_on_cpu(caps) ? 1 : size_min(32, caps->info.max_work_item[1]);
    plan->base.efficiency = 0.01;
    for (int i = 0; i < BACKWARD_KERNELS; i++)
        plan->kernel[i] = NO_KERNEL;
    const size_t local[3] = {1, plan->items, 1};
    TRY(add(plan, BACKWARD_ROWS, "attention_backward_rows", BACKWARD_ROWS_POINTERS, local));
    if (problem->gradient[GRADIENT_KEY] || problem->gradient[GRADIENT_VALUE])
        TRY(add(plan, BACKWARD_KEYS, "attention_backward_keys", BACKWARD_KEYS_POINTERS, local));
    if (backward_has_pairs(problem))
        TRY(add(plan, BACKWARD_PAIRS, "attention_backward_pairs", BACKWARD_PAIRS_POINTERS, one));
    if (backward_sums(problem))
        TRY(add(plan, BACKWARD_SUM, "attention_backward_sum", BACKWARD_SUM_POINTERS, one));
    if (!backward_workspace(problem, &base->workspace))
        status = report_error(&base->context->device.report, CLATTN_ERROR_OVERFLOW, "a workspace overflows");
fail:
    return status;
}

const struct solver attention_backward_generic_solver = {.name = "generic", .refuse = refuse, .prepare = prepare};
