/** @file
 * Status codes: what functions return.
 */
#ifndef CLATTN_STATUS_H
#define CLATTN_STATUS_H

#include <stddef.h>

#include "export.h"

CLATTN_BEGIN_DECLS

/** What a function returns.
 *
 * OpenCL's own error codes never appear here: the message of the failure (clattn_context_message) has the code's name
 * and the call that returned it. Values are stable between versions. The other headers name statuses by their last
 * words, as in "Returns INVALID_ARGUMENT or OUT_OF_MEMORY"; SUCCESS goes without saying. */
typedef enum clattn_status {
    CLATTN_SUCCESS = 0,                 /**< all went well */
    CLATTN_ERROR_INVALID_ARGUMENT = 1,  /**< a NULL, an enum or a value that the function's contract excludes */
    CLATTN_ERROR_INVALID_STRUCT = 2,    /**< a struct's `size` is none that any version of it ever had */
    CLATTN_ERROR_INVALID_LAYOUT = 3,    /**< extents or strides contradict each other or the operator */
    CLATTN_ERROR_OVERFLOW = 4,          /**< a size does not fit its type or the kernels' index range */
    CLATTN_ERROR_UNSUPPORTED = 5,       /**< well formed, but no solver takes it here; the message says why */
    CLATTN_ERROR_OUT_OF_MEMORY = 6,     /**< the host or the device has no memory left */
    CLATTN_ERROR_NO_OPENCL = 7,         /**< no OpenCL loader or no platform; the message says what to install */
    CLATTN_ERROR_NO_DEVICE = 8,         /**< nothing matches the device that was asked for */
    CLATTN_ERROR_OPENCL = 9,            /**< an OpenCL call failed; the message has its name and code */
    CLATTN_ERROR_BUILD = 10,            /**< a kernel did not build; the message has the build log */
    CLATTN_ERROR_WRONG_CONTEXT = 11,    /**< a buffer, queue or event belongs to another OpenCL context */
    CLATTN_ERROR_BUFFER_TOO_SMALL = 12, /**< a layout reaches outside its buffer, or a workspace is too small */
    CLATTN_ERROR_BUFFER_ACCESS = 13,    /**< kernels may not write an output, or may not read an input */
    CLATTN_ERROR_BUSY = 14,             /**< the workspace pool is full, or a job is not complete: try again later */
    CLATTN_ERROR_FORKED = 15,           /**< the context was made before a fork, in another process */
    CLATTN_ERROR_IO = 16,               /**< a file could not be opened, read or written */
    CLATTN_ERROR_FORMAT = 17,           /**< a file's contents are not what its format allows */
    CLATTN_ERROR_MISCOMPILED = 18,      /**< a solver's self-check on this device disagreed with the reference */
    CLATTN_ERROR_INTERNAL = 19,         /**< the library broke a promise of its own: please report it */
    CLATTN_ERROR_CANCELLED =
        20, /**< the application cancelled a job (job.h) or a call (control.h) before it was complete */
    CLATTN_ERROR_GROUP = 21, /**< another rank of a group did not answer or disagrees; the message names it */
    CLATTN_STATUS_FORCE_32BIT = 0x7fffffff
} clattn_status;

/** Returns a short English description of `status`, a static string; "unknown status" for an unknown value.
 *
 * Thread-safe; never fails. */
CLATTN_API const char *clattn_status_string(clattn_status status);

CLATTN_END_DECLS

#endif
