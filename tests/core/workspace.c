/* Workspaces that the context lends: a buffer in use is never lent again, whatever fails; a full pool is BUSY; a plan
 * that needs more than the pool may ever hold gets its own status and an advice; the self-check takes no workspace of
 * the pool or of the caller.
 *
 * Holds: of docs/decisions.md, "Workspaces are polled, not called back". */
#include <stdlib.h>
#include <string.h>

#include "support/core/inject.h"
#include "support/harness.h"
#include "support/plan/sources.h"

enum {
    LENGTH = 11,
    MODEL = 12,
    HEADS = 2,
    KEEP_ALL = 0
}; /* more than eight rows and columns, so that a product takes two launches */

/* ---- launches and markers that fail when told to ---- */

static int launches, fail_launch; /* the fail_launch-th launch fails; 0: none */
static bool fail_markers;
static __typeof__(clEnqueueNDRangeKernel) *real_launch; /* the hooks count and call these */
static __typeof__(clEnqueueMarkerWithWaitList) *real_marker;

static cl_int CL_API_CALL launch(cl_command_queue queue, cl_kernel kernel, cl_uint dimensions, const size_t *offset,
                                 const size_t *global, const size_t *local, cl_uint n, const cl_event *waits,
                                 cl_event *event)
{
    if (++launches == fail_launch)
        return CL_OUT_OF_RESOURCES;
    return real_launch(queue, kernel, dimensions, offset, global, local, n, waits, event);
}

static cl_int CL_API_CALL marker(cl_command_queue queue, cl_uint n, const cl_event *waits, cl_event *event)
{
    return fail_markers ? CL_OUT_OF_RESOURCES : real_marker(queue, n, waits, event);
}

static void *hooks(void *user, const char *name)
{
    void *pointer = inject_get_proc(user, name);
    __typeof__(real_launch) launch_hook = launch;
    __typeof__(real_marker) marker_hook = marker;
    if (!strcmp(name, "clEnqueueNDRangeKernel")) {
        memcpy(&real_launch, &pointer, sizeof pointer);
        memcpy(&pointer, &launch_hook, sizeof pointer);
    }
    if (!strcmp(name, "clEnqueueMarkerWithWaitList")) {
        memcpy(&real_marker, &pointer, sizeof pointer);
        memcpy(&pointer, &marker_hook, sizeof pointer);
    }
    return pointer;
}

static void fail_at(int number)
{
    launches = 0;
    fail_launch = number;
}

/* ---- a small multi-head attention, with a context of its own ---- */

static clattn_context *context;
static cl_context opencl;
static cl_command_queue queue, other;
static clattn_plan *plan;
static clattn_mha_args args;
static cl_mem buffers[4];
static float expected[LENGTH * MODEL];

/* Enqueues the plan once more for a line of the log, which needs every lock that an enqueue takes. */
static int enqueues_left, lines;

static void log_line(void *user, clattn_log_level level, const char *line)
{
    (void)user;
    (void)level;
    (void)line;
    lines++;
    if (enqueues_left > 0) {
        enqueues_left--;
        clattn_mha_enqueue(plan, queue, &args, 0, NULL, NULL);
    }
}

static clattn_binding buffer_of(int which, cl_mem_flags flags, size_t count)
{
    float values[3 * MODEL * MODEL];
    fill_floats(values, count, (uint32_t)which + 71);
    buffers[which] = new_buffer(opencl, flags, count * sizeof(float), flags & CL_MEM_WRITE_ONLY ? NULL : values);
    return clattn_binding_buffer(buffers[which], 0);
}

static void expect_result(void)
{
    float got[LENGTH * MODEL];
    assert_cl(clFinish(other));
    read_buffer(queue, buffers[3], sizeof got, got);
    assert_true(largest_difference(got, expected, LENGTH * MODEL) == 0);
}

/* Kernels come from this folder, and no earlier plan has checked them; NULL: the library's own kernels, with the
 * cache. */
static const char *kernel_folder;

/* Makes a context that lends at most `limit` bytes (0: the default), with in-order or `unordered` queues. */
static void open_all(size_t limit, bool unordered)
{
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    clattn_mha_desc desc = CLATTN_MHA_DESC_INIT;
    inject_start(0, 0);
    fail_at(KEEP_ALL);
    fail_markers = false;
    params.get_proc = hooks;
    params.workspace_limit = limit;
    params.log = log_line;
    params.kernel_dir = kernel_folder;
    params.cache_mode = kernel_folder ? CLATTN_CACHE_MODE_OFF : CLATTN_CACHE_MODE_DEFAULT;
    context = new_context_with(&params);
    opencl = clattn_context_opencl_context(context);
    queue = new_queue(context, unordered);
    other = new_queue(context, false);
    if (!queue)
        skip();
    desc.packed_weights = 1;
    desc.batch = 1;
    desc.query_length = LENGTH;
    desc.d_model = MODEL;
    desc.heads = HEADS;
    assert_status(context, clattn_mha_plan_create(context, &desc, NULL, &plan), CLATTN_SUCCESS);
    assert_true(clattn_plan_workspace_size(plan) > 0);
    clattn_mha_args_init(&args);
    args.x = buffer_of(0, CL_MEM_READ_ONLY, LENGTH * MODEL);
    args.w_in = buffer_of(1, CL_MEM_READ_ONLY, 3 * MODEL * MODEL);
    args.w_o = buffer_of(2, CL_MEM_READ_ONLY, MODEL * MODEL);
    args.y = buffer_of(3, CL_MEM_WRITE_ONLY, LENGTH * MODEL);
}

static void close_all(void)
{
    enum inject_kind kind;
    clattn_plan_release(&plan);
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        clReleaseMemObject(buffers[i]);
    release_context(&context);
    clReleaseCommandQueue(queue);
    clReleaseCommandQueue(other);
    if (!inject_balanced(&kind))
        fail_msg("%ld %s references did not come back", inject_live(kind), inject_kind_name(kind));
}

static clattn_status enqueue_on(cl_command_queue on, const cl_event *user_event)
{
    return clattn_mha_enqueue(plan, on, &args, user_event != NULL, user_event, NULL);
}

/* Enqueues the plan once and keeps the result. */
static void first_run(void)
{
    assert_status(context, enqueue_on(queue, NULL), CLATTN_SUCCESS);
    read_buffer(queue, buffers[3], sizeof expected, expected);
}

/* Makes a pool that holds the plan's workspace and no byte more, and runs the plan once. */
static void open_with_one_workspace(void)
{
    open_all(0, false);
    size_t size = clattn_plan_workspace_size(plan);
    close_all();
    open_all(size, false);
    first_run();
}

static void complete_user_event(cl_event user_event)
{
    assert_cl(clSetUserEventStatus(user_event, CL_COMPLETE));
    assert_cl(clReleaseEvent(user_event));
    assert_cl(clFinish(queue));
    assert_cl(clFinish(other));
}

/* Returns how many buffers the library makes for an enqueue on the other queue. */
static unsigned long buffers_made_by_other(void)
{
    unsigned long before = inject_made(INJECT_MEMORY);
    assert_status(context, enqueue_on(other, NULL), CLATTN_SUCCESS);
    return inject_made(INJECT_MEMORY) - before;
}

/* ---- tests ---- */

/* Work waits on a queue with its workspace.  The next enqueue on that queue may reuse the workspace; if it then fails,
 * for whatever reason, the first enqueue still has it. */
static void a_failed_reuse_frees_nothing(void **state)
{
    float tiny[4] = {0};
    (void)state;
    open_all(0, false);
    first_run();
    cl_event user_event = new_user_event(opencl);
    assert_status(context, enqueue_on(queue, &user_event), CLATTN_SUCCESS);

    cl_mem small = new_buffer(opencl, CL_MEM_WRITE_ONLY, sizeof tiny, NULL);
    clattn_binding y = args.y;
    args.y = clattn_binding_buffer(small, 0);
    assert_status(context, enqueue_on(queue, NULL), CLATTN_ERROR_BUFFER_TOO_SMALL);
    args.y = y;
    fail_at(1);
    assert_status(context, enqueue_on(queue, NULL), CLATTN_ERROR_OUT_OF_MEMORY);
    fail_at(KEEP_ALL);
    assert_int_equal(buffers_made_by_other(), 1);
    complete_user_event(user_event);
    expect_result();
    clReleaseMemObject(small);
    close_all();
}

/* A launch fails after others of the same enqueue, which still write to the workspace. */
static void check_half_an_enqueue(bool unordered)
{
    open_all(0, unordered);
    first_run();
    fail_at(KEEP_ALL);
    assert_status(context, enqueue_on(queue, NULL), CLATTN_SUCCESS);
    assert_cl(clFinish(queue));
    int all = launches;
    assert_true(all >= 3);
    for (int n = 2; n <= all; n++) {
        cl_event user_event = new_user_event(opencl);
        fail_at(n);
        assert_status(context, enqueue_on(queue, &user_event), CLATTN_ERROR_OUT_OF_MEMORY);
        fail_at(KEEP_ALL);
        /* All buffers of the pool are behind the user event or in use by the other queue. */
        unsigned long made = buffers_made_by_other();
        if (n == 2)
            assert_int_equal(made, 1);
        /* Both buffers are free and can be lent again. */
        complete_user_event(user_event);
        expect_result();
        assert_int_equal(buffers_made_by_other(), 0);
        assert_cl(clFinish(other));
    }
    close_all();
}

static void half_an_enqueue_keeps_its_workspace_in_order(void **state)
{
    (void)state;
    check_half_an_enqueue(false);
}

static void half_an_enqueue_keeps_its_workspace_out_of_order(void **state)
{
    (void)state;
    check_half_an_enqueue(true);
}

/* If not even a marker can be enqueued, the buffer leaves the pool, which regains its share. */
static void what_nothing_guards_leaves_the_pool(void **state)
{
    (void)state;
    open_with_one_workspace();
    for (int round = 0; round < 3; round++) {
        fail_at(2);
        fail_markers = true;
        assert_status(context, enqueue_on(queue, NULL), CLATTN_ERROR_OUT_OF_MEMORY);
        fail_markers = false;
        fail_at(KEEP_ALL);
        assert_status(context, enqueue_on(other, NULL), CLATTN_SUCCESS); /* the pool has room */
        expect_result();
        assert_cl(clFinish(queue));
    }
    close_all();
}

static void a_full_pool_is_busy_until_work_completes(void **state)
{
    (void)state;
    open_with_one_workspace();
    cl_event user_event = new_user_event(opencl), unwanted = NULL;
    assert_status(context, enqueue_on(queue, &user_event), CLATTN_SUCCESS);
    for (int round = 0; round < 2; round++) {
        assert_status(context, clattn_mha_enqueue(plan, other, &args, 0, NULL, &unwanted), CLATTN_ERROR_BUSY);
        assert_null(unwanted);
    }
    assert_message_has(context, "wait");
    assert_status(context, enqueue_on(queue, NULL), CLATTN_SUCCESS); /* runs after the first on its queue */
    complete_user_event(user_event);
    expect_result();
    assert_status(context, enqueue_on(other, NULL), CLATTN_SUCCESS);
    expect_result();
    close_all();
}

/* Waiting does not help: the plan can be made, says so, and works with the caller's workspace. */
static void more_than_the_pool_may_hold_is_permanent(void **state)
{
    (void)state;
    open_all(1, false);
    size_t size = clattn_plan_workspace_size(plan);
    assert_non_null(strstr(clattn_plan_explain(plan), "workspace_limit"));
    for (int round = 0; round < 2; round++)
        assert_status(context, enqueue_on(queue, NULL), CLATTN_ERROR_OUT_OF_MEMORY);
    assert_message_has(context, "workspace_limit");
    assert_message_has(context, "clattn_plan_workspace_size");
    cl_mem own = clCreateBuffer(opencl, CL_MEM_READ_WRITE, size, NULL, NULL);
    assert_non_null(own);
    args.workspace = clattn_binding_buffer(own, 0);
    first_run();
    assert_status(context, enqueue_on(queue, NULL), CLATTN_SUCCESS);
    expect_result();
    assert_cl(clReleaseMemObject(own));
    close_all();
}

/* ---- plans that are made, checked and first used while all that the pool may hold is behind a user event ---- */

enum { SIDE = 24, SIZE = 8, ELEMENTS = HEADS * SIDE * SIZE, ROOM = 4096 };

/* Describes attention that keeps its scores, for which it needs a workspace. */
static clattn_attention_desc scored_desc(void)
{
    clattn_attention_desc desc = CLATTN_ATTENTION_DESC_INIT;
    desc.query = desc.key = desc.value = desc.output = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, HEADS, SIDE, SIZE);
    desc.outputs.scores = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, (const size_t[4]){1, HEADS, SIDE, SIDE});
    desc.outputs.scores_mode = CLATTN_SCORES_MODE_PROBABILITIES;
    return desc;
}

static void expect_untouched(cl_mem workspace)
{
    unsigned char held[ROOM];
    read_buffer(other, workspace, sizeof held, held);
    for (size_t i = 0; i < sizeof held; i++)
        assert_int_equal(held[i], 0xff);
}

/* The first call makes the plan.  A call that is refused for its output has checked the plan and left the workspace
 * alone; the next call gives the right result in that workspace.  Without a workspace the call needs the pool, which is
 * busy. */
static void use_first_beside_a_busy_pool(const clattn_attention_desc *desc)
{
    clattn_attention_args first = CLATTN_ATTENTION_ARGS_INIT;
    float values[3][ELEMENTS], exact[ELEMENTS], got[ELEMENTS];
    cl_mem arrays[3];
    for (uint32_t i = 0; i < 3; i++) {
        fill_floats(values[i], ELEMENTS, i + 5);
        arrays[i] = new_buffer(opencl, CL_MEM_READ_ONLY, sizeof values[i], values[i]);
    }
    cl_mem output = new_buffer(opencl, CL_MEM_READ_WRITE, sizeof got, NULL);
    cl_mem scores = new_buffer(opencl, CL_MEM_READ_WRITE, sizeof(float) * HEADS * SIDE * SIDE, NULL);
    cl_mem own = new_buffer(opencl, CL_MEM_READ_WRITE, ROOM, NULL);
    expected_attention(HEADS, SIDE, SIDE, SIZE, SIZE, false, values[0], values[1], values[2], exact);
    first.query = clattn_binding_buffer(arrays[0], 0);
    first.key = clattn_binding_buffer(arrays[1], 0);
    first.value = clattn_binding_buffer(arrays[2], 0);
    first.outputs.scores = clattn_binding_buffer(scores, 0);
    first.workspace = clattn_binding_buffer(own, 0);
    first.output = clattn_binding_buffer(output, 1);
    assert_status(context, clattn_attention_run(context, other, desc, &first, 0, NULL, NULL),
                  CLATTN_ERROR_BUFFER_TOO_SMALL);
    expect_untouched(own);
    first.output = clattn_binding_buffer(output, 0);
    assert_status(context, clattn_attention_run(context, other, desc, &first, 0, NULL, NULL), CLATTN_SUCCESS);
    read_buffer(other, output, sizeof got, got);
    assert_true(largest_difference(got, exact, ELEMENTS) < 1e-5);
    first.workspace = (clattn_binding){0};
    assert_status(context, clattn_attention_run(context, other, desc, &first, 0, NULL, NULL), CLATTN_ERROR_BUSY);
    for (int i = 0; i < 3; i++)
        clReleaseMemObject(arrays[i]);
    clReleaseMemObject(output);
    clReleaseMemObject(scores);
    clReleaseMemObject(own);
}

static void check_beside_a_busy_pool(bool wrong)
{
    clattn_plan_options options = {.size = sizeof options, .solver = "cpu"};
    clattn_attention_desc desc = scored_desc();
    clattn_plan *checked = NULL;
    open_with_one_workspace();
    cl_event user_event = new_user_event(opencl);
    assert_status(context, enqueue_on(queue, &user_event), CLATTN_SUCCESS);
    assert_status(context, enqueue_on(other, NULL), CLATTN_ERROR_BUSY);
    alarm(120); /* a check that waited for the pool would hang */
    if (wrong) {
        assert_status(context, clattn_attention_plan_create(context, &desc, &options, &checked),
                      CLATTN_ERROR_MISCOMPILED);
        assert_message_has(context, "attention_cpu disagrees with the reference on this device: ");
        assert_null(checked);
    } else {
        use_first_beside_a_busy_pool(&desc);
        assert_status(context, clattn_attention_plan_create(context, &desc, &options, &checked), CLATTN_SUCCESS);
        assert_in_range(clattn_plan_workspace_size(checked), 1, ROOM);
        clattn_plan_release(&checked);
    }
    alarm(0);
    complete_user_event(user_event);
    expect_result();
    assert_int_equal(buffers_made_by_other(), 0); /* the pool still has its one buffer */
    close_all();
}

static int own_kernels_again(void **state)
{
    (void)state;
    kernel_folder = NULL;
    return 0;
}

static void plans_are_checked_and_used_beside_a_busy_pool(void **state)
{
    (void)state;
    kernel_folder = KERNEL_DIR;
    check_beside_a_busy_pool(false);
}

/* The self-check runs even if no workspace is free. */
static void a_wrong_kernel_is_found_beside_a_busy_pool(void **state)
{
    struct sources sources;
    (void)state;
    sources_damage(&sources, VECTOR_EXP);
    kernel_folder = sources.folder;
    check_beside_a_busy_pool(true);
}

/* Kernels write a workspace and read it, so it must allow both. */
static void a_workspace_is_for_both_accesses(void **state)
{
    static const cl_mem_flags flags[] = {CL_MEM_READ_ONLY, CL_MEM_WRITE_ONLY};
    (void)state;
    open_all(0, false);
    for (int i = 0; i < 2; i++) {
        cl_mem own = clCreateBuffer(opencl, flags[i], clattn_plan_workspace_size(plan), NULL, NULL);
        assert_non_null(own);
        args.workspace = clattn_binding_buffer(own, 0);
        assert_status(context, enqueue_on(queue, NULL), CLATTN_ERROR_BUFFER_ACCESS);
        assert_message_has(context, "workspace");
        assert_cl(clReleaseMemObject(own));
    }
    close_all();
}

/* Callbacks run with no lock held; a lock would hang this test until the alarm. */
static void log_lines_of_failures_may_enqueue(void **state)
{
    (void)state;
    open_with_one_workspace();
    alarm(60);
    cl_event user_event = new_user_event(opencl);
    assert_status(context, enqueue_on(queue, &user_event), CLATTN_SUCCESS);
    lines = 0;
    enqueues_left = 1; /* for the pool's line */
    assert_status(context, enqueue_on(other, NULL), CLATTN_ERROR_BUSY);
    assert_int_equal(enqueues_left, 0);
    assert_int_equal(lines, 1);
    complete_user_event(user_event);
    fail_at(KEEP_ALL);
    first_run();
    const int all = launches;
    assert_true(all >= 3);
    for (int n = 1; n <= all; n++) { /* for a launch's line, under each part's lock */
        enqueues_left = 1;
        fail_at(n);
        assert_status(context, enqueue_on(queue, NULL), CLATTN_ERROR_OUT_OF_MEMORY);
        fail_at(KEEP_ALL);
        assert_int_equal(enqueues_left, 0);
        assert_cl(clFinish(queue));
        expect_result();
    }
    alarm(0);
    close_all();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_reuse_frees_nothing),
        cmocka_unit_test(half_an_enqueue_keeps_its_workspace_in_order),
        cmocka_unit_test(half_an_enqueue_keeps_its_workspace_out_of_order),
        cmocka_unit_test(what_nothing_guards_leaves_the_pool),
        cmocka_unit_test(a_full_pool_is_busy_until_work_completes),
        cmocka_unit_test(more_than_the_pool_may_hold_is_permanent),
        cmocka_unit_test_teardown(plans_are_checked_and_used_beside_a_busy_pool, own_kernels_again),
        cmocka_unit_test_teardown(a_wrong_kernel_is_found_beside_a_busy_pool, own_kernels_again),
        cmocka_unit_test(a_workspace_is_for_both_accesses),
        cmocka_unit_test(log_lines_of_failures_may_enqueue),
    };
    return RUN_TESTS("workspace", tests, argc, argv);
}
