#include "tool/attention/request.h"

#include <stdlib.h>

#include "tool/attention/array_order.h"

#define DESC(field) offsetof(clattn_attention_desc, field)
#define ARGS(field) offsetof(clattn_attention_args, field)
#define DATA(field) offsetof(ref_attention_data, field)

const attention_input_place attention_inputs[INPUT_COUNT] = {
    [INPUT_QUERY] = {DESC(query), ARGS(query), DATA(query)},
    [INPUT_KEY] = {DESC(key), ARGS(key), DATA(key)},
    [INPUT_VALUE] = {DESC(value), ARGS(value), DATA(value)},
    [INPUT_MASK] = {DESC(mask), ARGS(mask), DATA(mask)},
    [INPUT_BIAS] = {DESC(bias), ARGS(bias), DATA(bias)},
    [INPUT_ALIBI] = {DESC(scoring.alibi), ARGS(scoring.alibi), DATA(alibi)},
    [INPUT_SINKS] = {DESC(scoring.sinks), ARGS(scoring.sinks), DATA(sinks)},
    [INPUT_VECTOR] = {DESC(scoring.vector), ARGS(scoring.vector), DATA(vector)},
    [INPUT_QUERY_LENGTHS] = {DESC(lengths.query), ARGS(lengths.query), DATA(query_lengths)},
    [INPUT_KEY_LENGTHS] = {DESC(lengths.key), ARGS(lengths.key), DATA(key_lengths)},
    [INPUT_POSITIONS] = {DESC(lengths.positions), ARGS(lengths.positions), DATA(positions)},
    [INPUT_QUERY_STARTS] = {DESC(lengths.query_starts), ARGS(lengths.query_starts), DATA(query_starts)},
    [INPUT_KEY_STARTS] = {DESC(lengths.key_starts), ARGS(lengths.key_starts), DATA(key_starts)},
    [INPUT_BLOCK_TABLE] = {DESC(cache.block_table), ARGS(cache.block_table), DATA(block_table)},
    [INPUT_KEY_SCALE] = {DESC(cache.key_scale), ARGS(cache.key_scale), DATA(key_scale)},
    [INPUT_VALUE_SCALE] = {DESC(cache.value_scale), ARGS(cache.value_scale), DATA(value_scale)},
    [INPUT_USER] = {0, ARGS(snippets.buffer[0]), 0},
    [INPUT_USER + 1] = {0, ARGS(snippets.buffer[1]), 0},
    [INPUT_USER + 2] = {0, ARGS(snippets.buffer[2]), 0},
    [INPUT_USER + 3] = {0, ARGS(snippets.buffer[3]), 0},
};

const attention_result_place attention_results[RESULT_COUNT] = {
    [RESULT_OUTPUT] = {"", DESC(output), ARGS(output)},
    [RESULT_LSE] = {"lse_", DESC(outputs.lse), ARGS(outputs.lse)},
    [RESULT_ENTROPY] = {"entropy_", DESC(outputs.entropy), ARGS(outputs.entropy)},
    [RESULT_SCORES] = {"scores_", DESC(outputs.scores), ARGS(outputs.scores)},
};

void attention_begin(attention_request *request)
{
    *request = (attention_request){.order = "bhsd", .wants = {[RESULT_OUTPUT] = true}};
    clattn_attention_desc_init(&request->desc);
    clattn_attention_args_init(&request->args);
}

ref_attention_problem attention_reference(const attention_request *request)
{
    ref_attention_problem problem = {.desc = &request->desc, .args = &request->args};
    for (int i = 0; i < INPUT_USER; i++)
        *(const void **)((char *)&problem.data + attention_inputs[i].data) = request->input[i].tensor.data;
    if (problem.data.key == NULL)
        problem.data.key = problem.data.query;
    if (problem.data.value == NULL)
        problem.data.value = problem.data.query;
    return problem;
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
    int32_t rank =
        order_extents(request->order, desc->query.extent[0], sizes->heads, sizes->queries, sizes->d_v, extent);
    return host_allocate(desc->output.dtype, rank, extent, name, array);
}

void attention_release(attention_request *request)
{
    for (int i = 0; i < INPUT_COUNT; i++)
        host_release(&request->input[i]);
    clattn_control_release(&request->args.control);
    free(request->score_mod);
    free(request->mask_mod);
    free(request->score_mod_grad);
    *request = (attention_request){0};
}
