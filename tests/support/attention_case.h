/* Attention problems as table rows. */
#ifndef TESTS_ATTENTION_CASE_H
#define TESTS_ATTENTION_CASE_H

#include "job.h"

/* Solvers as bits, and their names by bit number. */
enum { BY_GENERIC = 1, BY_CPU = 2, BY_TILE = 4 };
#define ATTENTION_SOLVERS 3
extern const char *const attention_solvers[ATTENTION_SOLVERS];

/* Arrays of a job. */
enum { QUERY, KEY, VALUE, MASK }; /* input */
enum { OUTPUT, LSE };             /* output */

typedef enum fill_kind {
    FILL_UNIT,       /* uniform in [−1, 1] */
    FILL_HUGE,       /* logits near +1e4 and −1e4, exact in float, whose differences are of order 1 */
    FILL_WILD,       /* dot products spread over thousands, exact in float too */
    FILL_ZERO_QUERY  /* equal scores */
} fill_kind;

/* What is put into the inputs for a second run.  Wherever the reference does not change, the output must not
 * change in any bit. */
typedef enum inject_kind {
    INJECT_NOTHING,
    INJECT_MASKED,     /* NaN and Inf into K of keys j % 3 == 1 (which the mask excludes), and into everything that
                        * lies beyond the actual lengths */
    INJECT_KEY_NAN,    /* K[0, 0, middle, last] = NaN */
    INJECT_KEY_INF,    /* … = +inf: scores of +inf and −inf, by the sign of the query */
    INJECT_VALUE_NAN,  /* V[0, 0, middle, last] = NaN: that output column alone */
    INJECT_VALUE_INF,  /* … = −inf */
    INJECT_QUERY_NAN,  /* Q[0, 0, middle, last] = NaN: that row alone */
    INJECT_MASK_NAN,   /* mask[0, …, middle key] = NaN */
    INJECT_MASK_INF    /* … = +inf */
} inject_kind;

typedef struct attention_case {
    const char *rule;      /* what it holds, for the test's name */
    unsigned levels;       /* levels that it runs on; bits of test_level */
    unsigned refused_by;   /* solvers that must say UNSUPPORTED */
    struct {
        size_t batch, heads, kv_heads, queries, keys, d_k, d_v;
    } dim;
    struct {
        array_form query, key, value, output, mask;
    } form;
    bool packed;           /* Q, K, V are views of one (batch, length, heads + 2 kv_heads, size) buffer */
    mask_kind mask;
    int mask_rank;         /* of the extents below; 0: 4 with the full extents */
    size_t mask_extent[4];
    bool causal;
    clattn_alignment alignment;
    int64_t position;
    bool scaled;           /* `scale` instead of 1/sqrt(d_k) */
    float scale;
    bool long_loops;       /* a device that limits loops may refuse it: job_refused_for_loops */
    bool no_lse;           /* most cases ask for the log-sum-exp too */
    fill_kind fill;
    bool shorter;          /* `actual` at enqueue instead of dim's */
    struct {
        size_t batch, queries, keys;
    } actual;
    inject_kind inject;
} attention_case;

/* Fills `job` (zeroed) with arrays, arguments and a plan by `solver` (NULL: the library's choice).  Returns
 * false if the case says that this solver refuses, which is then asserted. */
bool attention_job(test_job *job, const attention_case *test, const char *solver, uint64_t salt);

/* The lengths that count at enqueue. */
void attention_lengths(const attention_case *test, size_t *batch, size_t *queries, size_t *keys);

/* All of it: plan, run, reference, accuracy; then the injection and the second run. */
void attention_check(const void *test, const char *solver);

/* Adds attention_check of every case of this level by every solver.  The cases must stay where they are. */
void attention_add(test_suite *suite, const attention_case *cases, size_t count);

#endif
