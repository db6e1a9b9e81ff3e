#include "ops/matmul/clblast/library.h"

#include <clblast_c.h>
#include <threads.h>

#include "ops/matmul/clblast/objects.h"

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
    if (--users == 0) {
        CLBlastClearCache();
        clblast_objects_clear();
    }
    mtx_unlock(&lock);
}

bool clblast_library_alone(void)
{
    return users == 1;
}

void clblast_library_lock(void)
{
    mtx_lock(&lock);
}

void clblast_library_unlock(void)
{
    mtx_unlock(&lock);
}
