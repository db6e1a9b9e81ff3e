#include "clattn/status.h"
#include "clattn/version.h"

const char *clattn_status_string(clattn_status status)
{
    switch (status) {
    case CLATTN_SUCCESS: return "success";
    case CLATTN_ERROR_INVALID_ARGUMENT: return "invalid argument";
    case CLATTN_ERROR_INVALID_STRUCT: return "a struct of unknown size";
    case CLATTN_ERROR_INVALID_LAYOUT: return "invalid layout";
    case CLATTN_ERROR_OVERFLOW: return "a size overflows";
    case CLATTN_ERROR_UNSUPPORTED: return "unsupported";
    case CLATTN_ERROR_OUT_OF_MEMORY: return "out of memory";
    case CLATTN_ERROR_NO_OPENCL: return "no OpenCL platform";
    case CLATTN_ERROR_NO_DEVICE: return "no such device";
    case CLATTN_ERROR_OPENCL: return "an OpenCL call failed";
    case CLATTN_ERROR_BUILD: return "a kernel did not build";
    case CLATTN_ERROR_WRONG_CONTEXT: return "an object of another OpenCL context";
    case CLATTN_ERROR_BUFFER_TOO_SMALL: return "a buffer is too small";
    case CLATTN_ERROR_BUFFER_ACCESS: return "a buffer does not allow the access";
    case CLATTN_ERROR_BUSY: return "the workspace pool is full, or a job is not complete";
    case CLATTN_ERROR_FORKED: return "the context belongs to the parent process";
    case CLATTN_ERROR_IO: return "input or output failed";
    case CLATTN_ERROR_FORMAT: return "malformed file";
    case CLATTN_ERROR_MISCOMPILED: return "a kernel's self-check failed";
    case CLATTN_ERROR_INTERNAL: return "internal error";
    case CLATTN_ERROR_CANCELLED: return "cancelled";
    case CLATTN_ERROR_GROUP: return "another rank of a group failed";
    case CLATTN_STATUS_FORCE_32BIT: break;
    }
    return "unknown status";
}

int clattn_version(void)
{
    return CLATTN_VERSION;
}

const char *clattn_version_string(void)
{
    return CLATTN_VERSION_STRING;
}
