/* Neighbourhood attention problems as table rows. */
#ifndef TESTS_SUPPORT_OPS_NEIGHBOURHOOD_CASE_H
#define TESTS_SUPPORT_OPS_NEIGHBOURHOOD_CASE_H

#include "support/job.h"

typedef enum bias_kind {
    BIAS_NONE,
    BIAS_FINITE, /* addends in [−2, 2] */
    BIAS_DROPS,  /* like BIAS_FINITE, with −inf at every third key */
    BIAS_NOTHING /* −inf at all keys */
} bias_kind;

/* What the keys get for a second run; results of queries whose windows do not have it must keep every bit. */
typedef enum neighbourhood_inject {
    NEIGHBOURHOOD_NOTHING,
    NEIGHBOURHOOD_NAN,    /* NaN in K and V of one key in the middle */
    NEIGHBOURHOOD_INF,    /* +inf in V of that key */
    NEIGHBOURHOOD_CORNER, /* NaN in K and V of the last key */
    NEIGHBOURHOOD_DROPPED /* NaN and large numbers in K wherever the bias drops the key */
} neighbourhood_inject;

/* The gradients that a case asks for. */
enum { NEIGHBOURHOOD_DQUERY = 1, NEIGHBOURHOOD_DKEY = 2, NEIGHBOURHOOD_DVALUE = 4, NEIGHBOURHOOD_DBIAS = 8 };

typedef struct neighbourhood_case {
    const char *rule;
    unsigned levels;
    size_t map[2]; /* height and width of the keys */
    int window[2];
    int dilation[2]; /* 0: 1 */
    bool clip;
    size_t batch, heads, kv_heads; /* 0: 1; kv_heads 0: heads */
    size_t d_k, d_v;               /* 0: 4 */
    size_t tile[2], tile_at[2];    /* tile of the queries; 0: all of the map */
    bool explicit_sizes;           /* the call has its own sizes */
    size_t actual_map[2], actual_tile[2], actual_batch;
    bias_kind bias;
    size_t bias_batch, bias_heads; /* 0: 1 */
    bool lse;
    clattn_dtype q, k, v, o; /* 0: CLATTN_DTYPE_F32; backward o is the gradient of output */
    unsigned gradients;      /* backward if not 0, by the solver "generic" alone */
    clattn_dtype dq, dk, dv; /* 0: CLATTN_DTYPE_F32 */
    array_form form;
    bool scaled;
    float scale;
    float spread; /* magnitude of the queries and keys; 0: 1.5 */
    bool long_loops;
    neighbourhood_inject inject;
} neighbourhood_case;

/* Makes arrays, arguments and the plan of a case by a solver. */
bool neighbourhood_make(test_job *job, const void *test, const char *solver);

/* Gradients of query, key and value, and of the addend summed over queries, (batch, heads, keys): dense. */
typedef struct neighbourhood_gradients {
    double *query, *key, *value, *bias;
} neighbourhood_gradients;

/* Adds the gradients of a problem with an addend to zeros, and unless `magnitude` is NULL the sizes of their terms; `narrow` rounds
 * every operation to float. */
void neighbourhood_gradient_reference(const reference_problem *p, const double *output_gradient, bool narrow,
                                      const neighbourhood_gradients *result, const neighbourhood_gradients *magnitude);

void neighbourhood_add(const neighbourhood_case *cases, size_t count);

/* Whether position p of a line of `length` attends position j, by the header's definition without any optimisation. */
bool neighbourhood_attends(int p, int j, int length, int window, int dilation, bool clip);

#endif
