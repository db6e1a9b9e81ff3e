#include "job.h"

#include <string.h>

#include "base/size.h"
#include "progress.h"

static clattn_layout contiguous(const host_array *array)
{
    return clattn_layout_contiguous((clattn_dtype)array->tensor.dtype, array->tensor.rank,
                                    array->tensor.extent);
}

/* The layout of an optional array: zeroed, "none", where there is none. */
static clattn_layout optional(const host_array *array)
{
    return host_present(array) ? contiguous(array) : (clattn_layout){0};
}

/* Uploads an array and binds it; nothing to do where it is absent or an earlier step failed. */
static clattn_status bind_input(tool_job *job, clattn_status status, const host_array *array,
                                clattn_binding *binding)
{
    if (status != CLATTN_SUCCESS || !host_present(array))
        return status;
    cl_mem *buffer = &job->buffers[job->buffer_count++];
    status = device_upload(job->device, &array->tensor, buffer);
    *binding = clattn_binding_buffer(*buffer, 0);
    return status;
}

static clattn_status bind_output(tool_job *job, clattn_status status, size_t index,
                                 const clattn_layout *layout, clattn_binding *binding)
{
    size_t bytes = clattn_dtype_size((clattn_dtype)layout->dtype);
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

static clattn_plan_options with_solver(const char *solver)
{
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    options.solver = solver;
    return options;
}

typedef clattn_status (*enqueue_function)(const tool_job *job, cl_event *event);

/* Compiling and uploading may take a while: from here to finish there is progress to see. */
static void begin(tool_job *job, tool_device *device, enqueue_function enqueue)
{
    *job = (tool_job){.device = device, .enqueue = enqueue};
    device->message[0] = '\0';
    progress_begin("preparing");
}

/* What is left after a failure is released, so that a caller may try another solver with the same job. */
static clattn_status finish(tool_job *job, clattn_status status)
{
    progress_end();
    if (status != CLATTN_SUCCESS)
        job_release(job);
    return status;
}

static clattn_status enqueue_attention(const tool_job *job, cl_event *event)
{
    return clattn_attention_enqueue(job->plan, job->device->queue, &job->args.attention, 0, NULL, event);
}

clattn_status job_attention(tool_device *device, const attention_problem *problem, const char *solver,
                            tool_job *job)
{
    clattn_attention_desc desc = CLATTN_ATTENTION_DESC_INIT;
    clattn_plan_options options = with_solver(solver);
    clattn_attention_args *args = &job->args.attention;
    size_t extent[4];

    begin(job, device, enqueue_attention);
    attention_output_extents(problem, extent);
    desc.causal = problem->causal;
    desc.alignment = problem->align;
    desc.scale_mode = problem->scale.given ? CLATTN_SCALE_EXPLICIT : CLATTN_SCALE_INVERSE_SQRT;
    desc.scale = problem->scale.value;
    desc.query = contiguous(&problem->query);
    desc.key = contiguous(&problem->key);
    desc.value = contiguous(&problem->value);
    desc.mask = optional(&problem->mask);
    desc.output = clattn_layout_contiguous(CLATTN_F32, 4, extent);
    if (problem->with_lse)
        desc.lse = clattn_layout_contiguous(CLATTN_F32, 3, extent);

    clattn_attention_args_init(args);
    clattn_status status = clattn_attention_plan_create(device->context, &desc, &options, &job->plan);
    status = bind_input(job, status, &problem->query, &args->query);
    status = bind_input(job, status, &problem->key, &args->key);
    status = bind_input(job, status, &problem->value, &args->value);
    status = bind_input(job, status, &problem->mask, &args->mask);
    status = bind_output(job, status, 0, &desc.output, &args->output);
    if (problem->with_lse)
        status = bind_output(job, status, 1, &desc.lse, &args->lse);
    return finish(job, status);
}

static clattn_status enqueue_softmax(const tool_job *job, cl_event *event)
{
    return clattn_softmax_enqueue(job->plan, job->device->queue, &job->args.softmax, 0, NULL, event);
}

clattn_status job_softmax(tool_device *device, const softmax_problem *problem, const char *solver,
                          tool_job *job)
{
    clattn_softmax_desc desc = CLATTN_SOFTMAX_DESC_INIT;
    clattn_plan_options options = with_solver(solver);
    clattn_softmax_args *args = &job->args.softmax;

    begin(job, device, enqueue_softmax);
    desc.scaled = problem->scale.given;
    desc.scale = problem->scale.value;
    desc.x = contiguous(&problem->x);
    desc.y = desc.x;
    desc.mask = optional(&problem->mask);

    clattn_softmax_args_init(args);
    clattn_status status = clattn_softmax_plan_create(device->context, &desc, &options, &job->plan);
    status = bind_input(job, status, &problem->x, &args->x);
    status = bind_input(job, status, &problem->mask, &args->mask);
    status = bind_output(job, status, 0, &desc.y, &args->y);
    return finish(job, status);
}

static clattn_status enqueue_matmul(const tool_job *job, cl_event *event)
{
    return clattn_matmul_enqueue(job->plan, job->device->queue, &job->args.matmul, 0, NULL, event);
}

clattn_status job_matmul(tool_device *device, const matmul_problem *problem, const char *solver,
                         tool_job *job)
{
    clattn_matmul_desc desc = CLATTN_MATMUL_DESC_INIT;
    clattn_plan_options options = with_solver(solver);
    clattn_matmul_args *args = &job->args.matmul;
    size_t m = problem->x.tensor.extent[0], k = problem->x.tensor.extent[1], n = problem->w.tensor.extent[0];

    begin(job, device, enqueue_matmul);
    desc.a = contiguous(&problem->x);
    desc.b = (clattn_layout){.dtype = CLATTN_F32, .rank = 2, .extent = {k, n}, .stride = {1, (int64_t)k}};
    desc.c = clattn_layout_contiguous(CLATTN_F32, 2, (size_t[]){m, n});
    desc.bias = optional(&problem->bias);

    clattn_matmul_args_init(args);
    clattn_status status = clattn_matmul_plan_create(device->context, &desc, &options, &job->plan);
    status = bind_input(job, status, &problem->x, &args->a);
    status = bind_input(job, status, &problem->w, &args->b);
    status = bind_input(job, status, &problem->bias, &args->bias);
    status = bind_output(job, status, 0, &desc.c, &args->c);
    return finish(job, status);
}

static clattn_status enqueue_mha(const tool_job *job, cl_event *event)
{
    return clattn_mha_enqueue(job->plan, job->device->queue, &job->args.mha, 0, NULL, event);
}

static clattn_mha_desc mha_desc_of(const mha_problem *problem)
{
    clattn_mha_desc desc = CLATTN_MHA_DESC_INIT;
    const size_t *x = problem->x.tensor.extent;
    desc.cross = host_present(&problem->context);
    desc.packed_weights = host_present(&problem->w_in);
    desc.bias_in = host_present(&problem->b_in);
    desc.bias_out = host_present(&problem->b_o);
    desc.causal = problem->causal;
    desc.alignment = problem->align;
    desc.scale_mode = problem->scale.given ? CLATTN_SCALE_EXPLICIT : CLATTN_SCALE_INVERSE_SQRT;
    desc.scale = problem->scale.value;
    desc.weights = problem->weights;
    desc.batch = x[0];
    desc.query_length = x[1];
    desc.key_length = mha_key_length(problem);
    desc.d_model = x[2];
    desc.heads = problem->heads;
    desc.head_size = problem->inner / problem->heads;
    if (desc.cross)
        desc.d_context = problem->context.tensor.extent[2];
    desc.mask = optional(&problem->mask);
    return desc;
}

clattn_status job_mha(tool_device *device, const mha_problem *problem, const char *solver, tool_job *job)
{
    clattn_mha_desc desc = mha_desc_of(problem);
    clattn_plan_options options = with_solver(solver);
    clattn_mha_args *args = &job->args.mha;
    int64_t inner = (int64_t)problem->inner;

    begin(job, device, enqueue_mha);
    clattn_mha_args_init(args);
    clattn_status status = clattn_mha_plan_create(device->context, &desc, &options, &job->plan);
    status = bind_input(job, status, &problem->x, &args->x);
    status = bind_input(job, status, &problem->context, &args->context);
    status = bind_input(job, status, &problem->w_in, &args->w_in);
    status = bind_input(job, status, &problem->w_q, &args->w_q);
    status = bind_input(job, status, &problem->w_k, &args->w_k);
    status = bind_input(job, status, &problem->w_v, &args->w_v);
    status = bind_input(job, status, &problem->b_in, &args->b_in);
    status = bind_input(job, status, &problem->w_o, &args->w_o);
    status = bind_input(job, status, &problem->b_o, &args->b_o);
    status = bind_input(job, status, &problem->mask, &args->mask);
    if (!desc.packed_weights && desc.bias_in) {
        /* PyTorch keeps the three biases in one array even where the weights are three. */
        args->b_q = args->b_k = args->b_v = args->b_in;
        args->b_k.offset = inner;
        args->b_v.offset = 2 * inner;
        args->b_in = (clattn_binding){0};
    }
    clattn_layout y = contiguous(&problem->x);
    status = bind_output(job, status, 0, &y, &args->y);
    if (problem->weights != CLATTN_WEIGHTS_NONE) {
        bool average = problem->weights == CLATTN_WEIGHTS_AVERAGE;
        size_t each[] = {desc.batch, desc.heads, desc.query_length, desc.key_length};
        size_t mean[] = {desc.batch, desc.query_length, desc.key_length};
        clattn_layout weights = clattn_layout_contiguous(CLATTN_F32, average ? 3 : 4, average ? mean : each);
        status = bind_output(job, status, 1, &weights, &args->weights);
    }
    return finish(job, status);
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
