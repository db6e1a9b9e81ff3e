/* Reproducible numbers. */
#ifndef CLATTN_TOOL_RANDOM_H
#define CLATTN_TOOL_RANDOM_H

#include "host.h"

/* The next of a sequence that any value of *state starts; nothing else is kept. */
uint64_t random_next(uint64_t *state);

/* Fills an array of any float type with numbers uniform in [-limit, limit], the same ones rounded
 * for each. */
void fill_random(host_array *array, uint64_t seed, float limit);

#endif
