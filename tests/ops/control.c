/* Controls cut launches without a change of a bit, tell their progress, and end a call wherever it is.
 *
 * Holds: include/clattn/control.h, for every operator and solver; D1 of docs/numerics.md. */
#include <stdlib.h>
#include <string.h>

#include "support/attention/case.h"
#include "support/core/slow_clock.h"
#include "support/core/threads.h"
#include "support/ops/each.h"
#include "support/ops/image_case.h"
#include "support/ops/matmul_case.h"
#include "support/ops/mha_case.h"

static const attention_case attentions[] = {
    {"causal, all outputs", ALL, .dim = {3, 4, 2, 9, 17, 8, 8}, .causal = true, .entropy = true,
     .scores = SCORES_OF(PROBABILITIES)},
    {"parts of keys, merged", BIG, .dim = {1, 2, 1, 1, 4099, 8, 8}},
};
static const matmul_case products[] = {
    {"packed, with bias and addend", ALL, .m = 37, .n = 29, .k = 23, .bias = true, .operand = OPERAND_ADD},
    {"few rows", ALL, .m = 2, .n = 29, .k = 23},
};
static const mha_case mhas[] = {
    {"self-attention", ALL, .batch = 2, .queries = 5, .d_model = 16, .heads = 2, .packed = true, .bias_in = true},
};
static const image_case images[] = {
    {"packed", ALL, .operation = CLATTN_IMAGE_OPERATION_PACK, .type = CL_UNORM_INT8, .channels = 3, .image = {5, 3},
     .region = {5, 3}},
};

static size_t cut; /* jobs so far that have had more launches with a control */

/* Runs the job and asserts that its outputs are `expected`; returns how many launches it took. */
static size_t run_again(test_job *job, cl_command_queue queue, const unsigned char *expected)
{
    job_poison(job);
    slow_clock_begin(NULL, NULL);
    job_run(job, queue);
    const size_t launches = slow_clock_launches();
    unsigned char *given = job_snapshot(job);
    assert_memory_equal(expected, given, job_bytes(job));
    free(given);
    return launches;
}

typedef struct cancelling {
    clattn_control *control;
    size_t at;
    double before; /* the progress when it was cancelled */
} cancelling;

static void cancel_at(size_t launch, void *user)
{
    cancelling *c = user;
    if (launch != c->at)
        return;
    c->before = clattn_control_progress(c->control);
    clattn_control_cancel(c->control);
}

/* Cancels during launch `at` of the call: no other launch follows, nothing of the call runs any more, and the call says so. */
static void cancel(test_job *job, cl_command_queue queue, size_t at, size_t launches, const unsigned char *expected)
{
    cl_event event = NULL;
    cancelling c = {job->control, at, 0};
    job_poison(job);
    slow_clock_begin(cancel_at, &c);
    assert_status(device_context(), job_enqueue(job, queue, 0, NULL, &event), CLATTN_ERROR_CANCELLED);
    assert_message_has(device_context(), "cancelled");
    assert_null(event);
    assert_int_equal(slow_clock_launches(), at);
    assert_true(c.before < 1 && clattn_control_progress(job->control) >= c.before);
    assert_int_equal(clattn_control_is_cancelled(job->control), 1);
    slow_clock_begin(NULL, NULL);
    assert_status(device_context(), job_enqueue(job, queue, 0, NULL, &event), CLATTN_ERROR_CANCELLED);
    assert_int_equal(slow_clock_launches(), 0);
    clattn_control_reset(job->control);
    assert_int_equal(clattn_control_is_cancelled(job->control), 0);
    if (at == 1 || at == launches)
        assert_int_equal(run_again(job, queue, expected), launches);
}

static void run_controlled(test_job *job, cl_command_queue queue, const unsigned char *expected, size_t plain)
{
    job_use_control(job, 1, false);
    const size_t launches = run_again(job, queue, expected);
    assert_true(launches >= plain);
    cut += launches > plain;
    assert_true(clattn_control_progress(job->control) == 0);
    job_use_control(job, 1, true);
    assert_int_equal(run_again(job, queue, expected), launches);
    assert_true(clattn_control_progress(job->control) == 1);
    for (size_t at = 1; at <= launches; at += at < 3 || at == launches ? 1 : launches - at)
        cancel(job, queue, at, launches, expected);
    job_drop_control(job);
}

static void before_run(test_job *job)
{
    static bool busy; /* job_run is called here, too */
    if (busy)
        return;
    busy = true;
    cl_command_queue queue = new_queue(device_context(), true);
    job_poison(job);
    slow_clock_begin(NULL, NULL);
    job_run(job, NULL);
    const size_t plain = slow_clock_launches();
    unsigned char *expected = job_snapshot(job);
    run_controlled(job, NULL, expected, plain);
    if (queue) {
        run_controlled(job, queue, expected, plain);
        assert_cl(clReleaseCommandQueue(queue));
    }
    free(expected);
    job_poison(job);
    busy = false;
}

static void some_launches_were_cut(void **state)
{
    (void)state;
    assert_true(cut > 0);
}

/* ---- the control itself ---- */

static void wrong_params(void **state)
{
    clattn_control *control = (clattn_control *)(uintptr_t)1;
    clattn_control_params params = CLATTN_CONTROL_PARAMS_INIT;
    (void)state;
    assert_status(NULL, clattn_control_create(&params, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_status(NULL, clattn_control_create(NULL, &control), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_null(control);
    params.cancellable = 2;
    assert_status(NULL, clattn_control_create(&params, &control), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_message_has(NULL, "cancellable is 2, neither 0 nor 1");
    clattn_control_params_init(&params);
    params.size -= 1;
    assert_status(NULL, clattn_control_create(&params, &control), CLATTN_ERROR_INVALID_STRUCT);
    clattn_control_params_init(NULL);
    clattn_control_cancel(NULL);
    clattn_control_reset(NULL);
    clattn_control_release(NULL);
    clattn_control_release(&control);
    assert_int_equal(clattn_control_is_cancelled(NULL), 0);
    assert_true(clattn_control_progress(NULL) == 0);
}

static clattn_status other_status;

static int other_call(void *job)
{
    other_status = job_enqueue(job, NULL, 0, NULL, NULL);
    return 0;
}

/* Enqueues the same job, with the same control, on another thread. */
static void call_from_another_thread(size_t launch, void *job)
{
    thrd_t thread;
    if (launch > 1)
        return;
    assert_int_equal(thrd_create(&thread, other_call, job), thrd_success);
    assert_int_equal(thrd_join(thread, NULL), thrd_success);
}

static void one_call_at_a_time(const void *which, const char *solver)
{
    test_job job = {0};
    assert_true(attention_job(&job, which, solver, 1));
    job_use_control(&job, 0, false);
    slow_clock_begin(call_from_another_thread, &job);
    assert_status(device_context(), job_enqueue(&job, NULL, 0, NULL, NULL), CLATTN_SUCCESS);
    assert_int_equal(other_status, CLATTN_ERROR_INVALID_ARGUMENT);
    slow_clock_begin(NULL, NULL);
    assert_cl(clFinish(clattn_context_queue(device_context())));
    job_release(&job);
}

/* Two calls that count together: the progress does not fall between them, and is a half after the first. */
static void calls_count_together(const void *which, const char *solver)
{
    test_job job = {0};
    assert_true(attention_job(&job, which, solver, 1));
    job_use_control(&job, 1, true);
    for (int chain = 0; chain < 2; chain++) {
        if (!chain)
            clattn_control_expect(job.control, 2);
        for (int call = 1; call <= 2; call++) {
            assert_status(device_context(), job_enqueue(&job, NULL, 0, NULL, NULL), CLATTN_SUCCESS);
            assert_true(clattn_control_progress(job.control) == 0.5 * call);
        }
    }
    clattn_control_expect(NULL, 2);
    clattn_control_reset(job.control);
    assert_true(clattn_control_progress(job.control) == 0);
    assert_status(device_context(), job_enqueue(&job, NULL, 0, NULL, NULL), CLATTN_SUCCESS);
    assert_true(clattn_control_progress(job.control) == 1);
    job_release(&job);
}

static void a_cancelled_run_compiles_nothing(void **state)
{
    clattn_softmax_desc desc = CLATTN_SOFTMAX_DESC_INIT;
    clattn_softmax_args args = CLATTN_SOFTMAX_ARGS_INIT;
    clattn_control_params params = CLATTN_CONTROL_PARAMS_INIT;
    const clattn_program_statistics before = device_programs();
    (void)state;
    params.cancellable = 1;
    assert_status(NULL, clattn_control_create(&params, &args.control), CLATTN_SUCCESS);
    clattn_control_cancel(args.control);
    desc.x = clattn_layout_contiguous(CLATTN_DTYPE_F16, 2, (const size_t[]){3, 77});
    desc.y = clattn_layout_contiguous(CLATTN_DTYPE_BF16, 2, (const size_t[]){3, 77});
    assert_status(device_context(), clattn_softmax_run(device_context(), NULL, &desc, &args, 0, NULL, NULL),
                  CLATTN_ERROR_CANCELLED);
    assert_true(clattn_control_progress(args.control) == 0);
    assert_int_equal(device_programs().built, before.built);
    assert_int_equal(device_programs().loaded, before.loaded);
    clattn_control_release(&args.control);
}

int main(int argc, char **argv)
{
    static const attention_case plain = {"one call at a time", ALL, LITTLE};
    job_before = (job_hooks){NULL, before_run};
    device_use_functions(slow_clock_get_proc);
    attention_add(attentions, COUNT_OF(attentions));
    matmul_add(products, COUNT_OF(products));
    mha_add(mhas, COUNT_OF(mhas));
    each_operator_add();
    for (size_t i = 0; i < COUNT_OF(images); i++)
        for (size_t s = 0; s < IMAGE_SOLVERS; s++)
            suite_add_case(image_check, &images[i], image_solvers[s], "image %s: %s", image_solvers[s], images[i].rule);
    suite_add(some_launches_were_cut, "some launches were cut");
    suite_add(wrong_params, "wrong params");
    suite_add(a_cancelled_run_compiles_nothing, "a cancelled run compiles nothing");
    suite_add_case(one_call_at_a_time, &plain, "generic", "attention generic: one call at a time");
    suite_add_case(calls_count_together, &plain, "generic", "attention generic: calls count together");
    return suite_run("control", argc, argv);
}
