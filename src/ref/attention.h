/* Attention's double-precision reference over the whole public description, on the host and without OpenCL: for the
 * self-check on a device and for the command's --verify.  Written to be read, not to be fast.
 *
 * It takes the description and an enqueue's arguments as they are, with host memory where the bindings have
 * buffers; the bindings' offsets count.  One call computes one row, so that a caller may check all or a sample.
 * Descriptions must have passed the library's own check; snippets are stood in for by functions of the host.
 *
 * Thread-safety: no state; nothing is allocated, nothing fails. */
#ifndef CLATTN_REF_ATTENTION_H
#define CLATTN_REF_ATTENTION_H

#include <stdbool.h>

#include "clattn/attention.h"

/* Element 0 of the host's copy of each binding's memory; NULL where there is no such array. */
typedef struct reference_data {
    const void *query, *key, *value, *mask, *bias, *alibi, *sinks, *vector, *query_lengths, *key_lengths, *positions,
        *query_starts, *key_starts, *block_table, *key_scale, *value_scale;
} reference_data;

typedef struct reference_attention {
    const clattn_attention_desc *desc;
    const clattn_attention_args *args; /* the three lengths must be filled in, whatever explicit_lengths says */
    reference_data data;
    /* What desc->score_mod and ->mask_mod do; NULL without them. */
    double (*score_mod)(void *user, double score, int64_t batch, int64_t head, int64_t query, int64_t key);
    bool (*mask_mod)(void *user, int64_t batch, int64_t head, int64_t query, int64_t key);
    void *user;
    bool narrow; /* every operation is rounded to float, and P to V's type where that has 16 bits: the naive
                  * computation of the accuracy rule */
} reference_attention;

/* One batch item. */
typedef struct reference_item {
    int64_t queries, keys, first_key; /* keys from first_key on are held */
    int64_t query_row, key_row;       /* packed sequences: rows before its first */
    int64_t position;                 /* of query 0 */
} reference_item;

reference_item reference_item_of(const reference_attention *r, int64_t batch);

typedef struct reference_row {
    double *output;        /* d_v */
    double *magnitude;     /* d_v: sum of P |value|; may be NULL */
    double *largest;       /* d_v: the greatest |value| that has a weight above 0; may be NULL */
    double *probabilities; /* one for each key of the args, room that is always needed: P before dropout */
    double lse, entropy;
    bool attends; /* some key is attended; otherwise output is exactly +0 */
} reference_row;

/* Query `query` (the item's own index, below args->query_length) of a head. */
void reference_attention_row(const reference_attention *r, int64_t batch, int64_t head, int64_t query,
                             reference_row *row);

/* What `scores` holds at (batch, head, query, key) in a mode but CLATTN_SCORES_MODE_PROBABILITIES. */
double reference_attention_score(const reference_attention *r, int32_t mode, int64_t batch, int64_t head, int64_t query,
                                 int64_t key);

/* Element `index` of an array of `dtype`, as a double; int32 and int64 alike. */
double reference_element(const void *data, clattn_dtype dtype, int64_t index);

/* The first `count` elements as floats, put into `room`, which is returned; NULL of an array that there is not. */
const float *reference_floats(const void *data, clattn_dtype dtype, size_t count, float *room);

/* One unit in the last place of what float16 or bfloat16 stores near a finite value; of other types 0. */
double reference_unit(clattn_dtype dtype, double value);

/* The value as float16 or bfloat16 stores it, to nearest even; as it is of other types. */
double reference_stored(clattn_dtype dtype, double value);

#endif
