/* Reproducible numbers. */
#ifndef CLATTN_TOOL_RUN_RANDOM_H
#define CLATTN_TOOL_RUN_RANDOM_H

#include "tool/run/host.h"
#include "tool/run/random_next.h"

/* Describes an array of a float type or an integer one with uniform random numbers in [-limit, limit], which are the same
 * for all types but for rounding.  It takes no memory until random_make makes the numbers, so that an operator may refuse
 * its shape before. */
int random_array(host_array *array, const char *name, clattn_dtype dtype, int32_t rank, const size_t *extent,
                 uint64_t seed, float limit);

/* Makes the numbers; arrays that have data, or are absent, stay as they are. */
int random_make(host_array *array);

#endif
