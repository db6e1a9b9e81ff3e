/* Work of every operator and solver is enqueued alike: the same bits every time, one plan from several threads,
 * in-order and out-of-order queues, wait lists, events, the caller's workspace.
 *
 * Holds: D1 of docs/numerics.md (1,000 runs), and of docs/architecture.md: any number of threads may enqueue one plan;
 * enqueue never blocks the host; several kernels are chained by events, so that out-of-order queues work. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "support/attention/case.h"
#include "support/ops/matmul_case.h"
#include "support/ops/mha_case.h"
#include "support/ops/softmax_case.h"

#define THREADS 4

/* ---- one problem of each operator, at two sizes ---- */

static const attention_case attention_cases[2] = {
    {"async", 0, .dim = {2, 2, 1, 5, 7, 8, 8}, .mask = MASK_BOOL, .causal = true},
    {"async", 0, .dim = {2, 4, 2, 70, 131, 8, 8}, .mask = MASK_BOOL, .causal = true},
};
static const softmax_case softmax_cases[2] = {
    {"async", 0, .rank = 2, .extent = {3, 19}},
    {"async", 0, .rank = 2, .extent = {67, 1031}},
};
static const matmul_case matmul_cases[2] = {
    {"async", 0, .m = 7, .n = 13, .k = 11, .bias = true},
    {"async", 0, .m = 97, .n = 83, .k = 61, .bias = true},
};
static const mha_case mha_cases[2] = {
    {"async", 0, .batch = 2, .queries = 5, .d_model = 16, .heads = 2, .packed = true, .bias_in = true,
     .weights = CLATTN_WEIGHTS_OUTPUT_PER_HEAD},
    {"async", 0, .batch = 2, .queries = 35, .keys = 67, .d_model = 32, .heads = 4, .cross = true, .bias_in = true,
     .bias_out = true, .weights = CLATTN_WEIGHTS_OUTPUT_PER_HEAD},
};

static int size_of_problems(void)
{
    return level() == LEVEL_FULL ? 1 : 0;
}

static void make_attention(test_job *job, const char *solver, uint64_t salt)
{
    if (device_breaks(solver))
        skip();
    assert_true(attention_job(job, &attention_cases[size_of_problems()], solver, salt));
}

static void make_softmax(test_job *job, const char *solver, uint64_t salt)
{
    assert_true(softmax_job(job, &softmax_cases[size_of_problems()], solver, salt));
}

static void make_matmul(test_job *job, const char *solver, uint64_t salt)
{
    assert_true(matmul_job(job, &matmul_cases[size_of_problems()], solver, salt));
}

static void make_mha(test_job *job, const char *solver, uint64_t salt)
{
    if (device_breaks(solver))
        skip();
    mha_job(job, &mha_cases[size_of_problems()], solver, salt);
}

static clattn_binding *no_workspace(test_job *job)
{
    (void)job;
    return NULL;
}

static clattn_binding *matmul_workspace(test_job *job)
{
    return &job->args.matmul.workspace;
}

static clattn_binding *attention_workspace(test_job *job)
{
    return &job->args.attention.workspace;
}

static clattn_binding *mha_workspace(test_job *job)
{
    return &job->args.mha.workspace;
}

typedef struct operator_case {
    const char *name;
    const char *const *solvers;
    int solver_count;
    void (*make)(test_job *job, const char *solver, uint64_t salt);
    clattn_binding *(*workspace)(test_job *job);
} operator_case;

static const operator_case operators[] = {
    {"attention", attention_solvers, ATTENTION_SOLVERS, make_attention, attention_workspace},
    {"softmax", softmax_solvers, SOFTMAX_SOLVERS, make_softmax, no_workspace},
    {"matmul", matmul_solvers, MATMUL_SOLVERS - 1, make_matmul, matmul_workspace},
    {"mha", mha_solvers, MHA_SOLVERS, make_mha, mha_workspace},
    {"matmul", matmul_solvers + MATMUL_SOLVERS - 1, 1, make_matmul, matmul_workspace}, /* CLBlast: see main */
};

/* ---- a group of jobs that share one plan and have buffers of their own ---- */

typedef struct test_team {
    test_job job[THREADS];
    unsigned char *expected[THREADS]; /* the result of a run alone */
} test_team;

/* Whether the outputs, guards included, have their expected contents.  Any thread may call this: it asserts nothing. */
static bool matches(const test_job *job, cl_command_queue queue, const unsigned char *expected)
{
    bool same = true;

    for (size_t i = 0; i < COUNT_OF(job->output); i++) {
        const test_memory *memory = job->output[i].memory;
        size_t bytes = memory ? memory->count * memory->element_size : 0;
        unsigned char *found = malloc(bytes + 1);

        same = same && found &&
               (!bytes ||
                clEnqueueReadBuffer(queue, memory->buffer, CL_TRUE, 0, bytes, found, 0, NULL, NULL) == CL_SUCCESS);
        same = same && memcmp(found, expected, bytes) == 0;
        expected += bytes;
        free(found);
    }
    return same;
}

static void team_make(test_team *team, const operator_case *op, const char *solver)
{
    memset(team, 0, sizeof *team);
    for (size_t i = 0; i < THREADS; i++) {
        test_job *job = &team->job[i];

        op->make(job, solver, 10 + i);
        if (i > 0) {
            clattn_plan_release(&job->plan);
            job->plan = team->job[0].plan;
        }
        job_run(job, NULL);
        team->expected[i] = job_snapshot(job);
        job_poison(job);
    }
}

static void team_release(test_team *team)
{
    for (size_t i = THREADS; i-- > 0;) {
        if (i > 0) {
            team->job[i].plan = NULL;
        }
        job_release(&team->job[i]);
        free(team->expected[i]);
    }
}

/* ---- tests ---- */

static void same_bits(const void *which, const char *solver)
{
    const operator_case *op = which;
    int runs = (int)by_level(20, 200, 200, 1000);
    test_job job = {0};

    op->make(&job, solver, 3);
    job_run(&job, NULL);
    unsigned char *first = job_snapshot(&job);
    for (int i = 1; i < runs; i++) {
        job_run(&job, NULL);
        unsigned char *again = job_snapshot(&job);
        if (memcmp(first, again, job_bytes(&job)) != 0) {
            fail_msg("run %d of %d differs", i, runs);
        }
        free(again);
    }
    free(first);
    job_release(&job);
}

/* Gives the job a workspace of its own, `band` bytes into a buffer that ends as far behind the workspace, or returns
 * NULL if it needs none. */
static cl_mem bring_workspace(const operator_case *op, test_job *job, size_t band, const void *image)
{
    size_t needed = clattn_plan_workspace_size(job->plan);
    cl_int code = CL_SUCCESS;

    if (!needed) {
        return NULL;
    }
    cl_mem buffer =
        clCreateBuffer(clattn_context_opencl_context(device_context()),
                       CL_MEM_READ_WRITE | (image ? CL_MEM_COPY_HOST_PTR : 0), needed + 2 * band, (void *)image, &code);
    assert_cl(code);
    assert_non_null(op->workspace(job));
    *op->workspace(job) = clattn_binding_buffer(buffer, (int64_t)band);
    return buffer;
}

typedef struct worker {
    const test_job *job;
    const unsigned char *expected;
    cl_command_queue queue; /* its own queue, or NULL: the context's queue, which several workers share */
    int runs;
    const char *failure;
} worker;

static void *work(void *argument)
{
    worker *w = argument;
    cl_command_queue queue = w->queue ? w->queue : clattn_context_queue(device_context());

    for (int i = 0; i < w->runs && !w->failure; i++) {
        cl_event event = NULL;
        bool want_event = i % 2 == 0;

        if (job_enqueue(w->job, w->queue, 0, NULL, want_event ? &event : NULL) != CLATTN_SUCCESS) {
            w->failure = "enqueue failed";
        } else if (want_event ? clWaitForEvents(1, &event) : clFinish(queue)) {
            w->failure = "waiting failed";
        } else if (!matches(w->job, queue, w->expected)) {
            w->failure = "the result differs from that of a run alone";
        }
        if (event) {
            clReleaseEvent(event);
        }
    }
    return NULL;
}

static void four_threads(const void *which, const char *solver)
{
    test_team team;
    pthread_t thread[THREADS];
    worker workers[THREADS];
    cl_mem workspace[THREADS] = {0};

    /* rusticl of Mesa 22.3, even without clattn, crashes or computes garbage when threads share a queue, or when a
     * buffer moves from one queue to another as soon as its event has completed.  So each thread has its own queue and
     * workspace there. */
    bool apart = device_platform_contains("rusticl");

    if (device_platform_contains("Oclgrind")) {
        print_message("Oclgrind 21.10 itself aborts when two threads run kernels\n");
        skip();
    }
    team_make(&team, which, solver);
    for (size_t i = 0; i < THREADS; i++) {
        workspace[i] = apart ? bring_workspace(which, &team.job[i], 0, NULL) : NULL;
        workers[i] =
            (worker){&team.job[i], team.expected[i], apart || i % 2 ? new_queue(device_context(), false) : NULL,
                     level() == LEVEL_TINY ? 3 : 50, NULL};
    }
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&thread[i], NULL, work, &workers[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        if (workers[i].failure) {
            fail_msg("thread %zu: %s", i, workers[i].failure);
        }
        if (workers[i].queue) {
            assert_cl(clReleaseCommandQueue(workers[i].queue));
        }
        if (workspace[i]) {
            device_release_buffer(workspace[i]);
        }
    }
    team_release(&team);
}

static cl_int state_of(cl_event event)
{
    cl_int state = CL_QUEUED;

    assert_cl(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL));
    return state;
}

/* Everything is enqueued behind a user event.  An enqueue that waited for the event would hang here. */
static void behind_a_user_event(const operator_case *op, const char *solver, cl_command_queue queue)
{
    test_team team;
    cl_event done[THREADS] = {0}, user_event = new_user_event(clattn_context_opencl_context(device_context()));

    team_make(&team, op, solver);
    for (size_t i = 0; i < THREADS; i++) {
        assert_status(device_context(), job_enqueue(&team.job[i], queue, 1, &user_event, &done[i]), CLATTN_SUCCESS);
        assert_non_null(done[i]);
    }
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_not_equal(state_of(done[i]), CL_COMPLETE);
    }
    assert_cl(clSetUserEventStatus(user_event, CL_COMPLETE));
    assert_cl(clWaitForEvents(THREADS, done));
    for (size_t i = 0; i < THREADS; i++) {
        if (!matches(&team.job[i], queue, team.expected[i])) {
            fail_msg("job %zu differs from a run alone", i);
        }
        assert_cl(clReleaseEvent(done[i]));
    }
    assert_cl(clReleaseEvent(user_event));
    assert_cl(clReleaseCommandQueue(queue));
    team_release(&team);
}

static void in_order(const void *op, const char *solver)
{
    behind_a_user_event(op, solver, new_queue(device_context(), false));
}

static void out_of_order(const void *op, const char *solver)
{
    cl_command_queue queue = new_queue(device_context(), true);

    if (!queue) {
        print_message("the device has no out-of-order queue\n");
        skip();
    }
    behind_a_user_event(op, solver, queue);
}

/* The plan uses exactly the workspace that the caller brings and writes nothing around it. */
static void own_workspace(const void *which, const char *solver)
{
    enum { BAND = 128 };
    const operator_case *op = which;
    test_job job = {0};

    op->make(&job, solver, 4);
    job_run(&job, NULL);
    unsigned char *expected = job_snapshot(&job);
    size_t needed = clattn_plan_workspace_size(job.plan), bytes = needed + 2 * BAND;
    unsigned char *image = malloc(bytes);

    assert_non_null(image);
    memset(image, 0xa5, bytes);
    cl_mem buffer = bring_workspace(op, &job, BAND, image);
    if (buffer) {
        job_poison(&job);
        job_run(&job, NULL);
        assert_true(matches(&job, clattn_context_queue(device_context()), expected));
        assert_cl(clEnqueueReadBuffer(clattn_context_queue(device_context()), buffer, CL_TRUE, 0, bytes, image, 0, NULL,
                                      NULL));
        for (size_t i = 0; i < BAND; i++) {
            assert_int_equal(image[i], 0xa5);
            assert_int_equal(image[BAND + needed + i], 0xa5);
        }
        op->workspace(&job)->offset += 2 * BAND; /* the workspace no longer fits */
        assert_status(device_context(), job_enqueue(&job, NULL, 0, NULL, NULL), CLATTN_ERROR_BUFFER_TOO_SMALL);
        device_release_buffer(buffer);
    } else {
        assert_true(matches(&job, clattn_context_queue(device_context()), expected));
    }
    free(image);
    free(expected);
    job_release(&job);
}

/* softmax(A B + bias): the second plan reads what the first writes, and only an event orders them. */
static void chained_plans(void **state)
{
    const size_t m = 35, n = 67;
    const matmul_case product = {"chain", 0, .m = m, .n = n, .k = 33, .bias = true};
    const softmax_case rows = {"chain", 0, .rank = 2, .extent = {m, n}};
    cl_command_queue ordered = new_queue(device_context(), false), queue = new_queue(device_context(), true);
    int runs = level() == LEVEL_TINY ? 2 : 50;
    test_job first = {0}, second = {0};

    (void)state;
    assert_true(matmul_job(&first, &product, "generic", 5) && softmax_job(&second, &rows, "generic", 5));
    test_array between = job_array(&first, ROLE_IN_PLACE, CLATTN_DTYPE_F32, 2, rows.extent, FORM_PLAIN);
    array_own(&between, rows.extent);
    first.output[0] = between;
    first.args.matmul.c = second.args.softmax.x = array_binding(&between);
    job_run(&first, ordered);
    job_run(&second, ordered);
    unsigned char *expected = job_snapshot(&second);

    for (int i = 0; i < runs; i++) {
        cl_event user_event = new_user_event(clattn_context_opencl_context(device_context())), written = NULL,
                 done = NULL;

        array_poison(&between);
        array_poison(&second.output[0]);
        assert_status(device_context(), job_enqueue(&first, queue ? queue : ordered, 1, &user_event, &written),
                      CLATTN_SUCCESS);
        /* If the device has no out-of-order queue, a second in-order queue is used instead. */
        assert_status(device_context(), job_enqueue(&second, queue, 1, &written, &done), CLATTN_SUCCESS);
        assert_cl(clSetUserEventStatus(user_event, CL_COMPLETE));
        assert_cl(clFlush(queue ? queue : ordered)); /* only now: Oclgrind's flush waits for user events */
        assert_cl(clWaitForEvents(1, &done));
        assert_true(matches(&second, ordered, expected));
        assert_cl(clReleaseEvent(user_event));
        assert_cl(clReleaseEvent(written));
        assert_cl(clReleaseEvent(done));
    }
    free(expected);
    job_release(&second);
    job_release(&first);
    assert_cl(clReleaseCommandQueue(ordered));
    if (queue) {
        assert_cl(clReleaseCommandQueue(queue));
    }
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        case_check check;
    } checks[] = {{"same bits every time", same_bits},
                  {"one plan, four threads", four_threads},
                  {"in-order queue behind an event", in_order},
                  {"out-of-order queue behind an event", out_of_order},
                  {"the caller's workspace", own_workspace}};
    /* CLBlast comes last and only at the full level: its first call compiles for seconds on a CPU. */
    size_t count = COUNT_OF(operators) - (level() == LEVEL_FULL && matmul_has_clblast() ? 0 : 1);

    for (size_t o = 0; o < count; o++) {
        for (int n = 0; n < operators[o].solver_count; n++) {
            for (size_t i = 0; i < COUNT_OF(checks); i++) {
                suite_add_case(checks[i].check, &operators[o], operators[o].solvers[n], "%s %s: %s", operators[o].name,
                               operators[o].solvers[n], checks[i].name);
            }
        }
    }
    suite_add(chained_plans, "matmul, softmax: two plans chained by an event");
    return suite_run("async", argc, argv);
}
