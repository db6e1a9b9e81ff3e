/* An attention on a device. */
#include "tool/run/job.h"

JOB_ENQUEUE(attention)

/* The offset that attention_complete found stays. */
static clattn_status bind(tool_job *job, clattn_status status, const attention_request *request, attention_input input)
{
    clattn_binding *binding = attention_input_binding(&job->args.attention, input);
    int64_t offset = binding->offset;
    status = job_bind_input(job, status, &request->input[input], binding);
    binding->offset = offset;
    return status;
}

/* Keys and values of a fused array are in the queries' buffer already. */
static void share(tool_job *job, attention_input input)
{
    clattn_attention_args *args = &job->args.attention;
    attention_input_binding(args, input)->buffer = args->query.buffer;
}

JOB_CREATE(attention)

clattn_status job_attention(tool_device *device, const attention_request *request, const char *solver, tool_job *job)
{
    clattn_plan_options options = job_options(solver);
    clattn_attention_desc desc = request->desc;
    job_begin(job, device, enqueue_attention);
    job->create = create_attention;
    job->desc.attention = desc;
    job->args.attention = request->args;
    clattn_status status = create_attention(job, &options, &job->plan);
    for (attention_input i = 0; i < INPUT_COUNT; i++) {
        status = bind(job, status, request, i);
        if (status == CLATTN_SUCCESS && (i == INPUT_KEY || i == INPUT_VALUE) && !host_present(&request->input[i]))
            share(job, i);
    }
    for (attention_result i = 0; i < RESULT_COUNT; i++)
        if (request->wants[i])
            status = job_bind_output(job, status, i, attention_result_layout(&desc, i),
                                     attention_result_binding(&job->args.attention, i));
    return job_finish(job, status);
}
