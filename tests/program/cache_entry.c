/* An entry of the program cache is refused if any of its bits is flipped, wherever it is cut, and whatever is appended.
 * No device is needed: the check comes before the driver sees the entry. */
#include <stdlib.h>
#include <string.h>

#include "program/binary_cache.h"
#include "support/check.h"

enum { HEADER_BYTES = 88, PAYLOAD_BYTES = 3001 };

static uint8_t key[SHA256_BYTES], payload[PAYLOAD_BYTES];

/* An application's store, which has room for one entry. */
static struct {
    char key[2 * SHA256_BYTES + 1];
    uint8_t *data;
    size_t bytes;
} shelf;

static void keep(void *user, const char *name, const void *data, size_t bytes)
{
    (void)user;
    assert_null(shelf.data);
    strncpy(shelf.key, name, sizeof shelf.key - 1);
    shelf.data = malloc(bytes);
    assert_non_null(shelf.data);
    memcpy(shelf.data, data, bytes);
    shelf.bytes = bytes;
}

static void give(void *user, const char *name, clattn_cache_deliver deliver, void *sink)
{
    (void)user;
    assert_string_equal(name, shelf.key);
    deliver(sink, shelf.data, shelf.bytes);
}

static struct binary_cache cache;

static int open_cache(void **state)
{
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    (void)state;
    params.cache_load = give;
    params.cache_store = keep;
    for (size_t i = 0; i < sizeof key; i++)
        key[i] = (uint8_t)(i * 37 + 5);
    for (size_t i = 0; i < sizeof payload; i++)
        payload[i] = (uint8_t)(i * 101 + i / 256);
    assert_int_equal(binary_cache_open(&cache, NULL, &params), CLATTN_SUCCESS);
    binary_cache_store(&cache, key, payload, sizeof payload);
    assert_int_equal(shelf.bytes, HEADER_BYTES + PAYLOAD_BYTES);
    return 0;
}

static int close_cache(void **state)
{
    (void)state;
    binary_cache_close(&cache);
    free(shelf.data);
    shelf.data = NULL;
    return 0;
}

static void expect_refused(const char *what, size_t at)
{
    uint8_t *got = NULL;
    size_t bytes = 0;
    bool refused = false;
    if (binary_cache_load(&cache, key, &got, &bytes, &refused) || !refused)
        fail_msg("%s %zu: the entry was not refused", what, at);
}

static void expect_intact(void)
{
    uint8_t *got = NULL;
    size_t bytes = 0;
    bool refused = true;
    assert_true(binary_cache_load(&cache, key, &got, &bytes, &refused));
    assert_false(refused);
    assert_int_equal(bytes, sizeof payload);
    assert_memory_equal(got, payload, sizeof payload);
    free(got);
}

static void every_flipped_bit_is_refused(void **state)
{
    (void)state;
    expect_intact();
    for (size_t bit = 0; bit < shelf.bytes * 8; bit++) {
        shelf.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        expect_refused("bit", bit);
        shelf.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    expect_intact();
}

static void every_overwritten_byte_is_refused(void **state)
{
    (void)state;
    for (size_t at = 0; at < shelf.bytes; at++) {
        uint8_t right = shelf.data[at];
        for (int i = 0; i < 2; i++) {
            shelf.data[at] = i == 0 ? 0 : 0xff;
            if (shelf.data[at] != right)
                expect_refused("byte", at);
        }
        shelf.data[at] = right;
    }
    expect_intact();
}

static void every_truncation_is_refused(void **state)
{
    size_t whole = shelf.bytes;
    (void)state;
    /* Each length has a block of its own, so that a sanitizer notices a read behind it.  An entry without bytes counts
     * as missing. */
    uint8_t *good = shelf.data;
    for (size_t length = 1; length < whole; length++) {
        shelf.data = malloc(length);
        assert_non_null(shelf.data);
        memcpy(shelf.data, good, length);
        shelf.bytes = length;
        expect_refused("length", length);
        free(shelf.data);
    }
    shelf.data = good;
    shelf.bytes = 0;
    uint8_t *got;
    size_t bytes;
    bool refused;
    assert_false(binary_cache_load(&cache, key, &got, &bytes, &refused));
    shelf.bytes = whole;
    expect_intact();
}

static void every_extension_is_refused(void **state)
{
    uint8_t *good = shelf.data;
    size_t whole = shelf.bytes;
    (void)state;
    shelf.data = calloc(whole + 300, 1);
    assert_non_null(shelf.data);
    memcpy(shelf.data, good, whole);
    for (shelf.bytes = whole + 1; shelf.bytes <= whole + 300; shelf.bytes++)
        expect_refused("length", shelf.bytes);
    free(shelf.data);
    shelf.data = good;
    shelf.bytes = whole;
    expect_intact();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_flipped_bit_is_refused, open_cache, close_cache),
        cmocka_unit_test_setup_teardown(every_overwritten_byte_is_refused, open_cache, close_cache),
        cmocka_unit_test_setup_teardown(every_truncation_is_refused, open_cache, close_cache),
        cmocka_unit_test_setup_teardown(every_extension_is_refused, open_cache, close_cache),
    };
    return cmocka_run_group_tests_name("cache_entry", tests, NULL, NULL);
}
