/* A table of OpenCL functions, that of core/inject.h, whose builds can be held at a gate, so that a test knows where
 * another thread is; and a hook that is called before each of the slow calls of making a plan. */
#ifndef TESTS_SUPPORT_PLAN_GATE_H
#define TESTS_SUPPORT_PLAN_GATE_H

#include "clattn/context.h"

/* A get_proc for clattn_context_params. */
void *gate_get_proc(void *user, const char *name);

/* Lets builds wait until gate_open; gate_await waits until one does. */
void gate_close(void);
void gate_await(void);
void gate_open(void);

/* The number of builds since the program began. */
unsigned long gate_builds(void);

/* Has `hook` called before each clBuildProgram, clCreateKernel, clEnqueueNDRangeKernel and clFinish; NULL: nothing. */
void gate_hook(void (*hook)(void));

#endif
