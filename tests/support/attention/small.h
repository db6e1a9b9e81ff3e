/* A small attention problem with its arrays and the expected result, for tests of what surrounds an operator. */
#ifndef TESTS_SUPPORT_ATTENTION_SMALL_H
#define TESTS_SUPPORT_ATTENTION_SMALL_H

#include "support/check.h"

/* A small attention problem that is ready to run: descriptor, arguments, buffers in the context's OpenCL
 * context and the expected output. */
struct small_attention {
    clattn_attention_desc desc;
    clattn_attention_args args;
    cl_mem query, key, value, output;
    float *expected;
    size_t count; /* elements of the output */
};

/* Host part: descriptor and expected values, also with other sizes of heads, up to 16; then the buffers in `context`
 * (and the args).  release frees both. */
void small_attention_prepare(struct small_attention *problem);
void small_attention_prepare_sized(struct small_attention *problem, size_t d_k, size_t d_v);
void small_attention_buffers(struct small_attention *problem, cl_context context);
void small_attention_open(struct small_attention *problem, cl_context context); /* both parts */
void small_attention_release(struct small_attention *problem);

/* Waits for the queue and fails the test unless the output is right.  Poisons the output again. */
void small_attention_check(struct small_attention *problem, cl_command_queue queue);

#endif
