/* Appending to caches as table rows. */
#ifndef TESTS_SUPPORT_OPS_KV_APPEND_CASE_H
#define TESTS_SUPPORT_OPS_KV_APPEND_CASE_H

#include "support/job.h"

#define KV_BATCH 2
#define KV_HEADS 2

typedef struct kv_append_case {
    const char *rule;
    unsigned levels;
    clattn_cache_kind cache;
    clattn_dtype type, scale_type; /* types of both caches and of their scales; 0: CLATTN_DTYPE_F32 */
    size_t length, capacity, d_k, d_v;
    size_t groups;          /* groups in a row of an int8 or int4 cache */
    int64_t past[KV_BATCH]; /* past_lengths; with one_past both are equal and past_length */
    bool one_past;
    bool has_new;
    int64_t fresh[KV_BATCH]; /* new_lengths */
    bool rotate, interleaved;
    size_t rotary;
    float base;
    int64_t position;
    array_form form; /* form of the caches and scales */
} kv_append_case;

void kv_append_add(const kv_append_case *cases, size_t count);

#endif
