/* Jobs: plans that are finished by the context's thread. */
#ifndef CLATTN_PLAN_JOB_H
#define CLATTN_PLAN_JOB_H

#include "clattn/job.h"

/* Finishes a new plan, which has its description and needs nothing of the caller's any more: by plan_finish, and *plan
 * becomes the plan, or by a job if `options` ask for one.  The plan is taken over, also in a failure. */
clattn_status job_finish_plan(clattn_plan *made, const clattn_plan_options *options, clattn_plan **plan);

/* Returns CANCELLED, and reports nothing, if the calling thread works on a job that has been cancelled.  It is called
 * before everything that takes long. */
clattn_status job_check(void);

#endif
