/* PoCL 4 to 6 ends the process if it is asked for some programs' binaries, or takes inline assembly for an allocation:
 * the library does neither there, and does both with other versions.  PoCL 7 gets no attention_tile that it cannot compile.
 * The versions are told by a stand-in for clGetDeviceInfo. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/operator.h"
#include "support/plan/cached_plan.h"
#include "support/core/inject.h"

static struct {
    const char *version;
    unsigned queries;   /* for a program's binary */
    char options[4096]; /* of the last build */
} driver;

static cl_int CL_API_CALL tell_version(cl_device_id device, cl_device_info what, size_t room, void *value, size_t *size)
{
    const size_t bytes = strlen(driver.version) + 1;
    if (what != CL_DRIVER_VERSION)
        return clGetDeviceInfo(device, what, room, value, size);
    if (value && room < bytes)
        return CL_INVALID_VALUE;
    if (value)
        memcpy(value, driver.version, bytes);
    if (size)
        *size = bytes;
    return CL_SUCCESS;
}

static cl_int CL_API_CALL count_queries(cl_program program, cl_program_info what, size_t room, void *value,
                                        size_t *size)
{
    driver.queries += what == CL_PROGRAM_BINARIES || what == CL_PROGRAM_BINARY_SIZES;
    return clGetProgramInfo(program, what, room, value, size);
}

static cl_int CL_API_CALL note_options(cl_program program, cl_uint count, const cl_device_id *devices,
                                       const char *options, void(CL_CALLBACK *notify)(cl_program, void *), void *user)
{
    snprintf(driver.options, sizeof driver.options, "%s", options);
    return clBuildProgram(program, count, devices, options, notify, user);
}

static void *driver_get_proc(void *user, const char *name)
{
    __typeof__(clGetDeviceInfo) *info = tell_version;
    __typeof__(clGetProgramInfo) *query = count_queries;
    __typeof__(clBuildProgram) *build = note_options;
    void *pointer = inject_get_proc(user, name);
    if (!strcmp(name, "clGetDeviceInfo"))
        memcpy(&pointer, &info, sizeof pointer);
    if (!strcmp(name, "clGetProgramInfo"))
        memcpy(&pointer, &query, sizeof pointer);
    if (!strcmp(name, "clBuildProgram"))
        memcpy(&pointer, &build, sizeof pointer);
    return pointer;
}

/* The context of a driver that says it is of that version. */
static clattn_context *context_of(const char *version)
{
    driver.version = version;
    driver.queries = 0;
    cache_params.get_proc = driver_get_proc;
    inject_start(0, 0);
    return new_context_with(&cache_params);
}

static clattn_plan *softmax_plan(clattn_context *context, const char *solver)
{
    clattn_softmax_desc desc = CLATTN_SOFTMAX_DESC_INIT;
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    clattn_plan *plan = NULL;
    options.solver = solver;
    desc.x = desc.y = clattn_layout_contiguous(CLATTN_DTYPE_F16, 2, (const size_t[]){3, 33});
    assert_status(context, clattn_softmax_plan_create(context, &desc, &options, &plan), CLATTN_SUCCESS);
    return plan;
}

/* Whether the device is PoCL; *breaks tells whether it is one of the versions that this program is about. */
static bool on_pocl(bool *breaks)
{
    clattn_context *context = new_context_with(&cache_params);
    clattn_device_info info = {.size = sizeof info};
    assert_status(context, clattn_context_device_info(context, &info), CLATTN_SUCCESS);
    const bool is = strstr(info.platform, "Portable Computing Language") != NULL;
    const long major = strtol(info.driver, NULL, 10);
    *breaks = major >= 4 && major < 7;
    release_context(&context);
    return is;
}

static void binaries_are_asked_of_drivers_that_survive_it(void **state)
{
    static const struct {
        const char *version;
        bool asks;
    } cases[] = {
        {"3.1+debian", true}, {"4.0", false}, {"5.0+debian", false}, {"6.0+debian", false},
        {"7.0+debian", true}, {"10.2", true}, {"main", false},
    };
    bool breaks;
    (void)state;
    if (!on_pocl(&breaks))
        skip();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (cases[i].asks && breaks)
            continue;
        empty_cache(NULL);
        clattn_context *context = context_of(cases[i].version);
        clattn_plan *plan = softmax_plan(context, "generic");
        clattn_device_info info = {.size = sizeof info};
        assert_status(context, clattn_context_device_info(context, &info), CLATTN_SUCCESS);
        assert_int_equal(info.saves_programs, cases[i].asks);
        assert_int_equal(strstr(clattn_plan_explain(plan), "programs are not saved") == NULL, cases[i].asks);
        clattn_plan_release(&plan);
        assert_status(context, clattn_context_save_programs(context), CLATTN_SUCCESS);
        release_context(&context);
        assert_int_equal(driver.queries > 0, cases[i].asks);
        assert_int_equal(cached_files(cache_folder, NULL), cases[i].asks ? 1 : 0);
    }
}

/* Whether a driver of that version is given inline assembly in softmax's kernel of that solver. */
static bool gives_assembly(const char *version, const char *solver)
{
    clattn_context *context = context_of(version);
    clattn_plan *plan = softmax_plan(context, solver);
    const bool gives = strstr(driver.options, " -DX86_F16=1") != NULL;
    assert_true(gives || strstr(driver.options, " -DX86_F16=0"));
    clattn_plan_release(&plan);
    release_context(&context);
    return gives;
}

/* The cpu solver's kernel has one work-item a group, the tile solver's has many. */
static void assembly_is_given_to_drivers_that_take_it(void **state)
{
    bool breaks;
    (void)state;
    if (!on_pocl(&breaks))
        skip();
    cache_params.cache_mode = CLATTN_CACHE_MODE_OFF;
    saved_variable method = variable_save("POCL_WORK_GROUP_METHOD");
    saved_variable threshold = variable_save("POCL_FULL_REPLICATION_THRESHOLD");
    unsetenv("POCL_WORK_GROUP_METHOD");
    unsetenv("POCL_FULL_REPLICATION_THRESHOLD");
    const bool takes = gives_assembly("6.0+debian", "cpu");
    assert_false(gives_assembly("6.0+debian", "tile"));
    if (!breaks) {
        assert_int_equal(gives_assembly("3.1+debian", "cpu"), takes);
        assert_int_equal(gives_assembly("7.1", "tile"), takes);
    }
    setenv("POCL_WORK_GROUP_METHOD", "loopvec", 1);
    assert_false(gives_assembly("6.0+debian", "cpu"));
    unsetenv("POCL_WORK_GROUP_METHOD");
    setenv("POCL_FULL_REPLICATION_THRESHOLD", "0", 1);
    assert_false(gives_assembly("5.0+debian", "cpu"));
    variable_restore(&method);
    variable_restore(&threshold);
}

/* What a driver of that version answers to attention by that solver. */
static clattn_status answer_of(const char *version, const char *solver)
{
    clattn_context *context = context_of(version);
    clattn_attention_desc desc = CLATTN_ATTENTION_DESC_INIT;
    desc.query = desc.key = desc.value = desc.output =
        clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, (const size_t[]){1, 1, 4, 8});
    const clattn_status status = operator_makes(context, &attention_operator, &desc, solver);
    release_context(&context);
    return status;
}

static void tiles_are_not_made_by_drivers_that_break_them(void **state)
{
    static const char *const breaking[] = {"4.0", "5.0", "6.0+debian", "7.1"};
    bool breaks;
    (void)state;
    if (!on_pocl(&breaks) || !device_is_cpu())
        skip();
    cache_params.cache_mode = CLATTN_CACHE_MODE_OFF;
    for (size_t i = 0; i < COUNT_OF(breaking); i++) {
        assert_int_equal(answer_of(breaking[i], "tile"), CLATTN_ERROR_UNSUPPORTED);
        assert_int_equal(answer_of(breaking[i], "decode"), CLATTN_ERROR_UNSUPPORTED);
    }
    assert_int_equal(answer_of("7.1", "cpu"), CLATTN_SUCCESS);
    if (!device_breaks("tile")) {
        assert_int_equal(answer_of("3.1+debian", "tile"), CLATTN_SUCCESS);
        assert_int_equal(answer_of("3.1+debian", "decode"), CLATTN_SUCCESS);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(binaries_are_asked_of_drivers_that_survive_it, empty_cache),
        cmocka_unit_test_setup(assembly_is_given_to_drivers_that_take_it, empty_cache),
        cmocka_unit_test_setup(tiles_are_not_made_by_drivers_that_break_them, empty_cache),
    };
    return RUN_TESTS("driver_versions", tests, argc, argv);
}
