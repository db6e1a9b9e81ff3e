#include "ops/matmul/clblast/library.h"

#include <clblast_c.h>
#include <stdbool.h>
#include <threads.h>

static once_flag once = ONCE_FLAG_INIT;
static mtx_t lock;
static bool usable;
static unsigned users;

static void start(void)
{
    usable = mtx_init(&lock, mtx_plain) == thrd_success;
}

clattn_status clblast_library_enter(void)
{
    call_once(&once, start);
    if (!usable)
        return CLATTN_ERROR_OUT_OF_MEMORY;
    mtx_lock(&lock);
    users++;
    mtx_unlock(&lock);
    return CLATTN_SUCCESS;
}

void clblast_library_leave(void)
{
    mtx_lock(&lock);
    if (--users == 0)
        CLBlastClearCache();
    mtx_unlock(&lock);
}

void clblast_library_lock(void)
{
    mtx_lock(&lock);
}

void clblast_library_unlock(void)
{
    mtx_unlock(&lock);
}
