/* Jobs make plans in the background: in order, without blocking anybody, from copies of what they were given; they can be
 * cancelled and released at any moment, and all that they held comes back. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/core/inject.h"
#include "support/harness.h"
#include "support/plan/gate.h"
#include "support/core/threads.h"

static clattn_context *context;
static atomic_int warnings; /* lines of the log, errors among them */

static void count_line(void *user, clattn_log_level line_level, const char *line)
{
    (void)user;
    (void)line_level;
    (void)line;
    warnings++;
}

static int open_gated(void **state)
{
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    (void)state;
    inject_start(0, 0);
    gate_open();
    warnings = 0;
    params.log = count_line;
    params.log_level = CLATTN_LOG_LEVEL_WARNING;
    params.get_proc = gate_get_proc;
    params.cache_mode = CLATTN_CACHE_MODE_OFF;
    context = new_context_with(&params);
    return 0;
}

/* Fails the test unless all that the library made comes back, soon after what was running has ended. */
static int close_gated(void **state)
{
    enum inject_kind kind;
    (void)state;
    gate_hook(NULL);
    gate_open();
    clattn_context_release(&context);
    if (inject_balanced(&kind))
        return 0;
    print_error("%ld %s references did not come back\n", inject_live(kind), inject_kind_name(kind));
    return 1;
}

/* A softmax of rows of `columns` elements by the generic solver, whose program all sizes share. */
static clattn_softmax_desc softmax_of(size_t columns)
{
    clattn_softmax_desc desc = CLATTN_SOFTMAX_DESC_INIT;
    desc.x = desc.y = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[]){3, columns});
    return desc;
}

/* Begins a job whose plan has a program of its own for each `variant`, 0 or 1. */
static clattn_job *begin(int variant, clattn_job_callback callback, void *user)
{
    clattn_softmax_desc desc = softmax_of(5);
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    clattn_job *job = NULL;
    options.solver = "generic";
    options.background.job = &job;
    options.background.callback = callback;
    options.background.user = user;
    desc.y.dtype = variant ? CLATTN_DTYPE_F16 : CLATTN_DTYPE_F32;
    assert_status(context, clattn_softmax_plan_create(context, &desc, &options, NULL), CLATTN_SUCCESS);
    assert_non_null(job);
    return job;
}

static clattn_plan *plan_now(void)
{
    clattn_softmax_desc desc = softmax_of(5);
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    clattn_plan *plan = NULL;
    options.solver = "generic";
    assert_status(context, clattn_softmax_plan_create(context, &desc, &options, &plan), CLATTN_SUCCESS);
    return plan;
}

/* Runs the plan on rows whose elements are equal. */
static void runs(clattn_plan *plan)
{
    const float ones[15] = {0};
    float found[15];
    clattn_softmax_args args = CLATTN_SOFTMAX_ARGS_INIT;
    cl_context opencl = clattn_context_opencl_context(context);
    cl_mem x = new_buffer(opencl, CL_MEM_READ_WRITE, sizeof ones, ones);
    cl_mem y = new_buffer(opencl, CL_MEM_READ_WRITE, sizeof ones, NULL);
    args.x = clattn_binding_buffer(x, 0);
    args.y = clattn_binding_buffer(y, 0);
    assert_status(context, clattn_softmax_enqueue(plan, NULL, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    read_buffer(clattn_context_queue(context), y, sizeof found, found);
    for (int i = 0; i < 15; i++)
        assert_float_equal(found[i], 0.2f, 1e-6f);
    clReleaseMemObject(x);
    clReleaseMemObject(y);
}

/* Polls as an event loop does. */
static clattn_status poll(clattn_job *job, clattn_plan **plan)
{
    clattn_status status;
    while ((status = clattn_job_result(job, plan)) == CLATTN_ERROR_BUSY) {
        assert_null(*plan);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return status;
}

/* The caller's description, options and strings may go as soon as the call returns, and the result is read by polling. */
static void a_job_copies_what_it_was_given(void **state)
{
    char solver[] = "generic";
    clattn_softmax_desc desc = softmax_of(5);
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    clattn_plan *plan = (clattn_plan *)solver, *again = NULL;
    clattn_job *job = NULL;
    (void)state;
    options.solver = solver;
    options.background.job = &job;
    gate_close();
    clattn_job *before = begin(1, NULL, NULL); /* keeps the thread busy, so that the job has read nothing yet */
    gate_await();
    assert_status(context, clattn_softmax_plan_create(context, &desc, &options, &plan), CLATTN_SUCCESS);
    assert_null(plan);
    memset(&desc, 0xff, sizeof desc);
    memset(&options, 0xff, sizeof options);
    memset(solver, 'x', sizeof solver - 1);
    assert_int_equal(clattn_job_result(job, &plan), CLATTN_ERROR_BUSY);
    assert_int_equal(clattn_job_message(job, NULL, 0), 0);
    gate_open();
    assert_int_equal(poll(job, &plan), CLATTN_SUCCESS);
    assert_int_equal(clattn_job_wait(job, &again), CLATTN_SUCCESS);
    assert_ptr_equal(plan, again);
    assert_string_equal(clattn_plan_solver(plan), "generic");
    clattn_job_release(&job);
    assert_null(job);
    clattn_plan_release(&again);
    clattn_job_release(&before);
    runs(plan);
    clattn_plan_release(&plan);
}

/* The user's texts are read while the job runs. */
static void a_job_copies_snippets(void **state)
{
    char text[] = "float score_mod(float s, int b, int h, int q, int k, user_data u) { return s + 1; }";
    clattn_attention_desc desc = CLATTN_ATTENTION_DESC_INIT;
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    clattn_job *job = NULL, *wrong = NULL;
    char message[256];
    (void)state;
    options.solver = "generic";
    options.background.job = &job;
    desc.query = desc.key = desc.value = desc.output = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 1, 3, 4);
    desc.snippets.score_mod = text;
    gate_close();
    clattn_job *before = begin(1, NULL, NULL);
    gate_await();
    assert_status(context, clattn_attention_plan_create(context, &desc, &options, NULL), CLATTN_SUCCESS);
    memset(text, '!', sizeof text - 1);
    options.background.job = &wrong;
    assert_status(context, clattn_attention_plan_create(context, &desc, &options, NULL), CLATTN_SUCCESS);
    gate_open();
    assert_int_equal(clattn_job_wait(job, NULL), CLATTN_SUCCESS);
    assert_int_equal(clattn_job_wait(wrong, NULL), CLATTN_ERROR_BUILD);
    assert_true(clattn_job_message(wrong, message, sizeof message) > 0);
    assert_non_null(strstr(message, "score_mod"));
    clattn_job_release(&before);
    clattn_job_release(&job);
    clattn_job_release(&wrong);
}

/* Mistakes in the description are the call's own, later ones the job's; each job has its own message. */
static void failures_are_told_where_they_belong(void **state)
{
    clattn_softmax_desc desc = softmax_of(5), bad = softmax_of(5);
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    clattn_job *first = (clattn_job *)&desc, *second = NULL;
    clattn_plan *plan = NULL;
    char message[64], before[64], after[64];
    (void)state;
    options.background.job = &first;
    bad.y.extent[0] = 4;
    assert_status(context, clattn_softmax_plan_create(context, &bad, &options, NULL), CLATTN_ERROR_INVALID_LAYOUT);
    assert_null(first);
    first = (clattn_job *)&desc;
    assert_status(NULL, clattn_softmax_plan_create(NULL, &desc, &options, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_null(first);
    options.background.job = NULL;
    options.background.user = &desc;
    assert_status(context, clattn_softmax_plan_create(context, &desc, &options, &plan), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_message_has(context, "without background.job");
    clattn_context_message(context, before, sizeof before);
    options.background.user = NULL;
    options.background.job = &first;
    options.solver = "nonsense";
    assert_status(context, clattn_softmax_plan_create(context, &desc, &options, NULL), CLATTN_SUCCESS);
    options.background.job = &second;
    options.solver = "absurd";
    assert_status(context, clattn_softmax_plan_create(context, &desc, &options, NULL), CLATTN_SUCCESS);
    assert_int_equal(clattn_job_wait(second, &plan), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_null(plan);
    assert_int_equal(clattn_job_result(first, &plan), CLATTN_ERROR_INVALID_ARGUMENT);
    const size_t length = clattn_job_message(first, message, sizeof message);
    assert_true(length > sizeof message); /* truncated, as by snprintf */
    assert_non_null(strstr(message, "\"nonsense\""));
    clattn_job_message(second, message, sizeof message);
    assert_non_null(strstr(message, "\"absurd\""));
    clattn_context_message(context, after, sizeof after);
    assert_string_equal(before, after);
    clattn_job_release(&first);
    clattn_job_release(&second);
    assert_status(NULL, clattn_job_result(NULL, &plan), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_status(NULL, clattn_job_wait(NULL, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(clattn_job_message(NULL, NULL, 0), 0);
    clattn_job_cancel(NULL);
    clattn_job_release(NULL);
    clattn_job_release(&first);
}

/* While the driver builds for a job, plans that exist run, and plans whose programs exist are made. */
static void a_job_blocks_nobody(void **state)
{
    (void)state;
    clattn_plan *plan = plan_now();
    gate_close();
    clattn_job *job = begin(1, NULL, NULL);
    gate_await();
    runs(plan);
    clattn_plan *other = plan_now();
    runs(other);
    assert_int_equal(clattn_job_result(job, NULL), CLATTN_ERROR_BUSY);
    gate_open();
    assert_int_equal(clattn_job_wait(job, NULL), CLATTN_SUCCESS);
    clattn_job_release(&job);
    clattn_plan_release(&other);
    clattn_plan_release(&plan);
}

enum { JOBS = 4 };

static struct seen {
    clattn_job *jobs[JOBS], *order[JOBS];
    clattn_status status[JOBS], waited;
    pthread_t thread[JOBS];
    int count;
} seen;

static void note(void *user, clattn_job *job)
{
    struct seen *s = user;
    assert_true(s->count < JOBS);
    if (s->count == 0)
        s->waited = clattn_job_wait(s->jobs[JOBS - 1], NULL);
    s->status[s->count] = clattn_job_result(job, NULL);
    s->thread[s->count] = pthread_self();
    s->order[s->count++] = job;
}

/* Callbacks come in the order of the jobs, once each, on one thread, where the result is there and waiting is refused. */
static void callbacks_come_in_order(void **state)
{
    (void)state;
    memset(&seen, 0, sizeof seen);
    gate_close();
    for (int i = 0; i < JOBS; i++)
        seen.jobs[i] = begin(i % 2, note, &seen);
    clattn_job_cancel(seen.jobs[2]);
    gate_open();
    assert_int_equal(clattn_job_wait(seen.jobs[JOBS - 1], NULL), CLATTN_SUCCESS);
    assert_int_equal(seen.count, JOBS);
    assert_int_equal(seen.waited, CLATTN_ERROR_BUSY);
    for (int i = 0; i < JOBS; i++) {
        assert_ptr_equal(seen.order[i], seen.jobs[i]);
        assert_int_equal(seen.status[i], i == 2 ? CLATTN_ERROR_CANCELLED : CLATTN_SUCCESS);
        assert_true(pthread_equal(seen.thread[i], seen.thread[0]) && !pthread_equal(seen.thread[i], pthread_self()));
        clattn_job_release(&seen.jobs[i]);
    }
}

/* A job that waits for its turn builds nothing once it is cancelled; one that builds ends with that program. */
static void a_cancelled_job_ends(void **state)
{
    clattn_plan *plan = NULL;
    char message[32];
    (void)state;
    const unsigned long builds = gate_builds();
    gate_close();
    clattn_job *building = begin(0, NULL, NULL), *waiting = begin(1, NULL, NULL);
    gate_await();
    clattn_job_cancel(waiting);
    clattn_job_cancel(building);
    assert_int_equal(clattn_job_result(building, &plan), CLATTN_ERROR_BUSY);
    gate_open();
    assert_int_equal(clattn_job_wait(building, &plan), CLATTN_ERROR_CANCELLED);
    assert_int_equal(clattn_job_wait(waiting, &plan), CLATTN_ERROR_CANCELLED);
    assert_null(plan);
    clattn_job_message(waiting, message, sizeof message);
    assert_string_equal(message, "cancelled");
    assert_int_equal(gate_builds(), builds + 1);
    assert_int_equal(inject_launches(), 0);
    clattn_job_release(&building);
    clattn_job_release(&waiting);
    /* What was built serves the next plan, and a job that is complete stays so. */
    clattn_job *next = begin(0, NULL, NULL);
    assert_int_equal(clattn_job_wait(next, &plan), CLATTN_SUCCESS);
    clattn_job_cancel(next);
    assert_int_equal(clattn_job_result(next, NULL), CLATTN_SUCCESS);
    assert_int_equal(gate_builds(), builds + 1);
    clattn_job_release(&next);
    runs(plan);
    clattn_plan_release(&plan);
}

/* A plan of several plans ends with the program that it builds, too, and no other solver is tried. */
static void a_cancelled_job_builds_no_further_program(void **state)
{
    clattn_mha_desc desc = CLATTN_MHA_DESC_INIT;
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    clattn_job *job = NULL;
    (void)state;
    const unsigned long builds = gate_builds();
    desc.batch = 1;
    desc.query_length = 3;
    desc.d_model = 8;
    desc.heads = 2;
    options.background.job = &job;
    gate_close();
    assert_status(context, clattn_mha_plan_create(context, &desc, &options, NULL), CLATTN_SUCCESS);
    gate_await();
    clattn_job_cancel(job);
    gate_open();
    assert_int_equal(clattn_job_wait(job, NULL), CLATTN_ERROR_CANCELLED);
    assert_int_equal(gate_builds(), builds + 1);
    assert_int_equal(inject_launches(), 0);
    assert_int_equal(warnings, 0);
    clattn_job_release(&job);
}

static atomic_int moment;
static clattn_job *_Atomic target;

static void cancel_at_the_moment(void)
{
    if (--moment == 0)
        clattn_job_cancel(target);
}

/* Whichever slow call a cancellation comes before, the job ends as cancelled, and the context works afterwards. */
static void cancelling_works_at_any_moment(void **state)
{
    int count = 0;
    for (bool reached = true; reached; count++) {
        clattn_job *job;
        clattn_plan *plan = NULL;
        close_gated(state);
        open_gated(state);
        gate_close();
        target = job = begin(0, NULL, NULL);
        gate_await();
        moment = count;
        if (!count)
            clattn_job_cancel(job);
        gate_hook(cancel_at_the_moment);
        gate_open();
        const clattn_status status = clattn_job_wait(job, &plan);
        gate_hook(NULL);
        reached = moment <= 0;
        assert_int_equal(status, reached ? CLATTN_ERROR_CANCELLED : CLATTN_SUCCESS);
        assert_true(reached == !plan);
        clattn_plan_release(&plan);
        clattn_job_release(&job);
        plan = plan_now();
        runs(plan);
        clattn_plan_release(&plan);
    }
    assert_true(count > 3);
}

static void count_it(void *user, clattn_job *job)
{
    (void)job;
    ++*(atomic_int *)user;
}

/* Releasing does not wait; the callback comes all the same, and the last thing that goes may be the thread's own. */
static void all_may_be_released_while_a_job_runs(void **state)
{
    static atomic_int calls;
    (void)state;
    calls = 0;
    gate_close();
    clattn_job *running = begin(0, count_it, &calls), *waiting = begin(1, count_it, &calls);
    gate_await();
    clattn_job_release(&running);
    clattn_job_release(&waiting);
    clattn_context_release(&context);
    assert_true(!running && !waiting && calls == 0);
    gate_open();
    for (int i = 0; i < 1000 && calls < 2; i++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    assert_int_equal(calls, 2);
}

/* A job keeps what it needs of its context, as a plan does. */
static void a_job_outlives_its_context(void **state)
{
    clattn_plan *plan = NULL;
    (void)state;
    gate_close();
    clattn_job *job = begin(0, NULL, NULL);
    gate_await();
    clattn_context_release(&context);
    gate_open();
    assert_int_equal(clattn_job_wait(job, &plan), CLATTN_SUCCESS);
    clattn_job_release(&job);
    assert_string_equal(clattn_plan_solver(plan), "generic");
    clattn_plan_release(&plan);
}

static void release_it(void *user, clattn_job *job)
{
    clattn_plan *plan = NULL;
    clattn_job_result(job, &plan);
    clattn_job_release(&job);
    clattn_plan_release(&plan);
    ++*(atomic_int *)user;
}

static void a_callback_may_release_its_job(void **state)
{
    static atomic_int calls;
    (void)state;
    calls = 0;
    for (int i = 0; i < 3; i++)
        begin(0, release_it, &calls);
    clattn_context_release(&context); /* the thread releases the last that there is */
    for (int i = 0; i < 1000 && calls < 3; i++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    assert_int_equal(calls, 3);
}

enum { THREADS = 16 };

/* Begins jobs, and waits for them, polls, cancels or only releases them; makes plans at once in between. */
static int busy(void *data)
{
    const size_t number = *(const size_t *)data, rounds = by_level(4, 12, 24, 60);
    for (size_t round = 0; round < rounds; round++) {
        clattn_plan *plan = NULL;
        static atomic_int calls;
        clattn_job *job = begin((number + round) % 2, count_it, &calls);
        clattn_status outcome = CLATTN_SUCCESS;
        switch ((number + round) % 4) {
        case 0: assert_int_equal(clattn_job_wait(job, &plan), CLATTN_SUCCESS); break;
        case 1: assert_int_equal(poll(job, &plan), CLATTN_SUCCESS); break;
        case 2: /* the job may be complete before it is cancelled */
            clattn_job_cancel(job);
            outcome = clattn_job_wait(job, &plan);
            assert_true(outcome == CLATTN_SUCCESS || outcome == CLATTN_ERROR_CANCELLED);
            break;
        default: plan = plan_now(); break;
        }
        assert_true(!plan == (outcome == CLATTN_ERROR_CANCELLED));
        clattn_job_release(&job);
        clattn_plan_release(&plan);
    }
    return 0;
}

static void sixteen_threads_have_jobs(void **state)
{
    thrd_t threads[THREADS];
    size_t numbers[THREADS];
    (void)state;
    for (size_t i = 0; i < THREADS; i++) {
        numbers[i] = i;
        assert_int_equal(thrd_create(&threads[i], busy, &numbers[i]), thrd_success);
    }
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(thrd_join(threads[i], NULL), thrd_success);
    clattn_plan *plan = plan_now();
    runs(plan);
    clattn_plan_release(&plan);
}

#define GATED(test) cmocka_unit_test_setup_teardown(test, open_gated, close_gated)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        GATED(a_job_copies_what_it_was_given),
        GATED(a_job_copies_snippets),
        GATED(failures_are_told_where_they_belong),
        GATED(a_job_blocks_nobody),
        GATED(callbacks_come_in_order),
        GATED(a_cancelled_job_ends),
        GATED(a_cancelled_job_builds_no_further_program),
        GATED(cancelling_works_at_any_moment),
        GATED(all_may_be_released_while_a_job_runs),
        GATED(a_job_outlives_its_context),
        GATED(a_callback_may_release_its_job),
        GATED(sixteen_threads_have_jobs),
    };
    return RUN_TESTS("job", tests, argc, argv);
}
