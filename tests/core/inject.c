/* Every OpenCL call is made to fail in turn.  Whatever fails, the library answers with a status whose message names
 * the call or its code, gives back every reference, and works again afterwards. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/harness.h"
#include "support/core/inject.h"
#include "support/core/inject_run.h"
#include "support/attention/small.h"
#include "support/core/references.h"

/* Reads the result and compares it with `expected`. */
static clattn_status read_back(cl_command_queue queue, cl_mem buffer, const float *expected, size_t count)
{
    float *got = malloc(count * sizeof *got);
    assert_non_null(got);
    read_buffer(queue, buffer, count * sizeof *got, got);
    double difference = largest_difference(got, expected, count);
    free(got);
    if (!(difference <= 1e-5))
        fail_msg("%s failed, the status was success, and the result is off by %g",
                 inject_failed() ? inject_failed() : "nothing", difference);
    return CLATTN_SUCCESS;
}

/* Runs attention by the default solver twice, on the context's queue and on a queue that the test made outside the
 * table. */
static clattn_status use_attention(clattn_context *context)
{
    struct small_attention problem;
    cl_int code;
    clattn_plan *plan = NULL;
    small_attention_prepare(&problem);
    small_attention_buffers(&problem, clattn_context_opencl_context(context));
    cl_command_queue queue =
        clCreateCommandQueue(clattn_context_opencl_context(context), clattn_context_opencl_device(context), 0, &code);
    assert_int_equal(code, CL_SUCCESS);
    clattn_status status = clattn_attention_plan_create(context, &problem.desc, NULL, &plan);
    assert_true((status == CLATTN_SUCCESS) == (plan != NULL));
    for (int round = 0; round < 2 && status == CLATTN_SUCCESS; round++) {
        cl_event event = NULL;
        /* The first round runs on the context's queue, the second after its event on the test's. */
        status = clattn_attention_enqueue(plan, round ? queue : NULL, &problem.args, 0, NULL, &event);
        assert_true((status == CLATTN_SUCCESS) == (event != NULL));
        if (event)
            assert_int_equal(clWaitForEvents(1, &event), CL_SUCCESS);
        if (event) {
            clReleaseEvent(event);
            inject_event_taken();
        }
        if (status == CLATTN_SUCCESS)
            small_attention_check(&problem, queue);
    }
    if (status == CLATTN_SUCCESS) {
        status = clattn_attention_run(context, queue, &problem.desc, &problem.args, 0, NULL, NULL);
        if (status == CLATTN_SUCCESS)
            small_attention_check(&problem, queue);
    }
    clFinish(queue);
    clFinish(clattn_context_queue(context));
    clattn_plan_release(&plan);
    clReleaseCommandQueue(queue);
    small_attention_release(&problem);
    return status;
}

/* Multi-head attention: several kernels chained by events and a leased workspace. */
static clattn_status use_mha(clattn_context *context)
{
    enum { LENGTH = 3, MODEL = 8, HEADS = 2, SIZE = MODEL / HEADS };
    float x[LENGTH * MODEL], w_in[3 * MODEL * MODEL], w_o[MODEL * MODEL], expected[LENGTH * MODEL];
    float q[MODEL * LENGTH], k[MODEL * LENGTH], v[MODEL * LENGTH], mixed[MODEL * LENGTH];
    cl_context opencl = clattn_context_opencl_context(context);
    cl_command_queue queue = clattn_context_queue(context);
    fill_floats(x, LENGTH * MODEL, 21);
    fill_floats(w_in, 3 * MODEL * MODEL, 22);
    fill_floats(w_o, MODEL * MODEL, 23);
    for (int part = 0; part < 3; part++)
        for (int column = 0; column < MODEL; column++)
            for (int i = 0; i < LENGTH; i++) {
                double sum = 0;
                for (int c = 0; c < MODEL; c++)
                    sum += (double)x[i * MODEL + c] * (double)w_in[(part * MODEL + column) * MODEL + c];
                (part == 0 ? q : part == 1 ? k : v)[(column / SIZE * LENGTH + i) * SIZE + column % SIZE] = (float)sum;
            }
    expected_attention(HEADS, LENGTH, LENGTH, SIZE, SIZE, false, q, k, v, mixed);
    for (int i = 0; i < LENGTH; i++)
        for (int column = 0; column < MODEL; column++) {
            double sum = 0;
            for (int c = 0; c < MODEL; c++)
                sum += (double)mixed[(c / SIZE * LENGTH + i) * SIZE + c % SIZE] * (double)w_o[column * MODEL + c];
            expected[i * MODEL + column] = (float)sum;
        }
    clattn_mha_desc desc = CLATTN_MHA_DESC_INIT;
    clattn_mha_args args = CLATTN_MHA_ARGS_INIT;
    clattn_plan *plan = NULL;
    desc.packed_weights = 1;
    desc.batch = 1;
    desc.query_length = LENGTH;
    desc.d_model = MODEL;
    desc.heads = HEADS;
    cl_mem input = new_buffer(opencl, CL_MEM_READ_ONLY, sizeof x, x);
    cl_mem weights_in = new_buffer(opencl, CL_MEM_READ_ONLY, sizeof w_in, w_in);
    cl_mem weights_out = new_buffer(opencl, CL_MEM_READ_ONLY, sizeof w_o, w_o);
    cl_mem output = new_buffer(opencl, CL_MEM_WRITE_ONLY, sizeof expected, NULL);
    args.x = clattn_binding_buffer(input, 0);
    args.w_in = clattn_binding_buffer(weights_in, 0);
    args.w_o = clattn_binding_buffer(weights_out, 0);
    args.y = clattn_binding_buffer(output, 0);
    clattn_status status = clattn_mha_plan_create(context, &desc, NULL, &plan);
    for (int round = 0; round < 2 && status == CLATTN_SUCCESS; round++) {
        status = clattn_mha_enqueue(plan, NULL, &args, 0, NULL, NULL);
        if (status == CLATTN_SUCCESS)
            status = read_back(queue, output, expected, LENGTH * MODEL);
    }
    clFinish(queue);
    clattn_plan_release(&plan);
    clReleaseMemObject(input);
    clReleaseMemObject(weights_in);
    clReleaseMemObject(weights_out);
    clReleaseMemObject(output);
    return status;
}

static clattn_status use_softmax_and_matmul(clattn_context *context)
{
    enum { ROWS = 3, COLUMNS = 5 };
    float x[ROWS * COLUMNS], w[COLUMNS * COLUMNS], softmax_expected[ROWS * COLUMNS], product_expected[ROWS * COLUMNS];
    cl_context opencl = clattn_context_opencl_context(context);
    cl_command_queue queue = clattn_context_queue(context);
    fill_floats(x, ROWS * COLUMNS, 31);
    fill_floats(w, COLUMNS * COLUMNS, 32);
    expected_softmax(ROWS, COLUMNS, x, softmax_expected);
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLUMNS; j++) {
            double sum = 0;
            for (int c = 0; c < COLUMNS; c++)
                sum += (double)x[i * COLUMNS + c] * (double)w[c * COLUMNS + j];
            product_expected[i * COLUMNS + j] = (float)sum;
        }
    cl_mem input = new_buffer(opencl, CL_MEM_READ_ONLY, sizeof x, x);
    cl_mem weights = new_buffer(opencl, CL_MEM_READ_ONLY, sizeof w, w);
    cl_mem output = new_buffer(opencl, CL_MEM_READ_WRITE, sizeof x, NULL);
    clattn_softmax_desc softmax = CLATTN_SOFTMAX_DESC_INIT;
    clattn_softmax_args softmax_args = CLATTN_SOFTMAX_ARGS_INIT;
    softmax.x = softmax.y = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[]){ROWS, COLUMNS});
    softmax_args.x = clattn_binding_buffer(input, 0);
    softmax_args.y = clattn_binding_buffer(output, 0);
    clattn_status status = clattn_softmax_run(context, NULL, &softmax, &softmax_args, 0, NULL, NULL);
    if (status == CLATTN_SUCCESS)
        status = read_back(queue, output, softmax_expected, ROWS * COLUMNS);
    clattn_matmul_desc matmul = CLATTN_MATMUL_DESC_INIT;
    clattn_matmul_args matmul_args = CLATTN_MATMUL_ARGS_INIT;
    matmul.a = matmul.c = softmax.x;
    matmul.b = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[]){COLUMNS, COLUMNS});
    matmul_args.a = clattn_binding_buffer(input, 0);
    matmul_args.b = clattn_binding_buffer(weights, 0);
    matmul_args.c = clattn_binding_buffer(output, 0);
    if (status == CLATTN_SUCCESS)
        status = clattn_matmul_run(context, NULL, &matmul, &matmul_args, 0, NULL, NULL);
    if (status == CLATTN_SUCCESS)
        status = read_back(queue, output, product_expected, ROWS * COLUMNS);
    clFinish(queue);
    clReleaseMemObject(input);
    clReleaseMemObject(weights);
    clReleaseMemObject(output);
    return status;
}

static void attention_from_source(void **state)
{
    inject_scenario scenario = inject_scenario_of(use_attention, CLATTN_CACHE_MODE_OFF);
    (void)state;
    inject_run(&scenario);
}

static void attention_from_the_cache(void **state)
{
    inject_scenario scenario = inject_scenario_of(use_attention, CLATTN_CACHE_MODE_ON);
    char folder[FOLDER_SIZE];
    (void)state;
    new_folder(folder);
    scenario.params.cache_dir = folder;
    inject_run(&scenario);
}

static void attention_in_an_adopted_context(void **state)
{
    inject_scenario scenario = inject_scenario_of(use_attention, CLATTN_CACHE_MODE_OFF);
    cl_int code;
    (void)state;
    clattn_context *chooser = new_context();
    cl_device_id device = clattn_context_opencl_device(chooser);
    release_context(&chooser);
    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &code);
    assert_int_equal(code, CL_SUCCESS);
    cl_command_queue queue = clCreateCommandQueue(context, device, 0, &code);
    assert_int_equal(code, CL_SUCCESS);
    struct reference_counts before = reference_counts_of(context, queue);
    scenario.params.opencl_context = context;
    scenario.params.opencl_device = device;
    scenario.params.queue = queue;
    inject_run(&scenario);
    assert_references(context, queue, before);
    clReleaseCommandQueue(queue);
    clReleaseContext(context);
}

static void multi_head_attention(void **state)
{
    inject_scenario scenario = inject_scenario_of(use_mha, CLATTN_CACHE_MODE_OFF);
    (void)state;
    inject_run(&scenario);
}

static void softmax_and_matmul(void **state)
{
    inject_scenario scenario = inject_scenario_of(use_softmax_and_matmul, CLATTN_CACHE_MODE_OFF);
    (void)state;
    inject_run(&scenario);
}

/* ---- files of a context ---- */

/* Programs are written to an empty folder. */
static void an_empty_cache(void **state)
{
    inject_scenario scenario = inject_scenario_of(use_attention, CLATTN_CACHE_MODE_ON);
    (void)state;
    scenario.empty_cache = true;
    scenario.attempts = by_level(3, 10, 10, 0);
    inject_run(&scenario);
}

#define WISDOM "clattn-wisdom 1\n"
#define LEARNT "device driver kernels softmax bucket cpu 0 1\n"
#define KNOWN "device driver kernels softmax other cpu 0 2\n"

/* Imports a record and merges it into a file that has another: the file has both afterwards, or is as it was. */
static void merge_wisdom(void *what, inject_failure how)
{
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    clattn_context *context = NULL;
    char folder[FOLDER_SIZE], path[FOLDER_SIZE + 16];
    size_t bytes = 0;
    (void)what;
    new_folder(folder);
    snprintf(path, sizeof path, "%s/wisdom", folder);
    write_file(path, WISDOM KNOWN, strlen(WISDOM KNOWN), 0600);
    params.cache_mode = CLATTN_CACHE_MODE_ON;
    params.cache_dir = folder;
    assert_status(NULL, clattn_context_create(&params, &context), CLATTN_SUCCESS);
    assert_status(context, clattn_wisdom_clear(context), CLATTN_SUCCESS);
    inject_begin_failure(how);
    clattn_status status = clattn_wisdom_import(context, WISDOM LEARNT, strlen(WISDOM LEARNT), NULL);
    if (status == CLATTN_SUCCESS)
        status = clattn_wisdom_save(context, CLATTN_WISDOM_MODE_MERGE);
    inject_stop();
    char *text = read_file(path, &bytes);
    if (status == CLATTN_SUCCESS)
        assert_true(strstr(text, KNOWN) && strstr(text, LEARNT));
    else
        assert_string_equal(text, WISDOM KNOWN);
    free(text);
    if (status != CLATTN_SUCCESS) {
        char message[256] = "";
        clattn_context_message(context, message, sizeof message);
        assert_true(status == CLATTN_ERROR_OUT_OF_MEMORY || status == CLATTN_ERROR_IO);
        assert_true(strlen(message) >= 8);
        assert_status(context, clattn_wisdom_import(context, WISDOM LEARNT, strlen(WISDOM LEARNT), NULL),
                      CLATTN_SUCCESS);
        assert_status(context, clattn_wisdom_save(context, CLATTN_WISDOM_MODE_MERGE), CLATTN_SUCCESS);
    }
    clattn_context_release(&context);
    inject_check_balance(how);
}

static void wisdom_that_is_merged(void **state)
{
    (void)state;
    inject_each_system("wisdom", merge_wisdom, NULL);
}

/* ---- a job ---- */

static void count_completion(void *user, clattn_job *job)
{
    (void)job;
    ++*(int *)user;
}

/* Makes a plan in the background, in a context that saves its program there, too, if there is a cache.  The call fails
 * and there is no job, or the job is complete once, with a plan or with a message of its own; afterwards the context
 * makes and runs the plan. */
static void make_by_job(void *what, inject_failure how)
{
    const clattn_cache_mode *cache_mode = what;
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    struct small_attention problem;
    clattn_plan *plan = NULL;
    clattn_job *job = NULL;
    char message[2048] = "", folder[FOLDER_SIZE];
    int completions = 0;
    new_folder(folder);
    params.get_proc = inject_get_proc;
    params.clblast = CLATTN_CLBLAST_MODE_NEVER;
    params.cache_mode = *cache_mode;
    params.cache_dir = folder;
    params.save_mode = CLATTN_SAVE_MODE_BACKGROUND;
    clattn_context *context = new_context_with(&params);
    small_attention_open(&problem, clattn_context_opencl_context(context));
    options.background.job = &job;
    options.background.callback = count_completion;
    options.background.user = &completions;
    inject_refuse(context);
    inject_begin_failure(how);
    clattn_status status = clattn_attention_plan_create(context, &problem.desc, &options, NULL);
    assert_int_equal(job != NULL, status == CLATTN_SUCCESS);
    if (status != CLATTN_SUCCESS) {
        inject_check_message(how.layer, context, status);
    } else {
        status = clattn_job_wait(job, &plan);
        assert_int_equal(completions, 1);
        clattn_job_message(job, message, sizeof message);
        if (status != CLATTN_SUCCESS)
            inject_check_text(how.layer, message, status);
    }
    assert_int_equal(plan != NULL, status == CLATTN_SUCCESS);
    assert_status(context, clattn_context_save_programs(context), CLATTN_SUCCESS);
    inject_stop();
    if (status != CLATTN_SUCCESS) {
        assert_non_null(inject_failed());
        clattn_job_release(&job);
        assert_status(context, clattn_attention_plan_create(context, &problem.desc, &options, NULL), CLATTN_SUCCESS);
        assert_status(context, clattn_job_wait(job, &plan), CLATTN_SUCCESS);
    }
    assert_status(context, clattn_attention_enqueue(plan, NULL, &problem.args, 0, NULL, NULL), CLATTN_SUCCESS);
    small_attention_check(&problem, clattn_context_queue(context));
    clattn_job_release(&job);
    clattn_plan_release(&plan);
    small_attention_release(&problem);
    clattn_context_release(&context);
    inject_check_balance(how);
}

static void a_plan_in_the_background(void **state)
{
    clattn_cache_mode off = CLATTN_CACHE_MODE_OFF, on = CLATTN_CACHE_MODE_ON;
    (void)state;
    inject_each("job", (inject_failure){.layer = INJECT_OPENCL}, is_tiny() ? 17 : 1, make_by_job, &off);
    inject_each_system("job", make_by_job, &off);
    inject_each_system("job that saves", make_by_job, &on);
}

/* One broken query hides no other platform from the list of devices, and a failure is a status. */
static void listing_devices(void **state)
{
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    clattn_devices *devices = NULL;
    enum inject_kind kind;
    (void)state;
    params.get_proc = inject_get_proc;
    inject_start(0, 0);
    assert_status(NULL, clattn_devices_create(&params, &devices), CLATTN_SUCCESS);
    unsigned long calls = inject_calls();
    size_t all = clattn_devices_count(devices) + clattn_devices_skipped_count(devices);
    clattn_devices_release(&devices);
    for (unsigned long n = 1; n <= calls; n++) {
        inject_start(n, INJECT_CODE);
        clattn_status status = clattn_devices_create(&params, &devices);
        assert_non_null(inject_failed());
        if (status != CLATTN_SUCCESS) {
            assert_string_equal(inject_failed(), "clGetPlatformIDs");
            assert_null(devices);
            inject_check_message(INJECT_OPENCL, NULL, status);
        } else {
            /* A device that is missing from the list is among the skipped ones, with the reason. */
            assert_true(clattn_devices_count(devices) + clattn_devices_skipped_count(devices) >= all ||
                        !strcmp(inject_failed(), "clGetDeviceIDs"));
            clattn_devices_release(&devices);
        }
        assert_true(inject_balanced(&kind));
    }
}

/* The query whose failure makes a device unusable. */
static cl_device_info missing_query;

static cl_int CL_API_CALL device_info_without(cl_device_id device, cl_device_info query, size_t bytes, void *value,
                                              size_t *size)
{
    const cl_bool no = CL_FALSE;
    if (query != missing_query)
        return clGetDeviceInfo(device, query, bytes, value, size);
    if (query == CL_DEVICE_VERSION) {
        static const char old[] = "OpenCL 1.1 of a museum";
        if (value)
            memcpy(value, old, bytes < sizeof old ? bytes : sizeof old);
        if (size)
            *size = sizeof old;
    } else if (value) {
        memcpy(value, &no, sizeof no);
    }
    return CL_SUCCESS;
}

static void *get_proc_without(void *user, const char *name)
{
    cl_int(CL_API_CALL * function)(cl_device_id, cl_device_info, size_t, void *, size_t *) = device_info_without;
    void *pointer;
    if (strcmp(name, "clGetDeviceInfo"))
        return inject_get_proc(user, name);
    memcpy(&pointer, &function, sizeof pointer);
    return pointer;
}

/* A line names the platform and the name of each skipped device and the reason. */
static void skipped_devices_are_named(void **state)
{
    static const struct {
        cl_device_info query;
        const char *reason;
    } ways[] = {{CL_DEVICE_AVAILABLE, "is not available"},
                {CL_DEVICE_COMPILER_AVAILABLE, "has no compiler"},
                {CL_DEVICE_VERSION, "OpenCL 1.2 is needed"}};
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    clattn_devices *devices = NULL;
    (void)state;
    inject_start(0, 0);
    assert_status(NULL, clattn_devices_create(NULL, &devices), CLATTN_SUCCESS);
    clattn_device_info info = {.size = sizeof info};
    assert_status(NULL, clattn_devices_info(devices, 0, &info), CLATTN_SUCCESS);
    params.get_proc = get_proc_without;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        clattn_devices *none = NULL;
        missing_query = ways[i].query;
        assert_status(NULL, clattn_devices_create(&params, &none), CLATTN_SUCCESS);
        assert_int_equal(clattn_devices_count(none), 0);
        bool named = false;
        for (size_t j = 0; j < clattn_devices_skipped_count(none); j++) {
            const char *line = clattn_devices_skipped(none, j);
            named = named || (strstr(line, info.platform) && strstr(line, info.name) && strstr(line, ways[i].reason));
        }
        if (!named)
            fail_msg("no line names %s and says: %s", info.name, ways[i].reason);
        clattn_devices_release(&none);
    }
    clattn_devices_release(&devices);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(listing_devices),          cmocka_unit_test(skipped_devices_are_named),
        cmocka_unit_test(attention_from_source),    cmocka_unit_test(attention_from_the_cache),
        cmocka_unit_test(an_empty_cache),           cmocka_unit_test(wisdom_that_is_merged),
        cmocka_unit_test(a_plan_in_the_background), cmocka_unit_test(attention_in_an_adopted_context),
        cmocka_unit_test(softmax_and_matmul),       cmocka_unit_test(multi_head_attention),
    };
    return RUN_TESTS("inject", tests, argc, argv);
}
