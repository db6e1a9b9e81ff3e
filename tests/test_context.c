/* Contexts: which device is chosen, what is known of it, how a wrong request fails. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <threads.h>
#include <unistd.h>

#include "support/api.h"
#include "support/inject.h"

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

/* Ranking: GPU, accelerator, a vendor's CPU runtime, PoCL, software. */
static void devices_are_ranked_and_described(void **state)
{
    int32_t last_class = 0;
    (void)state;
    for (size_t i = 0; i < clattn_devices_count(devices); i++) {
        clattn_device_info info = device_info(i);
        assert_true(info.device_class >= last_class);
        last_class = info.device_class;
        assert_true(info.device_class >= CLATTN_DEVICE_GPU && info.device_class <= CLATTN_DEVICE_SOFTWARE);
        assert_true(info.platform[0] && info.name[0] && info.version[0]);
        assert_non_null(info.vendor);
        assert_non_null(info.driver);
        assert_non_null(info.extensions);
        assert_int_not_equal(info.type, 0);
        assert_true(info.opencl_version >= 120);
        assert_true(info.compute_units >= 1 && info.max_work_group >= 1 && info.native_float_lanes >= 1);
        assert_true(info.global_memory >= info.max_allocation && info.max_allocation > 0);
        assert_true(info.local_memory > 0);
        assert_true(info.local_memory_kind == CLATTN_LOCAL_DEDICATED ||
                    info.local_memory_kind == CLATTN_LOCAL_EMULATED);
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
    size_t sizes[3], size_count; /* of CL_DEVICE_SUB_GROUP_SIZES_INTEL; none: an error */
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
    cl_int(CL_API_CALL *function)(cl_device_id, cl_device_info, size_t, void *, size_t *) = fake_device_info;
    void *pointer = inject_get_proc(user, name);
    if (!strcmp(name, "clGetDeviceInfo"))
        memcpy(&pointer, &function, sizeof pointer);
    return pointer;
}

/* Rule: an extension's name counts as a whole, and a sub-group's size where there is but one. */
static void extensions_and_sub_groups_are_read_exactly(void **state)
{
    static const struct {
        const char *extensions, *normalised;
        size_t sizes[3], size_count;
        uint32_t sub_group;
        int32_t has_sub_groups, has_fp16;
    } cases[] = {
        {"cl_khr_fp16_more cl_intel_subgroups_char a_cl_khr_fp16",
         "cl_khr_fp16_more cl_intel_subgroups_char a_cl_khr_fp16", {0}, 0, 0, 0, 0},
        {"  cl_khr_subgroups\t cl_khr_fp16 ", "cl_khr_subgroups cl_khr_fp16", {0}, 0, 0, 1, 1},
        {"cl_intel_required_subgroup_size  cl_intel_subgroups", "cl_intel_required_subgroup_size cl_intel_subgroups",
         {16}, 1, 16, 1, 0},
        {"cl_intel_subgroups cl_intel_required_subgroup_size", "cl_intel_subgroups cl_intel_required_subgroup_size",
         {8, 16, 32}, 3, 0, 1, 0},
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
        /* From OpenCL 2.1 on the device itself tells. */
        if (info.opencl_version < 210 || cases[i].has_sub_groups > 0)
            assert_int_equal(info.has_sub_groups, cases[i].has_sub_groups > 0);
        clattn_devices_release(&list);
    }
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
    clattn_context *context = support_context_with(&params);
    assert_non_null(clattn_context_opencl_context(context));
    assert_non_null(clattn_context_queue(context));
    if (wanted)
        assert_ptr_equal(clattn_context_opencl_device(context), wanted);
    support_release(&context);
}

static void expect_no_device(const char *spec)
{
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    clattn_context *context = (clattn_context *)(void *)&params; /* must come back as NULL */
    params.device = spec;
    assert_status(NULL, clattn_context_create(&params, &context), CLATTN_ERROR_NO_DEVICE);
    assert_null(context);
    if (spec)
        assert_message_has(NULL, spec);
}

static bool has_class(int32_t low, int32_t high)
{
    for (size_t i = 0; i < clattn_devices_count(devices); i++) {
        int32_t class = device_info(i).device_class;
        if (class >= low && class <= high)
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
        clattn_context *context = support_context_with(&params);
        cl_device_id by_index = clattn_context_opencl_device(context);
        assert_status(context, clattn_context_device_info(context, &got), CLATTN_SUCCESS);
        assert_string_equal(got.name, wanted.name);
        assert_string_equal(got.platform, wanted.platform);
        support_release(&context);
        snprintf(spec, sizeof spec, "%s:%s", wanted.platform, wanted.name);
        expect_device(spec, by_index);
        for (char *c = spec; *c; c++) /* substrings match whatever their case */
            if (*c >= 'a' && *c <= 'z')
                *c = (char)(*c - 'a' + 'A');
        expect_device(spec, by_index);
        snprintf(spec, sizeof spec, "%.4s:", wanted.platform);
        expect_device(spec, NULL);
        snprintf(spec, sizeof spec, ":%.6s", wanted.name);
        expect_device(spec, NULL);
    }
    if (has_class(CLATTN_DEVICE_GPU, CLATTN_DEVICE_GPU))
        expect_device("gpu", NULL);
    else
        expect_no_device("gpu");
    if (has_class(CLATTN_DEVICE_CPU, CLATTN_DEVICE_POCL))
        expect_device("cpu", NULL);
    else
        expect_no_device("cpu");
    if (has_class(CLATTN_DEVICE_POCL, CLATTN_DEVICE_POCL))
        expect_device("pocl", NULL);
    else
        expect_no_device("pocl");
}

static void a_request_that_nothing_matches_is_no_device(void **state)
{
    static const char *const specs[] = {"nonsense", "nonsense:", ":nonsense", "Portable:nonsense", "-1", "+0",
                                        "0x0", "1e0", "99999", "99999999999999999999999", "gpuu", " "};
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

/* Rule: every environment variable has a field in the params that wins over it. */
static void params_win_over_the_environment(void **state)
{
    const char *before = getenv("CLATTN_DEVICE");
    char *saved = before ? strdup(before) : NULL;
    (void)state;
    setenv("CLATTN_DEVICE", "nonsense", 1);
    expect_no_device(NULL);
    assert_message_has(NULL, "nonsense");
    expect_device("0", NULL);
    setenv("CLATTN_DEVICE", "0", 1);
    expect_device(NULL, NULL);
    expect_no_device("nonsense");
    if (saved)
        setenv("CLATTN_DEVICE", saved, 1);
    else
        unsetenv("CLATTN_DEVICE");
    free(saved);
}

static void bad_params_are_refused(void **state)
{
    const size_t sizes[] = {0, 1, sizeof(size_t), sizeof(clattn_context_params) + 1, SIZE_MAX};
    clattn_context *context = NULL;
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
        params.size = sizes[i];
        assert_status(NULL, clattn_context_create(&params, &context), CLATTN_ERROR_INVALID_STRUCT);
        assert_null(context);
    }
#define REFUSES(field, value)                                                                                \
    {                                                                                                        \
        clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;                                           \
        params.field = (value);                                                                              \
        assert_status(NULL, clattn_context_create(&params, &context), CLATTN_ERROR_INVALID_ARGUMENT);        \
        assert_null(context);                                                                                \
    }
    REFUSES(cache_mode, 3)
    REFUSES(cache_mode, -1)
    REFUSES(cache_mode, INT32_MAX)
    REFUSES(log_level, 5)
    REFUSES(log_level, -2)
    REFUSES(clblast, 3)
    REFUSES(clblast, -1)
    REFUSES(denied_solver_count, 1)
    REFUSES(queue, (cl_command_queue)(void *)&context)
    REFUSES(opencl_device, (cl_device_id)(void *)&context)
#undef REFUSES
}

static void missing_kernel_folders_are_named(void **state)
{
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    clattn_context *context = NULL;
    char folder[SUPPORT_PATH];
    (void)state;
    params.kernel_dir = "/nonexistent/kernels";
    assert_int_not_equal(clattn_context_create(&params, &context), CLATTN_SUCCESS);
    assert_message_has(NULL, "/nonexistent/kernels");
    assert_null(context);
    support_folder(folder); /* there, but empty */
    params.kernel_dir = folder;
    assert_int_not_equal(clattn_context_create(&params, &context), CLATTN_SUCCESS);
    assert_message_has(NULL, folder);
    assert_null(context);
}

/* A source that includes more files than the library counts is an error, not a source with a hole. */
static void a_kernel_source_with_too_many_includes_is_refused(void **state)
{
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    clattn_context *context = NULL;
    char folder[SUPPORT_PATH], path[SUPPORT_PATH + 64];
    (void)state;
    support_folder(folder);
    params.kernel_dir = folder;
    snprintf(path, sizeof path, "mkdir '%s/inc'", folder);
    assert_int_equal(system(path), 0);
    for (int count = 32; count <= 33; count++) {
        snprintf(path, sizeof path, "%s/inc/args.h", folder);
        FILE *args = fopen(path, "w");
        assert_non_null(args);
        for (int i = 0; i < count; i++) {
            fprintf(args, "#include \"inc/%d.h\"\n", i);
            snprintf(path, sizeof path, "%s/inc/%d.h", folder, i);
            FILE *file = fopen(path, "w");
            assert_non_null(file);
            fclose(file);
        }
        fclose(args);
        if (count == 32) {
            context = support_context_with(&params);
            support_release(&context);
        } else {
            assert_status(NULL, clattn_context_create(&params, &context), CLATTN_ERROR_INTERNAL);
            assert_null(context);
            assert_message_has(NULL, "inc/32.h");
        }
    }
}

static void *no_function(void *user, const char *name)
{
    (void)user;
    (void)name;
    return NULL;
}

static void a_table_without_functions_is_no_opencl(void **state)
{
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    clattn_context *context = NULL;
    clattn_devices *none = NULL;
    (void)state;
    params.get_proc = no_function;
    assert_status(NULL, clattn_context_create(&params, &context), CLATTN_ERROR_NO_OPENCL);
    assert_null(context);
    assert_status(NULL, clattn_devices_create(&params, &none), CLATTN_ERROR_NO_OPENCL);
    assert_null(none);
}

/* Rule: nothing is a global; contexts do not know of each other. */
static void contexts_are_independent(void **state)
{
    struct small_attention problem;
    clattn_context *first = support_context(), *second = support_context();
    clattn_plan *plan = NULL;
    (void)state;
    assert_ptr_not_equal(clattn_context_opencl_context(first), clattn_context_opencl_context(second));
    small_attention_prepare(&problem);
    small_attention_buffers(&problem, clattn_context_opencl_context(second));
    assert_status(second, clattn_attention_plan_create(second, &problem.desc, NULL, &plan), CLATTN_SUCCESS);
    support_release(&first);
    assert_status(second, clattn_attention_enqueue(plan, NULL, &problem.args, 0, NULL, NULL), CLATTN_SUCCESS);
    small_attention_check(&problem, clattn_context_queue(second));
    clattn_plan_release(&plan);
    small_attention_release(&problem);
    support_release(&second);
}

/* Rule: plans keep what they need of a context alive. */
static void a_plan_outlives_its_context(void **state)
{
    struct small_attention problem;
    clattn_context *context = support_context();
    clattn_plan *plan = NULL;
    (void)state;
    cl_command_queue queue = clattn_context_queue(context);
    assert_int_equal(clRetainCommandQueue(queue), CL_SUCCESS);
    small_attention_prepare(&problem);
    small_attention_buffers(&problem, clattn_context_opencl_context(context));
    assert_status(context, clattn_attention_plan_create(context, &problem.desc, NULL, &plan), CLATTN_SUCCESS);
    assert_non_null(plan);
    support_release(&context);
    assert_status(NULL, clattn_attention_enqueue(plan, queue, &problem.args, 0, NULL, NULL), CLATTN_SUCCESS);
    small_attention_check(&problem, queue);
    assert_true(strlen(clattn_plan_explain(plan)) > 10);
    assert_true(strlen(clattn_plan_solver(plan)) > 1);
    assert_true(clattn_plan_kernel_count(plan) >= 1);
    clattn_plan_release(&plan);
    assert_null(plan);
    small_attention_release(&problem);
    assert_int_equal(clReleaseCommandQueue(queue), CL_SUCCESS);
}

struct log {
    atomic_int lines, statistics_failures;
    clattn_context *context;
};

/* Rule: no lock of the library's is held while a line is delivered, so asking it something is allowed. */
static void log_line(void *user, clattn_log_level level, const char *line)
{
    struct log *log = user;
    clattn_program_statistics statistics = {.size = sizeof statistics};
    char message[64];
    log->lines++;
    if (level < CLATTN_LOG_ERROR || level > CLATTN_LOG_DEBUG || !line || strchr(line, '\n'))
        log->statistics_failures++;
    if (log->context && clattn_context_program_statistics(log->context, &statistics) != CLATTN_SUCCESS)
        log->statistics_failures++;
    clattn_context_message(log->context, message, sizeof message);
}

static void log_lines_come_with_no_lock_held(void **state)
{
    struct small_attention problem;
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    struct log log = {0};
    char folder[SUPPORT_PATH];
    clattn_plan *plan = NULL;
    (void)state;
    support_folder(folder);
    params.log = log_line;
    params.log_user = &log;
    params.log_level = CLATTN_LOG_DEBUG;
    params.cache_dir = folder;
    small_attention_prepare(&problem);
    clattn_context *context = support_context_with(&params);
    log.context = context;
    alarm(120); /* a lock held is a deadlock: end it, rather than hang */
    assert_status(context, clattn_attention_plan_create(context, &problem.desc, NULL, &plan), CLATTN_SUCCESS);
    clattn_plan_release(&plan);
    problem.desc.query.dtype = 55;
    assert_int_not_equal(clattn_attention_plan_create(context, &problem.desc, NULL, &plan), CLATTN_SUCCESS);
    alarm(0);
    assert_true(log.lines > 0);
    assert_int_equal(log.statistics_failures, 0);
    log.context = NULL;
    support_release(&context);
    small_attention_release(&problem);
}

/* Lines of a whole context's life at that level, with CLATTN_LOG set to `variable`. */
static int lines_at(int32_t level, const char *variable)
{
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    clattn_context *context = NULL;
    struct log log = {0};
    if (variable)
        setenv("CLATTN_LOG", variable, 1);
    else
        unsetenv("CLATTN_LOG");
    params.log = log_line;
    params.log_user = &log;
    params.log_level = level;
    params.cache_dir = "relative"; /* a warning */
    assert_status(NULL, clattn_context_create(&params, &context), CLATTN_SUCCESS);
    clattn_context_release(&context);
    return log.lines;
}

/* Rule: each variable of the environment has a field that wins over it, silence included. */
static void the_log_level_of_params_wins(void **state)
{
    const char *outside = getenv("CLATTN_LOG");
    char *saved = outside ? strdup(outside) : NULL;
    (void)state;
    assert_true(lines_at(CLATTN_LOG_DEFAULT, NULL) == 1);
    assert_true(lines_at(CLATTN_LOG_DEFAULT, "none") == 0);
    assert_true(lines_at(CLATTN_LOG_DEFAULT, "error") == 0);
    assert_true(lines_at(CLATTN_LOG_DEFAULT, "debug") > 1);
    assert_true(lines_at(CLATTN_LOG_NONE, "debug") == 0);
    assert_true(lines_at(CLATTN_LOG_ERROR, "debug") == 0);
    assert_true(lines_at(CLATTN_LOG_DEBUG, "none") > 1);
    if (saved)
        setenv("CLATTN_LOG", saved, 1);
    else
        unsetenv("CLATTN_LOG");
    free(saved);
}

/* Rule: after a fork the child gets a status, never a hang, and makes no OpenCL call. */
static void the_child_of_a_fork_gets_a_status(void **state)
{
    struct small_attention problem;
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    clattn_plan *plan = NULL, *none = NULL;
    clattn_mha_desc mha = CLATTN_MHA_DESC_INIT;
    char message[256] = "", same[256] = "";
    (void)state;
    inject_start(0, 0);
    params.get_proc = inject_get_proc;
    clattn_context *context = support_context_with(&params);
    mha.batch = 1;
    mha.query_length = 3;
    mha.d_model = 8;
    mha.heads = 2;
    small_attention_prepare(&problem);
    small_attention_buffers(&problem, clattn_context_opencl_context(context));
    assert_status(context, clattn_attention_plan_create(context, &problem.desc, NULL, &plan), CLATTN_SUCCESS);
    /* The plan cache, and a workspace in the pool, are given back too. */
    assert_status(context, clattn_attention_run(context, NULL, &problem.desc, &problem.args, 0, NULL, NULL),
                  CLATTN_SUCCESS);
    assert_status(context, clattn_mha_prewarm(context, &mha), CLATTN_SUCCESS);
    clFinish(clattn_context_queue(context));
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        clattn_program_statistics statistics = {.size = sizeof statistics};
        alarm(20);
        inject_start(0, 0);
        int wrong = 0;
        wrong |= clattn_attention_enqueue(plan, NULL, &problem.args, 0, NULL, NULL) != CLATTN_ERROR_FORKED;
        wrong |= (clattn_attention_plan_create(context, &problem.desc, NULL, &none) != CLATTN_ERROR_FORKED) << 1;
        wrong |= (clattn_attention_run(context, NULL, &problem.desc, &problem.args, 0, NULL, NULL) !=
                  CLATTN_ERROR_FORKED) << 2;
        wrong |= (clattn_context_program_statistics(context, &statistics) != CLATTN_ERROR_FORKED) << 4;
        clattn_context_message(context, message, sizeof message);
        clattn_context_message(NULL, same, sizeof same);
        wrong |= (!strstr(message, "fork") || strcmp(message, same)) << 5;
        clattn_plan_release(&plan);
        clattn_context_release(&context);
        wrong |= (plan || context) << 3;
        wrong |= (inject_calls() != 0) << 6;
        _exit(wrong);
    }
    int outcome = 0;
    assert_int_equal(waitpid(child, &outcome, 0), child);
    if (WIFSIGNALED(outcome))
        fail_msg("the child ended by signal %d", WTERMSIG(outcome));
    assert_int_equal(WEXITSTATUS(outcome), 0);
    assert_status(context, clattn_attention_enqueue(plan, NULL, &problem.args, 0, NULL, NULL), CLATTN_SUCCESS);
    small_attention_check(&problem, clattn_context_queue(context));
    clattn_plan_release(&plan);
    small_attention_release(&problem);
    support_release(&context);
    enum inject_kind kind;
    assert_true(inject_balanced(&kind));
}

static int thread_with_its_own_message(void *user)
{
    char message[256];
    (void)user;
    if (clattn_context_message(NULL, message, sizeof message) != 0)
        return 1;
    if (clattn_context_create(NULL, NULL) != CLATTN_ERROR_INVALID_ARGUMENT)
        return 2;
    return clattn_context_message(NULL, message, sizeof message) ? 0 : 3;
}

static void messages_without_a_context_belong_to_the_thread(void **state)
{
    char before[512], after[512];
    thrd_t thread;
    int result = -1;
    (void)state;
    expect_no_device("nonsense");
    clattn_context_message(NULL, before, sizeof before);
    assert_int_equal(thrd_create(&thread, thread_with_its_own_message, NULL), thrd_success);
    assert_int_equal(thrd_join(thread, &result), thrd_success);
    assert_int_equal(result, 0);
    clattn_context_message(NULL, after, sizeof after);
    assert_string_equal(before, after);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(devices_are_ranked_and_described, list_devices, drop_devices),
        cmocka_unit_test(extensions_and_sub_groups_are_read_exactly),
        cmocka_unit_test_setup_teardown(devices_refuse_bad_arguments, list_devices, drop_devices),
        cmocka_unit_test_setup_teardown(a_device_is_chosen_by_every_form, list_devices, drop_devices),
        cmocka_unit_test(a_request_that_nothing_matches_is_no_device),
        cmocka_unit_test(params_win_over_the_environment),
        cmocka_unit_test(bad_params_are_refused),
        cmocka_unit_test(missing_kernel_folders_are_named),
        cmocka_unit_test(a_kernel_source_with_too_many_includes_is_refused),
        cmocka_unit_test(a_table_without_functions_is_no_opencl),
        cmocka_unit_test(contexts_are_independent),
        cmocka_unit_test(a_plan_outlives_its_context),
        cmocka_unit_test(log_lines_come_with_no_lock_held),
        cmocka_unit_test(the_log_level_of_params_wins),
        cmocka_unit_test(the_child_of_a_fork_gets_a_status),
        cmocka_unit_test(messages_without_a_context_belong_to_the_thread),
    };
    return SUPPORT_RUN("context", tests);
}
