/* SplitMix64 (Steele, Lea, Flood 2014): small, and any seed is a good one. */
#include <stdlib.h>

#include "support/harness.h"

uint64_t random_seed(void)
{
    const char *text = getenv("CLATTN_TEST_SEED");
    return text ? strtoull(text, NULL, 0) : 20170612u;
}

random_stream random_start(uint64_t salt)
{
    random_stream stream = {random_seed() * 0x9e3779b97f4a7c15u + salt};

    random_bits(&stream); /* neighbouring salts must not give neighbouring streams */
    stream.state = random_bits(&stream);
    return stream;
}

uint64_t random_bits(random_stream *stream)
{
    uint64_t z = (stream->state += 0x9e3779b97f4a7c15u);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

float random_float(random_stream *stream, float low, float high)
{
    float unit = (float)(random_bits(stream) >> 40) * 0x1p-24f;
    return low + (high - low) * unit;
}

int random_int(random_stream *stream, int low, int high)
{
    uint64_t span = (uint64_t)((int64_t)high - low) + 1;
    return low + (int)(random_bits(stream) % span);
}

void fill_floats(float *values, size_t count, uint32_t seed)
{
    uint32_t state = seed * 2654435761u + 1;
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        values[i] = (float)(int32_t)(state >> 8 << 8) * (1.0f / 2147483648.0f);
    }
}
