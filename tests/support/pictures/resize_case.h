/* Resizing as table rows. */
#ifndef TESTS_SUPPORT_PICTURES_RESIZE_CASE_H
#define TESTS_SUPPORT_PICTURES_RESIZE_CASE_H

#include "support/job.h"

typedef struct resize_case {
    const char *rule;
    unsigned levels;
    clattn_resize_mode mode;
    size_t batch, channels; /* 0: 1 */
    size_t from[2], to[2];  /* height and width */
    bool align_corners, antialias;
    double scale[2]; /* 0: none is given */
    float cubic_a;   /* 0: none is given */
    bool channels_last;
    array_form x, y; /* with channels_last of (batch, height, width, channels) */
    clattn_dtype x_type, y_type;
    bool explicit_batch;
    size_t actual_batch;
    bool inject; /* runs once more with NaN in one element and beyond the actual batch; the ratios are powers of two */
} resize_case;

void resize_add(const resize_case *cases, size_t count);

#endif
