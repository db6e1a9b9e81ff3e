#include "program/driver.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/strbuf.h"

char *driver_build_log(const struct device *device, cl_program handle)
{
    size_t bytes = 0;
    char *log = NULL;
    if (device->cl.clGetProgramBuildInfo(handle, device->caps.device, CL_PROGRAM_BUILD_LOG, 0, NULL, &bytes) ==
        CL_SUCCESS)
        log = calloc(bytes + 1, 1);
    if (log && bytes)
        device->cl.clGetProgramBuildInfo(handle, device->caps.device, CL_PROGRAM_BUILD_LOG, bytes, log, NULL);
    return log;
}

/* The first line of a build log that tells of an error, or else of what is fatal, as NVIDIA's assembler says of a function that
 * is nowhere; its length is 0 if there is none. */
static const char *first_error(const char *log, size_t *length)
{
    static const char *const words[] = {"error", "fatal"};
    for (size_t word = 0; word < COUNT_OF(words); word++)
        for (const char *line = log ? log : ""; *line; line += *length + strspn(line + *length, "\r\n")) {
            *length = strcspn(line, "\r\n");
            for (size_t i = 0; i + 5 <= *length; i++)
                if (tolower((unsigned char)line[i]) == words[word][0] && !strncmp(line + i + 1, words[word] + 1, 4))
                    return line;
        }
    *length = 0;
    return "";
}

/* Composes *failure, the message of a build that failed; every later request for the program repeats it.  Its first
 * line alone says what to mend, because a short buffer and `explain` show no more. */
static clattn_status describe_failure(struct device *device, const char *file, const char *options, cl_int code,
                                      cl_program handle, char **failure)
{
    struct strbuf text = {0};
    char *log = driver_build_log(device, handle);
    size_t length;
    const char *error = first_error(log, &length);
    strbuf_printf(&text, "%s did not build: ", file);
    if (length)
        strbuf_append(&text, error, length);
    else
        strbuf_printf(&text, "%s", opencl_code_name(code));
    strbuf_printf(&text, "\n%s (%d) with \"%s\":\n%s", opencl_code_name(code), code, options,
                  log && log[0] ? log : "(no build log)");
    free(log);
    *failure = strbuf_take(&text);
    return *failure ? CLATTN_SUCCESS
                    : report_error(&device->report, CLATTN_ERROR_OUT_OF_MEMORY,
                                   "no memory for the log of a build that failed");
}

/* Builds `handle` and takes it over: it becomes *made, or is released if the build fails. */
static clattn_status build(struct device *device, const char *file, cl_program handle, const char *options,
                           cl_program *made, char **failure)
{
    clattn_status status;
    cl_int code = device->cl.clBuildProgram(handle, 1, &device->caps.device, options, NULL, NULL);
    if (code == CL_SUCCESS) {
        *made = handle;
        return CLATTN_SUCCESS;
    }
    status = code == CL_OUT_OF_HOST_MEMORY ? report_opencl(&device->report, "clBuildProgram", code)
                                           : describe_failure(device, file, options, code, handle, failure);
    device->cl.clReleaseProgram(handle);
    return status;
}

clattn_status driver_build(struct device *device, const char *file, const char *source, const char *options,
                           cl_program *made, char **failure)
{
    cl_int code;
    cl_program handle = device->cl.clCreateProgramWithSource(device->context, 1, &source, NULL, &code);
    if (!handle || code != CL_SUCCESS)
        return report_opencl(&device->report, "clCreateProgramWithSource", code);
    return build(device, file, handle, options, made, failure);
}

/* Creates a program from a binary; returns NULL on failure, and *code says why. */
static cl_program from_binary(struct device *device, const uint8_t *binary, size_t bytes, cl_int *code)
{
    cl_int binary_status = CL_SUCCESS;
    const unsigned char *data = binary;
    cl_program handle = device->cl.clCreateProgramWithBinary(device->context, 1, &device->caps.device, &bytes, &data,
                                                             &binary_status, code);
    if (*code == CL_SUCCESS)
        *code = handle ? binary_status : CL_INVALID_BINARY;
    if (*code != CL_SUCCESS && handle) {
        device->cl.clReleaseProgram(handle);
        handle = NULL;
    }
    return handle;
}

clattn_status driver_rebuild(struct device *device, const char *file, const uint8_t *binary, size_t bytes,
                             const char *options, cl_program *made, char **failure)
{
    cl_int code;
    cl_program handle = from_binary(device, binary, bytes, &code);
    if (!handle)
        return report_opencl(&device->report, "clCreateProgramWithBinary", code);
    return build(device, file, handle, options, made, failure);
}

bool driver_load(struct device *device, const uint8_t *binary, size_t bytes, const char *options, cl_program *made)
{
    cl_int code;
    cl_program handle = from_binary(device, binary, bytes, &code);
    if (handle && device->cl.clBuildProgram(handle, 1, &device->caps.device, options, NULL, NULL) == CL_SUCCESS) {
        *made = handle;
        return true;
    }
    if (handle)
        device->cl.clReleaseProgram(handle);
    return false;
}

/* An adopted context may hold several devices, and the program a binary for each. */
uint8_t *driver_read_binary(struct device *device, cl_program handle, size_t *bytes)
{
    const struct cl_table *cl = &device->cl;
    cl_uint count = 0;
    cl_device_id *devices = NULL;
    size_t *sizes = NULL;
    unsigned char **binaries = NULL;
    uint8_t *ours = NULL;
    if (cl->clGetProgramInfo(handle, CL_PROGRAM_NUM_DEVICES, sizeof count, &count, NULL) != CL_SUCCESS || !count)
        return NULL;
    devices = calloc(count, sizeof *devices);
    sizes = calloc(count, sizeof *sizes);
    binaries = calloc(count, sizeof *binaries);
    if (!devices || !sizes || !binaries ||
        cl->clGetProgramInfo(handle, CL_PROGRAM_DEVICES, count * sizeof *devices, devices, NULL) != CL_SUCCESS ||
        cl->clGetProgramInfo(handle, CL_PROGRAM_BINARY_SIZES, count * sizeof *sizes, sizes, NULL) != CL_SUCCESS)
        goto done;
    for (cl_uint i = 0; i < count; i++)
        if (devices[i] == device->caps.device && sizes[i]) {
            binaries[i] = malloc(sizes[i]);
            if (binaries[i] && cl->clGetProgramInfo(handle, CL_PROGRAM_BINARIES, count * sizeof *binaries, binaries,
                                                    NULL) == CL_SUCCESS) {
                ours = binaries[i];
                *bytes = sizes[i];
            } else {
                free(binaries[i]);
            }
            break;
        }
done:
    free(devices);
    free(sizes);
    free(binaries);
    return ours;
}
