#include "tool/pool/pool.h"

#include <stdio.h>
#include <string.h>

/* ---- devices ---- */

/* How many indices a list as "0,1" has; 1: it is none. */
static size_t count_indices(const char *spec)
{
    size_t count = 1;
    for (const char *c = spec; c != NULL && *c != '\0'; c++) {
        if (*c == ',' && c > spec && c[-1] != ',' && c[1] != '\0')
            count++;
        else if (*c < '0' || *c > '9')
            return 1;
    }
    return count;
}

/* Opens the next device, whose index is a text of so many bytes. */
static int open_member(const char *command, const char *list, const char *index, size_t bytes, tool_pool *pool)
{
    tool_device *device = &pool->member[pool->count].device;
    char spec[sizeof device->label - sizeof "device : "];
    if (bytes >= sizeof spec)
        return complain(TOOL_BAD_INPUT, "%s: --device '%s' is not valid", command, list);
    memcpy(spec, index, bytes);
    spec[bytes] = '\0';
    const int status = device_open(spec, device);
    if (status != TOOL_DONE)
        return status;
    snprintf(device->label, sizeof device->label, "device %s: ", spec);
    for (size_t i = 0; i < pool->count; i++)
        if (clattn_context_opencl_device(pool->member[i].device.context) ==
            clattn_context_opencl_device(device->context))
            return complain(TOOL_BAD_INPUT, "%s: --device '%s' has device %s twice", command, list, spec);
    pool->count++;
    return TOOL_DONE;
}

int pool_open(const char *command, const char *spec, tool_pool *pool)
{
    const size_t count = count_indices(spec);
    int status = TOOL_DONE;
    *pool = (tool_pool){.count = count == 1};
    if (count == 1)
        return device_open(spec, &pool->member[0].device);
    if (count > POOL_MOST)
        return complain(TOOL_BAD_INPUT, "%s: --device has %zu devices, expected at most %d", command, count, POOL_MOST);
    for (const char *index = spec; pool->count < count && status == TOOL_DONE; index += strcspn(index, ",") + 1)
        status = open_member(command, spec, index, strcspn(index, ","), pool);
    return status;
}

void pool_close(tool_pool *pool)
{
    for (size_t i = 0; i < POOL_MOST; i++)
        device_close(&pool->member[i].device);
    *pool = (tool_pool){0};
}

/* ---- reports ---- */

void pool_report_numbers(const tool_pool *pool, tool_report *report, const char *name, const size_t *numbers)
{
    json_t *names = json_array();
    for (size_t i = 0; i < pool->count; i++)
        json_array_append_new(names, json_text(pool->member[i].device.info.name));
    report_json(report, "devices", names);
    report_shape(report, name, (int32_t)pool->count, numbers);
}

void pool_report(const tool_pool *pool, tool_report *report)
{
    size_t parts[POOL_MOST];
    for (size_t i = 0; i < pool->count; i++)
        parts[i] = pool->member[i].parts;
    if (pool->count > 1)
        pool_report_numbers(pool, report, "shares", parts);
}
