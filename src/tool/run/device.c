#include "tool/run/device.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/opencl_check.h"
#include "tool/cli/crash.h"
#include "tool/cli/progress.h"

#define MOST_WARNINGS 8

/* A buffer of fixed size, because the library may log from any of its threads. */
static char warnings[MOST_WARNINGS][256];
static atomic_size_t warning_count;

/* A text whose name the library gives, and the user's file that it is. */
static struct {
    const char *name, *path;
} named[3];

void device_name_file(const char *name, const char *path)
{
    size_t slot = 0;
    while (slot + 1 < sizeof named / sizeof named[0] && named[slot].name != NULL)
        slot++;
    named[slot].name = name;
    named[slot].path = path;
}

/* Writes the warning, which may begin with a named text's name, with its file's path in place of the name. */
static void format_warning(const char *line, char *text, size_t bytes)
{
    for (size_t i = 0; i < sizeof named / sizeof named[0]; i++) {
        size_t length = named[i].name != NULL ? strlen(named[i].name) : 0;
        if (length > 0 && strncmp(line, named[i].name, length) == 0 && line[length] == ':') {
            snprintf(text, bytes, "%s%s", named[i].path, line + length);
            return;
        }
    }
    snprintf(text, bytes, "%s", line);
}

void device_log(void *user, clattn_log_level level, const char *line)
{
    (void)user;
    if (level == CLATTN_LOG_LEVEL_WARNING) {
        size_t slot = atomic_fetch_add(&warning_count, 1);
        if (slot < MOST_WARNINGS)
            format_warning(line, warnings[slot], sizeof warnings[slot]);
    } else if (level > CLATTN_LOG_LEVEL_WARNING) {
        progress_hide();
        fprintf(stderr, "clattn: %s\n", line);
    }
    /* Errors are not logged here: they come back as a status, and the command reports them. */
}

void device_flush_warnings(void)
{
    size_t count = atomic_exchange(&warning_count, 0);
    for (size_t i = 0; i < count && i < MOST_WARNINGS; i++)
        fprintf(stderr, "clattn: warning: %s\n", warnings[i]);
}

void device_drop_warnings(void)
{
    atomic_store(&warning_count, 0);
}

int exit_status_of(clattn_status status)
{
    switch (status) {
    case CLATTN_ERROR_INVALID_ARGUMENT:
    case CLATTN_ERROR_INVALID_LAYOUT:
    case CLATTN_ERROR_OVERFLOW:
    case CLATTN_ERROR_FORMAT:
    case CLATTN_ERROR_IO: /* only inputs are opened through the library: CLATTN_KERNEL_DIR, for one */
    case CLATTN_ERROR_UNSUPPORTED: return TOOL_BAD_INPUT;
    case CLATTN_ERROR_NO_OPENCL:
    case CLATTN_ERROR_NO_DEVICE: return TOOL_NO_DEVICE;
    default: return TOOL_FAILED;
    }
}

void device_message(const tool_device *device, clattn_status status, char *text, size_t bytes)
{
    text[0] = '\0';
    if (device != NULL && device->message[0] != '\0')
        snprintf(text, bytes, "%s", device->message);
    else
        clattn_context_message(device != NULL ? device->context : NULL, text, bytes);
    if (text[0] == '\0')
        snprintf(text, bytes, "%s", clattn_status_string(status));
}

/* The environment variable that a failure is due to, or NULL. The message names it, since the command line does not. */
static const char *variable_behind(clattn_status status, const char *text)
{
    const char *kernels = getenv("CLATTN_KERNEL_DIR"), *device = getenv("CLATTN_DEVICE");
    if (status == CLATTN_ERROR_IO && kernels != NULL && kernels[0] != '\0' && strstr(text, kernels) != NULL)
        return "CLATTN_KERNEL_DIR";
    if (status == CLATTN_ERROR_NO_DEVICE && device != NULL && device[0] != '\0' && strstr(text, device) != NULL)
        return "CLATTN_DEVICE";
    return NULL;
}

int device_check(const tool_device *device, clattn_status status, const char *what)
{
    char text[1024];
    if (status == CLATTN_SUCCESS)
        return TOOL_DONE;
    device_message(device, status, text, sizeof text);
    if (what == NULL)
        what = variable_behind(status, text);
    return complain(exit_status_of(status), "%s%s%s%s", device != NULL ? device->label : "", what != NULL ? what : "",
                    what != NULL ? ": " : "", text);
}

int device_open(const char *spec, tool_device *device)
{
    return device_open_checked(spec, CLATTN_SELF_CHECK_ON, device);
}

int device_open_checked(const char *spec, clattn_self_check self_check, tool_device *device)
{
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    *device = (tool_device){.info = {.size = sizeof device->info}};
    params.device = spec;
    params.log = device_log;
    params.workspace_limit = SIZE_MAX; /* all memory of the device: nothing else in this process uses it */
    params.self_check = self_check;
    crash_guard_begin();
    clattn_status status = clattn_context_create(&params, &device->context);
    crash_guard_end();
    if (status == CLATTN_SUCCESS)
        status = clattn_context_device_info(device->context, &device->info);
    if (status == CLATTN_SUCCESS) {
        device->queue = clattn_context_queue(device->context);
        for (size_t i = 0; crash_skipped(i) != NULL; i++)
            device_log(NULL, CLATTN_LOG_LEVEL_WARNING, crash_skipped(i));
        return TOOL_DONE;
    }
    int code = device_check(device->context != NULL ? device : NULL, status, NULL);
    device_close(device);
    return code;
}

void device_close(tool_device *device)
{
    clattn_context_release(&device->context);
    *device = (tool_device){0};
}

clattn_status device_opencl_check(tool_device *device, const char *call, cl_int code)
{
    return opencl_check(call, code, device->message, sizeof device->message);
}

static clattn_status make_buffer(tool_device *device, cl_mem_flags flags, size_t bytes, cl_mem *buffer)
{
    cl_int code = CL_SUCCESS;
    device->message[0] = '\0';
    if (bytes < 16)
        bytes = 16;
    if (device->info.max_allocation != 0 && bytes > device->info.max_allocation) {
        snprintf(device->message, sizeof device->message,
                 "an array of %zu bytes, this device allocates at most %llu bytes at once", bytes,
                 (unsigned long long)device->info.max_allocation);
        return CLATTN_ERROR_OUT_OF_MEMORY;
    }
    *buffer = clCreateBuffer(clattn_context_opencl_context(device->context), flags, bytes, NULL, &code);
    return device_opencl_check(device, "clCreateBuffer", code);
}

clattn_status device_upload(tool_device *device, const clattn_host_tensor *tensor, cl_mem *buffer)
{
    clattn_status status = make_buffer(device, CL_MEM_READ_ONLY, tensor->bytes, buffer);
    if (status != CLATTN_SUCCESS || tensor->bytes == 0)
        return status;
    return device_write(device, *buffer, tensor->bytes, tensor->data);
}

clattn_status device_output(tool_device *device, size_t bytes, cl_mem *buffer)
{
    cl_event filled = NULL;
    clattn_status status = make_buffer(device, CL_MEM_READ_WRITE, bytes, buffer);
    if (status != CLATTN_SUCCESS || bytes == 0)
        return status;
    const cl_uchar poison = 0xff;
    cl_int code = clEnqueueFillBuffer(device->queue, *buffer, &poison, sizeof poison, 0, bytes, 0, NULL, &filled);
    if (code == CL_SUCCESS)
        code = clWaitForEvents(1, &filled);
    if (filled != NULL)
        clReleaseEvent(filled);
    return device_opencl_check(device, "clEnqueueFillBuffer", code);
}

clattn_status device_wait(tool_device *device, cl_event event)
{
    cl_int code = clWaitForEvents(1, &event), state = CL_COMPLETE;
    if (code == CL_SUCCESS)
        return CLATTN_SUCCESS;
    clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL);
    return device_opencl_check(device, "clWaitForEvents", state < 0 ? state : code);
}

clattn_status device_write(tool_device *device, cl_mem buffer, size_t bytes, const void *data)
{
    cl_int code = clEnqueueWriteBuffer(device->queue, buffer, CL_TRUE, 0, bytes, data, 0, NULL, NULL);
    return device_opencl_check(device, "clEnqueueWriteBuffer", code);
}

clattn_status device_download(tool_device *device, cl_mem buffer, size_t bytes, void *data)
{
    if (bytes == 0)
        return CLATTN_SUCCESS;
    cl_int code = clEnqueueReadBuffer(device->queue, buffer, CL_TRUE, 0, bytes, data, 0, NULL, NULL);
    return device_opencl_check(device, "clEnqueueReadBuffer", code);
}

bool device_prepacks(const tool_device *device, const clattn_transformer *model)
{
    return clattn_transformer_weight_bytes(model) <= device->info.global_memory / 16;
}
