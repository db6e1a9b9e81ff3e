/* Attention problems as table rows. */
#ifndef TESTS_SUPPORT_ATTENTION_CASE_H
#define TESTS_SUPPORT_ATTENTION_CASE_H

#include "support/job.h"

/* Solvers as bits, and their names by bit number. */
enum {
    BY_GENERIC = 1,
    BY_CPU = 2,
    BY_TILE = 4,
    BY_CPU_BF16 = 8,
    BY_CPU_AMX = 16,
    BY_EMULATED_MMA = 32,
    BY_MATRIX = 64
};
#define ATTENTION_SOLVERS 3 /* the first ones: those that take every type */
#define ATTENTION_ALL_SOLVERS 7
extern const char *const attention_solvers[ATTENTION_ALL_SOLVERS];

/* Arrays of a job. */
enum { /* input */
       QUERY,
       KEY,
       VALUE,
       MASK,
       BIAS,
       ALIBI,
       SINKS,
       VECTOR,
       QUERY_LENGTHS,
       KEY_LENGTHS,
       POSITIONS,
       QUERY_STARTS,
       KEY_STARTS,
       BLOCK_TABLE,
       KEY_SCALE,
       VALUE_SCALE,
       USER
};
enum { OUTPUT, LSE, ENTROPY, SCORES }; /* output */

typedef enum fill_kind {
    FILL_UNIT,       /* uniform in [−1, 1] */
    FILL_HUGE,       /* logits near +1e4 and −1e4, exact in float, whose differences are of order 1 */
    FILL_WILD,       /* dot products spread over thousands, exact in float too */
    FILL_ZERO_QUERY, /* equal scores */
    FILL_LARGE       /* uniform in [−60000, 60000]: products that float16 does not hold */
} fill_kind;

/* What is put into the inputs for a second run.  Wherever the reference does not change, the output must not
 * change in any bit. */
typedef enum injection {
    INJECT_NOTHING,
    INJECT_MASKED,    /* NaN and Inf into K of keys j % 3 == 1 (which the mask excludes), and into everything that
                        * lies beyond the actual lengths; of quantised arrays into the scales */
    INJECT_KEY_NAN,   /* K[0, 0, middle, last] = NaN */
    INJECT_KEY_INF,   /* … = +inf: scores of +inf and −inf, by the sign of the query */
    INJECT_VALUE_NAN, /* V[0, 0, middle, last] = NaN: that output column alone */
    INJECT_VALUE_INF, /* … = −inf */
    INJECT_QUERY_NAN, /* Q[0, 0, middle, last] = NaN: that row alone */
    INJECT_MASK_NAN,  /* mask[0, …, middle key] = NaN */
    INJECT_MASK_INF,  /* … = +inf */
    INJECT_BIAS_NAN,  /* the same with the bias */
    INJECT_SINK_NAN   /* of head 0: all its rows */
} injection;

/* What a user's function is told: the pair, the item's position and lengths, buffers and scalars. */
typedef struct mod_call {
    int b, h, i, j;
    int64_t position;
    int queries, keys;
    const test_array *user; /* USER0 … */
    const float *scalar;
} mod_call;

/* A user's functions, and the same in C; each may be none.  `grad` is score's derivative, for backward. */
typedef struct attention_mod {
    const char *score_source, *mask_source, *grad_source;
    double (*score)(const mod_call *call, double score);
    double (*grad)(const mod_call *call, double score);
    bool (*mask)(const mod_call *call);
    clattn_dtype user[CLATTN_USER_BUFFERS]; /* filled with whole numbers from −3 to 3, or 0 to 3 */
    size_t elements[CLATTN_USER_BUFFERS];
    float scalar[CLATTN_USER_BUFFERS];
} attention_mod;

/* Fields that are 0 ask for nothing. */
typedef struct attention_case {
    const char *rule;    /* what it holds, for the test's name */
    unsigned levels;     /* levels that it runs on; bits of test_level */
    unsigned refused_by; /* solvers that must say UNSUPPORTED */
    struct {
        size_t batch, heads, kv_heads, queries, keys, d_k, d_v; /* S_q and S_k; of a paged cache queries to d_v */
    } dim;
    struct {
        array_form query, key, value, output, mask;
    } form;
    struct {
        clattn_dtype query, key, value, output, mask, bias, scores, key_scale, value_scale; /* 0: float32 */
        clattn_dtype integers; /* of lengths, positions, starts and block table; 0: int32 */
    } type;
    bool packed; /* Q, K, V are views of one (batch, length, heads + 2 kv_heads, size) buffer */
    mask_kind mask;
    int mask_rank; /* of the extents below; 0: 4 with the full extents */
    size_t mask_extent[4];
    bool causal;
    clattn_alignment alignment;
    int64_t position;
    bool scaled; /* `scale` instead of 1/sqrt(d_k) */
    float scale;
    bool long_loops; /* a device that limits loops may refuse it: job_refused_for_loops */
    bool no_lse;     /* most cases ask for the log-sum-exp too */
    fill_kind fill;
    bool shorter; /* `actual` at enqueue instead of dim's */
    struct {
        size_t batch, queries, keys;
    } actual;
    injection inject;
    /* Scores. */
    bool additive;
    bool shared_vector; /* one for all heads */
    float softcap;
    bool windowed;
    int64_t left, right;
    mask_kind bias; /* a float kind; extents as the mask's */
    int bias_rank;
    size_t bias_extent[4];
    int alibi;         /* the slopes' rank */
    bool shared_alibi; /* with rank 2: one row for all items */
    bool sinks;
    bool partial; /* backward: outputs.partial, and the sinks, of 18 to 23, stand for the other keys */
    const attention_mod *mod;
    /* Each item's own, as many as there are items (starts: one more). */
    struct {
        const int64_t *queries, *keys, *positions, *query_starts, *key_starts;
    } list;
    size_t longest; /* with query_starts */
    /* The cache. */
    clattn_cache_kind cache;
    size_t pages, page_size;
    const int64_t *table;            /* (batch, dim.keys / page_size); NULL: all pages in a mixed-up order */
    size_t key_groups, value_groups; /* with int8 and int4 */
    array_form scale_form;
    /* More outputs. */
    bool entropy;
    int scores; /* 1 + clattn_scores_mode */
    /* Dropout and launches. */
    float dropout;
    uint64_t seed;
    uint32_t dropout_offset;
    uint32_t max_launch_ms;
} attention_case;

#define SCORES_OF(MODE) (1 + CLATTN_SCORES_MODE_##MODE)

/* Fields of a row.  One head size, so that cases that differ in lengths and numbers alone share their kernels. */
#define LITTLE .dim = {2, 2, 1, 5, 9, 8, 8}
#define MEDIUM .dim = {2, 4, 2, 35, 67, 8, 8}
#define LARGE .dim = {1, 4, 2, 131, 201, 8, 8}
#define SHORTER(b, q, k) .shorter = true, .actual = {b, q, k}
#define AT(where, at) .alignment = CLATTN_ALIGNMENT_##where, .position = (at)
#define LIST(...) ((const int64_t[]){__VA_ARGS__})
#define WINDOW(l, r) .windowed = true, .left = (l), .right = (r)
#define MASKED .inject = INJECT_MASKED
#define PAGED(count, rows) .cache = CLATTN_CACHE_KIND_PAGED, .pages = (count), .page_size = (rows)
#define TYPES(q, k, v, o) {.query = (q), .key = (k), .value = (v), .output = (o)}
#define FOUR(type) TYPES(type, type, type, type)

/* Fills `job` (zeroed) with arrays, arguments and a plan by `solver` (NULL: the library's choice).  Returns
 * false if the case says that this solver refuses, which is then asserted. */
bool attention_job(test_job *job, const attention_case *test, const char *solver, uint64_t salt);

/* Does so without the plan. */
clattn_attention_desc attention_prepare(test_job *job, const attention_case *test, uint64_t salt);

/* The lengths that count at enqueue. */
void attention_lengths(const attention_case *test, size_t *batch, size_t *queries, size_t *keys);

/* Whether `solver` refuses the case, for one of its features or for the device. */
bool attention_refuses(const attention_case *test, const char *solver);

/* All of it: plan, run, reference, accuracy; then the injection and the second run. */
void attention_check(const void *test, const char *solver);

/* Puts into the inputs what the case injects; false if that is nothing. */
bool attention_inject(test_job *job, const void *test);

/* Compares what the outputs hold with the reference of what the inputs hold. */
void attention_judge(const test_job *job, const attention_case *test);

/* Adds attention_check of every case of this level by every solver.  The cases must stay where they are. */
void attention_add(const attention_case *cases, size_t count);

/* Adds the cases by one solver alone. */
void attention_add_by(const char *solver, const attention_case *cases, size_t count);

/* Adds the cases with fewer of the tile solver, whose kernels take longest to compile for a CPU: at the levels quick and small
 * it runs only cases that have LEVEL_TILE among their levels. */
#define LEVEL_TILE 16
#define TILE LEVEL_TILE
void attention_add_frugal(const attention_case *cases, size_t count);

/* Adds cases of few queries as attention_add_frugal does, at the level quick only by the cpu solver, which alone has
 * kernels of its own for them. */
void attention_add_decoding(const attention_case *cases, size_t count);

/* Adds another check of the cases for the same solvers as attention_add_frugal. */
void attention_add_check(case_check check, const attention_case *cases, size_t count);

/* ---- what a case's arrays mean (attention_dense.c) ---- */

/* A batch item: how many queries and keys it has, which of them are there, where they lie. */
typedef struct attention_item {
    size_t queries, keys, first_key;
    size_t rows;               /* of the output that belong to it */
    int64_t position;          /* of query 0 */
    size_t query_row, key_row; /* packed: rows before its first */
} attention_item;

attention_item attention_item_of(const attention_case *test, size_t b);

/* The first three indices of a row: row i of query head h in query, output, lse and entropy; or with `is_key` row j of
 * key/value head h in key, value and their scales.  False if there is no such row. */
bool attention_row_index(const test_job *job, const attention_case *test, bool is_key, size_t b, size_t h, size_t row,
                         size_t index[3]);

/* Everything as the reference wants it; attention_dense_release frees it. */
typedef struct attention_dense {
    reference_problem problem;
    double *query, *key, *value, *addend, *bias, *alibi, *vector, *sinks;
    bool *kept;
    struct attention_mod_context {
        const test_job *job;
        const attention_case *test;
    } mod;
} attention_dense;

/* `dense` may not be moved before its release. */
void attention_dense_make(attention_dense *dense, const test_job *job, const attention_case *test);
void attention_dense_release(attention_dense *dense);

#endif
