#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
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

const char *os_environment(const char *name)
{
    const char *value = secure_getenv(name);
    return value && value[0] ? value : NULL;
}

void *os_library_open(const char *name)
{
    return dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

void *os_library_symbol(void *library, const char *name)
{
    return dlsym(library, name);
}
