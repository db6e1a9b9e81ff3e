/* Attention in double precision on the host, without OpenCL: the reference of the self-check and of the command's --verify.
 * It covers the whole public description, and is written to be read, not to be fast.
 *
 * It takes a description and an enqueue's arguments, with host memory in place of the bindings' buffers; the bindings'
 * offsets count.  One call computes one row, so that a caller may check all rows or a sample.  Descriptions must have
 * passed the library's own check; functions of the host stand in for snippets.
 *
 * Thread-safety: no state; nothing is allocated, nothing fails. */
#ifndef CLATTN_REF_ATTENTION_H
#define CLATTN_REF_ATTENTION_H

#include <stdbool.h>

#include "clattn/attention.h"

/* Element 0 of the host's copy of each array; NULL: there is no such array. */
typedef struct ref_attention_data {
    const void *query, *key, *value, *mask, *bias, *alibi, *sinks, *vector, *query_lengths, *key_lengths, *positions,
        *query_starts, *key_starts, *block_table, *key_scale, *value_scale;
} ref_attention_data;

typedef struct ref_attention_problem {
    const clattn_attention_desc *desc;
    const clattn_attention_args *args; /* the three lengths must be filled in, whatever explicit_lengths says */
    ref_attention_data data;
    /* The host's versions of desc->score_mod and ->mask_mod, or NULL. */
    double (*score_mod)(void *user, double score, int64_t batch, int64_t head, int64_t query, int64_t key);
    bool (*mask_mod)(void *user, int64_t batch, int64_t head, int64_t query, int64_t key);
    void *user;
    bool
        narrow; /* the naive computation of the accuracy rule: every operation is rounded to float, and P to V's type if
                  * that has 16 bits */
} ref_attention_problem;

/* One batch item. */
typedef struct ref_attention_item {
    int64_t queries, keys, first_key; /* a ring holds the keys from first_key on */
    int64_t query_row, key_row;       /* packed sequences: rows before its first */
    int64_t position;                 /* of query 0 */
} ref_attention_item;

ref_attention_item ref_attention_item_of(const ref_attention_problem *r, int64_t batch);

typedef struct ref_attention_result {
    double *output;        /* d_v */
    double *magnitude;     /* d_v: sum of P |value|; may be NULL */
    double *largest;       /* d_v: the greatest |value| that has a weight above 0; may be NULL */
    double *probabilities; /* args->key_length: P before dropout; must not be NULL */
    double lse, entropy;
    bool attends; /* some key is attended; otherwise output is exactly +0 */
} ref_attention_result;

/* Computes the row of query `query`, the item's own index. */
void ref_attention_row(const ref_attention_problem *r, int64_t batch, int64_t head, int64_t query,
                       ref_attention_result *row);

/* The element of `scores` at (batch, head, query, key), in a mode other than CLATTN_SCORES_MODE_PROBABILITIES. */
double ref_attention_score(const ref_attention_problem *r, int32_t mode, int64_t batch, int64_t head, int64_t query,
                           int64_t key);

/* Element `index` of an array of any dtype, as a double. */
double ref_element(const void *data, clattn_dtype dtype, int64_t index);

/* Copies the first `count` elements to `floats` and returns `floats`; NULL if `data` is NULL. */
const float *ref_floats(const void *data, clattn_dtype dtype, size_t count, float *floats);

/* One unit in the last place of float16 or bfloat16 near a finite value; 0 for other types. */
double ref_unit(clattn_dtype dtype, double value);

/* The value rounded to float16 or bfloat16, to nearest even; unchanged for other types. */
double ref_stored(clattn_dtype dtype, double value);

#endif
