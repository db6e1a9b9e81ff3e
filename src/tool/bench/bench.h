/* Declarations that the benchmarks share. */
#ifndef CLATTN_TOOL_BENCH_BENCH_H
#define CLATTN_TOOL_BENCH_BENCH_H

#include "tool/run/device.h"
#include "tool/run/job.h"
#include "tool/run/random.h"
#include "tool/cli/report.h"

/* The model's part of a report, besides its times. */
typedef struct bench_model {
    size_t layers, parameters, weight_bytes;
    bool explain; /* also report the plan's parts */
} bench_model;

/* The work of one run, from which rates are computed. */
typedef struct bench_work {
    double flops;                       /* multiplications and additions, as docs and --help say */
    double bytes;                       /* every input and output once */
    clattn_dtype dtype;                 /* of all arrays, for the report */
    const attention_request *attention; /* reported instead of `dtype`, with its pages; or NULL */
    const bench_model *model;           /* or NULL */
} bench_work;

/* Times a job, reports it and releases it. */
int bench_finish(tool_job *job, const char *operator_name, int32_t shape_rank, const size_t *shape,
                 const bench_work *work, size_t repeat, bool json);

/* Begins an attention of the sizes B,HQ,HKV,SQ,SKV,D,DV on random numbers.  The caller may then set options, and calls
 * attention_complete. */
int bench_attention_arrays(const size_t shape[7], clattn_dtype dtype, attention_request *request);

/* Makes a self-attention of the sizes B,S,D_MODEL,H with packed weights and biases. */
int bench_mha_arrays(const char *command, const size_t shape[4], clattn_dtype dtype, mha_request *request);

/* The number of (query, key) pairs of one head of self-attention. */
static inline double bench_pairs(size_t length, bool causal)
{
    double n = (double)length;
    return causal ? n * (n + 1.0) / 2.0 : n * n;
}

/* The choices of --activation, in the order of clattn_activation; NULL at the end. */
extern const char *const bench_activations[];

#endif
