#include "base/report.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cl.h"
#include "base/os.h"

#define MESSAGE_LIMIT (64 * 1024)
#define MESSAGES_KEPT 64 /* threads whose messages a context keeps; the oldest failure is dropped first */

struct message {
    struct message *next;
    const void *thread; /* the address of the thread's thread_report, */
    uint64_t since;     /* and its `since`: another thread may have that address later */
    clattn_status status;
    char *text; /* NULL if there was no memory for it: the status has words of its own */
};

struct line {
    struct line *next;
    clattn_log_callback log;
    void *user;
    clattn_log_level level;
    char text[];
};

/* A thread's own state, which belongs to no context. */
static _Thread_local struct {
    char message[1024];        /* of failures while there is no context */
    bool host_memory;          /* what report_host_memory returns */
    uint64_t since;            /* when the thread first failed, in nanoseconds; 0: it has not */
    const char *about;         /* what the messages of contexts begin with, or NULL */
    unsigned holds;            /* calls of report_hold that no report_deliver has matched */
    struct line *first, *last; /* log lines that are held */

    /* The latest failure for which there was no memory: the report, its `since`, and the status. */
    const struct report *lost_report;
    uint64_t lost_since;
    clattn_status lost;
} thread_report;

clattn_status report_init(struct report *report, clattn_log_callback log, void *user, clattn_log_level level)
{
    report->messages = NULL;
    report->since = os_time();
    report->log = log;
    report->log_user = user;
    report->level = level;
    return mtx_init(&report->lock, mtx_plain) == thrd_success
               ? CLATTN_SUCCESS
               : report_error(NULL, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a lock");
}

static void drop_message(struct message **place)
{
    struct message *message = *place;
    *place = message->next;
    free(message->text);
    free(message);
}

void report_clear(struct report *report)
{
    while (report->messages)
        drop_message(&report->messages);
    mtx_destroy(&report->lock);
}

static char *format_text(const char *format, va_list arguments)
{
    va_list again;
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, again);
    va_end(again);
    if (length < 0)
        return NULL;
    size_t bytes = (size_t)length < MESSAGE_LIMIT ? (size_t)length + 1 : MESSAGE_LIMIT;
    char *text = malloc(bytes);
    if (text)
        vsnprintf(text, bytes, format, arguments);
    return text;
}

/* Puts `about` and a colon before a text, which is taken over; without memory for it the text stays as it is. */
static char *with_beginning(const char *about, char *text)
{
    if (!about || !text)
        return text;
    const size_t bytes = strlen(about) + 2 + strlen(text) + 1;
    char *longer = malloc(bytes);
    if (!longer)
        return text;
    snprintf(longer, bytes, "%s: %s", about, text);
    free(text);
    return longer;
}

const char *report_about(const char *about)
{
    const char *before = thread_report.about;
    thread_report.about = about;
    return before;
}

/* Takes over the calling thread's message, puts it first in the list and drops the thread's old one; the caller
 * holds the lock.  Only the status remains if there is no memory for the message or its record. */
static void keep_message(struct report *report, clattn_status status, char *text)
{
    size_t kept = 0;
    if (!thread_report.since)
        thread_report.since = os_time();
    if (thread_report.lost_report == report)
        thread_report.lost_report = NULL;
    for (struct message **place = &report->messages; *place;) {
        if ((*place)->thread == &thread_report || ++kept == MESSAGES_KEPT)
            drop_message(place);
        else
            place = &(*place)->next;
    }
    struct message *message = malloc(sizeof *message);
    if (!message) {
        free(text);
        thread_report.lost_report = report;
        thread_report.lost_since = report->since;
        thread_report.lost = status;
        return;
    }
    *message = (struct message){report->messages, &thread_report, thread_report.since, status, text};
    report->messages = message;
}

/* The calling thread's message, or ""; the caller holds the lock. */
static const char *own_message(const struct report *report)
{
    if (thread_report.lost_report == report && thread_report.lost_since == report->since)
        return clattn_status_string(thread_report.lost);
    for (const struct message *message = report->messages; message; message = message->next)
        if (message->thread == &thread_report && message->since == thread_report.since)
            return message->text ? message->text : clattn_status_string(message->status);
    return "";
}

/* Holds a line until report_deliver; the line is lost if there is no memory for it. */
static void keep_line(const struct report *report, clattn_log_level level, const char *text)
{
    size_t bytes = strlen(text) + 1;
    struct line *line = malloc(sizeof *line + bytes);
    if (!line)
        return;
    *line = (struct line){.log = report->log, .user = report->log_user, .level = level};
    memcpy(line->text, text, bytes);
    if (thread_report.last)
        thread_report.last->next = line;
    else
        thread_report.first = line;
    thread_report.last = line;
}

static void log_line(struct report *report, clattn_log_level level, const char *text)
{
    if (!report || !report->log || level > report->level)
        return;
    if (thread_report.holds)
        keep_line(report, level, text);
    else
        report->log(report->log_user, level, text);
}

void report_hold(void)
{
    thread_report.holds++;
}

void report_deliver(void)
{
    if (--thread_report.holds)
        return;
    /* The list is emptied first, because a callback may log again. */
    struct line *line = thread_report.first;
    thread_report.first = thread_report.last = NULL;
    while (line) {
        struct line *next = line->next;
        line->log(line->user, line->level, line->text);
        free(line);
        line = next;
    }
}

bool report_host_memory(void)
{
    return thread_report.host_memory;
}

clattn_status report_error(struct report *report, clattn_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (report) {
        char *text = with_beginning(thread_report.about, format_text(format, arguments));
        log_line(report, CLATTN_LOG_LEVEL_ERROR, text ? text : clattn_status_string(status));
        mtx_lock(&report->lock);
        keep_message(report, status, text);
        mtx_unlock(&report->lock);
    } else if (vsnprintf(thread_report.message, sizeof thread_report.message, format, arguments) < 0) {
        snprintf(thread_report.message, sizeof thread_report.message, "%s", clattn_status_string(status));
    }
    va_end(arguments);
    thread_report.host_memory = status == CLATTN_ERROR_OUT_OF_MEMORY;
    return status;
}

void report_log(struct report *report, clattn_log_level level, const char *format, ...)
{
    if (!report || !report->log || level > report->level)
        return;
    va_list arguments;
    va_start(arguments, format);
    char *text = format_text(format, arguments);
    va_end(arguments);
    if (text)
        log_line(report, level, text);
    free(text);
}

size_t report_copy(struct report *report, char *buffer, size_t bytes)
{
    if (report)
        mtx_lock(&report->lock);
    const char *text = report ? own_message(report) : thread_report.message;
    size_t length = strlen(text);
    if (buffer && bytes) {
        size_t kept = length < bytes ? length : bytes - 1;
        memcpy(buffer, text, kept);
        buffer[kept] = '\0';
    }
    if (report)
        mtx_unlock(&report->lock);
    return length;
}

clattn_status report_opencl(struct report *report, const char *call, int code)
{
    clattn_status status = CLATTN_ERROR_OPENCL;
    if (code == CL_OUT_OF_HOST_MEMORY || code == CL_OUT_OF_RESOURCES || code == CL_MEM_OBJECT_ALLOCATION_FAILURE)
        status = CLATTN_ERROR_OUT_OF_MEMORY;
    report_error(report, status, "%s failed: %s (%d)", call, opencl_code_name(code), code);
    thread_report.host_memory = code == CL_OUT_OF_HOST_MEMORY;
    return status;
}

const char *opencl_code_name(int code)
{
    static const struct {
        int code;
        const char *name;
    } names[] = {
#define NAME(code) {code, #code}
        NAME(CL_SUCCESS),
        NAME(CL_DEVICE_NOT_FOUND),
        NAME(CL_DEVICE_NOT_AVAILABLE),
        NAME(CL_COMPILER_NOT_AVAILABLE),
        NAME(CL_MEM_OBJECT_ALLOCATION_FAILURE),
        NAME(CL_OUT_OF_RESOURCES),
        NAME(CL_OUT_OF_HOST_MEMORY),
        NAME(CL_PROFILING_INFO_NOT_AVAILABLE),
        NAME(CL_MEM_COPY_OVERLAP),
        NAME(CL_IMAGE_FORMAT_MISMATCH),
        NAME(CL_IMAGE_FORMAT_NOT_SUPPORTED),
        NAME(CL_BUILD_PROGRAM_FAILURE),
        NAME(CL_MAP_FAILURE),
        NAME(CL_MISALIGNED_SUB_BUFFER_OFFSET),
        NAME(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST),
        NAME(CL_INVALID_VALUE),
        NAME(CL_INVALID_DEVICE_TYPE),
        NAME(CL_INVALID_PLATFORM),
        NAME(CL_INVALID_DEVICE),
        NAME(CL_INVALID_CONTEXT),
        NAME(CL_INVALID_QUEUE_PROPERTIES),
        NAME(CL_INVALID_COMMAND_QUEUE),
        NAME(CL_INVALID_HOST_PTR),
        NAME(CL_INVALID_MEM_OBJECT),
        NAME(CL_INVALID_BINARY),
        NAME(CL_INVALID_BUILD_OPTIONS),
        NAME(CL_INVALID_PROGRAM),
        NAME(CL_INVALID_PROGRAM_EXECUTABLE),
        NAME(CL_INVALID_KERNEL_NAME),
        NAME(CL_INVALID_KERNEL_DEFINITION),
        NAME(CL_INVALID_KERNEL),
        NAME(CL_INVALID_ARG_INDEX),
        NAME(CL_INVALID_ARG_VALUE),
        NAME(CL_INVALID_ARG_SIZE),
        NAME(CL_INVALID_KERNEL_ARGS),
        NAME(CL_INVALID_WORK_DIMENSION),
        NAME(CL_INVALID_WORK_GROUP_SIZE),
        NAME(CL_INVALID_WORK_ITEM_SIZE),
        NAME(CL_INVALID_GLOBAL_OFFSET),
        NAME(CL_INVALID_EVENT_WAIT_LIST),
        NAME(CL_INVALID_EVENT),
        NAME(CL_INVALID_OPERATION),
        NAME(CL_INVALID_BUFFER_SIZE),
        NAME(CL_INVALID_GLOBAL_WORK_SIZE),
#undef NAME
        {-1001, "CL_PLATFORM_NOT_FOUND_KHR"},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i].code == code)
            return names[i].name;
    return "an unknown code";
}
