/* The checked problem of a multi-head attention, and the operators that it is composed of. */
#ifndef CLATTN_NN_MHA_MHA_H
#define CLATTN_NN_MHA_MHA_H

#include "clattn/matmul.h"
#include "clattn/mha.h"
#include "plan/enqueue.h"

enum mha_source { SOURCE_X, SOURCE_CONTEXT, SOURCE_CONTEXT_VALUE };

/* Which weight and bias a projection multiplies by. */
enum mha_weight { WEIGHT_IN, WEIGHT_Q, WEIGHT_K, WEIGHT_V };

#define MHA_PROJECTIONS 3

/* A product before the attention.  Offsets are in elements. */
struct mha_projection {
    clattn_matmul_desc desc;
    enum mha_source source;
    enum mha_weight weight;
    size_t weight_offset, bias_offset; /* within a packed weight and bias */
    size_t output;                     /* bytes into the workspace */
};

struct mha_problem {
    clattn_mha_desc desc; /* normalised, zeros replaced by what they mean */
    size_t inner, inner_kv;
    bool separate_values; /* values come from context_value */
    size_t d_values;      /* columns of the array that values come from */
    size_t projections;
    struct mha_projection projection[MHA_PROJECTIONS];
    clattn_attention_desc attention;
    clattn_matmul_desc output;
    clattn_layout weights; /* of the output `weights`; rank 0 if it is not asked for */
    size_t query, key, value, attended,
        lse;          /* offsets in the workspace, in bytes; lse is float32, the others desc.dtype */
    size_t workspace; /* bytes of these arrays */
};

clattn_status mha_problem_read(const clattn_mha_desc *desc, struct mha_problem *problem, const char **reason);

#endif
