/* The library releases what it creates: contexts, queues, buffers, programs, kernels and events are counted through the
 * table of OpenCL calls over whole lives of every operator, in every form, with enqueues that fail.  A leak checker
 * cannot tell, because PoCL keeps a list of everything that is alive. */
#include <stdlib.h>
#include <string.h>

#include "support/core/inject.h"
#include "support/harness.h"
#include "support/operator.h"
#include "support/attention/small.h"

static clattn_context *context;
static cl_context opencl;
static cl_command_queue unordered; /* the test's out-of-order queue; NULL if the device has none */

/* The test's buffers, which are made outside the table. */
enum { MOST = 16 };
static cl_mem buffers[MOST];
static int buffer_count;

static clattn_binding buffer_of(size_t count)
{
    float *values = calloc(count, sizeof *values);
    assert_non_null(values);
    assert_true(buffer_count < MOST);
    fill_floats(values, count, (uint32_t)buffer_count + 1);
    cl_mem buffer = buffers[buffer_count++] = new_buffer(opencl, CL_MEM_READ_WRITE, count * sizeof *values, values);
    free(values);
    return clattn_binding_buffer(buffer, 0);
}

static int open_counts(void **state)
{
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    (void)state;
    inject_start(0, 0);
    params.get_proc = inject_get_proc;
    params.cache_mode = CLATTN_CACHE_MODE_OFF;
    params.clblast = CLATTN_CLBLAST_MODE_NEVER; /* CLBlast calls OpenCL without the table */
    context = new_context_with(&params);
    opencl = clattn_context_opencl_context(context);
    unordered = new_queue(context, true);
    return 0;
}

/* Fails the test unless the library has released all its objects, whatever the test kept. */
static int close_counts(void **state)
{
    enum inject_kind kind;
    (void)state;
    clFinish(clattn_context_queue(context));
    if (unordered) {
        clFinish(unordered);
        clReleaseCommandQueue(unordered);
    }
    while (buffer_count > 0)
        clReleaseMemObject(buffers[--buffer_count]);
    release_context(&context);
    if (!inject_balanced(&kind)) {
        print_error("%ld of %lu %s references did not come back\n", inject_live(kind), inject_made(kind),
                    inject_kind_name(kind));
        return 1;
    }
    return 0;
}

/* Releases an event that the library handed out. */
static void take(cl_event event)
{
    assert_non_null(event);
    assert_cl(clWaitForEvents(1, &event));
    clReleaseEvent(event);
    inject_event_taken();
}

/* Makes, uses and releases a plan by `solver` (NULL: the planner's choice); `bad` are arguments that are refused. */
static void live(const struct operator_calls *op, const char *solver, const void *desc, const void *args,
                 const void *bad)
{
    clattn_plan_options options = {.size = sizeof options, .solver = solver};
    clattn_plan *plan = NULL, *unwanted = NULL;
    cl_event first = NULL, second = NULL;
    cl_command_queue queues[] = {NULL, unordered};
    assert_status(context, op->supports(context, desc, NULL), CLATTN_SUCCESS);
    assert_status(context, op->plan_create(context, desc, &options, &plan), CLATTN_SUCCESS);
    assert_non_null(clattn_plan_explain(plan));
    for (size_t i = 0; i < sizeof queues / sizeof *queues; i++) {
        if (i > 0 && queues[i] == NULL)
            continue;
        assert_status(context, op->enqueue(plan, queues[i], args, 0, NULL, NULL), CLATTN_SUCCESS);
        assert_status(context, op->enqueue(plan, queues[i], args, 0, NULL, &first), CLATTN_SUCCESS);
        assert_status(context, op->enqueue(plan, queues[i], args, 1, &first, &second), CLATTN_SUCCESS);
        take(first);
        take(second);
        assert_status(context, op->enqueue(plan, queues[i], args, 0, NULL, NULL), CLATTN_SUCCESS);
        clFinish(queues[i] ? queues[i] : clattn_context_queue(context));
    }
    /* Enqueues are refused for the plan, for a binding and for the wait list. */
    cl_event none = NULL;
    assert_true(op->enqueue(plan, NULL, NULL, 0, NULL, NULL) != CLATTN_SUCCESS);
    assert_true(op->enqueue(plan, NULL, bad, 0, NULL, &none) != CLATTN_SUCCESS);
    assert_true(op->enqueue(plan, NULL, args, 1, NULL, &none) != CLATTN_SUCCESS);
    assert_true(op->enqueue(plan, NULL, args, 1, &none, &none) != CLATTN_SUCCESS);
    assert_null(none);
    options.solver = "nonsense";
    assert_true(op->plan_create(context, desc, &options, &unwanted) != CLATTN_SUCCESS);
    assert_null(unwanted);

    /* Each OpenCL call of an enqueue fails once. */
    unsigned long calls = 1;
    for (unsigned long n = 0; n <= calls; n++) {
        inject_start(n, CL_OUT_OF_RESOURCES);
        clattn_status status = op->enqueue(plan, unordered, args, 0, NULL, &first);
        if (n == 0) {
            assert_status(context, status, CLATTN_SUCCESS);
            calls = inject_calls();
        }
        inject_start(0, 0);
        if (status == CLATTN_SUCCESS)
            take(first);
        clFinish(unordered ? unordered : clattn_context_queue(context));
        first = NULL;
    }
    clattn_plan_release(&plan);

    assert_status(context, op->prewarm(context, desc), CLATTN_SUCCESS);
    assert_status(context, op->run(context, NULL, desc, args, 0, NULL, &first), CLATTN_SUCCESS);
    assert_status(context, op->run(context, NULL, desc, args, 1, &first, NULL), CLATTN_SUCCESS);
    take(first);
    assert_true(op->run(context, NULL, desc, bad, 0, NULL, &none) != CLATTN_SUCCESS);
    clFinish(clattn_context_queue(context));
}

static void a_life_of_attention(void **state)
{
    static const char *const solvers[] = {NULL, "generic", "cpu", "tile"};
    clattn_attention_desc desc = CLATTN_ATTENTION_DESC_INIT;
    clattn_attention_args args = CLATTN_ATTENTION_ARGS_INIT;
    (void)state;
    desc.query = desc.key = desc.value = desc.output = clattn_layout_bhsd(CLATTN_DTYPE_F32, 2, 2, 5, 8);
    desc.outputs.lse = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, (const size_t[]){2, 2, 5});
    args.query = args.key = args.value = buffer_of(2 * 2 * 5 * 8);
    args.output = buffer_of(2 * 2 * 5 * 8);
    args.outputs.lse = buffer_of(2 * 2 * 5);
    clattn_attention_args bad = args;
    bad.outputs.lse = buffer_of(2 * 2 * 5 - 1);
    for (size_t i = 0; i < (is_tiny() || device_breaks("tile") ? 2 : 4); i++)
        live(&attention_operator, solvers[i], &desc, &args, &bad);
}

static void a_life_of_softmax(void **state)
{
    clattn_softmax_desc desc = CLATTN_SOFTMAX_DESC_INIT;
    clattn_softmax_args args = CLATTN_SOFTMAX_ARGS_INIT;
    (void)state;
    desc.x = desc.y = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[]){3, 50});
    args.x = buffer_of(3 * 50);
    args.y = buffer_of(3 * 50);
    clattn_softmax_args bad = args;
    bad.y = buffer_of(3 * 50 - 1);
    live(&softmax_operator, NULL, &desc, &args, &bad);
    live(&softmax_operator, "generic", &desc, &args, &bad);
}

static void a_life_of_matmul(void **state)
{
    clattn_matmul_desc desc = CLATTN_MATMUL_DESC_INIT;
    clattn_matmul_args args = CLATTN_MATMUL_ARGS_INIT;
    (void)state;
    desc.a = desc.b = desc.c = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[]){9, 9});
    desc.bias = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, (const size_t[]){9});
    args.a = args.b = buffer_of(81);
    args.c = buffer_of(81);
    args.bias = buffer_of(9);
    clattn_matmul_args bad = args;
    bad.c = buffer_of(80);
    live(&matmul_operator, NULL, &desc, &args, &bad);
    live(&matmul_operator, "generic", &desc, &args, &bad);
}

static void a_life_of_mha(void **state)
{
    clattn_mha_desc desc = CLATTN_MHA_DESC_INIT;
    clattn_mha_args args = CLATTN_MHA_ARGS_INIT;
    (void)state;
    desc.packed_weights = desc.bias_in = desc.bias_out = 1;
    desc.batch = 2;
    desc.query_length = 5;
    desc.d_model = 8;
    desc.heads = 2;
    desc.weights = CLATTN_WEIGHTS_OUTPUT_PER_HEAD;
    args.x = buffer_of(2 * 5 * 8);
    args.w_in = buffer_of(3 * 8 * 8);
    args.b_in = buffer_of(3 * 8);
    args.w_o = buffer_of(8 * 8);
    args.b_o = buffer_of(8);
    args.y = buffer_of(2 * 5 * 8);
    args.weights = buffer_of(2 * 2 * 5 * 5);
    clattn_mha_args bad = args;
    bad.y = buffer_of(2 * 5 * 8 - 1);
    live(&mha_operator, NULL, &desc, &args, &bad);
    desc.packed_weights = desc.bias_in = 0;
    desc.cross = 1;
    desc.key_length = 5;
    desc.weights = CLATTN_WEIGHTS_OUTPUT_AVERAGE;
    args.context = args.x;
    args.w_q = args.w_k = args.w_v = args.w_o;
    args.w_in = args.b_in = (clattn_binding){0};
    bad = args;
    bad.weights = args.b_o;
    live(&mha_operator, NULL, &desc, &args, &bad);
}

/* Work, plan and context may be released in any order. */
static void plans_outlive_their_context(void **state)
{
    struct small_attention problem;
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    clattn_context *own = NULL;
    clattn_plan *plan = NULL;
    cl_event event = NULL;
    (void)state;
    params.get_proc = inject_get_proc;
    params.cache_mode = CLATTN_CACHE_MODE_OFF;
    assert_status(NULL, clattn_context_create(&params, &own), CLATTN_SUCCESS);
    small_attention_open(&problem, clattn_context_opencl_context(own));
    assert_status(own, clattn_attention_plan_create(own, &problem.desc, NULL, &plan), CLATTN_SUCCESS);
    clattn_context_release(&own);
    assert_int_equal(clattn_attention_enqueue(plan, NULL, &problem.args, 0, NULL, &event), CLATTN_SUCCESS);
    clattn_plan_release(&plan);
    take(event);
    small_attention_release(&problem);
}

/* Objects of OpenCL of every kind were counted; otherwise the tests above would have shown nothing. */
static void every_kind_was_counted(void **state)
{
    (void)state;
    for (int kind = 0; kind < INJECT_HOST; kind++)
        if (inject_made((enum inject_kind)kind) == 0)
            fail_msg("no %s was ever created through the table", inject_kind_name((enum inject_kind)kind));
}

int main(int argc, char **argv)
{
#define COUNTED(name) cmocka_unit_test_setup_teardown(name, open_counts, close_counts)
    const struct CMUnitTest tests[] = {
        COUNTED(a_life_of_attention), COUNTED(a_life_of_softmax),           COUNTED(a_life_of_matmul),
        COUNTED(a_life_of_mha),       COUNTED(plans_outlive_their_context), cmocka_unit_test(every_kind_was_counted),
    };
    return RUN_TESTS("reference counts", tests, argc, argv);
}
