/* Every solver computes 2-D convolution with all strides, paddings, dilations, groups, orders of memory, types and epilogues.
 *
 * Holds conv2d.h's formula, of docs/numerics.md the accuracy rule, and that what an output does not need cannot leak. */
#include <math.h>
#include <string.h>

#include "support/ops/conv2d_case.h"
#include "support/operator.h"

#define SHAPE(c, h, w, o, kh, kw) .channels = c, .outputs = o, .in = {h, w}, .kernel = {kh, kw}
#define SAME .padding = {1, 1, 1, 1}
#define NHWC .x_last = true, .y_last = true

/* Up to 16 output channels, up to 32, 33 to 48 and 64 have a program each on processors with 16 lanes; ALL cases have one. */
static const conv2d_case shapes[] = {
    {"one of each", ALL, SHAPE(1, 1, 1, 2, 1, 1)},
    {"3 by 3", ALL, SHAPE(3, 5, 6, 5, 3, 3), SAME},
    {"3 by 3", ALL, SHAPE(3, 5, 6, 5, 3, 3), SAME, NHWC, .weight_last = true},
    {"rows and columns differ", ALL, SHAPE(2, 6, 7, 3, 2, 3), .stride = {2, 1}, .dilation = {1, 2},
     .padding = {1, 0, 2, 3}},
    {"stride beyond the kernel", ALL, SHAPE(2, 7, 8, 3, 2, 1), .stride = {3, 3}},
    {"kernel larger than the picture", ALL, SHAPE(2, 2, 3, 3, 4, 5), .padding = {2, 1, 1, 2}},
    {"padding larger than the picture", ALL, SHAPE(1, 1, 2, 2, 2, 2), .padding = {3, 4, 2, 5}},
    {"an empty picture", ALL, SHAPE(2, 0, 3, 3, 2, 2), .padding = {1, 1, 1, 1}, .bias = true},
    {"no channels", ALL, SHAPE(0, 3, 3, 3, 2, 2), .bias = true},
    {"no pictures", ALL, SHAPE(2, 3, 3, 3, 2, 2), .empty = true},
    {"several tiles", ALL, SHAPE(2, 3, 53, 2, 2, 2)},
    {"1 by 1", BIG, SHAPE(37, 9, 11, 70, 1, 1)},
    {"1 by 1", BIG, SHAPE(37, 9, 11, 70, 1, 1), NHWC},
    {"several tiles", BIG, SHAPE(5, 33, 131, 64, 3, 3), SAME},
    {"several tiles", BIG, SHAPE(5, 33, 131, 64, 3, 3), SAME, NHWC, .batch = 2},
    {"several blocks", BIG, SHAPE(131, 9, 21, 66, 3, 3), SAME},
    {"several blocks", BIG, SHAPE(131, 9, 21, 66, 3, 3), SAME, NHWC, .weight_last = true},
    {"48 outputs", BIG, SHAPE(9, 10, 29, 43, 3, 3), SAME},
    {"32 outputs", BIG, SHAPE(9, 10, 29, 31, 3, 3), SAME, NHWC},
    {"3 outputs", BIG, SHAPE(40, 17, 67, 3, 3, 3), SAME},
    {"patches", BIG, SHAPE(3, 35, 36, 65, 16, 16), .stride = {16, 16}},
    {"stride 2", BIG, SHAPE(17, 31, 67, 65, 3, 3), SAME, .stride = {2, 2}},
    {"stride 2, kernel 1", BIG, SHAPE(17, 31, 67, 65, 1, 1), .stride = {2, 2}, NHWC},
    {"dilated far", BIG, SHAPE(17, 50, 61, 33, 3, 3), .dilation = {18, 20}, .padding = {18, 20, 18, 20}},
    {"dilated far", BIG, SHAPE(17, 50, 61, 33, 3, 3), .dilation = {18, 20}, .padding = {18, 20, 18, 20}, NHWC},
    {"a column", BIG, SHAPE(5, 90, 1, 17, 5, 1), .padding = {2, 0, 2, 0}},
    {"more taps than a copy holds", FULL, SHAPE(1, 130, 130, 2, 130, 130), .refused_by_cpu = true},
};

static const conv2d_case groups[] = {
    {"groups", ALL, SHAPE(6, 4, 5, 9, 3, 2), .groups = 3, .padding = {1, 1, 1, 0}, .bias = true,
     .inject = CONV2D_X_NAN},
    {"groups", ALL, SHAPE(6, 4, 5, 9, 3, 2), .groups = 3, .padding = {1, 1, 1, 0}, NHWC},
    {"groups of one channel with two outputs", BIG, SHAPE(5, 9, 21, 10, 3, 3), .groups = 5, SAME},
    {"groups", BIG, SHAPE(34, 9, 40, 140, 3, 3), .groups = 2, SAME, .inject = CONV2D_X_NAN},
    {"depthwise", ALL, SHAPE(6, 5, 7, 6, 3, 3), .groups = 6, SAME, .bias = true, .inject = CONV2D_X_NAN},
    {"depthwise", ALL, SHAPE(6, 5, 7, 6, 3, 3), .groups = 6, SAME, NHWC, .bias = true, .inject = CONV2D_X_NAN},
    {"depthwise, stride 2", ALL, SHAPE(3, 7, 9, 3, 3, 3), .groups = 3, SAME, .stride = {2, 2}},
    {"depthwise, several tiles", ALL, SHAPE(2, 3, 53, 2, 2, 2), .groups = 2, NHWC},
    {"depthwise, stride 2", BIG, SHAPE(37, 31, 67, 37, 5, 5), .groups = 37, .stride = {2, 3}, NHWC},
    {"depthwise, 7 by 7", BIG, SHAPE(37, 20, 131, 37, 7, 7), .groups = 37, .padding = {3, 3, 3, 3}},
    {"depthwise, 7 by 7", BIG, SHAPE(37, 20, 131, 37, 7, 7), .groups = 37, .padding = {3, 3, 3, 3}, NHWC},
    {"depthwise, dilated", BIG, SHAPE(17, 40, 70, 17, 3, 3), .groups = 17, .dilation = {9, 9}, .padding = {9, 9, 9, 9}},
    {"depthwise, from NHWC to NCHW", BIG, SHAPE(17, 9, 40, 17, 3, 3), .groups = 17, SAME, .x_last = true},
    {"depthwise, from NCHW to NHWC", BIG, SHAPE(17, 9, 40, 17, 3, 3), .groups = 17, SAME, .y_last = true},
};

static const conv2d_case storage[] = {
    {"from NHWC to NCHW", ALL, SHAPE(3, 5, 6, 5, 3, 3), SAME, .x_last = true, .operand = CONV2D_ADD},
    {"from NCHW to NHWC", ALL, SHAPE(3, 5, 6, 5, 3, 3), SAME, .y_last = true, .operand = CONV2D_ADD},
    {"gaps", ALL, SHAPE(3, 5, 6, 5, 3, 3), SAME, .form = FORM_PADDED},
    {"gaps", BIG, SHAPE(9, 10, 29, 66, 3, 3), SAME, .form = FORM_PADDED, NHWC},
    {"columns apart", BIG, SHAPE(9, 10, 29, 66, 3, 3), SAME, .form = FORM_SPREAD},
    {"channels apart", BIG, SHAPE(9, 10, 29, 66, 3, 3), SAME, .form = FORM_SPREAD, NHWC},
    {"backwards", BIG, SHAPE(9, 10, 29, 66, 3, 3), SAME, .form = FORM_MIRRORED},
    {"columns before rows", BIG, SHAPE(9, 10, 29, 66, 3, 3), SAME, .form = FORM_TRANSPOSED},
    {"one picture for all", BIG, SHAPE(9, 10, 29, 5, 3, 3), SAME, .form = FORM_SHARED_FIRST, .batch = 3},
    {"each its own type", ALL, SHAPE(3, 5, 6, 5, 3, 3), SAME, .bias = true, .operand = CONV2D_ADD,
     .type = {CLATTN_DTYPE_F16, CLATTN_DTYPE_BF16, CLATTN_DTYPE_F16, CLATTN_DTYPE_BF16, CLATTN_DTYPE_F32}},
    {"float16", BIG, SHAPE(35, 10, 29, 66, 3, 3), SAME, .bias = true,
     .type = {CLATTN_DTYPE_F16, CLATTN_DTYPE_F16, CLATTN_DTYPE_F16, CLATTN_DTYPE_F16, CLATTN_DTYPE_F16}},
    {"bfloat16", BIG, SHAPE(35, 10, 29, 66, 3, 3), SAME, NHWC, .bias = true, .operand = CONV2D_MULTIPLY,
     .type = {CLATTN_DTYPE_BF16, CLATTN_DTYPE_BF16, CLATTN_DTYPE_BF16, CLATTN_DTYPE_BF16, CLATTN_DTYPE_BF16}},
    {"depthwise, float16 from float32", BIG, SHAPE(37, 10, 29, 37, 3, 3), .groups = 37, SAME, NHWC,
     .type = {.y = CLATTN_DTYPE_F16}},
    {"depthwise, bfloat16", BIG, SHAPE(37, 10, 29, 37, 3, 3), .groups = 37, SAME,
     .type = {CLATTN_DTYPE_BF16, CLATTN_DTYPE_F32, CLATTN_DTYPE_F32, CLATTN_DTYPE_F32, CLATTN_DTYPE_BF16}},
};

static const conv2d_case epilogues[] = {
    {"bias", ALL, SHAPE(3, 5, 6, 5, 3, 3), .bias = true, .inject = CONV2D_BIAS_INF},
    {"ReLU", ALL, SHAPE(3, 5, 6, 5, 3, 3), SAME, .activation = CLATTN_ACTIVATION_RELU},
    {"GELU, added", BIG, SHAPE(3, 5, 36, 5, 3, 3), SAME, .activation = CLATTN_ACTIVATION_GELU, .bias = true,
     .operand = CONV2D_ADD},
    {"GELU by tanh, NHWC", BIG, SHAPE(3, 5, 36, 5, 3, 3), SAME, NHWC, .activation = CLATTN_ACTIVATION_GELU_TANH},
    {"swish, multiplied", ALL, SHAPE(3, 5, 6, 5, 3, 3), SAME, .activation = CLATTN_ACTIVATION_SWISH, .alpha = 0.5f,
     .operand = CONV2D_MULTIPLY},
    {"LeakyReLU", ALL, SHAPE(3, 5, 6, 5, 3, 3), SAME, .activation = CLATTN_ACTIVATION_LEAKY_RELU, .bias = true},
    {"LeakyReLU, alpha 0.2, added", ALL, SHAPE(3, 5, 6, 5, 3, 3), SAME, NHWC,
     .activation = CLATTN_ACTIVATION_LEAKY_RELU, .alpha = 0.2f, .operand = CONV2D_ADD},
    {"depthwise, LeakyReLU, alpha −30", BIG, SHAPE(37, 9, 40, 37, 3, 3), .groups = 37, SAME,
     .activation = CLATTN_ACTIVATION_LEAKY_RELU, .alpha = -30},
    {"an operand for all pictures", ALL, SHAPE(3, 4, 5, 5, 3, 3), SAME, NHWC, .batch = 2, .operand = CONV2D_ADD,
     .shared_operand = true},
    {"in place", ALL, SHAPE(3, 5, 6, 5, 3, 3), SAME, .operand = CONV2D_ADD, .in_place = true},
    {"in place", BIG, SHAPE(3, 5, 36, 65, 3, 3), SAME, NHWC, .operand = CONV2D_MULTIPLY, .in_place = true},
    {"depthwise, swish, in place", BIG, SHAPE(37, 9, 40, 37, 3, 3), .groups = 37, SAME, .operand = CONV2D_ADD,
     .in_place = true, .activation = CLATTN_ACTIVATION_SWISH},
    {"smaller than planned", ALL, SHAPE(3, 4, 5, 5, 3, 3), SAME, .batch = 3, .explicit_batch = true, .actual_batch = 2,
     .operand = CONV2D_ADD, .inject = CONV2D_BEYOND},
    {"nothing to do", ALL, SHAPE(3, 4, 5, 5, 3, 3), SAME, .batch = 3, .explicit_batch = true, .actual_batch = 0},
};

/* A valid description: two pictures of 4 channels, groups of 2, 3 by 3, padded by 1, with a bias and an operand. */
static clattn_conv2d_desc plain(void)
{
    static const conv2d_case test = {"",         ALL,          SHAPE(4, 5, 6, 6, 3, 3), SAME, .groups = 2,
                                     .batch = 2, .bias = true, .operand = CONV2D_ADD};
    return conv2d_contiguous(&test);
}

#define REFUSED(status, change) OPERATOR_REFUSES_DESC(conv2d, status, plain(), change)
#define FLOATS(rank, ...) clattn_layout_contiguous(CLATTN_DTYPE_F32, rank, (size_t[]){__VA_ARGS__})

static void refused_descriptions(void **state)
{
    (void)state;
    REFUSED(INVALID_STRUCT, size = 8);
    REFUSED(INVALID_ARGUMENT, direction = 1);
    REFUSED(INVALID_ARGUMENT, groups = -1);
    REFUSED(INVALID_ARGUMENT, stride[0] = -1);
    REFUSED(INVALID_ARGUMENT, dilation[1] = -2);
    REFUSED(INVALID_ARGUMENT, padding[3] = -1);
    REFUSED(INVALID_ARGUMENT, activation = 99);
    REFUSED(INVALID_ARGUMENT, explicit_alpha = 2);
    REFUSED(INVALID_ARGUMENT, alpha = (desc.explicit_alpha = 1, NAN));
    REFUSED(INVALID_ARGUMENT, operand_use = 2);
    REFUSED(INVALID_ARGUMENT, operand_use = (memset(&desc.operand, 0, sizeof desc.operand), 1));
    REFUSED(INVALID_LAYOUT, groups = 3);
    REFUSED(INVALID_LAYOUT, groups = 1);
    REFUSED(INVALID_LAYOUT, padding[0] = 0);
    REFUSED(INVALID_LAYOUT, stride[1] = 2);
    REFUSED(INVALID_LAYOUT, dilation[0] = 9);
    REFUSED(INVALID_LAYOUT, x.rank = 3);
    REFUSED(INVALID_LAYOUT, weight = FLOATS(4, 6, 2, 0, 3));
    REFUSED(INVALID_LAYOUT, y = FLOATS(4, 2, 7, 5, 6));
    REFUSED(INVALID_LAYOUT, y = FLOATS(4, 1, 6, 5, 6));
    REFUSED(INVALID_LAYOUT, y.stride[3] = 0);
    REFUSED(INVALID_LAYOUT, bias = FLOATS(1, 5));
    REFUSED(INVALID_LAYOUT, operand = FLOATS(4, 2, 6, 5, 1));
    REFUSED(UNSUPPORTED, weight.dtype = CLATTN_DTYPE_I8);
}

#define REFUSED_ARGS(status, change) OPERATOR_REFUSES_ARGS(conv2d, job.plan, status, good, change)

static void refused_arguments(void **state)
{
    static const conv2d_case test = {"", ALL, SHAPE(4, 5, 6, 6, 3, 3), SAME, .batch = 2, .operand = CONV2D_ADD};
    const clattn_conv2d_desc desc = conv2d_contiguous(&test);
    clattn_conv2d_args good = CLATTN_CONV2D_ARGS_INIT;
    test_job job = {0};
    test_array x = job_array(&job, ROLE_INPUT, CLATTN_DTYPE_F32, 4, desc.x.extent, FORM_PLAIN);
    test_array weight = job_array(&job, ROLE_INPUT, CLATTN_DTYPE_F32, 4, desc.weight.extent, FORM_PLAIN);
    test_array y = job_array(&job, ROLE_IN_PLACE, CLATTN_DTYPE_F32, 4, desc.y.extent, FORM_PLAIN);
    test_array closed = job_array(&job, ROLE_INPUT, CLATTN_DTYPE_F32, 4, desc.y.extent, FORM_PLAIN);

    (void)state;
    good.x = array_binding(&x);
    good.weight = array_binding(&weight);
    good.operand = good.y = array_binding(&y);
    job.plan = operator_plan(&conv2d_operator, &desc, NULL);
    REFUSED_ARGS(INVALID_STRUCT, size = 8);
    REFUSED_ARGS(INVALID_ARGUMENT, explicit_batch = 2);
    REFUSED_ARGS(INVALID_ARGUMENT, reserved = 1);
    REFUSED_ARGS(INVALID_ARGUMENT, batch = (args.explicit_batch = 1, 3));
    REFUSED_ARGS(INVALID_ARGUMENT, bias = args.weight);
    REFUSED_ARGS(INVALID_ARGUMENT, x = (clattn_binding){0});
    REFUSED_ARGS(INVALID_ARGUMENT, x = args.y);
    REFUSED_ARGS(INVALID_ARGUMENT, operand.offset += 1);
    REFUSED_ARGS(BUFFER_TOO_SMALL, x.offset = 1000000);
    REFUSED_ARGS(BUFFER_ACCESS, y = array_binding(&closed));
    job_release(&job);
}

int main(int argc, char **argv)
{
    conv2d_add(shapes, COUNT_OF(shapes));
    conv2d_add(groups, COUNT_OF(groups));
    conv2d_add(storage, COUNT_OF(storage));
    conv2d_add(epilogues, COUNT_OF(epilogues));
    suite_add(refused_descriptions, "conv2d: wrong descriptions are refused");
    suite_add(refused_arguments, "conv2d: wrong arguments are refused");
    return suite_run("conv2d", argc, argv);
}
