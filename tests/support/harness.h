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

#include "philox.h"
#include "storage.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* ---- suites (suite.c) ---- */

/* How much the platform under test can bear; CLATTN_TEST_LEVEL, or guessed from the device. */
typedef enum test_level {
    LEVEL_TINY = 1,  /* a simulator, about a thousand times slower */
    LEVEL_SMALL = 2, /* a slow compiler: fewer kernels */
    LEVEL_FULL = 4
} test_level;

/* Sets of them, as tables of cases name them. */
#define TINY LEVEL_TINY
#define SMALL LEVEL_SMALL
#define FULL LEVEL_FULL
#define BIG (SMALL | FULL)
#define ALL (TINY | BIG)

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
void suite_add_case(test_suite *suite, case_check check, const void *test, const char *solver, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

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

/* Before the context is made: where it has its OpenCL functions from (clattn_context_params.get_proc). */
void device_use_functions(void *(*get_proc)(void *user, const char *name));

/* Opened and closed by suite_run; 0 for success, as cmocka's group functions. */
int device_open(void **state);
int device_close(void **state);

/* Whether the device under test is a CPU (PoCL, llvmpipe, Oclgrind's included). */
bool device_is_cpu(void);

/* The solver that multiplies bfloat16 two by two where that is faster than fma, or NULL: on PoCL, and as /proc/cpuinfo tells,
 * cpu-amx with AMX, cpu-bf16 on AMD's processors with vdpbf16ps. */
const char *device_pairs_solver(void);

/* Of the solvers by pairs the plan has that one, or none unless it `pays`, and says so. */
void device_check_pairs(const clattn_plan *plan, bool pays);

/* Whether kernels in OpenCL C 1.2 can pass values between the items of a sub-group: on GPUs by NVIDIA's and AMD's own drivers, or
 * by Intel's extensions. */
bool device_shuffles(void);

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

/* The same for single ones, besides those declared before. */
void array_own_element(test_array *array, const size_t *index);

/* Where an element lies: a number below array_places. */
size_t array_place(const test_array *array, const size_t *index);
size_t array_places(const test_array *array);

/* Steps index[] through extent[], last dimension fastest; false after the last one, at 0, … again. */
bool array_next(int rank, const size_t *extent, size_t *index);

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

/* ---- the reference (reference.c, reference_attention.c, philox.h) ---- */

/* Everything is dense and row-major.  `narrow`: every operation is rounded to float, which is the naive computation
 * of the accuracy rule; otherwise exact to all purposes. */

/* A result that must be +0 in every bit has this magnitude. */
#define EXACT_ZERO (-1.0)

/* What a user's function is told of the pair that it is called for. */
typedef struct reference_pair {
    size_t b, h, i, j;
} reference_pair;

typedef struct reference_problem {
    size_t batch, heads, kv_heads, queries, keys, d_k, d_v;
    double scale;
    const double *query, *key, *value;
    const double *addend; /* (batch, heads, queries, keys): added to the score, −inf: not attended; or NULL */
    /* What follows is 0 or NULL where there is none. */
    const double *vector; /* (heads, d_k): additive attention */
    double softcap;
    double (*modify)(void *context, double score, const reference_pair *pair); /* after the softcap */
    void *context;
    const double *bias;  /* as addend, added before it */
    const double *alibi; /* (batch, heads, queries, keys): subtracted after the bias */
    const double *sinks; /* (heads) */
    const bool *kept;    /* (batch, heads, queries, keys): the keys whose probabilities dropout leaves */
    double dropout;
    clattn_dtype weights; /* what the naive computation rounds the probabilities to before the product with V */
    bool wide;            /* float64 arrays: narrow is double */
} reference_problem;

/* Fills those of output (b, h, i, d_v), lse (b, h, i), weights (b, h, i, j) that are not NULL; magnitude, as output, is
 * sum_j p_j |v_j|, or EXACT_ZERO in a row that attends nothing; weights of keys that are not attended
 * are EXACT_ZERO in `weights_magnitude` and themselves elsewhere.  In a row whose log-sum-exp is NaN all weights are.
 * entropy (b, h, i); raw, capped and biased (b, h, i, j) are the scores of all keys, biased ones −inf where a key is not
 * attended, and scores_magnitude what the sums of `raw` are made of. */
typedef struct reference_result {
    double *output, *magnitude, *lse, *weights, *weights_magnitude;
    double *entropy, *raw, *capped, *biased, *scores_magnitude;
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
void reference_matmul(size_t m, size_t n, size_t k, const double *a, const double *b, size_t b_row, size_t b_col,
                      const double *bias, bool narrow, double *c, double *magnitude);

/* One row; addend as above or NULL.  With an addend a row that attends nothing is +0; without one it is NaN. */
void reference_softmax(size_t columns, double scale, const double *x, const double *addend, bool narrow, double *y,
                       double *magnitude);

/* ---- references of the small operators (reference_small.c), in double only ---- */

/* One row of LayerNorm or RMSNorm; scale and bias (as many elements as x) may be NULL.  magnitude is
 * (|x − mean| + mean |x − mean|) · |factor · scale| + |bias|; *factor is 1 / sqrt(mean((x − mean)²) + epsilon).  A
 * row whose sum of squares float32 does not hold is NaN. */
void reference_norm(size_t elements, bool rms, double epsilon, const double *x, const double *scale, const double *bias,
                    double *y, double *magnitude, double *mean, double *factor);

/* One head of rotary position embedding; cosines and sines (rotary / 2 each) may be NULL: computed in long double, of
 * position · base^(−2i/rotary).  magnitude is (|x1| + |x2|) / 2, half of what a rotated element is made of, so that the
 * rule grants 4 u of it; 0 where x is only copied. */
void reference_rope(size_t size, size_t rotary, bool interleaved, double base, const double *cosines,
                    const double *sines, double position, const double *x, double *y, double *magnitude);

/* One element of an activation; alpha is CLATTN_ACTIVATION_SWISH's. */
double reference_activation(clattn_activation function, double alpha, double x);

/* ---- the accuracy rule (accuracy.c) ---- */

/* For every i: NaN where reference is NaN and nowhere else; the same Inf; +0 in every bit where magnitude is
 * EXACT_ZERO; otherwise |value − reference| <= 2 max|naive − reference| + 8 u magnitude, u = 2^-23.  The
 * maximum is over the whole array.  Returns the first index that breaks the rule, or `count`; *limit
 * (may be NULL) is what was allowed there. */
size_t accuracy_find(size_t count, const double *value, const double *reference, const double *naive,
                     const double *magnitude, double *limit);

/* The same for values that were stored as `dtype`: naive is still what float arithmetic gives before it is stored, so
 * that each element is allowed one rounding to its type and nothing more.  Where that overflows, Inf is right. */
size_t accuracy_find_stored(clattn_dtype dtype, size_t count, const double *value, const double *reference,
                            const double *naive, const double *magnitude, double *limit);

/* Asserts it; `what` and the index in terms of `extent` are printed if it fails. */
void accuracy_check(const char *what, int rank, const size_t *extent, const double *value, const double *reference,
                    const double *naive, const double *magnitude);
void accuracy_check_stored(const char *what, clattn_dtype dtype, int rank, const size_t *extent, const double *value,
                           const double *reference, const double *naive, const double *magnitude);

/* The rule with everything that may differ.  float64 has a `unit` of 2^-52.  For 16-bit storage (numerics.md) naive
 * comes rounded as it is stored, two roundings are allowed, and the mean error is at most `mean` times naive's. */
typedef struct accuracy_rule {
    clattn_dtype stored;
    double unit;
    double roundings; /* 0: 1 */
    double mean;      /* 0: any */
} accuracy_rule;

size_t accuracy_find_by(const accuracy_rule *rule, size_t count, const double *value, const double *reference,
                        const double *naive, const double *magnitude, double *limit);
void accuracy_check_by(const accuracy_rule *rule, const char *what, int rank, const size_t *extent, const double *value,
                       const double *reference, const double *naive, const double *magnitude);

/* Asserts that of two runs every value whose reference is the same number in both is the same in every bit. */
void accuracy_unchanged(const char *what, size_t count, const double *reference, const double *value,
                        const double *new_reference, const double *new_value);

#endif
