/* A thread that works in the background: it runs tasks in their order, and does something else when there are none.  The
 * first task starts it. */
#ifndef CLATTN_PLAN_WORKER_H
#define CLATTN_PLAN_WORKER_H

#include <stdbool.h>

#include "clattn/status.h"

/* One piece of work, the first member of a struct that has more to say.  `run` is called once, with no lock held, and
 * may free the task. */
struct task {
    struct task *next;
    void (*run)(struct task *task);
};

/* Thread-safe. */
struct worker;

/* Makes a worker.  After worker_wake its thread calls idle(data) whenever there is no task, until that returns false. */
clattn_status worker_new(bool (*idle)(void *data), void *data, struct worker **worker);

/* Adds a task behind the others; OUT_OF_MEMORY if the thread could not be started. */
clattn_status worker_add(struct worker *worker, struct task *task);

/* Has the thread call `idle` again; false if the thread could not be started. */
bool worker_wake(struct worker *worker);

/* Whether the calling thread is the worker's. */
bool worker_is_current(const struct worker *worker);

/* Ends the thread, and waits until it has ended, which takes no longer than the call of `idle` that it is in, or the
 * end of a task that has dropped its last reference to the worker's owner.  The
 * thread itself may stop its worker from a task: it then ends after that task.  There may be no other task.  In the
 * child of a fork (`foreign`) only memory is freed.  Sets *worker to NULL; accepts a pointer to NULL. */
void worker_stop(struct worker **worker, bool foreign);

#endif
