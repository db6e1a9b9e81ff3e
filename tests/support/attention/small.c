#include "support/attention/small.h"

#include <stdlib.h>
#include <string.h>

#include "support/accuracy.h"
#include "support/device.h"
#include "support/random.h"
#include "support/reference.h"

/* One batch item, two heads, lengths and sizes without a common factor. */
enum { SMALL_HEADS = 2, SMALL_QUERIES = 5, SMALL_KEYS = 7, SMALL_D_K = 8, SMALL_D_V = 6, SMALL_MOST = 16 };

static float small_q[SMALL_HEADS * SMALL_QUERIES * SMALL_MOST], small_k[SMALL_HEADS * SMALL_KEYS * SMALL_MOST],
    small_v[SMALL_HEADS * SMALL_KEYS * SMALL_MOST];

void small_attention_prepare(struct small_attention *problem)
{
    small_attention_prepare_sized(problem, SMALL_D_K, SMALL_D_V);
}

void small_attention_prepare_sized(struct small_attention *problem, size_t d_k, size_t d_v)
{
    assert_true(d_k <= SMALL_MOST && d_v <= SMALL_MOST);
    memset(problem, 0, sizeof *problem);
    clattn_attention_desc_init(&problem->desc);
    clattn_attention_args_init(&problem->args);
    problem->desc.query = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, SMALL_HEADS, SMALL_QUERIES, d_k);
    problem->desc.key = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, SMALL_HEADS, SMALL_KEYS, d_k);
    problem->desc.value = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, SMALL_HEADS, SMALL_KEYS, d_v);
    problem->desc.output = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, SMALL_HEADS, SMALL_QUERIES, d_v);
    problem->count = SMALL_HEADS * SMALL_QUERIES * d_v;
    problem->expected = malloc(problem->count * sizeof(float));
    assert_non_null(problem->expected);
    fill_floats(small_q, sizeof small_q / sizeof(float), 1);
    fill_floats(small_k, sizeof small_k / sizeof(float), 2);
    fill_floats(small_v, sizeof small_v / sizeof(float), 3);
    expected_attention(SMALL_HEADS, SMALL_QUERIES, SMALL_KEYS, d_k, d_v, false, small_q, small_k, small_v,
                       problem->expected);
}

void small_attention_buffers(struct small_attention *problem, cl_context context)
{
    const size_t d_k = problem->desc.query.extent[3], d_v = problem->desc.value.extent[3],
                 row = SMALL_HEADS * sizeof(float);
    problem->query = new_buffer(context, CL_MEM_READ_ONLY, row * SMALL_QUERIES * d_k, small_q);
    problem->key = new_buffer(context, CL_MEM_READ_ONLY, row * SMALL_KEYS * d_k, small_k);
    problem->value = new_buffer(context, CL_MEM_READ_ONLY, row * SMALL_KEYS * d_v, small_v);
    problem->output = new_buffer(context, CL_MEM_READ_WRITE, row * SMALL_QUERIES * d_v, NULL);
    problem->args.query = clattn_binding_buffer(problem->query, 0);
    problem->args.key = clattn_binding_buffer(problem->key, 0);
    problem->args.value = clattn_binding_buffer(problem->value, 0);
    problem->args.output = clattn_binding_buffer(problem->output, 0);
}

void small_attention_open(struct small_attention *problem, cl_context context)
{
    small_attention_prepare(problem);
    small_attention_buffers(problem, context);
}

void small_attention_release(struct small_attention *problem)
{
    cl_mem *buffers[] = {&problem->query, &problem->key, &problem->value, &problem->output};
    for (size_t i = 0; i < 4; i++) {
        if (*buffers[i])
            assert_cl(clReleaseMemObject(*buffers[i]));
        *buffers[i] = NULL;
    }
    free(problem->expected);
    problem->expected = NULL;
}

void small_attention_check(struct small_attention *problem, cl_command_queue queue)
{
    float got[SMALL_HEADS * SMALL_QUERIES * SMALL_MOST];
    const size_t bytes = problem->count * sizeof *got;
    read_buffer(queue, problem->output, bytes, got);
    double difference = largest_difference(got, problem->expected, problem->count);
    if (!(difference <= 2e-6))
        fail_msg("attention is off by %g", difference);
    memset(got, 0xff, bytes);
    assert_cl(clEnqueueWriteBuffer(queue, problem->output, CL_TRUE, 0, bytes, got, 0, NULL, NULL));
}
