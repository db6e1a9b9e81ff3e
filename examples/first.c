/* The first program: each query finds the value whose key it resembles. */
#include <stdio.h>
#include <stdlib.h>

#include <clattn/clattn.h>

static float keys[3][4] = {{1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}};
static float values[3][4] = {{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10, 11, 12}};
static float queries[2][4] = {{0, 60, 0, 0}, {0, 0, 60, 0}}; /* like the second and the third key */
static float found[2][4];

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
    cl_mem query = clCreateBuffer(opencl, CL_MEM_COPY_HOST_PTR, sizeof queries, queries, NULL);
    cl_mem key = clCreateBuffer(opencl, CL_MEM_COPY_HOST_PTR, sizeof keys, keys, NULL);
    cl_mem value = clCreateBuffer(opencl, CL_MEM_COPY_HOST_PTR, sizeof values, values, NULL);
    cl_mem output = clCreateBuffer(opencl, CL_MEM_READ_WRITE, sizeof found, NULL, NULL);

    clattn_attention_desc desc = CLATTN_ATTENTION_DESC_INIT; /* what: (batch, heads, length, size) of each array */
    desc.query = desc.output = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 1, 2, 4);
    desc.key = desc.value = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 1, 3, 4);
    clattn_attention_args args = CLATTN_ATTENTION_ARGS_INIT; /* where: a buffer for each, refused if it is NULL */
    args.query = clattn_binding_buffer(query, 0);
    args.key = clattn_binding_buffer(key, 0);
    args.value = clattn_binding_buffer(value, 0);
    args.output = clattn_binding_buffer(output, 0);
    check(context, clattn_attention_run(context, NULL, &desc, &args, 0, NULL, NULL));

    cl_command_queue queue = clattn_context_queue(context);
    cl_int code = clEnqueueReadBuffer(queue, output, CL_TRUE, 0, sizeof found, found, 0, NULL, NULL);
    for (int i = 0; i < 2; i++)
        printf("found %g %g %g %g\n", found[i][0], found[i][1], found[i][2], found[i][3]);
    clReleaseMemObject(query);
    clReleaseMemObject(key);
    clReleaseMemObject(value);
    clReleaseMemObject(output);
    clattn_context_release(&context);
    return !(code == CL_SUCCESS && found[0][0] == 5 && found[1][3] == 12);
}
