/* The operator that appends to a cache: planning and enqueueing. */
#include "ops/kv_append/kv_append.h"

#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "plan/operator.h"
#include "program/defines.h"

static clattn_status read_desc(const void *desc, void *problem, const char **reason)
{
    return kv_append_problem_read(desc, problem, reason);
}

static void define_optional(struct strbuf *options, const char *name, const clattn_layout *layout)
{
    if (layout->dtype != CLATTN_DTYPE_NONE)
        define_token(options, name, storage_token(layout->dtype));
}

static void defines(const struct kv_append_problem *problem, struct strbuf *options)
{
    const clattn_kv_append_desc *desc = &problem->desc;
    define_token(options, "K_TYPE", storage_token(desc->key.dtype));
    define_token(options, "V_TYPE", storage_token(desc->value.dtype));
    define_token(options, "KEY_CACHE_TYPE", storage_token(desc->key_cache.dtype));
    define_token(options, "VALUE_CACHE_TYPE", storage_token(desc->value_cache.dtype));
    define_int(options, "D_K", (long long)problem->size[KV_KEY]);
    define_int(options, "D_V", (long long)problem->size[KV_VALUE]);
    define_int(options, "KEY_UNIT", (long long)problem->unit[KV_KEY]);
    define_int(options, "VALUE_UNIT", (long long)problem->unit[KV_VALUE]);
    define_int(options, "KEY_GROUPS", problem->has_scale[KV_KEY]);
    define_int(options, "VALUE_GROUPS", problem->has_scale[KV_VALUE]);
    define_optional(options, "KEY_SCALE_TYPE", &desc->key_scale);
    define_optional(options, "VALUE_SCALE_TYPE", &desc->value_scale);
    define_optional(options, "PAGED", &desc->block_table);
    define_optional(options, "PAST_LENGTHS", &desc->past_lengths);
    define_optional(options, "NEW_LENGTHS", &desc->new_lengths);
    define_int(options, "ROTATE", desc->rotate);
    define_int(options, "RING", desc->cache == CLATTN_CACHE_KIND_RING);
}

static size_t units(const struct kv_append_problem *problem)
{
    return size_max(problem->size[KV_KEY] / problem->unit[KV_KEY], problem->size[KV_VALUE] / problem->unit[KV_VALUE]);
}

static const char *refuse(const clattn_context *context, const void *data, bool forced)
{
    const struct kv_append_problem *problem = data;
    (void)forced;
    return refuse_loops(&context->device.caps,
                        (double)size_max(problem->unit[KV_KEY], problem->unit[KV_VALUE]) * (ROPE_RATIOS + 4));
}

static clattn_status prepare(clattn_plan *base)
{
    clattn_status status;
    const struct kv_append_problem *problem = &((struct kv_append_plan *)base)->problem;
    const struct capabilities *caps = &base->context->device.caps;
    /* On a GPU the units of a row fill a wave. */
    size_t items = capabilities_on_cpu(caps) ? 1 : size_min(size_min(32, units(problem)), caps->info.max_work_item[0]);
    const size_t local[3] = {items, 1, 1};
    struct strbuf options = {0};
    cl_uint pointers = 4u + problem->has_scale[KV_KEY] + problem->has_scale[KV_VALUE] + problem->has_past +
                       problem->has_new + (problem->desc.cache == CLATTN_CACHE_KIND_PAGED);
    defines(problem, &options);
    TRY(plan_add_kernel(base, "kv_append/kv_append.cl", &options, "kv_append", pointers, sizeof(kv_append_args),
                        local));
    plan_kernel_largest(&base->kernels[0], (const size_t[3]){divide_up(units(problem), items),
                                                             problem->batch * problem->heads * problem->length, 2});
    base->launches = 1;
fail:
    return status;
}

static const struct solver kv_append_generic_solver = {.name = "generic", .refuse = refuse, .prepare = prepare};
static const struct solver *const solvers[] = {&kv_append_generic_solver};

/* In the kernel's order. */
static void bind(const struct kv_append_problem *problem, const clattn_kv_append_args *args,
                 const clattn_binding **bindings)
{
    size_t count = 0;
    bindings[count++] = &args->key;
    bindings[count++] = &args->value;
    if (problem->desc.cache == CLATTN_CACHE_KIND_PAGED)
        bindings[count++] = &args->block_table;
    if (problem->has_past)
        bindings[count++] = &args->past_lengths;
    if (problem->has_new)
        bindings[count++] = &args->new_lengths;
    if (problem->has_scale[KV_KEY])
        bindings[count++] = &args->key_scale;
    if (problem->has_scale[KV_VALUE])
        bindings[count++] = &args->value_scale;
    bindings[count++] = &args->key_cache;
    bindings[count++] = &args->value_cache;
}

static clattn_status enqueue(const clattn_plan *handle, const struct enqueue_call *call, const void *given)
{
    clattn_status status;
    const struct kv_append_problem *problem = call->problem;
    clattn_kv_append_args args;
    kv_append_args kernel_args;
    TRY(kv_append_args_read(handle->context, problem, given, &args));
    if (!args.batch || !problem->heads || !args.length)
        return plan_enqueue_nothing(handle, call);
    const clattn_binding *bindings[9];
    bind(problem, &args, bindings);
    kv_append_fill_args(problem, &args, &kernel_args);
    const size_t groups[3] = {divide_up(units(problem), handle->kernels[0].local[0]),
                              args.batch * problem->heads * args.length, 2};
    status = plan_enqueue_kernel(handle, call, bindings, &kernel_args, groups);
fail:
    return status;
}

static const struct operator_type kv_append_operator = {
    .name = "kv_append",
    .plan_bytes = sizeof(struct kv_append_plan),
    .problem_offset = offsetof(struct kv_append_plan, problem),
    .problem_bytes = sizeof(struct kv_append_problem),
    .desc_bytes = sizeof(clattn_kv_append_desc),
    .read = read_desc,
    .enqueue = enqueue,
    .solvers = solvers,
    .solver_count = sizeof solvers / sizeof solvers[0],
    .check = kv_append_self_check,
};

OPERATOR_CALLS(kv_append, clattn_kv_append_desc_init, clattn_kv_append_args_init, clattn_kv_append_supports,
               clattn_kv_append_plan_create, clattn_kv_append_enqueue, clattn_kv_append_prewarm, clattn_kv_append_run)
