/* In the child of a fork, calls give a status, do not hang, and make no OpenCL call; the parent goes on as before. */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/attention/small.h"
#include "support/core/inject.h"
#include "support/harness.h"
#include "support/plan/gate.h"

/* Waits for the child and fails the test unless it found nothing wrong. */
static void child_is_right(pid_t child)
{
    int outcome = 0;
    assert_int_equal(waitpid(child, &outcome, 0), child);
    if (WIFSIGNALED(outcome))
        fail_msg("the child ended by signal %d", WTERMSIG(outcome));
    assert_int_equal(WEXITSTATUS(outcome), 0);
}

static void a_context_is_the_parents(void **state)
{
    struct small_attention problem;
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    clattn_plan *plan = NULL, *none = NULL;
    clattn_mha_desc mha = CLATTN_MHA_DESC_INIT;
    char message[256] = "", same[256] = "", folder[FOLDER_SIZE];
    (void)state;
    inject_start(0, 0);
    new_folder(folder);
    params.get_proc = inject_get_proc;
    params.cache_mode = CLATTN_CACHE_MODE_ON; /* PoCL's programs are saved by the parent's release alone */
    params.save_mode = CLATTN_SAVE_MODE_RELEASE;
    params.cache_dir = folder;
    clattn_context *context = new_context_with(&params);
    mha.batch = 1;
    mha.query_length = 3;
    mha.d_model = 8;
    mha.heads = 2;
    small_attention_open(&problem, clattn_context_opencl_context(context));
    assert_status(context, clattn_attention_plan_create(context, &problem.desc, NULL, &plan), CLATTN_SUCCESS);
    /* The plan cache and a workspace in the pool are released too. */
    assert_status(context, clattn_attention_run(context, NULL, &problem.desc, &problem.args, 0, NULL, NULL),
                  CLATTN_SUCCESS);
    assert_status(context, clattn_mha_prewarm(context, &mha), CLATTN_SUCCESS);
    clFinish(clattn_context_queue(context));
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        clattn_program_statistics statistics = {.size = sizeof statistics};
        alarm(20);
        inject_start(0, 0);
        int wrong = 0;
        wrong |= clattn_attention_enqueue(plan, NULL, &problem.args, 0, NULL, NULL) != CLATTN_ERROR_FORKED;
        wrong |= (clattn_attention_plan_create(context, &problem.desc, NULL, &none) != CLATTN_ERROR_FORKED) << 1;
        wrong |=
            (clattn_attention_run(context, NULL, &problem.desc, &problem.args, 0, NULL, NULL) != CLATTN_ERROR_FORKED)
            << 2;
        wrong |= (clattn_context_program_statistics(context, &statistics) != CLATTN_ERROR_FORKED) << 4;
        const int forked = clattn_context_save_programs(context) != CLATTN_ERROR_FORKED;
        clattn_context_message(context, message, sizeof message);
        clattn_context_message(NULL, same, sizeof same);
        wrong |= (!strstr(message, "fork") || strcmp(message, same)) << 5;
        clattn_plan_release(&plan);
        clattn_context_release(&context);
        wrong |= (plan || context) << 3;
        wrong |= (inject_calls() != 0) << 6;
        wrong |= forked << 7;
        _exit(wrong);
    }
    child_is_right(child);
    assert_status(context, clattn_attention_enqueue(plan, NULL, &problem.args, 0, NULL, NULL), CLATTN_SUCCESS);
    small_attention_check(&problem, clattn_context_queue(context));
    clattn_plan_release(&plan);
    small_attention_release(&problem);
    release_context(&context);
    enum inject_kind kind;
    assert_true(inject_balanced(&kind));
}

/* Begins a job that makes a plan of softmax. */
static clattn_job *begin(clattn_context *context, clattn_dtype output)
{
    clattn_softmax_desc desc = CLATTN_SOFTMAX_DESC_INIT;
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    clattn_job *job = NULL;
    options.solver = "generic";
    options.background.job = &job;
    desc.x = desc.y = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[]){3, 5});
    desc.y.dtype = output;
    assert_status(context, clattn_softmax_plan_create(context, &desc, &options, NULL), CLATTN_SUCCESS);
    assert_non_null(job);
    return job;
}

/* Also while a job builds. */
static void jobs_are_the_parents(void **state)
{
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    (void)state;
    inject_start(0, 0);
    params.get_proc = gate_get_proc;
    params.cache_mode = CLATTN_CACHE_MODE_OFF;
    clattn_context *context = new_context_with(&params);
    clattn_job *complete = begin(context, CLATTN_DTYPE_F16);
    assert_int_equal(clattn_job_wait(complete, NULL), CLATTN_SUCCESS);
    gate_close();
    clattn_job *building = begin(context, CLATTN_DTYPE_F32);
    gate_await();
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(20);
        inject_start(0, 0);
        clattn_plan *plan = NULL;
        int wrong = clattn_job_result(building, &plan) != CLATTN_ERROR_FORKED;
        wrong |= (clattn_job_wait(building, &plan) != CLATTN_ERROR_FORKED) << 1;
        wrong |= (clattn_job_wait(complete, &plan) != CLATTN_ERROR_FORKED || plan) << 2;
        clattn_job_cancel(building);
        clattn_job_release(&building);
        clattn_job_release(&complete);
        clattn_context_release(&context);
        wrong |= (building || complete || context) << 3;
        wrong |= (inject_calls() != 0) << 4;
        _exit(wrong);
    }
    child_is_right(child);
    gate_open();
    assert_int_equal(clattn_job_wait(building, NULL), CLATTN_SUCCESS);
    clattn_job_release(&building);
    clattn_job_release(&complete);
    release_context(&context);
    enum inject_kind kind;
    assert_true(inject_balanced(&kind));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_context_is_the_parents),
        cmocka_unit_test(jobs_are_the_parents),
    };
    return RUN_TESTS("forks", tests, argc, argv);
}
