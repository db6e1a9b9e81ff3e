/* Reproducible numbers. */
#ifndef CLATTN_TOOL_RUN_RANDOM_H
#define CLATTN_TOOL_RUN_RANDOM_H

#include "tool/run/host.h"
#include "tool/run/random_next.h"

/* Makes an array of a float type or int8 with uniform random numbers in [-limit, limit], which are the same for all types
 * but for rounding. */
int random_array(host_array *array, const char *name, clattn_dtype dtype, int32_t rank, const size_t *extent,
                 uint64_t seed, float limit);

#endif
