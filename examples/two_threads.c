/* Two threads enqueue two plans of one context, each on a queue of its own: causal attention and softmax. A context is
 * thread-safe and a plan is immutable, so neither needs a lock. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>

#include <clattn/clattn.h>

enum { ROWS = 64, SIZE = 32, COUNT = ROWS * SIZE, ROUNDS = 100 };

struct job {
    clattn_context *context;
    clattn_plan *plan;
    cl_mem input, output;
    clattn_status (*enqueue)(const struct job *job, cl_command_queue queue, cl_event *event);
    double (*error)(const float *x, const float *y);
    float x[COUNT];
    double worst; /* the largest error; negative: a call failed */
};

static clattn_status enqueue_attention(const struct job *job, cl_command_queue queue, cl_event *event)
{
    clattn_attention_args args = CLATTN_ATTENTION_ARGS_INIT;
    args.query = args.key = args.value = clattn_binding_buffer(job->input, 0);
    args.output = clattn_binding_buffer(job->output, 0);
    return clattn_attention_enqueue(job->plan, queue, &args, 0, NULL, event);
}

static clattn_status enqueue_softmax(const struct job *job, cl_command_queue queue, cl_event *event)
{
    clattn_softmax_args args = CLATTN_SOFTMAX_ARGS_INIT;
    args.x = clattn_binding_buffer(job->input, 0);
    args.y = clattn_binding_buffer(job->output, 0);
    return clattn_softmax_enqueue(job->plan, queue, &args, 0, NULL, event);
}

/* Query 0 attends only key 0, so its result must be exactly that value. */
static double attention_error(const float *x, const float *y)
{
    double worst = 0;
    for (int d = 0; d < SIZE; d++)
        worst = fmax(worst, fabs((double)x[d] - y[d]));
    return worst;
}

/* Each row must sum to one, and the ratios within it must be those of the exponentials. */
static double softmax_error(const float *x, const float *y)
{
    double worst = 0;
    for (int row = 0; row < ROWS; row++) {
        double sum = 0;
        for (int c = 0; c < SIZE; c++) {
            sum += y[row * SIZE + c];
            worst = fmax(worst, fabs(y[row * SIZE + c] / y[row * SIZE] / exp(x[row * SIZE + c] - x[row * SIZE]) - 1));
        }
        worst = fmax(worst, fabs(sum - 1));
    }
    return worst;
}

static void *run(void *user)
{
    struct job *job = user;
    cl_int code;
    cl_command_queue queue = clCreateCommandQueue(clattn_context_opencl_context(job->context),
                                                  clattn_context_opencl_device(job->context), 0, &code);
    float y[COUNT];
    job->worst = queue ? 0 : -1;
    for (int round = 0; round < ROUNDS && job->worst >= 0; round++) {
        cl_event done;
        if (job->enqueue(job, queue, &done) != CLATTN_SUCCESS) {
            job->worst = -1;
            break;
        }
        code = clEnqueueReadBuffer(queue, job->output, CL_TRUE, 0, sizeof y, y, 1, &done, NULL);
        job->worst = code == CL_SUCCESS ? fmax(job->worst, job->error(job->x, y)) : -1;
        clReleaseEvent(done);
    }
    if (queue)
        clReleaseCommandQueue(queue);
    return NULL;
}

int main(void)
{
    static struct job jobs[2] = {{.enqueue = enqueue_attention, .error = attention_error},
                                 {.enqueue = enqueue_softmax, .error = softmax_error}};
    clattn_context *context = NULL;
    clattn_status status = clattn_context_create(NULL, &context);

    clattn_attention_desc attention = CLATTN_ATTENTION_DESC_INIT;
    attention.query = attention.key = attention.value = attention.output =
        clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 1, ROWS, SIZE);
    attention.causal = 1;
    clattn_softmax_desc softmax = CLATTN_SOFTMAX_DESC_INIT;
    softmax.x = softmax.y = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[]){ROWS, SIZE});
    if (status == CLATTN_SUCCESS)
        status = clattn_attention_plan_create(context, &attention, NULL, &jobs[0].plan);
    if (status == CLATTN_SUCCESS)
        status = clattn_softmax_plan_create(context, &softmax, NULL, &jobs[1].plan);
    if (status != CLATTN_SUCCESS) {
        char message[512];
        clattn_context_message(context, message, sizeof message);
        fprintf(stderr, "%s: %s\n", clattn_status_string(status), message);
        return 1;
    }

    cl_context opencl = clattn_context_opencl_context(context);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        struct job *job = &jobs[i];
        job->context = context;
        for (int j = 0; j < COUNT; j++)
            job->x[j] = (float)cos(j * 0.37 + i);
        job->input = clCreateBuffer(opencl, CL_MEM_COPY_HOST_PTR, sizeof job->x, job->x, NULL);
        job->output = clCreateBuffer(opencl, 0, sizeof job->x, NULL, NULL);
        if (!job->input || !job->output || pthread_create(&threads[i], NULL, run, job) != 0) {
            fprintf(stderr, "no memory for buffers or threads\n");
            return 1;
        }
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        clReleaseMemObject(jobs[i].input);
        clReleaseMemObject(jobs[i].output);
        clattn_plan_release(&jobs[i].plan);
    }
    clattn_context_release(&context);
    printf("%d rounds on two threads: largest error of attention %.1e, of softmax %.1e\n", ROUNDS, jobs[0].worst,
           jobs[1].worst);
    for (int i = 0; i < 2; i++)
        if (!(jobs[i].worst >= 0 && jobs[i].worst < 1e-5))
            return 1;
    return 0;
}
