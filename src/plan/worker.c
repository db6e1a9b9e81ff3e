#include "plan/worker.h"

#include <stdlib.h>

#include "base/os.h"
#include "base/os/os_threads.h"
#include "base/report.h"

struct worker {
    mtx_t lock;   /* guards all members below */
    cnd_t wanted; /* there is a task, `wakes` or `stops` */
    struct task *first, **last;
    bool (*idle)(void *data);
    void *data;
    bool wakes;      /* `idle` is to be called */
    bool stops;      /* the thread is to end */
    bool runs;       /* the thread has been started */
    bool frees_self; /* the thread stops its own worker, and frees it when it ends */
    thrd_t thread;
};

/* The worker whose thread this is, or NULL. */
static _Thread_local const struct worker *thread_worker;

clattn_status worker_new(bool (*idle)(void *data), void *data, struct worker **result)
{
    struct worker *worker = calloc(1, sizeof *worker);
    *result = NULL;
    if (worker && mtx_init(&worker->lock, mtx_plain) == thrd_success) {
        if (cnd_init(&worker->wanted) == thrd_success) {
            worker->last = &worker->first;
            worker->idle = idle;
            worker->data = data;
            *result = worker;
            return CLATTN_SUCCESS;
        }
        mtx_destroy(&worker->lock);
    }
    free(worker);
    return report_error(NULL, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a lock");
}

static void destroy(struct worker *worker)
{
    cnd_destroy(&worker->wanted);
    mtx_destroy(&worker->lock);
    free(worker);
}

/* Takes the first task off; the caller holds the lock. */
static struct task *take(struct worker *worker)
{
    struct task *task = worker->first;
    worker->first = task->next;
    if (!worker->first)
        worker->last = &worker->first;
    return task;
}

static int work(void *data)
{
    struct worker *worker = data;
    thread_worker = worker;
    os_thread_block_signals();
    mtx_lock(&worker->lock);
    while (!worker->stops) {
        if (worker->first) {
            struct task *task = take(worker);
            mtx_unlock(&worker->lock);
            task->run(task);
            mtx_lock(&worker->lock);
        } else if (worker->wakes) {
            worker->wakes = false;
            mtx_unlock(&worker->lock);
            const bool more = worker->idle(worker->data);
            mtx_lock(&worker->lock);
            worker->wakes |= more;
        } else {
            cnd_wait(&worker->wanted, &worker->lock);
        }
    }
    const bool frees_self = worker->frees_self;
    mtx_unlock(&worker->lock);
    if (frees_self)
        destroy(worker);
    return 0;
}

/* Starts the thread unless it runs; the caller holds the lock. */
static bool start(struct worker *worker)
{
    if (!worker->runs)
        worker->runs = thrd_create(&worker->thread, work, worker) == thrd_success;
    return worker->runs;
}

clattn_status worker_add(struct worker *worker, struct task *task)
{
    mtx_lock(&worker->lock);
    const bool started = start(worker);
    if (started) {
        task->next = NULL;
        *worker->last = task;
        worker->last = &task->next;
        cnd_signal(&worker->wanted);
    }
    mtx_unlock(&worker->lock);
    return started ? CLATTN_SUCCESS : CLATTN_ERROR_OUT_OF_MEMORY;
}

bool worker_wake(struct worker *worker)
{
    mtx_lock(&worker->lock);
    const bool started = start(worker);
    worker->wakes = true;
    cnd_signal(&worker->wanted);
    mtx_unlock(&worker->lock);
    return started;
}

bool worker_is_current(const struct worker *worker)
{
    return thread_worker == worker;
}

void worker_stop(struct worker **handle, bool foreign)
{
    struct worker *worker = *handle;
    *handle = NULL;
    if (!worker)
        return;
    if (foreign) {
        free(worker); /* the child has no such thread, and may not destroy what that thread waits for */
        return;
    }
    const bool self = worker_is_current(worker);
    mtx_lock(&worker->lock);
    const bool runs = worker->runs;
    worker->stops = true;
    worker->frees_self = self;
    cnd_signal(&worker->wanted);
    mtx_unlock(&worker->lock);
    if (self) {
        thrd_detach(worker->thread); /* the handle was there before start() gave the lock to this thread */
        return;
    }
    if (runs)
        thrd_join(worker->thread, NULL);
    destroy(worker);
}
