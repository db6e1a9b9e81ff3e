/* What an attention job's arrays mean, from the public description alone: each item's rows gathered from wherever they
 * lie, and what lets a query attend a key as one addend. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/attention/case.h"

typedef __int128 wide; /* positions and windows are any int64 */

static size_t clamp_to(int64_t value, size_t low, size_t high)
{
    return value<(int64_t)low ? low : value>(int64_t) high ? high : (size_t)value;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static int64_t position_of(const attention_case *t, const attention_item *item, size_t b)
{
    int64_t position = t->alignment == CLATTN_ALIGNMENT_EXPLICIT ? t->position : 0;

    if (t->alignment == CLATTN_ALIGNMENT_BOTTOM_RIGHT) {
        position = (int64_t)item->keys - (int64_t)item->queries;
    }
    if (t->list.positions) {
        wide sum = (wide)position + t->list.positions[b];
        position = sum > INT64_MAX ? INT64_MAX : sum < INT64_MIN ? INT64_MIN : (int64_t)sum;
    }
    return position;
}

attention_item attention_item_of(const attention_case *t, size_t b)
{
    attention_item item = {0};
    size_t batch;

    attention_lengths(t, &batch, &item.queries, &item.keys);
    if (t->list.query_starts) {
        item.query_row = clamp_to(t->list.query_starts[b], 0, t->dim.queries);
        size_t end = clamp_to(t->list.query_starts[b + 1], item.query_row, t->dim.queries);
        item.queries = least(item.queries, end - item.query_row);
    }
    if (t->list.key_starts) {
        item.key_row = clamp_to(t->list.key_starts[b], 0, t->dim.keys);
        size_t end = clamp_to(t->list.key_starts[b + 1], item.key_row, t->dim.keys);
        item.keys = least(item.keys, end - item.key_row);
    }
    item.rows = item.queries;
    item.queries = t->list.queries ? clamp_to(t->list.queries[b], 0, item.queries) : item.queries;
    item.keys = t->list.keys ? clamp_to(t->list.keys[b], 0, t->cache == CLATTN_CACHE_KIND_RING ? INT32_MAX : item.keys)
                             : item.keys;
    if (t->cache == CLATTN_CACHE_KIND_RING && item.keys > t->dim.keys) {
        item.first_key = item.keys - t->dim.keys;
    }
    item.position = position_of(t, &item, b);
    return item;
}

/* The page that holds key j, brought into what there is. */
static size_t page_of(const attention_case *t, const test_array *table, size_t b, size_t j)
{
    double page = array_get(table, (size_t[]){b, j / t->page_size});
    return page < 0 ? 0 : page >= (double)t->pages ? t->pages - 1 : (size_t)page;
}

static bool key_index(const test_job *job, const attention_case *t, size_t b, size_t g, size_t j, size_t index[3])
{
    attention_item item = attention_item_of(t, b);

    if (j < item.first_key || j >= item.keys) {
        return false;
    }
    index[0] = t->cache == CLATTN_CACHE_KIND_PAGED ? page_of(t, &job->input[BLOCK_TABLE], b, j)
               : t->list.key_starts                ? 0
                                                   : b;
    index[1] = g;
    index[2] = t->cache == CLATTN_CACHE_KIND_PAGED  ? j % t->page_size
               : t->cache == CLATTN_CACHE_KIND_RING ? j % t->dim.keys
                                                    : item.key_row + j;
    return true;
}

static bool query_index(const attention_case *t, size_t b, size_t h, size_t i, size_t index[3])
{
    attention_item item = attention_item_of(t, b);

    index[0] = t->list.query_starts ? 0 : b;
    index[1] = h;
    index[2] = item.query_row + i;
    return i < item.rows;
}

bool attention_row_index(const test_job *job, const attention_case *t, bool is_key, size_t b, size_t h, size_t row,
                         size_t index[3])
{
    return is_key ? key_index(job, t, b, h, row, index) : query_index(t, b, h, row, index);
}

/* The numbers of an array as (batch, heads, rows, size), NaN for rows that do not exist; `scale` is a quantised array's. */
static double *gather(const test_job *job, const attention_case *t, int which, const test_array *scale, size_t batch,
                      size_t heads, size_t rows, size_t size)
{
    const size_t extent[4] = {batch, heads, rows, size};
    double *dense = zeros(batch * heads * rows * size);
    size_t at[4] = {0}, index[4];

    for (size_t n = 0; n < batch * heads * rows * size; n++) {
        bool there = attention_row_index(job, t, which != QUERY, at[0], at[1], at[2], index);
        index[3] = at[3];
        dense[n] = there ? array_get(&job->input[which], index) : NAN;
        if (there && scale) {
            index[3] = at[3] / (size / scale->layout.extent[3]);
            dense[n] *= array_get(scale, index);
        }
        array_next(4, extent, at);
    }
    return dense;
}

static mod_call call_of(const struct attention_mod_context *c, const reference_pair *pair)
{
    attention_item item = attention_item_of(c->test, pair->b);

    return (mod_call){(int)pair->b,      (int)pair->h,   (int)pair->i,         (int)pair->j,        item.position,
                      (int)item.queries, (int)item.keys, &c->job->input[USER], c->test->mod->scalar};
}

static double modify(void *context, double score, const reference_pair *pair)
{
    const struct attention_mod_context *c = context;
    mod_call call = call_of(c, pair);

    return c->test->mod->score(&call, score);
}

static double derive(void *context, double score, const reference_pair *pair)
{
    const struct attention_mod_context *c = context;
    mod_call call = call_of(c, pair);

    return c->test->mod->grad(&call, score);
}

/* Whether lengths, causality, window and the user let query i of an item attend key j. */
static bool visible(const struct attention_mod_context *c, const attention_item *item, const reference_pair *pair)
{
    const attention_case *t = c->test;
    wide p = (wide)pair->i + item->position, j = (wide)pair->j;

    if (pair->i >= item->queries || pair->j < item->first_key || pair->j >= item->keys || (t->causal && j > p) ||
        (t->windowed && t->left >= 0 && j < p - t->left) || (t->windowed && t->right >= 0 && j > p + t->right)) {
        return false;
    }
    if (t->mod && t->mod->mask) {
        mod_call call = call_of(c, pair);
        return t->mod->mask(&call);
    }
    return true;
}

static bool dropout_keeps(const attention_case *t, const reference_pair *pair)
{
    const uint32_t counter[4] = {(uint32_t)pair->j / 4, (uint32_t)pair->i, (uint32_t)(pair->b * t->dim.heads + pair->h),
                                 t->dropout_offset};
    const uint32_t key[2] = {(uint32_t)(t->seed & 0xffffffff), (uint32_t)(t->seed >> 32)};
    uint32_t word[4];

    reference_philox(counter, key, word);
    return word[pair->j % 4] / 4294967296.0 >= t->dropout;
}

/* What depends on query and key together. */
static void fill_pair(attention_dense *dense, const attention_item *item, const reference_pair *pair, size_t at)
{
    const test_array *input = dense->mod.job->input;
    const attention_case *t = dense->mod.test;
    const size_t index[4] = {pair->b, pair->h, pair->i, pair->j};
    bool seen = visible(&dense->mod, item, pair);

    dense->addend[at] = !seen ? -INFINITY : t->mask ? reference_mask(&input[MASK], 4, index) : 0;
    if (t->bias) {
        dense->bias[at] = seen ? reference_mask(&input[BIAS], 4, index) : 0;
    }
    if (t->alibi) {
        size_t slope[2] = {t->shared_alibi ? 0 : pair->b, pair->h};
        double distance = fabs((double)((wide)pair->i + item->position - (wide)pair->j));
        dense->alibi[at] = array_get(&input[ALIBI], slope + 2 - t->alibi) * distance;
    }
    if (t->dropout > 0) {
        dense->kept[at] = dropout_keeps(t, pair);
    }
}

static void fill_pairs(attention_dense *dense)
{
    const reference_problem *p = &dense->problem;
    reference_pair pair;
    size_t at = 0;

    for (pair.b = 0; pair.b < p->batch; pair.b++) {
        attention_item item = attention_item_of(dense->mod.test, pair.b);
        for (pair.h = 0; pair.h < p->heads; pair.h++) {
            for (pair.i = 0; pair.i < p->queries; pair.i++) {
                for (pair.j = 0; pair.j < p->keys; pair.j++) {
                    fill_pair(dense, &item, &pair, at++);
                }
            }
        }
    }
}

static void make_vectors(attention_dense *dense, const test_job *job, const attention_case *t)
{
    size_t heads = t->dim.heads, d_k = t->dim.d_k;

    if (t->additive) {
        dense->vector = zeros(heads * d_k);
        for (size_t n = 0; n < heads * d_k; n++) {
            size_t index[2] = {t->shared_vector ? 0 : n / d_k, n % d_k};
            dense->vector[n] = array_get(&job->input[VECTOR], index);
        }
    }
    if (t->sinks) {
        dense->sinks = array_dense(&job->input[SINKS], 1, &heads);
    }
}

static void make_pairs(attention_dense *dense, const attention_case *t)
{
    const reference_problem *p = &dense->problem;
    size_t pairs = p->batch * p->heads * p->queries * p->keys;

    dense->addend = zeros(pairs);
    dense->bias = t->bias ? zeros(pairs) : NULL;
    dense->alibi = t->alibi ? zeros(pairs) : NULL;
    dense->kept = t->dropout > 0 ? malloc(pairs + 1) : NULL;
    assert_true(t->dropout == 0 || dense->kept);
    fill_pairs(dense);
}

void attention_dense_make(attention_dense *dense, const test_job *job, const attention_case *t)
{
    reference_problem *p = &dense->problem;
    const test_array *scales[] = {t->key_groups ? &job->input[KEY_SCALE] : NULL,
                                  t->value_groups ? &job->input[VALUE_SCALE] : NULL};

    memset(dense, 0, sizeof *dense);
    *p = (reference_problem){.heads = t->dim.heads, .kv_heads = t->dim.kv_heads, .d_k = t->dim.d_k, .d_v = t->dim.d_v};
    attention_lengths(t, &p->batch, &p->queries, &p->keys);
    dense->mod.job = job;
    dense->mod.test = t;
    dense->query = gather(job, t, QUERY, NULL, p->batch, p->heads, p->queries, p->d_k);
    dense->key = gather(job, t, KEY, scales[0], p->batch, p->kv_heads, p->keys, p->d_k);
    dense->value = gather(job, t, VALUE, scales[1], p->batch, p->kv_heads, p->keys, p->d_v);
    make_vectors(dense, job, t);
    make_pairs(dense, t);
    p->scale = t->scaled ? t->scale : t->additive ? 1 : 1 / sqrt((double)p->d_k);
    p->query = dense->query;
    p->key = dense->key;
    p->value = dense->value;
    p->addend = dense->addend;
    p->bias = dense->bias;
    p->alibi = dense->alibi;
    p->vector = dense->vector;
    p->sinks = dense->sinks;
    p->kept = dense->kept;
    p->softcap = t->softcap;
    p->dropout = t->dropout;
    p->weights =
        t->type.value == CLATTN_DTYPE_F16 || t->type.value == CLATTN_DTYPE_BF16 ? t->type.value : CLATTN_DTYPE_NONE;
    p->modify = t->mod && t->mod->score ? modify : NULL;
    p->derive = t->mod && t->mod->grad ? derive : NULL;
    p->context = &dense->mod;
    p->wide = t->type.query == CLATTN_DTYPE_F64 && !p->modify; /* a user's function takes and gives float */
}

void attention_dense_release(attention_dense *dense)
{
    double *all[] = {dense->query, dense->key,   dense->value,  dense->addend,
                     dense->bias,  dense->alibi, dense->vector, dense->sinks};

    for (size_t n = 0; n < COUNT_OF(all); n++) {
        free(all[n]);
    }
    free(dense->kept);
}
