#include "program/binary_cache.h"

#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "base/strbuf.h"
#include "base/try.h"

#define ENTRY_LIMIT ((size_t)256 * 1024 * 1024)
#define ENTRY_FORMAT 1
#define SUFFIX ".bin"
#define DAY (24 * 60 * 60) /* seconds; no process takes as long to write a file */

enum { AT_FORMAT = 8, AT_LENGTH = 16, AT_KEY = 24, AT_DIGEST = 56, HEADER_BYTES = 88 };

static const char magic[] = "CLATTNBC";

struct entry_name {
    char key[2 * SHA256_BYTES + 1];
    char file[2 * SHA256_BYTES + sizeof SUFFIX];
};

static struct entry_name name_of(const uint8_t key[SHA256_BYTES])
{
    static const char digits[] = "0123456789abcdef";
    struct entry_name name;
    for (int i = 0; i < SHA256_BYTES; i++) {
        name.key[2 * i] = digits[key[i] >> 4];
        name.key[2 * i + 1] = digits[key[i] & 15];
    }
    name.key[2 * SHA256_BYTES] = '\0';
    memcpy(name.file, name.key, 2 * SHA256_BYTES);
    memcpy(name.file + 2 * SHA256_BYTES, SUFFIX, sizeof SUFFIX);
    return name;
}

static void put_number(uint8_t *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (uint8_t)(value >> (8 * i));
}

/* Writes all of the header except the digest. */
static void write_header(uint8_t header[HEADER_BYTES], const uint8_t key[SHA256_BYTES], size_t payload)
{
    memset(header, 0, HEADER_BYTES);
    memcpy(header, magic, 8);
    put_number(header + AT_FORMAT, ENTRY_FORMAT, 4);
    put_number(header + AT_LENGTH, payload, 8);
    memcpy(header + AT_KEY, key, SHA256_BYTES);
}

static void digest_entry(const uint8_t header[HEADER_BYTES], const void *payload, size_t bytes,
                         uint8_t digest[SHA256_BYTES])
{
    struct sha256 hash;
    sha256_init(&hash);
    sha256_update(&hash, header, AT_DIGEST);
    sha256_update(&hash, payload, bytes);
    sha256_final(&hash, digest);
}

/* Whether `entry` is byte for byte what binary_cache_store would have written for `key` and its payload. */
static bool verify(const uint8_t key[SHA256_BYTES], const uint8_t *entry, size_t bytes)
{
    uint8_t header[HEADER_BYTES], digest[SHA256_BYTES];
    if (bytes <= HEADER_BYTES || bytes > ENTRY_LIMIT)
        return false;
    write_header(header, key, bytes - HEADER_BYTES);
    if (memcmp(header, entry, AT_DIGEST) != 0)
        return false;
    digest_entry(header, entry + HEADER_BYTES, bytes - HEADER_BYTES, digest);
    return memcmp(digest, entry + AT_DIGEST, SHA256_BYTES) == 0;
}

/* The folder's path, or NULL and a *reason. */
static clattn_status default_path(const clattn_context_params *params, char **path, const char **reason)
{
    const char *given = params->cache_dir ? params->cache_dir : os_environment("CLATTN_CACHE_DIR");
    struct strbuf text = {0};
    *path = NULL;
    if (given)
        strbuf_printf(&text, "%s", given);
    else if (os_user_cache(&text, reason))
        strbuf_printf(&text, "/clattn");
    else
        return CLATTN_SUCCESS;
    *path = strbuf_take(&text);
    return *path ? CLATTN_SUCCESS : CLATTN_ERROR_OUT_OF_MEMORY;
}

clattn_status binary_cache_open(struct binary_cache *cache, struct report *report, const clattn_context_params *params)
{
    memset(cache, 0, sizeof *cache);
    cache->folder = -1;
    if (!params->cache_load != !params->cache_store)
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT, "cache_load and cache_store go together");
    const char *variable = os_environment("CLATTN_CACHE");
    if (params->cache_mode == CLATTN_CACHE_MODE_OFF) {
        cache->reason = "the context's params turn it off";
    } else if (params->cache_load) {
        cache->load = params->cache_load;
        cache->store = params->cache_store;
        cache->user = params->cache_user;
        cache->reason = "the application keeps the entries";
    } else if (params->cache_mode == CLATTN_CACHE_MODE_DEFAULT && variable && !strcmp(variable, "off")) {
        cache->reason = "CLATTN_CACHE is off";
    } else {
        clattn_status status = default_path(params, &cache->path, &cache->reason);
        if (status != CLATTN_SUCCESS)
            return report_error(report, status, "no memory for the cache folder's path");
        if (cache->path)
            cache->folder = os_private_folder_open(cache->path, &cache->reason);
        if (cache->folder < 0) {
            report_log(report, CLATTN_LOG_LEVEL_WARNING, "the kernel cache is off: %s%s%s", cache->reason,
                       cache->path ? ": " : "", cache->path ? cache->path : "");
            free(cache->path);
            cache->path = NULL;
        } else {
            os_private_folder_sweep(cache->folder, DAY);
        }
    }
    return CLATTN_SUCCESS;
}

void binary_cache_close(struct binary_cache *cache)
{
    os_private_folder_close(cache->folder);
    free(cache->path);
    memset(cache, 0, sizeof *cache);
    cache->folder = -1;
}

struct delivery {
    uint8_t *data;
    size_t bytes;
};

/* Takes a copy of the first delivery and ignores further ones. */
static void take_delivery(void *sink, const void *data, size_t bytes)
{
    struct delivery *delivery = sink;
    if (delivery->data || !data || !bytes || bytes > ENTRY_LIMIT)
        return;
    delivery->data = malloc(bytes);
    if (delivery->data) {
        memcpy(delivery->data, data, bytes);
        delivery->bytes = bytes;
    }
}

bool binary_cache_load(struct binary_cache *cache, const uint8_t key[SHA256_BYTES], uint8_t **payload, size_t *bytes,
                       bool *refused)
{
    struct entry_name name = name_of(key);
    struct delivery entry = {0};
    *refused = false;
    if (cache->load)
        cache->load(cache->user, name.key, take_delivery, &entry);
    else if (cache->folder < 0 ||
             !os_private_file_read(cache->folder, name.file, ENTRY_LIMIT, &entry.data, &entry.bytes))
        return false;
    if (!entry.data)
        return false;
    if (!verify(key, entry.data, entry.bytes)) {
        *refused = true;
        free(entry.data);
        return false;
    }
    *bytes = entry.bytes - HEADER_BYTES;
    memmove(entry.data, entry.data + HEADER_BYTES, *bytes);
    *payload = entry.data;
    return true;
}

bool binary_cache_store(struct binary_cache *cache, const uint8_t key[SHA256_BYTES], const void *payload, size_t bytes)
{
    struct entry_name name = name_of(key);
    bool stored = true;
    if ((cache->folder < 0 && !cache->store) || !bytes || bytes > ENTRY_LIMIT - HEADER_BYTES)
        return false;
    uint8_t *entry = malloc(HEADER_BYTES + bytes);
    if (!entry)
        return false;
    write_header(entry, key, bytes);
    digest_entry(entry, payload, bytes, entry + AT_DIGEST);
    memcpy(entry + HEADER_BYTES, payload, bytes);
    if (cache->store)
        cache->store(cache->user, name.key, entry, HEADER_BYTES + bytes);
    else
        stored = os_private_file_write(cache->folder, name.file, entry, HEADER_BYTES + bytes);
    free(entry);
    return stored;
}

void binary_cache_drop(struct binary_cache *cache, const uint8_t key[SHA256_BYTES])
{
    if (cache->folder >= 0)
        os_private_file_remove(cache->folder, name_of(key).file);
}
