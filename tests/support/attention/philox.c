/* Philox4x32-10 as figure 2 and table 2 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3"
 * (SC 2011) give it: two halves of two words each, a multiplier for each, a Weyl sequence of keys. */
#include "support/attention/philox.h"

typedef struct half_block {
    uint32_t left, right;
} half_block;

static uint64_t product(uint32_t multiplier, uint32_t word)
{
    return (uint64_t)multiplier * word;
}

void reference_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t result[4])
{
    static const uint32_t multiplier[2] = {0xd2511f53, 0xcd9e8d57};
    static const uint32_t weyl[2] = {0x9e3779b9, 0xbb67ae85}; /* the golden ratio's and sqrt(3)'s fractions */
    half_block half[2] = {{counter[0], counter[1]}, {counter[2], counter[3]}};

    for (uint32_t round = 0; round < 10; round++) {
        const uint64_t a = product(multiplier[0], half[0].left), b = product(multiplier[1], half[1].left);
        const half_block first = {(uint32_t)(b >> 32) ^ half[0].right ^ (key[0] + round * weyl[0]), (uint32_t)b};
        const half_block second = {(uint32_t)(a >> 32) ^ half[1].right ^ (key[1] + round * weyl[1]), (uint32_t)a};
        half[0] = first;
        half[1] = second;
    }
    for (int n = 0; n < 2; n++) {
        result[2 * n] = half[n].left;
        result[2 * n + 1] = half[n].right;
    }
}
