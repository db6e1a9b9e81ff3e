/* Random numbers whose only state is the caller's. */
#ifndef CLATTN_TOOL_RUN_RANDOM_NEXT_H
#define CLATTN_TOOL_RUN_RANDOM_NEXT_H

#include <stdint.h>

/* SplitMix64: the next of a sequence that any value of *state starts; any seed is as good as another. */
static inline uint64_t random_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

#endif
