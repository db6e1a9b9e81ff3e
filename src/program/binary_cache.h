/* Compiled programs kept between processes: in a private folder, or by the application's callbacks.
 *
 * A driver's binary loader is no parser: a damaged binary can kill the process.  So an entry is
 *
 *   magic "CLATTNBC" | u32 format | u32 zero | u64 payload bytes | key, 32 bytes | SHA-256, 32 bytes |
 * payload
 *
 * (numbers little-endian) with the digest over all that precedes it and the payload, and nothing of an entry
 * reaches the driver before every field has been checked. */
#ifndef CLATTN_PROGRAM_BINARY_CACHE_H
#define CLATTN_PROGRAM_BINARY_CACHE_H

#include <stdbool.h>

#include "base/report.h"
#include "base/sha256.h"
#include "clattn/context.h"

struct binary_cache {
    clattn_cache_load load; /* both callbacks or none */
    clattn_cache_store store;
    void *user;
    int folder;         /* -1: no folder */
    char *path;         /* the folder's path, or NULL */
    const char *reason; /* why there is no folder; a static string */
};

/* Sets up the cache: callbacks if the params have them, else the folder, else off with a reason.  The environment is
 * read only if the params leave a choice.  Returns INVALID_ARGUMENT or OUT_OF_MEMORY only. */
clattn_status binary_cache_open(struct binary_cache *cache, struct report *report, const clattn_context_params *params);
void binary_cache_close(struct binary_cache *cache);

/* The payload of the entry for `key`, verified; the caller frees it.  False if there is none; *refused says
 * whether there was one that did not verify. */
bool binary_cache_load(struct binary_cache *cache, const uint8_t key[SHA256_BYTES], uint8_t **payload, size_t *bytes,
                       bool *refused);

/* Stores a payload.  False if that failed (an application's callback does not say); callers need not care. */
bool binary_cache_store(struct binary_cache *cache, const uint8_t key[SHA256_BYTES], const void *payload, size_t bytes);

/* Removes an entry that the driver refused. */
void binary_cache_drop(struct binary_cache *cache, const uint8_t key[SHA256_BYTES]);

#endif
