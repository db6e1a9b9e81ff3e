/* The problem that an attention's description states: checked, normalised, and what kernels are told of it. */
#ifndef CLATTN_OPS_ATTENTION_DESC_H
#define CLATTN_OPS_ATTENTION_DESC_H

#include "attention/args.h"
#include "base/layout.h"
#include "base/sha256.h"
#include "clattn/attention.h"
#include "device/capabilities.h"

/* The optional arrays, in the order in which the kernels take them (cl/attention/arrays.h); results last. */
enum attention_array {
    ATTENTION_MASK,
    ATTENTION_BIAS,
    ATTENTION_ALIBI,
    ATTENTION_SINKS,
    ATTENTION_VECTOR,
    ATTENTION_QUERY_LENGTHS,
    ATTENTION_KEY_LENGTHS,
    ATTENTION_POSITIONS,
    ATTENTION_QUERY_STARTS,
    ATTENTION_KEY_STARTS,
    ATTENTION_BLOCK_TABLE,
    ATTENTION_KEY_SCALE,
    ATTENTION_VALUE_SCALE,
    ATTENTION_LSE,
    ATTENTION_ENTROPY,
    ATTENTION_SCORES,
    ATTENTION_ARRAYS
};

/* The members of `gradients`: those that backward reads, then those that it writes. */
enum attention_gradient {
    GRADIENT_OUTPUT,
    GRADIENT_LSE,
    GRADIENT_QUERY,
    GRADIENT_KEY,
    GRADIENT_VALUE,
    GRADIENT_MASK,
    GRADIENT_BIAS,
    GRADIENT_VECTOR,
    GRADIENT_ALIBI,
    GRADIENT_SINKS,
    ATTENTION_GRADIENTS
};

#define ATTENTION_INPUT_GRADIENTS GRADIENT_QUERY /* those before it are read */

#define ATTENTION_INPUT_ARRAYS ATTENTION_LSE /* the optional arrays before it are inputs of every attention kernel */

/* A description that has passed attention_problem_read: normalised, consistent, within the kernels' ranges. */
struct attention_problem {
    /* Two problems are the same if these bytes are. The description's pointers to snippets are NULL. */
    clattn_attention_desc desc;
    uint8_t score_mod_digest[SHA256_BYTES], mask_mod_digest[SHA256_BYTES]; /* zeros without a snippet */
    uint8_t score_mod_grad_digest[SHA256_BYTES];                           /* zeros also forward */

    /* Derived from the above. */
    const char *score_mod, *mask_mod; /* NULL: none. The caller's texts; in a plan, copies that the plan owns */
    const char *score_mod_grad;       /* NULL also forward */
    size_t batch, heads, kv_heads, query_length, key_length, d_k, d_v; /* the most that an item has */
    size_t page_size;
    float scale;
    double exact_scale;
    bool has[ATTENTION_ARRAYS];
    bool backward, gradient[ATTENTION_GRADIENTS];
    bool is_double, packed_queries, packed_keys;
    size_t mask_extent[4], bias_extent[4]; /* batch, heads, queries, keys: each 1 or as above; keys also in between */
    array4 mask, bias;                     /* strides, 0 where they broadcast */
};

#define ATTENTION_DESC_BYTES offsetof(struct attention_problem, score_mod) /* tells two problems apart */

/* Whether a window limits the keys; attention_problem_read makes an end without a limit -1. */
static inline bool attention_windowed(const clattn_attention_desc *desc)
{
    return desc->window.explicit_left || desc->window.explicit_right;
}

static inline bool attention_has_snippet(const struct attention_problem *problem)
{
    return problem->score_mod || problem->mask_mod;
}

/* Whether query, key and value all have this type. */
static inline bool attention_inputs_are(const struct attention_problem *problem, clattn_dtype dtype)
{
    const clattn_attention_desc *desc = &problem->desc;
    return desc->query.dtype == dtype && desc->key.dtype == dtype && desc->value.dtype == dtype;
}

/* Where an optional array's layout is in the description and its binding in the arguments, its name as the public structs'
 * fields are named ("mask", "lengths.query", ...), and why its layout is refused. */
struct attention_array_type {
    size_t layout, binding;
    const char *name;
    struct layout_words words;
};
extern const struct attention_array_type attention_arrays[ATTENTION_ARRAYS];

static inline const clattn_layout *attention_layout(const clattn_attention_desc *desc, enum attention_array array)
{
    return (const clattn_layout *)((const char *)desc + attention_arrays[array].layout);
}

static inline const clattn_binding *attention_binding(const clattn_attention_args *args, enum attention_array array)
{
    return (const clattn_binding *)((const char *)args + attention_arrays[array].binding);
}

/* Does so for a gradient, whose binding's name is "gradients.query" and the like. */
extern const struct attention_array_type attention_gradients[ATTENTION_GRADIENTS];

static inline const clattn_layout *attention_gradient_layout(const clattn_attention_desc *desc,
                                                             enum attention_gradient gradient)
{
    return (const clattn_layout *)((const char *)desc + attention_gradients[gradient].layout);
}

static inline const clattn_binding *attention_gradient_binding(const clattn_attention_args *args,
                                                               enum attention_gradient gradient)
{
    return (const clattn_binding *)((const char *)args + attention_gradients[gradient].binding);
}

/* The array that a gradient is of. */
const clattn_layout *attention_differentiated(const clattn_attention_desc *desc, enum attention_gradient gradient);

/* Reads and checks a description; *reason is a static string if it fails.  The snippets' texts stay the caller's. */
clattn_status attention_problem_read(const void *desc, void *problem, const char **reason);

/* Does so for CLATTN_DIRECTION_BACKWARD. */
clattn_status attention_backward_problem_read(const void *desc, void *problem, const char **reason);

/* Why the device cannot compute the problem at all, a static string, or NULL. */
const char *attention_refuse(const struct capabilities *caps, const struct attention_problem *problem);

/* Why the device takes neither attention_tile nor attention_decode_rows, or NULL. */
const char *attention_refuse_tiles(const struct capabilities *caps);

#endif
