/* What the benchmarks share. */
#ifndef CLATTN_TOOL_BENCH_BENCH_H
#define CLATTN_TOOL_BENCH_BENCH_H

#include "tool/run/device.h"
#include "tool/run/job.h"
#include "tool/cli/report.h"

/* What is reported of a model beside its times. */
typedef struct bench_model {
    size_t layers, parameters, weight_bytes;
    bool explain; /* the plan's parts, too */
} bench_model;

/* What one run does, for the rates. */
typedef struct bench_work {
    double flops;                       /* multiplications and additions, as docs and --help say */
    double bytes;                       /* every input and output once */
    clattn_dtype dtype;                 /* clattn_dtype of all arrays, to report; 0: CLATTN_DTYPE_F32 */
    const attention_request *attention; /* whose types and pages are reported in its place; or NULL */
    const bench_model *model;           /* or NULL */
} bench_work;

/* Times a job that has just been made with status `made` and reports it; releases the job. */
int bench_finish(tool_device *device, clattn_status made, tool_job *job, const char *operator_name, int32_t shape_rank,
                 const size_t *shape, const bench_work *work, size_t repeat, bool json);

/* An array of random numbers. */
int bench_array(host_array *array, const char *name, clattn_dtype dtype, int32_t rank, const size_t *extent,
                uint64_t seed, float limit);

/* Begins an attention of these sizes, B,HQ,HKV,SQ,SKV,D,DV, on random numbers: queries and keys up to
 * `limit`, values up to 1.  Options may then be set; attention_complete is the caller's. */
int bench_attention_arrays(const size_t shape[7], clattn_dtype dtype, uint64_t seed, float limit,
                           attention_request *request);

/* The choices of --activation, in the order of clattn_activation; NULL at the end. */
extern const char *const bench_activations[];

#endif
