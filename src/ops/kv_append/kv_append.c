/* The operator that appends to a cache: planning and enqueueing. */
#include "ops/kv_append/kv_append.h"

#include <string.h>

#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/common/simple_operator.h"
#include "plan/operator.h"
#include "program/defines.h"

#define ARRAYS 9 /* of the kernel */

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
    define_token(options, "KEY_SCALE_TYPE", storage_token(desc->key_scale.dtype));
    define_token(options, "VALUE_SCALE_TYPE", storage_token(desc->value_scale.dtype));
    define_token(options, "BLOCK_TYPE", integer_token(&desc->block_table));
    define_token(options, "PAST_TYPE", integer_token(&desc->past_lengths));
    define_token(options, "NEW_TYPE", integer_token(&desc->new_lengths));
    define_int(options, "PAGED", problem->is_paged);
    define_int(options, "PAST_LENGTHS", problem->has_past);
    define_int(options, "NEW_LENGTHS", problem->has_new);
    define_int(options, "ROTATE", desc->rotate);
    define_int(options, "RING", desc->cache == CLATTN_CACHE_KIND_RING);
}

/* The larger number of units in a row. */
static size_t units(const struct kv_append_problem *problem)
{
    return size_max(problem->size[KV_KEY] / problem->unit[KV_KEY], problem->size[KV_VALUE] / problem->unit[KV_VALUE]);
}

static const char *refuse(const struct offer *offer)
{
    const struct kv_append_problem *problem = offer->problem;
    return refuse_loops(offer->caps,
                        (double)size_max(problem->unit[KV_KEY], problem->unit[KV_VALUE]) * (ROPE_RATIOS + 4));
}

static clattn_status prepare(clattn_plan *base)
{
    const struct kv_append_problem *problem = &((struct kv_append_plan *)base)->problem;
    const struct capabilities *caps = &base->context->device.caps;
    /* On a GPU the units of a row fill a wave. */
    const size_t items =
        capabilities_on_cpu(caps) ? 1 : size_min(size_min(32, units(problem)), caps->info.max_work_item[0]);
    const size_t local[3] = {items, 1, 1};
    const size_t groups[3] = {divide_up(units(problem), items), problem->batch * problem->heads * problem->length, 2};
    struct strbuf options = {0};
    defines(problem, &options);
    return plan_add_kernel(base, "kv_append/kv_append.cl", &options, "kv_append", ARRAYS, sizeof(kv_append_args), local,
                           groups);
}

static const struct solver kv_append_generic_solver = {.name = "generic", .refuse = refuse, .prepare = prepare};
static const struct solver *const solvers[] = {&kv_append_generic_solver};

/* ---- an enqueue ---- */

static clattn_status read_args(struct report *report, const struct kv_append_problem *problem, const void *given,
                               clattn_kv_append_args *args)
{
    clattn_status status;
    const clattn_kv_append_desc *desc = &problem->desc;
    TRY(args_read(report, "clattn_kv_append_args", args, sizeof *args, sizeof *args, given));
    TRY(args_check(report, "explicit_lengths", args->explicit_lengths, args->reserved));
    if (args->past_length < 0)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "past_length is negative");
    TRY(args_length(report, "batch", args->explicit_lengths, &args->batch, problem->batch));
    TRY(args_length(report, "length", args->explicit_lengths, &args->length, problem->length));
    if (desc->cache == CLATTN_CACHE_KIND_RING && !problem->has_past &&
        (args->past_length > (int64_t)LENGTH_LIMIT || (size_t)args->past_length + args->length > LENGTH_LIMIT))
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT,
                            "a ring with %lld keys and %zu more would have had more than %zu",
                            (long long)args->past_length, args->length, LENGTH_LIMIT);
    if ((desc->key_cache.dtype == CLATTN_DTYPE_I4 && args->key_cache.offset % 2) ||
        (desc->value_cache.dtype == CLATTN_DTYPE_I4 && args->value_cache.offset % 2))
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "an int4 cache has an odd offset");
fail:
    return status;
}

/* Beyond any cache, and far from where the kernel's sums overflow. */
static int64_t limited(int64_t value)
{
    const int64_t limit = (int64_t)1 << 40;
    return value > limit ? limit : value < -limit ? -limit : value;
}

static void fill_args(const struct kv_append_problem *problem, const clattn_kv_append_args *args, kv_append_args *a)
{
    const clattn_kv_append_desc *desc = &problem->desc;
    memset(a, 0, sizeof *a);
    a->key = array4_of(&desc->key, args->key.offset);
    a->value = array4_of(&desc->value, args->value.offset);
    a->key_cache = array4_of(&desc->key_cache, args->key_cache.offset);
    a->value_cache = array4_of(&desc->value_cache, args->value_cache.offset);
    a->key_scale = array4_of(&desc->key_scale, args->key_scale.offset);
    a->value_scale = array4_of(&desc->value_scale, args->value_scale.offset);
    a->block_table = (array4){args->block_table.offset, desc->block_table.stride[0], 0, 0, desc->block_table.stride[1]};
    a->past_lengths = (array1){args->past_lengths.offset, desc->past_lengths.stride[0]};
    a->new_lengths = (array1){args->new_lengths.offset, desc->new_lengths.stride[0]};
    a->past_length = limited(args->past_length);
    a->position = limited(args->position);
    a->rope = problem->rope;
    a->batch = (int)args->batch;
    a->heads = (int)problem->heads;
    a->length = (int)args->length;
    a->capacity = (int)desc->key_cache.extent[2];
    a->pages = (int)desc->key_cache.extent[0];
    a->blocks = (int)desc->block_table.extent[1];
}

static clattn_status enqueue(const clattn_plan *plan, const struct enqueue_call *call, const void *given)
{
    clattn_status status;
    const struct kv_append_problem *problem = call->problem;
    const clattn_kv_append_desc *desc = &problem->desc;
    clattn_kv_append_args args;
    kv_append_args kernel_args;
    TRY(read_args(&plan->context->device.report, problem, given, &args));
    fill_args(problem, &args, &kernel_args);
    const size_t k[4] = {args.batch, problem->heads, args.length, problem->size[KV_KEY]};
    const size_t v[4] = {args.batch, problem->heads, args.length, problem->size[KV_VALUE]};
    const size_t table[2] = {args.batch, desc->block_table.extent[1]};
    const struct bound_array arrays[ARRAYS] = {
        {&args.key, &desc->key, k, BINDING_READ, "key", true},
        {&args.value, &desc->value, v, BINDING_READ, "value", true},
        {&args.block_table, &desc->block_table, table, BINDING_READ, "block_table", problem->is_paged},
        {&args.past_lengths, &desc->past_lengths, k, BINDING_READ, "past_lengths", problem->has_past},
        {&args.new_lengths, &desc->new_lengths, k, BINDING_READ, "new_lengths", problem->has_new},
        /* Stored scales are read again: the integers belong to the rounded scale. */
        {&args.key_scale, &desc->key_scale, desc->key_scale.extent, BINDING_READ_WRITE, "key_scale",
         problem->has_scale[KV_KEY]},
        {&args.value_scale, &desc->value_scale, desc->value_scale.extent, BINDING_READ_WRITE, "value_scale",
         problem->has_scale[KV_VALUE]},
        {&args.key_cache, &desc->key_cache, desc->key_cache.extent, BINDING_WRITE, "key_cache", true},
        {&args.value_cache, &desc->value_cache, desc->value_cache.extent, BINDING_WRITE, "value_cache", true},
    };
    const size_t groups[3] = {divide_up(units(problem), plan->kernels[0].local[0]),
                              args.batch * problem->heads * args.length, 2};
    const double rows = (double)args.batch * (double)problem->heads * (double)args.length;
    const double elements = rows * (double)(problem->size[KV_KEY] + problem->size[KV_VALUE]);
    status = simple_enqueue(plan, call, arrays, ARRAYS, elements, &kernel_args, groups);
fail:
    return status;
}

static const struct layout_place layouts[] = {
    LAYOUT_PLACE(kv_append, key),         LAYOUT_PLACE(kv_append, value),
    LAYOUT_PLACE(kv_append, key_cache),   LAYOUT_PLACE(kv_append, value_cache),
    LAYOUT_PLACE(kv_append, key_scale),   LAYOUT_PLACE(kv_append, value_scale),
    LAYOUT_PLACE(kv_append, block_table), LAYOUT_PLACE(kv_append, past_lengths),
    LAYOUT_PLACE(kv_append, new_lengths), {NULL, 0},
};

static const struct operator_type kv_append_operator = {
    .name = "kv_append",
    .bytes = OPERATOR_BYTES(kv_append),
    .read = kv_append_problem_read,
    .enqueue = enqueue,
    .layouts = layouts,
    .solvers = solvers,
    .solver_count = COUNT_OF(solvers),
    .check = kv_append_self_check,
};

OPERATOR_CALLS(kv_append, clattn_kv_append_desc_init, clattn_kv_append_args_init, clattn_kv_append_supports,
               clattn_kv_append_plan_create, clattn_kv_append_enqueue, clattn_kv_append_prewarm, clattn_kv_append_run)
