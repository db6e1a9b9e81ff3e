/* Error propagation: every function with something to undo has one label, `fail:`.  Functions that read a description have
 * nothing to undo, and refuse it with REQUIRE. */
#ifndef CLATTN_BASE_TRY_H
#define CLATTN_BASE_TRY_H

#include "clattn/status.h"

/* Evaluates a clattn_status; on failure stores it in the local `status` and jumps to `fail`. */
#define TRY(expression) \
    do { \
        status = (expression); \
        if (status != CLATTN_SUCCESS) \
            goto fail; \
    } while (0)

/* Evaluates an OpenCL call that returns its code; on failure reports `name` with it and jumps to `fail`. */
#define TRY_CL(report, name, expression) \
    do { \
        cl_int code_ = (expression); \
        if (code_ != CL_SUCCESS) { \
            status = report_opencl((report), (name), code_); \
            goto fail; \
        } \
    } while (0)

/* Refuses a description unless `condition` holds: returns `status`, with the static string `text` as the reason, from a
 * function that has the parameter `const char **reason`. */
#define REQUIRE(condition, status, text) \
    do { \
        if (!(condition)) { \
            *reason = (text); \
            return (status); \
        } \
    } while (0)

#endif
