/* What the self-test's cases share. */
#include <stdio.h>

#include "tool/bench/bench.h"
#include "tool/selftest/selftest.h"

void selftest_judge(case_result *result, const tool_verdict *verdict, const char *what)
{
    if (result->outcome != CASE_OK || verdict_holds(verdict))
        return;
    double shorts = verdict->shorts > 0 ? (double)verdict->shorts : 1.0;
    int put = snprintf(result->detail, sizeof result->detail,
                       "%s differs: error %.3g, of a plain computation %.3g, %zu elements of another class", what,
                       verdict->max_error, verdict->naive_error, verdict->mismatches);
    if (verdict->shorts > 0)
        snprintf(result->detail + put, sizeof result->detail - (size_t)put, "; on average %.3g, of a plain one %.3g",
                 verdict->short_error / shorts, verdict->short_naive / shorts);
    result->outcome = CASE_FAILED;
}

void selftest_no_memory(case_result *result)
{
    result->outcome = CASE_FAILED;
    snprintf(result->detail, sizeof result->detail, "out of memory");
}

/* A solver may refuse a problem; whatever else keeps it from an answer is a failure. */
static void take_status(case_result *result, const tool_device *device, clattn_status status, bool planning,
                        const char *solver)
{
    if (status == CLATTN_SUCCESS)
        return;
    bool refused =
        planning && solver != NULL && (status == CLATTN_ERROR_UNSUPPORTED || status == CLATTN_ERROR_INVALID_ARGUMENT);
    result->outcome = refused ? CASE_REFUSED : CASE_FAILED;
    device_message(device, status, result->detail, sizeof result->detail);
}

bool selftest_run(tool_job *job, clattn_status made, const char *solver, host_array *outputs, size_t count,
                  case_result *result)
{
    const tool_device *device = job->device;
    take_status(result, device, made, true, solver);
    if (made != CLATTN_SUCCESS)
        return false;
    clattn_status status = job_run(job);
    for (size_t i = 0; i < count && status == CLATTN_SUCCESS; i++)
        if (outputs[i].memory != NULL)
            status = job_read(job, i, outputs[i].memory);
    take_status(result, device, status, false, solver);
    job_release(job);
    return status == CLATTN_SUCCESS;
}

void probe_input(probe *p, size_t i, int32_t rank, const size_t *extent, float limit)
{
    if (p->status == TOOL_DONE)
        p->status = bench_array(&p->in[i], "input", CLATTN_DTYPE_F32, rank, extent, 51 + i, limit);
}

void probe_output(probe *p, size_t i, const clattn_layout *layout)
{
    if (p->status == TOOL_DONE)
        p->status = host_allocate(layout->dtype, layout->rank, layout->extent, "output", &p->out[i]);
}

bool probe_ready(const probe *p, case_result *result)
{
    if (p->status != TOOL_DONE)
        selftest_no_memory(result);
    return p->status == TOOL_DONE;
}

clattn_status probe_bind_input(probe *p, clattn_status status, size_t i, clattn_binding *binding)
{
    return job_bind_input(&p->job, status, &p->in[i], binding);
}

clattn_status probe_bind_output(probe *p, clattn_status status, size_t i, clattn_binding *binding)
{
    const clattn_host_tensor *out = &p->out[i].tensor;
    if (!host_present(&p->out[i]))
        return status;
    clattn_layout layout = clattn_layout_contiguous(out->dtype, out->rank, out->extent);
    return job_bind_output(&p->job, status, i, &layout, binding);
}

clattn_layout probe_layout(const probe *p, size_t i)
{
    const clattn_host_tensor *in = &p->in[i].tensor;
    return host_present(&p->in[i]) ? clattn_layout_contiguous(in->dtype, in->rank, in->extent) : (clattn_layout){0};
}

void probe_release(probe *p)
{
    for (size_t i = 0; i < sizeof p->in / sizeof p->in[0]; i++)
        host_release(&p->in[i]);
    for (size_t i = 0; i < JOB_OUTPUTS; i++)
        host_release(&p->out[i]);
}
