#include "plan/job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"
#include "base/try.h"
#include "plan/operator.h"

enum stage {
    JOB_BEGUN,
    JOB_COMPLETE, /* the result is there, and the callback runs */
    JOB_OVER      /* the thread does not touch the job any more */
};

struct clattn_job {
    struct task task;
    mtx_t lock;       /* guards `references` */
    cnd_t over;       /* the job is */
    int references;   /* the application's, and the thread's until the job is over */
    atomic_int stage; /* enum stage; the result may be read from JOB_COMPLETE on */
    atomic_bool cancelled;
    long process;                /* where the job was begun */
    const struct worker *worker; /* the context's; only to be compared */
    clattn_plan_options options; /* with copies of its strings, and without `background` */
    clattn_job_callback callback;
    void *user;
    clattn_plan *plan;    /* unfinished until the job is complete; then the result, or NULL */
    clattn_status status; /* the result */
    char *message;        /* its text; NULL: that of the status will do */
};

/* The job that this thread works on, or NULL. */
static _Thread_local const clattn_job *thread_job;

clattn_status job_check(void)
{
    return thread_job && atomic_load(&thread_job->cancelled) ? CLATTN_ERROR_CANCELLED : CLATTN_SUCCESS;
}

static bool is_foreign(const clattn_job *job)
{
    return job->process != os_process_id();
}

/* ---- from its beginning to its end ---- */

static void destroy(clattn_job *job)
{
    clattn_plan_release(&job->plan);
    free((char *)(uintptr_t)job->options.solver);
    free((char *)(uintptr_t)job->options.tuning);
    free(job->message);
    if (!is_foreign(job)) {
        cnd_destroy(&job->over);
        mtx_destroy(&job->lock);
    }
    free(job);
}

/* The text of the thread's last failure on the context; NULL if there is no memory for it. */
static char *copy_message(struct report *report)
{
    const size_t bytes = report_copy(report, NULL, 0) + 1;
    char *text = malloc(bytes);
    if (text)
        report_copy(report, text, bytes);
    return text;
}

static clattn_status make(clattn_job *job)
{
    clattn_status status;
    TRY(job_check());
    TRY(plan_finish(job->plan, &job->options));
    status = job_check();
fail:
    return status;
}

/* Runs on the worker's thread.  The context may end with the plan of a job that failed, and the job with its last
 * reference; neither is touched afterwards. */
static void run(struct task *task)
{
    clattn_job *job = (clattn_job *)task;
    thread_job = job;
    job->status = make(job);
    thread_job = NULL;
    if (job->status != CLATTN_SUCCESS && job->status != CLATTN_ERROR_CANCELLED)
        job->message = copy_message(&job->plan->context->device.report);
    if (job->callback) {
        atomic_store(&job->stage, JOB_COMPLETE);
        job->callback(job->user, job);
    }
    /* Not before the callback: without the plan's reference, the application's last release would wait for it. */
    if (job->status != CLATTN_SUCCESS)
        clattn_plan_release(&job->plan);
    mtx_lock(&job->lock);
    const bool last = --job->references == 0;
    atomic_store(&job->stage, JOB_OVER);
    cnd_broadcast(&job->over);
    mtx_unlock(&job->lock);
    if (last)
        destroy(job);
}

static bool copy_string(const char **text)
{
    return !*text || (*text = string_copy(*text)) != NULL;
}

static clattn_job *new_job(const clattn_plan_options *options)
{
    clattn_job *job = calloc(1, sizeof *job);
    if (!job || mtx_init(&job->lock, mtx_plain) != thrd_success) {
        free(job);
        return NULL;
    }
    if (cnd_init(&job->over) != thrd_success) {
        mtx_destroy(&job->lock);
        free(job);
        return NULL;
    }
    job->task.run = run;
    job->references = 2;
    atomic_init(&job->stage, JOB_BEGUN);
    atomic_init(&job->cancelled, false);
    job->process = os_process_id();
    job->callback = options->background.callback;
    job->user = options->background.user;
    job->options = *options;
    memset(&job->options.background, 0, sizeof job->options.background);
    const bool solver = copy_string(&job->options.solver), tuning = copy_string(&job->options.tuning);
    if (solver && tuning)
        return job;
    destroy(job);
    return NULL;
}

/* Has the context's thread finish the plan, which it takes over. */
static clattn_status begin(clattn_plan *plan, const clattn_plan_options *options)
{
    struct worker *worker = plan->context->worker;
    clattn_job *job = new_job(options);
    if (job) {
        job->plan = plan;
        job->worker = worker;
        *options->background.job = job; /* before the callback can come */
        if (worker_add(worker, &job->task) == CLATTN_SUCCESS)
            return CLATTN_SUCCESS;
        *options->background.job = NULL;
        job->plan = NULL;
        destroy(job);
    }
    clattn_status status =
        report_error(&plan->context->device.report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a job or its thread");
    clattn_plan_release(&plan);
    return status;
}

clattn_status job_finish_plan(clattn_plan *made, const clattn_plan_options *options, clattn_plan **plan)
{
    if (options->background.job)
        return begin(made, options);
    clattn_status status = plan_finish(made, options);
    if (status == CLATTN_SUCCESS)
        *plan = made;
    else
        clattn_plan_release(&made);
    return status;
}

/* ---- what the application does with it ---- */

clattn_status clattn_job_result(clattn_job *job, clattn_plan **plan)
{
    if (plan)
        *plan = NULL;
    if (!job)
        return report_error(NULL, CLATTN_ERROR_INVALID_ARGUMENT, "job is NULL");
    if (is_foreign(job))
        return report_error(NULL, CLATTN_ERROR_FORKED, "the job was begun in process %ld, before a fork", job->process);
    if (atomic_load(&job->stage) == JOB_BEGUN)
        return CLATTN_ERROR_BUSY;
    if (plan && job->status == CLATTN_SUCCESS) {
        plan_retain(job->plan);
        *plan = job->plan;
    }
    return job->status;
}

clattn_status clattn_job_wait(clattn_job *job, clattn_plan **plan)
{
    if (job && !is_foreign(job) && !worker_is_current(job->worker)) {
        mtx_lock(&job->lock);
        while (atomic_load(&job->stage) != JOB_OVER)
            cnd_wait(&job->over, &job->lock);
        mtx_unlock(&job->lock);
    }
    return clattn_job_result(job, plan);
}

size_t clattn_job_message(const clattn_job *job, char *buffer, size_t bytes)
{
    const char *text = "";
    if (job && atomic_load(&job->stage) != JOB_BEGUN && job->status != CLATTN_SUCCESS)
        text = job->message ? job->message : clattn_status_string(job->status);
    const int length = snprintf(buffer, buffer ? bytes : 0, "%s", text);
    return length > 0 ? (size_t)length : 0;
}

void clattn_job_cancel(clattn_job *job)
{
    if (job)
        atomic_store(&job->cancelled, true);
}

void clattn_job_release(clattn_job **handle)
{
    if (!handle || !*handle)
        return;
    clattn_job *job = *handle;
    *handle = NULL;
    clattn_job_cancel(job);
    if (is_foreign(job)) {
        if (atomic_load(&job->stage) == JOB_OVER)
            destroy(job);
        return;
    }
    mtx_lock(&job->lock);
    const bool last = --job->references == 0;
    mtx_unlock(&job->lock);
    if (last)
        destroy(job);
}
