/* Multi-head attention problems as table rows. */
#ifndef TESTS_SUPPORT_OPS_MHA_CASE_H
#define TESTS_SUPPORT_OPS_MHA_CASE_H

#include "support/job.h"

/* The solvers of the attention inside, which tests name. */
#define MHA_SOLVERS 3
extern const char *const mha_solvers[MHA_SOLVERS];

typedef struct mha_case {
    const char *rule;
    unsigned levels;
    size_t batch, queries, keys; /* keys only with `cross` */
    size_t d_model, heads;
    size_t kv_heads, head_size, d_context, d_context_value; /* 0 as in clattn_mha_desc */
    bool cross, packed, bias_in, bias_out;
    mask_kind mask;
    int mask_rank;
    size_t mask_extent[4];
    bool causal;
    clattn_alignment alignment;
    int64_t position;
    bool scaled;
    float scale;
    clattn_weights_output weights;
    clattn_dtype type; /* 0: CLATTN_DTYPE_F32 */
    bool shorter;
    struct {
        size_t batch, queries, keys;
    } actual;
} mha_case;

/* Fills `job` (zeroed) with arrays of random numbers, arguments and a plan whose attention is by `solver`. */
void mha_job(test_job *job, const mha_case *test, const char *solver, uint64_t salt);
void mha_add(const mha_case *cases, size_t count);

#endif
