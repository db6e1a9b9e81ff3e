/* Results against the double-precision reference on the host.
 *
 * Where r is the reference, n the plain float32 computation and M the reference's sum of absolute terms,
 * every element o must satisfy |o - r| <= 2 max|n - r| + 8 epsilon M; NaN and the sign of infinity must agree
 * exactly, and a row that attends nothing must be +0. */
#ifndef CLATTN_TOOL_VERIFY_H
#define CLATTN_TOOL_VERIFY_H

#include "problem.h"
#include "ref/ref.h"

/* What was found in one output.  Zeroed: nothing compared yet, all well so far. */
typedef struct tool_verdict {
    double max_error;   /* max |o - r| over finite elements */
    double naive_error; /* max |n - r| */
    double excess;      /* max (|o - r| - 8 epsilon M): what naive_error must cover */
    size_t mismatches;  /* elements whose class (NaN, infinity, the zero of a masked row) is another one */
    size_t compared;
} tool_verdict;

/* Whether all that was compared satisfies the rule. */
bool verdict_holds(const tool_verdict *verdict);

/* Adds one element. */
void verdict_add(tool_verdict *verdict, float result, double reference, float naive, double magnitude);

/* Adds one element of a row that attends nothing. */
void verdict_add_zero(tool_verdict *verdict, float result);

/* These compare whole outputs and show progress; `second` belongs to the optional other output (lse, weights:
 * NULL if there is none).  They return TOOL_DONE whatever the verdict, TOOL_FAILED when memory runs out. */
int verify_attention(const attention_problem *problem, const float *output, const float *lse,
                     tool_verdict *verdict, tool_verdict *second);
int verify_softmax(const softmax_problem *problem, const float *output, tool_verdict *verdict);
int verify_matmul(const matmul_problem *problem, const float *output, tool_verdict *verdict);
int verify_mha(const mha_problem *problem, const float *output, const float *weights, tool_verdict *verdict,
               tool_verdict *second);

/* A mask as the references walk it.  `rank` and `extent` are those of what it broadcasts to, strides[rank]
 * comes back, and how many of the last dimension's places it covers. */
ref_mask_kind mask_walk(const host_array *mask, int32_t rank, const size_t *extent, int64_t *strides,
                        int64_t *covered);

/* The key position of query 0. */
int64_t position_of(int32_t align, size_t query_length, size_t key_length);

#endif
