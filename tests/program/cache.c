/* An entry of the on-disk cache whose bytes were tampered with never reaches the driver. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/plan/cached_plan.h"
#include "support/core/threads.h"

#define HEADER_BYTES 88 /* an entry's magic, format, length, key and digest, which numerics.md explains */

/* Flips a bit of every byte of the header and of bytes all over the payload. */
static void corrupt_entries_are_refused_and_rebuilt(void **state)
{
    char entry[FOLDER_SIZE];
    size_t bytes;
    (void)state;
    needs_saved_programs();
    assert_programs(&cache_params, 0, 1, 0, 0);
    assert_int_equal(cached_files(cache_folder, entry), 1);
    unsigned char *good = read_file(entry, &bytes), *bad = malloc(bytes);
    assert_non_null(bad);
    assert_true(bytes > HEADER_BYTES);
    const size_t step = is_tiny() ? HEADER_BYTES / 4 : 1, payload_step = (bytes - HEADER_BYTES) / 24 + 1;
    for (size_t at = 0; at < bytes; at += at < HEADER_BYTES ? step : payload_step) {
        memcpy(bad, good, bytes);
        bad[at] ^= (unsigned char)(1u << (at % 8));
        write_file(entry, bad, bytes, 0600);
        struct outcome outcome = cached_plan(&cache_params, 0);
        if (outcome.built != 1 || outcome.refused != 1 || outcome.loaded != 0)
            fail_msg("byte %zu of %zu flipped: built %llu, loaded %llu, refused %llu", at, bytes, outcome.built,
                     outcome.loaded, outcome.refused);
        if (is_tiny() && at > HEADER_BYTES)
            break;
    }
    memcpy(bad, good, bytes);
    bad[bytes - 1] ^= 0x80;
    write_file(entry, bad, bytes, 0600);
    assert_programs(&cache_params, 0, 1, 0, 1);
    assert_programs(&cache_params, 0, 0, 1, 0); /* the rebuilt entry has replaced it */
    free(good);
    free(bad);
}

static void truncated_and_extended_entries_are_refused(void **state)
{
    char entry[FOLDER_SIZE];
    size_t bytes;
    (void)state;
    needs_saved_programs();
    assert_programs(&cache_params, 0, 1, 0, 0);
    assert_int_equal(cached_files(cache_folder, entry), 1);
    unsigned char *good = read_file(entry, &bytes), *longer = calloc(bytes + 4096, 1);
    assert_non_null(longer);
    const size_t step = is_tiny() ? HEADER_BYTES / 3 : 3, payload_step = (bytes - HEADER_BYTES) / 12 + 1;
    for (size_t length = 0; length < bytes; length += length < HEADER_BYTES + 3 ? step : payload_step) {
        write_file(entry, good, length, 0600);
        struct outcome outcome = cached_plan(&cache_params, 0);
        /* An empty file may count as a missing entry. */
        if (outcome.built != 1 || outcome.refused + (length == 0) < 1 || outcome.loaded != 0)
            fail_msg("cut to %zu of %zu bytes: built %llu, loaded %llu, refused %llu", length, bytes, outcome.built,
                     outcome.loaded, outcome.refused);
        if (is_tiny() && length > HEADER_BYTES)
            break;
    }
    memcpy(longer, good, bytes);
    write_file(entry, longer, bytes + 1, 0600);
    assert_programs(&cache_params, 0, 1, 0, 1);
    write_file(entry, longer, bytes + 4096, 0600);
    assert_programs(&cache_params, 0, 1, 0, 1);
    free(good);
    free(longer);
}

/* An entry under another entry's name is intact but the wrong program. */
static void exchanged_entries_are_refused(void **state)
{
    char first[FOLDER_SIZE], second[FOLDER_SIZE], moved[FOLDER_SIZE + 8];
    (void)state;
    needs_saved_programs();
    assert_programs(&cache_params, 0, 1, 0, 0);
    assert_int_equal(cached_files(cache_folder, first), 1);
    snprintf(moved, sizeof moved, "%s.moved", first);
    assert_int_equal(rename(first, moved), 0);
    assert_programs(&cache_params, 1, 1, 0, 0);
    for (DIR *stream = opendir(cache_folder); stream; stream = NULL) {
        for (struct dirent *item = readdir(stream); item; item = readdir(stream))
            if (item->d_name[0] != '.' && !strstr(item->d_name, ".moved"))
                snprintf(second, sizeof second, "%.*s/%.256s", FOLDER_SIZE - 300, cache_folder, item->d_name);
        closedir(stream);
    }
    assert_int_equal(rename(second, first), 0);
    assert_int_equal(rename(moved, second), 0);
    assert_programs(&cache_params, 0, 1, 0, 1);
    assert_programs(&cache_params, 1, 1, 0, 1);
    assert_programs(&cache_params, 0, 0, 1, 0);
    assert_programs(&cache_params, 1, 0, 1, 0);
}

static int build_on_a_thread(void *user)
{
    clattn_context *context = NULL;
    clattn_plan *plan = NULL;
    clattn_attention_desc desc = CLATTN_ATTENTION_DESC_INIT;
    clattn_plan_options options = CLATTN_PLAN_OPTIONS_INIT;
    options.solver = "generic";
    desc.query = desc.output = desc.key = desc.value = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 1, 3, 20);
    clattn_status status = clattn_context_create(user, &context);
    if (status == CLATTN_SUCCESS)
        status = clattn_attention_plan_create(context, &desc, &options, &plan);
    clattn_plan_release(&plan);
    clattn_context_release(&context);
    return (int)status;
}

/* A reader sees the old entry, the new one or none, even if others write at the same time. */
static void contexts_may_share_a_folder(void **state)
{
    thrd_t threads[3];
    int result;
    (void)state;
    needs_saved_programs();
    /* A simulator runs kernels of one thread at a time, so the threads run one after the other there. */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(thrd_create(&threads[i], build_on_a_thread, &cache_params), thrd_success);
        if (is_tiny()) {
            assert_int_equal(thrd_join(threads[i], &result), thrd_success);
            assert_int_equal(result, CLATTN_SUCCESS);
        }
    }
    for (int i = 0; i < 3 && !is_tiny(); i++) {
        assert_int_equal(thrd_join(threads[i], &result), thrd_success);
        assert_int_equal(result, CLATTN_SUCCESS);
    }
    assert_int_equal(cached_files(cache_folder, NULL), 1);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(corrupt_entries_are_refused_and_rebuilt, empty_cache),
        cmocka_unit_test_setup(truncated_and_extended_entries_are_refused, empty_cache),
        cmocka_unit_test_setup(exchanged_entries_are_refused, empty_cache),
        cmocka_unit_test_setup(contexts_may_share_a_folder, empty_cache),
    };
    return RUN_TESTS("cache", tests, argc, argv);
}
