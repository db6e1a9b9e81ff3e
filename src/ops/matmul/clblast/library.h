/* The one lock around CLBlast: its calls race in versions before 1.6.1, and its cache of compiled programs is
 * the process's, so it is cleared when the last of our users leaves.  An application's own CLBlast calls are
 * not serialised with ours.
 *
 * A call that compiles holds it for seconds.  Those are made while a plan is made, so an enqueue of another
 * CLBlast plan in another thread waits for them: the one place where an enqueue may wait, which matmul.h
 * says. */
#ifndef CLATTN_OPS_MATMUL_CLBLAST_LIBRARY_H
#define CLATTN_OPS_MATMUL_CLBLAST_LIBRARY_H

#include <stdbool.h>

#include "clattn/status.h"

/* Counts a user in or out; the last one out clears CLBlast's cache. */
clattn_status clblast_library_enter(void);
void clblast_library_leave(void);

/* Whether there is but one user; hold the lock. */
bool clblast_library_alone(void);

/* Hold it over every call into CLBlast; only between enter and leave. */
void clblast_library_lock(void);
void clblast_library_unlock(void);

#endif
