/* Every operator reads and writes shared virtual memory of clSVMAlloc as it does buffers, with offsets, in the enqueue
 * and in the one-call form; CLBlast, which takes buffers only, is excluded by the context's params.  Devices without coarse-grained SVM buffers answer UNSUPPORTED, and the other tests are
 * skipped there. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/harness.h"
#include "support/attention/small.h"

/* The headers declare clSVMAlloc only for OpenCL 2.0; everything else here is of 1.2. */
#define SVM_CAPABILITIES 0x1053 /* CL_DEVICE_SVM_CAPABILITIES */
#define SVM_COARSE 1            /* CL_DEVICE_SVM_COARSE_GRAIN_BUFFER */
extern CL_API_ENTRY void *CL_API_CALL clSVMAlloc(cl_context context, cl_bitfield flags, size_t bytes,
                                                 cl_uint alignment);
extern CL_API_ENTRY void CL_API_CALL clSVMFree(cl_context context, void *pointer);
extern CL_API_ENTRY cl_int CL_API_CALL clEnqueueSVMMap(cl_command_queue queue, cl_bool blocking, cl_map_flags flags,
                                                       void *pointer, size_t bytes, cl_uint waits,
                                                       const cl_event *wait_list, cl_event *event);
extern CL_API_ENTRY cl_int CL_API_CALL clEnqueueSVMUnmap(cl_command_queue queue, void *pointer, cl_uint waits,
                                                         const cl_event *wait_list, cl_event *event);

static clattn_context *context;
static cl_context opencl;
static cl_command_queue queue;
static bool has_svm;

enum { MOST = 16, GUARD = 5 };

/* All that a test has allocated. */
static struct {
    void *pointer;
    size_t bytes;
} memory[MOST];
static int memory_count;

static int open_context(void **state)
{
    cl_bitfield capabilities = 0;
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    (void)state;
    params.clblast = CLATTN_CLBLAST_MODE_NEVER;
    context = new_context_with(&params);
    opencl = clattn_context_opencl_context(context);
    queue = clattn_context_queue(context);
    clattn_device_info info = {.size = sizeof info};
    assert_status(context, clattn_context_device_info(context, &info), CLATTN_SUCCESS);
    has_svm = info.opencl_version >= 200 &&
              clGetDeviceInfo(clattn_context_opencl_device(context), SVM_CAPABILITIES, sizeof capabilities,
                              &capabilities, NULL) == CL_SUCCESS &&
              (capabilities & SVM_COARSE);
    return 0;
}

static int close_context(void **state)
{
    (void)state;
    clFinish(queue);
    while (memory_count > 0)
        clSVMFree(opencl, memory[--memory_count].pointer);
    release_context(&context);
    return 0;
}

static void need_svm(void)
{
    if (!has_svm)
        skip();
}

static void map(void *pointer, size_t bytes, cl_map_flags flags)
{
    assert_cl(clEnqueueSVMMap(queue, CL_TRUE, flags, pointer, bytes, 0, NULL, NULL));
}

static void unmap(void *pointer)
{
    assert_cl(clEnqueueSVMUnmap(queue, pointer, 0, NULL, NULL));
    assert_cl(clFinish(queue));
}

/* Allocates `count` floats with `values` (NULL: NaN) between two guards of GUARD NaNs, and binds them from the first
 * float on. */
static clattn_binding allocate(const float *values, size_t count)
{
    size_t bytes = (count + 2 * GUARD) * sizeof(float);
    float *pointer = clSVMAlloc(opencl, CL_MEM_READ_WRITE, bytes, 0);
    assert_non_null(pointer);
    assert_true(memory_count < MOST);
    memory[memory_count].pointer = pointer;
    memory[memory_count++].bytes = bytes;
    map(pointer, bytes, CL_MAP_WRITE);
    memset(pointer, 0xff, bytes);
    if (values)
        memcpy(pointer + GUARD, values, count * sizeof(float));
    unmap(pointer);
    return clattn_binding_svm(pointer, GUARD);
}

/* Waits, compares the result with `expected`, checks the guards, and poisons the result again. */
static void check(const clattn_binding *binding, const float *expected, size_t count)
{
    float *pointer = binding->svm;
    size_t bytes = (count + 2 * GUARD) * sizeof(float);
    assert_cl(clFinish(queue));
    map(pointer, bytes, CL_MAP_READ | CL_MAP_WRITE);
    double difference = largest_difference(pointer + GUARD, expected, count);
    bool guarded = true;
    for (size_t i = 0; i < GUARD; i++)
        guarded = guarded && isnan(pointer[i]) && isnan(pointer[GUARD + count + i]);
    memset(pointer, 0xff, bytes);
    unmap(pointer);
    if (!(difference <= 1e-5))
        fail_msg("off by %g", difference);
    assert_true(guarded);
}

enum { HEADS = 2, QUERIES = 5, KEYS = 7, D_K = 8, D_V = 6 };

static void attention_in_shared_memory(void **state)
{
    static const char *const solvers[] = {"generic", "cpu", "tile"};
    float q[HEADS * QUERIES * D_K], k[HEADS * KEYS * D_K], v[HEADS * KEYS * D_V], expected[HEADS * QUERIES * D_V];
    clattn_attention_desc desc = CLATTN_ATTENTION_DESC_INIT;
    clattn_attention_args args = CLATTN_ATTENTION_ARGS_INIT;
    (void)state;
    need_svm();
    fill_floats(q, HEADS * QUERIES * D_K, 41);
    fill_floats(k, HEADS * KEYS * D_K, 42);
    fill_floats(v, HEADS * KEYS * D_V, 43);
    expected_attention(HEADS, QUERIES, KEYS, D_K, D_V, true, q, k, v, expected);
    desc.causal = 1;
    desc.query = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, HEADS, QUERIES, D_K);
    desc.key = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, HEADS, KEYS, D_K);
    desc.value = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, HEADS, KEYS, D_V);
    desc.output = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, HEADS, QUERIES, D_V);
    args.query = allocate(q, HEADS * QUERIES * D_K);
    args.key = allocate(k, HEADS * KEYS * D_K);
    args.value = allocate(v, HEADS * KEYS * D_V);
    args.output = allocate(NULL, HEADS * QUERIES * D_V);
    for (size_t i = 0; i < sizeof solvers / sizeof *solvers; i++) {
        clattn_plan_options options = {.size = sizeof options, .solver = solvers[i]};
        clattn_plan *plan = NULL;
        if (device_breaks(solvers[i]))
            continue;
        assert_status(context, clattn_attention_plan_create(context, &desc, &options, &plan), CLATTN_SUCCESS);
        assert_status(context, clattn_attention_enqueue(plan, NULL, &args, 0, NULL, NULL), CLATTN_SUCCESS);
        check(&args.output, expected, HEADS * QUERIES * D_V);
        clattn_plan_release(&plan);
    }
    assert_status(context, clattn_attention_run(context, NULL, &desc, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    check(&args.output, expected, HEADS * QUERIES * D_V);
}

/* One call takes both buffers and shared memory. */
static void both_kinds_in_one_call(void **state)
{
    struct small_attention problem;
    (void)state;
    need_svm();
    small_attention_open(&problem, opencl);
    problem.args.output = allocate(NULL, problem.count);
    assert_status(context, clattn_attention_run(context, NULL, &problem.desc, &problem.args, 0, NULL, NULL),
                  CLATTN_SUCCESS);
    check(&problem.args.output, problem.expected, problem.count);
    small_attention_release(&problem);
}

enum { ROWS = 3, COLUMNS = 50, INNER = 9 };

static void softmax_in_shared_memory(void **state)
{
    float x[ROWS * COLUMNS], expected[ROWS * COLUMNS];
    clattn_softmax_desc desc = CLATTN_SOFTMAX_DESC_INIT;
    clattn_softmax_args args = CLATTN_SOFTMAX_ARGS_INIT;
    (void)state;
    need_svm();
    fill_floats(x, ROWS * COLUMNS, 51);
    expected_softmax(ROWS, COLUMNS, x, expected);
    desc.x = desc.y = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[]){ROWS, COLUMNS});
    args.x = allocate(x, ROWS * COLUMNS);
    args.y = allocate(NULL, ROWS * COLUMNS);
    assert_status(context, clattn_softmax_run(context, NULL, &desc, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    check(&args.y, expected, ROWS * COLUMNS);
    args.y = args.x; /* in place */
    assert_status(context, clattn_softmax_run(context, NULL, &desc, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    check(&args.y, expected, ROWS * COLUMNS);
}

static void matmul_in_shared_memory(void **state)
{
    float a[ROWS * INNER], b[INNER * COLUMNS], bias[COLUMNS], expected[ROWS * COLUMNS];
    clattn_matmul_desc desc = CLATTN_MATMUL_DESC_INIT;
    clattn_matmul_args args = CLATTN_MATMUL_ARGS_INIT;
    (void)state;
    need_svm();
    fill_floats(a, ROWS * INNER, 61);
    fill_floats(b, INNER * COLUMNS, 62);
    fill_floats(bias, COLUMNS, 63);
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLUMNS; j++) {
            double sum = (double)bias[j];
            for (int c = 0; c < INNER; c++)
                sum += (double)a[i * INNER + c] * (double)b[c * COLUMNS + j];
            expected[i * COLUMNS + j] = (float)sum;
        }
    desc.a = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[]){ROWS, INNER});
    desc.b = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[]){INNER, COLUMNS});
    desc.c = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[]){ROWS, COLUMNS});
    desc.bias = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, (const size_t[]){COLUMNS});
    args.a = allocate(a, ROWS * INNER);
    args.b = allocate(b, INNER * COLUMNS);
    args.bias = allocate(bias, COLUMNS);
    args.c = allocate(NULL, ROWS * COLUMNS);
    assert_status(context, clattn_matmul_run(context, NULL, &desc, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    check(&args.c, expected, ROWS * COLUMNS);
}

/* CLBlast refuses shared memory with a reason, and so does the one-call form where CLBlast is the planner's choice. */
static void clblast_refuses_shared_memory(void **state)
{
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    float values[ROWS * ROWS];
    clattn_matmul_desc desc = CLATTN_MATMUL_DESC_INIT;
    clattn_matmul_args args = CLATTN_MATMUL_ARGS_INIT;
    clattn_plan_options options = {.size = sizeof options, .solver = "clblast"};
    clattn_plan *plan = NULL;
    (void)state;
    need_svm();
    fill_floats(values, ROWS * ROWS, 64);
    desc.a = desc.b = desc.c = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[]){ROWS, ROWS});
    release_context(&context);
    params.clblast = CLATTN_CLBLAST_MODE_PREFER;
    context = new_context_with(&params);
    opencl = clattn_context_opencl_context(context);
    queue = clattn_context_queue(context);
    if (clattn_matmul_plan_create(context, &desc, &options, &plan) != CLATTN_SUCCESS)
        skip(); /* the library was built without CLBlast */
    args.a = args.b = allocate(values, ROWS * ROWS);
    args.c = allocate(NULL, ROWS * ROWS);
    assert_status(context, clattn_matmul_enqueue(plan, NULL, &args, 0, NULL, NULL), CLATTN_ERROR_UNSUPPORTED);
    assert_message_has(context, "buffers only");
    assert_status(context, clattn_matmul_run(context, NULL, &desc, &args, 0, NULL, NULL), CLATTN_ERROR_UNSUPPORTED);
    assert_message_has(context, "buffers only");
    clattn_plan_release(&plan);
}

enum { LENGTH = 3, MODEL = 8, SIZE = MODEL / HEADS };

/* Computes rows (LENGTH, MODEL) times the transpose of w (MODEL, MODEL) plus bias. */
static void project(const float *rows, const float *w, const float *bias, float *result)
{
    for (int i = 0; i < LENGTH; i++)
        for (int column = 0; column < MODEL; column++) {
            double sum = (double)bias[column];
            for (int c = 0; c < MODEL; c++)
                sum += (double)rows[i * MODEL + c] * (double)w[column * MODEL + c];
            result[i * MODEL + column] = (float)sum;
        }
}

/* Reorders (length, heads * size) to (heads, length, size) if `split`, else back. */
static void reorder(const float *from, float *to, bool split)
{
    for (int i = 0; i < LENGTH; i++)
        for (int column = 0; column < MODEL; column++) {
            int whole = i * MODEL + column, by_head = (column / SIZE * LENGTH + i) * SIZE + column % SIZE;
            to[split ? by_head : whole] = from[split ? whole : by_head];
        }
}

/* Packed weights and the workspace lie in shared memory too, so that offsets add up. */
static void mha_in_shared_memory(void **state)
{
    float x[LENGTH * MODEL], w_in[3 * MODEL * MODEL], b_in[3 * MODEL], w_o[MODEL * MODEL], b_o[MODEL];
    float part[LENGTH * MODEL], heads[3][LENGTH * MODEL], mixed[LENGTH * MODEL], expected[LENGTH * MODEL];
    clattn_mha_desc desc = CLATTN_MHA_DESC_INIT;
    clattn_mha_args args = CLATTN_MHA_ARGS_INIT;
    clattn_plan *plan = NULL;
    (void)state;
    need_svm();
    fill_floats(x, LENGTH * MODEL, 71);
    fill_floats(w_in, 3 * MODEL * MODEL, 72);
    fill_floats(b_in, 3 * MODEL, 73);
    fill_floats(w_o, MODEL * MODEL, 74);
    fill_floats(b_o, MODEL, 75);
    for (int i = 0; i < 3; i++) {
        project(x, w_in + i * MODEL * MODEL, b_in + i * MODEL, part);
        reorder(part, heads[i], true);
    }
    expected_attention(HEADS, LENGTH, LENGTH, SIZE, SIZE, false, heads[0], heads[1], heads[2], mixed);
    reorder(mixed, part, false);
    project(part, w_o, b_o, expected);
    desc.packed_weights = desc.bias_in = desc.bias_out = 1;
    desc.batch = 1;
    desc.query_length = LENGTH;
    desc.d_model = MODEL;
    desc.heads = HEADS;
    args.x = allocate(x, LENGTH * MODEL);
    args.w_in = allocate(w_in, 3 * MODEL * MODEL);
    args.b_in = allocate(b_in, 3 * MODEL);
    args.w_o = allocate(w_o, MODEL * MODEL);
    args.b_o = allocate(b_o, MODEL);
    args.y = allocate(NULL, LENGTH * MODEL);
    assert_status(context, clattn_mha_run(context, NULL, &desc, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    check(&args.y, expected, LENGTH * MODEL);
    assert_status(context, clattn_mha_plan_create(context, &desc, NULL, &plan), CLATTN_SUCCESS);
    args.workspace = allocate(NULL, clattn_plan_workspace_size(plan) / sizeof(float) + 1);
    args.workspace.offset = 0;
    assert_status(context, clattn_mha_enqueue(plan, NULL, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    check(&args.y, expected, LENGTH * MODEL);
    clattn_plan_release(&plan);
}

/* NULL is refused everywhere before anything is enqueued, and so is any address on a device without shared memory. */
static void what_is_refused(void **state)
{
    struct small_attention problem;
    float value = 0;
    (void)state;
    small_attention_open(&problem, opencl);
    clattn_binding output = problem.args.output;
    problem.args.output = clattn_binding_svm(NULL, 0);
    assert_status(context, clattn_attention_run(context, NULL, &problem.desc, &problem.args, 0, NULL, NULL),
                  CLATTN_ERROR_INVALID_ARGUMENT);
    clattn_device_info info = {.size = sizeof info};
    assert_status(context, clattn_context_device_info(context, &info), CLATTN_SUCCESS);
    if (info.opencl_version < 200) {
        problem.args.output = clattn_binding_svm(&value, 0);
        assert_status(context, clattn_attention_run(context, NULL, &problem.desc, &problem.args, 0, NULL, NULL),
                      CLATTN_ERROR_UNSUPPORTED);
        assert_message_has(context, "shared virtual memory");
    }
    problem.args.output = output;
    assert_status(context, clattn_attention_run(context, NULL, &problem.desc, &problem.args, 0, NULL, NULL),
                  CLATTN_SUCCESS);
    small_attention_check(&problem, queue);
    small_attention_release(&problem);
}

int main(int argc, char **argv)
{
#define SVM_TEST(name) cmocka_unit_test_setup_teardown(name, open_context, close_context)
    const struct CMUnitTest tests[] = {
        SVM_TEST(attention_in_shared_memory),
        SVM_TEST(both_kinds_in_one_call),
        SVM_TEST(softmax_in_shared_memory),
        SVM_TEST(matmul_in_shared_memory),
        SVM_TEST(clblast_refuses_shared_memory),
        SVM_TEST(mha_in_shared_memory),
        SVM_TEST(what_is_refused),
    };
    return RUN_TESTS("svm", tests, argc, argv);
}
