/* After a solver has failed, whatever the reason except host memory, the next one is tried, unless the failed one was
 * asked for by name; a failed build is not tried again.
 *
 * Holds: of docs/architecture.md, "One call, step by step", 3. */
#include <stdio.h>
#include <string.h>

#include "support/core/inject.h"
#include "support/harness.h"
#include "support/attention/small.h"

/* Which hooked call fails with which code; its next `left` calls fail. */
static struct {
    enum { NOTHING, BUILD, KERNEL, LAUNCH, LOCAL_MEMORY } what;
    cl_int code;
    int left;
    int builds; /* calls of clBuildProgram */
} hook;

static bool fails(int what)
{
    return (int)hook.what == what && hook.left > 0 && hook.left--;
}

static cl_int CL_API_CALL build(cl_program program, cl_uint n, const cl_device_id *devices, const char *options,
                                void(CL_CALLBACK *notify)(cl_program, void *), void *user)
{
    hook.builds++;
    return fails(BUILD) ? hook.code : clBuildProgram(program, n, devices, options, notify, user);
}

static cl_kernel CL_API_CALL create_kernel(cl_program program, const char *name, cl_int *code)
{
    if (!fails(KERNEL))
        return clCreateKernel(program, name, code);
    *code = hook.code;
    return NULL;
}

static cl_int CL_API_CALL launch(cl_command_queue queue, cl_kernel kernel, cl_uint dimensions, const size_t *offset,
                                 const size_t *global, const size_t *local, cl_uint n, const cl_event *waits,
                                 cl_event *event)
{
    return fails(LAUNCH) ? hook.code
                         : clEnqueueNDRangeKernel(queue, kernel, dimensions, offset, global, local, n, waits, event);
}

static cl_int CL_API_CALL kernel_info(cl_kernel kernel, cl_device_id device, cl_kernel_work_group_info what,
                                      size_t bytes, void *value, size_t *size)
{
    if (what == CL_KERNEL_LOCAL_MEM_SIZE && fails(LOCAL_MEMORY)) {
        memset(value, 0x7f, bytes);
        return CL_SUCCESS;
    }
    return clGetKernelWorkGroupInfo(kernel, device, what, bytes, value, size);
}

static void *hooks(void *user, const char *name)
{
    static const struct {
        const char *name;
        void (*function)(void);
    } own[] = {
        {"clBuildProgram", (void (*)(void))build},
        {"clCreateKernel", (void (*)(void))create_kernel},
        {"clReleaseKernel", (void (*)(void))clReleaseKernel},
        {"clEnqueueNDRangeKernel", (void (*)(void))launch},
        {"clGetKernelWorkGroupInfo", (void (*)(void))kernel_info},
    };
    void *pointer = inject_get_proc(user, name);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (!strcmp(own[i].name, name))
            memcpy(&pointer, &own[i].function, sizeof pointer);
    return pointer;
}

static clattn_context *context;
static struct small_attention problem;

/* Makes a plan for a line of the log, which needs every lock that making a plan takes. */
static int plans_left;

static void log_line(void *user, clattn_log_level level, const char *line)
{
    clattn_softmax_desc desc = CLATTN_SOFTMAX_DESC_INIT;
    clattn_plan *plan = NULL;
    (void)user;
    (void)level;
    (void)line;
    if (plans_left > 0) {
        plans_left--;
        desc.x = desc.y = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, (const size_t[]){5});
        assert_int_equal(clattn_softmax_plan_create(context, &desc, NULL, &plan), CLATTN_SUCCESS);
        clattn_plan_release(&plan);
    }
}

static int start(void **state)
{
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    (void)state;
    memset(&hook, 0, sizeof hook);
    inject_start(0, 0);
    params.get_proc = hooks;
    params.cache_mode = CLATTN_CACHE_MODE_OFF;
    params.log = log_line;
    context = new_context_with(&params);
    small_attention_open(&problem, clattn_context_opencl_context(context));
    return 0;
}

static int stop(void **state)
{
    enum inject_kind kind;
    (void)state;
    small_attention_release(&problem);
    release_context(&context);
    return inject_balanced(&kind) ? 0 : -1;
}

static clattn_status make(const char *solver, clattn_plan **plan)
{
    clattn_plan_options options = {.size = sizeof options, .solver = solver};
    return clattn_attention_plan_create(context, &problem.desc, &options, plan);
}

static void run(clattn_plan *plan)
{
    assert_status(context, clattn_attention_enqueue(plan, NULL, &problem.args, 0, NULL, NULL), CLATTN_SUCCESS);
    small_attention_check(&problem, clattn_context_queue(context));
}

/* Returns the solver that is chosen if nothing fails. */
static const char *first_choice(char name[64])
{
    clattn_plan *plan = NULL;
    assert_status(context, make(NULL, &plan), CLATTN_SUCCESS);
    snprintf(name, 64, "%s", clattn_plan_solver(plan));
    clattn_plan_release(&plan);
    return name;
}

static void any_failure_sends_the_choice_on(void **state)
{
    static const struct {
        int what;
        cl_int code;
        const char *reason;
    } cases[] = {
        {KERNEL, CL_INVALID_KERNEL_DEFINITION, "clCreateKernel"},
        {KERNEL, CL_OUT_OF_RESOURCES, "clCreateKernel"},
        {LAUNCH, CL_OUT_OF_RESOURCES, "clEnqueueNDRangeKernel"},
        {LAUNCH, CL_INVALID_WORK_GROUP_SIZE, "WORK_GROUP"},
        {LOCAL_MEMORY, 0, "local memory"},
        {BUILD, CL_OUT_OF_RESOURCES, "OUT_OF_RESOURCES"},
    };
    char first[64], failed[128];
    (void)state;
    first_choice(first);
    snprintf(failed, sizeof failed, "%s: failed, ", first);
    stop(NULL); /* discards all programs */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool same = true;
        for (int calls = 1; same; calls++) {
            clattn_plan *plan = NULL;
            start(NULL);
            hook.what = cases[i].what;
            hook.code = cases[i].code;
            hook.left = calls;
            assert_status(context, make(NULL, &plan), CLATTN_SUCCESS);
            assert_int_equal(hook.left, 0);
            same = strcmp(clattn_plan_solver(plan), first) == 0;
            if (same) { /* it has smaller tiles, each of which must fail */
                assert_int_equal(cases[i].what, LOCAL_MEMORY);
                assert_in_range(calls, 1, 16);
            } else {
                assert_non_null(strstr(clattn_plan_explain(plan), failed));
                assert_non_null(strstr(clattn_plan_explain(plan), cases[i].reason));
            }
            run(plan);
            clattn_plan_release(&plan);
            stop(NULL);
        }
    }
    start(NULL);
}

static void host_memory_ends_the_choice(void **state)
{
    static const int places[] = {BUILD, KERNEL, LAUNCH};
    (void)state;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        clattn_plan *plan = NULL;
        hook.what = places[i];
        hook.code = CL_OUT_OF_HOST_MEMORY;
        hook.left = 1;
        assert_status(context, make(NULL, &plan), CLATTN_ERROR_OUT_OF_MEMORY);
        assert_null(plan);
        assert_status(context, make(NULL, &plan), CLATTN_SUCCESS); /* the failure is not remembered */
        run(plan);
        clattn_plan_release(&plan);
        stop(NULL);
        start(NULL);
    }
}

static void what_was_asked_for_by_name_is_not_replaced(void **state)
{
    clattn_plan *plan = NULL;
    char first[64];
    (void)state;
    first_choice(first);
    hook.what = LAUNCH;
    hook.code = CL_INVALID_WORK_GROUP_SIZE;
    hook.left = 1;
    assert_status(context, make(first, &plan), CLATTN_ERROR_OPENCL);
    assert_null(plan);
    assert_message_has(context, "CL_INVALID_WORK_GROUP_SIZE");
}

/* Whatever the code of the failure, the second plan builds nothing. */
static void failed_builds_are_remembered(void **state)
{
    static const cl_int codes[] = {CL_BUILD_PROGRAM_FAILURE, CL_INVALID_BUILD_OPTIONS, CL_OUT_OF_RESOURCES,
                                   CL_COMPILER_NOT_AVAILABLE};
    static const char *const names[] = {"CL_BUILD_PROGRAM_FAILURE", "CL_INVALID_BUILD_OPTIONS", "CL_OUT_OF_RESOURCES",
                                        "CL_COMPILER_NOT_AVAILABLE"};
    (void)state;
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        clattn_plan *plan = NULL;
        hook.what = BUILD;
        hook.code = codes[i];
        hook.left = 100;
        assert_status(context, make("generic", &plan), CLATTN_ERROR_BUILD);
        assert_message_has(context, names[i]);
        assert_int_equal(hook.builds, 1);
        assert_status(context, make("generic", &plan), CLATTN_ERROR_BUILD);
        assert_message_has(context, names[i]);
        assert_int_equal(hook.builds, 1);
        assert_null(plan);
        stop(NULL);
        start(NULL);
    }
}

/* Callbacks run with no lock held; a lock would hang this test until the alarm. */
static void log_lines_of_failures_may_make_plans(void **state)
{
    static const int places[] = {BUILD, KERNEL, LAUNCH};
    (void)state;
    alarm(120);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        clattn_plan *plan = NULL;
        hook.what = places[i];
        hook.code = CL_OUT_OF_HOST_MEMORY;
        hook.left = 1;
        plans_left = 1;
        assert_status(context, make("generic", &plan), CLATTN_ERROR_OUT_OF_MEMORY);
        assert_null(plan);
        assert_int_equal(plans_left, 0);
    }
    alarm(0);
}

/* `explain` shows the kernel's resources as the driver reports them, and the number of launches. */
static void resources_are_explained(void **state)
{
    clattn_plan *plan = NULL;
    (void)state;
    assert_status(context, make("generic", &plan), CLATTN_SUCCESS);
    assert_non_null(strstr(clattn_plan_explain(plan), "bytes of local and"));
    assert_non_null(strstr(clattn_plan_explain(plan), "of private memory"));
    assert_non_null(strstr(clattn_plan_explain(plan), " at most 1 launch, workspace "));
    clattn_plan_release(&plan);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(any_failure_sends_the_choice_on, start, stop),
        cmocka_unit_test_setup_teardown(host_memory_ends_the_choice, start, stop),
        cmocka_unit_test_setup_teardown(what_was_asked_for_by_name_is_not_replaced, start, stop),
        cmocka_unit_test_setup_teardown(failed_builds_are_remembered, start, stop),
        cmocka_unit_test_setup_teardown(resources_are_explained, start, stop),
        cmocka_unit_test_setup_teardown(log_lines_of_failures_may_make_plans, start, stop),
    };
    return RUN_TESTS("choice", tests, argc, argv);
}
