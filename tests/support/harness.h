/* What the operator tests share: the device under test, guarded arrays, an own double-precision reference,
 * the accuracy rule, reproducible random numbers, and suites that are built from tables of cases.
 *
 * Every function that can find a mistake reports it through cmocka (it does not return then), so that a test
 * is a straight line. */
#ifndef TESTS_HARNESS_H
#define TESTS_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <clattn/clattn.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* ---- suites (suite.c) ---- */

/* How much the platform under test can bear; CLATTN_TEST_LEVEL, or guessed from the device. */
typedef enum test_level {
    LEVEL_TINY = 1,  /* a simulator, about a thousand times slower */
    LEVEL_SMALL = 2, /* a slow compiler: fewer kernels */
    LEVEL_FULL = 4
} test_level;

test_level level(void);

/* A growing table of tests that becomes one cmocka group. */
typedef struct test_suite {
    struct CMUnitTest *tests;
    size_t count, capacity;
} test_suite;

/* Adds a test under a printf-made name: `function`, or check(test, solver), whose arguments must live until the
 * suite has run. */
typedef void (*case_check)(const void *test, const char *solver);
void suite_add(test_suite *suite, CMUnitTestFunction function, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void suite_add_case(test_suite *suite, case_check check, const void *test, const char *solver, const char *format,
                    ...) __attribute__((format(printf, 5, 6)));

/* Runs and frees the suite; argv[1], if given, is a pattern with * and ? that names must match.  With `device` the
 * context under test is made first, and what it is and how many kernels it built is printed at the end.
 * Returns the exit status of main. */
int suite_run(test_suite *suite, const char *name, bool device, int argc, char **argv);

/* ---- random numbers (random.c) ---- */

/* The seed of this process: fixed, or CLATTN_TEST_SEED. */
uint64_t random_seed(void);

/* A stream of numbers that depends on random_seed() and `salt` alone. */
typedef struct random_stream {
    uint64_t state;
} random_stream;

random_stream random_start(uint64_t salt);
uint64_t random_bits(random_stream *stream);
float random_float(random_stream *stream, float low, float high);
int random_int(random_stream *stream, int low, int high); /* both ends included */

/* ---- the device (gpu.c) ---- */

clattn_context *device_context(void);

/* Opened and closed by suite_run; 0 for success, as cmocka's group functions. */
int device_open(void **state);
int device_close(void **state);

/* Whether the device under test is a CPU (PoCL, llvmpipe, Oclgrind's included). */
bool device_is_cpu(void);

/* Whether the platform's name has this part: "rusticl", "Oclgrind". */
bool device_platform_contains(const char *part);

/* Releases a buffer, except where a simulator's bookkeeping cannot bear it. */
void device_release_buffer(cl_mem buffer);

/* Queues of the context under test; the caller releases them.  The out-of-order one may be NULL where the
 * device has none. */
cl_command_queue device_queue(void);
cl_command_queue device_queue_out_of_order(void);

/* Asserts a status, and prints the context's message when it is another. */
#define assert_status(expected, actual) check_status((expected), (actual), #actual, __FILE__, __LINE__)
void check_status(clattn_status expected, clattn_status actual, const char *what, const char *file, int line);
#define assert_cl(code) assert_int_equal((code), CL_SUCCESS)

/* ---- guarded arrays (array.c) ---- */

/* How an array's elements are spread over its memory.  Rows and columns are the last two dimensions. */
typedef enum array_form {
    FORM_PLAIN,        /* row-major */
    FORM_BSHD,         /* dimension 1 (heads) inside dimension 2 (length) */
    FORM_PADDED,       /* gaps between rows, and between the matrices */
    FORM_SPREAD,       /* two places from one column to the next */
    FORM_FLIPPED,      /* negative stride along rows */
    FORM_MIRRORED,     /* negative stride along columns */
    FORM_TRANSPOSED,   /* rows contiguous, columns strided */
    FORM_SHARED_FIRST, /* stride 0 in dimension 0 (inputs only, as the rest) */
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
    size_t element_size, count; /* of elements, guards included */
    array_role role;
    unsigned char *host;        /* what the host has put there, or what download has brought */
    unsigned char *original;    /* outputs: what it held before */
    unsigned char *owned;       /* outputs: 1 for each element that must be written */
} test_memory;

typedef struct test_array {
    test_memory *memory; /* NULL: there is no such array */
    clattn_layout layout;
    int64_t offset;
} test_array;

/* An array in a memory of its own.  ROLE_OUTPUT owns nothing yet: array_own. */
test_array array_create(array_role role, clattn_dtype dtype, int rank, const size_t *extent, array_form form);

/* An input memory for `elements` elements that the caller lays arrays into with array_view (`first` counted from
 * the first element behind the guard). */
test_memory *memory_create(array_role role, clattn_dtype dtype, size_t elements);
test_array array_view(test_memory *memory, size_t first, clattn_layout layout);
void memory_release(test_memory *memory); /* NULL is accepted */

/* Declares the first extent[…] elements of an output (rank of the layout) those that must be written. */
void array_own(test_array *array, const size_t *extent);

/* Element access on the host copy, as double. */
double array_get(const test_array *array, const size_t *index);
void array_set(test_array *array, const size_t *index, double value);

/* Copies the leading extent[…] elements into a new dense row-major array of doubles (free it); `rank` may exceed the
 * layout's: leading 1s. */
double *array_dense(const test_array *array, int rank, const size_t *extent);

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

/* ---- the reference (reference.c) ---- */

/* Everything is dense and row-major.  `narrow`: every operation is rounded to float, which is the naive computation
 * of the accuracy rule; otherwise double throughout. */

/* A result that must be +0 in every bit has this magnitude. */
#define EXACT_ZERO (-1.0)

typedef struct reference_problem {
    size_t batch, heads, kv_heads, queries, keys, d_k, d_v;
    double scale;
    const double *query, *key, *value;
    const double *addend; /* (batch, heads, queries, keys): added to the score, −inf: not attended; or NULL */
} reference_problem;

/* Fills those of output (b, h, i, d_v), lse (b, h, i), weights (b, h, i, j) that are not NULL; magnitude, as output, is
 * sum_j p_j |v_j|, or EXACT_ZERO in a row that attends nothing; weights of keys that are not attended
 * are EXACT_ZERO in `weights_magnitude` and themselves elsewhere. */
typedef struct reference_result {
    double *output, *magnitude, *lse, *weights, *weights_magnitude;
} reference_result;

void reference_attention(const reference_problem *problem, bool narrow, const reference_result *result);

/* What a mask adds at index[rank] of what it masks: its value, 0 or −inf; −inf beyond its last key. */
double reference_mask(const test_array *mask, int rank, const size_t *index);

/* The addend that a mask (array without memory: none), causality and the mask's missing keys make together;
 * (batch, heads, queries, keys), to be freed; NULL when there is nothing to add. */
double *reference_addend(const test_array *mask, bool causal, int64_t position, size_t batch, size_t heads,
                         size_t queries, size_t keys);

/* C = A B + bias, A (m, k), B (k, n) with element (x, j) at b[x*b_row + j*b_col]; bias (n) or NULL; magnitude, sum |a||b| +
 * |bias|, may be NULL. */
void reference_matmul(size_t m, size_t n, size_t k, const double *a, const double *b, size_t b_row,
                      size_t b_col, const double *bias, bool narrow, double *c, double *magnitude);

/* One row; addend as above or NULL.  With an addend a row that attends nothing is +0; without one it is NaN. */
void reference_softmax(size_t columns, double scale, const double *x, const double *addend, bool narrow,
                       double *y, double *magnitude);

/* ---- the accuracy rule (accuracy.c) ---- */

/* For every i: NaN where reference is NaN and nowhere else; the same Inf; +0 in every bit where magnitude is
 * EXACT_ZERO; otherwise |value − reference| <= 2 max|naive − reference| + 8 u magnitude, u = 2^-23.  The
 * maximum is over the whole array.  Returns the first index that breaks the rule, or `count`; *limit
 * (may be NULL) is what was allowed there. */
size_t accuracy_find(size_t count, const double *value, const double *reference, const double *naive,
                     const double *magnitude, double *limit);

/* Asserts it; `what` and the index in terms of `extent` are printed if it fails. */
void accuracy_check(const char *what, int rank, const size_t *extent, const double *value,
                    const double *reference, const double *naive, const double *magnitude);

/* Asserts that of two runs every value whose reference is the same number in both is the same in every bit. */
void accuracy_unchanged(const char *what, size_t count, const double *reference, const double *value,
                        const double *new_reference, const double *new_value);

#endif
