/* The self-check: a plan's own kernels on a small problem of the same kind, against the reference. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "ops/attention/check.h"

/* ---- the small problem ---- */

/* Its sizes follow from the program alone, which serves problems of all lengths. */
#define BATCH 2
#define QUERIES 37
#define KEYS 99 /* at least, */
#define KEYS_MORE(tile) \
    ((tile) / 4 + 3)      /* and so many more than a tile that some row's maximum is among them: it rescales */
#define LARGE_SIZES 16384 /* d_k + d_v; above it there are fewer */
#define LARGE_QUERIES 5
#define LARGE_KEYS 11
#define ARRAY_LIMIT ((size_t)64 << 20) /* bytes; a cache of larger pages is left unchecked */

static bool is_large(const struct attention_problem *problem)
{
    return problem->d_k + problem->d_v > LARGE_SIZES;
}

size_t attention_check_keys(const struct attention_problem *problem)
{
    return is_large(problem) ? LARGE_KEYS : KEYS;
}

void attention_check_shrink(clattn_layout *layout, const size_t *extent)
{
    int64_t col = layout->rank > 0 && layout->stride[layout->rank - 1] == 1 ? 1 : 2;
    bool shared = layout->rank > 0 && layout->dtype == CLATTN_DTYPE_I4;
    clattn_layout made = clattn_layout_contiguous(layout->dtype, layout->rank, extent);
    for (int32_t i = 0; i < layout->rank; i++)
        made.stride[i] *= shared ? 1 : col;
    *layout = made;
}

/* Extents of an optional array, each that is not 1 replaced by the small problem's. */
static void shrink_mask(clattn_layout *mask, const size_t whole[4])
{
    size_t extent[CLATTN_MAX_RANK];
    for (int32_t i = 0; i < mask->rank; i++)
        extent[i] = mask->extent[i] == 1 ? 1 : whole[i + 4 - mask->rank];
    attention_check_shrink(mask, extent);
}

static void shrink_rows(clattn_layout *layout, const size_t *extent)
{
    if (!layout_is_none(layout))
        attention_check_shrink(layout, extent);
}

/* Only the first `taken` rows take room: of a page no more than the keys are read, so the next one begins there.  PAGE_SIZE
 * itself is a -D. */
static void shrink_cache(clattn_layout *layout, size_t batch, size_t heads, size_t rows, size_t taken, size_t size)
{
    if (layout_is_none(layout))
        return;
    attention_check_shrink(layout, (size_t[]){batch, heads, taken, size});
    layout->extent[2] = rows;
}

/* Keys outermost, so that those of a large page that are not written take no room. */
static void shrink_scores(clattn_layout *scores, size_t batch, size_t heads, size_t queries, size_t keys)
{
    if (layout_is_none(scores))
        return;
    *scores = clattn_layout_contiguous(scores->dtype, 4, (size_t[]){keys, batch, heads, queries});
    const clattn_layout made = *scores;
    for (int i = 0; i < 4; i++) {
        scores->extent[i] = made.extent[(i + 1) % 4];
        scores->stride[i] = made.stride[(i + 1) % 4];
    }
}

/* What a kernel is told at run time, of a size for which arithmetic tells right from wrong. */
static void temper(clattn_attention_desc *desc, size_t d_k)
{
    if (desc->scoring.explicit_scale)
        desc->scoring.scale = copysignf(1.0f / sqrtf((float)d_k), desc->scoring.scale);
    if (desc->scoring.softcap > 0)
        desc->scoring.softcap = 0.5f;
    if (desc->dropout.probability > 0)
        desc->dropout.probability = 0.25f;
    desc->window.left = desc->window.explicit_left ? 23 : -1;
    desc->window.right = desc->window.explicit_right ? 7 : -1;
}

void attention_check_make_small(const struct attention_problem *problem, size_t queries, size_t keys,
                                clattn_attention_desc *desc)
{
    size_t group = problem->heads / problem->kv_heads, groups = group > 4 ? 1 : 2, heads = groups * group;
    size_t d_k = problem->d_k, d_v = problem->d_v;
    bool paged = problem->desc.cache.kind == CLATTN_CACHE_KIND_PAGED;
    size_t blocks = paged ? divide_up(keys, problem->page_size) : 0;
    size_t query_batch = problem->packed_queries ? 1 : BATCH;
    size_t query_rows = problem->packed_queries ? queries * BATCH : queries;
    size_t key_batch = paged ? blocks * BATCH : problem->packed_keys ? 1 : BATCH;
    size_t key_rows = paged ? problem->page_size : problem->packed_keys ? keys * BATCH : keys;
    size_t taken = paged ? size_min(key_rows, keys) : key_rows;
    const size_t whole[4] = {BATCH, heads, queries, problem->packed_keys ? key_rows : keys};
    temper(desc, d_k);
    if (problem->packed_queries)
        desc->lengths.longest_query = queries;
    attention_check_shrink(&desc->query, (size_t[]){query_batch, heads, query_rows, d_k});
    attention_check_shrink(&desc->output, (size_t[]){query_batch, heads, query_rows, d_v});
    shrink_cache(&desc->key, key_batch, groups, key_rows, taken, d_k);
    shrink_cache(&desc->value, key_batch, groups, key_rows, taken, d_v);
    shrink_cache(&desc->cache.key_scale, key_batch, groups, key_rows, taken, desc->cache.key_scale.extent[3]);
    shrink_cache(&desc->cache.value_scale, key_batch, groups, key_rows, taken, desc->cache.value_scale.extent[3]);
    shrink_rows(&desc->outputs.lse, (size_t[]){query_batch, heads, query_rows});
    shrink_rows(&desc->outputs.entropy, (size_t[]){query_batch, heads, query_rows});
    shrink_scores(&desc->outputs.scores, BATCH, heads, queries, paged ? blocks * problem->page_size : keys);
    shrink_rows(&desc->scoring.sinks, (size_t[]){heads});
    shrink_rows(&desc->scoring.vector, (size_t[]){desc->scoring.vector.extent[0] == 1 ? 1 : heads, d_k});
    shrink_rows(&desc->lengths.query, (size_t[]){BATCH});
    shrink_rows(&desc->lengths.key, (size_t[]){BATCH});
    shrink_rows(&desc->lengths.positions, (size_t[]){BATCH});
    shrink_rows(&desc->lengths.query_starts, (size_t[]){BATCH + 1});
    shrink_rows(&desc->lengths.key_starts, (size_t[]){BATCH + 1});
    shrink_rows(&desc->cache.block_table, (size_t[]){BATCH, blocks});
    if (desc->scoring.alibi.rank == 1)
        attention_check_shrink(&desc->scoring.alibi, (size_t[]){heads});
    else if (desc->scoring.alibi.rank == 2)
        attention_check_shrink(&desc->scoring.alibi, (size_t[]){desc->scoring.alibi.extent[0] == 1 ? 1 : BATCH, heads});
    if (problem->has[ATTENTION_MASK])
        shrink_mask(&desc->mask, whole);
    if (problem->has[ATTENTION_BIAS])
        shrink_mask(&desc->bias, whole);
}

/* ---- its arrays ---- */

/* 1/128 to 1/64: integers times it are of magnitude 1. */
static void fill_scales(struct check_array *array, clattn_dtype dtype, uint32_t *random)
{
    for (size_t i = 0; i < array->elements; i++) {
        if (dtype == CLATTN_DTYPE_F16)
            ((uint16_t *)array->host)[i] = (uint16_t)(8 << 10 | (check_random(random) & 1023));
        else
            ((float *)array->host)[i] = ldexpf(1.0f + (float)(check_random(random) & 127) / 128, -7);
    }
}

/* Lengths a little below the largest, starts that leave gaps, pages in another order. */
static void fill_integers(const struct attention_check *check, enum attention_array array, void *data)
{
    const struct attention_problem *small = &check->small;
    const clattn_layout *layout = attention_layout(&small->desc, array);
    for (size_t b = 0; b < layout->extent[0]; b++) {
        int64_t at = (int64_t)b * layout->stride[0], item = (int64_t)b;
        int64_t queries = (int64_t)small->query_length, keys = (int64_t)check->args.key_length;
        if (small->packed_keys)
            keys /= BATCH;
        switch (array) {
        case ATTENTION_QUERY_LENGTHS: check_put_integer(data, layout->dtype, at, queries - item); break;
        case ATTENTION_KEY_LENGTHS: check_put_integer(data, layout->dtype, at, keys - 2 * item); break;
        case ATTENTION_POSITIONS: check_put_integer(data, layout->dtype, at, 2 - item); break;
        case ATTENTION_QUERY_STARTS: check_put_integer(data, layout->dtype, at, item * queries - (item > 1)); break;
        case ATTENTION_KEY_STARTS: check_put_integer(data, layout->dtype, at, item * keys - (item > 1)); break;
        default:
            for (size_t block = 0; block < layout->extent[1]; block++)
                check_put_integer(data, layout->dtype, at + (int64_t)block * layout->stride[1],
                                  (int64_t)(small->desc.key.extent[0] - 1 - (b * layout->extent[1] + block)));
        }
    }
}

static bool is_integer_array(enum attention_array array)
{
    return array >= ATTENTION_QUERY_LENGTHS && array <= ATTENTION_BLOCK_TABLE;
}

static clattn_status make_array(struct attention_check *check, clattn_context *context, size_t slot,
                                const clattn_layout *layout, clattn_binding *binding, uint32_t *random)
{
    clattn_status status;
    struct check_array *array = &check->array[slot];
    clattn_layout written = *layout;
    array->place.binding = binding;
    if (slot == ATTENTION_SCORES)
        written.extent[3] = check->args.key_length;
    TRY(check_array_room(context, &written, array));
    if (check->small.page_size > check->keys && layout->rank == 4 && layout->extent[2] == check->small.page_size)
        array->elements = layout->extent[0] * (size_t)layout->stride[0]; /* what is read; pages overlap */
    if (is_integer_array((enum attention_array)slot))
        fill_integers(check, (enum attention_array)slot, array->host);
    else if (slot == ATTENTION_KEY_SCALE || slot == ATTENTION_VALUE_SCALE)
        fill_scales(array, layout->dtype, random);
    else if (slot < CHECK_WORKSPACE)
        check_array_fill(array, layout->dtype, slot == ATTENTION_MASK || slot == ATTENTION_BIAS, random);
    TRY(check_array_upload(context, array));
fail:
    return status;
}

clattn_status attention_check_make_arrays(struct attention_check *check, clattn_context *context)
{
    clattn_status status;
    uint32_t random = CHECK_SEED;
    const clattn_attention_desc *desc = &check->small.desc;
    clattn_attention_args *args = &check->args;
    for (size_t i = 0; i < ATTENTION_ARRAYS; i++)
        if (check->small.has[i])
            TRY(make_array(check, context, i, attention_layout(desc, (enum attention_array)i),
                           (clattn_binding *)attention_binding(args, (enum attention_array)i), &random));
    TRY(make_array(check, context, CHECK_QUERY, &desc->query, &args->query, &random));
    TRY(make_array(check, context, CHECK_KEY, &desc->key, &args->key, &random));
    TRY(make_array(check, context, CHECK_VALUE, &desc->value, &args->value, &random));
    TRY(make_array(check, context, CHECK_OUTPUT, &desc->output, &args->output, &random));
fail:
    return status;
}

/* ---- running it ---- */

static clattn_status run(struct attention_check *check, const struct attention_plan *plan)
{
    clattn_status status;
    clattn_context *context = plan->base.context;
    uint32_t random = CHECK_SEED;
    size_t bytes;
    if (!attention_workspace(plan, &check->small, &bytes))
        return report_error(&context->device.report, CLATTN_ERROR_INTERNAL, "self-check: a workspace overflows");
    const clattn_layout workspace = clattn_layout_contiguous(CLATTN_DTYPE_U8, 1, &bytes);
    if (bytes)
        TRY(make_array(check, context, CHECK_WORKSPACE, &workspace, &check->args.workspace, &random));
    TRY(check_enqueue(&plan->base, &check->small, bytes, &check->args));
    TRY(check_array_read(context, &check->array[CHECK_OUTPUT]));
    TRY(check_arrays_read(context, &check->array[ATTENTION_INPUT_ARRAYS], ATTENTION_ARRAYS - ATTENTION_INPUT_ARRAYS));
    TRY(check_arrays_read(context, &check->array[CHECK_WORKSPACE], 1));
fail:
    return status;
}

static bool has_huge_pages(const struct attention_problem *problem)
{
    size_t size = size_max(problem->d_k, problem->d_v) * (problem->is_double ? sizeof(double) : sizeof(float));
    return problem->page_size > ARRAY_LIMIT / 2 / size;
}

/* Makes of a description one whose queries attend another range of keys by the same program; false if there is none. */
static bool change_range(const struct attention_plan *plan, clattn_attention_desc *desc)
{
    const bool ranged = desc->causal || attention_windowed(desc);
    if (!attention_range_by_launch(&plan->base.context->device.caps))
        return false;
    desc->causal = !ranged;
    desc->window.explicit_left = !ranged && plan->splits <= 1;
    desc->window.explicit_right = 0;
    return true;
}

static clattn_status check_small(const struct attention_plan *plan, const clattn_attention_desc *full, size_t *blamed)
{
    clattn_status status;
    const struct attention_problem *problem = &plan->problem;
    clattn_context *context = plan->base.context;
    struct attention_check *check = calloc(1, sizeof *check);
    clattn_attention_desc desc = *full;
    if (!check)
        return report_error(&context->device.report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a self-check");
    check->original = problem;
    clattn_attention_args_init(&check->args);
    check->args.position = 1;
    check->args.dropout.seed = 7;
    check->keys = size_max(attention_check_keys(problem), plan->key_tile + KEYS_MORE(plan->key_tile));
    attention_check_make_small(problem, is_large(problem) ? LARGE_QUERIES : QUERIES, check->keys, &desc);
    TRY(check_begin(context));
    TRY(check_describe(&plan->base, &desc, &check->small));
    check->args.batch = check->small.batch;
    check->args.query_length = check->small.query_length;
    check->args.key_length = check->small.key_length;
    if (desc.cache.kind == CLATTN_CACHE_KIND_RING)
        check->args.key_length += 5; /* so that it turns */
    else if (desc.cache.kind == CLATTN_CACHE_KIND_PAGED)
        check->args.key_length = check->keys;
    check->args.explicit_lengths = 1;
    TRY(attention_check_make_arrays(check, context));
    TRY(run(check, plan));
    status = attention_check_judge(check, plan, blamed);
fail:
    status = check_end(&plan->base, check->array, CHECK_ARRAYS, status);
    free(check);
    return status;
}

clattn_status attention_self_check(struct self_check *self)
{
    clattn_status status;
    const struct attention_plan *plan = (const struct attention_plan *)self->plan;
    const struct attention_problem *problem = &plan->problem;
    clattn_attention_desc desc = problem->desc;
    self->unchecked = attention_has_snippet(problem) || !problem->heads || has_huge_pages(problem);
    if (self->unchecked)
        return CLATTN_SUCCESS;
    TRY(check_small(plan, &desc, &self->blamed));
    if (change_range(plan, &desc))
        TRY(check_small(plan, &desc, &self->blamed));
fail:
    return status;
}
