/* The first program: attention looks a value up by a query that resembles its key. */
#include <stdio.h>
#include <stdlib.h>

#include <clattn/clattn.h>

static float data[10][4] = {
    {1, 0, 0, 0},  {0, 1, 0, 0},  {0, 0, 1, 0},    /* three keys, */
    {1, 2, 3, 4},  {5, 6, 7, 8},  {9, 10, 11, 12}, /* their values, */
    {0, 60, 0, 0}, {0, 0, 60, 0},                  /* queries like keys 1 and 2, and room for what they find */
};

static void check(const clattn_context *context, clattn_status status)
{
    char message[512];
    clattn_context_message(context, message, sizeof message);
    if (status != CLATTN_SUCCESS) {
        fprintf(stderr, "%s: %s\n", clattn_status_string(status), message);
        exit(1);
    }
}

int main(void)
{
    clattn_context *context;
    check(NULL, clattn_context_create(NULL, &context)); /* the best device here */
    cl_context opencl = clattn_context_opencl_context(context);
    cl_mem buffer = clCreateBuffer(opencl, CL_MEM_COPY_HOST_PTR, sizeof data, data, NULL);
    clattn_attention_desc desc = CLATTN_ATTENTION_DESC_INIT; /* what: (batch, heads, length, size) */
    desc.key = desc.value = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 1, 3, 4);
    desc.query = desc.output = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 1, 2, 4);
    clattn_attention_args args = CLATTN_ATTENTION_ARGS_INIT; /* where: a buffer, and an offset in elements */
    args.key = clattn_binding_buffer(buffer, 0);
    args.value = clattn_binding_buffer(buffer, 12);
    args.query = clattn_binding_buffer(buffer, 24);
    args.output = clattn_binding_buffer(buffer, 32);
    check(context, clattn_attention_run(context, NULL, &desc, &args, 0, NULL, NULL));
    clEnqueueReadBuffer(clattn_context_queue(context), buffer, CL_TRUE, 0, sizeof data, data, 0, NULL, NULL);
    clReleaseMemObject(buffer);
    clattn_context_release(&context);
    for (int i = 8; i < 10; i++)
        printf("found %g %g %g %g\n", data[i][0], data[i][1], data[i][2], data[i][3]);
    return !(data[8][0] == 5 && data[9][3] == 12);
}
