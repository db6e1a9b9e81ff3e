/* An OpenCL driver that ends the process as soon as it is asked for its platforms, as broken ones do. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

cl_int CL_API_CALL clIcdGetPlatformIDsKHR(cl_uint room, cl_platform_id *platforms, cl_uint *count);

cl_int CL_API_CALL clIcdGetPlatformIDsKHR(cl_uint room, cl_platform_id *platforms, cl_uint *count)
{
    (void)room;
    (void)platforms;
    (void)count;
    if (getenv("CRASHING_ICD_SEGV"))
        raise(SIGSEGV);
    abort();
}

CL_API_ENTRY void *CL_API_CALL clGetExtensionFunctionAddress(const char *name)
{
    void *found = NULL;
    if (!strcmp(name, "clIcdGetPlatformIDsKHR")) {
        cl_int(CL_API_CALL * function)(cl_uint, cl_platform_id *, cl_uint *) = clIcdGetPlatformIDsKHR;
        memcpy(&found, &function, sizeof found);
    }
    return found;
}

CL_API_ENTRY cl_int CL_API_CALL clGetPlatformInfo(cl_platform_id platform, cl_platform_info query, size_t bytes,
                                                  void *value, size_t *size)
{
    (void)platform;
    (void)query;
    (void)bytes;
    (void)value;
    (void)size;
    return CL_INVALID_PLATFORM;
}
