/* Transformers for the tests: weights by their canonical names, and a reference of whole stacks in double precision, written
 * from the papers' formulas and sharing nothing with the library but the description. */
#ifndef TESTS_SUPPORT_NN_MODEL_H
#define TESTS_SUPPORT_NN_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "clattn/transformer.h"

/* The sizes of a stack; a size of 0 stands for another one. */
static inline size_t nn_head_size(const clattn_stack_desc *d)
{
    return d->head_size ? d->head_size : d->d_model / d->heads;
}

static inline size_t nn_kv_heads(const clattn_stack_desc *d)
{
    return d->kv_heads ? d->kv_heads : d->heads;
}

static inline size_t nn_d_memory(const clattn_stack_desc *d)
{
    return d->d_memory ? d->d_memory : d->d_model;
}

/* ---- weights (nn_store.c) ---- */

/* Tensors by name.  Zeroed: empty.  Fails the test when a name is wanted that is not there. */
typedef struct nn_store {
    struct nn_tensor *tensors;
    size_t count;
    uint32_t seed;      /* of the next tensor's values */
    clattn_dtype dtype; /* what the lookup hands out: CLATTN_DTYPE_F32 (0 too), CLATTN_DTYPE_F16 or CLATTN_DTYPE_BF16 */
    void *converted;    /* the last tensor that it did */
    size_t lookups;
} nn_store;

/* Adds a tensor of random values in [-scale, scale), or replaces the one of that name; returns its values. */
float *nn_store_add(nn_store *store, const char *name, int rank, const size_t *extent, float scale, float offset);
void nn_store_remove(nn_store *store, const char *name);
void nn_store_clear(nn_store *store);

/* How many there are; one's name, and another one; rounding its values to so many significant bits. */
size_t nn_store_count(const nn_store *store);
const char *nn_store_name(const nn_store *store, size_t index);
void nn_store_rename(nn_store *store, size_t index, const char *name);
void nn_store_round(nn_store *store, size_t index, int bits);

/* What a model with weight_dtype CLATTN_DTYPE_I8 keeps as integers, the matrices of layers and output.weight: makes their rows'
 * magnitudes differ by powers of two, up to 256 times, with rows of zeros among them; and makes of each element what a
 * model's integer and its row's scale, the largest magnitude / 127, stand for. */
void nn_store_vary_rows(nn_store *store);
void nn_store_quantise(nn_store *store);

/* Values of a tensor that is there. */
const float *nn_store_get(const nn_store *store, const char *format, ...);

/* All tensors that a stack has, "encoder" or "decoder", and those of the output. */
void nn_store_add_stack(nn_store *store, const char *name, const clattn_stack_desc *desc);

/* A clattn_tensor_lookup; `user` is the store. */
clattn_status nn_store_lookup(void *user, const char *name, clattn_host_tensor *tensor, clattn_io_error *error);

/* ---- the reference (nn_model.c) ---- */

/* What an attention's scores get added, -INFINITY where a key is not attended: (batch, heads, queries, keys), of which each
 * of the first three may be 1 and stand for all. */
typedef struct nn_mask {
    const float *added; /* NULL: there is none */
    size_t batch, heads, queries, keys;
} nn_mask;

/* What goes through a stack. */
typedef struct nn_reference {
    const nn_store *store;
    const char *name;
    const clattn_stack_desc *desc;
    size_t batch, length;   /* of the layers' positions */
    const int32_t *lengths; /* NULL, or of the items */
    nn_mask mask,
        memory_mask;      /* of self-attention and of cross-attention; queries and keys may be more than there are */
    const double *memory; /* (batch, memory_length, d_memory), with cross-attention */
    size_t memory_length;
    const int32_t *memory_lengths;
    /* 0, or the types that arrays between operators have, and caches of keys and values (0: the same): the naive computation
     * that numerics.md's rule compares with, which rounds P to V's type too. */
    clattn_dtype dtype, cache_dtype;
    double *self_probabilities;  /* NULL, or (layers, batch, heads, length, length) */
    double *cross_probabilities; /* NULL, or (layers, batch, heads, length, memory_length) */
} nn_reference;

/* x (batch, length, d_model) through the layers and the final norm, in place. */
void nn_reference_layers(const nn_reference *reference, double *x);

/* (batch, frames, features) through the convolutions, positions added; to be freed. */
double *nn_reference_convolutions(const nn_reference *reference, size_t frames, const float *features);

/* (batch, length) ids, embedded, with positions, segments (may be NULL) and norm; to be freed. */
double *nn_reference_tokens(const nn_reference *reference, const int32_t *ids, const int32_t *segments);

/* x (rows, columns) times a weight stored (out, columns), plus a bias that may be NULL; to be freed. */
double *nn_reference_linear(const double *x, size_t rows, size_t columns, const float *weight, size_t out,
                            const float *bias);

/* A clattn_activation of one number. */
double nn_activate(int32_t function, double x);

/* Doubles of floats, to be freed. */
double *nn_doubles(const float *values, size_t count);

#endif
