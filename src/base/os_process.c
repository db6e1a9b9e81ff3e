#define _GNU_SOURCE /* secure_getenv */
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/os.h"

long os_process_id(void)
{
    return (long)getpid();
}

void os_thread_block_signals(void)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT};
    sigset_t blocked;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
        sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_BLOCK, &blocked, NULL);
}

uint64_t os_time(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

const char *os_environment(const char *name)
{
#ifdef __APPLE__
    const char *value = issetugid() ? NULL : getenv(name);
#else
    const char *value = secure_getenv(name);
#endif
    return value && value[0] ? value : NULL;
}

bool os_user_cache(struct strbuf *path, const char **reason)
{
    const char *base = os_environment("XDG_CACHE_HOME"), *home = os_environment("HOME");
    if (base && base[0] == '/') /* the XDG specification: a relative path is to be ignored */
        strbuf_printf(path, "%s", base);
    else if (home)
        strbuf_printf(path, "%s/.cache", home);
    else
        *reason = "neither XDG_CACHE_HOME nor HOME is set";
    return home || (base && base[0] == '/');
}

void *os_library_open(const char *name)
{
    return dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

void *os_library_symbol(void *library, const char *name)
{
    return dlsym(library, name);
}
