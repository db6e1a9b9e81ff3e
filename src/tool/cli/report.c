#include "tool/cli/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void report_json(tool_report *report, const char *name, json_t *value)
{
    if (json_object_set_new(report->object, name, value) != 0) {
        json_decref(report->object);
        report->object = NULL;
    }
}

tool_report report_begin(void)
{
    return (tool_report){json_object()};
}

void report_text(tool_report *report, const char *name, const char *text)
{
    report_json(report, name, json_text(text));
}

void report_number(tool_report *report, const char *name, double number)
{
    report_json(report, name, isfinite(number) ? json_real(number) : json_null());
}

void report_count(tool_report *report, const char *name, size_t count)
{
    report_json(report, name, json_integer((json_int_t)count));
}

void report_bool(tool_report *report, const char *name, bool value)
{
    report_json(report, name, json_boolean(value));
}

void report_shape(tool_report *report, const char *name, int32_t rank, const size_t *extent)
{
    json_t *array = json_array();
    for (int32_t i = 0; array != NULL && i < rank; i++) {
        if (json_array_append_new(array, json_integer((json_int_t)extent[i])) != 0) {
            json_decref(array);
            array = NULL;
        }
    }
    report_json(report, name, array);
}

void report_lines(tool_report *report, const char *name, const char *text)
{
    json_t *array = json_array();
    while (array != NULL && *text != '\0') {
        const size_t length = strcspn(text, "\n");
        if (json_array_append_new(array, json_stringn(text, length)) != 0) {
            json_decref(array);
            array = NULL;
        }
        text += length + (text[length] == '\n');
    }
    report_json(report, name, array);
}

void report_device(tool_report *report, const tool_device *device, const char *solver)
{
    report_text(report, "device", device->info.name);
    report_text(report, "platform", device->info.platform);
    report_text(report, "solver", solver);
}

void report_attention(tool_report *report, const attention_request *request)
{
    report_text(report, "dtype", clattn_dtype_name(request->desc.output.dtype));
    if (request->kv_dtype != CLATTN_DTYPE_NONE) {
        report_text(report, "kv_dtype", clattn_dtype_name(request->kv_dtype));
        report_count(report, "kv_group", request->desc.key.extent[3] / request->desc.cache.key_scale.extent[3]);
    }
    if (request->page_size > 0) {
        report_count(report, "page_size", request->page_size);
        report_count(report, "pages", request->desc.key.extent[0]);
    }
}

void report_timing(tool_report *report, const timing *times)
{
    report_number(report, "seconds_min", times->min);
    report_number(report, "seconds_median", times->median);
    report_count(report, "runs", times->runs);
}

void report_verdict(tool_report *report, const char *prefix, const tool_verdict *verdict)
{
    char name[64];
    snprintf(name, sizeof name, "%smax_error", prefix);
    report_number(report, name, verdict->max_error);
    snprintf(name, sizeof name, "%snaive_error", prefix);
    report_number(report, name, verdict->naive_error);
    snprintf(name, sizeof name, "%smismatches", prefix);
    report_count(report, name, verdict->mismatches);
    snprintf(name, sizeof name, "%sverified", prefix);
    report_bool(report, name, verdict_holds(verdict));
}

void report_unused_tensors(tool_report *report, const clattn_safetensors *file, const clattn_transformer *transformer,
                           bool (*except)(const char *name))
{
    json_t *names = json_array();
    clattn_safetensors_entry entry;
    for (size_t i = 0; names != NULL && clattn_safetensors_at(file, i, &entry) == CLATTN_SUCCESS; i++)
        if (!clattn_transformer_has_read(transformer, entry.name) && !(except != NULL && except(entry.name)) &&
            json_array_append_new(names, json_string(entry.name)) != 0) {
            json_decref(names);
            names = NULL;
        }
    report_json(report, "unused_tensors", names);
}

static void print_value(FILE *to, const json_t *value)
{
    if (json_is_string(value)) {
        for (const char *c = json_string_value(value); *c != '\0'; c++)
            putc((unsigned char)*c < ' ' || *c == 0x7f ? '?' : *c, to);
    } else if (json_is_integer(value)) {
        fprintf(to, "%lld", (long long)json_integer_value(value));
    } else if (json_is_real(value)) {
        fprintf(to, "%.6g", json_real_value(value));
    } else if (json_is_array(value)) {
        for (size_t i = 0; i < json_array_size(value); i++) {
            fputs(i == 0 ? "(" : ", ", to);
            print_value(to, json_array_get(value, i));
        }
        putc(')', to);
    } else {
        fputs(json_is_true(value) ? "yes" : json_is_false(value) ? "no" : "not a number", to);
    }
}

static int print_line(FILE *to, json_t *object)
{
    char *line = object != NULL ? json_dumps(object, JSON_REAL_PRECISION(9)) : NULL;
    json_decref(object);
    const bool whole = line != NULL && !json_memory_failed();
    if (whole)
        fprintf(to, "%s\n", line);
    json_release(line);
    return whole ? TOOL_DONE : complain(TOOL_FAILED, "out of memory for the report");
}

int print_json(json_t *object)
{
    return print_line(stdout, object);
}

int report_finish(tool_report *report, bool json)
{
    FILE *to = host_stdout_is_taken() ? stderr : stdout;
    json_t *object = report->object;
    report->object = NULL;
    if (json || object == NULL || json_memory_failed())
        return print_line(to, object);
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value)
    {
        fprintf(to, "%s: ", name);
        print_value(to, value);
        putc('\n', to);
    }
    json_decref(object);
    return TOOL_DONE;
}
