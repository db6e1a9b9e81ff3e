/* The device under test: what CLATTN_DEVICE says, otherwise the best that is visible, software devices
 * included, so that OCL_ICD_VENDORS alone chooses a platform. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"

static clattn_context *context;
static void *(*functions)(void *user, const char *name);

void device_use_functions(void *(*get_proc)(void *user, const char *name))
{
    functions = get_proc;
}

clattn_context *device_context(void)
{
    if (!context) {
        clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;

        params.get_proc = functions;
        params.device = getenv("CLATTN_DEVICE") ? NULL : "0";
        if (clattn_context_create(&params, &context) != CLATTN_SUCCESS) {
            char message[512];

            clattn_context_message(NULL, message, sizeof message);
            fprintf(stderr, "no device to test on: %s\n", message);
            exit(1); /* never a skip */
        }
    }
    return context;
}

int device_open(void **state)
{
    (void)state;
    device_context();
    return 0;
}

int device_close(void **state)
{
    static const char *const names[] = {[LEVEL_TINY] = "tiny", [LEVEL_SMALL] = "small", [LEVEL_FULL] = "full"};
    clattn_program_statistics statistics = {.size = sizeof statistics};
    char name[128] = "", platform_name[128] = "";
    cl_device_id device = clattn_context_opencl_device(context);
    cl_platform_id platform = NULL;

    (void)state;
    clGetDeviceInfo(device, CL_DEVICE_NAME, sizeof name - 1, name, NULL);
    clGetDeviceInfo(device, CL_DEVICE_PLATFORM, sizeof platform, &platform, NULL);
    clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof platform_name - 1, platform_name, NULL);
    if (clattn_context_program_statistics(context, &statistics) != CLATTN_SUCCESS) {
        return 1;
    }
    printf("%s, %s: level %s, programs built %llu, loaded %llu, refused %llu\n", platform_name, name, names[level()],
           (unsigned long long)statistics.built, (unsigned long long)statistics.loaded,
           (unsigned long long)statistics.refused);
    clattn_context_release(&context);
    return context != NULL;
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
    char text[256] = "";
    cl_device_id device = clattn_context_opencl_device(device_context());
    cl_platform_id platform = NULL;

    clGetDeviceInfo(device, CL_DEVICE_PLATFORM, sizeof platform, &platform, NULL);
    clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof text - 1, text, NULL);
    return strstr(text, part) != NULL;
}

void device_release_buffer(cl_mem buffer)
{
    /* Oclgrind 21.10 (--uninitialized) gives a released buffer's number to a later one, but keeps the size of its
     * shadow: what a larger buffer has beyond it then counts as uninitialised.  There buffers stay. */
    if (!device_platform_contains("Oclgrind")) {
        assert_cl(clReleaseMemObject(buffer));
    }
}

static cl_command_queue make_queue(cl_command_queue_properties properties)
{
    return clCreateCommandQueue(clattn_context_opencl_context(device_context()),
                                clattn_context_opencl_device(device_context()), properties, NULL);
}

cl_command_queue device_queue(void)
{
    cl_command_queue queue = make_queue(0);

    assert_non_null(queue);
    return queue;
}

cl_command_queue device_queue_out_of_order(void)
{
    cl_command_queue_properties properties = 0;

    clGetDeviceInfo(clattn_context_opencl_device(device_context()), CL_DEVICE_QUEUE_PROPERTIES, sizeof properties,
                    &properties, NULL);
    return properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE ? make_queue(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE)
                                                               : NULL;
}

void check_status(clattn_status expected, clattn_status actual, const char *what, const char *file, int line)
{
    if (actual != expected) {
        char message[4096] = "";

        clattn_context_message(context, message, sizeof message);
        print_error("%s\n    gave '%s' (%d), expected '%s'\n    %s\n", what, clattn_status_string(actual), (int)actual,
                    clattn_status_string(expected), message);
        _fail(file, line);
    }
}
