/* Dropout's generator on the host; cl/inc/philox.h on the device. */
#include "clattn/attention.h"

static uint32_t high(uint32_t a, uint32_t b)
{
    return (uint32_t)((uint64_t)a * b >> 32);
}

int clattn_dropout_keep(uint64_t seed, uint32_t offset, float dropout, uint32_t heads, uint32_t batch, uint32_t head,
                        uint32_t query, uint32_t key)
{
    uint32_t c[4] = {key / 4, query, batch * heads + head, offset};
    uint32_t k[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    for (int round = 0; round < 10; round++) {
        const uint32_t next[4] = {high(0xCD9E8D57u, c[2]) ^ c[1] ^ k[0], 0xCD9E8D57u * c[2],
                                  high(0xD2511F53u, c[0]) ^ c[3] ^ k[1], 0xD2511F53u * c[0]};
        for (int i = 0; i < 4; i++)
            c[i] = next[i];
        k[0] += 0x9E3779B9u;
        k[1] += 0xBB67AE85u;
    }
    return (double)c[key % 4] >= (double)dropout * 4294967296.0;
}
