/* The attention operator: planning and enqueueing. */
#include "ops/attention/launch.h"

#include <stdlib.h>
#include <string.h>

#include "base/try.h"
#include "ops/common/arrays.h"
#include "plan/operator.h"
#include "program/snippet.h"

/* Best first. */
static const struct solver *const solvers[] = {
    &attention_cpu_amx_solver,      &attention_cpu_bf16_solver,
    &attention_cpu_solver,          &attention_decode_solver,
    &attention_matrix_solver,       &attention_sub_group_solver,
    &attention_tile_solver,         &attention_generic_solver,
    &attention_emulated_mma_solver, &attention_emulated_sub_group_solver,
};

static void release_snippets(clattn_plan *plan)
{
    free(((struct attention_plan *)plan)->snippets);
}

clattn_status attention_take_snippets(clattn_plan *base)
{
    struct attention_plan *plan = (struct attention_plan *)base;
    struct attention_problem *problem = &plan->problem;
    const struct {
        const char **text, *name, *signature;
    } all[SOURCE_SNIPPETS] = {
        {&problem->score_mod, "score_mod",
         "float score_mod(float score, int batch, int head, int query, int key, user_data user)"},
        {&problem->mask_mod, "mask_mod", "int mask_mod(int batch, int head, int query, int key, user_data user)"},
        {&problem->score_mod_grad, "score_mod_grad",
         "float score_mod_grad(float score, int batch, int head, int query, int key, user_data user)"},
    };
    size_t bytes = 0;
    if (!attention_has_snippet(problem))
        return CLATTN_SUCCESS;
    for (size_t i = 0; i < SOURCE_SNIPPETS; i++)
        bytes += *all[i].text ? strlen(*all[i].text) + 1 : 0;
    plan->snippets = malloc(bytes);
    if (!plan->snippets)
        return report_error(&base->context->device.report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for the snippets");
    base->clear = release_snippets;
    char *to = plan->snippets;
    for (size_t i = 0; i < SOURCE_SNIPPETS; i++) {
        const size_t size = *all[i].text ? strlen(*all[i].text) + 1 : 0;
        *all[i].text = size ? memcpy(to, *all[i].text, size) : NULL;
        to += size;
        base->snippets.snippet[i] = (struct source_snippet){all[i].name, size ? *all[i].text : "", all[i].signature};
    }
    return CLATTN_SUCCESS;
}

clattn_status attention_check_snippets(clattn_plan *base)
{
    const struct attention_problem *problem = &((struct attention_plan *)base)->problem;
    const struct device *device = &base->context->device;
    struct strbuf options = {0};
    clattn_status status;
    if (!attention_has_snippet(problem))
        return CLATTN_SUCCESS;
    attention_defines(problem, &device->caps, &options);
    capabilities_define(&device->caps, 1, &options);
    if (options.failed)
        status = report_error(&base->context->device.report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for build options");
    else
        status =
            snippets_check(&base->context->programs, "attention/user.h", options.text, &base->snippets, &base->explain);
    strbuf_clear(&options);
    return status;
}

static clattn_status enqueue(const clattn_plan *handle, const struct enqueue_call *call, const void *given)
{
    clattn_status status;
    const struct attention_plan *plan = (const struct attention_plan *)handle;
    const struct attention_problem *problem = call->problem;
    clattn_attention_args args;
    struct chain chain;
    TRY(attention_args_read(handle->context, problem, given, &args));
    if (attention_is_empty(problem, &args))
        return plan_enqueue_nothing(handle, call);
    status = chain_begin(&chain, handle->context, call, &args.workspace);
    if (status == CLATTN_SUCCESS)
        status = attention_launch(plan, problem, &chain, &args);
    return chain_end(&chain, status);
fail:
    return status;
}

/* What decides about speed besides the sizes, a bit each. */
static unsigned flags_of(const struct attention_problem *problem)
{
    const clattn_attention_desc *desc = &problem->desc;
    const clattn_layout *key = &desc->key;
    const bool flags[] = {
        attention_windowed(desc),
        desc->scoring.softcap > 0,
        desc->dropout.probability > 0,
        desc->scoring.kind != CLATTN_SCORE_DOT,
        problem->score_mod != NULL,
        problem->mask_mod != NULL,
        problem->packed_queries,
        problem->packed_keys,
        key->stride[3] != 1 || desc->value.stride[3] != 1,
        key->stride[1] < key->stride[2], /* heads inside rows */
    };
    unsigned bits = 0;
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        bits |= (unsigned)flags[i] << i;
    return bits;
}

static void shape_bucket(const void *data, struct strbuf *text)
{
    const struct attention_problem *problem = data;
    const clattn_attention_desc *desc = &problem->desc;
    size_t kv_heads = problem->kv_heads ? problem->kv_heads : 1;
    unsigned arrays = 0;
    for (int i = 0; i < ATTENTION_ARRAYS; i++)
        arrays |= (unsigned)problem->has[i] << i;
    strbuf_printf(text, "b%zu-h%zu-g%zu-q%zu-k%zu-d%zu.%zu", bucket_length(problem->batch), bucket_length(kv_heads),
                  problem->heads / kv_heads, bucket_length(problem->query_length), bucket_length(problem->key_length),
                  problem->d_k, problem->d_v);
    strbuf_printf(text, "-%s.%s.%s.%s", storage_token(desc->query.dtype), storage_token(desc->key.dtype),
                  storage_token(desc->value.dtype), storage_token(desc->output.dtype));
    if (desc->causal)
        strbuf_printf(text, "-causal%d", (int)desc->alignment);
    if (desc->cache.kind != CLATTN_CACHE_KIND_PLAIN)
        strbuf_printf(text, "-cache%d.%zu", (int)desc->cache.kind, problem->page_size);
    strbuf_printf(text, "-x%x.%x", arrays, flags_of(problem));
}

static const struct layout_place layouts[] = {
    LAYOUT_PLACE(attention, query),
    LAYOUT_PLACE(attention, key),
    LAYOUT_PLACE(attention, value),
    LAYOUT_PLACE(attention, output),
    LAYOUT_PLACE(attention, mask),
    LAYOUT_PLACE(attention, bias),
    {NULL, 0},
};

static const struct operator_type attention_operator = {
    .name = "attention",
    .bytes = {sizeof(struct attention_plan), offsetof(struct attention_plan, problem), sizeof(struct attention_problem),
              ATTENTION_DESC_BYTES, offsetof(clattn_attention_args, control)},
    .read = attention_problem_read,
    .enqueue = enqueue,
    .layouts = layouts,
    .take = attention_take_snippets,
    .begin = attention_check_snippets,
    .solvers = solvers,
    .solver_count = sizeof solvers / sizeof solvers[0],
    .check = attention_self_check,
    .shape_bucket = shape_bucket,
    .backward = &attention_backward_operator,
};

OPERATOR_CALLS(attention, clattn_attention_desc_init, clattn_attention_args_init, clattn_attention_supports,
               clattn_attention_plan_create, clattn_attention_enqueue, clattn_attention_prewarm, clattn_attention_run)
