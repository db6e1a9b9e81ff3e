/* A request on a device: its arrays in buffers, its plan, and the arguments of an enqueue. */
#ifndef CLATTN_TOOL_RUN_JOB_H
#define CLATTN_TOOL_RUN_JOB_H

#include "tool/run/device.h"
#include "tool/run/request.h"
#include "tool/run/timing.h"

#define JOB_BUFFERS 32
#define JOB_OUTPUTS 4

typedef struct job_output {
    cl_mem buffer; /* one of the job's */
    size_t bytes;
} job_output;

struct tool_job;
typedef clattn_status (*job_enqueue)(const struct tool_job *job, cl_event *event);
typedef clattn_status (*job_create)(const struct tool_job *job, const clattn_plan_options *options, clattn_plan **plan);

/* Zeroed: none.  Release with job_release, before the device is closed. */
typedef struct tool_job {
    tool_device *device; /* borrowed */
    clattn_plan *plan;
    cl_mem buffers[JOB_BUFFERS];
    size_t buffer_count;
    job_output outputs[JOB_OUTPUTS]; /* the result, then the others in the order of attention_result; or weights */
    job_enqueue enqueue;
    job_create create;    /* makes a plan of `desc`; NULL: job_encoder makes its own */
    clattn_status status; /* of making the job: its first failure */
    union {
        clattn_attention_desc attention;
        clattn_softmax_desc softmax;
        clattn_matmul_desc matmul;
        clattn_mha_desc mha;
        clattn_norm_desc norm;
    } desc;
    union {
        clattn_attention_args attention;
        clattn_softmax_args softmax;
        clattn_matmul_args matmul;
        clattn_mha_args mha;
        clattn_norm_args norm;
        clattn_encoder_args encoder;
    } args;
} tool_job;

/* enqueue_NAME and create_NAME, an operator's job_enqueue and job_create. */
#define JOB_ENQUEUE(name) \
    static clattn_status enqueue_##name(const tool_job *job, cl_event *event) \
    { \
        return clattn_##name##_enqueue(job->plan, job->device->queue, &job->args.name, 0, NULL, event); \
    }
#define JOB_CREATE(name) \
    static clattn_status create_##name(const tool_job *job, const clattn_plan_options *options, clattn_plan **plan) \
    { \
        return clattn_##name##_plan_create(job->device->context, &job->desc.name, options, plan); \
    }

/* What making a job consists of.  Compiling and uploading may take a while: from begin to finish there is progress to
 * see.  After a failure bind does nothing, and finish releases what is left, so that a caller may try another solver
 * with the same job. */
void job_begin(tool_job *job, tool_device *device, job_enqueue enqueue, job_create create);

/* Makes the plan of `desc`, with `solver` (NULL: the best). */
void job_plan(tool_job *job, const char *solver);

/* Uploads an array, unless it is absent; the binding's offset stays.  Random numbers are made here, when the plan has
 * accepted their shape, and only for the upload. */
void job_bind_input(tool_job *job, const host_array *array, clattn_binding *binding);
void job_bind_output(tool_job *job, size_t index, const clattn_layout *layout, clattn_binding *binding);
clattn_status job_finish(tool_job *job);
clattn_plan_options job_options(const char *solver);

/* Upload a checked request and make its plan.  After failure the job holds nothing and the device has the message. */
clattn_status job_attention(tool_device *device, const attention_request *request, const char *solver, tool_job *job);

/* Plans what gives the gradients by the arrays of `forward`, which has run and asks for the log-sum-exp; the gradient of its output is
 * random.  `forward` keeps the buffers of both. */
clattn_status job_attention_backward(const tool_job *forward, const char *solver, tool_job *job);
clattn_status job_softmax(tool_device *device, const softmax_request *request, const char *solver, tool_job *job);
clattn_status job_matmul(tool_device *device, const matmul_request *request, const char *solver, tool_job *job);
clattn_status job_norm(tool_device *device, const norm_request *request, const char *solver, tool_job *job);
clattn_status job_mha(tool_device *device, const mha_request *request, const char *solver, tool_job *job);

/* Enqueues once and waits until it is done. */
clattn_status job_run(const tool_job *job);

/* Runs the job as `rule` says; the times are from enqueue to completion.  Returns an exit status. */
int job_time(const tool_job *job, const timing_rule *rule, const char *label, timing *result);

/* Runs the job as --repeat says, once without it (0), and copies output i to results[i].  Returns an exit status. */
int job_compute(const tool_job *job, size_t repeat, const char *label, const host_array *results, timing *times);

/* Copies output `index` to `data`; blocks. */
clattn_status job_read(const tool_job *job, size_t index, void *data);

const char *job_solver(const tool_job *job);

void job_release(tool_job *job);

#endif
