/* The self-test's small problems, one table an operator. */
#ifndef CLATTN_TOOL_SELFTEST_H
#define CLATTN_TOOL_SELFTEST_H

#include "device.h"
#include "verify.h"

/* What became of one problem with one solver. */
typedef struct case_result {
    enum { CASE_OK, CASE_REFUSED, CASE_FAILED } outcome;
    char detail[512]; /* why, unless CASE_OK */
} case_result;

/* Runs case `index` with `solver` (NULL: the library's choice) and compares it with the reference; *name
 * tells which it was. */
typedef void (*selftest_case)(tool_device *device, size_t index, const char *solver, const char **name,
                              case_result *result);

typedef struct selftest_operator {
    const char *name;
    const char *const *solvers; /* ended by NULL; the library's own choice is tried before them */
    size_t case_count;
    selftest_case run;
} selftest_operator;

extern const selftest_operator selftest_operators[];
extern const size_t selftest_operator_count;

#endif
