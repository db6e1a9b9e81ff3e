/* clattn devices: lists the devices that can be used, best first, and those that were left out. */
#include <stdio.h>
#include <string.h>

#include "tool/cli/crash.h"
#include "tool/run/device.h"
#include "tool/cli/report.h"

typedef struct devices_options {
    bool json;
} devices_options;

static const option_row rows[] = {OPTION_ROW_JSON(devices_options), OPTION_ROW_END};

static const option_table table = {
    .command = "devices",
    .summary = "Lists OpenCL devices, best first, and why any was passed over.",
    .rows = rows,
};

static const char *class_name(int32_t device_class)
{
    switch (device_class) {
    case CLATTN_DEVICE_CLASS_GPU: return "gpu";
    case CLATTN_DEVICE_CLASS_ACCELERATOR: return "accelerator";
    case CLATTN_DEVICE_CLASS_CPU: return "cpu";
    case CLATTN_DEVICE_CLASS_POCL: return "pocl";
    case CLATTN_DEVICE_CLASS_SOFTWARE: return "software";
    default: return "unknown";
    }
}

static const char *local_name(int32_t kind)
{
    switch (kind) {
    case CLATTN_LOCAL_MEMORY_DEDICATED: return "dedicated";
    case CLATTN_LOCAL_MEMORY_EMULATED: return "emulated";
    default: return "none";
    }
}

static json_t *device_object(size_t index, const clattn_device_info *info)
{
    return json_pack(
        "{s:I, s:s, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:s, s:I, s:I, s:b, s:b, s:b, s:b, s:b}", "index",
        (json_int_t)index, "class", class_name(info->device_class), "name", json_text(info->name), "platform",
        json_text(info->platform), "vendor", json_text(info->vendor), "driver", json_text(info->driver), "version",
        json_text(info->version), "compute_units", (json_int_t)info->compute_units, "clock_mhz",
        (json_int_t)info->clock_mhz, "global_memory", (json_int_t)info->global_memory, "max_allocation",
        (json_int_t)info->max_allocation, "local_memory", (json_int_t)info->local_memory, "local_memory_kind",
        local_name(info->local_memory_kind), "max_work_group", (json_int_t)info->max_work_group, "sub_group",
        (json_int_t)info->sub_group, "fp16", info->has_fp16, "fp64", info->has_fp64, "sub_groups", info->has_sub_groups,
        "unified_memory", info->unified_memory, "saves_programs", info->saves_programs);
}

static int print_as_json(const clattn_devices *devices)
{
    json_t *list = json_array(), *skipped = json_array();
    bool fine = list != NULL && skipped != NULL;
    for (size_t i = 0; fine && i < clattn_devices_count(devices); i++) {
        clattn_device_info info = {.size = sizeof info};
        fine = clattn_devices_info(devices, i, &info) == CLATTN_SUCCESS &&
               json_array_append_new(list, device_object(i, &info)) == 0;
    }
    for (size_t i = 0; fine && i < clattn_devices_skipped_count(devices); i++)
        fine = json_array_append_new(skipped, json_text(clattn_devices_skipped(devices, i))) == 0;
    for (size_t i = 0; fine && crash_skipped(i) != NULL; i++)
        fine = json_array_append_new(skipped, json_text(crash_skipped(i))) == 0;
    if (!fine) {
        json_decref(list);
        json_decref(skipped);
        return print_json(NULL);
    }
    return print_json(json_pack("{s:o, s:o}", "devices", list, "skipped", skipped));
}

/* Prints a size as "3.8 GiB". */
static void print_bytes(uint64_t bytes)
{
    if (bytes >= (uint64_t)1 << 30)
        printf("  %7.1f GiB", (double)bytes / (double)((uint64_t)1 << 30));
    else if (bytes >= (uint64_t)1 << 20)
        printf("  %7.1f MiB", (double)bytes / (double)((uint64_t)1 << 20));
    else
        printf("  %7.1f KiB", (double)bytes / 1024.0);
}

static int widest(const clattn_devices *devices, size_t offset, const char *title)
{
    size_t width = strlen(title);
    for (size_t i = 0; i < clattn_devices_count(devices); i++) {
        clattn_device_info info = {.size = sizeof info};
        if (clattn_devices_info(devices, i, &info) != CLATTN_SUCCESS)
            continue;
        const char *text = *(const char *const *)((const char *)&info + offset);
        if (strlen(text) > width)
            width = strlen(text);
    }
    return (int)(width < 64 ? width : 64);
}

static void print_as_table(const clattn_devices *devices)
{
    int name = widest(devices, offsetof(clattn_device_info, name), "name");
    int platform = widest(devices, offsetof(clattn_device_info, platform), "platform");
    int driver = widest(devices, offsetof(clattn_device_info, driver), "driver");
    if (clattn_devices_count(devices) > 0)
        printf("index  class        %-*s  %-*s  %-*s  units  %11s  %11s  %-9s  fp16  fp64\n", name, "name", platform,
               "platform", driver, "driver", "memory", "local", "kind");
    for (size_t i = 0; i < clattn_devices_count(devices); i++) {
        clattn_device_info info = {.size = sizeof info};
        if (clattn_devices_info(devices, i, &info) != CLATTN_SUCCESS)
            continue;
        printf("%5zu  %-11s  %-*.64s  %-*.64s  %-*.64s  %5u", i, class_name(info.device_class), name, info.name,
               platform, info.platform, driver, info.driver, info.compute_units);
        print_bytes(info.global_memory);
        print_bytes(info.local_memory);
        printf("  %-9s  %-4s  %s\n", local_name(info.local_memory_kind), info.has_fp16 ? "yes" : "no",
               info.has_fp64 ? "yes" : "no");
    }
    for (size_t i = 0; i < clattn_devices_skipped_count(devices); i++)
        printf("skipped: %s\n", clattn_devices_skipped(devices, i));
    for (size_t i = 0; crash_skipped(i) != NULL; i++)
        printf("skipped: %s\n", crash_skipped(i));
}

int cmd_devices(int argc, char **argv)
{
    devices_options options = {0};
    clattn_devices *devices = NULL;
    int status = options_parse(&table, argc, argv, &options);
    if (status != TOOL_DONE)
        return status;
    crash_guard_begin();
    clattn_status made = clattn_devices_create(NULL, &devices);
    crash_guard_end();
    if (made != CLATTN_SUCCESS)
        return device_check(NULL, made, NULL);
    if (options.json)
        status = print_as_json(devices);
    else
        print_as_table(devices);
    if (status == TOOL_DONE && clattn_devices_count(devices) == 0)
        status = complain(TOOL_NO_DEVICE, "no OpenCL platform has a usable device");
    clattn_devices_release(&devices);
    return status;
}
