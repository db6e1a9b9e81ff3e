/* What a command was asked to compute: host arrays and options, without OpenCL.  A job (job.h) runs a problem
 * on a device, verify.h checks the result against the reference. */
#ifndef CLATTN_TOOL_PROBLEM_H
#define CLATTN_TOOL_PROBLEM_H

#include <clattn/mha.h>

#include "host.h"
#include "options.h"

/* Arrays with dtype CLATTN_DTYPE_NONE are absent. */

typedef struct attention_problem {
    host_array query, key, value, mask;
    bool causal;
    int32_t align; /* clattn_alignment */
    option_float scale;
    bool with_lse;
} attention_problem;

typedef struct softmax_problem {
    host_array x, mask;
    option_float scale;
} softmax_problem;

/* y (m, n) = x (m, k) wᵀ + bias, with w (n, k) as a projection has it. */
typedef struct matmul_problem {
    host_array x, w, bias;
} matmul_problem;

typedef struct mha_problem {
    host_array x, context, mask;
    host_array w_in;          /* packed (3 * inner, d_model), or */
    host_array w_q, w_k, w_v; /* these */
    host_array b_in;          /* (3 * inner) either way */
    host_array w_o, b_o;
    size_t heads, inner; /* inner = heads * head size */
    bool causal;
    int32_t align;
    option_float scale;
    int32_t weights; /* clattn_weights_output */
} mha_problem;

/* Whether shapes and element types fit together: the error names the file that is to blame. */
int attention_check(const attention_problem *problem);
int softmax_check(const softmax_problem *problem);
int mha_check(const mha_problem *problem);

/* The extents of what comes out. */
void attention_output_extents(const attention_problem *problem, size_t extent[4]);
size_t mha_key_length(const mha_problem *problem);

/* How many (query, key) pairs of one head are attended, causality considered and masks not. */
double attention_pairs(size_t query_length, size_t key_length, bool causal, int32_t align);

void attention_release(attention_problem *problem);
void softmax_release(softmax_problem *problem);
void matmul_release(matmul_problem *problem);
void mha_release(mha_problem *problem);

/* Fills a float32 array with reproducible numbers, uniform in [-limit, limit]. */
void fill_random(host_array *array, uint64_t seed, float limit);

#endif
