/* Compiled programs reach the on-disk cache at once or, on PoCL, when the context is released, when the caller asks or
 * in the background, whichever the application wants; some never do. */
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/plan/cached_plan.h"
#include "support/core/inject.h"
#include "support/nn/model.h"
#include "support/nn/run.h"
#include "support/core/threads.h"

/* Makes a plan of softmax over `rows` rows of one column by the generic solver. */
static clattn_plan *softmax_plan(clattn_context *context, size_t rows, const char *tuning)
{
    clattn_softmax_desc desc = CLATTN_SOFTMAX_DESC_INIT;
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    clattn_plan *plan = NULL;
    options.solver = "generic";
    options.tuning = tuning;
    desc.x = desc.y = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[]){rows, 1});
    assert_status(context, clattn_softmax_plan_create(context, &desc, &options, &plan), CLATTN_SUCCESS);
    return plan;
}

static void softmax_built(clattn_context *context, size_t rows)
{
    clattn_plan *plan = softmax_plan(context, rows, NULL);
    clattn_plan_release(&plan);
}

static bool saves_late(clattn_context *context)
{
    clattn_device_info info = {.size = sizeof info};
    assert_status(context, clattn_context_device_info(context, &info), CLATTN_SUCCESS);
    return strstr(info.platform, "Portable Computing Language") != NULL;
}

/* PoCL compiles a kernel again for large grids and serialises a program only once.  What a plan with large grids
 * compiles must be in the cache for the next process, even if a plan with a small grid came first. */
static void large_grids_are_kept_too(void **state)
{
    (void)state;
    needs_saved_programs();
    clattn_context *context = new_context_with(&cache_params);
    int entries = saves_late(context) ? 2 : 1;
    softmax_built(context, 3);
    assert_status(context, clattn_context_save_programs(context), CLATTN_SUCCESS);
    assert_int_equal(cached_files(cache_folder, NULL), 1);
    softmax_built(context, 70000);
    softmax_built(context, 3);
    assert_status(context, clattn_context_save_programs(context), CLATTN_SUCCESS);
    assert_int_equal(cached_files(cache_folder, NULL), entries);
    release_context(&context);
    context = new_context_with(&cache_params);
    softmax_built(context, 70000);
    assert_int_equal(programs_of(context).built, 0);
    assert_int_equal(programs_of(context).loaded, entries);
    release_context(&context);
}

/* PoCL compiles a program anew for its binary, so clattn saves it only when asked or, with the mode RELEASE, when the context
 * is released, even if plans still exist; programs of trials are never saved.  Programs of other drivers are saved at once. */
static void saving_does_not_keep_anybody_waiting(void **state)
{
    (void)state;
    needs_saved_programs();
    clattn_context *context = new_context_with(&cache_params);
    const bool late = saves_late(context);
    clattn_plan *trial = softmax_plan(context, 3, "");
    assert_status(context, clattn_context_save_programs(context), CLATTN_SUCCESS);
    assert_int_equal(cached_files(cache_folder, NULL), !late);
    clattn_plan *plan = softmax_plan(context, 3, NULL);
    assert_int_equal(cached_files(cache_folder, NULL), !late);
    release_context(&context);
    assert_null(context);
    assert_int_equal(cached_files(cache_folder, NULL), 1);
    clattn_plan_release(&plan);
    clattn_plan_release(&trial);
    context = new_context_with(&cache_params);
    softmax_built(context, 3);
    assert_true(programs_of(context).built == 0 && programs_of(context).loaded == 1);
    assert_status(context, clattn_context_save_programs(context), CLATTN_SUCCESS);
    assert_int_equal(cached_files(cache_folder, NULL), 1);
    release_context(&context);
    assert_status(NULL, clattn_context_save_programs(NULL), CLATTN_ERROR_INVALID_ARGUMENT);
}

/* Answers like a PoCL whose own cache was emptied meanwhile, so that the program's file is missing in the binary. */
static cl_int CL_API_CALL lossy_program_info(cl_program program, cl_program_info what, size_t size, void *value,
                                             size_t *needed)
{
    static const char file[] = "/program.bc";
    size_t bytes = 0;
    cl_int code = clGetProgramInfo(program, what, size, value, needed);
    if (what != CL_PROGRAM_BINARIES || code != CL_SUCCESS)
        return code;
    assert_cl(clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof bytes, &bytes, NULL));
    unsigned char *binary = *(unsigned char **)value;
    for (size_t i = 0; i + sizeof file <= bytes; i++)
        if (!memcmp(binary + i, file, sizeof file - 1))
            memset(binary + i, '-', sizeof file - 1);
    return code;
}

static void *lossy_get_proc(void *user, const char *name)
{
    cl_int(CL_API_CALL * function)(cl_program, cl_program_info, size_t, void *, size_t *) = lossy_program_info;
    void *pointer;
    memcpy(&pointer, &function, sizeof pointer);
    return strcmp(name, "clGetProgramInfo") ? inject_get_proc(user, name) : pointer;
}

static void what_pocl_has_lost_is_not_kept(void **state)
{
    (void)state;
    needs_saved_programs();
    inject_start(0, 0);
    cache_params.get_proc = lossy_get_proc;
    clattn_context *context = new_context_with(&cache_params);
    const bool late = saves_late(context);
    softmax_built(context, 3);
    release_context(&context);
    assert_int_equal(cached_files(cache_folder, NULL), !late);
}

/* Whether the release of a context saved its program on PoCL, with that mode and that CLATTN_SAVE in the environment. */
static bool release_saves(clattn_save_mode mode, const char *variable)
{
    empty_cache(NULL);
    cache_params.save_mode = mode;
    assert_int_equal(variable ? setenv("CLATTN_SAVE", variable, 1) : unsetenv("CLATTN_SAVE"), 0);
    clattn_context *context = new_context_with(&cache_params);
    assert_int_equal(unsetenv("CLATTN_SAVE"), 0);
    const bool late = saves_late(context);
    softmax_built(context, 3);
    const int before = cached_files(cache_folder, NULL);
    assert_int_equal(before, !late);
    release_context(&context);
    const int after = cached_files(cache_folder, NULL);
    assert_true(late || after == before);
    return !late || after > before;
}

static void a_release_saves_only_where_that_is_wanted(void **state)
{
    (void)state;
    needs_saved_programs();
    clattn_context *context = new_context_with(&cache_params);
    const bool late = saves_late(context);
    release_context(&context);
    assert_int_equal(release_saves(CLATTN_SAVE_MODE_DEFAULT, NULL), !late);
    assert_int_equal(release_saves(CLATTN_SAVE_MODE_DEFAULT, "yes"), !late);
    assert_true(release_saves(CLATTN_SAVE_MODE_DEFAULT, "release"));
    assert_int_equal(release_saves(CLATTN_SAVE_MODE_EXPLICIT, "release"), !late);
    assert_true(release_saves(CLATTN_SAVE_MODE_RELEASE, NULL));
}

/* With the mode EXPLICIT nothing but the call saves: neither the context's release nor that of the last plan. */
static void only_the_call_saves_if_the_application_says_so(void **state)
{
    (void)state;
    needs_saved_programs();
    cache_params.save_mode = CLATTN_SAVE_MODE_EXPLICIT;
    clattn_context *context = new_context_with(&cache_params);
    const bool late = saves_late(context);
    clattn_plan *plan = softmax_plan(context, 3, NULL);
    release_context(&context);
    clattn_plan_release(&plan);
    assert_int_equal(cached_files(cache_folder, NULL), !late);
    context = new_context_with(&cache_params);
    softmax_built(context, 3);
    assert_status(context, clattn_context_save_programs(context), CLATTN_SUCCESS);
    assert_int_equal(cached_files(cache_folder, NULL), 1);
    release_context(&context);
}

static atomic_int stored;
static atomic_bool store_waits; /* for the test, and then so long that a release can begin */

static void store_nothing(void *user, const char *key, const void *data, size_t bytes)
{
    (void)user;
    (void)key;
    (void)data;
    (void)bytes;
    stored++;
    if (store_waits) {
        while (store_waits)
            sched_yield();
        nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
    }
}

static void load_nothing(void *user, const char *key, clattn_cache_deliver deliver, void *sink)
{
    (void)user;
    (void)key;
    (void)deliver;
    (void)sink;
}

/* With the mode BACKGROUND programs are saved without anybody's asking, also those of plans that come later, and the
 * release saves no more. */
static void the_thread_saves_if_the_application_says_so(void **state)
{
    (void)state;
    needs_saved_programs();
    stored = 0;
    cache_params.save_mode = CLATTN_SAVE_MODE_BACKGROUND;
    cache_params.cache_dir = NULL;
    cache_params.cache_load = load_nothing;
    cache_params.cache_store = store_nothing;
    clattn_context *context = new_context_with(&cache_params);
    for (int plans = 1; plans <= 2; plans++) {
        softmax_built(context, plans == 1 ? 3 : 70000);
        const int expected = saves_late(context) ? plans : 1;
        for (int i = 0; i < 1000 && stored < expected; i++)
            nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        assert_int_equal(stored, expected);
    }
    const int before = stored;
    release_context(&context);
    assert_int_equal(stored, before);
}

/* The last release waits for the program that is being saved, and leaves the others. */
static void a_release_stops_the_saving(void **state)
{
    (void)state;
    needs_saved_programs();
    stored = 0;
    cache_params.save_mode = CLATTN_SAVE_MODE_BACKGROUND;
    cache_params.cache_dir = NULL;
    cache_params.cache_load = load_nothing;
    cache_params.cache_store = store_nothing;
    clattn_context *context = new_context_with(&cache_params);
    const bool late = saves_late(context);
    store_waits = late;
    softmax_built(context, 3);
    softmax_built(context, 70000);
    while (!stored)
        sched_yield();
    store_waits = false;
    release_context(&context);
    assert_int_equal(stored, 1);
}

/* A model makes programs after the application has released its context. */
static void programs_made_after_the_release_are_saved_too(void **state)
{
    clattn_stack_desc encoder = CLATTN_STACK_DESC_INIT;
    clattn_transformer_desc model = CLATTN_TRANSFORMER_DESC_INIT;
    clattn_encoder_desc desc = CLATTN_ENCODER_DESC_INIT;
    clattn_transformer *transformer = NULL;
    clattn_plan *plan = NULL;
    nn_store store = {.seed = 9};
    (void)state;
    needs_saved_programs();
    encoder.d_model = 8;
    encoder.heads = 2;
    encoder.d_ff = 8;
    encoder.activation = CLATTN_ACTIVATION_RELU;
    encoder.layers = 1;
    nn_store_add_stack(&store, "encoder", &encoder);
    const clattn_weight_source source = nn_source(&store);
    model.encoder = &encoder;
    desc.batch = 1;
    desc.length = 4;
    clattn_context *context = new_context_with(&cache_params);
    assert_status(context, clattn_transformer_create(context, &model, &source, &transformer), CLATTN_SUCCESS);
    clattn_context_release(&context);
    const int before = cached_files(cache_folder, NULL);
    assert_status(NULL, clattn_encoder_plan_create(transformer, &desc, NULL, &plan), CLATTN_SUCCESS);
    clattn_plan_release(&plan);
    clattn_transformer_release(&transformer);
    assert_true(cached_files(cache_folder, NULL) > before);
    nn_store_clear(&store);
}

static struct {
    clattn_context *context;
    atomic_bool ended;
} saving;

static int save_programs(void *unused)
{
    (void)unused;
    clattn_status status = clattn_context_save_programs(saving.context);
    saving.ended = true;
    return (int)status;
}

/* PoCL before 6 aborts the process if the binary of a program with a required work-group size is queried while the
 * program runs. */
static void programs_may_run_while_they_are_saved(void **state)
{
    clattn_softmax_desc desc = CLATTN_SOFTMAX_DESC_INIT;
    clattn_softmax_args args = CLATTN_SOFTMAX_ARGS_INIT;
    clattn_plan *plan = NULL;
    enum { N = 512 };
    static float x[N * N], y[N * N];
    (void)state;
    needs_saved_programs();
    clattn_context *context = new_context_with(&cache_params);
    if (!saves_late(context)) { /* other platforms may not let threads share a queue */
        release_context(&context);
        skip();
    }
    cl_context opencl = clattn_context_opencl_context(context);
    cl_command_queue queue = clattn_context_queue(context);
    fill_floats(x, N * N, 1);
    cl_mem buffers[2] = {new_buffer(opencl, CL_MEM_READ_ONLY, sizeof x, x),
                         new_buffer(opencl, CL_MEM_READ_WRITE, sizeof y, NULL)};
    args.x = clattn_binding_buffer(buffers[0], 0);
    args.y = clattn_binding_buffer(buffers[1], 0);
    desc.x = desc.y = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[]){N, N});
    assert_status(context, clattn_softmax_plan_create(context, &desc, NULL, &plan), CLATTN_SUCCESS);
    thrd_t thread;
    int result;
    saving.context = context;
    saving.ended = false;
    for (int i = 0; i < 100; i++)
        assert_status(context, clattn_softmax_enqueue(plan, NULL, &args, 0, NULL, NULL), CLATTN_SUCCESS);
    assert_int_equal(thrd_create(&thread, save_programs, NULL), thrd_success);
    do {
        assert_status(context, clattn_softmax_enqueue(plan, NULL, &args, 0, NULL, NULL), CLATTN_SUCCESS);
        assert_cl(clFinish(queue));
    } while (!saving.ended);
    assert_int_equal(thrd_join(thread, &result), thrd_success);
    assert_int_equal(result, CLATTN_SUCCESS);
    assert_true(cached_files(cache_folder, NULL) > 0);
    read_buffer(queue, buffers[1], sizeof y, y);
    double sum = 0;
    for (int i = 0; i < N; i++)
        sum += (double)y[i];
    assert_true(sum > 0.9999 && sum < 1.0001);
    clReleaseMemObject(buffers[0]);
    clReleaseMemObject(buffers[1]);
    clattn_plan_release(&plan);
    release_context(&context);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(large_grids_are_kept_too, empty_cache),
        cmocka_unit_test_setup(saving_does_not_keep_anybody_waiting, empty_cache),
        cmocka_unit_test_setup(what_pocl_has_lost_is_not_kept, empty_cache),
        cmocka_unit_test_setup(a_release_saves_only_where_that_is_wanted, empty_cache),
        cmocka_unit_test_setup(only_the_call_saves_if_the_application_says_so, empty_cache),
        cmocka_unit_test_setup(the_thread_saves_if_the_application_says_so, empty_cache),
        cmocka_unit_test_setup(a_release_stops_the_saving, empty_cache),
        cmocka_unit_test_setup(programs_made_after_the_release_are_saved_too, empty_cache),
        cmocka_unit_test_setup(programs_may_run_while_they_are_saved, empty_cache),
    };
    return RUN_TESTS("cache_saving", tests, argc, argv);
}
