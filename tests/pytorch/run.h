/* What the programs have in common that compute for scripts beside PyTorch: PROGRAM FOLDER [name=value ...], arrays of the folder,
 * and a context.  Any failure ends the process with a line and status 2. */
#ifndef TESTS_PYTORCH_RUN_H
#define TESTS_PYTORCH_RUN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clattn/clattn.h"
#include "clattn/io.h"

static clattn_context *context;
static const char *folder;
static int argument_count;
static char **arguments;

static inline void complain(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s: %s\n", arguments[0], what, why);
    exit(2);
}

static inline void check_at(clattn_status status, const char *what)
{
    char message[1024];
    if (status == CLATTN_SUCCESS)
        return;
    clattn_context_message(context, message, sizeof message);
    complain(what, message[0] ? message : clattn_status_string(status));
}
#define CHECK(call) check_at((call), #call)

/* Takes main's arguments and makes the context. */
static inline void begin_run(int argc, char **argv)
{
    argument_count = argc;
    arguments = argv;
    if (argc < 2)
        complain("usage", "FOLDER [name=value ...]");
    folder = argv[1];
    CHECK(clattn_context_create(NULL, &context));
}

static inline void *room(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size);
    if (!memory)
        complain("memory", "there is none");
    return memory;
}

/* The value of an option, or `otherwise`. */
static inline const char *option(const char *name, const char *otherwise)
{
    const size_t length = strlen(name);
    for (int i = 2; i < argument_count; i++)
        if (!strncmp(arguments[i], name, length) && arguments[i][length] == '=')
            return arguments[i] + length + 1;
    return otherwise;
}

static inline size_t number(const char *name, size_t otherwise)
{
    const char *text = option(name, NULL);
    return text ? (size_t)strtoul(text, NULL, 10) : otherwise;
}

/* The path of a file in the folder, until the next call. */
static inline const char *path_of(const char *name)
{
    static char path[4096];
    if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, name) >= sizeof path)
        complain(name, "its path is too long");
    return path;
}

/* The array of NAME.npy in the folder, or zeros if the folder has no such file.  It lives until the process ends. */
static inline clattn_host_tensor array_of(const char *name)
{
    char path[80];
    clattn_npy *npy;
    clattn_io_error error;
    snprintf(path, sizeof path, "%s.npy", name);
    FILE *file = fopen(path_of(path), "rb");
    if (!file)
        return (clattn_host_tensor){0};
    fclose(file);
    if (clattn_npy_create(path_of(path), &npy, &error) != CLATTN_SUCCESS)
        complain(path, error.message);
    return clattn_npy_tensor(npy);
}

static inline void write_floats(const char *name, int32_t rank, const size_t *extent, const float *data)
{
    clattn_io_error error;
    if (clattn_npy_write(path_of(name), CLATTN_DTYPE_F32, rank, extent, data, &error) != CLATTN_SUCCESS)
        complain(name, error.message);
}

static inline cl_mem buffer(size_t bytes, const void *data)
{
    cl_int code;
    cl_mem memory =
        clCreateBuffer(clattn_context_opencl_context(context), CL_MEM_READ_WRITE | (data ? CL_MEM_COPY_HOST_PTR : 0),
                       bytes ? bytes : 1, (void *)(uintptr_t)data, &code);
    if (code != CL_SUCCESS)
        complain("clCreateBuffer", "failed");
    return memory;
}

static inline void read_buffer(cl_mem memory, size_t bytes, void *data)
{
    if (clEnqueueReadBuffer(clattn_context_queue(context), memory, CL_TRUE, 0, bytes, data, 0, NULL, NULL) !=
        CL_SUCCESS)
        complain("clEnqueueReadBuffer", "failed");
}

/* A model with the folder's weights.safetensors. */
static inline clattn_transformer *load_model(const clattn_transformer_desc *desc, clattn_name_format format,
                                             const char *prefix)
{
    clattn_transformer *model;
    clattn_safetensors *file;
    clattn_io_error error;
    clattn_weight_source source = CLATTN_WEIGHT_SOURCE_INIT;
    if (clattn_safetensors_create(path_of("weights.safetensors"), &file, &error) != CLATTN_SUCCESS)
        complain("weights.safetensors", error.message);
    source.lookup = clattn_safetensors_lookup;
    source.user = file;
    source.format = format;
    source.prefix = prefix;
    CHECK(clattn_transformer_create(context, desc, &source, &model));
    clattn_safetensors_release(&file);
    return model;
}

#endif
