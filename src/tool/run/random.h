/* Reproducible numbers. */
#ifndef CLATTN_TOOL_RUN_RANDOM_H
#define CLATTN_TOOL_RUN_RANDOM_H

#include "tool/run/host.h"
#include "tool/run/random_next.h"

/* Fills an array of any float type with uniform random numbers in [-limit, limit], which are the same for all types but
 * for rounding. */
void fill_random(host_array *array, uint64_t seed, float limit);

#endif
