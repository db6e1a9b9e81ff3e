/* What each step enqueues. */
#include <string.h>

#include "run.h"

/* So few rows have a plan of their own on a GPU. */
#define FEW_ROWS 16

bool has_alpha(clattn_activation function)
{
    return function == CLATTN_ACTIVATION_SWISH || function == CLATTN_ACTIVATION_LEAKY_RELU;
}

size_t array_bytes(const run_array *array)
{
    const size_t elements = array->pitch ? array->elements / array->columns * array->pitch : array->elements;
    return elements * clattn_dtype_size(array->dtype);
}

OrtStatus *judge(const engine *e, clattn_status status)
{
    char text[768];
    if (status == CLATTN_SUCCESS)
        return NULL;
    clattn_context_message(e->context, text, sizeof text);
    return ort_failure(e->ort, status == CLATTN_ERROR_INVALID_LAYOUT ? ORT_INVALID_ARGUMENT : ORT_EP_FAIL, "clattn: %s",
                       *text ? text : clattn_status_string(status));
}

OrtStatus *fill_zero(const engine *e, const run_array *array)
{
    const uint32_t zero = 0;
    const cl_int code = e->cl.clEnqueueFillBuffer(e->queue, array->buffer, &zero, clattn_dtype_size(array->dtype),
                                                  array->offset, array_bytes(array), 0, NULL, NULL);
    return code == CL_SUCCESS ? NULL
                              : ort_failure(e->ort, ORT_EP_FAIL, "clattn: clEnqueueFillBuffer returned %d", code);
}

OrtStatus *engine_buffer(const engine *e, void *host, size_t bytes, bool written, cl_mem *buffer)
{
    cl_int code = CL_SUCCESS;
    const bool used = e->shares && host, copied = !used && host && !written;
    const cl_mem_flags flags = (written ? CL_MEM_READ_WRITE : CL_MEM_READ_ONLY) | (used ? CL_MEM_USE_HOST_PTR : 0) |
                               (copied ? CL_MEM_COPY_HOST_PTR : 0);
    *buffer = e->cl.clCreateBuffer(clattn_context_opencl_context(e->context), flags, bytes,
                                   used || copied ? host : NULL, &code);
    return code == CL_SUCCESS ? NULL : ort_failure(e->ort, ORT_EP_FAIL, "clattn: clCreateBuffer returned %d", code);
}

clattn_binding binding_of(const run_array *array)
{
    return array ? clattn_binding_buffer(array->buffer, (int64_t)(array->offset / clattn_dtype_size(array->dtype)))
                 : (clattn_binding){0};
}

static clattn_layout matrix(const run_array *array, size_t rows, size_t columns)
{
    const size_t extent[2] = {rows, columns};
    return clattn_layout_contiguous(array->dtype, 2, extent);
}

/* ---- products ---- */

/* A product as it is enqueued: with arrays broadcast. */
typedef struct product {
    const step *s;
    run_array a, b, operand; /* if the step has them */
    const run_array *bias, *output;
    bool transposed; /* b is (columns, depth) */
    size_t rows, columns, depth;
} product;

static clattn_matmul_desc product_desc(const product *p, size_t rows)
{
    clattn_matmul_desc desc = CLATTN_MATMUL_DESC_INIT;
    const step *s = p->s;
    const size_t depth = p->depth, columns = p->columns;
    desc.a = matrix(&p->a, rows, depth);
    desc.b = matrix(&p->b, depth, columns);
    if (p->transposed) {
        desc.b.stride[0] = 1;
        desc.b.stride[1] = (int64_t)depth;
    }
    desc.c = matrix(p->output, rows, columns);
    if (p->bias)
        desc.bias = clattn_layout_contiguous(p->bias->dtype, 1, &columns);
    if (s->input[PRODUCT_OPERAND] != NO_PLACE) {
        desc.operand = matrix(&p->operand, rows, columns);
        if (s->product.scalar)
            desc.operand.stride[0] = desc.operand.stride[1] = 0;
        desc.operand_use = s->product.multiplies ? CLATTN_MATMUL_OPERAND_USE_MULTIPLY : CLATTN_MATMUL_OPERAND_USE_ADD;
    }
    desc.activation = s->activation.function;
    if (has_alpha(desc.activation)) {
        desc.explicit_alpha = 1;
        desc.alpha = s->activation.alpha;
    }
    return desc;
}

/* Makes sure that there is a plan for as many rows, and the matrix packed for it. */
static OrtStatus *prepare(const engine *e, const product *p, chain_product *kept)
{
    OrtStatus *failure = NULL;
    if (kept->rows >= p->rows)
        return NULL;
    size_t most = p->rows;
    if (kept->plan) /* lengths vary: few plans for all */
        for (most = 2 * kept->rows; most < p->rows;)
            most *= 2;
    clattn_plan_release(&kept->plan);
    if (kept->packed)
        e->cl.clReleaseMemObject(kept->packed);
    kept->packed = NULL;
    kept->rows = 0;
    clattn_matmul_desc desc = product_desc(p, most);
    desc.prepack = 1;
    ORT_TRY(judge(e, clattn_matmul_plan_create(e->context, &desc, NULL, &kept->plan)));
    const size_t bytes = clattn_plan_workspace_size(kept->plan);
    if (bytes) {
        clattn_matmul_args args = CLATTN_MATMUL_ARGS_INIT;
        ORT_TRY(engine_buffer(e, NULL, bytes, true, &kept->packed));
        args.prepack = CLATTN_PREPACK_PACK;
        args.b = binding_of(&p->b);
        args.workspace = clattn_binding_buffer(kept->packed, 0);
        ORT_TRY(judge(e, clattn_matmul_enqueue(kept->plan, e->queue, &args, 0, NULL, NULL)));
    }
    kept->rows = most;
fail:
    if (failure)
        clattn_plan_release(&kept->plan);
    return failure;
}

/* Broadcasts the operand to the output, and the first array to where the operand has more rows. */
static OrtStatus *broadcast_inputs(const engine *e, product *p, cl_mem expanded[2])
{
    OrtStatus *failure = NULL;
    run_array *a = &p->a, wide = *p->output;
    if (!p->s->product.scalar)
        ORT_TRY(expand(e, p->output, &p->operand, &expanded[0]));
    if (a->elements / p->depth == p->rows)
        return NULL;
    /* A with the sums' dimensions. */
    a->dim[a->rank - 1] = (int64_t)p->columns;
    a->elements = a->elements / p->depth * p->columns;
    ORT_TRY(reshape(e->ort, &p->s->reshape, NULL, a));
    a->dim[a->rank - 1] = (int64_t)p->depth;
    a->elements = a->elements / p->columns * p->depth;
    wide.dim[wide.rank - 1] = (int64_t)p->depth;
    wide.elements = p->rows * p->depth;
    ORT_TRY(expand(e, &wide, a, &expanded[1]));
fail:
    return failure;
}

static OrtStatus *enqueue_prepared(const engine *e, const product *p, chain_product *kept, clattn_matmul_args *args)
{
    OrtStatus *failure = NULL;
    args->a = binding_of(&p->a);
    args->b = binding_of(&p->b);
    args->bias = binding_of(p->bias);
    args->c = binding_of(p->output);
    if (!e->shares && p->rows <= FEW_ROWS) {
        const clattn_matmul_desc desc = product_desc(p, p->rows);
        return judge(e, clattn_matmul_run(e->context, e->queue, &desc, args, 0, NULL, NULL));
    }
    ORT_TRY(prepare(e, p, kept));
    args->explicit_lengths = 1;
    args->batch = 1;
    args->m = p->rows;
    if (kept->packed) {
        args->prepack = CLATTN_PREPACK_PACKED;
        args->workspace = clattn_binding_buffer(kept->packed, 0);
    }
    failure = judge(e, clattn_matmul_enqueue(kept->plan, e->queue, args, 0, NULL, NULL));
fail:
    return failure;
}

static OrtStatus *enqueue_product(const engine *e, const step *s, chain_product *kept,
                                  run_array *const input[STEP_INPUTS], const run_array *output)
{
    OrtStatus *failure = NULL;
    clattn_matmul_args args = CLATTN_MATMUL_ARGS_INIT;
    cl_mem expanded[2] = {NULL, NULL};
    const bool transposed = s->product.transposed;
    product p = {.s = s,
                 .a = *input[PRODUCT_A],
                 .b = *input[PRODUCT_B],
                 .bias = input[PRODUCT_BIAS],
                 .output = output,
                 .transposed = transposed,
                 .columns = (size_t)input[PRODUCT_B]->dim[!transposed],
                 .depth = (size_t)input[PRODUCT_B]->dim[transposed]};
    p.rows = output->elements / p.columns;
    if (input[PRODUCT_OPERAND]) {
        p.operand = *input[PRODUCT_OPERAND];
        ORT_TRY(broadcast_inputs(e, &p, expanded));
        args.operand = binding_of(&p.operand);
    }
    ORT_TRY(enqueue_prepared(e, &p, kept, &args));
fail:
    for (size_t i = 0; i < 2; i++)
        if (expanded[i])
            e->cl.clReleaseMemObject(expanded[i]); /* OpenCL keeps it until it has been read */
    return failure;
}

/* Puts the matrices, or with `biases` the biases, of joint products together, column by column. */
static OrtStatus *put_together(const engine *e, const chain *c, const chain_joint *first, const run_array *array,
                               bool biases, cl_mem *together)
{
    OrtStatus *failure = NULL;
    for (size_t i = 0; i < first->steps; i++) {
        const step *s = &c->step[first->step[i]];
        const run_array *b = &array[s->input[PRODUCT_B]];
        const run_array *part = biases ? &array[s->input[PRODUCT_BIAS]] : b;
        const bool transposed = s->product.transposed;
        const int64_t columns = b->dim[!transposed], depth = biases ? 1 : b->dim[transposed];
        const int64_t extent[2] = {columns, depth}, to[2] = {depth, 1};
        const int64_t from[2] = {transposed || biases ? depth : 1, transposed ? 1 : columns};
        run_array made = *part;
        if (!*together)
            ORT_TRY(engine_buffer(e, NULL, first->pitch * (size_t)depth * clattn_dtype_size(b->dtype), true, together));
        made.buffer = *together;
        made.offset = c->joint[first->step[i]].column * (size_t)depth * clattn_dtype_size(b->dtype);
        ORT_TRY(copy(e, 2, extent, from, to, part, &made));
    }
fail:
    if (failure && *together) {
        e->cl.clReleaseMemObject(*together);
        *together = NULL;
    }
    return failure;
}

OrtStatus *enqueue_joint(const engine *e, const chain *c, size_t first, const run_array *array)
{
    OrtStatus *failure = NULL;
    const step *s = &c->step[first];
    chain_joint *joint = &c->joint[first];
    clattn_matmul_args args = CLATTN_MATMUL_ARGS_INIT;
    run_array bias = {.rank = 1};
    product p = {.s = s,
                 .a = array[s->input[PRODUCT_A]],
                 .b = array[s->input[PRODUCT_B]],
                 .output = &array[s->output[0]],
                 .transposed = true,
                 .columns = joint->pitch,
                 .depth = (size_t)array[s->input[PRODUCT_B]].dim[s->product.transposed]};
    p.rows = p.output->elements / p.output->columns;
    if (!joint->matrix)
        ORT_TRY(put_together(e, c, joint, array, false, &joint->matrix));
    p.b.buffer = joint->matrix;
    p.b.offset = 0;
    if (s->input[PRODUCT_BIAS] != NO_PLACE) {
        if (!joint->bias)
            ORT_TRY(put_together(e, c, joint, array, true, &joint->bias));
        bias.dtype = array[s->input[PRODUCT_BIAS]].dtype;
        bias.buffer = joint->bias;
        p.bias = &bias;
    }
    ORT_TRY(enqueue_prepared(e, &p, &joint->product, &args));
fail:
    return failure;
}

/* ---- the others ---- */

static OrtStatus *enqueue_norm(engine *e, const step *s, run_array *const input[], const run_array *const outputs[])
{
    OrtStatus *failure = NULL;
    clattn_norm_desc desc = CLATTN_NORM_DESC_INIT;
    clattn_norm_args args = CLATTN_NORM_ARGS_INIT;
    const run_array *output = outputs[NORMED];
    run_array x = *input[NORM_X], residual;
    cl_mem made[3] = {NULL, NULL, NULL};
    size_t columns = 1;
    for (size_t i = 0; i < s->norm.axes; i++)
        columns *= (size_t)output->dim[output->rank - 1 - i];
    const clattn_layout rows = matrix(output, output->elements / columns, columns);
    ORT_TRY(expand(e, output, &x, &made[0]));
    desc.kind = s->norm.kind;
    desc.explicit_epsilon = 1;
    desc.epsilon = s->norm.epsilon;
    desc.x = desc.y = rows;
    if (input[NORM_SCALE])
        desc.scale = clattn_layout_contiguous(input[NORM_SCALE]->dtype, 1, &columns);
    if (input[NORM_BIAS])
        desc.bias = clattn_layout_contiguous(input[NORM_BIAS]->dtype, 1, &columns);
    if (input[NORM_RESIDUAL]) {
        residual = *input[NORM_RESIDUAL];
        if (input[NORM_ADDEND]) {
            ORT_TRY(engine_buffer(e, NULL, array_bytes(&residual), true, &made[1]));
            residual.buffer = made[1];
            residual.offset = 0;
            ORT_TRY(enqueue_elementwise(e, ELEMENTWISE_ADD, input[NORM_RESIDUAL], input[NORM_ADDEND], &residual));
        }
        ORT_TRY(expand(e, output, &residual, &made[2]));
        desc.residual = rows;
        args.residual = binding_of(&residual);
    }
    if (outputs[NORM_SUM]) {
        desc.sum = rows;
        args.sum = binding_of(outputs[NORM_SUM]);
    }
    args.x = binding_of(&x);
    args.y = binding_of(output);
    args.scale = binding_of(input[NORM_SCALE]);
    args.bias = binding_of(input[NORM_BIAS]);
    ORT_TRY(judge(e, clattn_norm_run(e->context, e->queue, &desc, &args, 0, NULL, NULL)));
fail:
    for (size_t i = 0; i < 3; i++)
        if (made[i])
            e->cl.clReleaseMemObject(made[i]);
    return failure;
}

static OrtStatus *enqueue_activation(const engine *e, const step *s, const run_array *x, const run_array *y)
{
    clattn_activation_desc desc = CLATTN_ACTIVATION_DESC_INIT;
    clattn_activation_args args = CLATTN_ACTIVATION_ARGS_INIT;
    desc.function = s->activation.function;
    if (has_alpha(desc.function)) {
        desc.explicit_alpha = 1;
        desc.alpha = s->activation.alpha;
    }
    const size_t columns = x->rank ? (size_t)x->dim[x->rank - 1] : 1;
    desc.x = matrix(x, x->elements / columns, columns);
    desc.y = matrix(y, y->elements / columns, columns);
    args.x = binding_of(x);
    args.y = binding_of(y);
    return judge(e, clattn_activation_run(e->context, e->queue, &desc, &args, 0, NULL, NULL));
}

OrtStatus *step_enqueue(engine *e, const chain *c, size_t number, size_t part, run_array *const input[STEP_INPUTS],
                        const run_array *const outputs[STEP_OUTPUTS])
{
    const step *s = &c->step[number];
    const run_array *output = outputs[part];
    if (output->elements == 0 || output->dtype == CLATTN_DTYPE_NONE)
        return NULL;
    switch (s->kind) {
    case STEP_ATTENTION: return enqueue_attention(e, s, part, input, outputs);
    case STEP_ROPE: return enqueue_rope(e, s, input, output);
    case STEP_EINSUM: return enqueue_einsum(e, s, input, output);
    case STEP_PRODUCT: return enqueue_product(e, s, &c->product[number], input, output);
    case STEP_NORM: return part == NORMED ? enqueue_norm(e, s, input, outputs) : NULL; /* with its sum */
    case STEP_ACTIVATION: return enqueue_activation(e, s, input[0], output);
    case STEP_CONVOLUTION: return enqueue_convolution(e, s, input, output);
    case STEP_RESIZE: return enqueue_resize(e, s, input[0], output);
    case STEP_DEPTH_TO_SPACE: return enqueue_depth_to_space(e, s, input[0], output);
    case STEP_ELEMENTWISE: return enqueue_elementwise(e, s->function, input[0], input[1], output);
    case STEP_TRANSPOSE:
    case STEP_SLICE:
    case STEP_SPLIT:
    case STEP_CONCAT:
    case STEP_EXPAND: return enqueue_move(e, s, part, input, output);
    case STEP_RESHAPE:
    case STEP_SHAPE:
    case STEP_GATHER: break;
    }
    return NULL;
}
