#include "support/ops/each.h"

#include "support/ops/activation_case.h"
#include "support/ops/conv2d_case.h"
#include "support/ops/backward/cross_entropy_case.h"
#include "support/ops/backward/optimizer_case.h"
#include "support/ops/kv_append_case.h"
#include "support/ops/merge_case.h"
#include "support/ops/neighbourhood_case.h"
#include "support/ops/norm_case.h"
#include "support/pictures/pool_case.h"
#include "support/pictures/resize_case.h"
#include "support/ops/rope_case.h"
#include "support/ops/softmax_case.h"

static const softmax_case softmaxes[] = {
    {"masked", ALL, .rank = 2, .extent = {3, 19}, .mask = MASK_BOOL, .mask_rank = 2, .mask_extent = {3, 19}},
    {"masked", ALL, .backward = true, .rank = 2, .extent = {3, 19}, .mask = MASK_BOOL, .mask_rank = 2,
     .mask_extent = {3, 19}},
};
static const norm_case norms[] = {
    {"everything", ALL, .rank = 2, .extent = {3, 19}, .scale = {1, {19}, FORM_PLAIN, 0},
     .bias = {1, {19}, FORM_PLAIN, 0}, .outputs = NORM_MEAN | NORM_INVERSE},
    {"every gradient", ALL, .rank = 2, .extent = {3, 19}, .scale = {1, {19}, FORM_PLAIN, 0},
     .bias = {1, {19}, FORM_PLAIN, 0}, .sum = true, .gradients = NORM_DX | NORM_DSCALE | NORM_DBIAS},
};
static const pool_case pools[] = {
    {"halved", ALL, CLATTN_POOL_KIND_MAX, .channels = 3, .from = {4, 10}, .to = {2, 5}, .window = {2, 2}},
};
static const resize_case resizes[] = {
    {"up", ALL, CLATTN_RESIZE_MODE_BILINEAR, .channels = 3, .from = {3, 5}, .to = {4, 9}},
};
static const rope_case ropes[] = {
    {"pairs", ALL, .batch = 2, .heads = 3, .length = 5, .size = 16},
    {"pairs", ALL, .batch = 2, .heads = 3, .length = 5, .size = 16, .backward = true},
};
static const activation_case activations[] = {
    {"swish", ALL, .function = CLATTN_ACTIVATION_SWISH, .rank = 2, .extent = {2, 19}, .values = VALUES_FLOATS},
    {"swish", ALL, .function = CLATTN_ACTIVATION_SWISH, .rank = 2, .extent = {2, 19}, .backward = true},
};
static const merge_case merges[] = {
    {"partials", ALL, .partials = 3, .batch = 2, .heads = 2, .queries = 5, .columns = 8, .lse = true},
};
static const kv_append_case appends[] = {
    {"int8, rotated", ALL, .cache = CLATTN_CACHE_KIND_PLAIN, .type = CLATTN_DTYPE_I8, .length = 3, .capacity = 8,
     .d_k = 8, .d_v = 8, .groups = 1, .past = {2, 2}, .one_past = true, .rotate = true},
};
static const neighbourhood_case neighbourhoods[] = {
    {"small", ALL, .map = {5, 6}, .window = {3, 3}, .lse = true},
};
static const conv2d_case convolutions[] = {
    {"everything", ALL, .channels = 3, .outputs = 5, .in = {5, 6}, .kernel = {3, 3}, .padding = {1, 1, 1, 1},
     .bias = true, .operand = CONV2D_ADD},
};
static const cross_entropy_case entropies[] = {
    {"everything", ALL, .rank = 2, .extent = {37, 19}, .weights = true, .smoothing = 0.1f, .wrong = true},
};

static const adam_case steps[] = {
    {"everything", ALL, 37, CLATTN_DTYPE_F16, CLATTN_DTYPE_BF16, .learning_rate = 0.1, .squares = true, .sum = 9,
     .clip_norm = 1},
};
static const square_sum_case squares[] = {{"two rows", ALL, .count = 99}};

void each_operator_add(void)
{
    softmax_add(softmaxes, COUNT_OF(softmaxes));
    norm_add(norms, COUNT_OF(norms));
    pool_add(pools, COUNT_OF(pools));
    resize_add(resizes, COUNT_OF(resizes));
    rope_add(ropes, COUNT_OF(ropes));
    activation_add(activations, COUNT_OF(activations));
    merge_add(merges, COUNT_OF(merges));
    kv_append_add(appends, COUNT_OF(appends));
    neighbourhood_add(neighbourhoods, COUNT_OF(neighbourhoods));
    conv2d_add(convolutions, COUNT_OF(convolutions));
    cross_entropy_add(entropies, COUNT_OF(entropies));
    adam_add(steps, COUNT_OF(steps));
    square_sum_add(squares, COUNT_OF(squares));
}
