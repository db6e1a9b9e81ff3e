/* An application that has a context, a queue and kernels of its own puts attention between two of its kernels.
 *
 * Its first kernel makes the queries, clattn attends, and its second kernel adds the result to the residual. Events
 * alone order the three, so the queue may be out of order. Nothing waits until the very end. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <clattn/clattn.h>

enum { HEADS = 2, LENGTH = 40, SIZE = 16, COUNT = HEADS * LENGTH * SIZE };

static const char *source = "kernel void make_queries(global const float *x, global float *q) {\n"
                            "    size_t i = get_global_id(0);\n"
                            "    q[i] = 3.0f * x[i];\n"
                            "}\n"
                            "kernel void add_residual(global const float *x, global float *y) {\n"
                            "    size_t i = get_global_id(0);\n"
                            "    y[i] += x[i];\n"
                            "}\n";

static void check(cl_int code, const char *what)
{
    if (code != CL_SUCCESS) {
        fprintf(stderr, "%s failed: %d\n", what, (int)code);
        exit(1);
    }
}

static void check_clattn(clattn_status status, const clattn_context *context)
{
    char message[512];
    if (status == CLATTN_SUCCESS)
        return;
    clattn_context_message(context, message, sizeof message);
    fprintf(stderr, "%s: %s\n", clattn_status_string(status), message);
    exit(1);
}

/* Returns the first device of the first platform that has one. */
static cl_device_id any_device(void)
{
    cl_platform_id platforms[16];
    cl_device_id device = NULL;
    cl_uint count = 0;
    check(clGetPlatformIDs(16, platforms, &count), "clGetPlatformIDs");
    for (cl_uint i = 0; i < count && i < 16 && !device; i++)
        if (clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, 1, &device, NULL) != CL_SUCCESS)
            device = NULL;
    check(device ? CL_SUCCESS : CL_DEVICE_NOT_FOUND, "clGetDeviceIDs");
    return device;
}

/* Compares y with x + softmax(3 x xT / sqrt(SIZE)) x, computed one row at a time. */
static double largest_error(const float *x, const float *y)
{
    double worst = 0;
    for (int row = 0; row < HEADS * LENGTH; row++) {
        const float *head = x + row / LENGTH * LENGTH * SIZE;
        double sum = 0, out[SIZE] = {0};
        for (int j = 0; j < LENGTH; j++) {
            double score = 0;
            for (int d = 0; d < SIZE; d++)
                score += 3.0 * x[row * SIZE + d] * head[j * SIZE + d] / sqrt(SIZE);
            sum += exp(score);
            for (int d = 0; d < SIZE; d++)
                out[d] += exp(score) * head[j * SIZE + d];
        }
        for (int d = 0; d < SIZE; d++)
            worst = fmax(worst, fabs(out[d] / sum + x[row * SIZE + d] - y[row * SIZE + d]));
    }
    return worst;
}

int main(void)
{
    cl_int code;
    static float x[COUNT], y[COUNT];
    for (int i = 0; i < COUNT; i++)
        x[i] = (float)sin(i * 0.7) * 0.5f;

    /* The application has these objects anyway. */
    cl_device_id device = any_device();
    cl_context opencl = clCreateContext(NULL, 1, &device, NULL, NULL, &code);
    check(code, "clCreateContext");
    cl_command_queue queue = clCreateCommandQueue(opencl, device, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &code);
    if (code != CL_SUCCESS)
        queue = clCreateCommandQueue(opencl, device, 0, &code);
    check(code, "clCreateCommandQueue");
    cl_program program = clCreateProgramWithSource(opencl, 1, &source, NULL, &code);
    check(code, "clCreateProgramWithSource");
    check(clBuildProgram(program, 1, &device, "", NULL, NULL), "clBuildProgram");
    cl_kernel before = clCreateKernel(program, "make_queries", NULL),
              after = clCreateKernel(program, "add_residual", NULL);
    cl_mem input = clCreateBuffer(opencl, CL_MEM_COPY_HOST_PTR, sizeof x, x, NULL);
    cl_mem query = clCreateBuffer(opencl, 0, sizeof x, NULL, NULL),
           output = clCreateBuffer(opencl, 0, sizeof y, NULL, NULL);
    check(before && after && input && query && output ? CL_SUCCESS : CL_OUT_OF_RESOURCES, "creating objects");

    /* clattn works on the same objects: it retains them and releases them again. */
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    params.opencl_context = opencl;
    params.opencl_device = device;
    params.queue = queue;
    clattn_context *context = NULL;
    check_clattn(clattn_context_create(&params, &context), NULL);
    clattn_attention_desc desc = CLATTN_ATTENTION_DESC_INIT;
    desc.query = desc.key = desc.value = desc.output = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, HEADS, LENGTH, SIZE);
    clattn_plan *plan = NULL;
    check_clattn(clattn_attention_plan_create(context, &desc, NULL, &plan), context);
    clattn_attention_args args = CLATTN_ATTENTION_ARGS_INIT;
    args.query = clattn_binding_buffer(query, 0);
    args.key = args.value = clattn_binding_buffer(input, 0);
    args.output = clattn_binding_buffer(output, 0);

    /* The three steps, ordered by events. */
    size_t global = COUNT;
    cl_event made, attended, added;
    check(clSetKernelArg(before, 0, sizeof input, &input) | clSetKernelArg(before, 1, sizeof query, &query) |
              clSetKernelArg(after, 0, sizeof input, &input) | clSetKernelArg(after, 1, sizeof output, &output),
          "clSetKernelArg");
    check(clEnqueueNDRangeKernel(queue, before, 1, NULL, &global, NULL, 0, NULL, &made), "make_queries");
    check_clattn(clattn_attention_enqueue(plan, queue, &args, 1, &made, &attended), context);
    check(clEnqueueNDRangeKernel(queue, after, 1, NULL, &global, NULL, 1, &attended, &added), "add_residual");
    check(clEnqueueReadBuffer(queue, output, CL_TRUE, 0, sizeof y, y, 1, &added, NULL), "clEnqueueReadBuffer");

    double error = largest_error(x, y);
    printf("attention by \"%s\" between two kernels of the application: largest error %.1e\n", clattn_plan_solver(plan),
           error);
    clReleaseEvent(made);
    clReleaseEvent(attended);
    clReleaseEvent(added);
    clattn_plan_release(&plan);
    clattn_context_release(&context);
    clReleaseMemObject(input);
    clReleaseMemObject(query);
    clReleaseMemObject(output);
    clReleaseKernel(before);
    clReleaseKernel(after);
    clReleaseProgram(program);
    clReleaseCommandQueue(queue);
    clReleaseContext(opencl);
    return error < 1e-5 ? 0 : 1;
}
