#include "tool/run/job.h"

#include "base/size.h"
#include "tool/cli/progress.h"

void job_begin(tool_job *job, tool_device *device, job_enqueue enqueue, job_create create)
{
    *job = (tool_job){.device = device, .enqueue = enqueue, .create = create};
    device->message[0] = '\0';
    progress_begin("preparing");
}

clattn_plan_options job_options(const char *solver)
{
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    options.solver = solver;
    return options;
}

void job_plan(tool_job *job, const char *solver)
{
    const clattn_plan_options options = job_options(solver);
    job->status = job->create(job, &options, &job->plan);
}

void job_bind_input(tool_job *job, const host_array *array, clattn_binding *binding)
{
    if (job->status != CLATTN_SUCCESS || !host_present(array))
        return;
    host_array made = *array;
    if (random_make(&made) == TOOL_DONE) {
        cl_mem *buffer = &job->buffers[job->buffer_count++];
        job->status = device_upload(job->device, &made.tensor, buffer);
        binding->buffer = *buffer;
    } else {
        job->status = CLATTN_ERROR_OUT_OF_MEMORY;
    }
    if (made.memory != array->memory)
        host_release(&made);
}

void job_bind_output(tool_job *job, size_t index, const clattn_layout *layout, clattn_binding *binding)
{
    size_t bytes = clattn_dtype_size(layout->dtype);
    for (int32_t i = 0; i < layout->rank && job->status == CLATTN_SUCCESS; i++)
        if (!size_mul(bytes, layout->extent[i], &bytes))
            job->status = CLATTN_ERROR_OVERFLOW;
    if (job->status != CLATTN_SUCCESS)
        return;
    cl_mem *buffer = &job->buffers[job->buffer_count++];
    job->status = device_output(job->device, bytes, buffer);
    job->outputs[index] = (job_output){*buffer, bytes};
    binding->buffer = *buffer;
}

clattn_status job_finish(tool_job *job)
{
    clattn_status status = job->status;
    progress_end();
    if (status != CLATTN_SUCCESS)
        job_release(job);
    return status;
}

clattn_status job_run(const tool_job *job)
{
    cl_event done = NULL;
    clattn_status status = job->enqueue(job, &done);
    if (status != CLATTN_SUCCESS)
        return status;
    status = device_wait(job->device, done);
    clReleaseEvent(done);
    return status;
}

static int run_once(void *user)
{
    const tool_job *job = user;
    clattn_status status = job_run(job);
    return device_check(job->device, status, NULL);
}

int job_time(const tool_job *job, const timing_rule *rule, const char *label, timing *result)
{
    return timing_measure(rule, label, run_once, (void *)job, result);
}

clattn_status job_read(const tool_job *job, size_t index, void *data)
{
    return device_download(job->device, job->outputs[index].buffer, job->outputs[index].bytes, data);
}

int job_compute(const tool_job *job, size_t repeat, const char *label, const host_array *results, timing *times)
{
    /* With --repeat, a first run that does not count precedes the others. */
    const timing_rule rule = {.repeat = repeat > 0 ? repeat : 1, .warm_up = repeat > 0};
    int status = job_time(job, &rule, label, times);
    for (size_t i = 0; i < JOB_OUTPUTS && status == TOOL_DONE; i++)
        if (job->outputs[i].buffer != NULL)
            status = device_check(job->device, job_read(job, i, results[i].memory), NULL);
    return status;
}

const char *job_solver(const tool_job *job)
{
    return clattn_plan_solver(job->plan);
}

void job_release(tool_job *job)
{
    for (size_t i = 0; i < job->buffer_count; i++)
        if (job->buffers[i] != NULL)
            clReleaseMemObject(job->buffers[i]);
    clattn_plan_release(&job->plan);
    tool_device *device = job->device;
    *job = (tool_job){.device = device};
}
