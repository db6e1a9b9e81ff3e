/* Runs of a use of the library in which every OpenCL call is made to fail, one after the other.  Include cmocka before this file. */
#ifndef TESTS_SUPPORT_CORE_INJECT_RUN_H
#define TESTS_SUPPORT_CORE_INJECT_RUN_H

#include "clattn/clattn.h"

/* What a call that is made to fail answers. */
#define INJECT_CODE CL_OUT_OF_RESOURCES
#define INJECT_CODE_NAME "CL_OUT_OF_RESOURCES"

typedef struct inject_scenario {
    clattn_context_params params;
    /* Makes, uses and releases plans on `context`; the first failing status, or SUCCESS after right results. */
    clattn_status (*use)(clattn_context *context);
    unsigned stride;   /* make each stride-th call fail: 1 is all of them */
    unsigned attempts; /* not 0: this many calls at equal distances, and `stride` is ignored */
} inject_scenario;

/* Every stride-th, or on a simulator few; no CLBlast, which calls OpenCL by itself. */
inject_scenario inject_scenario_of(clattn_status (*use)(clattn_context *), int32_t cache_mode);

/* Whatever fails, the status is a clean one whose message names the call or its code, every reference comes back, and the
 * same context works again. */
void inject_run(const inject_scenario *scenario);

/* The status is one that a failing call may give, and the message of `context` (NULL: the thread's) says which call. */
void inject_check_message(const clattn_context *context, clattn_status status);

#endif
