#include "support/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_SIZE 256

static clattn_context *opened;
static clattn_program_statistics released; /* of the contexts that release_context had */
static void *(*functions)(void *user, const char *name);
static uint32_t plans;
static bool lacks_builtins;

void device_use_functions(void *(*get_proc)(void *user, const char *name))
{
    functions = get_proc;
}

void device_use_plans(uint32_t capacity)
{
    plans = capacity;
}

static void get_platform_name(char name[NAME_SIZE])
{
    cl_platform_id platform = NULL;

    name[0] = '\0';
    clGetDeviceInfo(clattn_context_opencl_device(opened), CL_DEVICE_PLATFORM, sizeof platform, &platform, NULL);
    clGetPlatformInfo(platform, CL_PLATFORM_NAME, NAME_SIZE, name, NULL);
}

static void print_device(void)
{
    const cl_device_id device = clattn_context_opencl_device(opened);
    const char *level = getenv("CLATTN_TEST_LEVEL");
    char name[NAME_SIZE] = "", driver[NAME_SIZE] = "", platform[NAME_SIZE];

    clGetDeviceInfo(device, CL_DEVICE_NAME, sizeof name, name, NULL);
    clGetDeviceInfo(device, CL_DRIVER_VERSION, sizeof driver, driver, NULL);
    get_platform_name(platform);
    /* tests/platforms.py shows driver and level. */
    printf("# device: %s; driver %s; level %s; %s\n", platform, driver, level ? level : "quick", name);
}

static void watch_log(void *user, clattn_log_level level, const char *message)
{
    (void)user, (void)level;
    if (strstr(message, "lib/builtins.h")) {
        printf("%s\n", message);
        lacks_builtins = true;
    }
}

bool device_lacks_builtins(void)
{
    return lacks_builtins;
}

clattn_context *device_context(void)
{
    if (!opened) {
        clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;

        params.get_proc = functions;
        params.plan_capacity = plans;
        params.log = watch_log;
        params.device = getenv("CLATTN_DEVICE") ? NULL : "0";
        if (clattn_context_create(&params, &opened) != CLATTN_SUCCESS) {
            char message[512];

            clattn_context_message(NULL, message, sizeof message);
            fprintf(stderr, "no device to test on: %s\n", message);
            exit(1); /* never a skip */
        }
        print_device();
    }
    return opened;
}

clattn_program_statistics device_programs(void)
{
    return opened ? programs_of(opened) : (clattn_program_statistics){.size = sizeof(clattn_program_statistics)};
}

void device_release(void)
{
    release_context(&opened);
}

const char *device_pairs_solver(void)
{
    FILE *file = fopen("/proc/cpuinfo", "r");
    char line[4096];
    bool amd = false, pairs = false, tiles = false;

    while (file && fgets(line, sizeof line, file)) {
        amd = amd || strstr(line, "AuthenticAMD");
        pairs = pairs || strstr(line, " avx512_bf16");
        tiles = tiles || strstr(line, " amx_bf16");
    }
    if (file) {
        assert_int_equal(fclose(file), 0);
    }
    if (!pairs || !device_platform_contains("Portable Computing Language")) {
        return NULL;
    }
    return tiles ? "cpu-amx" : amd ? "cpu-bf16" : NULL;
}

void device_check_pairs(const clattn_plan *plan, bool pays)
{
    static const char *const names[] = {"cpu-amx", "cpu-bf16"};
    const char *wanted = pays ? device_pairs_solver() : NULL;

    for (size_t i = 0; i < COUNT_OF(names); i++) {
        bool is = wanted && !strcmp(wanted, names[i]);
        char chosen[32];
        snprintf(chosen, sizeof chosen, "  %s: chosen", names[i]);
        assert_int_equal(!strcmp(clattn_plan_solver(plan), names[i]), is);
        assert_int_equal(strstr(clattn_plan_explain(plan), chosen) != NULL, is);
    }
}

bool device_shuffles(void)
{
    static char text[65536];

    text[0] = '\0';
    clGetDeviceInfo(clattn_context_opencl_device(device_context()), CL_DEVICE_EXTENSIONS, sizeof text - 1, text, NULL);
    return device_platform_contains("NVIDIA CUDA") || device_platform_contains("AMD Accelerated Parallel Processing") ||
           (strstr(text, "cl_intel_subgroups ") && strstr(text, "cl_intel_required_subgroup_size"));
}

bool device_is_cpu(void)
{
    cl_device_type type = 0;

    clGetDeviceInfo(clattn_context_opencl_device(device_context()), CL_DEVICE_TYPE, sizeof type, &type, NULL);
    return (type & CL_DEVICE_TYPE_CPU) != 0;
}

bool device_platform_contains(const char *part)
{
    char name[NAME_SIZE];

    device_context();
    get_platform_name(name);
    return strstr(name, part) != NULL;
}

void needs_saved_programs(void)
{
    clattn_context_params params = {.size = sizeof params, .cache_mode = CLATTN_CACHE_MODE_OFF};
    clattn_device_info info = {.size = sizeof info};
    clattn_context *context = new_context_with(&params);

    assert_status(context, clattn_context_device_info(context, &info), CLATTN_SUCCESS);
    const bool saves = info.saves_programs != 0;
    release_context(&context);
    if (!saves) {
        printf("# skipped, because this device's programs cannot be saved\n");
        skip();
    }
}

void device_release_buffer(cl_mem buffer)
{
    /* Oclgrind 21.10 (--uninitialized) gives a released buffer's number to a later one, but keeps the size of its
     * shadow: what a larger buffer has beyond it then counts as uninitialised.  There buffers stay. */
    if (!device_platform_contains("Oclgrind")) {
        assert_cl(clReleaseMemObject(buffer));
    }
}

clattn_context *new_context(void)
{
    return new_context_with(NULL);
}

clattn_context *new_context_with(const clattn_context_params *params)
{
    clattn_context *made = NULL;
    assert_status(NULL, clattn_context_create(params, &made), CLATTN_SUCCESS);
    assert_non_null(made);
    return made;
}

void release_context(clattn_context **context)
{
    clattn_program_statistics statistics = {.size = sizeof statistics};
    if (*context && clattn_context_program_statistics(*context, &statistics) == CLATTN_SUCCESS) {
        released.built += statistics.built;
        released.loaded += statistics.loaded;
        released.refused += statistics.refused;
    }
    clattn_context_release(context);
    assert_null(*context);
}

clattn_program_statistics programs_of(const clattn_context *context)
{
    clattn_program_statistics statistics = {.size = sizeof statistics};
    assert_status(context, clattn_context_program_statistics(context, &statistics), CLATTN_SUCCESS);
    return statistics;
}

clattn_program_statistics released_programs(void)
{
    return released;
}

cl_command_queue new_queue(const clattn_context *context, bool out_of_order)
{
    const cl_command_queue_properties properties = out_of_order ? CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE : 0;
    cl_command_queue_properties known = 0;
    cl_device_id device = clattn_context_opencl_device(context);
    assert_cl(clGetDeviceInfo(device, CL_DEVICE_QUEUE_PROPERTIES, sizeof known, &known, NULL));
    if (properties & ~known)
        return NULL;
    cl_command_queue queue = clCreateCommandQueue(clattn_context_opencl_context(context), device, properties, NULL);
    assert_true(queue || out_of_order);
    return queue;
}

cl_event new_user_event(cl_context opencl)
{
    cl_int code = CL_SUCCESS;
    cl_event event = clCreateUserEvent(opencl, &code);
    assert_cl(code);
    return event;
}

cl_mem new_buffer(cl_context opencl, cl_mem_flags flags, size_t bytes, const void *data)
{
    cl_int code = CL_SUCCESS;
    unsigned char *poison = NULL;
    if (!data) {
        poison = malloc(bytes);
        assert_non_null(poison);
        memset(poison, 0xff, bytes);
    }
    cl_mem buffer = clCreateBuffer(opencl, flags | CL_MEM_COPY_HOST_PTR, bytes,
                                   poison ? (void *)poison : (void *)(uintptr_t)data, &code);
    free(poison);
    assert_cl(code);
    assert_non_null(buffer);
    return buffer;
}

void read_buffer(cl_command_queue queue, cl_mem buffer, size_t bytes, void *data)
{
    assert_cl(clFinish(queue));
    assert_cl(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, bytes, data, 0, NULL, NULL));
}

void write_buffer(cl_command_queue queue, cl_mem buffer, size_t at, size_t bytes, const void *data)
{
    assert_cl(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, at, bytes, data, 0, NULL, NULL));
    assert_cl(clFinish(queue));
}

bool device_breaks(const char *solver)
{
    clattn_device_info info = {.size = sizeof info};
    static const char *const by_tiles[] = {"tile", "decode", "sub-group", "emulated-sub-group"};
    bool named = false;
    for (size_t i = 0; i < COUNT_OF(by_tiles); i++)
        named = named || (solver && !strcmp(solver, by_tiles[i]));
    assert_status(device_context(), clattn_context_device_info(device_context(), &info), CLATTN_SUCCESS);
    const long major = strtol(info.driver, NULL, 10);
    return named && device_platform_contains("Portable Computing Language") && major >= 4 && major < 8;
}
