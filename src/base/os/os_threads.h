/* Mutexes, condition variables and threads, by POSIX or by Windows: what this project uses of C11's <threads.h>, which
 * macOS and Windows lack, and glibc before 2.28.
 *
 * Names and results are C11's, except for MTX_INIT and CND_INIT, which initialise static objects, and cnd_wait_seconds.
 * All mutexes are plain.  What fails only if it is used wrongly returns nothing. */
#ifndef CLATTN_BASE_OS_THREADS_H
#define CLATTN_BASE_OS_THREADS_H

enum { mtx_plain };
enum { thrd_success, thrd_error };
typedef int (*thrd_start_t)(void *user);

#ifdef _WIN32

#include <stddef.h>

/* Windows' own types, in whose place these are, would bring all of <windows.h> along. */
typedef struct mtx_t {
    void *lock; /* an SRWLOCK */
} mtx_t;
typedef struct cnd_t {
    void *condition; /* a CONDITION_VARIABLE */
} cnd_t;
typedef void *thrd_t;

#define MTX_INIT {NULL}
#define CND_INIT {NULL}

int mtx_init(mtx_t *mutex, int kind);
void mtx_destroy(mtx_t *mutex);
void mtx_lock(mtx_t *mutex);
int mtx_trylock(mtx_t *mutex);
void mtx_unlock(mtx_t *mutex);
int cnd_init(cnd_t *condition);
void cnd_destroy(cnd_t *condition);
void cnd_signal(cnd_t *condition);
void cnd_broadcast(cnd_t *condition);
void cnd_wait(cnd_t *condition, mtx_t *mutex);
/* Waits for a signal, for that many seconds at most. */
void cnd_wait_seconds(cnd_t *condition, mtx_t *mutex, double seconds);
int thrd_create(thrd_t *thread, thrd_start_t function, void *user);
int thrd_join(thrd_t thread, int *result);
void thrd_detach(thrd_t thread);

#else

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

/* Inline, because libc has functions of these names. */
typedef pthread_mutex_t mtx_t;
typedef pthread_cond_t cnd_t;
typedef pthread_t thrd_t;

#define MTX_INIT PTHREAD_MUTEX_INITIALIZER
#define CND_INIT PTHREAD_COND_INITIALIZER

static inline int mtx_init(mtx_t *mutex, int kind)
{
    (void)kind;
    return pthread_mutex_init(mutex, NULL) == 0 ? thrd_success : thrd_error;
}

static inline void mtx_destroy(mtx_t *mutex)
{
    pthread_mutex_destroy(mutex);
}

static inline void mtx_lock(mtx_t *mutex)
{
    pthread_mutex_lock(mutex);
}

static inline int mtx_trylock(mtx_t *mutex)
{
    return pthread_mutex_trylock(mutex) == 0 ? thrd_success : thrd_error;
}

static inline void mtx_unlock(mtx_t *mutex)
{
    pthread_mutex_unlock(mutex);
}

static inline int cnd_init(cnd_t *condition)
{
    return pthread_cond_init(condition, NULL) == 0 ? thrd_success : thrd_error;
}

static inline void cnd_destroy(cnd_t *condition)
{
    pthread_cond_destroy(condition);
}

static inline void cnd_signal(cnd_t *condition)
{
    pthread_cond_signal(condition);
}

static inline void cnd_broadcast(cnd_t *condition)
{
    pthread_cond_broadcast(condition);
}

static inline void cnd_wait(cnd_t *condition, mtx_t *mutex)
{
    pthread_cond_wait(condition, mutex);
}

/* Waits for a signal, for that many seconds at most. */
static inline void cnd_wait_seconds(cnd_t *condition, mtx_t *mutex, double seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    const double nanoseconds = (double)until.tv_nsec + seconds * 1e9;
    until.tv_sec += (time_t)(nanoseconds / 1e9);
    until.tv_nsec = (long)(nanoseconds - (double)(time_t)(nanoseconds / 1e9) * 1e9);
    pthread_cond_timedwait(condition, mutex, &until);
}

/* What a new thread is to do. */
struct thrd_start {
    thrd_start_t function;
    void *user;
};

static inline void *thrd_run(void *user)
{
    const struct thrd_start start = *(struct thrd_start *)user;
    free(user);
    return (void *)(intptr_t)start.function(start.user);
}

static inline int thrd_create(thrd_t *thread, thrd_start_t function, void *user)
{
    struct thrd_start *start = malloc(sizeof *start);
    if (!start)
        return thrd_error;
    *start = (struct thrd_start){function, user};
    const int trouble = pthread_create(thread, NULL, thrd_run, start);
    if (trouble)
        free(start);
    return trouble ? thrd_error : thrd_success;
}

static inline int thrd_join(thrd_t thread, int *result)
{
    void *code = NULL;
    const int trouble = pthread_join(thread, &code);
    if (result)
        *result = (int)(intptr_t)code;
    return trouble ? thrd_error : thrd_success;
}

static inline void thrd_detach(thrd_t thread)
{
    pthread_detach(thread);
}

#endif
#endif
