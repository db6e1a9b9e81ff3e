#include "ops/matmul/clblast/library.h"

#include <clblast_c.h>

#include "base/os/os_threads.h"

static mtx_t lock = MTX_INIT;
static unsigned users;

void clblast_library_enter(void)
{
    mtx_lock(&lock);
    users++;
    mtx_unlock(&lock);
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
