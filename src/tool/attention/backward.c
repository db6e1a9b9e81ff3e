/* An attention's backward direction, as bench and explain want it: the gradients by queries, keys and values. */
#include "tool/attention/request.h"
#include "tool/run/job.h"
#include "tool/run/random.h"

JOB_ENQUEUE(attention)
JOB_CREATE(attention)

void attention_describe_backward(clattn_attention_desc *desc)
{
    desc->direction = CLATTN_DIRECTION_BACKWARD;
    desc->gradients.output = desc->output;
    desc->gradients.query = desc->query;
    desc->gradients.key = desc->key;
    desc->gradients.value = desc->value;
}

/* An array of the layout's extents, without gaps. */
static clattn_layout whole(const clattn_layout *layout)
{
    return clattn_layout_contiguous(layout->dtype, layout->rank, layout->extent);
}

clattn_status job_attention_backward(const tool_job *forward, const char *solver, tool_job *job)
{
    clattn_attention_desc *desc = &job->desc.attention;
    clattn_attention_args *args = &job->args.attention;
    host_array given = {0};
    job_begin(job, forward->device, enqueue_attention, create_attention);
    *desc = forward->desc.attention;
    *args = forward->args.attention;
    attention_describe_backward(desc);
    desc->gradients.output = whole(&desc->output);
    desc->gradients.query = whole(&desc->query);
    desc->gradients.key = whole(&desc->key);
    desc->gradients.value = whole(&desc->value);
    job_plan(job, solver);
    if (random_array(&given, "gradient", desc->output.dtype, 4, desc->output.extent, 4, 1.0f) != TOOL_DONE)
        return CLATTN_ERROR_OUT_OF_MEMORY;
    job_bind_input(job, &given, &args->gradients.output);
    job_bind_output(job, 0, &desc->gradients.query, &args->gradients.query);
    job_bind_output(job, 1, &desc->gradients.key, &args->gradients.key);
    job_bind_output(job, 2, &desc->gradients.value, &args->gradients.value);
    host_release(&given);
    return job_finish(job);
}
