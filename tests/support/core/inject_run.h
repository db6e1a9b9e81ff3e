/* Runs of a use of the library in each of which another call of OpenCL or of the system is made to fail. */
#ifndef TESTS_SUPPORT_CORE_INJECT_RUN_H
#define TESTS_SUPPORT_CORE_INJECT_RUN_H

#include "clattn/clattn.h"
#include "support/core/inject.h"

/* The code of OpenCL calls that are made to fail. */
#define INJECT_CODE CL_OUT_OF_RESOURCES
#define INJECT_CODE_NAME "CL_OUT_OF_RESOURCES"

/* How one attempt fails. */
typedef struct inject_failure {
    enum inject_layer layer;
    unsigned long number; /* the call that fails, 1 is the first; 0: none */
    bool onward;          /* all after it fail, too */
} inject_failure;

/* Begins to count, and to fail in that way. */
void inject_begin_failure(inject_failure how);

/* Calls attempt(what, how) for calls that the attempt with number 0 made, which is the first and the last one: each
 * `stride`-th of them, and, unless that is 1, of each place the last.  Prints how many there were, under `name`. */
void inject_each(const char *name, inject_failure how, unsigned stride, void (*attempt)(void *what, inject_failure how),
                 void *what);

/* inject_each for calls of the system, by themselves and with all after them: in the full run each call in both
 * ways. Otherwise the first call by itself, and the last with all after it, of each place that this function has not
 * yet had, because most places are shared, at the levels tiny and quick one of the two; and a few more. */
void inject_each_system(const char *name, void (*attempt)(void *what, inject_failure how), void *what);

typedef struct inject_scenario {
    clattn_context_params params;
    /* Makes, uses and releases plans on `context`; returns the first failing status, or SUCCESS if results are
     * right. */
    clattn_status (*use)(clattn_context *context);
    unsigned stride;   /* make each stride-th call of OpenCL fail: 1 is all of them */
    unsigned attempts; /* unless 0: fail this many of them at equal distances instead */
    bool empty_cache;  /* each attempt has a cache folder of its own in params.cache_dir's place */
} inject_scenario;

/* Makes a scenario with a default stride, which is large on simulators, and without CLBlast, which calls OpenCL by
 * itself. */
inject_scenario inject_scenario_of(clattn_status (*use)(clattn_context *), int32_t cache_mode);

/* Fails the test unless, whichever call fails, the status is proper and its message names the call or its code, every
 * reference comes back, and the same context works again. */
void inject_run(const inject_scenario *scenario);

/* Gives the context (NULL: the thread) a message which inject_check_message does not take for one of a failure. */
void inject_refuse(clattn_context *context);

/* Fails the test unless the status is one that a failing call of the layer may give and the message of `context` (NULL:
 * the thread's) says so: of OpenCL it names the call. */
void inject_check_message(enum inject_layer layer, const clattn_context *context, clattn_status status);

/* The same of a message that is kept elsewhere, as a job's is. */
void inject_check_text(enum inject_layer layer, const char *message, clattn_status status);

/* Fails the test unless everything that the library took has come back. */
void inject_check_balance(inject_failure how);

#endif
