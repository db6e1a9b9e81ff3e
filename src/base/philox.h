/* Philox4x32-10 (Salmon et al. 2011) on the host; cl/lib/philox.h on the device. */
#ifndef CLATTN_BASE_PHILOX_H
#define CLATTN_BASE_PHILOX_H

#include <stdint.h>

/* Replaces the counter by its four random words. */
static inline void philox(uint32_t c[4], uint64_t seed)
{
    uint32_t k[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    for (int round = 0; round < 10; round++) {
        const uint64_t first = (uint64_t)0xD2511F53u * c[0], second = (uint64_t)0xCD9E8D57u * c[2];
        const uint32_t next[4] = {(uint32_t)(second >> 32) ^ c[1] ^ k[0], (uint32_t)second,
                                  (uint32_t)(first >> 32) ^ c[3] ^ k[1], (uint32_t)first};
        for (int i = 0; i < 4; i++)
            c[i] = next[i];
        k[0] += 0x9E3779B9u;
        k[1] += 0xBB67AE85u;
    }
}

#endif
