/* Checks that queries, keys and values fit together, and makes their layouts and those of the results. */
#include "tool/attention/array_order.h"
#include "tool/attention/request.h"

/* Checks the element type. uint16 is taken as bfloat16 only with --dtype bf16. */
static int check_dtype(const attention_request *request, const host_array *array)
{
    clattn_dtype dtype = array->tensor.dtype, wanted = request->output_dtype;
    if (dtype == CLATTN_DTYPE_BF16 && wanted != CLATTN_DTYPE_BF16)
        return complain(TOOL_BAD_INPUT,
                        "%s: element type uint16, expected float32 or float16 (bfloat16 with --dtype bf16)",
                        array->name);
    if (dtype == CLATTN_DTYPE_F64 && wanted != CLATTN_DTYPE_F64)
        return complain(TOOL_BAD_INPUT,
                        "%s: element type float64, expected float32 (in NumPy: .astype(\"float32\"), or --dtype f64)",
                        array->name);
    if (wanted == CLATTN_DTYPE_F64 && dtype != CLATTN_DTYPE_F64)
        return complain(TOOL_BAD_INPUT, "%s: element type %s, expected float64, as --dtype f64 says", array->name,
                        clattn_dtype_name(dtype));
    if (dtype != CLATTN_DTYPE_F32 && dtype != CLATTN_DTYPE_F16 && dtype != CLATTN_DTYPE_BF16 &&
        dtype != CLATTN_DTYPE_F64)
        return complain(TOOL_BAD_INPUT, "%s: element type %s, expected float32 or float16", array->name,
                        clattn_dtype_name(dtype));
    return TOOL_DONE;
}

static int take_view(attention_request *request, attention_input input)
{
    const host_array *array = attention_source(request, input);
    size_t heads = request->given_heads[0], kv_heads = request->given_heads[1];
    order_part part = {input == INPUT_QUERY ? heads : kv_heads, 0, 0, (size_t)(input - INPUT_QUERY)};
    part.all = part.heads;
    if (request->fused && order_find(request->order, '3') < 0) {
        part.all = heads + 2 * kv_heads;
        part.first = input == INPUT_QUERY ? 0 : input == INPUT_KEY ? heads : heads + kv_heads;
    }
    int status = order_view(array, request->order, &part, attention_input_layout(&request->desc, input),
                            &attention_input_binding(&request->args, input)->offset);
    return status == TOOL_DONE ? check_dtype(request, array) : status;
}

/* Refuses an array unless the extent that `letter` stands for is `expected`; `of` explains why. */
static int expect(const attention_request *request, attention_input input, char letter, size_t expected, const char *of)
{
    const host_array *array = attention_source(request, input);
    const char *words[] = {"batch", "number of heads", "length", "head size"};
    int place = order_find("bhsd", letter), dimension = order_find(request->order, letter);
    size_t found = attention_input_layout((clattn_attention_desc *)&request->desc, input)->extent[place];
    if (found == expected)
        return TOOL_DONE;
    if (dimension >= 0)
        return complain(TOOL_BAD_INPUT, "%s: shape %s, dimension %d is %zu, expected %zu: %s", array->name,
                        shape_of(&array->tensor).text, dimension, found, expected, of);
    return complain(TOOL_BAD_INPUT, "%s: shape %s, the %s is %zu, expected %zu: %s", array->name,
                    shape_of(&array->tensor).text, words[place], found, expected, of);
}

static int check_sizes(attention_request *request)
{
    const size_t *q = request->desc.query.extent, *k = request->desc.key.extent, *v = request->desc.value.extent;
    const host_array *key = attention_source(request, INPUT_KEY);
    for (attention_input i = INPUT_QUERY; i <= INPUT_VALUE; i++) {
        const host_array *array = attention_source(request, i);
        if (attention_input_layout(&request->desc, i)->extent[3] == 0)
            return complain(TOOL_BAD_INPUT, "%s: shape %s, the head size is 0, expected at least 1", array->name,
                            shape_of(&array->tensor).text);
    }
    if (k[1] == 0 ? q[1] != 0 : q[1] % k[1] != 0)
        return complain(TOOL_BAD_INPUT, "%s: shape %s has %zu key heads, expected a divisor of the query's %zu",
                        key->name, shape_of(&key->tensor).text, k[1], q[1]);
    int status;
    TOOL_TRY(expect(request, INPUT_KEY, 'd', q[3], "the query's head size"));
    TOOL_TRY(expect(request, INPUT_VALUE, 'h', k[1], "the key's heads"));
    TOOL_TRY(expect(request, INPUT_VALUE, 's', k[2], "the key's length"));
    request->sizes = (attention_sizes){q[0], q[1], k[1], q[2], k[2], q[3], v[3]};
fail:
    return status;
}

/* Finds the number of batch items, which the starts give if sequences are packed. */
static int check_batch(attention_request *request)
{
    const size_t queries = request->desc.query.extent[0];
    const host_array *query_starts = &request->input[INPUT_QUERY_STARTS],
                     *key_starts = &request->input[INPUT_KEY_STARTS];
    const host_array *starts = host_present(query_starts) ? query_starts : key_starts;
    int status = TOOL_DONE;
    if (!host_present(starts))
        return expect(request, INPUT_KEY, 'b', queries, "the query's batch");
    if (starts->tensor.rank != 1 || starts->tensor.extent[0] == 0)
        return complain(TOOL_BAD_INPUT, "%s: shape %s, expected (batch + 1,)", starts->name,
                        shape_of(&starts->tensor).text);
    request->sizes.batch = starts->tensor.extent[0] - 1;
    if (host_present(query_starts))
        TOOL_TRY(expect(request, INPUT_QUERY, 'b', 1, "all items' queries are packed into one"));
    else
        TOOL_TRY(expect(request, INPUT_QUERY, 'b', request->sizes.batch, "as many as --key-starts has"));
    if (host_present(key_starts))
        TOOL_TRY(expect(request, INPUT_KEY, 'b', 1, "all items' keys are packed into one"));
    else
        TOOL_TRY(expect(request, INPUT_KEY, 'b', request->sizes.batch, "as many as --query-starts has"));
fail:
    return status;
}

/* Makes the layouts of the results. */
static void describe_results(attention_request *request)
{
    clattn_attention_desc *desc = &request->desc;
    const attention_sizes *sizes = &request->sizes;
    size_t extent[CLATTN_MAX_RANK];
    clattn_dtype dtype = request->output_dtype != CLATTN_DTYPE_NONE ? request->output_dtype : desc->query.dtype;
    host_array output = {.tensor = {.dtype = dtype}};
    order_part part = {sizes->heads, 0, sizes->heads, 0};
    char plain[CLATTN_MAX_RANK + 1];
    int32_t length = 0;
    int64_t offset;
    for (const char *c = request->order; *c != '\0'; c++)
        if (*c != '3')
            plain[length++] = *c;
    plain[length] = '\0';
    output.tensor.rank = order_extents(plain, desc->query.extent[0], sizes->heads, sizes->queries, sizes->d_v, extent);
    for (int32_t i = 0; i < output.tensor.rank; i++)
        output.tensor.extent[i] = extent[i];
    order_view(&output, plain, &part, &desc->output, &offset); /* made to fit */
    if (request->wants[RESULT_LSE])
        desc->outputs.lse = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, desc->query.extent);
    if (request->wants[RESULT_ENTROPY])
        desc->outputs.entropy = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, desc->query.extent);
}

int attention_complete(attention_request *request)
{
    clattn_attention_args *args = &request->args;
    int status = TOOL_DONE;
    for (attention_input i = INPUT_QUERY; i <= INPUT_VALUE; i++)
        TOOL_TRY(take_view(request, i));
    TOOL_TRY(check_sizes(request));
    TOOL_TRY(check_batch(request));
    TOOL_TRY(expect(request, INPUT_VALUE, 'b', request->desc.key.extent[0], "the key's batch"));
    describe_results(request);
    args->explicit_lengths = 1;
    args->batch = request->sizes.batch;
    args->query_length = request->sizes.queries;
    args->key_length = request->sizes.keys;
    TOOL_TRY(attention_complete_options(request));
    TOOL_TRY(attention_complete_cache(request));
    if (request->wants[RESULT_SCORES]) {
        size_t rows = request->desc.key.extent[2];
        if (host_present(&request->input[INPUT_BLOCK_TABLE]))
            rows *= request->desc.cache.block_table.extent[1];
        const size_t extent[4] = {args->batch, request->sizes.heads, args->query_length, rows};
        request->desc.outputs.scores = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, extent);
    }
fail:
    return status;
}
