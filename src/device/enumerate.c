#include "device/enumerate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "base/size.h"
#include "base/strbuf.h"
#include "base/try.h"

static clattn_status skip(struct clattn_devices *devices, struct strbuf *line)
{
    char *text = strbuf_take(line);
    char **grown = array_grow(devices->skipped, &devices->skipped_capacity, devices->skipped_count, sizeof *grown);
    if (grown)
        devices->skipped = grown;
    if (!text || !grown) {
        free(text);
        return report_error(NULL, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for the list of devices");
    }
    grown[devices->skipped_count++] = text;
    return CLATTN_SUCCESS;
}

static clattn_status add(struct clattn_devices *devices, const struct capabilities *caps)
{
    struct capabilities *grown = array_grow(devices->caps, &devices->capacity, devices->count, sizeof *grown);
    if (!grown)
        return report_error(NULL, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for the list of devices");
    devices->caps = grown;
    grown[devices->count++] = *caps;
    return CLATTN_SUCCESS;
}

/* Why a device cannot be used at all, or NULL. */
static const char *unusable(const struct clattn_devices *devices, cl_device_id device)
{
    cl_bool yes = CL_FALSE;
    if (devices->cl.clGetDeviceInfo(device, CL_DEVICE_AVAILABLE, sizeof yes, &yes, NULL) != CL_SUCCESS || !yes)
        return "is not available";
    if (devices->cl.clGetDeviceInfo(device, CL_DEVICE_COMPILER_AVAILABLE, sizeof yes, &yes, NULL) != CL_SUCCESS || !yes)
        return "has no compiler";
    return NULL;
}

/* The name of a device in the list of skipped devices. */
static void device_name(const struct clattn_devices *devices, cl_device_id device, char *name, size_t bytes)
{
    name[0] = '\0';
    if (devices->cl.clGetDeviceInfo(device, CL_DEVICE_NAME, bytes, name, NULL) != CL_SUCCESS)
        snprintf(name, bytes, "a device without a name");
    name[bytes - 1] = '\0';
}

static clattn_status consider(struct clattn_devices *devices, cl_platform_id platform, const char *platform_name,
                              cl_device_id device)
{
    struct capabilities caps;
    struct strbuf line = {0};
    const char *reason = unusable(devices, device);
    char message[512], name[256];
    if (!reason) {
        clattn_status status = capabilities_read(&devices->cl, platform, device, &caps);
        if (status == CLATTN_SUCCESS && caps.info.opencl_version >= 120) {
            status = add(devices, &caps);
            if (status != CLATTN_SUCCESS)
                capabilities_clear(&caps);
            return status;
        }
        if (status == CLATTN_ERROR_OUT_OF_MEMORY)
            return status;
        if (status == CLATTN_SUCCESS) {
            snprintf(message, sizeof message, "has %s, OpenCL 1.2 is needed", caps.info.version);
            capabilities_clear(&caps);
        } else {
            report_copy(NULL, message, sizeof message);
        }
        reason = message;
    }
    device_name(devices, device, name, sizeof name);
    strbuf_printf(&line, "%s: %s: %s", platform_name, name, reason);
    return skip(devices, &line);
}

static clattn_status consider_platform(struct clattn_devices *devices, cl_platform_id platform)
{
    clattn_status status = CLATTN_SUCCESS;
    char name[256] = "";
    cl_device_id *list = NULL;
    cl_uint count = 0;
    struct strbuf line = {0};
    if (devices->cl.clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof name, name, NULL) != CL_SUCCESS)
        snprintf(name, sizeof name, "a platform without a name");
    name[sizeof name - 1] = '\0';
    cl_int code = devices->cl.clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, NULL, &count);
    if (code == CL_SUCCESS && count) {
        list = calloc(count, sizeof *list);
        if (!list)
            return report_error(NULL, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for the list of devices");
        code = devices->cl.clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, count, list, NULL);
    }
    if (code == CL_DEVICE_NOT_FOUND || (code == CL_SUCCESS && !count)) {
        strbuf_printf(&line, "%s: lists no device", name);
        TRY(skip(devices, &line));
    } else if (code != CL_SUCCESS) {
        strbuf_printf(&line, "%s: clGetDeviceIDs failed: %s (%d)", name, opencl_code_name(code), code);
        TRY(skip(devices, &line));
    } else {
        for (cl_uint i = 0; i < count; i++)
            TRY(consider(devices, platform, name, list[i]));
    }
fail:
    free(list);
    return status;
}

/* A rough count of float operations a second, to order devices of one class: units alone mislead, since one
 * vendor's unit is an execution lane group and another's a whole core. */
static double compute_estimate(const clattn_device_info *info)
{
    double lanes = info->native_float_lanes ? info->native_float_lanes : 1;
    if (info->type & CL_DEVICE_TYPE_GPU)
        lanes = strstr(info->vendor, "NVIDIA") ? 128 : strstr(info->vendor, "Intel") ? 16 : 64;
    return (double)info->compute_units * (info->clock_mhz ? info->clock_mhz : 1) * lanes;
}

static int compare(const void *left, const void *right)
{
    const clattn_device_info *a = &((const struct capabilities *)left)->info;
    const clattn_device_info *b = &((const struct capabilities *)right)->info;
    if (a->device_class != b->device_class)
        return a->device_class < b->device_class ? -1 : 1;
    double difference = compute_estimate(b) - compute_estimate(a);
    if (difference != 0)
        return difference > 0 ? 1 : -1;
    int names = strcmp(a->platform, b->platform);
    return names ? names : strcmp(a->name, b->name);
}

clattn_status devices_enumerate(struct clattn_devices *devices)
{
    clattn_status status = CLATTN_SUCCESS;
    cl_platform_id *platforms = NULL;
    cl_uint count = 0;
    cl_int code = devices->cl.clGetPlatformIDs(0, NULL, &count);
    if (code != CL_SUCCESS || !count)
        return report_error(NULL, CLATTN_ERROR_NO_OPENCL,
                            "no OpenCL platform (%s, %d): install one, such as pocl-opencl-icd for CPUs or the "
                            "GPU vendor's driver",
                            opencl_code_name(code), code);
    platforms = calloc(count, sizeof *platforms);
    if (!platforms)
        return report_error(NULL, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for the list of platforms");
    code = devices->cl.clGetPlatformIDs(count, platforms, NULL);
    if (code != CL_SUCCESS) {
        status = report_opencl(NULL, "clGetPlatformIDs", code);
        goto fail;
    }
    for (cl_uint i = 0; i < count; i++)
        TRY(consider_platform(devices, platforms[i]));
    if (devices->count)
        qsort(devices->caps, devices->count, sizeof *devices->caps, compare);
fail:
    free(platforms);
    if (status != CLATTN_SUCCESS)
        devices_clear(devices);
    return status;
}

void devices_clear(struct clattn_devices *devices)
{
    for (size_t i = 0; i < devices->count; i++)
        capabilities_clear(&devices->caps[i]);
    for (size_t i = 0; i < devices->skipped_count; i++)
        free(devices->skipped[i]);
    free(devices->caps);
    free(devices->skipped);
    devices->caps = NULL;
    devices->skipped = NULL;
    devices->count = devices->capacity = devices->skipped_count = devices->skipped_capacity = 0;
}

clattn_status clattn_devices_create(const clattn_context_params *params, clattn_devices **devices)
{
    clattn_context_params own = CLATTN_CONTEXT_PARAMS_INIT;
    clattn_status status = CLATTN_SUCCESS;
    if (!devices)
        return report_error(NULL, CLATTN_ERROR_INVALID_ARGUMENT, "devices is NULL");
    *devices = NULL;
    if (params) {
        status = struct_read(&own, sizeof own, sizeof own, params);
        if (status != CLATTN_SUCCESS)
            return report_error(NULL, status, "clattn_context_params.size is %zu, expected %zu", params->size,
                                sizeof own);
    }
    clattn_devices *made = calloc(1, sizeof *made);
    if (!made)
        return report_error(NULL, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for the list of devices");
    TRY(cl_table_fill(&made->cl, own.get_proc, own.get_proc_user));
    TRY(devices_enumerate(made));
    *devices = made;
    return CLATTN_SUCCESS;
fail:
    free(made);
    return status;
}

void clattn_devices_release(clattn_devices **devices)
{
    if (!devices || !*devices)
        return;
    devices_clear(*devices);
    free(*devices);
    *devices = NULL;
}

size_t clattn_devices_count(const clattn_devices *devices)
{
    return devices ? devices->count : 0;
}

clattn_status clattn_devices_info(const clattn_devices *devices, size_t index, clattn_device_info *info)
{
    if (!devices || !info || index >= devices->count)
        return report_error(NULL, CLATTN_ERROR_INVALID_ARGUMENT, "there is no device %zu", index);
    return device_info_write(&devices->caps[index], info);
}

size_t clattn_devices_skipped_count(const clattn_devices *devices)
{
    return devices ? devices->skipped_count : 0;
}

const char *clattn_devices_skipped(const clattn_devices *devices, size_t index)
{
    return devices && index < devices->skipped_count ? devices->skipped[index] : NULL;
}
