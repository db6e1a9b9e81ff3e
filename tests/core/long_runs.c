/* Nothing grows in long runs: enqueues, plans, contexts, jobs; sixteen threads that do all of it keep right results, while
 * children are forked at any moment. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/core/one_context.h"
#include "support/harness.h"
#include "support/core/threads.h"

enum { ROWS = 3, COLUMNS = 5, THREADS = 16 };

/* ---- memory ---- */

/* Bytes of memory that the process holds. */
static size_t resident(void)
{
    unsigned long all = 0, held = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lu %lu", &all, &held), 2);
    fclose(file);
    return held * (size_t)sysconf(_SC_PAGESIZE);
}

/* Calls step(i) `count` times, and fails the test if the process grows by more than `bytes` a step, and 2 MiB, after the
 * first tenth, in which pools and caches fill. */
static void does_not_grow(const char *what, size_t count, double bytes, void (*step)(size_t i))
{
    size_t before = 0;
    for (size_t i = 0; i < count; i++) {
        if (i == count / 10)
            before = resident();
        step(i);
    }
    const double growth = (double)resident() - (double)before, steps = (double)(count - count / 10);
    print_message("%zu %s: %+.0f bytes, %+.2f each\n", count, what, growth, growth / steps);
    if (growth > bytes * steps + 2 * 1024 * 1024)
        fail_msg("the process has grown by %.0f bytes", growth);
}

/* ---- a softmax whose result is known ---- */

static clattn_softmax_desc softmax_of(size_t rows)
{
    clattn_softmax_desc desc = CLATTN_SOFTMAX_DESC_INIT;
    desc.x = desc.y = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[]){rows, COLUMNS});
    return desc;
}

/* The arrays of rows whose elements are equal. */
struct arrays {
    cl_mem x, y;
};

static struct arrays arrays_open(cl_context opencl)
{
    const float zeros[ROWS * COLUMNS] = {0};
    return (struct arrays){new_buffer(opencl, CL_MEM_READ_WRITE, sizeof zeros, zeros),
                           new_buffer(opencl, CL_MEM_READ_WRITE, sizeof zeros, NULL)};
}

static void arrays_close(struct arrays *arrays)
{
    clReleaseMemObject(arrays->x);
    clReleaseMemObject(arrays->y);
}

static clattn_status enqueue(clattn_plan *plan, cl_command_queue queue, const struct arrays *arrays, cl_event *event)
{
    clattn_softmax_args args = CLATTN_SOFTMAX_ARGS_INIT;
    args.x = clattn_binding_buffer(arrays->x, 0);
    args.y = clattn_binding_buffer(arrays->y, 0);
    return clattn_softmax_enqueue(plan, queue, &args, 0, NULL, event);
}

/* Whether the output is a fifth everywhere; poisons it again. */
static bool is_right(cl_command_queue queue, const struct arrays *arrays)
{
    float found[ROWS * COLUMNS];
    bool right = clEnqueueReadBuffer(queue, arrays->y, CL_TRUE, 0, sizeof found, found, 0, NULL, NULL) == CL_SUCCESS;
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        right = right && found[i] > 0.19999f && found[i] < 0.20001f;
        found[i] = 7;
    }
    return clEnqueueWriteBuffer(queue, arrays->y, CL_TRUE, 0, sizeof found, found, 0, NULL, NULL) == CL_SUCCESS &&
           right;
}

static clattn_plan *plan_of(clattn_context *of)
{
    clattn_softmax_desc desc = softmax_of(ROWS);
    clattn_plan *plan = NULL;
    assert_status(of, clattn_softmax_plan_create(of, &desc, NULL, &plan), CLATTN_SUCCESS);
    return plan;
}

/* ---- one thread ---- */

static clattn_plan *plan;
static struct arrays arrays;

static void enqueue_once(size_t i)
{
    cl_command_queue queue = clattn_context_queue(context);
    cl_event event = NULL;
    assert_status(context, enqueue(plan, NULL, &arrays, i % 2 ? &event : NULL), CLATTN_SUCCESS);
    if (event)
        clReleaseEvent(event);
    if (i % 128 == 127)
        clFinish(queue);
    if (i % 65536 == 65535)
        assert_true(is_right(queue, &arrays));
}

static void enqueues_do_not_grow(void **state)
{
    (void)state;
    plan = plan_of(context);
    arrays = arrays_open(clattn_context_opencl_context(context));
    does_not_grow("enqueues", by_level(500, 10000, 100000, 1000000), 1, enqueue_once);
    clFinish(clattn_context_queue(context));
    assert_true(is_right(clattn_context_queue(context), &arrays));
    clattn_plan_release(&plan);
    arrays_close(&arrays);
}

/* Fills the context's cache with plans of other sizes, so that each drops an older one. */
static void prewarm_once(size_t i)
{
    const clattn_softmax_desc desc = softmax_of(1 + i % 4096);
    assert_status(context, clattn_softmax_prewarm(context, &desc), CLATTN_SUCCESS);
}

static void plans_do_not_grow(void **state)
{
    (void)state;
    does_not_grow("plans", by_level(80, 500, 2000, 100000), 8, prewarm_once);
    assert_true(programs_of(context).built < 10); /* plans of all sizes share their program */
}

static void begin_once(size_t i)
{
    const clattn_softmax_desc desc = softmax_of(1 + i % 4096);
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    clattn_plan *made = NULL;
    clattn_job *job = NULL;
    options.background.job = &job;
    assert_status(context, clattn_softmax_plan_create(context, &desc, &options, NULL), CLATTN_SUCCESS);
    if (i % 3 == 0)
        clattn_job_cancel(job);
    if (i % 8) { /* the others are released while they wait or run */
        const clattn_status status = clattn_job_wait(job, &made);
        assert_true(status == CLATTN_SUCCESS || (i % 3 == 0 && status == CLATTN_ERROR_CANCELLED));
    }
    clattn_plan_release(&made);
    clattn_job_release(&job);
}

static void jobs_do_not_grow(void **state)
{
    (void)state;
    does_not_grow("jobs", by_level(80, 500, 2000, 100000), 8, begin_once);
}

static void live_once(size_t i)
{
    clattn_context *own = NULL;
    assert_status(NULL, clattn_context_create(NULL, &own), CLATTN_SUCCESS);
    if (i % 10 == 0) {
        clattn_plan *made = plan_of(own);
        clattn_plan_release(&made);
    }
    clattn_context_release(&own);
}

/* PoCL 3.1 keeps some 150 bytes of each context that has launched a kernel, with or without this library. */
static void contexts_do_not_grow(void **state)
{
    (void)state;
    does_not_grow("contexts", by_level(20, 40, 200, 10000), 256, live_once);
}

/* ---- sixteen threads ---- */

struct worker {
    cl_command_queue queue;
    struct arrays arrays;
    uint64_t random;
    const char *wrong; /* what went wrong, or NULL */
    unsigned long rounds;
};

static atomic_bool stop;
static atomic_ulong callbacks;

static void count_it(void *user, clattn_job *job)
{
    (void)user;
    (void)job;
    callbacks++;
}

static unsigned draw(struct worker *worker, unsigned limit)
{
    worker->random = worker->random * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(worker->random >> 33) % limit;
}

static const char *run_plan(struct worker *worker, clattn_plan *of)
{
    if (enqueue(of, worker->queue, &worker->arrays, NULL) != CLATTN_SUCCESS)
        return "an enqueue failed";
    return is_right(worker->queue, &worker->arrays) ? NULL : "a result is wrong";
}

static const char *use_job(struct worker *worker)
{
    const clattn_softmax_desc desc = softmax_of(ROWS + draw(worker, 2) * 64);
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    clattn_plan *made = NULL;
    clattn_job *job = NULL;
    const unsigned what = draw(worker, 4);
    const char *wrong = NULL;
    options.background.job = &job;
    options.background.callback = count_it;
    if (clattn_softmax_plan_create(context, &desc, &options, NULL) != CLATTN_SUCCESS)
        return "a job could not begin";
    if (what == 0)
        clattn_job_cancel(job);
    if (what == 3) {
        clattn_job_release(&job);
        return NULL;
    }
    const clattn_status status = clattn_job_wait(job, &made);
    if (status != CLATTN_SUCCESS && !(what == 0 && status == CLATTN_ERROR_CANCELLED))
        wrong = "a job failed";
    else if (made && desc.x.extent[0] == ROWS)
        wrong = run_plan(worker, made);
    clattn_plan_release(&made);
    clattn_job_release(&job);
    return wrong;
}

static const char *use_run(struct worker *worker)
{
    const clattn_softmax_desc desc = softmax_of(ROWS);
    clattn_softmax_args args = CLATTN_SOFTMAX_ARGS_INIT;
    args.x = clattn_binding_buffer(worker->arrays.x, 0);
    args.y = clattn_binding_buffer(worker->arrays.y, 0);
    if (clattn_softmax_run(context, worker->queue, &desc, &args, 0, NULL, NULL) != CLATTN_SUCCESS)
        return "a run failed";
    return is_right(worker->queue, &worker->arrays) ? NULL : "a run's result is wrong";
}

static const char *use_plan(struct worker *worker)
{
    const clattn_softmax_desc desc = softmax_of(ROWS);
    clattn_plan *made = NULL;
    if (clattn_softmax_plan_create(context, &desc, NULL, &made) != CLATTN_SUCCESS)
        return "a plan failed";
    const char *wrong = run_plan(worker, made);
    clattn_plan_release(&made);
    return wrong;
}

static int work(void *data)
{
    struct worker *worker = data;
    for (; !stop && !worker->wrong; worker->rounds++)
        switch (draw(worker, 16)) {
        case 0: worker->wrong = use_plan(worker); break;
        case 1:
        case 2: worker->wrong = use_job(worker); break;
        case 3: {
            const clattn_softmax_desc desc = softmax_of(1 + draw(worker, 1000));
            worker->wrong = clattn_softmax_prewarm(context, &desc) == CLATTN_SUCCESS ? NULL : "a prewarm failed";
            break;
        }
        case 4: worker->wrong = use_run(worker); break;
        default: worker->wrong = run_plan(worker, plan);
        }
    return 0;
}

/* A child, whatever its parent's other threads were doing: its calls return, and say why they do nothing. */
static void fork_once(void)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(20); /* ends a child that hangs */
        const clattn_softmax_desc desc = softmax_of(ROWS);
        clattn_plan *none = NULL;
        int wrong = clattn_softmax_plan_create(context, &desc, NULL, &none) != CLATTN_ERROR_FORKED;
        wrong |= (enqueue(plan, NULL, &arrays, NULL) != CLATTN_ERROR_FORKED) << 1;
        wrong |= (clattn_context_save_programs(context) != CLATTN_ERROR_FORKED) << 2;
        clattn_plan_release(&plan);
        clattn_context_release(&context);
        _exit(wrong);
    }
    int outcome = 0;
    assert_int_equal(waitpid(child, &outcome, 0), child);
    if (WIFSIGNALED(outcome))
        fail_msg("the child of a fork ended by signal %d", WTERMSIG(outcome));
    assert_int_equal(WEXITSTATUS(outcome), 0);
}

static void sixteen_threads_and_forks(void **state)
{
    const size_t seconds = by_level(1, 2, 5, 600);
    static struct worker workers[THREADS];
    thrd_t threads[THREADS];
    unsigned long rounds = 0, forks = 0;
    (void)state;
    stop = false;
    plan = plan_of(context);
    arrays = arrays_open(clattn_context_opencl_context(context));
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.random = (uint64_t)i + 1, .queue = new_queue(context, false)};
        workers[i].arrays = arrays_open(clattn_context_opencl_context(context));
        assert_int_equal(thrd_create(&threads[i], work, &workers[i]), thrd_success);
    }
    size_t before = 0;
    const time_t start = time(NULL);
    /* On a machine with other work a second may be over before each thread has had its turn. */
    for (; time(NULL) - start < (time_t)seconds || forks < 10; forks++) {
        if (!before && time(NULL) - start > (time_t)(seconds / 10))
            before = resident();
        fork_once();
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    }
    stop = true;
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(thrd_join(threads[i], NULL), thrd_success);
        if (workers[i].wrong)
            fail_msg("thread %d, round %lu: %s", i, workers[i].rounds, workers[i].wrong);
        rounds += workers[i].rounds;
        arrays_close(&workers[i].arrays);
        clReleaseCommandQueue(workers[i].queue);
    }
    const double growth = before ? (double)resident() - (double)before : 0;
    print_message("%lu rounds, %lu jobs, %lu forks, %+.0f bytes, %+.2f a round\n", rounds, (unsigned long)callbacks,
                  forks, growth, growth / (double)rounds);
    assert_true(rounds > THREADS);
    assert_true(growth < 16.0 * 1024 * 1024);
    clattn_plan_release(&plan);
    arrays_close(&arrays);
}

#define WITH_CONTEXT(test) cmocka_unit_test_setup_teardown(test, open_context, close_context)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        WITH_CONTEXT(enqueues_do_not_grow),     WITH_CONTEXT(plans_do_not_grow),         WITH_CONTEXT(jobs_do_not_grow),
        cmocka_unit_test(contexts_do_not_grow), WITH_CONTEXT(sixteen_threads_and_forks),
    };
    return RUN_TESTS("long_runs", tests, argc, argv);
}
