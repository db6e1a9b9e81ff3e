/* Linked with a test program, this makes its device one that allows no buffers of more than 16 KiB, as far as it says. */
#define _GNU_SOURCE /* RTLD_DEFAULT */
#include <dlfcn.h>
#include <string.h>

#include "support/device.h"

static cl_int CL_API_CALL device_info(cl_device_id device, cl_device_info what, size_t bytes, void *value,
                                      size_t *needed)
{
    const cl_ulong largest = 16384;
    const cl_int code = clGetDeviceInfo(device, what, bytes, value, needed);
    if (what == CL_DEVICE_MAX_MEM_ALLOC_SIZE && code == CL_SUCCESS && value)
        memcpy(value, &largest, sizeof largest);
    return code;
}

static void *get_proc(void *user, const char *name)
{
    __typeof__(&clGetDeviceInfo) mine = device_info;
    void *function = dlsym(RTLD_DEFAULT, name);
    (void)user;
    if (!strcmp(name, "clGetDeviceInfo"))
        memcpy(&function, &mine, sizeof function);
    return function;
}

__attribute__((constructor)) static void begin(void)
{
    device_use_functions(get_proc);
}
