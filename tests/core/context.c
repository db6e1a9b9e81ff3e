/* Contexts refuse wrong parameters, plans outlive them, and they log and keep messages. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/harness.h"
#include "support/core/inject.h"
#include "support/attention/small.h"
#include "support/core/threads.h"

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
#define REFUSES(field, value) \
    { \
        clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT; \
        params.field = (value); \
        assert_status(NULL, clattn_context_create(&params, &context), CLATTN_ERROR_INVALID_ARGUMENT); \
        assert_null(context); \
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
    char folder[FOLDER_SIZE];
    (void)state;
    params.kernel_dir = "/nonexistent/kernels";
    assert_int_not_equal(clattn_context_create(&params, &context), CLATTN_SUCCESS);
    assert_message_has(NULL, "/nonexistent/kernels");
    assert_null(context);
    new_folder(folder); /* the folder exists but is empty */
    params.kernel_dir = folder;
    assert_int_not_equal(clattn_context_create(&params, &context), CLATTN_SUCCESS);
    assert_message_has(NULL, folder);
    assert_null(context);
}

/* A source that includes more files than the library allows is refused; the library does not drop the excess. */
static void a_kernel_source_with_too_many_includes_is_refused(void **state)
{
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    clattn_context *context = NULL;
    char folder[FOLDER_SIZE], path[FOLDER_SIZE + 64];
    (void)state;
    new_folder(folder);
    params.kernel_dir = folder;
    snprintf(path, sizeof path, "%s/lib", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    for (int count = 32; count <= 33; count++) {
        snprintf(path, sizeof path, "%s/lib/array.h", folder);
        FILE *args = fopen(path, "w");
        assert_non_null(args);
        for (int i = 0; i < count; i++) {
            fprintf(args, "#include \"lib/%d.h\"\n", i);
            snprintf(path, sizeof path, "%s/lib/%d.h", folder, i);
            write_file(path, "", 0, 0600);
        }
        fclose(args);
        if (count == 32) {
            context = new_context_with(&params);
            release_context(&context);
        } else {
            assert_status(NULL, clattn_context_create(&params, &context), CLATTN_ERROR_INTERNAL);
            assert_null(context);
            assert_message_has(NULL, "lib/32.h");
        }
    }
}

/* A table that lacks one function, the `missing`th that is asked for, and its name. */
static struct {
    unsigned missing, asked;
    char name[64];
} table;

static void *all_but_one(void *user, const char *name)
{
    if (table.asked++ != table.missing)
        return inject_get_proc(user, name);
    snprintf(table.name, sizeof table.name, "%s", name);
    return NULL;
}

/* Every function of OpenCL 1.2 that is called is needed, and named if it is not there; others may be absent. */
static void a_table_without_a_function_is_no_opencl(void **state)
{
    static const char *const optional[] = {"clSetKernelArgSVMPointer",
                                           "clCreateImage",
                                           "clGetImageInfo",
                                           "clEnqueueReadImage",
                                           "clEnqueueCopyImageToBuffer",
                                           "clEnqueueCopyBufferToImage"};
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    clattn_context *none = NULL;
    (void)state;
    inject_start(0, 0);
    params.get_proc = all_but_one;
    for (;; table.missing++) {
        clattn_devices *devices = NULL;
        bool needed = true;
        table.asked = 0;
        table.name[0] = '\0';
        const clattn_status status = clattn_devices_create(&params, &devices);
        clattn_devices_release(&devices);
        for (size_t i = 0; i < sizeof optional / sizeof *optional; i++)
            needed = needed && strcmp(table.name, optional[i]) != 0;
        if (!table.name[0])
            break;
        if (!needed) {
            assert_status(NULL, status, CLATTN_SUCCESS);
            continue;
        }
        assert_status(NULL, status, CLATTN_ERROR_NO_OPENCL);
        assert_message_has(NULL, table.name);
    }
    assert_true(table.missing > 30);
    table.missing = table.asked = 0;
    assert_status(NULL, clattn_context_create(&params, &none), CLATTN_ERROR_NO_OPENCL);
    assert_null(none);
}

/* Contexts share no global state. */
static void contexts_are_independent(void **state)
{
    struct small_attention problem;
    clattn_context *first = new_context(), *second = new_context();
    clattn_plan *plan = NULL;
    (void)state;
    assert_ptr_not_equal(clattn_context_opencl_context(first), clattn_context_opencl_context(second));
    small_attention_open(&problem, clattn_context_opencl_context(second));
    assert_status(second, clattn_attention_plan_create(second, &problem.desc, NULL, &plan), CLATTN_SUCCESS);
    release_context(&first);
    assert_status(second, clattn_attention_enqueue(plan, NULL, &problem.args, 0, NULL, NULL), CLATTN_SUCCESS);
    small_attention_check(&problem, clattn_context_queue(second));
    clattn_plan_release(&plan);
    small_attention_release(&problem);
    release_context(&second);
}

/* Plans keep what they need of a context alive. */
static void a_plan_outlives_its_context(void **state)
{
    struct small_attention problem;
    clattn_context *context = new_context();
    clattn_plan *plan = NULL;
    (void)state;
    cl_command_queue queue = clattn_context_queue(context);
    assert_cl(clRetainCommandQueue(queue));
    small_attention_open(&problem, clattn_context_opencl_context(context));
    assert_status(context, clattn_attention_plan_create(context, &problem.desc, NULL, &plan), CLATTN_SUCCESS);
    assert_non_null(plan);
    release_context(&context);
    assert_status(NULL, clattn_attention_enqueue(plan, queue, &problem.args, 0, NULL, NULL), CLATTN_SUCCESS);
    small_attention_check(&problem, queue);
    assert_true(strlen(clattn_plan_explain(plan)) > 10);
    assert_true(strlen(clattn_plan_solver(plan)) > 1);
    assert_true(clattn_plan_launch_count(plan) >= 1);
    clattn_plan_release(&plan);
    assert_null(plan);
    small_attention_release(&problem);
    assert_cl(clReleaseCommandQueue(queue));
}

struct log {
    atomic_int lines, statistics_failures;
    clattn_context *context;
};

/* The library holds no lock while it delivers a line, so the log function may call it. */
static void log_line(void *user, clattn_log_level level, const char *line)
{
    struct log *log = user;
    clattn_program_statistics statistics = {.size = sizeof statistics};
    char message[64];
    log->lines++;
    if (level < CLATTN_LOG_LEVEL_ERROR || level > CLATTN_LOG_LEVEL_DEBUG || !line || strchr(line, '\n'))
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
    char folder[FOLDER_SIZE];
    clattn_plan *plan = NULL;
    (void)state;
    new_folder(folder);
    params.log = log_line;
    params.log_user = &log;
    params.log_level = CLATTN_LOG_LEVEL_DEBUG;
    params.cache_dir = folder;
    small_attention_prepare(&problem);
    clattn_context *context = new_context_with(&params);
    log.context = context;
    alarm(120); /* a lock that is held would be a deadlock: fail instead of hanging */
    assert_status(context, clattn_attention_plan_create(context, &problem.desc, NULL, &plan), CLATTN_SUCCESS);
    clattn_plan_release(&plan);
    problem.desc.query.dtype = 55;
    assert_int_not_equal(clattn_attention_plan_create(context, &problem.desc, NULL, &plan), CLATTN_SUCCESS);
    alarm(0);
    assert_true(log.lines > 0);
    assert_int_equal(log.statistics_failures, 0);
    log.context = NULL;
    release_context(&context);
    small_attention_release(&problem);
}

/* Counts the lines that a context logs from creation to release at `level`, with CLATTN_LOG set to `variable`. */
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
    params.cache_mode = CLATTN_CACHE_MODE_ON;
    params.cache_dir = "relative"; /* this causes a warning */
    assert_status(NULL, clattn_context_create(&params, &context), CLATTN_SUCCESS);
    clattn_context_release(&context);
    return log.lines;
}

/* A field of the params wins over each environment variable, even if it asks for silence. */
static void the_log_level_of_params_wins(void **state)
{
    saved_variable saved = variable_save("CLATTN_LOG");
    (void)state;
    assert_true(lines_at(CLATTN_LOG_LEVEL_DEFAULT, NULL) == 1);
    assert_true(lines_at(CLATTN_LOG_LEVEL_DEFAULT, "none") == 0);
    assert_true(lines_at(CLATTN_LOG_LEVEL_DEFAULT, "error") == 0);
    assert_true(lines_at(CLATTN_LOG_LEVEL_DEFAULT, "debug") > 1);
    assert_true(lines_at(CLATTN_LOG_LEVEL_NONE, "debug") == 0);
    assert_true(lines_at(CLATTN_LOG_LEVEL_ERROR, "debug") == 0);
    assert_true(lines_at(CLATTN_LOG_LEVEL_DEBUG, "none") > 1);
    variable_restore(&saved);
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
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    clattn_context *context = NULL;
    char before[512], after[512];
    thrd_t thread;
    int result = -1;
    (void)state;
    params.device = "nonsense";
    assert_status(NULL, clattn_context_create(&params, &context), CLATTN_ERROR_NO_DEVICE);
    assert_null(context);
    assert_message_has(NULL, "nonsense");
    clattn_context_message(NULL, before, sizeof before);
    assert_int_equal(thrd_create(&thread, thread_with_its_own_message, NULL), thrd_success);
    assert_int_equal(thrd_join(thread, &result), thrd_success);
    assert_int_equal(result, 0);
    clattn_context_message(NULL, after, sizeof after);
    assert_string_equal(before, after);
}

/* Fails on the shared context in a way of its own; returns 0 if the context's message for this thread matches before
 * and after other threads fail. */
static int thread_that_fails(void *user)
{
    clattn_context *context = user;
    char message[256];
    if (clattn_context_message(context, message, sizeof message) != 0)
        return 1;
    if (clattn_softmax_plan_create(context, NULL, NULL, NULL) != CLATTN_ERROR_INVALID_ARGUMENT)
        return 2;
    clattn_context_message(context, message, sizeof message);
    return strcmp(message, "plan is NULL") ? 3 : 0;
}

/* A context's message belongs to the calling thread's last failure. */
static void messages_of_a_context_belong_to_the_thread(void **state)
{
    clattn_context *context = new_context();
    clattn_attention_desc none = CLATTN_ATTENTION_DESC_INIT;
    clattn_plan *plan = NULL;
    char before[512], after[512];
    thrd_t thread;
    int result = -1;
    (void)state;
    assert_status(context, clattn_attention_plan_create(context, &none, NULL, &plan), CLATTN_ERROR_INVALID_LAYOUT);
    assert_true(clattn_context_message(context, before, sizeof before) > 0);
    /* More threads fail than a context keeps messages for; this thread is among those that failed last. */
    for (int i = 0; i < 63; i++) {
        assert_int_equal(thrd_create(&thread, thread_that_fails, context), thrd_success);
        assert_int_equal(thrd_join(thread, &result), thrd_success);
        assert_int_equal(result, 0);
    }
    clattn_context_message(context, after, sizeof after);
    assert_string_equal(before, after);
    release_context(&context);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_of_a_context_belong_to_the_thread),
        cmocka_unit_test(bad_params_are_refused),
        cmocka_unit_test(missing_kernel_folders_are_named),
        cmocka_unit_test(a_kernel_source_with_too_many_includes_is_refused),
        cmocka_unit_test(a_table_without_a_function_is_no_opencl),
        cmocka_unit_test(contexts_are_independent),
        cmocka_unit_test(a_plan_outlives_its_context),
        cmocka_unit_test(log_lines_come_with_no_lock_held),
        cmocka_unit_test(the_log_level_of_params_wins),
        cmocka_unit_test(messages_without_a_context_belong_to_the_thread),
    };
    return RUN_TESTS("context", tests, argc, argv);
}
