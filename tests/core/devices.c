/* Devices are ranked and described, and a request chooses the right one or none. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/harness.h"
#include "support/core/inject.h"

static clattn_devices *devices;

static int list_devices(void **state)
{
    (void)state;
    return clattn_devices_create(NULL, &devices) == CLATTN_SUCCESS && clattn_devices_count(devices) ? 0 : -1;
}

static int drop_devices(void **state)
{
    (void)state;
    clattn_devices_release(&devices);
    return devices ? -1 : 0;
}

static clattn_device_info device_info(size_t index)
{
    clattn_device_info info = {.size = sizeof info};
    assert_status(NULL, clattn_devices_info(devices, index, &info), CLATTN_SUCCESS);
    return info;
}

static bool has_word(const char *words, const char *word)
{
    char padded[16384], wanted[128];
    assert_true(snprintf(padded, sizeof padded, " %s ", words) < (int)sizeof padded);
    snprintf(wanted, sizeof wanted, " %s ", word);
    return strstr(padded, wanted) != NULL;
}

/* Devices are ranked as GPU, accelerator, a vendor's CPU runtime, PoCL, software. */
static void devices_are_ranked_and_described(void **state)
{
    clattn_device_class last_class = 0;
    (void)state;
    for (size_t i = 0; i < clattn_devices_count(devices); i++) {
        clattn_device_info info = device_info(i);
        assert_true(info.device_class >= last_class);
        last_class = info.device_class;
        assert_true(info.device_class <= CLATTN_DEVICE_CLASS_SOFTWARE);
        assert_true(info.platform[0] && info.name[0] && info.version[0]);
        assert_non_null(info.vendor);
        assert_non_null(info.driver);
        assert_non_null(info.extensions);
        assert_int_not_equal(info.type, 0);
        assert_true(info.opencl_version >= 120);
        assert_true(info.compute_units >= 1 && info.max_work_group >= 1 && info.native_float_lanes >= 1);
        assert_true(info.global_memory >= info.max_allocation && info.max_allocation > 0);
        assert_true(info.local_memory > 0);
        assert_true(info.local_memory_kind == CLATTN_LOCAL_MEMORY_DEDICATED ||
                    info.local_memory_kind == CLATTN_LOCAL_MEMORY_EMULATED);
        assert_int_equal(info.has_fp16, has_word(info.extensions, "cl_khr_fp16"));
        assert_true(info.sub_group <= info.max_work_group);
    }
    for (size_t i = 0; i < clattn_devices_skipped_count(devices); i++)
        assert_true(strlen(clattn_devices_skipped(devices, i)) > 4);
    assert_null(clattn_devices_skipped(devices, clattn_devices_skipped_count(devices)));
}

/* A device whose extensions and sub-groups are `fake`. */
static struct {
    const char *extensions;
    size_t sizes[3], size_count; /* answer to CL_DEVICE_SUB_GROUP_SIZES_INTEL; if there are none, the query fails */
    cl_uint warp, wavefront;
} fake;

static cl_int answer(const void *data, size_t bytes, size_t room, void *value, size_t *size)
{
    if (!bytes || (value && room < bytes))
        return CL_INVALID_VALUE;
    if (value)
        memcpy(value, data, bytes);
    if (size)
        *size = bytes;
    return CL_SUCCESS;
}

static cl_int CL_API_CALL fake_device_info(cl_device_id device, cl_device_info what, size_t room, void *value,
                                           size_t *size)
{
    switch (what) {
    case CL_DEVICE_EXTENSIONS: return answer(fake.extensions, strlen(fake.extensions) + 1, room, value, size);
    case 0x4108: return answer(fake.sizes, fake.size_count * sizeof fake.sizes[0], room, value, size);
    case 0x4003: return answer(&fake.warp, sizeof fake.warp, room, value, size);
    case 0x4043: return answer(&fake.wavefront, sizeof fake.wavefront, room, value, size);
    default: return clGetDeviceInfo(device, what, room, value, size);
    }
}

static void *fake_proc(void *user, const char *name)
{
    cl_int(CL_API_CALL * function)(cl_device_id, cl_device_info, size_t, void *, size_t *) = fake_device_info;
    void *pointer = inject_get_proc(user, name);
    if (!strcmp(name, "clGetDeviceInfo"))
        memcpy(&pointer, &function, sizeof pointer);
    return pointer;
}

/* An extension counts only if its whole name matches, and a sub-group size only if it is the only one. */
static void extensions_and_sub_groups_are_read_exactly(void **state)
{
    static const struct {
        const char *extensions, *normalised;
        size_t sizes[3], size_count;
        uint32_t sub_group;
        int32_t has_sub_groups, has_fp16;
    } cases[] = {
        {"cl_khr_fp16_more cl_intel_subgroups_char a_cl_khr_fp16",
         "cl_khr_fp16_more cl_intel_subgroups_char a_cl_khr_fp16",
         {0},
         0,
         0,
         0,
         0},
        {"  cl_khr_subgroups\t cl_khr_fp16 ", "cl_khr_subgroups cl_khr_fp16", {0}, 0, 0, 1, 1},
        {"cl_intel_required_subgroup_size  cl_intel_subgroups",
         "cl_intel_required_subgroup_size cl_intel_subgroups",
         {16},
         1,
         16,
         1,
         0},
        {"cl_intel_subgroups cl_intel_required_subgroup_size",
         "cl_intel_subgroups cl_intel_required_subgroup_size",
         {8, 16, 32},
         3,
         0,
         1,
         0},
        {"cl_nv_device_attribute_query", "cl_nv_device_attribute_query", {0}, 0, 32, -1, 0},
        {"cl_khr_fp16 cl_amd_device_attribute_query", "cl_khr_fp16 cl_amd_device_attribute_query", {0}, 0, 64, -1, 1},
        {"cl_amd_device_attribute_query_not", "cl_amd_device_attribute_query_not", {0}, 0, 0, -1, 0},
        {"", "", {0}, 0, 0, -1, 0},
    };
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    (void)state;
    params.get_proc = fake_proc;
    fake.warp = 32;
    fake.wavefront = 64;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        clattn_devices *list = NULL;
        clattn_device_info info = {.size = sizeof info};
        fake.extensions = cases[i].extensions;
        fake.size_count = cases[i].size_count;
        memcpy(fake.sizes, cases[i].sizes, sizeof fake.sizes);
        inject_start(0, 0);
        assert_status(NULL, clattn_devices_create(&params, &list), CLATTN_SUCCESS);
        assert_status(NULL, clattn_devices_info(list, 0, &info), CLATTN_SUCCESS);
        assert_string_equal(info.extensions, cases[i].normalised);
        assert_int_equal(info.sub_group, cases[i].sub_group);
        assert_int_equal(info.has_fp16, cases[i].has_fp16);
        /* A device of OpenCL 2.1 or later has a query for sub-groups. */
        if (info.opencl_version < 210 || cases[i].has_sub_groups > 0)
            assert_int_equal(info.has_sub_groups, cases[i].has_sub_groups > 0);
        clattn_devices_release(&list);
    }
}

/* A struct that the library fills may be of a newer version, whose further members become 0, or of the first
 * version. */
static void newer_programs_get_what_there_is(void **state)
{
    struct {
        clattn_device_info info;
        uint64_t later[2];
    } newer = {.later = {1, 2}};
    clattn_device_info info = {.size = sizeof info};
    (void)state;
    newer.info.size = sizeof newer;
    assert_status(NULL, clattn_devices_info(devices, 0, &newer.info), CLATTN_SUCCESS);
    assert_status(NULL, clattn_devices_info(devices, 0, &info), CLATTN_SUCCESS);
    assert_int_equal(newer.info.size, sizeof newer);
    assert_true(newer.later[0] == 0 && newer.later[1] == 0);
    newer.info.size = sizeof info;
    assert_memory_equal(&newer.info, &info, sizeof info);
}

static void devices_refuse_bad_arguments(void **state)
{
    clattn_device_info info = {.size = sizeof info};
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    clattn_devices *more = NULL;
    (void)state;
    assert_status(NULL, clattn_devices_info(devices, clattn_devices_count(devices), &info),
                  CLATTN_ERROR_INVALID_ARGUMENT);
    assert_status(NULL, clattn_devices_info(devices, 0, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_status(NULL, clattn_devices_info(NULL, 0, &info), CLATTN_ERROR_INVALID_ARGUMENT);
    info.size = 3;
    assert_status(NULL, clattn_devices_info(devices, 0, &info), CLATTN_ERROR_INVALID_STRUCT);
    assert_status(NULL, clattn_devices_create(NULL, NULL), CLATTN_ERROR_INVALID_ARGUMENT);
    params.size = 1;
    assert_status(NULL, clattn_devices_create(&params, &more), CLATTN_ERROR_INVALID_STRUCT);
    assert_null(more);
}

static void expect_device(const char *spec, cl_device_id wanted)
{
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    params.device = spec;
    clattn_context *context = new_context_with(&params);
    assert_non_null(clattn_context_opencl_context(context));
    assert_non_null(clattn_context_queue(context));
    if (wanted)
        assert_ptr_equal(clattn_context_opencl_device(context), wanted);
    release_context(&context);
}

static void expect_no_device(const char *spec)
{
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    clattn_context *context = (clattn_context *)(void *)&params; /* must be NULL afterwards */
    params.device = spec;
    assert_status(NULL, clattn_context_create(&params, &context), CLATTN_ERROR_NO_DEVICE);
    assert_null(context);
    if (spec)
        assert_message_has(NULL, spec);
}

static bool has_class(int32_t low, int32_t high)
{
    for (size_t i = 0; i < clattn_devices_count(devices); i++) {
        int32_t kind = device_info(i).device_class;
        if (kind >= low && kind <= high)
            return true;
    }
    return false;
}

static void a_device_is_chosen_by_every_form(void **state)
{
    char spec[512];
    (void)state;
    for (size_t i = 0; i < clattn_devices_count(devices); i++) {
        clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
        clattn_device_info wanted = device_info(i), got = {.size = sizeof got};
        snprintf(spec, sizeof spec, "%zu", i);
        params.device = spec;
        clattn_context *context = new_context_with(&params);
        cl_device_id by_index = clattn_context_opencl_device(context);
        assert_status(context, clattn_context_device_info(context, &got), CLATTN_SUCCESS);
        assert_string_equal(got.name, wanted.name);
        assert_string_equal(got.platform, wanted.platform);
        release_context(&context);
        snprintf(spec, sizeof spec, "%s:%s", wanted.platform, wanted.name);
        expect_device(spec, by_index);
        for (char *c = spec; *c; c++) /* substrings match in any case */
            if (*c >= 'a' && *c <= 'z')
                *c = (char)(*c - 'a' + 'A');
        expect_device(spec, by_index);
        snprintf(spec, sizeof spec, "%.4s:", wanted.platform);
        expect_device(spec, NULL);
        snprintf(spec, sizeof spec, ":%.6s", wanted.name);
        expect_device(spec, NULL);
    }
    if (has_class(CLATTN_DEVICE_CLASS_GPU, CLATTN_DEVICE_CLASS_GPU))
        expect_device("gpu", NULL);
    else
        expect_no_device("gpu");
    if (has_class(CLATTN_DEVICE_CLASS_CPU, CLATTN_DEVICE_CLASS_POCL))
        expect_device("cpu", NULL);
    else
        expect_no_device("cpu");
    if (has_class(CLATTN_DEVICE_CLASS_POCL, CLATTN_DEVICE_CLASS_POCL))
        expect_device("pocl", NULL);
    else
        expect_no_device("pocl");
}

static void a_request_that_nothing_matches_is_no_device(void **state)
{
    static const char *const specs[] = {"nonsense", "nonsense:", ":nonsense", "Portable:nonsense",       "-1",   "+0",
                                        "0x0",      "1e0",       "99999",     "99999999999999999999999", "gpuu", " "};
    (void)state;
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        expect_no_device(specs[i]);
    char long_spec[3000];
    memset(long_spec, 'x', sizeof long_spec);
    long_spec[sizeof long_spec - 1] = '\0';
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    clattn_context *context = NULL;
    params.device = long_spec;
    assert_status(NULL, clattn_context_create(&params, &context), CLATTN_ERROR_NO_DEVICE);
}

/* A field of the params wins over every environment variable. */
static void params_win_over_the_environment(void **state)
{
    saved_variable saved = variable_save("CLATTN_DEVICE");
    (void)state;
    setenv("CLATTN_DEVICE", "nonsense", 1);
    expect_no_device(NULL);
    assert_message_has(NULL, "nonsense");
    expect_device("0", NULL);
    setenv("CLATTN_DEVICE", "0", 1);
    expect_device(NULL, NULL);
    expect_no_device("nonsense");
    variable_restore(&saved);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(devices_are_ranked_and_described, list_devices, drop_devices),
        cmocka_unit_test(extensions_and_sub_groups_are_read_exactly),
        cmocka_unit_test_setup_teardown(newer_programs_get_what_there_is, list_devices, drop_devices),
        cmocka_unit_test_setup_teardown(devices_refuse_bad_arguments, list_devices, drop_devices),
        cmocka_unit_test_setup_teardown(a_device_is_chosen_by_every_form, list_devices, drop_devices),
        cmocka_unit_test(a_request_that_nothing_matches_is_no_device),
        cmocka_unit_test(params_win_over_the_environment),
    };
    return RUN_TESTS("devices", tests, argc, argv);
}
