/* Transformers for tests: weights by their canonical names, and a reference of whole stacks in double precision that is
 * written from the papers' formulas and shares only the description with the library. */
#ifndef TESTS_SUPPORT_NN_MODEL_H
#define TESTS_SUPPORT_NN_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "clattn/transformer.h"

/* The sizes of a stack, in which 0 stands for a default. */
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

/* ---- weights (store.c) ---- */

/* Tensors by name; begins zeroed.  Asking for a name that is missing fails the test. */
typedef struct nn_store {
    struct nn_tensor *tensors;
    size_t count;
    uint32_t seed;      /* of the next tensor's values */
    clattn_dtype dtype; /* the type that the lookup delivers: */
    void *converted;    /* the last tensor that the lookup converted */
} nn_store;

/* Adds a tensor of random values in [offset - scale, offset + scale), or replaces the one of that name; returns its
 * values. */
float *nn_store_add(nn_store *store, const char *name, int rank, const size_t *extent, float scale, float offset);
void nn_store_remove(nn_store *store, const char *name);
void nn_store_clear(nn_store *store);

/* The number of tensors, the name of one, renaming one, and rounding its values to `bits` significant bits. */
size_t nn_store_count(const nn_store *store);
const char *nn_store_name(const nn_store *store, size_t index);
void nn_store_rename(nn_store *store, size_t index, const char *name);
void nn_store_round(nn_store *store, size_t index, int bits);

/* nn_store_vary_rows makes the magnitudes of rows differ by powers of two up to 256, with rows of zeros among them, in
 * the matrices that a model with weight_dtype CLATTN_DTYPE_I8 stores as integers: those of layers and output.weight.
 * nn_store_quantise replaces their elements by what an integer and its row's scale, the largest magnitude / 127, stand
 * for. */
void nn_store_vary_rows(nn_store *store);
void nn_store_quantise(nn_store *store);

/* Returns the values of a tensor. */
const float *nn_store_get(const nn_store *store, const char *format, ...);

/* Adds all tensors of a stack, which is "encoder" or "decoder". */
void nn_store_add_stack(nn_store *store, const char *name, const clattn_stack_desc *desc);

/* A clattn_tensor_lookup; `user` is the store. */
clattn_status nn_store_lookup(void *user, const char *name, clattn_host_tensor *tensor, clattn_io_error *error);

/* ---- the reference (model.c) ---- */

/* Addends of an attention's scores, -INFINITY if a key is not attended: (batch, heads, queries, keys), where each of
 * the first three may be 1 and stands for all. */
typedef struct nn_mask {
    const float *added; /* NULL: no mask */
    size_t batch, heads, queries, keys;
} nn_mask;

/* A stack with its inputs. */
typedef struct nn_reference {
    const nn_store *store;
    const char *name;
    const clattn_stack_desc *desc;
    size_t batch, length;      /* `length` counts the layers' positions */
    const int32_t *lengths;    /* one for each item, or NULL */
    nn_mask mask, memory_mask; /* for self- and cross-attention; they may have more queries and keys than the stack */
    size_t grid_rows, grid_columns; /* of the patches, if there are windows or stages */
    const double *memory;           /* (batch, memory_length, d_memory), with cross-attention */
    size_t memory_length;
    const int32_t *memory_lengths;
    /* 0, or the types of arrays between operators and of caches of keys and values (0: `dtype`): this is the naive
     * computation that the rule of numerics.md compares with, which rounds P to V's type too. */
    clattn_dtype dtype, cache_dtype;
    double *self_probabilities;  /* NULL, or (layers, batch, heads, length, length) */
    double *cross_probabilities; /* NULL, or (layers, batch, heads, length, memory_length) */
} nn_reference;

/* Applies the layers and the final norm to x (batch, length, d_model) in place. */
void nn_reference_layers(const nn_reference *reference, double *x);

/* Applies the convolutions to (batch, frames, features) and adds positions; the caller frees the result. */
double *nn_reference_convolutions(const nn_reference *reference, size_t frames, const float *features);

/* Embeds ids (batch, length) with positions, segments (NULL: none) and norm; the caller frees the result. */
double *nn_reference_tokens(const nn_reference *reference, const int32_t *ids, const int32_t *segments);

/* Multiplies x (rows, columns) by a weight stored as (out, columns) and adds a bias unless it is NULL; the caller frees
 * the result. */
double *nn_reference_linear(const double *x, size_t rows, size_t columns, const float *weight, size_t out,
                            const float *bias);

/* Multiplies x (rows, columns) by the weight "PREFIX PART.weight" and adds its bias unless `without` is set in the stack. */
double *nn_reference_project(const nn_reference *reference, const char *prefix, const char *part, uint32_t without,
                             const double *x, size_t rows, size_t columns, size_t out);

/* Normalises rows of n numbers in place. */
void nn_reference_norm(const nn_reference *reference, const char *prefix, double *x, size_t rows, size_t n);

/* Applies a clattn_activation to one number. */
double nn_activate(int32_t function, double x);

/* Converts floats to doubles, makes zeros, both of which the caller frees, and rounds numbers to `dtype` unless it is 0. */
double *nn_doubles(const float *values, size_t count);
double *nn_zeros(size_t count);
void nn_store_as(clattn_dtype dtype, double *x, size_t count);

/* ---- pictures (pictures.c) ---- */

/* Makes vectors of pictures (batch, channels, height, width); the caller frees the result. */
double *nn_reference_pictures(const nn_reference *reference, size_t height, size_t width, const float *pictures);

/* Attends within windows, merges two by two vectors for the next stage, and applies a neck; the caller frees the results. */
double *nn_reference_windows(const nn_reference *reference, const char *prefix, const double *x);
double *nn_reference_merge(const nn_reference *reference, const double *x);
double *nn_reference_neck(const nn_reference *reference, const double *x);

/* ---- restoration (restoration.c) ---- */

/* Makes pictures of pictures (batch, channels, height, width) by an encoder with a restoration, whose filled grid `reference`
 * has; the caller frees the result. */
double *nn_reference_restored(const nn_reference *reference, size_t height, size_t width, const float *pictures);

/* Adds the tensors of a stage's residual convolutions, and of the restoration if the stage has it. */
void nn_store_add_restoration(nn_store *store, const char *stack, const clattn_stack_desc *desc, size_t channels);

#endif
