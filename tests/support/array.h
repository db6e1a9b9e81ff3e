/* Guarded arrays: tensors in buffers of their own, in any memory layout, whose surroundings are watched. */
#ifndef TESTS_ARRAY_H
#define TESTS_ARRAY_H

#include "support/check.h"

/* How an array's elements are spread over its memory.  Rows and columns are the last two dimensions. */
typedef enum array_form {
    FORM_PLAIN,              /* row-major */
    FORM_BSHD,               /* dimension 1 (heads) inside dimension 2 (length) */
    FORM_PADDED,             /* gaps between rows, and between the matrices */
    FORM_SPREAD,             /* two places from one column to the next */
    FORM_FLIPPED,            /* negative stride along rows */
    FORM_MIRRORED,           /* negative stride along columns */
    FORM_TRANSPOSED,         /* rows contiguous, columns strided */
    FORM_ALIGNED,            /* row-major, each row from a multiple of 8 elements of the memory on */
    FORM_ALIGNED_TRANSPOSED, /* transposed, each column likewise */
    FORM_SHARED_FIRST,       /* stride 0 in dimension 0 (inputs only, as the rest) */
    FORM_SHARED_SECOND,
    FORM_SHARED_ROWS
} array_form;

typedef enum array_role {
    ROLE_INPUT,
    ROLE_OUTPUT,          /* write-only to kernels */
    ROLE_READABLE_OUTPUT, /* to operators that keep intermediate results there */
    ROLE_IN_PLACE
} array_role;

/* A buffer with a host copy.  Elements lie between two guard bands of odd length.  What no element of an array
 * occupies holds NaN (bool: random bytes): an input's to be noticed when read, an output's, elements
 * included, with one known pattern to be found again. */
typedef struct test_memory {
    cl_mem buffer;
    size_t element_size, count; /* of elements, guards included; int4, an input only: of bytes that hold two */
    array_role role;
    unsigned char *host;     /* what the host has put there, or what download has brought */
    unsigned char *original; /* outputs: what it held before */
    unsigned char *owned;    /* outputs: 1 for each element that must be written */
} test_memory;

typedef struct test_array {
    test_memory *memory; /* NULL: there is no such array */
    clattn_layout layout;
    int64_t offset;
    size_t written[CLATTN_MAX_RANK]; /* an output's extents that array_own was given */
} test_array;

/* An array in a memory of its own, of float32 if `dtype` is CLATTN_DTYPE_NONE.  ROLE_OUTPUT owns nothing yet:
 * array_own. */
test_array array_create(array_role role, clattn_dtype dtype, int rank, const size_t *extent, array_form form);

/* An input memory for `elements` elements that the caller lays arrays into with array_view (`first` counted from
 * the first element behind the guard). */
test_memory *memory_create(array_role role, clattn_dtype dtype, size_t elements);
test_array array_view(test_memory *memory, size_t first, clattn_layout layout);
void memory_release(test_memory *memory); /* NULL is accepted */

/* Declares the first extent[…] elements of an output (rank of the layout) those that must be written. */
void array_own(test_array *array, const size_t *extent);

/* Declares a single element the array's own, besides those declared before. */
void array_own_element(test_array *array, const size_t *index);

/* Where an element lies: a number below array_places. */
size_t array_place(const test_array *array, const size_t *index);
size_t array_places(const test_array *array);

/* The number of elements of these extents. */
size_t array_count(int rank, const size_t *extent);

/* Steps index[] through extent[], last dimension fastest; false after the last one, at 0, … again. */
bool array_next(int rank, const size_t *extent, size_t *index);

/* Element access on the host copy, as double. */
double array_get(const test_array *array, const size_t *index);
void array_set(test_array *array, const size_t *index, double value);

/* Copies the leading extent[…] elements into a new dense row-major array of doubles (free it); `rank` may exceed the
 * layout's: leading 1s. */
double *array_dense(const test_array *array, int rank, const size_t *extent);

/* Returns `count` zeros, to be freed. */
double *zeros(size_t count);

/* Calls fill(context, index) for each element of the array and stores what it returns. */
typedef double (*array_filler)(void *context, const size_t *index);
void array_fill(test_array *array, array_filler fill, void *context);

void array_upload(const test_array *array);

/* Restores the poison of an output on the device. */
void array_poison(const test_array *array);

/* Reads an output back and asserts that everything around its owned elements is untouched and that each of
 * those was written. */
void array_download(test_array *array);

clattn_binding array_binding(const test_array *array);

/* Tells a description and arguments of the array: both get what stands for none if it has no memory. */
void array_bind(const test_array *array, clattn_layout *layout, clattn_binding *binding);

#endif
