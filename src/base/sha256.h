/* SHA-256 (FIPS 180-4), for cache keys and digests.  Small rather than fast: it hashes a few hundred
 * kilobytes once a process. */
#ifndef CLATTN_BASE_SHA256_H
#define CLATTN_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define SHA256_BYTES 32

struct sha256 {
    uint32_t state[8];
    uint64_t length; /* bytes so far */
    uint8_t block[64];
};

void sha256_init(struct sha256 *hash);
void sha256_update(struct sha256 *hash, const void *data, size_t bytes);
void sha256_final(struct sha256 *hash, uint8_t digest[SHA256_BYTES]);

#endif
