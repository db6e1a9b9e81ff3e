/* An application of the static library with functions of its own that are named like some of the library's: neither may
 * call the other's. */
#include <stdio.h>
#include <stdlib.h>

#include <clattn/clattn.h>

#define OWN(name) \
    int name(void); \
    int name(void) \
    { \
        fprintf(stderr, "the library called the application's %s\n", #name); \
        abort(); \
    }
OWN(report_error)
OWN(strbuf_printf)
OWN(plan_choose)
OWN(os_process_id)
OWN(program_get)

int main(void)
{
    static float x[4] = {0, 0, 0, 0}, y[4];
    clattn_context *context = NULL;
    if (clattn_context_create(NULL, &context) != CLATTN_SUCCESS)
        return 1;
    cl_context opencl = clattn_context_opencl_context(context);
    cl_mem input = clCreateBuffer(opencl, CL_MEM_COPY_HOST_PTR, sizeof x, x, NULL);
    cl_mem output = clCreateBuffer(opencl, CL_MEM_READ_WRITE, sizeof y, NULL, NULL);
    clattn_softmax_desc desc = CLATTN_SOFTMAX_DESC_INIT;
    desc.x = desc.y = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[]){1, 4});
    clattn_softmax_args args = CLATTN_SOFTMAX_ARGS_INIT;
    args.x = clattn_binding_buffer(input, 0);
    args.y = clattn_binding_buffer(output, 0);
    clattn_status status = clattn_softmax_run(context, NULL, &desc, &args, 0, NULL, NULL);
    cl_int code = clEnqueueReadBuffer(clattn_context_queue(context), output, CL_TRUE, 0, sizeof y, y, 0, NULL, NULL);
    printf("%s: %g %g %g %g\n", clattn_status_string(status), y[0], y[1], y[2], y[3]);
    desc.x.rank = 99; /* an error takes the way through the library's own report_error */
    clattn_status refused = clattn_softmax_run(context, NULL, &desc, &args, 0, NULL, NULL);
    clReleaseMemObject(input);
    clReleaseMemObject(output);
    clattn_context_release(&context);
    return !(status == CLATTN_SUCCESS && code == CL_SUCCESS && y[0] == 0.25f && y[3] == 0.25f && refused != status);
}
