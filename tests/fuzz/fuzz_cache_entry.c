/* libFuzzer target for an entry of the cache of compiled programs.
 *
 * The first byte says what the rest is: an entry as it stands, or a payload, whose entry is then changed at the places that
 * the payload's own bytes name.  Whatever the bytes: only an entry that binary_cache_store would write gives a payload. */
#define _GNU_SOURCE
#include "fuzz_file.h"

#include <string.h>

#include "program/binary_cache.h"

static uint8_t *entry;
static size_t entry_bytes;

static void keep(void *user, const char *name, const void *data, size_t bytes)
{
    (void)user;
    (void)name;
    free(entry);
    entry = malloc(bytes);
    REQUIRE(entry != NULL);
    memcpy(entry, data, bytes);
    entry_bytes = bytes;
}

static void give(void *user, const char *name, clattn_cache_deliver deliver, void *sink)
{
    (void)user;
    (void)name;
    deliver(sink, entry, entry_bytes);
}

static bool loads(struct binary_cache *cache, const uint8_t key[SHA256_BYTES], const void *payload, size_t bytes)
{
    uint8_t *got = NULL;
    size_t got_bytes = 0;
    bool refused = false;
    if (!binary_cache_load(cache, key, &got, &got_bytes, &refused)) {
        REQUIRE(refused == (entry_bytes > 0));
        return false;
    }
    fuzz_touch(got, got_bytes);
    REQUIRE(got_bytes == bytes && memcmp(got, payload, bytes) == 0);
    free(got);
    return true;
}

/* Changes the entry of the payload at each place that two bytes of the payload name, cuts it, or appends to it. */
static void change(struct binary_cache *cache, const uint8_t key[SHA256_BYTES], const uint8_t *data, size_t size)
{
    uint8_t other[SHA256_BYTES] = {1};
    REQUIRE(binary_cache_store(cache, key, data, size) && loads(cache, key, data, size) &&
            !loads(cache, other, data, size));
    for (size_t i = 0; i + 2 < size && i < 64; i += 3) {
        size_t at = ((size_t)data[i] * 256 + data[i + 1]) % entry_bytes;
        uint8_t right = entry[at], bits = data[i + 2] | (data[i + 2] == 0);
        entry[at] ^= bits;
        REQUIRE(!loads(cache, key, data, size));
        entry[at] = right;
        size_t whole = entry_bytes;
        entry_bytes = at;
        REQUIRE(!loads(cache, key, data, size));
        entry_bytes = whole;
    }
    REQUIRE(loads(cache, key, data, size));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t key[SHA256_BYTES];
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    struct binary_cache cache;
    params.cache_load = give;
    params.cache_store = keep;
    REQUIRE(binary_cache_open(&cache, NULL, &params) == CLATTN_SUCCESS);
    if (size > 1 && data[0] != 0) {
        change(&cache, key, data + 1, size - 1);
    } else if (size > 0) {
        keep(NULL, "", data + 1, size - 1);
        /* Nobody finds an entry by chance whose digest is right, except one that the corpus has. */
        loads(&cache, key, entry_bytes > 88 ? entry + 88 : entry, entry_bytes > 88 ? entry_bytes - 88 : 0);
    }
    binary_cache_close(&cache);
    return 0;
}
