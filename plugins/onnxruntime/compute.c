/* What each step enqueues. */
#include <string.h>

#include "run.h"

/* For so few rows solvers read the matrix as it is, and pack the rows if anything. */
#define FEW_ROWS 16

size_t array_bytes(const run_array *array)
{
    return array->elements * clattn_dtype_size(array->dtype);
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

/* A product as it is enqueued: with arrays broadcast, and on processors with a matrix whose columns lie together. */
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
    if (desc.activation == CLATTN_ACTIVATION_SWISH || desc.activation == CLATTN_ACTIVATION_LEAKY_RELU) {
        desc.explicit_alpha = 1;
        desc.alpha = s->activation.alpha;
    }
    return desc;
}

/* On processors solvers are made for a matrix whose columns lie together, each of `depth` elements: copies one that is the
 * other way round, once. */
static OrtStatus *turn(const engine *e, product *p, chain_product *kept)
{
    OrtStatus *failure = NULL;
    if (p->transposed || !e->shares)
        return NULL;
    if (!kept->turned) {
        const int64_t extent[2] = {(int64_t)p->columns, (int64_t)p->depth};
        const int64_t from[2] = {1, extent[0]}, to[2] = {extent[1], 1};
        run_array made = p->b;
        ORT_TRY(engine_buffer(e, NULL, array_bytes(&p->b), true, &made.buffer));
        failure = copy(e, 2, extent, from, to, &p->b, &made);
        if (failure) {
            e->cl.clReleaseMemObject(made.buffer);
            goto fail;
        }
        kept->turned = made.buffer;
    }
    p->b.buffer = kept->turned;
    p->transposed = true;
fail:
    return failure;
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
    const clattn_matmul_desc desc = product_desc(p, most);
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
    ORT_TRY(turn(e, &p, kept));
    args.a = binding_of(&p.a);
    args.b = binding_of(&p.b);
    args.bias = binding_of(p.bias);
    args.c = binding_of(output);
    if (p.rows <= FEW_ROWS) {
        const clattn_matmul_desc desc = product_desc(&p, p.rows);
        failure = judge(e, clattn_matmul_run(e->context, e->queue, &desc, &args, 0, NULL, NULL));
        goto fail;
    }
    ORT_TRY(prepare(e, &p, kept));
    args.explicit_lengths = 1;
    args.batch = 1;
    args.m = p.rows;
    if (kept->packed) {
        args.prepack = CLATTN_PREPACK_PACKED;
        args.workspace = clattn_binding_buffer(kept->packed, 0);
    }
    failure = judge(e, clattn_matmul_enqueue(kept->plan, e->queue, &args, 0, NULL, NULL));
fail:
    for (size_t i = 0; i < 2; i++)
        if (expanded[i])
            e->cl.clReleaseMemObject(expanded[i]); /* OpenCL keeps it until it has been read */
    return failure;
}

/* ---- attention ---- */

static void set(clattn_layout *layout, size_t dimension, int64_t extent, int64_t stride)
{
    layout->extent[dimension] = (size_t)extent;
    layout->stride[dimension] = stride;
}

/* Lays an array out as (batch, heads, length, size). */
static clattn_layout arrange(const attention_view *view, const run_array *a)
{
    clattn_layout layout = {.dtype = a->dtype, .rank = 4};
    int64_t stride[MOST_DIMENSIONS];
    strides_of(a, stride);
    if (view->split) {
        const int64_t size = a->dim[2] / (int64_t)view->split;
        set(&layout, 0, a->dim[0], stride[0]);
        set(&layout, 1, (int64_t)view->split, size);
        set(&layout, 2, a->dim[1], stride[1]);
        set(&layout, 3, size, 1);
        return layout;
    }
    set(&layout, 0, 1, 0);
    for (size_t i = 4 - view->rank; i < 4; i++)
        set(&layout, i, a->dim[view->axis[i]], stride[view->axis[i]]);
    return layout;
}

/* ONNX broadcasts arrays that have one batch, head or row where another has more. */
static void widen(clattn_layout *layout, size_t dimension, size_t extent)
{
    if (layout->extent[dimension] == 1 && extent > 1)
        set(layout, dimension, (int64_t)extent, 0);
}

/* Puts keys, or values, behind those of a cache. */
static OrtStatus *enqueue_present(const engine *e, const step *s, size_t part, run_array *const input[],
                                  const run_array *output)
{
    OrtStatus *failure = NULL;
    const size_t now = part == PRESENT_KEY ? KEY : VALUE;
    const run_array *past = input[part == PRESENT_KEY ? PAST_KEY : PAST_VALUE];
    const clattn_layout layout = arrange(&s->attention.view[now], input[now]);
    int64_t extent[4], from[MOST_DIMENSIONS], to[MOST_DIMENSIONS];
    run_array behind = *output;
    strides_of(past, from);
    strides_of(output, to);
    if (past->elements)
        ORT_TRY(copy(e, 4, past->dim, from, to, past, output));
    for (size_t d = 0; d < 4; d++)
        extent[d] = (int64_t)layout.extent[d];
    behind.offset += (size_t)(past->dim[2] * to[2]) * clattn_dtype_size(output->dtype);
    if (input[now]->elements)
        ORT_TRY(copy(e, 4, extent, layout.stride, to, input[now], &behind));
fail:
    return failure;
}

static OrtStatus *enqueue_attention(const engine *e, const step *s, run_array *const given[],
                                    const run_array *const outputs[])
{
    static const attention_view as_it_is = {4, 0, {0, 1, 2, 3}};
    const run_array *input[STEP_INPUTS], *output = outputs[ATTENDED];
    attention_view view[3];
    for (size_t i = 0; i < STEP_INPUTS; i++)
        input[i] = given[i];
    memcpy(view, s->attention.view, sizeof view);
    for (size_t i = KEY; i <= VALUE && given[PAST_KEY]; i++) {
        input[i] = outputs[i == KEY ? PRESENT_KEY : PRESENT_VALUE];
        view[i] = as_it_is;
    }
    clattn_attention_desc desc = CLATTN_ATTENTION_DESC_INIT;
    clattn_attention_args args = CLATTN_ATTENTION_ARGS_INIT;
    const run_array *mask = input[MASK];
    desc.query = arrange(&view[QUERY], input[QUERY]);
    desc.key = arrange(&view[KEY], input[KEY]);
    desc.value = arrange(&view[VALUE], input[VALUE]);
    desc.output = arrange(&s->attention.output, output);
    if (mask) {
        size_t extent[4];
        for (size_t d = 0; d < mask->rank; d++)
            extent[d] = (size_t)mask->dim[d];
        desc.mask = clattn_layout_contiguous(mask->dtype, (int32_t)mask->rank, extent);
    }
    widen(&desc.query, 0, desc.output.extent[0]);
    widen(&desc.key, 0, desc.output.extent[0]);
    widen(&desc.value, 0, desc.output.extent[0]);
    widen(&desc.query, 1, desc.output.extent[1]);
    widen(&desc.key, 1, desc.value.extent[1]);
    widen(&desc.value, 1, desc.key.extent[1]);
    widen(&desc.query, 2, desc.output.extent[2]);
    widen(&desc.key, 2, desc.value.extent[2]);
    desc.causal = s->attention.causal;
    desc.short_mask = s->attention.short_mask;
    desc.scoring.explicit_scale = s->attention.has_scale;
    desc.scoring.scale = s->attention.scale;
    desc.scoring.softcap = s->attention.softcap;
    args.query = binding_of(input[QUERY]);
    args.key = binding_of(input[KEY]);
    args.value = binding_of(input[VALUE]);
    args.mask = binding_of(mask);
    args.output = binding_of(output);
    return judge(e, clattn_attention_run(e->context, e->queue, &desc, &args, 0, NULL, NULL));
}

/* ---- the others ---- */

static OrtStatus *enqueue_norm(const engine *e, const step *s, run_array *const input[], const run_array *output)
{
    OrtStatus *failure = NULL;
    clattn_norm_desc desc = CLATTN_NORM_DESC_INIT;
    clattn_norm_args args = CLATTN_NORM_ARGS_INIT;
    run_array x = *input[NORM_X], residual;
    cl_mem expanded[2] = {NULL, NULL};
    size_t columns = 1;
    for (size_t i = 0; i < s->norm.axes; i++)
        columns *= (size_t)output->dim[output->rank - 1 - i];
    ORT_TRY(expand(e, output, &x, &expanded[0]));
    desc.kind = s->norm.kind;
    desc.explicit_epsilon = 1;
    desc.epsilon = s->norm.epsilon;
    desc.x = matrix(&x, output->elements / columns, columns);
    desc.y = matrix(output, output->elements / columns, columns);
    if (input[NORM_SCALE])
        desc.scale = clattn_layout_contiguous(input[NORM_SCALE]->dtype, 1, &columns);
    if (input[NORM_BIAS])
        desc.bias = clattn_layout_contiguous(input[NORM_BIAS]->dtype, 1, &columns);
    if (input[NORM_RESIDUAL]) {
        residual = *input[NORM_RESIDUAL];
        ORT_TRY(expand(e, output, &residual, &expanded[1]));
        desc.residual = matrix(&residual, output->elements / columns, columns);
        args.residual = binding_of(&residual);
    }
    args.x = binding_of(&x);
    args.y = binding_of(output);
    args.scale = binding_of(input[NORM_SCALE]);
    args.bias = binding_of(input[NORM_BIAS]);
    ORT_TRY(judge(e, clattn_norm_run(e->context, e->queue, &desc, &args, 0, NULL, NULL)));
fail:
    for (size_t i = 0; i < 2; i++)
        if (expanded[i])
            e->cl.clReleaseMemObject(expanded[i]);
    return failure;
}

static OrtStatus *enqueue_activation(const engine *e, const step *s, const run_array *x, const run_array *y)
{
    clattn_activation_desc desc = CLATTN_ACTIVATION_DESC_INIT;
    clattn_activation_args args = CLATTN_ACTIVATION_ARGS_INIT;
    desc.function = s->activation.function;
    if (desc.function == CLATTN_ACTIVATION_SWISH || desc.function == CLATTN_ACTIVATION_LEAKY_RELU) {
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

/* Whether attention has nothing to attend: its output is 0. */
static bool attends_nothing(const step *s, run_array *const input[], const run_array *const outputs[])
{
    if (s->kind != STEP_ATTENTION)
        return false;
    const run_array *value = input[PAST_KEY] ? outputs[PRESENT_VALUE] : input[VALUE];
    return value->elements == 0;
}

OrtStatus *step_enqueue(engine *e, const chain *c, size_t number, size_t part, run_array *const input[STEP_INPUTS],
                        const run_array *const outputs[STEP_OUTPUTS])
{
    const step *s = &c->step[number];
    const run_array *output = outputs[part];
    if (output->elements == 0 || output->dtype == CLATTN_DTYPE_NONE)
        return NULL;
    if (s->kind == STEP_ATTENTION && part != ATTENDED)
        return enqueue_present(e, s, part, input, output);
    if (attends_nothing(s, input, outputs)) {
        const uint32_t zero = 0;
        const cl_int code = e->cl.clEnqueueFillBuffer(e->queue, output->buffer, &zero, clattn_dtype_size(output->dtype),
                                                      output->offset, array_bytes(output), 0, NULL, NULL);
        return code == CL_SUCCESS ? NULL
                                  : ort_failure(e->ort, ORT_EP_FAIL, "clattn: clEnqueueFillBuffer returned %d", code);
    }
    switch (s->kind) {
    case STEP_ATTENTION: return enqueue_attention(e, s, input, outputs);
    case STEP_PRODUCT: return enqueue_product(e, s, &c->product[number], input, output);
    case STEP_NORM: return enqueue_norm(e, s, input, output);
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
