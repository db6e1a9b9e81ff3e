#include "tool/attention/request.h"

#include <stdlib.h>

#include "tool/attention/array_order.h"

#define DESC(field) offsetof(clattn_attention_desc, field)
#define ARGS(field) offsetof(clattn_attention_args, field)

const attention_input_place attention_inputs[INPUT_COUNT] = {
    [INPUT_QUERY] = {"query", DESC(query), ARGS(query)},
    [INPUT_KEY] = {"key", DESC(key), ARGS(key)},
    [INPUT_VALUE] = {"value", DESC(value), ARGS(value)},
    [INPUT_MASK] = {"mask", DESC(mask), ARGS(mask)},
    [INPUT_BIAS] = {"bias", DESC(bias), ARGS(bias)},
    [INPUT_ALIBI] = {"alibi", DESC(scoring.alibi), ARGS(scoring.alibi)},
    [INPUT_SINKS] = {"sinks", DESC(scoring.sinks), ARGS(scoring.sinks)},
    [INPUT_VECTOR] = {"vector", DESC(scoring.vector), ARGS(scoring.vector)},
    [INPUT_QUERY_LENGTHS] = {"query_lengths", DESC(lengths.query), ARGS(lengths.query)},
    [INPUT_KEY_LENGTHS] = {"key_lengths", DESC(lengths.key), ARGS(lengths.key)},
    [INPUT_POSITIONS] = {"positions", DESC(lengths.positions), ARGS(lengths.positions)},
    [INPUT_QUERY_STARTS] = {"query_starts", DESC(lengths.query_starts), ARGS(lengths.query_starts)},
    [INPUT_KEY_STARTS] = {"key_starts", DESC(lengths.key_starts), ARGS(lengths.key_starts)},
    [INPUT_BLOCK_TABLE] = {"block_table", DESC(cache.block_table), ARGS(cache.block_table)},
    [INPUT_KEY_SCALE] = {"key_scale", DESC(cache.key_scale), ARGS(cache.key_scale)},
    [INPUT_VALUE_SCALE] = {"value_scale", DESC(cache.value_scale), ARGS(cache.value_scale)},
    [INPUT_USER] = {"user", 0, ARGS(snippets.buffer[0])},
    [INPUT_USER + 1] = {"user", 0, ARGS(snippets.buffer[1])},
    [INPUT_USER + 2] = {"user", 0, ARGS(snippets.buffer[2])},
    [INPUT_USER + 3] = {"user", 0, ARGS(snippets.buffer[3])},
};

const attention_input_place attention_results[RESULT_COUNT] = {
    [RESULT_OUTPUT] = {"", DESC(output), ARGS(output)},
    [RESULT_LSE] = {"lse_", DESC(outputs.lse), ARGS(outputs.lse)},
    [RESULT_ENTROPY] = {"entropy_", DESC(outputs.entropy), ARGS(outputs.entropy)},
    [RESULT_SCORES] = {"scores_", DESC(outputs.scores), ARGS(outputs.scores)},
};

void attention_begin(attention_request *request)
{
    *request = (attention_request){.wants = {[RESULT_OUTPUT] = true}};
    clattn_attention_desc_init(&request->desc);
    clattn_attention_args_init(&request->args);
}

int attention_result_allocate(const attention_request *request, attention_result result, const char *name,
                              host_array *array)
{
    const attention_sizes *sizes = &request->sizes;
    const clattn_attention_desc *desc = &request->desc;
    if (result == RESULT_SCORES)
        return host_allocate(desc->outputs.scores.dtype, 4, desc->outputs.scores.extent, name, array);
    if (result != RESULT_OUTPUT)
        return host_allocate(CLATTN_DTYPE_F32, 3, desc->query.extent, name, array);
    size_t extent[CLATTN_MAX_RANK];
    const char *order = request->order != NULL ? request->order : "bhsd";
    int32_t rank = order_extents(order, desc->query.extent[0], sizes->heads, sizes->queries, sizes->d_v, extent);
    return host_allocate(desc->output.dtype, rank, extent, name, array);
}

double attention_pairs(size_t query_length, size_t key_length, bool causal, int32_t align)
{
    if (!causal)
        return (double)query_length * (double)key_length;
    double pairs = 0.0;
    int64_t position = align == CLATTN_ALIGNMENT_BOTTOM_RIGHT ? (int64_t)key_length - (int64_t)query_length : 0;
    for (int64_t i = 0; i < (int64_t)query_length; i++) {
        int64_t keys = i + position + 1;
        if (keys > (int64_t)key_length)
            keys = (int64_t)key_length;
        if (keys > 0)
            pairs += (double)keys;
    }
    return pairs;
}

void attention_release(attention_request *request)
{
    for (int i = 0; i < INPUT_COUNT; i++)
        host_release(&request->input[i]);
    free(request->score_mod);
    free(request->mask_mod);
    *request = (attention_request){0};
}
