/* The checked problem of a multi-head attention, and the operators that it is composed of. */
#ifndef CLATTN_NN_MHA_MHA_H
#define CLATTN_NN_MHA_MHA_H

#include <stdbool.h>

#include "clattn/matmul.h"
#include "clattn/mha.h"

/* The caller's arrays, as slots of a graph. */
enum mha_slot {
    SLOT_X = 1,
    SLOT_CONTEXT,
    SLOT_CONTEXT_VALUE,
    SLOT_W_IN,
    SLOT_B_IN,
    SLOT_W_Q,
    SLOT_W_K,
    SLOT_W_V,
    SLOT_B_Q,
    SLOT_B_K,
    SLOT_B_V,
    SLOT_W_O,
    SLOT_B_O,
    SLOT_MASK,
    SLOT_Y,
    SLOT_WEIGHTS,
    MHA_SLOTS
};

/* What a projection makes; one of packed weights makes those that follow, too. */
enum mha_part { MHA_QUERY, MHA_KEY, MHA_VALUE, MHA_PARTS };

/* A product with one of the caller's weights.  Offsets are in elements. */
struct mha_product {
    clattn_matmul_desc desc;
    enum mha_part part;   /* the first that a projection makes */
    enum mha_slot source; /* what a projection multiplies */
    enum mha_slot weight, bias;
    size_t weight_offset, bias_offset; /* within a packed weight and bias */
};

struct mha_problem {
    clattn_mha_desc desc; /* normalised, zeros replaced by what they mean */
    size_t inner, inner_kv;
    size_t query_stride, kv_stride; /* elements from a token's queries, or keys and values, to the next token's */
    bool separate_values;           /* values come from context_value */
    size_t d_values;                /* columns of the array that values come from */
    size_t projections;
    struct mha_product projection[MHA_PARTS], output;
    clattn_attention_desc attention;
    clattn_layout weights; /* of the output `weights`; rank 0 if it is not asked for */
};

clattn_status mha_problem_read(const clattn_mha_desc *desc, struct mha_problem *problem, const char **reason);

#endif
