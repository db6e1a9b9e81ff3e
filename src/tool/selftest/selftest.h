/* The self-test's small problems, one table an operator. */
#ifndef CLATTN_TOOL_SELFTEST_SELFTEST_H
#define CLATTN_TOOL_SELFTEST_SELFTEST_H

#include "tool/run/device.h"
#include "tool/run/job.h"
#include "tool/run/verify.h"

/* What became of one problem with one solver. */
typedef struct case_result {
    enum { CASE_OK, CASE_REFUSED, CASE_FAILED } outcome;
    char detail[512]; /* why, unless CASE_OK */
} case_result;

/* Runs case `index` with `solver` (NULL: the library's choice) and compares it with the reference; *name
 * tells which it was. */
typedef void (*selftest_case)(tool_device *device, size_t index, const char *solver, const char **name,
                              case_result *result);

typedef struct selftest_operator {
    const char *name;
    const char *const *solvers; /* ended by NULL; the library's own choice is tried before them */
    size_t case_count;
    selftest_case run;
} selftest_operator;

extern const selftest_operator selftest_merge, selftest_kv_append, selftest_neighbourhood, selftest_norm, selftest_rope,
    selftest_activation;

extern const selftest_operator *const selftest_operators[];
extern const size_t selftest_operator_count;

/* Runs the job that was made with `made`, reads its first outputs into those that have memory, and releases it.  False
 * where there is nothing to judge: *result tells why. */
bool selftest_run(tool_job *job, clattn_status made, const char *solver, host_array *outputs, size_t count,
                  case_result *result);

/* Makes a failure of a verdict that does not hold, unless there is one already. */
void selftest_judge(case_result *result, const tool_verdict *verdict, const char *what);

void selftest_no_memory(case_result *result);

/* A case of an operator that no command computes: random inputs, outputs, and what became of allocating them.  Zeroed:
 * none.  Release with probe_release. */
typedef struct probe {
    tool_job job;
    host_array in[6], out[JOB_OUTPUTS];
    int status;
} probe;

/* Input `i` with numbers up to `limit`; output `i` as the layout says. */
void probe_input(probe *p, size_t i, int32_t rank, const size_t *extent, float limit);
void probe_output(probe *p, size_t i, const clattn_layout *layout);

/* Whether all of them are there; otherwise *result says so. */
bool probe_ready(const probe *p, case_result *result);

/* Binds input or output `i`, where there is one; see job.h. */
clattn_status probe_bind_input(probe *p, clattn_status status, size_t i, clattn_binding *binding);
clattn_status probe_bind_output(probe *p, clattn_status status, size_t i, clattn_binding *binding);

/* The layout of input `i`: contiguous, none where it is absent. */
clattn_layout probe_layout(const probe *p, size_t i);

void probe_release(probe *p);

#endif
