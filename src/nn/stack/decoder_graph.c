/* A decoder's graphs: many tokens at once, one, one of each beam, and the memory's keys and values. */
#include <string.h>

#include "base/size.h"
#include "base/try.h"
#include "nn/stack/decoder.h"
#include "nn/stack/layers.h"

struct making {
    struct builder b;
    const struct decoder_plan *plan;
    enum decoder_graph which;
    struct rows rows; /* of tokens: (sequences, length) */
    struct rows flat;
    struct rows item_rows; /* the same as (items, queries) for cross-attention */
    struct stream stream;
    int past, fresh, total, memory_lengths;         /* arrays of lengths; 0: none */
    size_t self_probabilities, cross_probabilities; /* layers so far that have them as an output */
};

/* ---- integers ---- */

static int add_integers(struct making *m, size_t count, int batch, int which, int condition)
{
    int array = graph_arena_array(m->b.graph, CLATTN_DTYPE_I32, count);
    struct graph_step step = {.op = GRAPH_INTEGERS, .batch = batch, .integers = which, .condition = condition};
    step.use[MOVE_TO] = use_of(array);
    graph_add(m->b.graph, &step);
    return array;
}

static void add_lengths(struct making *m)
{
    if (m->rows.batch > 1) {
        m->past = add_integers(m, m->rows.batch, DECODER_SEQUENCES, DECODER_PAST_LENGTHS, 0);
        m->fresh = add_integers(m, m->rows.batch, DECODER_SEQUENCES, DECODER_NEW_LENGTHS, 0);
        m->total = add_integers(m, m->rows.batch, DECODER_SEQUENCES, DECODER_TOTAL_LENGTHS, 0);
    }
    if (m->plan->desc.items > 1 && m->b.stack->desc.cross)
        m->memory_lengths = add_integers(m, m->plan->desc.items, DECODER_ITEMS, DECODER_MEMORY_LENGTHS, 0);
}

/* ---- input ---- */

/* The ids as they are bound; or, where nothing is bound as ids, the input shifted right behind start tokens. */
static int add_ids(struct making *m)
{
    struct graph *graph = m->b.graph;
    const size_t count = m->rows.batch * m->rows.length, row = m->rows.length * sizeof(int32_t);
    const int shifted = graph_arena_array(graph, CLATTN_DTYPE_I32, count);
    struct graph_step fill = {.op = GRAPH_FILL,
                              .condition = -DECODER_IDS,
                              .integers = DECODER_START_TOKEN,
                              .rows = count,
                              .row_bytes = sizeof(int32_t)};
    struct graph_step copy = {.op = GRAPH_COPY,
                              .condition = -DECODER_IDS,
                              .batch = DECODER_SEQUENCES,
                              .length = DECODER_SHIFTED,
                              .row_bytes = sizeof(int32_t),
                              .to_item = row,
                              .from_item = row};
    fill.use[MOVE_TO] = use_of(shifted);
    copy.use[MOVE_TO] = use_at(shifted, 1);
    copy.use[MOVE_FROM] = use_of(graph_bound_array(graph, CLATTN_DTYPE_I32, DECODER_INPUT, 0));
    graph_add(graph, &fill);
    graph_add(graph, &copy);
    return graph_bound_array(graph, CLATTN_DTYPE_I32, DECODER_IDS, shifted);
}

static clattn_status add_input(struct making *m)
{
    struct graph *graph = m->b.graph;
    const clattn_stack_desc *d = &m->b.stack->desc;
    const clattn_dtype dtype = m->b.model->dtype;
    int segments = 0;
    if (d->input == CLATTN_STACK_INPUT_VECTORS) {
        m->stream.x = (struct matrix){.use = use_of(graph_bound_array(graph, dtype, DECODER_INPUT, 0)),
                                      .dtype = dtype,
                                      .columns = d->d_model,
                                      .stride = d->d_model};
        return CLATTN_SUCCESS;
    }
    if (d->segments) {
        const int zeros = graph_arena_array(graph, CLATTN_DTYPE_I32, m->rows.batch * m->rows.length);
        struct graph_step zero = {.op = GRAPH_FILL,
                                  .condition = -DECODER_SEGMENTS,
                                  .rows = m->rows.batch * m->rows.length,
                                  .row_bytes = sizeof(int32_t)};
        zero.use[MOVE_TO] = use_of(zeros);
        graph_add(graph, &zero);
        segments = graph_bound_array(graph, CLATTN_DTYPE_I32, DECODER_SEGMENTS, zeros);
    }
    return add_embedding(&m->b, m->rows, add_ids(m), segments, DECODER_POSITION, m->past, &m->stream);
}

/* ---- attention ---- */

/* Keys, or values, of layer `layer` in a cache of all layers' (layer, keys or values, sequence or item, ...). */
static struct graph_use cache_use(int cache, const clattn_layout *layout, size_t batch, size_t layer, size_t values)
{
    return use_at(cache, (2 * layer + values) * batch * (size_t)layout->stride[0]);
}

/* One layer's part of it. */
static clattn_layout cache_layout(const clattn_layout *all, size_t batch)
{
    clattn_layout layout = *all;
    layout.extent[0] = batch;
    return layout;
}

clattn_layout decoder_mask(const clattn_layout *mask, enum decoder_graph which)
{
    clattn_layout layout = *mask;
    if (layout.rank >= 2 && which != DECODER_MANY)
        layout.extent[layout.rank - 2] = 1;
    return layout;
}

static clattn_status append(struct making *m, struct rows rows, const struct matrix *key, const struct matrix *value,
                            const clattn_layout *cache, struct graph_use keys, struct graph_use values, bool self)
{
    clattn_status status;
    const clattn_stack_desc *d = &m->b.stack->desc;
    const size_t batch = rows.batch;
    clattn_kv_append_desc desc;
    struct graph_step step = {.op = GRAPH_APPEND,
                              .batch = rows.batch_number,
                              .length = rows.length_number,
                              .position = self ? DECODER_PAST : 0};
    clattn_kv_append_desc_init(&desc);
    desc.key = heads_layout(m->b.stack, rows, key, d->kv_heads);
    desc.value = heads_layout(m->b.stack, rows, value, d->kv_heads);
    desc.key_cache = desc.value_cache = *cache;
    if (self && m->past) {
        desc.past_lengths = desc.new_lengths = clattn_layout_contiguous(CLATTN_DTYPE_I32, 1, &batch);
        step.use[APPENDED_PAST_LENGTHS] = use_of(m->past);
        step.use[APPENDED_NEW_LENGTHS] = use_of(m->fresh);
    }
    if (self && d->rotary) {
        desc.rotate = 1;
        desc.pairing =
            d->rotary == CLATTN_ROTARY_INTERLEAVED ? CLATTN_ROPE_PAIRING_INTERLEAVED : CLATTN_ROPE_PAIRING_HALVES;
        desc.base = d->rotary_base;
        desc.rotary_size = d->rotary_size;
    }
    step.use[APPENDED_KEY] = key->use;
    step.use[APPENDED_VALUE] = value->use;
    step.use[APPENDED_KEY_CACHE] = keys;
    step.use[APPENDED_VALUE_CACHE] = values;
    TRY(graph_append(m->b.graph, &desc, &step.plan));
    graph_add(m->b.graph, &step);
fail:
    return status;
}

static clattn_status add_self_attention(struct making *m, size_t layer)
{
    clattn_status status;
    const struct stack *stack = m->b.stack;
    const clattn_stack_desc *d = &stack->desc;
    const struct layer_weights *weights = &stack->layers[layer];
    const struct linear_use out = linear_of(&m->b, &weights->self.out);
    const clattn_layout cache = cache_layout(&m->plan->self_cache, m->rows.batch);
    const int caches = graph_bound_array(m->b.graph, cache.dtype, DECODER_SELF_CACHE, 0);
    const struct graph_use keys = cache_use(caches, &cache, m->plan->sequences, layer, 0);
    const struct graph_use values = cache_use(caches, &cache, m->plan->sequences, layer, 1);
    const size_t batch = m->rows.batch;
    const size_t extent[4] = {batch, d->heads, m->rows.length, m->plan->desc.cache_length};
    const clattn_layout probabilities = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, extent);
    const bool output = is_among(m->plan->desc.self_probabilities, layer);
    struct heads heads;
    clattn_attention_desc desc = stack_attention(stack);
    struct graph_step step = {.op = GRAPH_ATTENTION,
                              .batch = DECODER_SEQUENCES,
                              .length = DECODER_LENGTH,
                              .keys = DECODER_KEYS,
                              .position = m->past ? 0 : DECODER_PAST};
    TRY(add_projections(&m->b, m->rows, &m->stream, &weights->self, true, &heads));
    TRY(append(m, m->rows, &heads.key, &heads.value, &cache, keys, values, true));
    if (d->rotary)
        TRY(add_rope(&m->b, m->rows, &heads.query, d->heads, m->past ? 0 : DECODER_PAST, m->past));
    desc.causal = d->causal;
    desc.alignment = CLATTN_ALIGNMENT_EXPLICIT;
    desc.mask = decoder_mask(&m->plan->desc.mask, m->which);
    desc.query = heads_layout(stack, m->rows, &heads.query, d->heads);
    desc.key = desc.value = cache;
    desc.output = heads_layout(stack, m->rows, &heads.attended, d->heads);
    if (m->past) {
        desc.lengths.query = desc.lengths.key = desc.lengths.positions =
            clattn_layout_contiguous(CLATTN_DTYPE_I32, 1, &batch);
        step.use[HEADS_QUERY_LENGTHS] = use_of(m->fresh);
        step.use[HEADS_KEY_LENGTHS] = use_of(m->total);
        step.use[HEADS_POSITIONS] = use_of(m->past);
    }
    if (desc.mask.rank)
        step.use[HEADS_MASK] = use_of(graph_bound_array(m->b.graph, desc.mask.dtype, DECODER_MASK, 0));
    step.use[HEADS_QUERY] = heads.query.use;
    step.use[HEADS_KEY] = keys;
    step.use[HEADS_VALUE] = values;
    step.use[HEADS_OUTPUT] = heads.attended.use;
    TRY(add_heads(&m->b, &desc, &step, output ? &probabilities : NULL, DECODER_SELF_PROBABILITIES,
                  m->self_probabilities * extent[0] * extent[1] * extent[2] * extent[3]));
    m->self_probabilities += output;
    status = stream_write(&m->b, m->flat, &m->stream, &weights->self.norm, heads.attended, &out, NULL);
fail:
    return status;
}

/* An item's sequences are queries to the same keys, which are there once. */
static clattn_status add_cross_attention(struct making *m, size_t layer)
{
    clattn_status status;
    const struct stack *stack = m->b.stack;
    const clattn_stack_desc *d = &stack->desc;
    const struct layer_weights *weights = &stack->layers[layer];
    const struct linear_use out = linear_of(&m->b, &weights->cross.out);
    const clattn_layout *cache = &m->plan->cross_cache;
    const int caches = graph_bound_array(m->b.graph, cache->dtype, DECODER_CROSS_CACHE, 0);
    const size_t items = m->plan->desc.items, length = m->plan->desc.memory_length;
    const bool output = is_among(m->plan->desc.cross_probabilities, layer);
    struct heads heads;
    clattn_attention_desc desc = stack_attention(stack);
    struct graph_step step = {
        .op = GRAPH_ATTENTION, .batch = DECODER_ITEMS, .length = DECODER_ITEM_QUERIES, .keys = DECODER_MEMORY_LENGTH};
    TRY(add_projections(&m->b, m->rows, &m->stream, &weights->cross, false, &heads));
    desc.mask = decoder_mask(&m->plan->desc.memory_mask, m->which);
    desc.query = heads_layout(stack, m->item_rows, &heads.query, d->heads);
    desc.key = desc.value = cache_layout(cache, items);
    desc.output = heads_layout(stack, m->item_rows, &heads.attended, d->heads);
    if (m->memory_lengths) {
        desc.lengths.key = clattn_layout_contiguous(CLATTN_DTYPE_I32, 1, &items);
        step.use[HEADS_KEY_LENGTHS] = use_of(m->memory_lengths);
    }
    if (desc.mask.rank)
        step.use[HEADS_MASK] = use_of(graph_bound_array(m->b.graph, desc.mask.dtype, DECODER_MEMORY_MASK, 0));
    step.use[HEADS_QUERY] = heads.query.use;
    step.use[HEADS_KEY] = cache_use(caches, cache, items, layer, 0);
    step.use[HEADS_VALUE] = cache_use(caches, cache, items, layer, 1);
    step.use[HEADS_OUTPUT] = heads.attended.use;
    /* (sequences, heads, length, memory): a sequence of an item is a query here, where there are beams, and otherwise the
     * item. */
    clattn_layout probabilities = {.dtype = CLATTN_DTYPE_F32,
                                   .rank = 4,
                                   .extent = {items, d->heads, m->item_rows.length, length},
                                   .stride = {(int64_t)(d->heads * m->item_rows.length * length),
                                              (int64_t)(m->rows.length * length), (int64_t)length, 1}};
    if (m->which == DECODER_BEAMS)
        probabilities.stride[2] = (int64_t)(d->heads * length);
    TRY(add_heads(&m->b, &desc, &step, output ? &probabilities : NULL, DECODER_CROSS_PROBABILITIES,
                  m->cross_probabilities * m->rows.batch * d->heads * m->rows.length * length));
    m->cross_probabilities += output;
    status = stream_write(&m->b, m->flat, &m->stream, &weights->cross.norm, heads.attended, &out, NULL);
fail:
    return status;
}

/* ---- logits ---- */

/* The last token's row of each sequence, which the embedding operator finds in a table as it does a word's. */
static clattn_status add_last_rows(struct making *m, struct matrix *x, struct rows *rows)
{
    clattn_status status;
    const size_t sequences = m->rows.batch, ids[2] = {1, sequences}, all[2] = {sequences * m->rows.length, x->columns};
    const size_t found[3] = {1, sequences, x->columns};
    const int integers = add_integers(m, sequences, DECODER_SEQUENCES, DECODER_LAST_ROWS, DECODER_LOGITS);
    clattn_embedding_desc desc;
    struct graph_step step = {
        .op = GRAPH_EMBEDDING, .condition = DECODER_LOGITS, .batch = NUMBER_ONE, .length = DECODER_SEQUENCES};
    *rows = (struct rows){1, sequences, NUMBER_ONE, DECODER_SEQUENCES};
    clattn_embedding_desc_init(&desc);
    desc.ids = clattn_layout_contiguous(CLATTN_DTYPE_I32, 2, ids);
    desc.table = clattn_layout_contiguous(x->dtype, 2, all);
    desc.y = clattn_layout_contiguous(x->dtype, 3, found);
    step.use[EMBEDDED_IDS] = use_of(integers);
    step.use[EMBEDDED_TABLE] = x->use;
    *x = matrix_new(m->b.graph, *rows, x->dtype, x->columns);
    step.use[EMBEDDED_Y] = x->use;
    TRY(graph_embedding(m->b.graph, &desc, &step.plan));
    graph_add(m->b.graph, &step);
fail:
    return status;
}

static clattn_status add_logits(struct making *m, const struct matrix *result)
{
    clattn_status status;
    const struct linear_use w = linear_of(&m->b, &m->b.model->logits);
    struct matrix x = *result, logits;
    struct rows rows = m->flat;
    if (m->plan->desc.logits == CLATTN_LOGITS_LAST && m->which == DECODER_MANY)
        TRY(add_last_rows(m, &x, &rows));
    logits = (struct matrix){.use = use_of(graph_bound_array(m->b.graph, CLATTN_DTYPE_F32, DECODER_LOGITS, 0)),
                             .dtype = CLATTN_DTYPE_F32,
                             .columns = w.rows,
                             .stride = w.rows};
    TRY(add_product(&m->b, rows, x, &w, logits, NULL, NULL));
    m->b.graph->steps[m->b.graph->step_count - 1].condition = DECODER_LOGITS;
fail:
    return status;
}

/* ---- graphs ---- */

static clattn_status add_layers(struct making *m)
{
    clattn_status status;
    const clattn_stack_desc *d = &m->b.stack->desc;
    const struct matrix result = stack_result(&m->b, m->rows, DECODER_OUTPUT);
    add_lengths(m);
    TRY(add_input(m));
    for (size_t i = 0; i < d->layers; i++) {
        TRY(add_self_attention(m, i));
        if (d->cross)
            TRY(add_cross_attention(m, i));
        TRY(end_layer(&m->b, m->flat, &m->stream, i, &result));
    }
    if (m->plan->desc.logits)
        TRY(add_logits(m, &result));
    status = graph_finish(m->b.graph);
fail:
    return status;
}

static clattn_status add_memory(struct making *m)
{
    clattn_status status = CLATTN_SUCCESS;
    const struct stack *stack = m->b.stack;
    const clattn_stack_desc *d = &stack->desc;
    const clattn_dtype dtype = m->b.model->dtype;
    const struct matrix memory = {.use = use_of(graph_bound_array(m->b.graph, dtype, DECODER_MEMORY_ARRAY, 0)),
                                  .dtype = dtype,
                                  .columns = d->d_memory,
                                  .stride = d->d_memory};
    const clattn_layout cache = cache_layout(&m->plan->cross_cache, m->rows.batch);
    const int caches = graph_bound_array(m->b.graph, cache.dtype, DECODER_CROSS_CACHE, 0);
    for (size_t i = 0; i < d->layers; i++) {
        const struct linear_use w = linear_of(&m->b, &stack->layers[i].cross.memory);
        struct matrix key = matrix_new(m->b.graph, m->rows, dtype, 2 * stack->inner_kv), value = key;
        value.use.offset = (int64_t)stack->inner_kv;
        TRY(add_product(&m->b, m->flat, memory, &w, key, NULL, NULL));
        TRY(append(m, m->rows, &key, &value, &cache, cache_use(caches, &cache, m->rows.batch, i, 0),
                   cache_use(caches, &cache, m->rows.batch, i, 1), false));
    }
    status = graph_finish(m->b.graph);
fail:
    return status;
}

static struct making making_of(struct decoder_plan *plan, enum decoder_graph which, const clattn_plan_options *options)
{
    const clattn_decoder_desc *d = &plan->desc;
    const size_t beams = which == DECODER_BEAMS ? d->beams : 1, length = which == DECODER_MANY ? d->length : 1;
    struct making m = {
        .b = {.graph = &plan->graph[which], .model = plan->model, .stack = &plan->model->decoder, .options = options},
        .plan = plan,
        .which = which,
        .rows = {d->items * beams, length, DECODER_SEQUENCES, DECODER_LENGTH},
        .item_rows = {d->items, beams * length, DECODER_ITEMS, DECODER_ITEM_QUERIES}};
    if (which == DECODER_MEMORY)
        m.rows = (struct rows){d->items, d->memory_length, DECODER_ITEMS, DECODER_MEMORY_LENGTH};
    m.flat = rows_flat(m.rows);
    return m;
}

clattn_status decoder_make_graphs(struct decoder_plan *plan, const clattn_plan_options *options)
{
    clattn_status status = CLATTN_SUCCESS;
    const bool wanted[DECODER_GRAPHS] = {[DECODER_MANY] = plan->desc.length > 1,
                                         [DECODER_ONE] = true,
                                         [DECODER_BEAMS] = plan->desc.beams > 1,
                                         [DECODER_MEMORY] = plan->model->decoder.desc.cross};
    for (int i = 0; i < DECODER_GRAPHS; i++) {
        if (!wanted[i])
            continue;
        struct making m = making_of(plan, (enum decoder_graph)i, options);
        TRY(graph_begin(&plan->graph[i], plan->base.context));
        TRY(i == DECODER_MEMORY ? add_memory(&m) : add_layers(&m));
    }
fail:
    return status;
}
