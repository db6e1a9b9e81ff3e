/* The first program: attention looks a value up by a query that resembles its key. */
#include <math.h>
#include <stdio.h>

#include <clattn/clattn.h>

static const float keys[3][4] = {{1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}};
static const float values[3][4] = {{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10, 11, 12}};
static const float queries[2][4] = {{0, 60, 0, 0}, {0, 0, 60, 0}}; /* like key 1, like key 2 */

static clattn_binding upload(cl_context opencl, const float *data, size_t bytes)
{
    return clattn_binding_buffer(clCreateBuffer(opencl, CL_MEM_COPY_HOST_PTR, bytes, (void *)data, NULL), 0);
}

int main(void)
{
    clattn_context *context = NULL;
    clattn_status status = clattn_context_create(NULL, &context); /* the best device here */
    cl_context opencl = clattn_context_opencl_context(context);
    float output[2][4] = {{0}};

    if (status == CLATTN_SUCCESS) {
        clattn_attention_desc desc = CLATTN_ATTENTION_DESC_INIT; /* (batch, heads, length, size) */
        desc.query = desc.output = clattn_layout_bhsd(CLATTN_F32, 1, 1, 2, 4);
        desc.key = desc.value = clattn_layout_bhsd(CLATTN_F32, 1, 1, 3, 4);
        clattn_attention_args args = CLATTN_ATTENTION_ARGS_INIT;
        args.query = upload(opencl, queries[0], sizeof queries);
        args.key = upload(opencl, keys[0], sizeof keys);
        args.value = upload(opencl, values[0], sizeof values);
        args.output = upload(opencl, output[0], sizeof output);
        status = clattn_attention_run(context, NULL, &desc, &args, 0, NULL, NULL);
        clEnqueueReadBuffer(clattn_context_queue(context), args.output.buffer, CL_TRUE, 0, sizeof output, output, 0,
                            NULL, NULL);
        clReleaseMemObject(args.query.buffer);
        clReleaseMemObject(args.key.buffer);
        clReleaseMemObject(args.value.buffer);
        clReleaseMemObject(args.output.buffer);
    }
    char message[512];
    clattn_context_message(context, message, sizeof message);
    clattn_context_release(&context);
    if (status != CLATTN_SUCCESS) {
        fprintf(stderr, "%s: %s\n", clattn_status_string(status), message);
        return 1;
    }
    for (int i = 0; i < 2; i++)
        for (int d = 0; d < 4; d++)
            if (!(fabsf(output[i][d] - values[i + 1][d]) < 1e-5f))
                return 1;
    printf("query 0 found %g %g %g %g, query 1 found %g %g %g %g\n", output[0][0], output[0][1], output[0][2],
           output[0][3], output[1][0], output[1][1], output[1][2], output[1][3]);
    return 0;
}
