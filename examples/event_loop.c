/* A program with a user interface: one thread draws a frame every 16 ms and never waits for a compiler. Plans are made in
 * the background; their callbacks post events, which the loop takes between frames. When the user leaves, a plan that is
 * not made yet is cancelled. The toolkit's own event loop is played by `post` and `next_event`. */
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include <clattn/clattn.h>

enum { QUERIES = 2, KEYS = 3, SIZE = 4, FRAME_MS = 16, MOST_EVENTS = 8 };

static float keys[KEYS][SIZE] = {{1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}};
static float values[KEYS][SIZE] = {{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10, 11, 12}};
static float queries[QUERIES][SIZE] = {{0, 60, 0, 0}, {0, 0, 60, 0}}; /* like the second and the third key */

/* ---- what a toolkit has ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t posted = PTHREAD_COND_INITIALIZER;
static clattn_job *events[MOST_EVENTS];
static int event_count;

static void post(clattn_job *job)
{
    pthread_mutex_lock(&lock);
    if (event_count < MOST_EVENTS)
        events[event_count++] = job;
    pthread_cond_signal(&posted);
    pthread_mutex_unlock(&lock);
}

/* Waits until the next frame is due or an event comes; NULL: a frame. */
static clattn_job *next_event(struct timespec *frame)
{
    clattn_job *job = NULL;
    pthread_mutex_lock(&lock);
    while (!event_count && pthread_cond_timedwait(&posted, &lock, frame) == 0)
        ;
    if (event_count)
        job = events[--event_count];
    pthread_mutex_unlock(&lock);
    return job;
}

static double milliseconds(void)
{
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

/* ---- the program ---- */

struct program {
    clattn_context *context;
    clattn_job *attention_job, *preview_job; /* NULL: not begun, or taken */
    clattn_plan *attention;
    cl_event done; /* of the attention that has been enqueued */
    cl_mem output;
    int frames;
};

/* The context's own thread calls this when a plan is ready. It posts an event, because the rest belongs to the loop. */
static void plan_is_ready(void *user, clattn_job *job)
{
    (void)user;
    post(job);
}

/* Begins to make plans: the one that is needed first comes first. Both calls return at once. */
static clattn_status begin(struct program *program)
{
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    options.background.callback = plan_is_ready;
    options.background.user = program;

    clattn_attention_desc desc = CLATTN_ATTENTION_DESC_INIT;
    desc.query = desc.output = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 1, QUERIES, SIZE);
    desc.key = desc.value = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 1, KEYS, SIZE);
    options.background.job = &program->attention_job;
    clattn_status status = clattn_attention_plan_create(program->context, &desc, &options, NULL);
    if (status != CLATTN_SUCCESS)
        return status;

    clattn_softmax_desc preview = CLATTN_SOFTMAX_DESC_INIT;
    preview.x = preview.y = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[]){QUERIES, KEYS});
    options.background.job = &program->preview_job;
    return clattn_softmax_plan_create(program->context, &preview, &options, NULL);
}

/* The loop has got the event of a job. */
static clattn_status take_plan(struct program *program, clattn_job *job)
{
    if (job != program->attention_job)
        return CLATTN_SUCCESS; /* the preview's plan: it waits in its job until it is wanted */
    clattn_status status = clattn_job_result(job, &program->attention);
    if (status != CLATTN_SUCCESS) {
        char message[512];
        clattn_job_message(job, message, sizeof message);
        fprintf(stderr, "%s: %s\n", clattn_status_string(status), message);
    }
    clattn_job_release(&program->attention_job);
    if (status != CLATTN_SUCCESS)
        return status;

    cl_context opencl = clattn_context_opencl_context(program->context);
    clattn_attention_args args = CLATTN_ATTENTION_ARGS_INIT;
    cl_mem query = clCreateBuffer(opencl, CL_MEM_COPY_HOST_PTR, sizeof queries, queries, NULL);
    cl_mem key = clCreateBuffer(opencl, CL_MEM_COPY_HOST_PTR, sizeof keys, keys, NULL);
    cl_mem value = clCreateBuffer(opencl, CL_MEM_COPY_HOST_PTR, sizeof values, values, NULL);
    program->output = clCreateBuffer(opencl, CL_MEM_READ_WRITE, sizeof queries, NULL, NULL);
    args.query = clattn_binding_buffer(query, 0);
    args.key = clattn_binding_buffer(key, 0);
    args.value = clattn_binding_buffer(value, 0);
    args.output = clattn_binding_buffer(program->output, 0);
    status = clattn_attention_enqueue(program->attention, NULL, &args, 0, NULL, &program->done); /* does not block */
    clFlush(clattn_context_queue(program->context));
    clReleaseMemObject(query); /* OpenCL keeps them until the work is done */
    clReleaseMemObject(key);
    clReleaseMemObject(value);
    return status;
}

/* Draws a frame, and tells whether there is a result to show. */
static int draw(struct program *program)
{
    cl_int state = CL_QUEUED;
    program->frames++;
    if (program->done)
        clGetEventInfo(program->done, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL);
    return state == CL_COMPLETE;
}

/* Ends a job that is not wanted any more. A program that ends waits for it, since the driver may be compiling. */
static void end_job(clattn_job **job)
{
    clattn_job_cancel(*job);
    if (*job)
        clattn_job_wait(*job, NULL);
    clattn_job_release(job);
}

int main(void)
{
    struct program program = {0};
    clattn_status status = clattn_context_create(NULL, &program.context);
    if (status == CLATTN_SUCCESS)
        status = begin(&program);

    struct timespec frame;
    timespec_get(&frame, TIME_UTC);
    double longest = 0;
    for (int shown = 0; status == CLATTN_SUCCESS && !shown;) {
        clattn_job *job = next_event(&frame);
        const double start = milliseconds();
        if (job) {
            status = take_plan(&program, job);
        } else {
            shown = draw(&program);
            timespec_get(&frame, TIME_UTC);
            frame.tv_nsec += FRAME_MS * 1000000;
            frame.tv_sec += frame.tv_nsec / 1000000000;
            frame.tv_nsec %= 1000000000;
        }
        const double took = milliseconds() - start;
        longest = took > longest ? took : longest;
    }

    float found[QUERIES][SIZE] = {{0}};
    if (status == CLATTN_SUCCESS)
        clEnqueueReadBuffer(clattn_context_queue(program.context), program.output, CL_TRUE, 0, sizeof found, found, 1,
                            &program.done, NULL);
    printf("%d frames until the result %g %g; the longest turn of the loop took %.1f ms\n", program.frames, found[0][0],
           found[1][3], longest);
    end_job(&program.attention_job);
    end_job(&program.preview_job);
    if (program.done)
        clReleaseEvent(program.done);
    if (program.output)
        clReleaseMemObject(program.output);
    clattn_plan_release(&program.attention);
    clattn_context_release(&program.context);
    return !(status == CLATTN_SUCCESS && found[0][0] == 5 && found[1][3] == 12);
}
