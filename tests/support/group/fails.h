/* How calls fail that a rank of a group of two makes. */
#ifndef TESTS_SUPPORT_GROUP_FAILS_H
#define TESTS_SUPPORT_GROUP_FAILS_H

#include "support/group/other.h"

/* What the first rank does, and what it makes, OTHER_FLOATS; `way` says how. */
typedef struct fails_case {
    clattn_status (*run)(clattn_context *context, const void *way, other_rank *other, float *results);
    const void *way;
} fails_case;

/* Cases, whose `which` is a fails_case, of programs that use the injected library: calls of OpenCL and of the system fail; and
 * exchanges do. */
void fails_of_calls(const void *which, const char *unused);
void fails_of_exchanges(const void *which, const char *unused);

#endif
