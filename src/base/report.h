/* Failures and log lines: a context's message and log callback, or the thread's message. */
#ifndef CLATTN_BASE_REPORT_H
#define CLATTN_BASE_REPORT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/os/os_threads.h"
#include "base/printf_like.h"
#include "clattn/context.h"

/* The last failure's message of one thread. */
struct message;

/* A context's messages and log callback.  Thread-safe. */
struct report {
    mtx_t lock;
    uint64_t since;           /* when it was made: another report may have its address later */
    struct message *messages; /* of the threads that have failed, the latest first */
    clattn_log_callback log;
    void *log_user;
    clattn_log_level level;
};

clattn_status report_init(struct report *report, clattn_log_callback log, void *user, clattn_log_level level);
void report_clear(struct report *report);

/* Stores the message for the calling thread (if report is NULL, as the thread's message without a context), logs it,
 * and returns `status`.  Without memory for the message, clattn_status_string(status) takes its place. */
clattn_status report_error(struct report *report, clattn_status status, const char *format, ...) PRINTF_LIKE(3, 4);

/* Reports a failed OpenCL call; the status is OUT_OF_MEMORY for the codes that mean it, otherwise OPENCL. */
clattn_status report_opencl(struct report *report, const char *call, int code);

/* Logs a line if a callback wants that level. */
void report_log(struct report *report, clattn_log_level level, const char *format, ...) PRINTF_LIKE(3, 4);

/* Makes this thread's later messages on contexts begin with `about`, a static string, and a colon; NULL: with nothing.  Returns what
 * they began with. */
const char *report_about(const char *about);

/* report_hold holds this thread's log lines; the report_deliver that matches the outermost report_hold delivers them
 * in order.  Code that holds a lock runs between the two, so that a callback runs with no lock held and may ask the
 * library anything.  The reports must live until the delivery. */
void report_hold(void);
void report_deliver(void);

/* Whether this thread's latest failure was a lack of host memory: another solver would fail the same way. */
bool report_host_memory(void);

/* Copies the message of the calling thread's last failure, with snprintf's contract. */
size_t report_copy(struct report *report, char *buffer, size_t bytes);

/* "CL_INVALID_VALUE" for -30, …; "an unknown code" otherwise. */
const char *opencl_code_name(int code);

#endif
