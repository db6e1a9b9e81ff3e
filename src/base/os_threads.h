/* Mutexes, condition variables and threads, by POSIX or by Windows: what this project uses of C11's <threads.h>, which
 * macOS and Windows lack, and glibc before 2.28.
 *
 * Names and results are C11's, except for MTX_INIT and CND_INIT, which initialise static objects, and cnd_wait_seconds.  All mutexes
 * are plain.  What fails only if it is used wrongly returns nothing. */
#ifndef CLATTN_BASE_OS_THREADS_H
#define CLATTN_BASE_OS_THREADS_H

#include <stdint.h>
#include <stdlib.h>

#ifdef _WIN32
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#include <windows.h>
/* Names that this project uses as well. */
#undef near
#undef far
#else
#include <pthread.h>
#include <time.h>
#endif

enum { mtx_plain };
enum { thrd_success, thrd_error };
typedef int (*thrd_start_t)(void *user);

/* What a new thread is to do. */
struct thrd_start {
    thrd_start_t function;
    void *user;
};

#ifdef _WIN32

typedef SRWLOCK mtx_t;
typedef CONDITION_VARIABLE cnd_t;
typedef HANDLE thrd_t;

#define MTX_INIT SRWLOCK_INIT
#define CND_INIT CONDITION_VARIABLE_INIT

static inline int mtx_init(mtx_t *mutex, int kind)
{
    (void)kind;
    InitializeSRWLock(mutex);
    return thrd_success;
}

static inline void mtx_destroy(mtx_t *mutex)
{
    (void)mutex;
}

static inline void mtx_lock(mtx_t *mutex)
{
    AcquireSRWLockExclusive(mutex);
}

static inline int mtx_trylock(mtx_t *mutex)
{
    return TryAcquireSRWLockExclusive(mutex) ? thrd_success : thrd_error;
}

static inline void mtx_unlock(mtx_t *mutex)
{
    ReleaseSRWLockExclusive(mutex);
}

static inline int cnd_init(cnd_t *condition)
{
    InitializeConditionVariable(condition);
    return thrd_success;
}

static inline void cnd_destroy(cnd_t *condition)
{
    (void)condition;
}

static inline void cnd_signal(cnd_t *condition)
{
    WakeConditionVariable(condition);
}

static inline void cnd_broadcast(cnd_t *condition)
{
    WakeAllConditionVariable(condition);
}

static inline void cnd_wait(cnd_t *condition, mtx_t *mutex)
{
    SleepConditionVariableSRW(condition, mutex, INFINITE, 0);
}

/* Waits for a signal, for that many seconds at most. */
static inline void cnd_wait_seconds(cnd_t *condition, mtx_t *mutex, double seconds)
{
    SleepConditionVariableSRW(condition, mutex, (DWORD)(seconds * 1e3), 0);
}

static inline DWORD WINAPI thrd_run(void *user)
{
    const struct thrd_start start = *(struct thrd_start *)user;
    free(user);
    return (DWORD)start.function(start.user);
}

static inline int thrd_create(thrd_t *thread, thrd_start_t function, void *user)
{
    struct thrd_start *start = malloc(sizeof *start);
    if (!start)
        return thrd_error;
    *start = (struct thrd_start){function, user};
    *thread = CreateThread(NULL, 0, thrd_run, start, 0, NULL);
    if (!*thread)
        free(start);
    return *thread ? thrd_success : thrd_error;
}

static inline int thrd_join(thrd_t thread, int *result)
{
    DWORD code = 0;
    const BOOL ended = WaitForSingleObject(thread, INFINITE) == WAIT_OBJECT_0 && GetExitCodeThread(thread, &code);
    CloseHandle(thread);
    if (result)
        *result = (int)code;
    return ended ? thrd_success : thrd_error;
}

static inline void thrd_detach(thrd_t thread)
{
    CloseHandle(thread);
}

#else

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
