/* The device that a command works on: a clattn context, its queue, and buffers. */
#ifndef CLATTN_TOOL_RUN_DEVICE_H
#define CLATTN_TOOL_RUN_DEVICE_H

#include <clattn/clattn.h>

#include "tool/run/host.h"

/* A zeroed one is closed. Close with device_close. */
typedef struct tool_device {
    clattn_context *context;
    cl_command_queue queue; /* the context's */
    clattn_device_info info;
    char message[256]; /* of a failed OpenCL call of the command's own; otherwise empty */
    char label[32];    /* what error lines about it begin with, where it is one of several: "device 1: " */
} tool_device;

/* Opens the device that `spec` names; NULL: the environment's choice, or the best. Returns an exit status,
 * TOOL_NO_DEVICE if there is no usable device. */
int device_open(const char *spec, tool_device *device);
int device_open_checked(const char *spec, clattn_self_check self_check, tool_device *device);
void device_close(tool_device *device);

/* The log callback of every context that the command makes: warnings are kept until the command has succeeded
 * (an error is exactly one line), what CLATTN_LOG asks for beyond is written at once. */
void device_log(void *user, clattn_log_level level, const char *line);

/* Names the file of a user's function: warnings that begin with "NAME:" begin with its path from now on.  Both strings
 * stay the caller's.  Call it for at most three names, before any plan is made. */
void device_name_file(const char *name, const char *path);

/* Writes the kept warnings, or drops them. */
void device_flush_warnings(void);
void device_drop_warnings(void);

/* The exit status that belongs to a failure. */
int exit_status_of(clattn_status status);

/* The exit status for a call on `device` (NULL: there was none yet).  Of a failure it writes the error line: `what` (may
 * be NULL) and the message. */
int device_check(const tool_device *device, clattn_status status, const char *what);

/* The message of the last failure on `device`, unchanged. */
void device_message(const tool_device *device, clattn_status status, char *text, size_t bytes);

/* The status for device_check of an OpenCL call of the command's own.  Keeps the message of a failure. */
clattn_status device_opencl_check(tool_device *device, const char *call, cl_int code);

/* A buffer with the tensor's data, or of `bytes` bytes filled with 0xff, which is a NaN in every float type.
 * Empty ones get a few bytes, for OpenCL has no empty buffers. */
clattn_status device_upload(tool_device *device, const clattn_host_tensor *tensor, cl_mem *buffer);
clattn_status device_output(tool_device *device, size_t bytes, cl_mem *buffer);

/* Whether a decoder keeps its weights packed besides (clattn_decoder_desc.prepack): it is faster so on CPUs.  Not if the weights take more
 * than a sixteenth of the device's memory, for packed ones may take four times as much. */
bool device_prepacks(const tool_device *device, const clattn_transformer *model);

/* Blocks until `event` has completed; fails if its command failed. */
clattn_status device_wait(tool_device *device, cl_event event);

/* Block until the data has arrived. */
clattn_status device_write(tool_device *device, cl_mem buffer, size_t bytes, const void *data);
clattn_status device_download(tool_device *device, cl_mem buffer, size_t bytes, void *data);

#endif
