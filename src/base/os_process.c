#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/os.h"

long os_process_id(void)
{
    return (long)getpid();
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
