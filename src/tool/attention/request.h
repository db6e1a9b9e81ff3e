/* One attention as the command was asked for it: the library's description and arguments, and the host arrays
 * behind them.  Whoever makes one fills the options in `desc` and `args` and the arrays; attention_complete
 * checks that all of it fits together, naming the file that is to blame, and fills in layouts, lengths and
 * the cache.  Then a job (job.h) can run it, explain can plan it, and verify.h can compare its results. */
#ifndef CLATTN_TOOL_ATTENTION_REQUEST_H
#define CLATTN_TOOL_ATTENTION_REQUEST_H

#include <clattn/attention.h>

#include "ref/attention.h"
#include "tool/run/host.h"

typedef enum attention_input {
    INPUT_QUERY, /* with `fused` queries, keys and values in one array; the next two are then absent */
    INPUT_KEY,   /* as given; after attention_complete as the device has it, quantised or in pages */
    INPUT_VALUE,
    INPUT_MASK,
    INPUT_BIAS,
    INPUT_ALIBI,
    INPUT_SINKS,
    INPUT_VECTOR,
    INPUT_QUERY_LENGTHS,
    INPUT_KEY_LENGTHS,
    INPUT_POSITIONS,
    INPUT_QUERY_STARTS,
    INPUT_KEY_STARTS,
    INPUT_BLOCK_TABLE, /* this and the scales are made by attention_complete */
    INPUT_KEY_SCALE,
    INPUT_VALUE_SCALE,
    INPUT_USER,
    INPUT_COUNT = INPUT_USER + CLATTN_USER_BUFFERS
} attention_input;

typedef enum attention_result {
    RESULT_OUTPUT,
    RESULT_LSE,
    RESULT_ENTROPY,
    RESULT_SCORES,
    RESULT_COUNT
} attention_result;

/* `batch` counts items, packed or not; `queries` and `keys` are rows of the arrays, the longest item's where
 * they are packed being args' lengths. */
typedef struct attention_sizes {
    size_t batch, heads, kv_heads, queries, keys, d_k, d_v;
} attention_sizes;

/* Made by attention_begin from a zeroed one. An input with a dtype but without data is a shape to plan for. */
typedef struct attention_request {
    clattn_attention_desc desc; /* options by the caller, layouts by attention_complete */
    clattn_attention_args args; /* numbers; bindings' offsets by attention_complete; no buffers */
    host_array input[INPUT_COUNT];
    const char *order; /* of the dimensions of Q, K, V and the output (array_order.h); "bhsd" at first */
    bool fused;
    size_t given_heads[2];     /* query and key heads, for an order with 'e' */
    clattn_dtype output_dtype; /* CLATTN_DTYPE_NONE: the queries' */
    bool wants[RESULT_COUNT];
    clattn_dtype kv_dtype; /* CLATTN_DTYPE_I8 or _I4: quantised by the command; CLATTN_DTYPE_NONE: as given */
    size_t kv_group;       /* elements that share a scale; 0: a row's */
    size_t page_size;      /* 0: no pages */
    char *score_mod, *mask_mod, *score_mod_grad; /* owned; desc points to them */
    attention_sizes sizes;                       /* by attention_complete */
} attention_request;

/* The offsets of each input in the public structs and in ref_attention_data; the user's buffers have a binding alone. */
typedef struct attention_input_place {
    size_t layout, binding, data;
} attention_input_place;
extern const attention_input_place attention_inputs[INPUT_COUNT];

/* The offsets of each result, and the prefix of its fields in a report. */
typedef struct attention_result_place {
    const char *name;
    size_t layout, binding;
} attention_result_place;
extern const attention_result_place attention_results[RESULT_COUNT];

static inline clattn_layout *attention_input_layout(clattn_attention_desc *desc, attention_input input)
{
    return (clattn_layout *)((char *)desc + attention_inputs[input].layout);
}

static inline clattn_binding *attention_input_binding(clattn_attention_args *args, attention_input input)
{
    return (clattn_binding *)((char *)args + attention_inputs[input].binding);
}

static inline clattn_layout *attention_result_layout(clattn_attention_desc *desc, attention_result result)
{
    return (clattn_layout *)((char *)desc + attention_results[result].layout);
}

static inline clattn_binding *attention_result_binding(clattn_attention_args *args, attention_result result)
{
    return (clattn_binding *)((char *)args + attention_results[result].binding);
}

/* The array that an input was given in: of a fused request all three are in the queries'. */
static inline const host_array *attention_source(const attention_request *request, attention_input input)
{
    return &request->input[request->fused ? INPUT_QUERY : input];
}

/* All defaults. */
void attention_begin(attention_request *request);

/* Checks that everything fits together, and fills in what the caller leaves to it. */
int attention_complete(attention_request *request);

/* Parts of attention_complete, each in a file of its own: the optional arrays, and the cache of keys and
 * values. */
int attention_complete_options(attention_request *request);
int attention_complete_cache(attention_request *request);

/* The reference's problem, whose keys and values lie in the queries' array if the request is fused.  It borrows from the
 * request. */
ref_attention_problem attention_reference(const attention_request *request);

/* Allocates a result, which is named after its file. */
int attention_result_allocate(const attention_request *request, attention_result result, const char *name,
                              host_array *array);

/* Turns a complete description, with outputs.lse, into that of the gradients by query, key and value. */
void attention_describe_backward(clattn_attention_desc *desc);

void attention_release(attention_request *request);

#endif
