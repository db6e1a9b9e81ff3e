/* Devices that are made up stand in their places among those that are here, and those that cannot be used are named. */
#include <stdio.h>
#include <string.h>

#include "support/core/inject.h"
#include "support/harness.h"

/* A device that answers what is given here, and everything else as the first real device of its platform; 0: as that. */
struct fake {
    cl_device_type type;
    const char *vendor, *name;
    cl_uint units, clock, lanes; /* these count even if they are 0 */
    cl_uint dimensions;
    const char *version;
};

/* Best first: by class, then by units, clock and lanes, of which a vendor's have so many, then by name. */
static const struct fake ranked[] = {
    {CL_DEVICE_TYPE_GPU, "NVIDIA Corporation", "fake n", 400, 1000, 1, 0, NULL},
    {CL_DEVICE_TYPE_GPU, "AMD", "fake a", 400, 1000, 1, 0, NULL},
    {CL_DEVICE_TYPE_GPU, "Intel(R) Corporation", "fake i", 400, 1000, 1, 0, NULL},
    {CL_DEVICE_TYPE_ACCELERATOR, "nobody", "fake accelerator", 100, 1000, 8, 0, NULL},
    {CL_DEVICE_TYPE_CPU, "nobody", "fake large", 8, 1000, 8, 0, NULL},
    {CL_DEVICE_TYPE_CPU, "nobody", "fake small", 4, 1000, 8, 0, NULL},
    {CL_DEVICE_TYPE_CPU, "nobody", "fake twin 1", 4, 0, 0, 0, NULL},
    {CL_DEVICE_TYPE_CPU, "nobody", "fake twin 2", 4, 0, 0, 0, NULL},
};

static const struct fake unusable[] = {
    {CL_DEVICE_TYPE_CPU, "nobody", "fake flat", 1, 1, 1, 2, NULL},
    {CL_DEVICE_TYPE_CPU, "nobody", "fake deep", 1, 1, 1, 9, NULL},
    {CL_DEVICE_TYPE_CPU, "nobody", "fake old", 1, 1, 1, 0, "OpenCL 1.1"},
    {CL_DEVICE_TYPE_CPU, "nobody", "fake other", 1, 1, 1, 0, "something else"},
};

/* What platforms list besides their own devices, the last of which comes first, or that they list none. */
static struct {
    const struct fake *fakes;
    cl_uint count;
    cl_int code;
} listed;
static cl_device_id real;

static cl_int answer(const void *data, size_t bytes, size_t room, void *value, size_t *size)
{
    if (value && room < bytes)
        return CL_INVALID_VALUE;
    if (value)
        memcpy(value, data, bytes);
    if (size)
        *size = bytes;
    return CL_SUCCESS;
}

#define ANSWER(number) answer(&(number), sizeof(number), room, value, size)
#define ANSWER_TEXT(text) answer(text, strlen(text) + 1, room, value, size)

static cl_int CL_API_CALL info_of(cl_device_id device, cl_device_info what, size_t room, void *value, size_t *size)
{
    const struct fake *fake = (const struct fake *)(void *)device;
    if (fake < listed.fakes || fake >= listed.fakes + listed.count)
        return clGetDeviceInfo(device, what, room, value, size);
    switch (what) {
    case CL_DEVICE_TYPE: return ANSWER(fake->type);
    case CL_DEVICE_VENDOR: return ANSWER_TEXT(fake->vendor);
    case CL_DEVICE_NAME: return ANSWER_TEXT(fake->name);
    case CL_DEVICE_MAX_COMPUTE_UNITS: return ANSWER(fake->units);
    case CL_DEVICE_MAX_CLOCK_FREQUENCY: return ANSWER(fake->clock);
    case CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT: return ANSWER(fake->lanes);
    case CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS:
        if (fake->dimensions)
            return ANSWER(fake->dimensions);
        break;
    case CL_DEVICE_VERSION:
        if (fake->version)
            return ANSWER_TEXT(fake->version);
        break;
    default: break;
    }
    return clGetDeviceInfo(real, what, room, value, size);
}

static cl_int CL_API_CALL ids_of(cl_platform_id platform, cl_device_type type, cl_uint room, cl_device_id *list,
                                 cl_uint *count)
{
    if (!listed.fakes) {
        if (count)
            *count = 0;
        return listed.code;
    }
    cl_int code = clGetDeviceIDs(platform, type, 1, &real, NULL);
    for (cl_uint i = 0; code == CL_SUCCESS && list && i < room; i++)
        list[i] = i < listed.count ? (cl_device_id)(void *)(uintptr_t)&listed.fakes[listed.count - 1 - i] : real;
    if (count)
        *count = listed.count + 1;
    return code;
}

static void *get_proc(void *user, const char *name)
{
    __typeof__(&info_of) info = info_of;
    __typeof__(&ids_of) ids = ids_of;
    void *pointer = inject_get_proc(user, name);
    if (!strcmp(name, "clGetDeviceInfo"))
        memcpy(&pointer, &info, sizeof pointer);
    if (!strcmp(name, "clGetDeviceIDs"))
        memcpy(&pointer, &ids, sizeof pointer);
    return pointer;
}

static clattn_devices *list(const struct fake *fakes, size_t count, cl_int code)
{
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    clattn_devices *devices = NULL;
    listed.fakes = fakes;
    listed.count = (cl_uint)count;
    listed.code = code;
    params.get_proc = get_proc;
    inject_start(0, 0);
    assert_status(NULL, clattn_devices_create(&params, &devices), CLATTN_SUCCESS);
    return devices;
}

static void devices_are_ranked(void **state)
{
    enum { RANKED = sizeof ranked / sizeof *ranked };
    size_t next = 0;
    (void)state;
    clattn_devices *devices = list(ranked, RANKED, CL_SUCCESS);
    assert_true(clattn_devices_count(devices) % (RANKED + 1) == 0); /* each platform has them */
    const size_t platforms = clattn_devices_count(devices) / (RANKED + 1);
    for (size_t i = 0; i < clattn_devices_count(devices); i++) {
        clattn_device_info info = {.size = sizeof info};
        assert_status(NULL, clattn_devices_info(devices, i, &info), CLATTN_SUCCESS);
        if (strncmp(info.name, "fake ", 5))
            continue;
        if (platforms == 1)
            assert_string_equal(info.name, ranked[next].name);
        next++;
    }
    assert_int_equal(next, RANKED * platforms);
    clattn_devices_release(&devices);
}

static bool is_skipped(const clattn_devices *devices, const char *name, const char *why)
{
    for (size_t i = 0; i < clattn_devices_skipped_count(devices); i++) {
        const char *line = clattn_devices_skipped(devices, i);
        if (strstr(line, name) && strstr(line, why))
            return true;
    }
    return false;
}

static void the_unusable_are_named(void **state)
{
    (void)state;
    clattn_devices *devices = list(unusable, sizeof unusable / sizeof *unusable, CL_SUCCESS);
    assert_true(clattn_devices_count(devices) > 0);
    assert_true(is_skipped(devices, "fake flat", "claims 2 work-item dimensions"));
    assert_true(is_skipped(devices, "fake deep", "claims 9 work-item dimensions"));
    assert_true(is_skipped(devices, "fake old", "has OpenCL 1.1, OpenCL 1.2 is needed"));
    assert_true(is_skipped(devices, "fake other", "has something else, OpenCL 1.2 is needed"));
    clattn_devices_release(&devices);
    const cl_int codes[] = {CL_SUCCESS, CL_DEVICE_NOT_FOUND, CL_INVALID_PLATFORM};
    const char *const words[] = {"lists no device", "lists no device", "clGetDeviceIDs failed: CL_INVALID_PLATFORM"};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        devices = list(NULL, 0, codes[i]);
        assert_int_equal(clattn_devices_count(devices), 0);
        assert_true(is_skipped(devices, "", words[i]));
        clattn_devices_release(&devices);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_are_ranked),
        cmocka_unit_test(the_unusable_are_named),
    };
    return RUN_TESTS("devices ranked", tests, argc, argv);
}
