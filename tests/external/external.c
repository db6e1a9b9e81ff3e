/* An application that owns a context and a queue, and shares both with clattn from two threads at once.  Exits with 0
 * if every result is right and its reference counts are what they were before. */
#include <math.h>
#include <stdio.h>
#include <threads.h>
#include <time.h>

#include <clattn/clattn.h>

#if CLATTN_VERSION < 100
#error "the installed headers are too old"
#endif

enum { HEADS = 3, LENGTH = 17, SIZE = 10, COUNT = HEADS * LENGTH * SIZE, ROUNDS = 50, THREADS = 2 };

struct worker {
    clattn_context *context;
    clattn_plan *plan;
    cl_context opencl;
    cl_command_queue queue;
    int seed, failures;
};

static void reference(const float *x, float *y)
{
    for (int row = 0; row < HEADS * LENGTH; row++) {
        const float *head = x + row / LENGTH * LENGTH * SIZE;
        double sum = 0, out[SIZE] = {0};
        for (int j = 0; j <= row % LENGTH; j++) { /* causal */
            double score = 0;
            for (int d = 0; d < SIZE; d++)
                score += (double)x[row * SIZE + d] * head[j * SIZE + d] / sqrt(SIZE);
            sum += exp(score);
            for (int d = 0; d < SIZE; d++)
                out[d] += exp(score) * head[j * SIZE + d];
        }
        for (int d = 0; d < SIZE; d++)
            y[row * SIZE + d] = (float)(out[d] / sum);
    }
}

static int work(void *user)
{
    struct worker *worker = user;
    float x[COUNT], expected[COUNT], y[COUNT];
    for (int i = 0; i < COUNT; i++)
        x[i] = (float)sin(i * 0.61 + worker->seed);
    reference(x, expected);
    cl_mem input = clCreateBuffer(worker->opencl, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, sizeof x, x, NULL);
    cl_mem output = clCreateBuffer(worker->opencl, CL_MEM_WRITE_ONLY, sizeof y, NULL, NULL);
    clattn_attention_args args = CLATTN_ATTENTION_ARGS_INIT;
    args.query = args.key = args.value = clattn_binding_buffer(input, 0);
    args.output = clattn_binding_buffer(output, 0);
    for (int round = 0; round < ROUNDS; round++) {
        cl_event done = NULL;
        if (clattn_attention_enqueue(worker->plan, worker->queue, &args, 0, NULL, &done) != CLATTN_SUCCESS ||
            clEnqueueReadBuffer(worker->queue, output, CL_TRUE, 0, sizeof y, y, 1, &done, NULL) != CL_SUCCESS) {
            worker->failures++;
            break;
        }
        clReleaseEvent(done);
        for (int i = 0; i < COUNT; i++)
            worker->failures += !(fabsf(y[i] - expected[i]) <= 2e-6f);
    }
    clReleaseMemObject(input);
    clReleaseMemObject(output);
    return 0;
}

struct references {
    cl_uint context, queue;
};

static struct references count_references(cl_context context, cl_command_queue queue)
{
    struct references counts = {0};
    clGetContextInfo(context, CL_CONTEXT_REFERENCE_COUNT, sizeof counts.context, &counts.context, NULL);
    clGetCommandQueueInfo(queue, CL_QUEUE_REFERENCE_COUNT, sizeof counts.queue, &counts.queue, NULL);
    return counts;
}

/* The references that are left once there are no more than before, or after ten seconds.  PoCL 3.1 drops its own
 * reference of a finished command to the queue after clFinish has returned. */
static struct references count_settled_references(cl_context context, cl_command_queue queue, struct references before)
{
    struct references counts = count_references(context, queue);
    for (int tries = 0; tries < 1000 && (counts.context > before.context || counts.queue > before.queue); tries++) {
        thrd_sleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        counts = count_references(context, queue);
    }
    return counts;
}

int main(void)
{
    cl_platform_id platforms[16];
    cl_device_id device = NULL;
    cl_uint count = 0;
    if (clattn_version() != CLATTN_VERSION) {
        fprintf(stderr, "headers %s, library %s\n", CLATTN_VERSION_STRING, clattn_version_string());
        return 1;
    }
    clGetPlatformIDs(16, platforms, &count);
    for (cl_uint i = 0; i < count && i < 16 && !device; i++)
        if (clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, 1, &device, NULL) != CL_SUCCESS)
            device = NULL;
    if (!device) {
        fprintf(stderr, "no device\n");
        return 1;
    }
    cl_context opencl = clCreateContext(NULL, 1, &device, NULL, NULL, NULL);
    cl_command_queue queue = clCreateCommandQueue(opencl, device, 0, NULL);
    struct references before = count_references(opencl, queue);

    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    params.opencl_context = opencl;
    params.opencl_device = device;
    params.queue = queue;
    clattn_context *context = NULL;
    clattn_plan *plan = NULL;
    clattn_attention_desc desc = CLATTN_ATTENTION_DESC_INIT;
    desc.query = desc.key = desc.value = desc.output = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, HEADS, LENGTH, SIZE);
    desc.causal = 1;
    clattn_status status = clattn_context_create(&params, &context);
    if (status == CLATTN_SUCCESS)
        status = clattn_attention_plan_create(context, &desc, NULL, &plan);
    if (status != CLATTN_SUCCESS) {
        char message[512];
        clattn_context_message(context, message, sizeof message);
        fprintf(stderr, "%s: %s\n", clattn_status_string(status), message);
        return 1;
    }
    struct worker workers[THREADS];
    thrd_t threads[THREADS];
    int failures = 0;
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){context, plan, opencl, queue, i, 0};
        if (thrd_create(&threads[i], work, &workers[i]) != thrd_success)
            return 1;
    }
    for (int i = 0; i < THREADS; i++) {
        thrd_join(threads[i], NULL);
        failures += workers[i].failures;
    }
    clFinish(queue);
    clattn_plan_release(&plan);
    clattn_context_release(&context);

    struct references after = count_settled_references(opencl, queue, before);
    printf("%d wrong values, references: context %u -> %u, queue %u -> %u\n", failures, before.context, after.context,
           before.queue, after.queue);
    clReleaseCommandQueue(queue);
    clReleaseContext(opencl);
    return failures || after.context != before.context || after.queue != before.queue;
}
