/* An attention on a device. */
#include "tool/run/job.h"

JOB_ENQUEUE(attention)
JOB_CREATE(attention)

clattn_status job_attention(tool_device *device, const attention_request *request, const char *solver, tool_job *job)
{
    clattn_attention_desc *desc = &job->desc.attention;
    clattn_attention_args *args = &job->args.attention;
    job_begin(job, device, enqueue_attention, create_attention);
    *desc = request->desc;
    *args = request->args;
    job_plan(job, solver);
    for (attention_input i = 0; i < INPUT_COUNT; i++) {
        job_bind_input(job, &request->input[i], attention_input_binding(args, i));
        /* Keys and values of a fused array are in the queries' buffer already. */
        if ((i == INPUT_KEY || i == INPUT_VALUE) && !host_present(&request->input[i]))
            attention_input_binding(args, i)->buffer = args->query.buffer;
    }
    for (attention_result i = 0; i < RESULT_COUNT; i++)
        if (request->wants[i])
            job_bind_output(job, i, attention_result_layout(desc, i), attention_result_binding(args, i));
    return job_finish(job);
}
