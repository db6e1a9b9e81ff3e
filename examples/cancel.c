/* A long call with a progress bar and a cancel button. A thread of its own makes the call, a convolution that blurs a picture,
 * with a control; the window's thread, here main, asks the control for the progress every 20 ms, and may cancel. The first run
 * goes to its end, in the second the user has seen enough at a third. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <clattn/clattn.h>

enum { CHANNELS = 3, TAPS = 15, SIDE = 1536, TURN_MS = 20 };

/* What the thread is told, and what it says when it has ended. */
struct work {
    clattn_plan *plan;
    clattn_conv2d_args args;
    clattn_status status;
};

static void *blur(void *user)
{
    struct work *work = user;
    /* Returns when it is done, because the control can cancel it. */
    work->status = clattn_conv2d_enqueue(work->plan, NULL, &work->args, 0, NULL, NULL);
    return NULL;
}

static void wait_a_turn(void)
{
    nanosleep(&(struct timespec){.tv_nsec = TURN_MS * 1000000L}, NULL);
}

/* Runs the work and draws its progress; cancels it when so much of it is done. */
static void run(struct work *work, double enough)
{
    pthread_t thread;
    work->status = CLATTN_ERROR_BUSY;
    clattn_control_reset(work->args.control);
    if (pthread_create(&thread, NULL, blur, work))
        return;
    for (double progress = 0; progress < 1 && !clattn_control_is_cancelled(work->args.control); wait_a_turn()) {
        progress = clattn_control_progress(work->args.control);
        printf("\r[%-20.*s] %3.0f %%", (int)(progress * 20), "####################", progress * 100);
        fflush(stdout);
        if (progress >= enough)
            clattn_control_cancel(work->args.control);
    }
    pthread_join(thread, NULL);
    printf(": %s\n", clattn_status_string(work->status));
}

static clattn_status make(clattn_context *context, struct work *work)
{
    clattn_control_params params = CLATTN_CONTROL_PARAMS_INIT;
    clattn_conv2d_desc desc = CLATTN_CONV2D_DESC_INIT;
    desc.x = desc.y = clattn_layout_nhwc(CLATTN_DTYPE_F32, 1, CHANNELS, SIDE, SIDE);
    desc.weight = clattn_layout_nchw(CLATTN_DTYPE_F32, CHANNELS, CHANNELS, TAPS, TAPS);
    for (int side = 0; side < 4; side++)
        desc.padding[side] = TAPS / 2;
    params.max_launch_ms = 5; /* the screen stays alive, and the button is heard */
    params.cancellable = 1;
    clattn_status status = clattn_control_create(&params, &work->args.control);
    return status == CLATTN_SUCCESS ? clattn_conv2d_plan_create(context, &desc, NULL, &work->plan) : status;
}

static cl_mem buffer_of(clattn_context *context, size_t count, float value)
{
    float *values = malloc(count * sizeof *values);
    for (size_t i = 0; values && i < count; i++)
        values[i] = value;
    cl_mem buffer = values ? clCreateBuffer(clattn_context_opencl_context(context), CL_MEM_COPY_HOST_PTR,
                                            count * sizeof *values, values, NULL)
                           : NULL;
    free(values);
    return buffer;
}

int main(void)
{
    clattn_context *context;
    struct work work = {.args = CLATTN_CONV2D_ARGS_INIT};
    clattn_status status = clattn_context_create(NULL, &context);
    if (status == CLATTN_SUCCESS)
        status = make(context, &work);
    if (status != CLATTN_SUCCESS) {
        char message[512];
        clattn_context_message(context, message, sizeof message);
        fprintf(stderr, "%s: %s\n", clattn_status_string(status), message);
        return 1;
    }
    /* A white picture, and weights that add up to 1: white stays white. */
    cl_mem picture = buffer_of(context, (size_t)SIDE * SIDE * CHANNELS, 1);
    cl_mem weight = buffer_of(context, CHANNELS * CHANNELS * TAPS * TAPS, 1.0f / (CHANNELS * TAPS * TAPS));
    cl_mem blurred = buffer_of(context, (size_t)SIDE * SIDE * CHANNELS, 0);
    work.args.x = clattn_binding_buffer(picture, 0);
    work.args.weight = clattn_binding_buffer(weight, 0);
    work.args.y = clattn_binding_buffer(blurred, 0);
    run(&work, 2);
    const clattn_status whole = work.status;
    float middle = 0;
    const size_t place = ((size_t)SIDE / 2 * SIDE + SIDE / 2) * CHANNELS * sizeof middle;
    clEnqueueReadBuffer(clattn_context_queue(context), blurred, CL_TRUE, place, sizeof middle, &middle, 0, NULL, NULL);
    run(&work, 0.33);
    clReleaseMemObject(picture);
    clReleaseMemObject(weight);
    clReleaseMemObject(blurred);
    clattn_control_release(&work.args.control);
    clattn_plan_release(&work.plan);
    clattn_context_release(&context);
    /* A device that is faster than the button has ended the second run as well. */
    return !(whole == CLATTN_SUCCESS && middle > 0.9999f && middle < 1.0001f &&
             (work.status == CLATTN_ERROR_CANCELLED || work.status == CLATTN_SUCCESS));
}
