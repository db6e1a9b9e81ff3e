/* Merging partials as table rows. */
#ifndef TESTS_SUPPORT_OPS_MERGE_CASE_H
#define TESTS_SUPPORT_OPS_MERGE_CASE_H

#include "support/job.h"

typedef struct merge_case {
    const char *rule;
    unsigned levels;
    size_t partials, batch, heads, queries, columns;
    bool sinks, lse;
    bool nan_sink;              /* the first head's */
    array_form partial, output; /* forms of the arrays and of their log-sum-exps */
    clattn_dtype type;          /* of the output; 0: CLATTN_DTYPE_F32 */
    float spread;               /* partials are uniform in [−spread, spread]; 0: 1 */
    bool explicit_lengths;
    size_t actual_partials, actual_batch, actual_queries;
} merge_case;

void merge_add(const merge_case *cases, size_t count);

#endif
