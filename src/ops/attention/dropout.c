/* Dropout's decisions on the host; cl/lib/philox.h on the device. */
#include "base/philox.h"
#include "clattn/attention.h"

int clattn_dropout_keep(uint64_t seed, uint32_t offset, float dropout, uint32_t heads, uint32_t batch, uint32_t head,
                        uint32_t query, uint32_t key)
{
    uint32_t c[4] = {key / 4, query, batch * heads + head, offset};
    philox(c, seed);
    return (double)c[key % 4] >= (double)dropout * 4294967296.0;
}
