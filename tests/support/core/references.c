#include "support/core/references.h"

#include <time.h>

#include "support/device.h"

/* PoCL keeps the latest command of a queue and of each buffer, with a reference to the queue, and drops finished ones a
 * moment after clFinish.  So counts are comparable only after the same commands, which are those of a kernel without
 * other buffers here, and after waiting. */
static void settle(cl_context context, cl_command_queue queue)
{
    const char *source = "kernel void settle(global int *x) { x[get_global_id(0)] = 1; }";
    const size_t global = 1;
    cl_int code;
    cl_device_id device;
    assert_cl(clGetCommandQueueInfo(queue, CL_QUEUE_DEVICE, sizeof device, &device, NULL));
    cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &code);
    assert_cl(code);
    assert_cl(clBuildProgram(program, 1, &device, "", NULL, NULL));
    cl_kernel kernel = clCreateKernel(program, "settle", &code);
    assert_cl(code);
    cl_mem buffer = new_buffer(context, CL_MEM_READ_WRITE, sizeof(cl_int), NULL);
    assert_cl(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    for (int i = 0; i < 3; i++) {
        assert_cl(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, NULL, 0, NULL, NULL));
        assert_cl(clFinish(queue));
    }
    assert_cl(clReleaseMemObject(buffer));
    assert_cl(clReleaseKernel(kernel));
    assert_cl(clReleaseProgram(program));
}

static void pause_a_moment(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
}

static struct reference_counts read_references(cl_context context, cl_command_queue queue)
{
    struct reference_counts counts = {0, 0};
    assert_cl(clGetContextInfo(context, CL_CONTEXT_REFERENCE_COUNT, sizeof counts.context, &counts.context, NULL));
    assert_cl(clGetCommandQueueInfo(queue, CL_QUEUE_REFERENCE_COUNT, sizeof counts.queue, &counts.queue, NULL));
    return counts;
}

struct reference_counts reference_counts_of(cl_context context, cl_command_queue queue)
{
    settle(context, queue);
    struct reference_counts counts = {0, 0}, before;
    int same = 0;
    for (int tries = 0; tries < 200 && same < 5; tries++) {
        before = counts;
        counts = read_references(context, queue);
        same = counts.context == before.context && counts.queue == before.queue ? same + 1 : 0;
        pause_a_moment();
    }
    return counts;
}

void check_references(cl_context context, cl_command_queue queue, struct reference_counts expected, const char *file,
                      int line)
{
    struct reference_counts counts = {0, 0};
    settle(context, queue);
    for (int tries = 0; tries < 6000; tries++) {
        counts = read_references(context, queue);
        if (counts.context == expected.context && counts.queue == expected.queue)
            return;
        pause_a_moment();
    }
    print_error("reference counts: context %u (expected %u), queue %u (expected %u)\n", counts.context,
                expected.context, counts.queue, expected.queue);
    _fail(file, line);
}
