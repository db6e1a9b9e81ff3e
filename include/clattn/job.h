/** @file
 * Jobs: plans that are made in the background, for programs that must not block, such as those with a user interface.
 *
 * Every plan_create, of an operator or of a model, makes its plan in the background if its options ask for it:
 *
 *     clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
 *     clattn_job *job;
 *     options.background.job = &job;
 *     options.background.callback = tell_event_loop;                  optional
 *     clattn_attention_plan_create(context, &desc, &options, NULL);   returns at once
 *     ...
 *     status = clattn_job_result(job, &plan);                         BUSY until the job is complete
 *     clattn_job_release(&job);
 *
 * The call checks and copies the description, the options and their strings, snippets included; a model is kept. So
 * all of these may be changed or released when it has returned. examples/event_loop.c is a whole program.
 *
 * A context has one thread for jobs. The first job, or the first program that is saved in the background, starts it; the
 * last release of the context and of what keeps it alive ends it. It takes jobs in the order in which they were begun,
 * one at a time, and blocks the signals of the process. Meanwhile any thread may use the
 * context: enqueues of plans that exist do not wait, and neither does a plan_create of another thread, except while the
 * driver builds a program for the job or runs it for the first time. What has been enqueued runs, too; but PoCL may
 * start no kernel until it has compiled the one at hand. A run of the same description afterwards
 * (clattn_attention_run) finds the programs built, and takes milliseconds.
 *
 * A job keeps alive what it needs of its context, as a plan does: after clattn_context_release it goes on. Nothing here
 * waits for a job but clattn_job_wait. No driver promises that a process may end while it compiles, so a program that
 * ends early cancels its jobs and waits for them, which takes no longer than the driver's work on one program (and saving
 * programs, if the job was the last to hold a context that saves at its release):
 *
 *     clattn_job_cancel(job);
 *     clattn_job_wait(job, NULL);
 *     clattn_job_release(&job);
 *
 * Jobs give FORKED in the child of a fork, and make no callback there; what a job holds that was not complete is not
 * freed.
 */
#ifndef CLATTN_JOB_H
#define CLATTN_JOB_H

#include "plan.h"

CLATTN_BEGIN_DECLS

/** Tells how `job` went, and gives its plan. Never blocks.
 *
 * *plan becomes the plan, which the caller releases with clattn_plan_release, each time; NULL unless the status is
 * SUCCESS. `plan` may be NULL. The result may come before the callback has returned.
 *
 * @return BUSY until the job is complete; CANCELLED if it was cancelled before that; INVALID_ARGUMENT for NULL; FORKED;
 * otherwise what plan_create would have returned. */
CLATTN_API clattn_status clattn_job_result(clattn_job *job, clattn_plan **plan);

/** Waits until `job` is complete and its callback has returned, then does what clattn_job_result does.
 *
 * Nothing of the job remains on the context's thread then. On that thread itself, where callbacks run, the call does
 * not wait: it gives BUSY if the job is not complete. Otherwise it blocks for as long as this job and those before it
 * take.
 *
 * @return what clattn_job_result returns. */
CLATTN_API clattn_status clattn_job_wait(clattn_job *job, clattn_plan **plan);

/** Copies the message of a job that has failed, and returns its length, as clattn_context_message does.
 *
 * It is the text that plan_create would have left, build logs included; "" for NULL and for a job that is not complete
 * or has succeeded. Never blocks. */
CLATTN_API size_t clattn_job_message(const clattn_job *job, char *buffer, size_t bytes);

/** Asks `job` to end soon; accepts NULL. Does not wait.
 *
 * A job that has begun ends when the driver has finished the program that it is building or running. One that waits for
 * its turn ends when that comes, without building anything. Either is then complete with CANCELLED, and what had been
 * made of the plan is released. A job that is complete stays as it is. */
CLATTN_API void clattn_job_cancel(clattn_job *job);

/** Releases the job and sets *job to NULL; accepts NULL and a pointer to NULL. Does not wait.
 *
 * A job that is not complete is cancelled, because nobody can take its plan. Its callback still comes. Plans that
 * clattn_job_result has given stay. */
CLATTN_API void clattn_job_release(clattn_job **job);

CLATTN_END_DECLS

#endif
