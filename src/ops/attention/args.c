/* Fills what the kernels are told from a problem and an enqueue's arguments. */
#include <math.h>
#include <string.h>

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/attention/launch.h"

_Static_assert(sizeof(array4) == 40 && sizeof(array2) == 24 && sizeof(array1) == 16, "arrays have padding");
_Static_assert(sizeof(attention_args) == 24 + 11 * 40 + 3 * 24 + 6 * 16 + 9 * 8 + 28 * 4, "attention_args has padding");
_Static_assert(sizeof(attention_args) + ATTENTION_POINTERS * 8 <= 1024, "too many arguments");
_Static_assert(4 + ATTENTION_ARRAYS + ATTENTION_GRADIENTS + CLATTN_USER_BUFFERS <= BOUND_MOST, "too many arrays");

/* ---- the struct ---- */

static array1 array1_of(const clattn_layout *layout, int64_t offset)
{
    return (array1){offset, layout->stride[0]};
}

/* A first dimension of extent 1 broadcasts. */
static array2 array2_of(const clattn_layout *layout, int64_t offset)
{
    return (array2){offset, layout->extent[0] == 1 ? 0 : layout->stride[0], layout->stride[1]};
}

/* (batch, heads, S_q), of which packed queries have batch 1. */
static array4 row_result(const struct attention_problem *problem, const clattn_layout *layout, int64_t offset)
{
    array4 array = {offset, layout->stride[0], layout->stride[1], layout->stride[2], 0};
    if (problem->packed_queries)
        array.batch = 0;
    return array;
}

static array4 packable(const clattn_layout *layout, int64_t offset, bool packed)
{
    array4 array = array4_of(layout, offset);
    if (packed)
        array.batch = 0;
    return array;
}

/* What a mask or bias covers. */
static int covered(size_t keys, const clattn_attention_args *args)
{
    return (int)(keys != 1 ? size_min(keys, args->key_length) : args->key_length);
}

/* The key position of the part's query 0.  The caller's is brought into the range in which it makes a difference to lengths below
 * 2^31, so that sums stay in range. */
static int64_t position_of(const struct attention_problem *problem, const clattn_attention_args *args)
{
    const int64_t limit = (int64_t)1 << 40;
    int64_t position = 0;
    if (problem->desc.alignment == CLATTN_ALIGNMENT_BOTTOM_RIGHT)
        position = (int64_t)args->whole.key_length - (int64_t)args->whole.query_length;
    else if (problem->desc.alignment == CLATTN_ALIGNMENT_EXPLICIT)
        position = args->position < -limit - 1 ? -limit - 1 : args->position > limit ? limit : args->position;
    if (!problem->packed_queries) /* whose items have their own */
        position += (int64_t)args->whole.query;
    if (!problem->packed_keys)
        position -= (int64_t)args->whole.key;
    return position;
}

static void fill_optional(const struct attention_problem *problem, const clattn_attention_args *args, attention_args *a)
{
    const clattn_attention_desc *desc = &problem->desc;
    a->mask = problem->mask;
    a->mask.offset = args->mask.offset;
    a->bias = problem->bias;
    a->bias.offset = args->bias.offset;
    a->mask_keys = problem->has[ATTENTION_MASK] ? covered(problem->mask_extent[3], args) : a->key_length;
    a->bias_keys = problem->has[ATTENTION_BIAS] ? covered(problem->bias_extent[3], args) : a->key_length;
    if (problem->has[ATTENTION_LSE])
        a->lse = row_result(problem, &desc->outputs.lse, args->outputs.lse.offset);
    if (problem->has[ATTENTION_ENTROPY])
        a->entropy = row_result(problem, &desc->outputs.entropy, args->outputs.entropy.offset);
    if (problem->has[ATTENTION_SCORES])
        a->scores = array4_of(&desc->outputs.scores, args->outputs.scores.offset);
    a->key_scale = packable(&desc->cache.key_scale, args->cache.key_scale.offset, problem->packed_keys);
    a->value_scale = packable(&desc->cache.value_scale, args->cache.value_scale.offset, problem->packed_keys);
    a->vector = array2_of(&desc->scoring.vector, args->scoring.vector.offset);
    if (desc->scoring.alibi.rank == 1)
        a->alibi = (array2){args->scoring.alibi.offset, 0, desc->scoring.alibi.stride[0]};
    else
        a->alibi = array2_of(&desc->scoring.alibi, args->scoring.alibi.offset);
    a->block_table = array2_of(&desc->cache.block_table, args->cache.block_table.offset);
    a->sinks = array1_of(&desc->scoring.sinks, args->scoring.sinks.offset);
    a->query_lengths = array1_of(&desc->lengths.query, args->lengths.query.offset);
    a->key_lengths = array1_of(&desc->lengths.key, args->lengths.key.offset);
    a->positions = array1_of(&desc->lengths.positions, args->lengths.positions.offset);
    a->query_starts = array1_of(&desc->lengths.query_starts, args->lengths.query_starts.offset);
    a->key_starts = array1_of(&desc->lengths.key_starts, args->lengths.key_starts.offset);
    for (int i = 0; i < CLATTN_USER_BUFFERS; i++) {
        a->user_offset[i] = args->snippets.buffer[i].offset;
        a->user_scalar[i] = args->snippets.scalar[i];
    }
}

static args_long window_side(int64_t keys)
{
    return keys < 0 || keys > ATTENTION_UNBOUNDED ? ATTENTION_UNBOUNDED : keys;
}

void attention_fill_args(const struct attention_problem *problem, const clattn_attention_args *args, attention_args *a)
{
    const clattn_attention_desc *desc = &problem->desc;
    memset(a, 0, sizeof *a);
    a->query = packable(&desc->query, args->query.offset, problem->packed_queries);
    a->key = packable(&desc->key, args->key.offset, problem->packed_keys);
    a->value = packable(&desc->value, args->value.offset, problem->packed_keys);
    a->output = packable(&desc->output, args->output.offset, problem->packed_queries);
    a->position = position_of(problem, args);
    a->dropout_seed = (args_long)args->dropout.seed;
    memcpy(&a->scale_bits, &problem->exact_scale, sizeof a->scale_bits);
    a->batch = (int)args->batch;
    a->heads = (int)problem->heads;
    a->group = (int)(problem->heads / size_max(problem->kv_heads, 1));
    a->query_length = (int)args->query_length;
    a->key_length = (int)args->key_length;
    a->window_left = window_side(desc->window.left);
    a->window_right = desc->causal ? 0 : window_side(desc->window.right);
    a->capacity = (int)(desc->cache.kind == CLATTN_CACHE_KIND_PAGED ? desc->key.extent[0] : desc->key.extent[2]);
    a->packed_queries = (int)desc->query.extent[2];
    a->dropout_offset = args->dropout.offset;
    a->dropout_threshold = (uint32_t)ceil((double)desc->dropout.probability * 4294967296.0);
    a->dropout = desc->dropout.probability;
    a->dropout_scale = (float)(1.0 / (1.0 - (double)desc->dropout.probability));
    a->first_query = (int)args->whole.query;
    a->first_key = (int)args->whole.key;
    a->first_head = (int)(args->whole.batch * args->whole.heads + args->whole.head); /* of those of all items */
    a->whole_queries = (int)args->whole.query_length;
    a->whole_keys = (int)args->whole.key_length;
    a->whole_heads = (int)args->whole.heads;
    a->scale = problem->scale;
    a->softcap = desc->scoring.softcap;
    fill_optional(problem, args, a);
}

/* Keys that a query attends at the most. */
static double attended(const clattn_attention_desc *desc, double keys)
{
    const double right = desc->causal ? 0 : (double)desc->window.right;
    const double width = (double)desc->window.left + right + 1 + 64;
    const bool ends = desc->window.explicit_left && (desc->window.explicit_right || desc->causal);
    return ends && width < keys ? width : keys;
}

double attention_work(const struct attention_problem *problem, const clattn_attention_args *args)
{
    const double keys = (double)size_min(args->key_length, problem->key_length);
    const double rows = (double)args->batch * (double)problem->heads * (double)args->query_length;
    return rows * (attended(&problem->desc, keys) * 2 * (double)(problem->d_k + problem->d_v) + 1);
}

/* ---- reading an enqueue's arguments ---- */

static const char *const user_name[CLATTN_USER_BUFFERS] = {"snippets.buffer[0]", "snippets.buffer[1]",
                                                           "snippets.buffer[2]", "snippets.buffer[3]"};

static clattn_status read_lengths(struct report *report, const struct attention_problem *problem,
                                  clattn_attention_args *args)
{
    bool ring = problem->desc.cache.kind == CLATTN_CACHE_KIND_RING;
    size_t most_keys = ring ? LENGTH_LIMIT : problem->key_length;
    if (args->explicit_lengths != 0 && args->explicit_lengths != 1)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "explicit_lengths is neither 0 nor 1");
    if (!args->explicit_lengths) {
        args->batch = problem->batch;
        args->query_length = problem->query_length;
        args->key_length = problem->key_length;
    }
    if (ring && problem->has[ATTENTION_KEY_LENGTHS])
        args->key_length = most_keys; /* it turns as far as its items' own lengths say */
    if (args->batch > problem->batch || args->query_length > problem->query_length || args->key_length > most_keys)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT,
                            "batch %zu, query length %zu or key length %zu is above the plan's %zu, %zu, %zu",
                            args->batch, args->query_length, args->key_length, problem->batch, problem->query_length,
                            most_keys);
    return CLATTN_SUCCESS;
}

static clattn_status check_absent(clattn_context *context, const struct attention_problem *problem,
                                  const clattn_attention_args *args)
{
    clattn_status status = CLATTN_SUCCESS;
    for (int i = 0; i < ATTENTION_ARRAYS; i++)
        if (!problem->has[i])
            TRY(binding_absent(context, attention_binding(args, i), attention_arrays[i].name));
    for (int i = 0; i < ATTENTION_GRADIENTS; i++)
        if (!problem->gradient[i])
            TRY(binding_absent(context, attention_gradient_binding(args, i), attention_gradients[i].name));
    for (int i = 0; i < CLATTN_USER_BUFFERS; i++)
        if (problem->desc.snippets.buffer_dtype[i] == CLATTN_DTYPE_NONE)
            TRY(binding_absent_field(context, &args->snippets.buffer[i], user_name[i], "user_dtype"));
fail:
    return status;
}

/* How much of each extent of an optional array an enqueue reaches. */
static void reached(const struct attention_problem *problem, const clattn_attention_args *args,
                    enum attention_array array, size_t extent[CLATTN_MAX_RANK])
{
    const clattn_layout *layout = attention_layout(&problem->desc, array);
    bool paged = problem->desc.cache.kind == CLATTN_CACHE_KIND_PAGED;
    memcpy(extent, layout->extent, sizeof layout->extent);
    switch (array) {
    case ATTENTION_KEY_SCALE:
    case ATTENTION_VALUE_SCALE:
        if (!paged && !problem->packed_keys) {
            extent[0] = args->batch;
            extent[2] = size_min(extent[2], args->key_length);
        }
        break;
    case ATTENTION_LSE:
    case ATTENTION_ENTROPY:
        if (!problem->packed_queries) {
            extent[0] = args->batch;
            extent[2] = args->query_length;
        }
        break;
    case ATTENTION_SCORES:
        extent[0] = args->batch;
        extent[2] = args->query_length;
        extent[3] = args->key_length;
        break;
    case ATTENTION_QUERY_LENGTHS:
    case ATTENTION_KEY_LENGTHS:
    case ATTENTION_POSITIONS: extent[0] = args->batch; break;
    case ATTENTION_QUERY_STARTS:
    case ATTENTION_KEY_STARTS: extent[0] = args->batch + 1; break;
    case ATTENTION_BLOCK_TABLE:
        extent[0] = args->batch;
        extent[1] = divide_up(args->key_length, problem->page_size);
        break;
    default: break;
    }
}

/* How an enqueue accesses an optional array; the probabilities are made from the log-sum-exp. */
static enum binding_access access_of(const struct attention_problem *problem, enum attention_array array)
{
    bool again = array == ATTENTION_LSE && problem->has[ATTENTION_SCORES] &&
                 problem->desc.outputs.scores_mode == CLATTN_SCORES_MODE_PROBABILITIES;
    return array < ATTENTION_INPUT_ARRAYS || problem->backward ? BINDING_READ
           : again                                             ? BINDING_READ_WRITE
                                                               : BINDING_WRITE;
}

/* A mask, a bias, or the gradient of one. */
static void add_mask(struct bound_list *list, const struct attention_problem *problem,
                     const clattn_attention_args *args, const struct attention_array_type *type,
                     enum binding_access access)
{
    const size_t size[4] = {args->batch, problem->heads, args->query_length, args->key_length};
    size_t reach[4];
    const clattn_layout mask =
        mask_reach((const clattn_layout *)((const char *)&problem->desc + type->layout), size, reach);
    bound_add(list, (const clattn_binding *)((const char *)args + type->binding), &mask, reach, access, type->name);
}

/* `lengths`: those alone that say which rows are an item's. */
static void add_optional(struct bound_list *list, const struct attention_problem *problem,
                         const clattn_attention_args *args, bool lengths)
{
    static const clattn_layout one = {.dtype = CLATTN_DTYPE_I32, .rank = 1, .extent = {1}, .stride = {1}};
    for (int i = 0; i < ATTENTION_ARRAYS; i++) {
        size_t extent[CLATTN_MAX_RANK];
        if (!problem->has[i] || (lengths && !attention_is_length(i)))
            continue;
        if (i == ATTENTION_MASK || i == ATTENTION_BIAS) {
            add_mask(list, problem, args, &attention_arrays[i], BINDING_READ);
            continue;
        }
        reached(problem, args, i, extent);
        bound_add(list, attention_binding(args, i), attention_layout(&problem->desc, i), extent, access_of(problem, i),
                  attention_arrays[i].name);
    }
    for (int i = 0; i < CLATTN_USER_BUFFERS && !lengths; i++) {
        clattn_layout element = one;
        element.dtype = problem->desc.snippets.buffer_dtype[i];
        if (element.dtype != CLATTN_DTYPE_NONE)
            bound_add(list, &args->snippets.buffer[i], &element, element.extent, BINDING_READ, user_name[i]);
    }
}

/* How much of query, key, value and output an enqueue reaches. */
struct operands {
    size_t query[4], key[4], value[4], output[4];
};

static struct operands operands_of(const struct attention_problem *problem, const clattn_attention_args *args)
{
    const clattn_attention_desc *desc = &problem->desc;
    struct operands o = {
        .query = {args->batch, problem->heads, args->query_length, problem->d_k},
        .key = {args->batch, problem->kv_heads, size_min(args->key_length, desc->key.extent[2]), problem->d_k},
    };
    if (problem->packed_queries)
        memcpy(o.query, desc->query.extent, sizeof o.query);
    if (problem->packed_keys || desc->cache.kind == CLATTN_CACHE_KIND_PAGED)
        memcpy(o.key, desc->key.extent, sizeof o.key);
    if (!args->key_length)
        o.key[2] = 0;
    memcpy(o.value, o.key, sizeof o.value);
    memcpy(o.output, o.query, sizeof o.output);
    o.value[3] = o.output[3] = problem->d_v;
    return o;
}

/* Adds the gradients from `first` on. */
static void add_gradients(struct bound_list *list, const struct attention_problem *problem,
                          const struct operands *operands, const clattn_attention_args *args,
                          enum attention_gradient first)
{
    const size_t *const extents[ATTENTION_GRADIENTS] = {[GRADIENT_OUTPUT] = operands->output,
                                                        [GRADIENT_LSE] = operands->output,
                                                        [GRADIENT_QUERY] = operands->query,
                                                        [GRADIENT_KEY] = operands->key,
                                                        [GRADIENT_VALUE] = operands->value};
    for (enum attention_gradient i = first; i < ATTENTION_GRADIENTS; i++) {
        const clattn_layout *layout = attention_gradient_layout(&problem->desc, i);
        const enum binding_access access = i < ATTENTION_INPUT_GRADIENTS ? BINDING_READ : BINDING_WRITE;
        size_t reach[CLATTN_MAX_RANK];
        if (!problem->gradient[i])
            continue;
        if (i == GRADIENT_MASK || i == GRADIENT_BIAS) {
            add_mask(list, problem, args, &attention_gradients[i], access);
            continue;
        }
        memcpy(reach, layout->extent, sizeof reach);
        if (i == GRADIENT_ALIBI && layout->rank == 2 && reach[0] != 1)
            reach[0] = args->batch;
        bound_add(list, attention_gradient_binding(args, i), layout, extents[i] ? extents[i] : reach, access,
                  attention_gradients[i].name);
    }
}

clattn_status attention_args_read(clattn_context *context, const struct attention_problem *problem,
                                  const clattn_attention_args *given, clattn_attention_args *args)
{
    clattn_status status;
    const clattn_attention_desc *desc = &problem->desc;
    struct bound_list list;
    list.count = 0;
    TRY(args_read(&context->device.report, "clattn_attention_args", args, sizeof *args, sizeof *args, given));
    TRY(read_lengths(&context->device.report, problem, args));
    TRY(attention_read_whole(&context->device.report, problem, args));
    TRY(check_absent(context, problem, args));
    const struct operands operands = operands_of(problem, args);
    const bool is_empty = attention_is_empty(problem, args);
    if (!is_empty) {
        bound_add(&list, &args->query, &desc->query, operands.query, BINDING_READ, "query");
        bound_add(&list, &args->key, &desc->key, operands.key, BINDING_READ, "key");
        bound_add(&list, &args->value, &desc->value, operands.value, BINDING_READ, "value");
        bound_add(&list, &args->output, &desc->output, operands.output,
                  problem->backward ? BINDING_READ : BINDING_WRITE, "output");
    }
    if (!is_empty || problem->backward)
        add_optional(&list, problem, args, is_empty);
    if (problem->backward)
        add_gradients(&list, problem, &operands, args, is_empty ? ATTENTION_INPUT_GRADIENTS : 0);
    TRY(bindings_check(context, list.array, list.count));
fail:
    return status;
}

/* ---- bindings in the kernels' order ---- */

const clattn_binding *attention_binding_or_null(const struct attention_problem *problem,
                                                const clattn_attention_args *args, enum attention_array array)
{
    return problem->has[array] ? attention_binding(args, array) : NULL;
}

void attention_input_bindings(const struct attention_problem *problem, const clattn_attention_args *args,
                              const clattn_binding *bindings[ATTENTION_INPUTS])
{
    for (int i = 0; i < ATTENTION_INPUT_ARRAYS; i++)
        *bindings++ = attention_binding_or_null(problem, args, i);
    for (int i = 0; i < CLATTN_USER_BUFFERS; i++)
        *bindings++ = problem->desc.snippets.buffer_dtype[i] != CLATTN_DTYPE_NONE ? &args->snippets.buffer[i] : NULL;
}
