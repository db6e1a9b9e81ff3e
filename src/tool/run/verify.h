/* Results against the double-precision reference on the host.
 *
 * Where r is the reference, n the plain float32 computation and M the reference's sum of absolute terms,
 * every element o must satisfy |o - r| <= 2 max|n - r| + 8 epsilon M; NaN and the sign of infinity must agree
 * exactly, and a row that attends nothing must be +0.  What is stored in 16 bits may be two roundings further off, and
 * the mean of its errors is at most 1.5 times that of the plain computation stored in the same type. */
#ifndef CLATTN_TOOL_RUN_VERIFY_H
#define CLATTN_TOOL_RUN_VERIFY_H

#include "tool/run/request.h"
#include "ref/ref.h"

/* The comparison of one output. In a zeroed one nothing has been compared. */
typedef struct tool_verdict {
    double max_error;   /* max |o - r| over finite elements */
    double naive_error; /* max |n - r| */
    double excess;      /* max (|o - r| - 8 epsilon M): what naive_error must cover */
    size_t mismatches;  /* elements whose class (NaN, infinity, the zero of a masked row) is another one */
    /* Sums over what is stored in 16 bits: |o - r|, |n as it is stored - r|, 8 epsilon M; and over how many. */
    double short_error, short_naive, short_allowance;
    size_t shorts;
    double mean; /* how many times the plain computation's mean error the mean may be; 0: 1.5 */
} tool_verdict;

/* Whether all compared elements satisfy the rule. */
bool verdict_holds(const tool_verdict *verdict);

/* Adds one element, stored as `dtype`: what is stored in 16 bits may differ by two roundings more; for float64 epsilon
 * is double's, and `naive` is still that of a float32 computation, whose error is scaled down. */
void verdict_add(tool_verdict *verdict, clattn_dtype dtype, double result, double reference, double naive,
                 double magnitude);

/* Adds one element of a row that attends nothing. */
void verdict_add_zero(tool_verdict *verdict, double result);

struct tool_job;

/* These compare whole outputs and show progress; mha's second result, the weights, may be absent.  They return TOOL_DONE
 * whatever the verdict, TOOL_FAILED when memory runs out. */
int verify_attention(const attention_request *request, const struct tool_job *job,
                     const host_array results[RESULT_COUNT], tool_verdict verdicts[RESULT_COUNT]);
int verify_softmax(const softmax_request *request, const host_array *output, tool_verdict *verdict);
int verify_mha(const mha_request *request, const host_array results[2], tool_verdict verdicts[2]);

/* A mask as the references walk it.  `rank` and `extent` are those of what it broadcasts to, strides[rank]
 * comes back, and how many of the last dimension's places it covers. */
ref_mask_kind mask_walk(const host_array *mask, int32_t rank, const size_t *extent, int64_t *strides, int64_t *covered);

#endif
