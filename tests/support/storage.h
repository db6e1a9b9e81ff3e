/* Element types on the host. */
#ifndef TESTS_STORAGE_H
#define TESTS_STORAGE_H

#include <clattn/clattn.h>

/* One element as a double, and a double stored, rounded to nearest even. */
double storage_get(clattn_dtype dtype, const void *element);
void storage_set(clattn_dtype dtype, void *element, double value);

/* What an array of that type holds of `value`. */
double storage_round(clattn_dtype dtype, double value);

/* What rounding to float16 or bfloat16 may cost at `value`: half the distance between neighbours there.  0 for other
 * types: the accuracy rule has float32's own rounding in its last term. */
double storage_rounding(clattn_dtype dtype, double value);

#endif
