/* Pooling as table rows. */
#ifndef TESTS_SUPPORT_PICTURES_POOL_CASE_H
#define TESTS_SUPPORT_PICTURES_POOL_CASE_H

#include "support/job.h"

typedef struct pool_case {
    const char *rule;
    unsigned levels;
    clattn_pool_kind kind;
    size_t batch, channels; /* 0: 1 */
    size_t from[2], to[2];  /* height and width */
    int32_t window[2], stride[2], dilation[2], padding[4];
    bool ceil_mode, count_include_pad;
    bool channels_last;
    array_form x, y; /* with channels_last of (batch, height, width, channels) */
    clattn_dtype x_type, y_type;
    bool explicit_batch;
    size_t actual_batch;
    bool inject; /* runs once more with NaN in one element and beyond the actual batch */
} pool_case;

void pool_add(const pool_case *cases, size_t count);

#endif
