/* Jobs of softmax, matrix products, norms and multi-head attention. */
#include "tool/run/job.h"

JOB_ENQUEUE(softmax)
JOB_CREATE(softmax)

clattn_status job_softmax(tool_device *device, const softmax_request *request, const char *solver, tool_job *job)
{
    clattn_softmax_desc *desc = &job->desc.softmax;
    clattn_softmax_args *args = &job->args.softmax;

    job_begin(job, device, enqueue_softmax, create_softmax);
    clattn_softmax_desc_init(desc);
    clattn_softmax_args_init(args);
    desc->explicit_scale = request->scale.given;
    desc->scale = request->scale.value;
    desc->x = desc->y = host_layout(&request->x);
    desc->mask = host_layout(&request->mask);
    desc->short_mask = request->short_mask;

    job_plan(job, solver);
    job_bind_input(job, &request->x, &args->x);
    job_bind_input(job, &request->mask, &args->mask);
    job_bind_output(job, 0, &desc->y, &args->y);
    return job_finish(job);
}

JOB_ENQUEUE(matmul)
JOB_CREATE(matmul)

clattn_status job_matmul(tool_device *device, const matmul_request *request, const char *solver, tool_job *job)
{
    clattn_matmul_desc *desc = &job->desc.matmul;
    clattn_matmul_args *args = &job->args.matmul;
    size_t m = request->x.tensor.extent[0], k = request->x.tensor.extent[1], n = request->w.tensor.extent[0];

    job_begin(job, device, enqueue_matmul, create_matmul);
    clattn_matmul_desc_init(desc);
    clattn_matmul_args_init(args);
    desc->a = host_layout(&request->x);
    desc->b = (clattn_layout){.dtype = request->w.tensor.dtype, .rank = 2, .extent = {k, n}, .stride = {1, (int64_t)k}};
    desc->c = clattn_layout_contiguous(desc->a.dtype, 2, (size_t[]){m, n});
    desc->bias = host_layout(&request->bias);
    desc->operand = host_layout(&request->operand);
    desc->b_scale = host_layout(&request->w_scale);
    desc->activation = request->activation;
    desc->operand_use = request->operand_use;

    job_plan(job, solver);
    job_bind_input(job, &request->x, &args->a);
    job_bind_input(job, &request->w, &args->b);
    job_bind_input(job, &request->bias, &args->bias);
    job_bind_input(job, &request->operand, &args->operand);
    job_bind_input(job, &request->w_scale, &args->b_scale);
    job_bind_output(job, 0, &desc->c, &args->c);
    return job_finish(job);
}

JOB_ENQUEUE(norm)
JOB_CREATE(norm)

clattn_status job_norm(tool_device *device, const norm_request *request, const char *solver, tool_job *job)
{
    clattn_norm_desc *desc = &job->desc.norm;
    clattn_norm_args *args = &job->args.norm;

    job_begin(job, device, enqueue_norm, create_norm);
    clattn_norm_desc_init(desc);
    clattn_norm_args_init(args);
    desc->kind = CLATTN_NORM_KIND_LAYER;
    desc->x = desc->y = host_layout(&request->x);
    desc->scale = host_layout(&request->scale);
    desc->bias = host_layout(&request->bias);

    job_plan(job, solver);
    job_bind_input(job, &request->x, &args->x);
    job_bind_input(job, &request->scale, &args->scale);
    job_bind_input(job, &request->bias, &args->bias);
    job_bind_output(job, 0, &desc->y, &args->y);
    return job_finish(job);
}

JOB_ENQUEUE(mha)
JOB_CREATE(mha)

static void describe_mha(const mha_request *request, clattn_mha_desc *desc)
{
    clattn_mha_desc_init(desc);
    const size_t *x = request->x.tensor.extent;
    desc->cross = host_present(&request->context);
    desc->packed_weights = host_present(&request->w_in);
    desc->bias_in = host_present(&request->b_in);
    desc->bias_out = host_present(&request->b_o);
    desc->dtype = request->x.tensor.dtype;
    desc->causal = request->causal;
    desc->alignment = request->align;
    desc->explicit_scale = request->scale.given;
    desc->scale = request->scale.value;
    desc->weights = request->weights;
    desc->batch = x[0];
    desc->query_length = x[1];
    desc->key_length = mha_key_length(request);
    desc->d_model = x[2];
    desc->heads = request->heads;
    desc->head_size = request->inner / request->heads;
    if (desc->cross)
        desc->d_context = request->context.tensor.extent[2];
    desc->mask = host_layout(&request->mask);
    desc->short_mask = request->short_mask;
}

clattn_status job_mha(tool_device *device, const mha_request *request, const char *solver, tool_job *job)
{
    clattn_mha_desc *desc = &job->desc.mha;
    clattn_mha_args *args = &job->args.mha;
    int64_t inner = (int64_t)request->inner;

    job_begin(job, device, enqueue_mha, create_mha);
    clattn_mha_args_init(args);
    describe_mha(request, desc);
    job_plan(job, solver);
    job_bind_input(job, &request->x, &args->x);
    job_bind_input(job, &request->context, &args->context);
    job_bind_input(job, &request->w_in, &args->w_in);
    job_bind_input(job, &request->w_q, &args->w_q);
    job_bind_input(job, &request->w_k, &args->w_k);
    job_bind_input(job, &request->w_v, &args->w_v);
    job_bind_input(job, &request->b_in, &args->b_in);
    job_bind_input(job, &request->w_o, &args->w_o);
    job_bind_input(job, &request->b_o, &args->b_o);
    job_bind_input(job, &request->mask, &args->mask);
    if (!desc->packed_weights && desc->bias_in) {
        /* PyTorch has the three biases in one array even if the weights are three arrays. */
        args->b_q = args->b_k = args->b_v = args->b_in;
        args->b_k.offset = inner;
        args->b_v.offset = 2 * inner;
        args->b_in = (clattn_binding){0};
    }
    clattn_layout y = host_layout(&request->x);
    job_bind_output(job, 0, &y, &args->y);
    if (request->weights != CLATTN_WEIGHTS_OUTPUT_NONE) {
        bool average = request->weights == CLATTN_WEIGHTS_OUTPUT_AVERAGE;
        size_t each[] = {desc->batch, desc->heads, desc->query_length, desc->key_length};
        size_t mean[] = {desc->batch, desc->query_length, desc->key_length};
        clattn_layout weights = clattn_layout_contiguous(CLATTN_DTYPE_F32, average ? 3 : 4, average ? mean : each);
        job_bind_output(job, 1, &weights, &args->weights);
    }
    return job_finish(job);
}
