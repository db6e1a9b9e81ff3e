/* Checks the optional arrays and makes their layouts. */
#include "tool/attention/request.h"
#include "base/size.h"

/* Element `index` of an int32 or int64 array; 0 of a shape without data. */
static int64_t integer_at(const host_array *array, size_t index)
{
    if (array->tensor.data == NULL)
        return 0;
    return array->tensor.dtype == CLATTN_DTYPE_I32 ? ((const int32_t *)array->tensor.data)[index]
                                                   : ((const int64_t *)array->tensor.data)[index];
}

/* A mask or bias: what is added has a float type, what selects is bool. */
static int take_mask(attention_request *request, attention_input input)
{
    const host_array *mask = &request->input[input];
    const attention_sizes *sizes = &request->sizes;
    clattn_dtype dtype = mask->tensor.dtype;
    bool selects = dtype == CLATTN_DTYPE_BOOL && input == INPUT_MASK;
    bool adds = dtype == CLATTN_DTYPE_F32 || dtype == CLATTN_DTYPE_F16 ||
                (dtype == CLATTN_DTYPE_BF16 && request->output_dtype == CLATTN_DTYPE_BF16) ||
                (dtype == CLATTN_DTYPE_F64 && request->output_dtype == CLATTN_DTYPE_F64);
    if (!selects && !adds)
        return complain(TOOL_BAD_INPUT, "%s: element type %s, expected %sfloat32 or float16 (added)", mask->name,
                        dtype == CLATTN_DTYPE_BF16 ? "uint16" : clattn_dtype_name(dtype),
                        input == INPUT_MASK ? "bool (true = attend), " : "");
    const size_t whole[4] = {sizes->batch, sizes->heads, request->args.query_length, sizes->keys};
    int status = host_expect_broadcast(mask, request->desc.short_mask, 4, whole);
    if (status != TOOL_DONE)
        return status;
    if (request->desc.cache.kind == CLATTN_CACHE_KIND_RING && mask->tensor.extent[mask->tensor.rank - 1] != 1)
        return complain(TOOL_BAD_INPUT, "%s: shape %s, expected a last dimension of 1, as --ring needs", mask->name,
                        shape_of(&mask->tensor).text);
    *attention_input_layout(&request->desc, input) = host_layout(mask);
    return TOOL_DONE;
}

/* Takes an array of one float32 number a head. */
static int take_per_head(attention_request *request, attention_input input)
{
    const host_array *array = &request->input[input];
    const clattn_host_tensor *tensor = &array->tensor;
    size_t heads = request->sizes.heads, batch = request->sizes.batch;
    int status = host_expect_dtype(array, CLATTN_DTYPE_F32);
    if (status != TOOL_DONE)
        return status;
    bool by_item = input == INPUT_ALIBI && tensor->rank == 2;
    if ((tensor->rank != 1 && !by_item) || tensor->extent[tensor->rank - 1] != heads ||
        (by_item && tensor->extent[0] != 1 && tensor->extent[0] != batch))
        return complain(TOOL_BAD_INPUT, "%s: shape %s, expected (%zu,)%s: a number for each query head", array->name,
                        shape_of(tensor).text, heads, input == INPUT_ALIBI ? " or (batch or 1, heads)" : "");
    *attention_input_layout(&request->desc, input) = host_layout(array);
    return TOOL_DONE;
}

/* Additive attention's weights. */
static int take_vector(attention_request *request)
{
    const host_array *array = &request->input[INPUT_VECTOR];
    const clattn_host_tensor *tensor = &array->tensor;
    size_t heads = request->sizes.heads, d_k = request->sizes.d_k;
    int status = host_expect_dtype(array, CLATTN_DTYPE_F32);
    if (status != TOOL_DONE)
        return status;
    size_t rows = tensor->rank == 2 ? tensor->extent[0] : 1;
    if (tensor->rank < 1 || tensor->rank > 2 || tensor->extent[tensor->rank - 1] != d_k || (rows != 1 && rows != heads))
        return complain(TOOL_BAD_INPUT, "%s: shape %s, expected (%zu,) or (%zu, %zu): (heads, head size)", array->name,
                        shape_of(tensor).text, d_k, heads, d_k);
    request->desc.scoring.vector = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (size_t[]){rows, d_k});
    return TOOL_DONE;
}

/* One integer an item (and one more for starts), each from `low` to `high`. */
static int take_integers(attention_request *request, attention_input input, int64_t low, int64_t high)
{
    const host_array *array = &request->input[input];
    bool starts = input == INPUT_QUERY_STARTS || input == INPUT_KEY_STARTS;
    size_t count = request->sizes.batch + starts;
    if (array->tensor.dtype != CLATTN_DTYPE_I32 && array->tensor.dtype != CLATTN_DTYPE_I64)
        return complain(TOOL_BAD_INPUT, "%s: element type %s, expected int32 or int64", array->name,
                        clattn_dtype_name(array->tensor.dtype));
    if (array->tensor.rank != 1 || array->tensor.extent[0] != count)
        return complain(TOOL_BAD_INPUT, "%s: shape %s, expected (%zu,): one for each batch item%s", array->name,
                        shape_of(&array->tensor).text, count, starts ? " and the end" : "");
    for (size_t i = 0; i < count && array->tensor.data != NULL; i++) {
        int64_t value = integer_at(array, i);
        if (value < low || value > high)
            return complain(TOOL_BAD_INPUT, "%s: element %zu is %lld, expected %lld to %lld", array->name, i,
                            (long long)value, (long long)low, (long long)high);
        low = starts ? value : low;
    }
    *attention_input_layout(&request->desc, input) = host_layout(array);
    return TOOL_DONE;
}

/* The longest item of packed sequences. */
static size_t longest(const attention_request *request, attention_input input)
{
    const host_array *starts = &request->input[input];
    int64_t most = 0;
    for (size_t b = 0; b < request->sizes.batch; b++) {
        int64_t length = integer_at(starts, b + 1) - integer_at(starts, b);
        most = length > most ? length : most;
    }
    return (size_t)most;
}

#define MOST_KEYS (INT32_MAX - 65536) /* the library's limit of a length */
#define MOST_POSITION ((int64_t)1 << 40)

static int take_lengths(attention_request *request)
{
    const attention_sizes *sizes = &request->sizes;
    clattn_attention_args *args = &request->args;
    bool ring = request->desc.cache.kind == CLATTN_CACHE_KIND_RING;
    int64_t queries = (int64_t)sizes->queries, keys = ring ? MOST_KEYS : (int64_t)sizes->keys;
    const struct {
        attention_input input;
        int64_t low, high;
    } arrays[] = {
        {INPUT_QUERY_STARTS, 0, (int64_t)sizes->queries},
        {INPUT_KEY_STARTS, 0, (int64_t)sizes->keys},
        {INPUT_QUERY_LENGTHS, 0, queries},
        {INPUT_KEY_LENGTHS, 0, keys},
        {INPUT_POSITIONS, -MOST_POSITION, MOST_POSITION},
    };
    for (size_t i = 0; i < COUNT_OF(arrays); i++) {
        attention_input input = arrays[i].input;
        int status = host_present(&request->input[input]) ? take_integers(request, input, arrays[i].low, arrays[i].high)
                                                          : TOOL_DONE;
        if (status != TOOL_DONE)
            return status;
    }
    if (host_present(&request->input[INPUT_QUERY_STARTS])) {
        /* 0 would mean all rows. */
        size_t rows = size_min(size_max(1, longest(request, INPUT_QUERY_STARTS)), sizes->queries);
        request->desc.lengths.longest_query = args->query_length = rows;
    }
    if (host_present(&request->input[INPUT_KEY_STARTS]))
        args->key_length = longest(request, INPUT_KEY_STARTS);
    /* A ring's lengths count all keys that were ever appended. */
    for (size_t b = 0; ring && host_present(&request->input[INPUT_KEY_LENGTHS]) && b < sizes->batch; b++)
        args->key_length = size_max(args->key_length, (size_t)integer_at(&request->input[INPUT_KEY_LENGTHS], b));
    return TOOL_DONE;
}

static void take_users(attention_request *request)
{
    request->desc.snippets.score_mod = request->score_mod;
    request->desc.snippets.mask_mod = request->mask_mod;
    request->desc.snippets.score_mod_grad = request->score_mod_grad;
    for (int i = 0; i < CLATTN_USER_BUFFERS; i++)
        request->desc.snippets.buffer_dtype[i] = request->input[INPUT_USER + i].tensor.dtype;
}

int attention_complete_options(attention_request *request)
{
    const host_array *input = request->input;
    int status;
    TOOL_TRY(take_lengths(request));
    for (attention_input i = INPUT_MASK; i <= INPUT_BIAS; i++)
        if (host_present(&input[i]))
            TOOL_TRY(take_mask(request, i));
    for (attention_input i = INPUT_ALIBI; i <= INPUT_SINKS; i++)
        if (host_present(&input[i]))
            TOOL_TRY(take_per_head(request, i));
    if (host_present(&input[INPUT_VECTOR]))
        TOOL_TRY(take_vector(request));
    take_users(request);
fail:
    return status;
}
