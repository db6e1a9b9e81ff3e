/* Runs of a use of the library in each of which another OpenCL call is made to fail: every one, or every stride-th and the
 * last of each function. */
#ifndef TESTS_SUPPORT_CORE_INJECT_RUN_H
#define TESTS_SUPPORT_CORE_INJECT_RUN_H

#include "clattn/clattn.h"

/* The code of calls that are made to fail. */
#define INJECT_CODE CL_OUT_OF_RESOURCES
#define INJECT_CODE_NAME "CL_OUT_OF_RESOURCES"

typedef struct inject_scenario {
    clattn_context_params params;
    /* Makes, uses and releases plans on `context`; returns the first failing status, or SUCCESS if results are
     * right. */
    clattn_status (*use)(clattn_context *context);
    unsigned stride;   /* make each stride-th call fail: 1 is all of them */
    unsigned attempts; /* unless 0: fail this many calls at equal distances instead */
} inject_scenario;

/* Makes a scenario with a default stride, which is large on simulators, and without CLBlast, which calls OpenCL by
 * itself. */
inject_scenario inject_scenario_of(clattn_status (*use)(clattn_context *), int32_t cache_mode);

/* Fails the test unless, whichever call fails, the status is proper and its message names the call or its code, every
 * reference comes back, and the same context works again. */
void inject_run(const inject_scenario *scenario);

/* Fails the test unless the status is one that a failing call may give and the message of `context` (NULL: the
 * thread's) names the call. */
void inject_check_message(const clattn_context *context, clattn_status status);

#endif
