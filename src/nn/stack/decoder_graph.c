/* A decoder's graphs: for many tokens at once, for one token, for one token of each beam, and for the keys and values
 * of the memory. */
#include <string.h>

#include "base/size.h"
#include "base/try.h"
#include "nn/stack/decoder.h"
#include "nn/stack/layers.h"

struct decoder_builder {
    struct builder base;
    const struct decoder_plan *plan;
    enum decoder_graph which;
    struct rows item_rows; /* the rows, which are (sequences, length), as (items, queries) for cross-attention */
    int past, fresh, total, memory_lengths;         /* arrays of lengths; 0: none */
    size_t self_probabilities, cross_probabilities; /* layers so far whose probabilities are an output */
};

/* ---- integers ---- */

static void add_lengths(struct decoder_builder *b)
{
    const size_t batch = b->base.rows.batch;
    if (batch > 1) {
        b->past = add_integers(&b->base, batch, NUMBER_BATCH, DECODER_PAST_LENGTHS, 0);
        b->fresh = add_integers(&b->base, batch, NUMBER_BATCH, DECODER_NEW_LENGTHS, 0);
        b->total = add_integers(&b->base, batch, NUMBER_BATCH, DECODER_TOTAL_LENGTHS, 0);
    }
    if (b->plan->desc.items > 1 && b->base.stack->desc.cross)
        b->memory_lengths = add_integers(&b->base, b->plan->desc.items, NUMBER_ITEMS, DECODER_MEMORY_LENGTHS, 0);
}

/* ---- input ---- */

/* The ids that are bound; if none are bound, the input shifted right after a start token. */
static int add_ids(struct decoder_builder *b)
{
    struct graph *graph = b->base.graph;
    const struct rows rows = b->base.rows;
    const size_t count = rows.batch * rows.length, row = rows.length * sizeof(int32_t);
    const int shifted = graph_arena_array(graph, CLATTN_DTYPE_I32, count);
    struct graph_step fill = {.op = GRAPH_FILL,
                              .condition = -DECODER_IDS,
                              .integers = DECODER_START_TOKEN,
                              .rows = count,
                              .row_bytes = sizeof(int32_t)};
    struct graph_step copy = {.op = GRAPH_COPY,
                              .condition = -DECODER_IDS,
                              .batch = NUMBER_BATCH,
                              .length = NUMBER_SHIFTED,
                              .row_bytes = sizeof(int32_t),
                              .to_item = row,
                              .from_item = row};
    fill.operand[MOVE_TO] = operand_of(shifted);
    copy.operand[MOVE_TO] = operand_at(shifted, 1);
    copy.operand[MOVE_FROM] = operand_of(graph_bound_array(graph, CLATTN_DTYPE_I32, DECODER_INPUT, 0));
    graph_add(graph, &fill);
    graph_add(graph, &copy);
    return graph_bound_array(graph, CLATTN_DTYPE_I32, DECODER_IDS, shifted);
}

static clattn_status add_input(struct decoder_builder *b)
{
    const clattn_stack_desc *d = &b->base.stack->desc;
    if (d->input == CLATTN_STACK_INPUT_VECTORS) {
        b->base.x = matrix_bound(b->base.graph, b->base.model->dtype, d->d_model, DECODER_INPUT);
        return CLATTN_SUCCESS;
    }
    const int segments = add_segments(&b->base, DECODER_SEGMENTS);
    return add_embedding(&b->base, add_ids(b), segments, NUMBER_POSITION, b->past);
}

/* ---- attention ---- */

/* A layer's keys, or with `values` 1 its values, in the cache (layers, 2, sequences or items, ...). */
static struct graph_operand cache_operand(int cache, const clattn_layout *layout, size_t batch, size_t layer,
                                          size_t values)
{
    return operand_at(cache, (2 * layer + values) * batch * (size_t)layout->stride[0]);
}

/* The layout of one layer's keys or values. */
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

static clattn_status append(struct decoder_builder *b, const struct matrix *key, const struct matrix *value,
                            const clattn_layout *cache, struct graph_operand keys, struct graph_operand values,
                            bool self)
{
    const struct rows rows = b->base.rows;
    const clattn_stack_desc *d = &b->base.stack->desc;
    clattn_kv_append_desc desc;
    struct graph_step step = {.op = GRAPH_APPEND,
                              .batch = rows.batch_number,
                              .length = rows.length_number,
                              .position = self ? NUMBER_PAST : 0};
    clattn_kv_append_desc_init(&desc);
    desc.key = heads_layout(b->base.stack, rows, key, d->kv_heads);
    desc.value = heads_layout(b->base.stack, rows, value, d->kv_heads);
    desc.key_cache = desc.value_cache = *cache;
    if (self && b->past) {
        desc.past_lengths = desc.new_lengths = clattn_layout_contiguous(CLATTN_DTYPE_I32, 1, &rows.batch);
        step.operand[APPEND_PAST_LENGTHS] = operand_of(b->past);
        step.operand[APPEND_NEW_LENGTHS] = operand_of(b->fresh);
    }
    if (self && d->rotary) {
        desc.rotate = 1;
        desc.pairing = rope_pairing(d);
        desc.base = d->rotary_base;
        desc.rotary_size = d->rotary_size;
    }
    step.operand[APPEND_KEY] = key->data;
    step.operand[APPEND_VALUE] = value->data;
    step.operand[APPEND_KEY_CACHE] = keys;
    step.operand[APPEND_VALUE_CACHE] = values;
    return graph_add_operator(b->base.graph, &step, &desc, NULL);
}

static clattn_status add_self_attention(struct decoder_builder *b, size_t layer)
{
    clattn_status status;
    const struct rows rows = b->base.rows;
    const struct stack *stack = b->base.stack;
    const clattn_stack_desc *d = &stack->desc;
    const clattn_decoder_desc *p = &b->plan->desc;
    const struct attention_weights *weights = &stack->layers[layer].self;
    const clattn_layout cache = cache_layout(&b->plan->self_cache, rows.batch);
    const int caches = graph_bound_array(b->base.graph, cache.dtype, DECODER_SELF_CACHE, 0);
    const size_t extent[4] = {rows.batch, d->heads, rows.length, p->cache_length};
    const enum graph_number position = b->past ? NUMBER_ONE : NUMBER_PAST;
    struct heads heads;
    const struct attention_sublayer sublayer = {
        .weights = weights,
        .queries = rows,
        .key = cache_operand(caches, &cache, b->plan->sequences, layer, 0),
        .value = cache_operand(caches, &cache, b->plan->sequences, layer, 1),
        .cache = cache,
        .keys = NUMBER_KEYS,
        .position = position,
        .causal = d->causal,
        .reach = layer_reach(d, layer),
        .alignment = CLATTN_ALIGNMENT_EXPLICIT,
        .query_lengths = b->fresh,
        .key_lengths = b->total,
        .positions = b->past,
        .mask = decoder_mask(&p->mask, b->which),
        .mask_slot = DECODER_MASK,
        .output = is_among(p->self_probabilities, layer),
        .probabilities = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, extent),
        .probabilities_slot = DECODER_SELF_PROBABILITIES,
        .probabilities_offset = b->self_probabilities * extent[0] * extent[1] * extent[2] * extent[3],
    };
    b->self_probabilities += sublayer.output;
    TRY(add_projections(&b->base, weights, true, &heads));
    TRY(append(b, &heads.key, &heads.value, &cache, sublayer.key, sublayer.value, true));
    if (d->rotary)
        TRY(add_rope(&b->base, &heads.query, d->heads, position, b->past));
    status = add_attention(&b->base, &sublayer, &heads);
fail:
    return status;
}

/* The sequences of an item are queries to the same keys, which the cache has once. */
static clattn_status add_cross_attention(struct decoder_builder *b, size_t layer)
{
    clattn_status status;
    const struct rows rows = b->base.rows;
    const struct stack *stack = b->base.stack;
    const clattn_decoder_desc *p = &b->plan->desc;
    const struct attention_weights *weights = &stack->layers[layer].cross;
    const clattn_layout *cache = &b->plan->cross_cache;
    const int caches = graph_bound_array(b->base.graph, cache->dtype, DECODER_CROSS_CACHE, 0);
    const size_t items = p->items, heads_count = stack->desc.heads, length = p->memory_length;
    const size_t queries = b->item_rows.length;
    struct heads heads;
    struct attention_sublayer sublayer = {
        .weights = weights,
        .queries = b->item_rows,
        .key = cache_operand(caches, cache, items, layer, 0),
        .value = cache_operand(caches, cache, items, layer, 1),
        .cache = cache_layout(cache, items),
        .keys = NUMBER_MEMORY_LENGTH,
        .key_lengths = b->memory_lengths,
        .mask = decoder_mask(&p->memory_mask, b->which),
        .mask_slot = DECODER_MEMORY_MASK,
        .output = is_among(p->cross_probabilities, layer),
        .probabilities = {.dtype = CLATTN_DTYPE_F32,
                          .rank = 4,
                          .extent = {items, heads_count, queries, length},
                          .stride = {(int64_t)(heads_count * queries * length), (int64_t)(rows.length * length),
                                     (int64_t)length, 1}},
        .probabilities_slot = DECODER_CROSS_PROBABILITIES,
        .probabilities_offset = b->cross_probabilities * rows.batch * heads_count * rows.length * length,
    };
    /* The output is (sequences, heads, length, memory): with beams each query of an item is a sequence of its own. */
    if (b->which == DECODER_BEAMS)
        sublayer.probabilities.stride[2] = (int64_t)(heads_count * length);
    b->cross_probabilities += sublayer.output;
    TRY(add_projections(&b->base, weights, false, &heads));
    status = add_attention(&b->base, &sublayer, &heads);
fail:
    return status;
}

/* ---- logits ---- */

/* The row of each sequence's last token: the embedding operator looks it up, with the rows as its table. */
static clattn_status add_last_rows(struct decoder_builder *b, struct matrix *x, struct rows *rows)
{
    const size_t sequences = b->base.rows.batch, length = b->base.rows.length;
    const size_t ids[2] = {1, sequences}, all[2] = {sequences * length, x->columns};
    const size_t found[3] = {1, sequences, x->columns};
    const int integers = add_integers(&b->base, sequences, NUMBER_BATCH, DECODER_LAST_ROWS, DECODER_LOGITS);
    clattn_embedding_desc desc;
    struct graph_step step = {
        .op = GRAPH_EMBEDDING, .condition = DECODER_LOGITS, .batch = NUMBER_ONE, .length = NUMBER_BATCH};
    *rows = (struct rows){1, sequences, NUMBER_ONE, NUMBER_BATCH};
    clattn_embedding_desc_init(&desc);
    desc.ids = clattn_layout_contiguous(CLATTN_DTYPE_I32, 2, ids);
    desc.table = clattn_layout_contiguous(x->dtype, 2, all);
    desc.y = clattn_layout_contiguous(x->dtype, 3, found);
    step.operand[EMBEDDING_IDS] = operand_of(integers);
    step.operand[EMBEDDING_TABLE] = x->data;
    *x = matrix_new(b->base.graph, *rows, x->dtype, x->columns);
    step.operand[EMBEDDING_Y] = x->data;
    return graph_add_operator(b->base.graph, &step, &desc, NULL);
}

static clattn_status add_logits(struct decoder_builder *b, const struct matrix *result)
{
    clattn_status status;
    const struct linear_operands w = linear_of(&b->base, &b->base.model->logits);
    struct matrix x = *result, logits;
    struct graph *graph = b->base.graph;
    struct rows rows = rows_flat(b->base.graph, b->base.rows);
    if (b->plan->desc.logits == CLATTN_LOGITS_LAST && b->which == DECODER_MANY)
        TRY(add_last_rows(b, &x, &rows));
    logits = matrix_bound(graph, CLATTN_DTYPE_F32, b->base.model->output_size, DECODER_LOGITS);
    const size_t first = graph->step_count;
    TRY(add_product(&b->base, rows, x, &w, logits_columns(&b->base, logits), NULL));
    add_exchange(&b->base, GRAPH_ALL_GATHER, rows, &logits);
    for (size_t i = first; i < graph->step_count; i++)
        graph->steps[i].condition = DECODER_LOGITS;
fail:
    return status;
}

/* ---- graphs ---- */

static clattn_status add_layers(struct decoder_builder *b)
{
    clattn_status status;
    const clattn_stack_desc *d = &b->base.stack->desc;
    const struct matrix result = stack_result(&b->base, DECODER_OUTPUT);
    add_lengths(b);
    TRY(add_input(b));
    for (size_t i = 0; i < d->layers; i++) {
        TRY(add_self_attention(b, i));
        if (d->cross)
            TRY(add_cross_attention(b, i));
        TRY(end_layer(&b->base, i, &result));
    }
    if (b->plan->desc.logits)
        TRY(add_logits(b, &result));
    status = graph_finish(b->base.graph);
fail:
    return status;
}

static clattn_status add_memory(struct decoder_builder *b)
{
    clattn_status status = CLATTN_SUCCESS;
    const struct rows rows = b->base.rows;
    const struct stack *stack = b->base.stack;
    const clattn_stack_desc *d = &stack->desc;
    const clattn_dtype dtype = b->base.model->dtype;
    const struct matrix memory = matrix_bound(b->base.graph, dtype, d->d_memory, DECODER_MEMORY_ARRAY);
    const clattn_layout cache = cache_layout(&b->plan->cross_cache, rows.batch);
    const int caches = graph_bound_array(b->base.graph, cache.dtype, DECODER_CROSS_CACHE, 0);
    for (size_t i = 0; i < d->layers; i++) {
        const struct linear_operands w = linear_of(&b->base, &stack->layers[i].cross.memory);
        struct matrix key = matrix_new(b->base.graph, rows, dtype, 2 * stack->inner_kv), value = key;
        value.data.offset = (int64_t)stack->inner_kv;
        TRY(add_product(&b->base, rows_flat(b->base.graph, rows), memory, &w, key, NULL));
        TRY(append(b, &key, &value, &cache, cache_operand(caches, &cache, rows.batch, i, 0),
                   cache_operand(caches, &cache, rows.batch, i, 1), false));
    }
    status = graph_finish(b->base.graph);
fail:
    return status;
}

static struct decoder_builder builder_of(struct decoder_plan *plan, enum decoder_graph which,
                                         const clattn_plan_options *options)
{
    const clattn_decoder_desc *d = &plan->desc;
    const size_t beams = which == DECODER_BEAMS ? d->beams : 1, length = which == DECODER_MANY ? d->length : 1;
    struct decoder_builder b = {.base = {.graph = &plan->graph[which],
                                         .model = plan->model,
                                         .stack = &plan->model->decoder,
                                         .options = options,
                                         .rows = {d->items * beams, length, NUMBER_BATCH, NUMBER_LENGTH}},
                                .plan = plan,
                                .which = which,
                                .item_rows = {d->items, beams * length, NUMBER_ITEMS, NUMBER_ITEM_QUERIES}};
    if (which == DECODER_MEMORY)
        b.base.rows = (struct rows){d->items, d->memory_length, NUMBER_ITEMS, NUMBER_MEMORY_LENGTH};
    return b;
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
        struct decoder_builder b = builder_of(plan, (enum decoder_graph)i, options);
        TRY(graph_begin(&plan->graph[i], plan->base.context));
        plan->graph[i].prepack = plan->desc.prepack;
        plan->graph[i].earlier = plan->graph;
        plan->graph[i].earlier_count = (size_t)i;
        TRY(i == DECODER_MEMORY ? add_memory(&b) : add_layers(&b));
    }
fail:
    return status;
}
