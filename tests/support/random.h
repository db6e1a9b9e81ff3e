/* Reproducible random numbers. */
#ifndef TESTS_RANDOM_H
#define TESTS_RANDOM_H

#include <stddef.h>
#include <stdint.h>

/* The seed of this process: fixed, or CLATTN_TEST_SEED. */
uint64_t random_seed(void);

/* A stream of numbers that depends on random_seed() and `salt` alone. */
typedef struct random_stream {
    uint64_t state;
} random_stream;

random_stream random_start(uint64_t salt);
uint64_t random_bits(random_stream *stream);
float random_float(random_stream *stream, float low, float high);
int random_int(random_stream *stream, int low, int high); /* both ends included */

/* Fills an array with values in [-1, 1) that depend on `seed` alone. */
void fill_floats(float *values, size_t count, uint32_t seed);

#endif
