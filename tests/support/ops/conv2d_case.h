/* 2-D convolutions as table rows. */
#ifndef TESTS_SUPPORT_OPS_CONV2D_CASE_H
#define TESTS_SUPPORT_OPS_CONV2D_CASE_H

#include "support/job.h"

/* What the inputs get for a second run; results that do not depend on it must keep every bit. */
typedef enum conv2d_inject {
    CONV2D_NOTHING,
    CONV2D_X_NAN,    /* in the middle of the last channel of the first picture */
    CONV2D_BIAS_INF, /* of the last channel */
    CONV2D_BEYOND    /* NaN in all pictures beyond the actual batch */
} conv2d_inject;

typedef enum conv2d_operand { CONV2D_NONE, CONV2D_ADD, CONV2D_MULTIPLY } conv2d_operand;

typedef struct conv2d_case {
    const char *rule;
    unsigned levels;
    size_t channels, outputs;           /* C and O */
    size_t in[2], kernel[2];            /* height and width */
    int stride[2], dilation[2], groups; /* 0: 1 */
    int padding[4];                     /* top, left, bottom, right */
    size_t batch;                       /* 0: 1 */
    bool empty;                         /* the batch is 0 */
    bool x_last, weight_last, y_last;   /* channels are neighbours in memory: NHWC, OHWI; the operand lies as y does */
    array_form form;                    /* of x and y, in the order of their memory */
    bool bias;
    conv2d_operand operand;
    bool shared_operand, in_place; /* the operand has N 1, or is y itself */
    clattn_activation activation;
    float alpha; /* 0: not given */
    struct {
        clattn_dtype x, weight, bias, operand, y; /* 0: float32 */
    } type;
    bool explicit_batch;
    size_t actual_batch;
    bool refused_by_cpu; /* the solver cpu answers UNSUPPORTED */
    conv2d_inject inject;
} conv2d_case;

/* The description of the case, with contiguous arrays. */
clattn_conv2d_desc conv2d_contiguous(const conv2d_case *test);

void conv2d_add(const conv2d_case *cases, size_t count);

#endif
