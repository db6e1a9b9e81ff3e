/* The on-disk cache: an entry that was tampered with never reaches the driver, and a folder that is not safe, or
 * not there, turns the cache off and nothing else. */
#include <dirent.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <threads.h>
#include <unistd.h>

#include "support/cached_plan.h"
#include "support/nn_model.h"
#include "support/nn_run.h"

#define HEADER_BYTES 88 /* of an entry: magic, format, length, key, digest; numerics.md says what they are for */

static char folder[SUPPORT_PATH];
static clattn_context_params params;

static int new_folder(void **state)
{
    (void)state;
    support_folder(folder);
    clattn_context_params_init(&params);
    params.cache_dir = folder;
    params.cache_mode = CLATTN_CACHE_ON;
    return 0;
}

/* The number of files in a folder, and the path of the last one (NULL: not wanted). */
static int list(const char *path, char name[SUPPORT_PATH])
{
    int count = 0;
    DIR *stream = opendir(path);
    assert_non_null(stream);
    for (struct dirent *entry = readdir(stream); entry; entry = readdir(stream))
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..")) {
            count++;
            if (name)
                snprintf(name, SUPPORT_PATH, "%.*s/%.256s", SUPPORT_PATH - 300, path, entry->d_name);
        }
    closedir(stream);
    return count;
}

static unsigned char *read_all(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    *bytes = (size_t)ftell(file);
    rewind(file);
    unsigned char *data = malloc(*bytes + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, *bytes, file), *bytes);
    fclose(file);
    return data;
}

static void write_all(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path, 0600), 0);
}

static void entries_are_private_and_reused(void **state)
{
    char entry[SUPPORT_PATH];
    struct stat about;
    (void)state;
    assert_programs(&params, 0, 1, 0, 0);
    assert_int_equal(list(folder, entry), 1); /* and no temporary file beside it */
    assert_int_equal(lstat(entry, &about), 0);
    assert_true(S_ISREG(about.st_mode));
    assert_int_equal(about.st_mode & 0777, 0600);
    assert_programs(&params, 0, 0, 1, 0);
    assert_programs(&params, 1, 1, 0, 0); /* another specialisation is another entry */
    assert_programs(&params, 0, 0, 1, 0);
    assert_programs(&params, 1, 0, 1, 0);
    assert_int_equal(list(folder, NULL), 2);
}

/* Every byte of the header, and bytes all through the payload. */
static void corrupt_entries_are_refused_and_rebuilt(void **state)
{
    char entry[SUPPORT_PATH];
    size_t bytes;
    (void)state;
    assert_programs(&params, 0, 1, 0, 0);
    assert_int_equal(list(folder, entry), 1);
    unsigned char *good = read_all(entry, &bytes), *bad = malloc(bytes);
    assert_non_null(bad);
    assert_true(bytes > HEADER_BYTES);
    const size_t step = support_tiny() ? HEADER_BYTES / 4 : 1, payload_step = (bytes - HEADER_BYTES) / 24 + 1;
    for (size_t at = 0; at < bytes; at += at < HEADER_BYTES ? step : payload_step) {
        memcpy(bad, good, bytes);
        bad[at] ^= (unsigned char)(1u << (at % 8));
        write_all(entry, bad, bytes);
        struct outcome outcome = cached_plan(&params, 0);
        if (outcome.built != 1 || outcome.refused != 1 || outcome.loaded != 0)
            fail_msg("byte %zu of %zu flipped: built %llu, loaded %llu, refused %llu", at, bytes, outcome.built,
                     outcome.loaded, outcome.refused);
        if (support_tiny() && at > HEADER_BYTES)
            break;
    }
    memcpy(bad, good, bytes);
    bad[bytes - 1] ^= 0x80;
    write_all(entry, bad, bytes);
    assert_programs(&params, 0, 1, 0, 1);
    assert_programs(&params, 0, 0, 1, 0); /* the rebuilt entry has taken its place */
    free(good);
    free(bad);
}

static void truncated_and_extended_entries_are_refused(void **state)
{
    char entry[SUPPORT_PATH];
    size_t bytes;
    (void)state;
    assert_programs(&params, 0, 1, 0, 0);
    assert_int_equal(list(folder, entry), 1);
    unsigned char *good = read_all(entry, &bytes), *longer = calloc(bytes + 4096, 1);
    assert_non_null(longer);
    const size_t step = support_tiny() ? HEADER_BYTES / 3 : 3, payload_step = (bytes - HEADER_BYTES) / 12 + 1;
    for (size_t length = 0; length < bytes; length += length < HEADER_BYTES + 3 ? step : payload_step) {
        write_all(entry, good, length);
        struct outcome outcome = cached_plan(&params, 0);
        /* An empty file may count as no entry at all. */
        if (outcome.built != 1 || outcome.refused + (length == 0) < 1 || outcome.loaded != 0)
            fail_msg("cut to %zu of %zu bytes: built %llu, loaded %llu, refused %llu", length, bytes,
                     outcome.built, outcome.loaded, outcome.refused);
        if (support_tiny() && length > HEADER_BYTES)
            break;
    }
    memcpy(longer, good, bytes);
    write_all(entry, longer, bytes + 1);
    assert_programs(&params, 0, 1, 0, 1);
    write_all(entry, longer, bytes + 4096);
    assert_programs(&params, 0, 1, 0, 1);
    free(good);
    free(longer);
}

/* An entry under another one's name is a wrong program, not a damaged one. */
static void exchanged_entries_are_refused(void **state)
{
    char first[SUPPORT_PATH], second[SUPPORT_PATH], moved[SUPPORT_PATH + 8];
    (void)state;
    assert_programs(&params, 0, 1, 0, 0);
    assert_int_equal(list(folder, first), 1);
    snprintf(moved, sizeof moved, "%s.moved", first);
    assert_int_equal(rename(first, moved), 0);
    assert_programs(&params, 1, 1, 0, 0);
    for (DIR *stream = opendir(folder); stream; stream = NULL) {
        for (struct dirent *item = readdir(stream); item; item = readdir(stream))
            if (item->d_name[0] != '.' && !strstr(item->d_name, ".moved"))
                snprintf(second, sizeof second, "%.*s/%.256s", SUPPORT_PATH - 300, folder, item->d_name);
        closedir(stream);
    }
    assert_int_equal(rename(second, first), 0);
    assert_int_equal(rename(moved, second), 0);
    assert_programs(&params, 0, 1, 0, 1);
    assert_programs(&params, 1, 1, 0, 1);
    assert_programs(&params, 0, 0, 1, 0);
    assert_programs(&params, 1, 0, 1, 0);
}

/* What lies in an entry's place and is no plain file of ours is not read, not followed, and does not hang us. */
static void strange_things_in_an_entrys_place_are_not_read(void **state)
{
    char entry[SUPPORT_PATH], target[SUPPORT_PATH];
    size_t bytes;
    (void)state;
    assert_programs(&params, 0, 1, 0, 0);
    assert_int_equal(list(folder, entry), 1);
    unsigned char *good = read_all(entry, &bytes);
    alarm(120);
    support_folder(target);
    strncat(target, "/target", sizeof target - strlen(target) - 1);
    write_all(target, good, bytes);
    for (int round = 0; round < 4; round++) {
        remove(entry);
        if (round == 0)
            assert_int_equal(symlink(target, entry), 0);
        else if (round == 1)
            assert_int_equal(mkfifo(entry, 0600), 0);
        else if (round == 2)
            assert_int_equal(mkdir(entry, 0700), 0);
        else
            assert_int_equal(symlink("/dev/zero", entry), 0);
        struct outcome outcome = cached_plan(&params, 0);
        assert_int_equal(outcome.built, 1);
        assert_int_equal(outcome.loaded, 0);
    }
    remove(entry);
    write_all(entry, good, bytes);
    assert_int_equal(chmod(entry, 0666), 0); /* anybody may have written it */
    struct outcome outcome = cached_plan(&params, 0);
    assert_int_equal(outcome.built, 1);
    assert_int_equal(outcome.loaded, 0);
    size_t still;
    unsigned char *kept = read_all(target, &still);
    assert_int_equal(still, bytes); /* nothing was written through the link */
    assert_memory_equal(kept, good, bytes);
    alarm(0);
    free(kept);
    free(good);
}

/* The cache is off, the computation went on, and (`path` not NULL) nothing was written there. */
static void expect_off(const char *path)
{
    struct outcome outcome = cached_plan(&params, 0);
    assert_false(outcome.has_folder);
    assert_int_equal(outcome.built, 1);
    if (path)
        assert_int_equal(list(path, NULL), 0);
}

static void unsafe_folders_turn_the_cache_off(void **state)
{
    char link[SUPPORT_PATH + 16];
    (void)state;
    snprintf(link, sizeof link, "%s.link", folder);
    assert_int_equal(symlink(folder, link), 0);
    params.cache_dir = link;
    expect_off(folder);
    remove(link);
    params.cache_dir = folder;
    const mode_t writable[] = {0770, 0720, 0707, 0702, 0777, 01777};
    for (size_t i = 0; i < sizeof writable / sizeof *writable; i++) {
        assert_int_equal(chmod(folder, writable[i]), 0);
        expect_off(folder);
    }
    const mode_t readable[] = {0755, 0750, 0711}; /* what matters is who may write */
    for (size_t i = 0; i < sizeof readable / sizeof *readable; i++) {
        assert_int_equal(chmod(folder, readable[i]), 0);
        assert_true(cached_plan(&params, 0).has_folder);
        char entry[SUPPORT_PATH];
        assert_int_equal(list(folder, entry), 1);
        remove(entry);
    }
    assert_int_equal(chmod(folder, 0700), 0);
    if (geteuid() == 0) { /* only root can make one that is somebody else's */
        assert_int_equal(chown(folder, 65534, 65534), 0);
        expect_off(folder);
        assert_int_equal(chown(folder, geteuid(), getegid()), 0);
    }
    cached_plan(&params, 0);
    assert_int_equal(list(folder, NULL), 1); /* it was safe all along but for what we did to it */
}

static void folders_that_cannot_be_used_turn_the_cache_off(void **state)
{
    char file[SUPPORT_PATH + 16], inside[SUPPORT_PATH + 32];
    (void)state;
    snprintf(file, sizeof file, "%s/file", folder);
    write_all(file, "x", 1);
    const char *const places[] = {"/proc/clattn/cache", "relative/path", "", file, inside, "/dev/null"};
    snprintf(inside, sizeof inside, "%s/below", file);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        params.cache_dir = places[i];
        expect_off(NULL);
    }
    assert_int_equal(access("relative", F_OK), -1);
    remove(file);
    /* A folder that may only be read: root writes all the same, so only that it does no harm is certain. */
    params.cache_dir = folder;
    assert_int_equal(chmod(folder, 0500), 0);
    struct outcome outcome = cached_plan(&params, 0);
    assert_int_equal(outcome.built, 1);
    assert_int_equal(chmod(folder, 0700), 0);
    if (geteuid() != 0)
        assert_int_equal(list(folder, NULL), 0);
}

static void missing_folders_are_made_private(void **state)
{
    char path[SUPPORT_PATH + 16];
    struct stat about;
    mode_t mask = umask(0);
    (void)state;
    snprintf(path, sizeof path, "%s/a/b/c", folder);
    params.cache_dir = path;
    assert_programs(&params, 0, 1, 0, 0);
    umask(mask);
    assert_programs(&params, 0, 0, 1, 0);
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0700);
}

struct saved {
    const char *name;
    char *value;
};

static void save(struct saved *saved, const char *name)
{
    const char *value = getenv(name);
    saved->name = name;
    saved->value = value ? strdup(value) : NULL;
}

static void restore(struct saved *saved)
{
    if (saved->value)
        setenv(saved->name, saved->value, 1);
    else
        unsetenv(saved->name);
    free(saved->value);
}

static void the_environment_chooses_where_params_leave_a_choice(void **state)
{
    struct saved saved[4];
    char below[SUPPORT_PATH + 32];
    (void)state;
    save(&saved[0], "CLATTN_CACHE");
    save(&saved[1], "CLATTN_CACHE_DIR");
    save(&saved[2], "XDG_CACHE_HOME");
    save(&saved[3], "HOME");
    unsetenv("CLATTN_CACHE");
    unsetenv("CLATTN_CACHE_DIR");
    unsetenv("XDG_CACHE_HOME");
    cached_plan(NULL, 0); /* the driver's own cache may live below HOME: warm it while there is one */

    clattn_context_params_init(&params);
    unsetenv("HOME");
    assert_false(cached_plan(&params, 0).has_folder);
    setenv("XDG_CACHE_HOME", "relative", 1); /* the XDG specification: to be ignored */
    assert_false(cached_plan(&params, 0).has_folder);
    setenv("XDG_CACHE_HOME", folder, 1);
    snprintf(below, sizeof below, "%s/clattn", folder);
    assert_true(cached_plan(&params, 0).has_folder);
    assert_int_equal(list(below, NULL), 1);
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", folder, 1);
    snprintf(below, sizeof below, "%s/.cache/clattn", folder);
    assert_true(cached_plan(&params, 0).has_folder);
    assert_int_equal(list(below, NULL), 1);
    snprintf(below, sizeof below, "%s/own", folder);
    setenv("CLATTN_CACHE_DIR", below, 1);
    assert_true(cached_plan(&params, 0).has_folder);
    assert_int_equal(list(below, NULL), 1);

    setenv("CLATTN_CACHE", "off", 1);
    assert_false(cached_plan(&params, 1).has_folder);
    assert_int_equal(list(below, NULL), 1);
    params.cache_mode = CLATTN_CACHE_ON; /* the field wins */
    assert_true(cached_plan(&params, 1).has_folder);
    assert_int_equal(list(below, NULL), 2);
    unsetenv("CLATTN_CACHE");
    params.cache_mode = CLATTN_CACHE_OFF;
    assert_false(cached_plan(&params, 2).has_folder);
    assert_int_equal(list(below, NULL), 2);
    for (int i = 0; i < 4; i++)
        restore(&saved[i]);
}

static int build_on_a_thread(void *user)
{
    clattn_context *context = NULL;
    clattn_plan *plan = NULL;
    clattn_attention_desc desc = CLATTN_ATTENTION_DESC_INIT;
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    options.solver = "generic";
    desc.query = desc.output = desc.key = desc.value = clattn_layout_bhsd(CLATTN_F32, 1, 1, 3, 20);
    clattn_status status = clattn_context_create(user, &context);
    if (status == CLATTN_SUCCESS)
        status = clattn_attention_plan_create(context, &desc, &options, &plan);
    clattn_plan_release(&plan);
    clattn_context_release(&context);
    return (int)status;
}

/* A reader sees the old entry, the new one or none, whoever writes at the same time. */
static void contexts_may_share_a_folder(void **state)
{
    thrd_t threads[3];
    int result;
    (void)state;
    /* A simulator has one thread run kernels at a time: there they follow one another. */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(thrd_create(&threads[i], build_on_a_thread, &params), thrd_success);
        if (support_tiny()) {
            assert_int_equal(thrd_join(threads[i], &result), thrd_success);
            assert_int_equal(result, CLATTN_SUCCESS);
        }
    }
    for (int i = 0; i < 3 && !support_tiny(); i++) {
        assert_int_equal(thrd_join(threads[i], &result), thrd_success);
        assert_int_equal(result, CLATTN_SUCCESS);
    }
    assert_int_equal(list(folder, NULL), 1);
}

/* A softmax over `rows` rows of one column by the generic solver. */
static clattn_plan *softmax_plan(clattn_context *context, size_t rows, const char *tuning)
{
    clattn_softmax_desc desc = CLATTN_SOFTMAX_DESC_INIT;
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    clattn_plan *plan = NULL;
    options.solver = "generic";
    options.tuning = tuning;
    desc.x = desc.y = clattn_layout_contiguous(CLATTN_F32, 2, (const size_t[]){rows, 1});
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

/* PoCL compiles a kernel again for large grids, and serialises a program once: what a plan with large grids compiles
 * has to come back in the next process, whether a small one was there first or not. */
static void large_grids_are_kept_too(void **state)
{
    clattn_program_statistics statistics = {.size = sizeof statistics};
    (void)state;
    clattn_context *context = support_context_with(&params);
    int entries = saves_late(context) ? 2 : 1;
    softmax_built(context, 3);
    assert_status(context, clattn_context_save_programs(context), CLATTN_SUCCESS);
    assert_int_equal(list(folder, NULL), 1);
    softmax_built(context, 70000);
    softmax_built(context, 3);
    assert_status(context, clattn_context_save_programs(context), CLATTN_SUCCESS);
    assert_int_equal(list(folder, NULL), entries);
    support_release(&context);
    context = support_context_with(&params);
    softmax_built(context, 70000);
    assert_status(context, clattn_context_program_statistics(context, &statistics), CLATTN_SUCCESS);
    assert_int_equal(statistics.built, 0);
    assert_int_equal(statistics.loaded, entries);
    support_release(&context);
}

/* PoCL compiles for its binaries, so that the first result does not wait for them: they are saved when asked for, or by the
 * context's release, whatever plans are still there; and those of trials not at all.  Other drivers' are saved at once. */
static void saving_does_not_keep_anybody_waiting(void **state)
{
    (void)state;
    clattn_context *context = support_context_with(&params);
    const bool late = saves_late(context);
    clattn_plan *trial = softmax_plan(context, 3, "");
    assert_status(context, clattn_context_save_programs(context), CLATTN_SUCCESS);
    assert_int_equal(list(folder, NULL), !late);
    clattn_plan *plan = softmax_plan(context, 3, NULL);
    assert_int_equal(list(folder, NULL), !late);
    support_release(&context);
    assert_null(context);
    assert_int_equal(list(folder, NULL), 1);
    clattn_plan_release(&plan);
    clattn_plan_release(&trial);
    context = support_context_with(&params);
    clattn_program_statistics statistics = {.size = sizeof statistics};
    softmax_built(context, 3);
    assert_status(context, clattn_context_program_statistics(context, &statistics), CLATTN_SUCCESS);
    assert_true(statistics.built == 0 && statistics.loaded == 1);
    assert_status(context, clattn_context_save_programs(context), CLATTN_SUCCESS);
    assert_int_equal(list(folder, NULL), 1);
    support_release(&context);
    assert_status(NULL, clattn_context_save_programs(NULL), CLATTN_ERROR_INVALID_ARGUMENT);
}

/* Programs that a model makes when the application has released its context. */
static void programs_made_after_the_release_are_saved_too(void **state)
{
    clattn_stack_desc encoder = CLATTN_STACK_DESC_INIT;
    clattn_transformer_desc model = CLATTN_TRANSFORMER_DESC_INIT;
    clattn_encoder_desc desc = CLATTN_ENCODER_DESC_INIT;
    clattn_transformer *transformer = NULL;
    clattn_plan *plan = NULL;
    nn_store store = {.seed = 9};
    (void)state;
    encoder.d_model = 8;
    encoder.heads = 2;
    encoder.d_ff = 8;
    encoder.layers = 1;
    nn_store_add_stack(&store, "encoder", &encoder);
    const clattn_weight_source source = nn_source(&store);
    model.encoder = &encoder;
    desc.batch = 1;
    desc.length = 4;
    clattn_context *context = support_context_with(&params);
    assert_status(context, clattn_transformer_create(context, &model, &source, &transformer), CLATTN_SUCCESS);
    clattn_context_release(&context);
    const int before = list(folder, NULL);
    assert_status(NULL, clattn_encoder_plan_create(transformer, &desc, NULL, &plan), CLATTN_SUCCESS);
    clattn_plan_release(&plan);
    clattn_transformer_release(&transformer);
    assert_true(list(folder, NULL) > before);
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

/* PoCL before 6 aborts the process if a program that requires the size of its work-groups is asked for its binary while it
 * runs. */
static void programs_may_run_while_they_are_saved(void **state)
{
    clattn_softmax_desc desc = CLATTN_SOFTMAX_DESC_INIT;
    clattn_softmax_args args = CLATTN_SOFTMAX_ARGS_INIT;
    clattn_plan *plan = NULL;
    enum { N = 512 };
    static float x[N * N], y[N * N];
    (void)state;
    clattn_context *context = support_context_with(&params);
    if (!saves_late(context)) { /* and others may not have threads that share a queue */
        support_release(&context);
        skip();
    }
    cl_context opencl = clattn_context_opencl_context(context);
    cl_command_queue queue = clattn_context_queue(context);
    support_fill(x, N * N, 1);
    cl_mem buffers[2] = {support_buffer(opencl, CL_MEM_READ_ONLY, sizeof x, x),
                         support_buffer(opencl, CL_MEM_READ_WRITE, sizeof y, NULL)};
    args.x = clattn_binding_buffer(buffers[0], 0);
    args.y = clattn_binding_buffer(buffers[1], 0);
    desc.x = desc.y = clattn_layout_contiguous(CLATTN_F32, 2, (const size_t[]){N, N});
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
        assert_int_equal(clFinish(queue), CL_SUCCESS);
    } while (!saving.ended);
    assert_int_equal(thrd_join(thread, &result), thrd_success);
    assert_int_equal(result, CLATTN_SUCCESS);
    assert_true(list(folder, NULL) > 0);
    support_read(queue, buffers[1], sizeof y, y);
    double sum = 0;
    for (int i = 0; i < N; i++)
        sum += (double)y[i];
    assert_true(sum > 0.9999 && sum < 1.0001);
    clReleaseMemObject(buffers[0]);
    clReleaseMemObject(buffers[1]);
    clattn_plan_release(&plan);
    support_release(&context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(entries_are_private_and_reused, new_folder),
        cmocka_unit_test_setup(corrupt_entries_are_refused_and_rebuilt, new_folder),
        cmocka_unit_test_setup(truncated_and_extended_entries_are_refused, new_folder),
        cmocka_unit_test_setup(exchanged_entries_are_refused, new_folder),
        cmocka_unit_test_setup(strange_things_in_an_entrys_place_are_not_read, new_folder),
        cmocka_unit_test_setup(unsafe_folders_turn_the_cache_off, new_folder),
        cmocka_unit_test_setup(folders_that_cannot_be_used_turn_the_cache_off, new_folder),
        cmocka_unit_test_setup(missing_folders_are_made_private, new_folder),
        cmocka_unit_test_setup(the_environment_chooses_where_params_leave_a_choice, new_folder),
        cmocka_unit_test_setup(contexts_may_share_a_folder, new_folder),
        cmocka_unit_test_setup(large_grids_are_kept_too, new_folder),
        cmocka_unit_test_setup(saving_does_not_keep_anybody_waiting, new_folder),
        cmocka_unit_test_setup(programs_made_after_the_release_are_saved_too, new_folder),
        cmocka_unit_test_setup(programs_may_run_while_they_are_saved, new_folder),
    };
    return SUPPORT_RUN("cache", tests);
}
