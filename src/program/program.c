#include "program/program.h"

#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "base/strbuf.h"
#include "base/try.h"
#include "clattn/version.h"
#include "program/source.h"

#define PROGRAMS_KEPT 256

/* -w: PoCL prints "N warnings generated." on the application's stderr.  The tests build without it. */
const char program_base_options[] = "-cl-std=CL1.2 -w";

struct program {
    struct program *next;
    unsigned references; /* plans that hold it; the cache's own hold is not counted */
    uint8_t key[SHA256_BYTES];
    cl_program handle;
    char *failure; /* the message of a failed build, or NULL */
    bool saved;
};

clattn_status program_cache_init(struct program_cache *cache, struct device *device,
                                 const clattn_context_params *params)
{
    clattn_status status;
    const char *folder = params->kernel_dir ? params->kernel_dir : os_environment("CLATTN_KERNEL_DIR");
    memset(cache, 0, sizeof *cache);
    cache->binaries.folder = -1;
    cache->device = device;
    if (mtx_init(&cache->lock, mtx_plain) != thrd_success)
        return report_error(&device->report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a lock");
    if (folder) {
        struct strbuf probe = {0};
        cache->kernel_dir = string_copy(folder);
        status = cache->kernel_dir ? source_expand(&device->report, folder, "inc/args.h", &probe)
                                   : CLATTN_ERROR_OUT_OF_MEMORY;
        strbuf_clear(&probe);
        if (status != CLATTN_SUCCESS)
            goto fail;
    }
    TRY(binary_cache_open(&cache->binaries, &device->report, params));
    return CLATTN_SUCCESS;
fail:
    program_cache_clear(cache);
    return status;
}

static void destroy(struct program_cache *cache, struct program *program)
{
    if (program->handle)
        cache->device->cl.clReleaseProgram(program->handle);
    free(program->failure);
    free(program);
}

void program_cache_clear(struct program_cache *cache)
{
    while (cache->first) {
        struct program *program = cache->first;
        cache->first = program->next;
        destroy(cache, program);
    }
    binary_cache_close(&cache->binaries);
    free(cache->kernel_dir);
    cache->kernel_dir = NULL;
    mtx_destroy(&cache->lock);
}

static void hash_text(struct sha256 *hash, const char *text)
{
    uint64_t length = strlen(text);
    uint8_t prefix[8];
    for (int i = 0; i < 8; i++)
        prefix[i] = (uint8_t)(length >> (8 * i));
    sha256_update(hash, prefix, sizeof prefix);
    sha256_update(hash, text, length);
}

/* All that a binary depends on: text, options, device, driver, and this library's version. */
static void make_key(const struct device *device, const char *source, const char *options,
                     uint8_t key[SHA256_BYTES])
{
    const clattn_device_info *info = &device->caps.info;
    struct sha256 hash;
    sha256_init(&hash);
    hash_text(&hash, CLATTN_VERSION_STRING);
    hash_text(&hash, source);
    hash_text(&hash, options);
    hash_text(&hash, info->platform);
    hash_text(&hash, info->name);
    hash_text(&hash, info->vendor);
    hash_text(&hash, info->driver);
    hash_text(&hash, info->version);
    sha256_update(&hash, info->uuid, sizeof info->uuid);
    sha256_final(&hash, key);
}

static char *build_log(const struct device *device, cl_program handle)
{
    size_t bytes = 0;
    char *log = NULL;
    if (device->cl.clGetProgramBuildInfo(handle, device->caps.device, CL_PROGRAM_BUILD_LOG, 0, NULL,
                                         &bytes) == CL_SUCCESS)
        log = calloc(bytes + 1, 1);
    if (log && bytes)
        device->cl.clGetProgramBuildInfo(handle, device->caps.device, CL_PROGRAM_BUILD_LOG, bytes, log, NULL);
    return log;
}

static clattn_status build_from_source(struct device *device, const char *file, const char *source,
                                       const char *options, struct program *program)
{
    cl_int code;
    program->handle = device->cl.clCreateProgramWithSource(device->context, 1, &source, NULL, &code);
    if (!program->handle || code != CL_SUCCESS)
        return report_opencl(&device->report, "clCreateProgramWithSource", code);
    code = device->cl.clBuildProgram(program->handle, 1, &device->caps.device, options, NULL, NULL);
    if (code == CL_SUCCESS)
        return CLATTN_SUCCESS;
    if (code != CL_BUILD_PROGRAM_FAILURE)
        return report_opencl(&device->report, "clBuildProgram", code);
    struct strbuf failure = {0};
    char *log = build_log(device, program->handle);
    strbuf_printf(&failure, "%s did not build with \"%s\":\n%s", file, options, log ? log : "(no build log)");
    free(log);
    program->failure = strbuf_take(&failure);
    device->cl.clReleaseProgram(program->handle);
    program->handle = NULL;
    return CLATTN_SUCCESS;
}

/* True if the cache had an entry that the driver took. */
static bool build_from_binary(struct program_cache *cache, const char *options, struct program *program)
{
    struct device *device = cache->device;
    uint8_t *binary;
    size_t bytes;
    bool refused;
    if (!binary_cache_load(&cache->binaries, program->key, &binary, &bytes, &refused)) {
        if (refused) {
            cache->statistics.refused++;
            report_log(&device->report, CLATTN_LOG_WARNING, "a cache entry is damaged; building from source");
        }
        return false;
    }
    cl_int binary_status = CL_SUCCESS, code;
    const unsigned char *data = binary;
    program->handle = device->cl.clCreateProgramWithBinary(device->context, 1, &device->caps.device, &bytes,
                                                           &data, &binary_status, &code);
    free(binary);
    if (program->handle && code == CL_SUCCESS && binary_status == CL_SUCCESS &&
        device->cl.clBuildProgram(program->handle, 1, &device->caps.device, options, NULL, NULL) ==
            CL_SUCCESS) {
        cache->statistics.loaded++;
        program->saved = true;
        return true;
    }
    if (program->handle)
        device->cl.clReleaseProgram(program->handle);
    program->handle = NULL;
    cache->statistics.refused++;
    binary_cache_drop(&cache->binaries, program->key);
    report_log(&device->report, CLATTN_LOG_WARNING, "the driver refused a cache entry; building from source");
    return false;
}

/* Finds by key and moves to the front. */
static struct program *find(struct program_cache *cache, const uint8_t key[SHA256_BYTES])
{
    for (struct program **link = &cache->first; *link; link = &(*link)->next)
        if (!memcmp((*link)->key, key, SHA256_BYTES)) {
            struct program *found = *link;
            *link = found->next;
            found->next = cache->first;
            cache->first = found;
            return found;
        }
    return NULL;
}

/* Drops the least recently used programs that no plan holds. */
static void trim(struct program_cache *cache)
{
    while (cache->count > PROGRAMS_KEPT) {
        struct program **oldest = NULL;
        for (struct program **link = &cache->first; *link; link = &(*link)->next)
            if (!(*link)->references)
                oldest = link;
        if (!oldest)
            return;
        struct program *gone = *oldest;
        *oldest = gone->next;
        cache->count--;
        destroy(cache, gone);
    }
}

static clattn_status make(struct program_cache *cache, const char *file, const char *source,
                          const char *options, const uint8_t key[SHA256_BYTES], struct program **made)
{
    clattn_status status;
    struct program *program = calloc(1, sizeof *program);
    if (!program)
        return report_error(&cache->device->report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a program");
    memcpy(program->key, key, SHA256_BYTES);
    if (!build_from_binary(cache, options, program)) {
        TRY(build_from_source(cache->device, file, source, options, program));
        cache->statistics.built += !program->failure;
    }
    program->next = cache->first;
    cache->first = program;
    cache->count++;
    *made = program;
    return CLATTN_SUCCESS;
fail:
    destroy(cache, program);
    return status;
}

clattn_status program_get(struct program_cache *cache, const char *file, const char *options,
                          struct program **program)
{
    clattn_status status;
    struct report *report = &cache->device->report;
    struct strbuf source = {0}, all = {0};
    uint8_t key[SHA256_BYTES];
    bool locked = false;
    *program = NULL;
    TRY(source_expand(report, cache->kernel_dir, file, &source));
    strbuf_printf(&all, "%s%s", program_base_options, options);
    if (all.failed) {
        status = report_error(report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for build options");
        goto fail;
    }
    make_key(cache->device, source.text, all.text, key);
    mtx_lock(&cache->lock);
    locked = true;
    struct program *found = find(cache, key);
    if (!found)
        TRY(make(cache, file, source.text, all.text, key, &found));
    if (found->failure) {
        status = report_error(report, CLATTN_ERROR_BUILD, "%s", found->failure);
        goto fail;
    }
    found->references++;
    trim(cache);
    *program = found;
fail:
    if (locked)
        mtx_unlock(&cache->lock);
    strbuf_clear(&source);
    strbuf_clear(&all);
    return status;
}

void program_release(struct program_cache *cache, struct program **program)
{
    if (!*program)
        return;
    mtx_lock(&cache->lock);
    (*program)->references--;
    trim(cache);
    mtx_unlock(&cache->lock);
    *program = NULL;
}

clattn_status program_kernel(struct program_cache *cache, struct program *program, const char *name,
                             cl_kernel *kernel)
{
    cl_int code;
    *kernel = cache->device->cl.clCreateKernel(program->handle, name, &code);
    if (*kernel && code == CL_SUCCESS)
        return CLATTN_SUCCESS;
    *kernel = NULL;
    return report_opencl(&cache->device->report, "clCreateKernel", code);
}

/* The binary for our device: an adopted context may hold several. */
static uint8_t *read_binary(struct device *device, cl_program handle, size_t *bytes)
{
    const struct cl_table *cl = &device->cl;
    cl_uint count = 0;
    cl_device_id *devices = NULL;
    size_t *sizes = NULL;
    unsigned char **binaries = NULL;
    uint8_t *ours = NULL;
    if (cl->clGetProgramInfo(handle, CL_PROGRAM_NUM_DEVICES, sizeof count, &count, NULL) != CL_SUCCESS ||
        !count)
        return NULL;
    devices = calloc(count, sizeof *devices);
    sizes = calloc(count, sizeof *sizes);
    binaries = calloc(count, sizeof *binaries);
    if (!devices || !sizes || !binaries ||
        cl->clGetProgramInfo(handle, CL_PROGRAM_DEVICES, count * sizeof *devices, devices, NULL) !=
            CL_SUCCESS ||
        cl->clGetProgramInfo(handle, CL_PROGRAM_BINARY_SIZES, count * sizeof *sizes, sizes, NULL) !=
            CL_SUCCESS)
        goto done;
    for (cl_uint i = 0; i < count; i++)
        if (devices[i] == device->caps.device && sizes[i]) {
            binaries[i] = malloc(sizes[i]);
            if (binaries[i] && cl->clGetProgramInfo(handle, CL_PROGRAM_BINARIES, count * sizeof *binaries,
                                                    binaries, NULL) == CL_SUCCESS) {
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

void program_save(struct program_cache *cache, struct program *program)
{
    mtx_lock(&cache->lock);
    if (!program->saved && (cache->binaries.folder >= 0 || cache->binaries.store)) {
        size_t bytes;
        uint8_t *binary = read_binary(cache->device, program->handle, &bytes);
        if (binary)
            binary_cache_store(&cache->binaries, program->key, binary, bytes);
        free(binary);
        program->saved = true;
    }
    mtx_unlock(&cache->lock);
}
