/* Jobs of softmax, matrix products, norms and multi-head attention. */
#include "tool/run/job.h"

static clattn_layout contiguous(const host_array *array)
{
    return clattn_layout_contiguous(array->tensor.dtype, array->tensor.rank, array->tensor.extent);
}

/* The layout of an optional array, with rank 0 if the array is absent. */
static clattn_layout optional(const host_array *array)
{
    return host_present(array) ? contiguous(array) : (clattn_layout){0};
}

JOB_ENQUEUE(softmax)
JOB_CREATE(softmax)

clattn_status job_softmax(tool_device *device, const softmax_request *request, const char *solver, tool_job *job)
{
    clattn_softmax_desc desc = CLATTN_SOFTMAX_DESC_INIT;
    clattn_plan_options options = job_options(solver);
    clattn_softmax_args *args = &job->args.softmax;

    job_begin(job, device, enqueue_softmax);
    job->create = create_softmax;
    desc.explicit_scale = request->scale.given;
    desc.scale = request->scale.value;
    desc.x = contiguous(&request->x);
    desc.y = desc.x;
    desc.mask = optional(&request->mask);
    desc.short_mask = request->short_mask;

    clattn_softmax_args_init(args);
    job->desc.softmax = desc;
    clattn_status status = create_softmax(job, &options, &job->plan);
    status = job_bind_input(job, status, &request->x, &args->x);
    status = job_bind_input(job, status, &request->mask, &args->mask);
    status = job_bind_output(job, status, 0, &desc.y, &args->y);
    return job_finish(job, status);
}

JOB_ENQUEUE(matmul)
JOB_CREATE(matmul)

clattn_status job_matmul(tool_device *device, const matmul_request *request, const char *solver, tool_job *job)
{
    clattn_matmul_desc desc = CLATTN_MATMUL_DESC_INIT;
    clattn_plan_options options = job_options(solver);
    clattn_matmul_args *args = &job->args.matmul;
    size_t m = request->x.tensor.extent[0], k = request->x.tensor.extent[1], n = request->w.tensor.extent[0];
    clattn_dtype dtype = request->x.tensor.dtype;

    job_begin(job, device, enqueue_matmul);
    job->create = create_matmul;
    desc.a = contiguous(&request->x);
    desc.b = (clattn_layout){.dtype = request->w.tensor.dtype, .rank = 2, .extent = {k, n}, .stride = {1, (int64_t)k}};
    desc.c = clattn_layout_contiguous(dtype, 2, (size_t[]){m, n});
    desc.bias = optional(&request->bias);
    desc.operand = optional(&request->operand);
    desc.b_scale = optional(&request->w_scale);
    desc.activation = request->activation;
    desc.operand_use = request->operand_use;

    clattn_matmul_args_init(args);
    job->desc.matmul = desc;
    clattn_status status = create_matmul(job, &options, &job->plan);
    status = job_bind_input(job, status, &request->x, &args->a);
    status = job_bind_input(job, status, &request->w, &args->b);
    status = job_bind_input(job, status, &request->bias, &args->bias);
    status = job_bind_input(job, status, &request->operand, &args->operand);
    status = job_bind_input(job, status, &request->w_scale, &args->b_scale);
    status = job_bind_output(job, status, 0, &desc.c, &args->c);
    return job_finish(job, status);
}

JOB_ENQUEUE(norm)
JOB_CREATE(norm)

clattn_status job_norm(tool_device *device, const norm_request *request, const char *solver, tool_job *job)
{
    clattn_norm_desc desc = CLATTN_NORM_DESC_INIT;
    clattn_plan_options options = job_options(solver);
    clattn_norm_args *args = &job->args.norm;

    job_begin(job, device, enqueue_norm);
    job->create = create_norm;
    desc.kind = request->kind;
    desc.x = contiguous(&request->x);
    desc.y = desc.x;
    desc.scale = optional(&request->scale);
    desc.bias = optional(&request->bias);
    if (request->inv_std_dev) {
        clattn_layout rows = desc.x;
        rows.extent[rows.rank - 1] = 1;
        desc.inv_std_dev = clattn_layout_contiguous(CLATTN_DTYPE_F32, rows.rank, rows.extent);
    }

    clattn_norm_args_init(args);
    job->desc.norm = desc;
    clattn_status status = create_norm(job, &options, &job->plan);
    status = job_bind_input(job, status, &request->x, &args->x);
    status = job_bind_input(job, status, &request->scale, &args->scale);
    status = job_bind_input(job, status, &request->bias, &args->bias);
    status = job_bind_output(job, status, 0, &desc.y, &args->y);
    if (request->inv_std_dev)
        status = job_bind_output(job, status, 1, &desc.inv_std_dev, &args->inv_std_dev);
    return job_finish(job, status);
}

JOB_ENQUEUE(mha)

static clattn_mha_desc mha_desc_of(const mha_request *request)
{
    clattn_mha_desc desc = CLATTN_MHA_DESC_INIT;
    const size_t *x = request->x.tensor.extent;
    desc.cross = host_present(&request->context);
    desc.packed_weights = host_present(&request->w_in);
    desc.bias_in = host_present(&request->b_in);
    desc.bias_out = host_present(&request->b_o);
    desc.dtype = request->x.tensor.dtype;
    desc.causal = request->causal;
    desc.alignment = request->align;
    desc.explicit_scale = request->scale.given;
    desc.scale = request->scale.value;
    desc.weights = request->weights;
    desc.batch = x[0];
    desc.query_length = x[1];
    desc.key_length = mha_key_length(request);
    desc.d_model = x[2];
    desc.heads = request->heads;
    desc.head_size = request->inner / request->heads;
    if (desc.cross)
        desc.d_context = request->context.tensor.extent[2];
    desc.mask = optional(&request->mask);
    desc.short_mask = request->short_mask;
    return desc;
}

clattn_status job_mha(tool_device *device, const mha_request *request, const char *solver, tool_job *job)
{
    clattn_mha_desc desc = mha_desc_of(request);
    clattn_plan_options options = job_options(solver);
    clattn_mha_args *args = &job->args.mha;
    int64_t inner = (int64_t)request->inner;

    job_begin(job, device, enqueue_mha);
    clattn_mha_args_init(args);
    clattn_status status = clattn_mha_plan_create(device->context, &desc, &options, &job->plan);
    status = job_bind_input(job, status, &request->x, &args->x);
    status = job_bind_input(job, status, &request->context, &args->context);
    status = job_bind_input(job, status, &request->w_in, &args->w_in);
    status = job_bind_input(job, status, &request->w_q, &args->w_q);
    status = job_bind_input(job, status, &request->w_k, &args->w_k);
    status = job_bind_input(job, status, &request->w_v, &args->w_v);
    status = job_bind_input(job, status, &request->b_in, &args->b_in);
    status = job_bind_input(job, status, &request->w_o, &args->w_o);
    status = job_bind_input(job, status, &request->b_o, &args->b_o);
    status = job_bind_input(job, status, &request->mask, &args->mask);
    if (!desc.packed_weights && desc.bias_in) {
        /* PyTorch has the three biases in one array even if the weights are three arrays. */
        args->b_q = args->b_k = args->b_v = args->b_in;
        args->b_k.offset = inner;
        args->b_v.offset = 2 * inner;
        args->b_in = (clattn_binding){0};
    }
    clattn_layout y = contiguous(&request->x);
    status = job_bind_output(job, status, 0, &y, &args->y);
    if (request->weights != CLATTN_WEIGHTS_OUTPUT_NONE) {
        bool average = request->weights == CLATTN_WEIGHTS_OUTPUT_AVERAGE;
        size_t each[] = {desc.batch, desc.heads, desc.query_length, desc.key_length};
        size_t mean[] = {desc.batch, desc.query_length, desc.key_length};
        clattn_layout weights = clattn_layout_contiguous(CLATTN_DTYPE_F32, average ? 3 : 4, average ? mean : each);
        status = job_bind_output(job, status, 1, &weights, &args->weights);
    }
    return job_finish(job, status);
}
