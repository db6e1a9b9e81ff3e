/* The one lock around CLBlast, and how many plans use it.
 *
 * CLBlast's calls race in versions before 1.6.1, hence the lock.  Its cache of compiled programs belongs to the process, hence
 * the count: the last plan that goes clears it.  An application's own calls of CLBlast do not take the lock.
 *
 * A call that compiles holds the lock for seconds.  Such calls are made while a plan is made, so that an enqueue of another
 * CLBlast plan in another thread waits for them.  No other enqueue ever waits; matmul.h tells the user. */
#ifndef CLATTN_OPS_MATMUL_CLBLAST_LIBRARY_H
#define CLATTN_OPS_MATMUL_CLBLAST_LIBRARY_H

/* Adds and removes a user; the last one to leave clears CLBlast's cache. */
void clblast_library_enter(void);
void clblast_library_leave(void);

/* Every call into CLBlast is made between these two, by a user. */
void clblast_library_lock(void);
void clblast_library_unlock(void);

#endif
