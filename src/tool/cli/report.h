/* A command's results: lines of "name: value" for people, or one line of JSON. */
#ifndef CLATTN_TOOL_CLI_REPORT_H
#define CLATTN_TOOL_CLI_REPORT_H

#include <jansson.h>

#include <clattn/transformer.h>

#include "tool/run/device.h"
#include "tool/cli/json_text.h"
#include "tool/run/timing.h"
#include "tool/run/verify.h"

typedef struct tool_report {
    json_t *object;
} tool_report;

/* Values appear in the order of the calls.  A failed allocation is remembered, here or in a value that was handed over,
 * and report_finish reports it.  A number that JSON lacks (NaN, infinity) becomes null. */
tool_report report_begin(void);
void report_text(tool_report *report, const char *name, const char *text);
void report_number(tool_report *report, const char *name, double number);
void report_count(tool_report *report, const char *name, size_t count);
void report_bool(tool_report *report, const char *name, bool value);
void report_json(tool_report *report, const char *name, json_t *value); /* takes the reference */
void report_shape(tool_report *report, const char *name, int32_t rank, const size_t *extent);

/* Adds an array of the text's lines. */
void report_lines(tool_report *report, const char *name, const char *text);

/* Adds the device's name and platform, and the solver. */
void report_device(tool_report *report, const tool_device *device, const char *solver);

/* Adds unused_tensors: the names of the file's tensors that the model has not read, without those that `except` tells, which
 * may be NULL. */
void report_unused_tensors(tool_report *report, const clattn_safetensors *file, const clattn_transformer *transformer,
                           bool (*except)(const char *name));

/* Adds dtype; for a quantised cache kv_dtype and kv_group; for a paged one page_size and pages. */
void report_attention(tool_report *report, const attention_request *request);

/* Adds seconds_min, seconds_median and runs. */
void report_timing(tool_report *report, const timing *times);

/* Adds max_error, naive_error and ok, with `prefix` ("" or "lse_") before their names. */
void report_verdict(tool_report *report, const char *prefix, const tool_verdict *verdict);

/* Writes the report to stdout, or to stderr if an output goes to stdout (host_stdout_is_taken), as JSON if `json`,
 * and releases it. */
int report_finish(tool_report *report, bool json);

/* Writes an object as one line of JSON on stdout and releases it; NULL is reported as "out of memory". */
int print_json(json_t *object);

#endif
