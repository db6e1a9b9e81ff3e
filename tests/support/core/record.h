/* A table of OpenCL functions that notes which commands are enqueued, which memory each may touch, and which commands each
 * waits for.
 *
 * With it a test sees what an application that shares memory with OpenGL, Vulkan or a camera relies on: between the events of
 * its acquire and its release commands lies everything that touches the memory. */
#ifndef TESTS_SUPPORT_CORE_RECORD_H
#define TESTS_SUPPORT_CORE_RECORD_H

#include "support/check.h"

/* For clattn_context_params.get_proc. */
void *record_get_proc(void *user, const char *name);

/* Forgets all commands.  From now on those that touch one of `count` memories are told apart; `acquired` is the event that
 * allows to touch them. */
void record_begin(const cl_mem *memory, size_t count, cl_event acquired);

/* How many commands have touched the memories since, and how many of them could have run before `acquired` was complete, or
 * still run when `done` is. */
typedef struct recorded {
    unsigned touching, early, late;
} recorded;
recorded record_end(cl_event done);

#endif
