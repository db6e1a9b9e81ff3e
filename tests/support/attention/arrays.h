/* The arrays of an attention job. */
#ifndef TESTS_SUPPORT_ATTENTION_ARRAYS_H
#define TESTS_SUPPORT_ATTENTION_ARRAYS_H

#include "support/attention/case.h"

/* Makes, fills and uploads all of them, outputs owned as far as they must be written. */
void attention_make_arrays(test_job *job, const attention_case *test, uint64_t salt);

#endif
