/* What self-checks read of their arrays, and how they compare a row of results with the references in src/ref. */
#ifndef CLATTN_OPS_COMMON_CHECK_H
#define CLATTN_OPS_COMMON_CHECK_H

#include "plan/self_check.h"

/* Element `at` of the array's memory. */
double check_read(const struct check_array *array, int64_t at);

/* All elements as floats, for which `scratch` has room; NULL if the array is absent. */
const float *check_floats(const struct check_array *array, float *scratch);

/* Does check_element on each column of the row whose other indices are `index`, the last ones if the array has fewer.  `plain`
 * is the naive computation's row; NULL: as good as exact. */
clattn_status check_row(const struct check *check, const struct check_array *array, const int64_t index[3],
                        const double *exact, const float *plain, const double *magnitude);

#endif
