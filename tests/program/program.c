/* Programs are built once, kept by the application if it wants to, and never built with an option that changes
 * results. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/plan/cached_plan.h"
#include "support/core/inject.h"
#include "support/attention/small.h"
#include "support/core/threads.h"

/* An application's store, which has one entry for each key. */
struct store {
    struct {
        char key[65];
        unsigned char *data;
        size_t bytes;
    } entries[8];
    int count, loads, stores;
    /* What the next load delivers instead of the entry. */
    enum {
        HONEST,
        NOTHING,
        NULL_DATA,
        NO_BYTES,
        ONE_BYTE,
        HUGE_LENGTH_OF_NULL,
        CUT,
        NOISE,
        TWICE_BAD_FIRST,
        OTHER_ENTRY,
        BEHAVIOURS
    } behaviour;
};

static int find(struct store *store, const char *key)
{
    assert_int_equal(strlen(key), 64);
    for (const char *c = key; *c; c++)
        assert_true(isdigit((unsigned char)*c) || (*c >= 'a' && *c <= 'f'));
    for (int i = 0; i < store->count; i++)
        if (!strcmp(store->entries[i].key, key))
            return i;
    return -1;
}

static void store_entry(void *user, const char *key, const void *data, size_t bytes)
{
    struct store *store = user;
    int at = find(store, key);
    store->stores++;
    if (at < 0) {
        assert_true(store->count < 8);
        at = store->count++;
        snprintf(store->entries[at].key, 65, "%s", key);
    }
    free(store->entries[at].data);
    store->entries[at].data = malloc(bytes);
    assert_non_null(store->entries[at].data);
    memcpy(store->entries[at].data, data, bytes);
    store->entries[at].bytes = bytes;
}

static void load_entry(void *user, const char *key, clattn_cache_deliver deliver, void *sink)
{
    struct store *store = user;
    int at = find(store, key);
    store->loads++;
    if (at < 0)
        return;
    unsigned char *data = store->entries[at].data, noise[512];
    size_t bytes = store->entries[at].bytes;
    memset(noise, 0xa5, sizeof noise);
    switch (store->behaviour) {
    case HONEST: deliver(sink, data, bytes); break;
    case NOTHING: break;
    case NULL_DATA: deliver(sink, NULL, 10); break;
    case NO_BYTES: deliver(sink, data, 0); break;
    case ONE_BYTE: deliver(sink, data, 1); break;
    case HUGE_LENGTH_OF_NULL: deliver(sink, NULL, SIZE_MAX); break;
    case CUT: deliver(sink, data, bytes - 1); break;
    case NOISE: deliver(sink, noise, sizeof noise); break;
    case TWICE_BAD_FIRST:
        deliver(sink, noise, sizeof noise);
        deliver(sink, data, bytes);
        break;
    case OTHER_ENTRY: deliver(sink, store->entries[1 - at].data, store->entries[1 - at].bytes); break;
    case BEHAVIOURS: break;
    }
}

static void forget(struct store *store)
{
    for (int i = 0; i < store->count; i++)
        free(store->entries[i].data);
    store->count = 0;
}

static clattn_context_params storing(struct store *store)
{
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    params.cache_load = load_entry;
    params.cache_store = store_entry;
    params.cache_user = store;
    return params;
}

static void an_application_keeps_the_entries(void **state)
{
    struct store store = {.behaviour = HONEST};
    clattn_context_params params = storing(&store);
    (void)state;
    needs_saved_programs();
    assert_programs(&params, 0, 1, 0, 0);
    assert_int_equal(store.count, 1);
    assert_int_equal(store.stores, 1);
    struct outcome outcome = cached_plan(&params, 0);
    assert_int_equal(outcome.loaded, 1);
    assert_int_equal(outcome.built, 0);
    assert_false(outcome.has_folder); /* no file is touched */
    assert_int_equal(store.stores, 1);
    params.cache_mode = CLATTN_CACHE_MODE_OFF;
    int loads = store.loads;
    assert_programs(&params, 0, 1, 0, 0);
    assert_int_equal(store.loads, loads);
    forget(&store);
}

/* Entries are verified after loading, so the application may deliver stale or damaged ones. */
static void whatever_an_application_delivers_is_verified(void **state)
{
    struct store store = {.behaviour = HONEST};
    clattn_context_params params = storing(&store);
    (void)state;
    needs_saved_programs();
    assert_programs(&params, 0, 1, 0, 0);
    assert_programs(&params, 1, 1, 0, 0);
    for (int behaviour = NOTHING; behaviour < BEHAVIOURS; behaviour++) {
        store.behaviour = behaviour;
        struct outcome outcome = cached_plan(&params, 0);
        if (outcome.built != 1 || outcome.loaded != 0)
            fail_msg("behaviour %d: built %llu, loaded %llu, refused %llu", behaviour, outcome.built, outcome.loaded,
                     outcome.refused);
        if (behaviour >= CUT)
            assert_int_equal(outcome.refused, 1);
    }
    store.behaviour = HONEST;
    assert_programs(&params, 0, 0, 1, 0);
    forget(&store);
}

/* The application's callbacks run with no lock held, so each may call the library.  All are called, for entries that
 * are missing, good and damaged; a lock would hang this test until the alarm. */
static struct {
    struct store store;
    clattn_context *context;
    int lines;
} curious;

static void ask_library(void)
{
    clattn_program_statistics statistics = {.size = sizeof statistics};
    char message[64];
    assert_int_equal(clattn_context_program_statistics(curious.context, &statistics), CLATTN_SUCCESS);
    clattn_context_message(curious.context, message, sizeof message);
}

static void curious_log(void *user, clattn_log_level level, const char *line)
{
    (void)user;
    (void)level;
    curious.lines += strstr(line, "damaged") != NULL;
    if (curious.context)
        ask_library();
}

static void curious_load(void *user, const char *key, clattn_cache_deliver deliver, void *sink)
{
    ask_library();
    load_entry(user, key, deliver, sink);
}

static void curious_store(void *user, const char *key, const void *data, size_t bytes)
{
    ask_library();
    store_entry(user, key, data, bytes);
}

static void callbacks_may_ask_the_library(void **state)
{
    static const int behaviours[] = {HONEST, HONEST, CUT, NOISE};
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    clattn_softmax_desc desc = CLATTN_SOFTMAX_DESC_INIT;
    (void)state;
    needs_saved_programs();
    params.cache_load = curious_load;
    params.cache_store = curious_store;
    params.cache_user = &curious.store;
    params.log = curious_log;
    desc.x = desc.y = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, (const size_t[]){5});
    alarm(120);
    for (size_t i = 0; i < sizeof behaviours / sizeof *behaviours; i++) {
        clattn_plan *plan = NULL;
        curious.store.behaviour = behaviours[i];
        clattn_context *context = new_context_with(&params);
        curious.context = context;
        assert_status(context, clattn_softmax_plan_create(context, &desc, NULL, &plan), CLATTN_SUCCESS);
        clattn_plan_release(&plan);
        assert_status(context, clattn_context_save_programs(context), CLATTN_SUCCESS);
        curious.context = NULL;
        release_context(&context);
    }
    alarm(0);
    assert_int_equal(curious.lines, 2);
    assert_true(curious.store.loads >= 4 && curious.store.stores >= 3);
    forget(&curious.store);
}

static void half_a_pair_of_callbacks_is_refused(void **state)
{
    struct store store = {.behaviour = HONEST};
    clattn_context *context = NULL;
    (void)state;
    clattn_context_params params = storing(&store);
    params.cache_load = NULL;
    assert_status(NULL, clattn_context_create(&params, &context), CLATTN_ERROR_INVALID_ARGUMENT);
    params = storing(&store);
    params.cache_store = NULL;
    assert_status(NULL, clattn_context_create(&params, &context), CLATTN_ERROR_INVALID_ARGUMENT);
    assert_null(context);
}

static void a_context_builds_a_program_once(void **state)
{
    struct small_attention problem;
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    clattn_plan *plans[3] = {NULL};
    (void)state;
    params.cache_mode = CLATTN_CACHE_MODE_OFF;
    clattn_context *context = new_context_with(&params);
    small_attention_prepare(&problem);
    assert_status(context, clattn_attention_plan_create(context, &problem.desc, NULL, &plans[0]), CLATTN_SUCCESS);
    const clattn_program_statistics first = programs_of(context);
    assert_true(first.built >= 1 && first.loaded == 0 && first.refused == 0);
    assert_status(context, clattn_attention_plan_create(context, &problem.desc, NULL, &plans[1]), CLATTN_SUCCESS);
    clattn_plan_release(&plans[0]); /* the context keeps the program */
    clattn_plan_release(&plans[1]);
    assert_status(context, clattn_attention_plan_create(context, &problem.desc, NULL, &plans[2]), CLATTN_SUCCESS);
    const clattn_program_statistics second = programs_of(context);
    assert_memory_equal(&first, &second, sizeof first);
    clattn_plan_release(&plans[2]);
    small_attention_release(&problem);
    release_context(&context);
}

/* By the solver cpu; products of one row have a kernel of their own where the device can run it. */
static void products_share_a_program(void **state)
{
    static const clattn_activation activations[] = {CLATTN_ACTIVATION_NONE,  CLATTN_ACTIVATION_RELU,
                                                    CLATTN_ACTIVATION_GELU,  CLATTN_ACTIVATION_GELU_TANH,
                                                    CLATTN_ACTIVATION_SWISH, CLATTN_ACTIVATION_LEAKY_RELU};
    static const size_t rows[] = {33, 1};
    clattn_plan_options options = {.size = sizeof options, .solver = "cpu"};
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    clattn_program_statistics first = {0}, now;
    (void)state;
    params.cache_mode = CLATTN_CACHE_MODE_OFF;
    clattn_context *context = new_context_with(&params);
    for (size_t r = 0; r < COUNT_OF(rows); r++) {
        for (size_t i = 0; i < 2 * COUNT_OF(activations); i++) {
            clattn_matmul_desc desc = CLATTN_MATMUL_DESC_INIT;
            clattn_plan *plan = NULL;
            desc.a = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[2]){rows[r], 40});
            desc.b = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[2]){40, 50});
            desc.c = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[2]){rows[r], 50});
            desc.activation = activations[i / 2];
            if (i % 2)
                desc.bias = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, (const size_t[1]){50});
            assert_status(context, clattn_matmul_plan_create(context, &desc, &options, &plan), CLATTN_SUCCESS);
            clattn_plan_release(&plan);
            now = programs_of(context);
            if (i == 0) {
                assert_true(now.built >= 1);
                first = now;
            }
            assert_int_equal(now.built, first.built);
        }
    }
    release_context(&context);
}

/* Causality and windows are told by the launch. */
static void attention_shares_a_program(void **state)
{
    static const struct {
        size_t queries;
        bool causal, left, right;
    } ranges[] = {{33, false, false, false}, {33, true, false, false}, {33, true, true, false}, {33, false, true, true},
                  {1, false, false, false},  {1, true, false, false},  {1, false, true, true}};
    clattn_plan_options options = {.size = sizeof options, .solver = "cpu"};
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    uint64_t built = 0;
    (void)state;
    params.cache_mode = CLATTN_CACHE_MODE_OFF;
    clattn_context *context = new_context_with(&params);
    for (size_t i = 0; i < COUNT_OF(ranges); i++) {
        clattn_attention_desc desc = CLATTN_ATTENTION_DESC_INIT;
        clattn_plan *plan = NULL;
        desc.query = desc.output = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 2, ranges[i].queries, 16);
        desc.key = desc.value = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 2, 40, 16);
        desc.causal = ranges[i].causal;
        desc.window.explicit_left = ranges[i].left;
        desc.window.explicit_right = ranges[i].right;
        desc.window.left = desc.window.right = 3;
        assert_status(context, clattn_attention_plan_create(context, &desc, &options, &plan), CLATTN_SUCCESS);
        clattn_plan_release(&plan);
        if (i == 0 || ranges[i].queries != ranges[i - 1].queries)
            built = programs_of(context).built;
        assert_int_equal(programs_of(context).built, built);
    }
    release_context(&context);
}

struct maker {
    clattn_context *context;
    size_t columns;
};

static int make_on_a_thread(void *user)
{
    struct maker *maker = user;
    clattn_softmax_desc desc = CLATTN_SOFTMAX_DESC_INIT;
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    clattn_plan *plan = NULL;
    options.solver = "tile"; /* this solver's program depends on the columns */
    desc.x = desc.y = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, (const size_t[]){maker->columns});
    clattn_status status = clattn_softmax_plan_create(maker->context, &desc, &options, &plan);
    clattn_plan_release(&plan);
    return (int)status;
}

/* Threads that need the same program wait for the thread that builds it; threads that need others do not. */
static void threads_build_a_program_once(void **state)
{
    if (is_tiny())
        skip(); /* Oclgrind 21.10 ends the process when kernels run on two threads at once */
    enum { THREADS = 6, KINDS = 2 };
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    struct maker makers[THREADS];
    thrd_t threads[THREADS];
    int result;
    (void)state;
    params.cache_mode = CLATTN_CACHE_MODE_OFF;
    clattn_context *context = new_context_with(&params);
    for (int i = 0; i < THREADS; i++) {
        makers[i] = (struct maker){context, i % KINDS ? 30 : 3};
        assert_int_equal(thrd_create(&threads[i], make_on_a_thread, &makers[i]), thrd_success);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(thrd_join(threads[i], &result), thrd_success);
        assert_int_equal(result, CLATTN_SUCCESS);
    }
    assert_int_equal(programs_of(context).built, KINDS);
    release_context(&context);
}

static char options_seen[64][1024];
static int options_count;

static cl_int CL_API_CALL build_and_note(cl_program program, cl_uint count, const cl_device_id *devices,
                                         const char *options, void(CL_CALLBACK *notify)(cl_program, void *), void *user)
{
    if (options_count < 64)
        snprintf(options_seen[options_count++], sizeof options_seen[0], "%s", options ? options : "(null)");
    return clBuildProgram(program, count, devices, options, notify, user);
}

static void *note_options(void *user, const char *name)
{
    cl_int(CL_API_CALL * build)(cl_program, cl_uint, const cl_device_id *, const char *,
                                void(CL_CALLBACK *)(cl_program, void *), void *) = build_and_note;
    void *pointer;
    memcpy(&pointer, &build, sizeof pointer);
    return strcmp(name, "clBuildProgram") ? inject_get_proc(user, name) : pointer;
}

/* No build option may let a compiler assume that there is no NaN or infinity: an all-NaN row would silently become
 * zeros.  Reads the option strings of every solver's builds. */
static void no_build_option_changes_results(void **state)
{
    static const char *const banned[] = {"fast-relaxed-math",
                                         "finite-math-only",
                                         "unsafe-math",
                                         "mad-enable",
                                         "fast-math",
                                         "denorms-are-zero",
                                         "native",
                                         "no-signed-zeros",
                                         "single-precision-constant"};
    static const char *const solvers[] = {"generic", "cpu", "tile"};
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    struct small_attention problem;
    (void)state;
    params.get_proc = note_options;
    params.cache_mode = CLATTN_CACHE_MODE_OFF;
    options_count = 0;
    inject_start(0, 0);
    clattn_context *context = new_context_with(&params);
    small_attention_prepare(&problem);
    for (size_t i = 0; i < (is_tiny() ? 1 : 3); i++) {
        clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
        clattn_plan *plan = NULL;
        options.solver = solvers[i];
        if (clattn_attention_plan_create(context, &problem.desc, &options, &plan) == CLATTN_SUCCESS)
            clattn_plan_release(&plan);
    }
    clattn_softmax_desc softmax = CLATTN_SOFTMAX_DESC_INIT;
    clattn_matmul_desc matmul = CLATTN_MATMUL_DESC_INIT;
    clattn_plan *plan = NULL;
    softmax.x = softmax.y = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[]){3, 5});
    matmul.a = matmul.b = matmul.c = clattn_layout_contiguous(CLATTN_DTYPE_F32, 2, (const size_t[]){5, 5});
    assert_status(context, clattn_softmax_plan_create(context, &softmax, NULL, &plan), CLATTN_SUCCESS);
    clattn_plan_release(&plan);
    assert_status(context, clattn_matmul_plan_create(context, &matmul, NULL, &plan), CLATTN_SUCCESS);
    clattn_plan_release(&plan);
    small_attention_release(&problem);
    release_context(&context);
    assert_true(options_count >= 3);
    for (int i = 0; i < options_count; i++) {
        assert_non_null(strstr(options_seen[i], "-cl-std=CL1.2"));
        for (size_t j = 0; j < sizeof banned / sizeof *banned; j++)
            if (strstr(options_seen[i], banned[j]))
                fail_msg("built with \"%s\"", options_seen[i]);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_application_keeps_the_entries),
        cmocka_unit_test(whatever_an_application_delivers_is_verified),
        cmocka_unit_test(callbacks_may_ask_the_library),
        cmocka_unit_test(half_a_pair_of_callbacks_is_refused),
        cmocka_unit_test(a_context_builds_a_program_once),
        cmocka_unit_test(products_share_a_program),
        cmocka_unit_test(attention_shares_a_program),
        cmocka_unit_test(threads_build_a_program_once),
        cmocka_unit_test(no_build_option_changes_results),
    };
    return RUN_TESTS("program", tests, argc, argv);
}
