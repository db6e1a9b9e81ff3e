#include "os_windows.h" /* named from here, because the tests compile this file, too */

#include "os_threads.h"

_Static_assert(sizeof(mtx_t) == sizeof(SRWLOCK) && sizeof(cnd_t) == sizeof(CONDITION_VARIABLE) &&
                   sizeof(thrd_t) == sizeof(HANDLE),
               "the header's types stand for Windows' own");

/* What a new thread is to do. */
struct thrd_start {
    thrd_start_t function;
    void *user;
};

static SRWLOCK *lock_of(mtx_t *mutex)
{
    return (SRWLOCK *)mutex;
}

static CONDITION_VARIABLE *condition_of(cnd_t *condition)
{
    return (CONDITION_VARIABLE *)condition;
}

int mtx_init(mtx_t *mutex, int kind)
{
    (void)kind;
    InitializeSRWLock(lock_of(mutex));
    return thrd_success;
}

void mtx_destroy(mtx_t *mutex)
{
    (void)mutex;
}

void mtx_lock(mtx_t *mutex)
{
    AcquireSRWLockExclusive(lock_of(mutex));
}

int mtx_trylock(mtx_t *mutex)
{
    return TryAcquireSRWLockExclusive(lock_of(mutex)) ? thrd_success : thrd_error;
}

void mtx_unlock(mtx_t *mutex)
{
    ReleaseSRWLockExclusive(lock_of(mutex));
}

int cnd_init(cnd_t *condition)
{
    InitializeConditionVariable(condition_of(condition));
    return thrd_success;
}

void cnd_destroy(cnd_t *condition)
{
    (void)condition;
}

void cnd_signal(cnd_t *condition)
{
    WakeConditionVariable(condition_of(condition));
}

void cnd_broadcast(cnd_t *condition)
{
    WakeAllConditionVariable(condition_of(condition));
}

void cnd_wait(cnd_t *condition, mtx_t *mutex)
{
    SleepConditionVariableSRW(condition_of(condition), lock_of(mutex), INFINITE, 0);
}

void cnd_wait_seconds(cnd_t *condition, mtx_t *mutex, double seconds)
{
    SleepConditionVariableSRW(condition_of(condition), lock_of(mutex), (DWORD)(seconds * 1e3), 0);
}

static DWORD WINAPI thrd_run(void *user)
{
    const struct thrd_start start = *(struct thrd_start *)user;
    free(user);
    return (DWORD)start.function(start.user);
}

int thrd_create(thrd_t *thread, thrd_start_t function, void *user)
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

int thrd_join(thrd_t thread, int *result)
{
    DWORD code = 0;
    const BOOL ended = WaitForSingleObject(thread, INFINITE) == WAIT_OBJECT_0 && GetExitCodeThread(thread, &code);
    CloseHandle(thread);
    if (result)
        *result = (int)code;
    return ended ? thrd_success : thrd_error;
}

void thrd_detach(thrd_t thread)
{
    CloseHandle(thread);
}
