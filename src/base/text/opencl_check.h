/* The outcome of an OpenCL call as a status, for code over the public API, which has no report. */
#ifndef CLATTN_BASE_TEXT_OPENCL_CHECK_H
#define CLATTN_BASE_TEXT_OPENCL_CHECK_H

#include <stdbool.h>
#include <stdio.h>

#include "clattn/context.h"
#include "clattn/plan.h"

/* Writes to `message` which call has failed, if it has. */
static inline clattn_status opencl_check(const char *call, cl_int code, char *message, size_t bytes)
{
    if (code == CL_SUCCESS)
        return CLATTN_SUCCESS;
    snprintf(message, bytes, "%s failed with OpenCL error %d", call, (int)code);
    return code == CL_MEM_OBJECT_ALLOCATION_FAILURE || code == CL_OUT_OF_RESOURCES || code == CL_OUT_OF_HOST_MEMORY
               ? CLATTN_ERROR_OUT_OF_MEMORY
               : CLATTN_ERROR_OPENCL;
}

/* Whether this process is the child of a fork, in which OpenCL may not be called any more. */
static inline bool context_is_of_another_process(const clattn_context *context)
{
    clattn_program_statistics statistics = {.size = sizeof statistics};
    return clattn_context_program_statistics(context, &statistics) == CLATTN_ERROR_FORKED;
}

#endif
