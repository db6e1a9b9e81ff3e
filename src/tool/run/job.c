#include "tool/run/job.h"

#include "base/size.h"
#include "tool/cli/progress.h"

clattn_status job_bind_input(tool_job *job, clattn_status status, const host_array *array, clattn_binding *binding)
{
    if (status != CLATTN_SUCCESS || !host_present(array))
        return status;
    cl_mem *buffer = &job->buffers[job->buffer_count++];
    status = device_upload(job->device, &array->tensor, buffer);
    *binding = clattn_binding_buffer(*buffer, 0);
    return status;
}

clattn_status job_bind_output(tool_job *job, clattn_status status, size_t index, const clattn_layout *layout,
                              clattn_binding *binding)
{
    size_t bytes = clattn_dtype_size(layout->dtype);
    if (status != CLATTN_SUCCESS)
        return status;
    for (int32_t i = 0; i < layout->rank; i++)
        if (!size_mul(bytes, layout->extent[i], &bytes))
            return CLATTN_ERROR_OVERFLOW;
    cl_mem *buffer = &job->buffers[job->buffer_count++];
    status = device_output(job->device, bytes, buffer);
    job->outputs[index] = (job_output){*buffer, bytes};
    *binding = clattn_binding_buffer(*buffer, 0);
    return status;
}

clattn_plan_options job_options(const char *solver)
{
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    options.solver = solver;
    return options;
}

void job_begin(tool_job *job, tool_device *device, job_enqueue enqueue)
{
    *job = (tool_job){.device = device, .enqueue = enqueue};
    device->message[0] = '\0';
    progress_begin("preparing");
}

clattn_status job_finish(tool_job *job, clattn_status status)
{
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
    return status == CLATTN_SUCCESS ? TOOL_DONE : device_failed(job->device, status, NULL);
}

int job_time(const tool_job *job, const timing_rule *rule, const char *label, timing *result)
{
    return timing_measure(rule, label, run_once, (void *)job, result);
}

clattn_status job_read(const tool_job *job, size_t index, void *data)
{
    return device_download(job->device, job->outputs[index].buffer, job->outputs[index].bytes, data);
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
