/* Reads and checks a description, and the arguments of an enqueue. */
#include <math.h>
#include <string.h>

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "ops/common/activation.h"
#include "ops/common/arrays.h"
#include "ops/conv2d/conv2d.h"
#include "program/defines.h"

_Static_assert(sizeof(conv2d_axis) == 12 * 4, "conv2d_axis has padding");
_Static_assert(sizeof(conv2d_args) == 24 + 4 * 40 + 4 * 8 + 2 * 48 + 12 * 4, "conv2d_args has padding");

/* Positions, strides and distances of taps are ints in the kernels. */
#define SIDE_LIMIT ((size_t)1 << 29)

static clattn_status check_options(clattn_conv2d_desc *desc, const char **reason)
{
    const clattn_status invalid = CLATTN_ERROR_INVALID_ARGUMENT;
    const int32_t most = (int32_t)SIDE_LIMIT;
    REQUIRE(desc->direction == CLATTN_DIRECTION_FORWARD, invalid, "direction: only CLATTN_DIRECTION_FORWARD is known");
    if (desc->groups == 0)
        desc->groups = 1;
    REQUIRE(desc->groups >= 1, invalid, "groups is below 0");
    for (int i = 0; i < 2; i++) {
        if (desc->stride[i] == 0)
            desc->stride[i] = 1;
        if (desc->dilation[i] == 0)
            desc->dilation[i] = 1;
        REQUIRE(desc->stride[i] >= 1 && desc->stride[i] <= most, invalid, "a stride is not 0 to 2^29");
        REQUIRE(desc->dilation[i] >= 1 && desc->dilation[i] <= most, invalid, "a dilation is not 0 to 2^29");
    }
    for (int i = 0; i < 4; i++)
        REQUIRE(desc->padding[i] >= 0 && desc->padding[i] <= most, invalid, "a padding is not 0 to 2^29");
    REQUIRE(activation_name(desc->activation), invalid, "unknown activation");
    REQUIRE(is_flag(desc->explicit_alpha), invalid, "explicit_alpha is neither 0 nor 1");
    if (!desc->explicit_alpha)
        desc->alpha = activation_default_alpha(desc->activation);
    REQUIRE(isfinite(desc->alpha), invalid, "alpha is NaN or infinite");
    REQUIRE(enum_within(desc->operand_use, CLATTN_MATMUL_OPERAND_USE_MULTIPLY), invalid, "unknown operand_use");
    REQUIRE(!desc->operand_use || !layout_is_none(&desc->operand), invalid, "operand_use, and there is no operand");
    return CLATTN_SUCCESS;
}

static clattn_status check_layouts(clattn_conv2d_desc *desc, const char **reason)
{
    clattn_status status;
    const struct layout_rule all[] = {
        {&desc->x, LAYOUT_OF("x"), LAYOUT_INPUT, 4, false},
        {&desc->weight, LAYOUT_OF("weight"), LAYOUT_INPUT, 4, false},
        {&desc->bias, LAYOUT_OF("bias"), LAYOUT_INPUT, 1, true},
        {&desc->operand, LAYOUT_OF("operand"), LAYOUT_INPUT, 4, true},
        {&desc->y, LAYOUT_OF("y"), LAYOUT_OUTPUT, 4, false},
    };
    TRY(layouts_read(all, COUNT_OF(all),
                     "x, weight, operand and y have 4 dimensions, (N, C, H, W) and (O, C / groups, kernel height, "
                     "kernel width), bias has 1",
                     reason));
    for (size_t i = 0; i < COUNT_OF(all); i++)
        REQUIRE(dtype_is_storage(all[i].layout->dtype) || layout_is_none(all[i].layout), CLATTN_ERROR_UNSUPPORTED,
                "x, weight, bias, operand and y are each float32, float16 or bfloat16");
fail:
    return status;
}

/* Sizes of the picture, the kernel and y, of which nothing is known but their ranks. */
static clattn_status check_sizes(struct conv2d_problem *problem, const char **reason)
{
    const clattn_status wrong = CLATTN_ERROR_INVALID_LAYOUT;
    const clattn_conv2d_desc *desc = &problem->desc;
    const size_t *x = desc->x.extent, *w = desc->weight.extent, *y = desc->y.extent, groups = (size_t)desc->groups;
    for (int i = 0; i < 4; i++)
        REQUIRE(x[i] <= SIDE_LIMIT && w[i] <= SIDE_LIMIT && y[i] <= SIDE_LIMIT, CLATTN_ERROR_OVERFLOW,
                "an extent is above 2^29");
    REQUIRE(x[1] % groups == 0 && w[0] % groups == 0, wrong, "groups does not divide x's channels C and weight's O");
    REQUIRE(w[1] == x[1] / groups, wrong, "weight is not (O, C / groups, ...) for x (N, C, H, W)");
    REQUIRE(w[2] && w[3], wrong, "weight's kernel height or width is 0");
    REQUIRE(y[0] == x[0] && y[1] == w[0], wrong, "y is not (N, O, ...) for x (N, C, H, W) and weight (O, ...)");
    for (int i = 0; i < 2; i++) {
        const size_t padded = x[2 + i] + (size_t)desc->padding[i] + (size_t)desc->padding[2 + i];
        const size_t reach = (size_t)desc->dilation[i] * (w[2 + i] - 1) + 1; /* at most 2^58 + 1 */
        REQUIRE(
            reach <= padded, wrong,
            i == 0
                ? "the kernel is higher than the padded picture: dilation * (kernel height - 1) + 1 > H + top + bottom"
                : "the kernel is wider than the padded picture: dilation * (kernel width - 1) + 1 > W + left + right");
        REQUIRE(y[2 + i] == (padded - reach) / (size_t)desc->stride[i] + 1, wrong,
                i == 0 ? "y's height is not (H + top + bottom - dilation * (kernel height - 1) - 1) / stride + 1"
                       : "y's width is not (W + left + right - dilation * (kernel width - 1) - 1) / stride + 1");
        problem->in[i] = x[2 + i];
        problem->kernel[i] = w[2 + i];
        problem->out[i] = y[2 + i];
    }
    /* Loops of kernels count taps, and packed panels have them all. */
    REQUIRE(w[2] * w[3] <= SIDE_LIMIT, CLATTN_ERROR_OVERFLOW, "the kernel has more than 2^29 taps");
    problem->batch = x[0];
    problem->groups = groups;
    problem->in_channels = w[1];
    problem->out_channels = w[0] / groups;
    return CLATTN_SUCCESS;
}

static clattn_status check_optional(struct conv2d_problem *problem, const char **reason)
{
    const clattn_conv2d_desc *desc = &problem->desc;
    const size_t *operand = desc->operand.extent, *y = desc->y.extent;
    problem->has_bias = !layout_is_none(&desc->bias);
    problem->has_operand = !layout_is_none(&desc->operand);
    REQUIRE(!problem->has_bias || desc->bias.extent[0] == y[1], CLATTN_ERROR_INVALID_LAYOUT,
            "bias is not (O) for weight (O, ...)");
    REQUIRE(!problem->has_operand ||
                ((operand[0] == y[0] || operand[0] == 1) && !memcmp(operand + 1, y + 1, 3 * sizeof *y)),
            CLATTN_ERROR_INVALID_LAYOUT, "operand is not (N or 1, O, H', W') for y (N, O, H', W')");
    return CLATTN_SUCCESS;
}

clattn_status conv2d_problem_read(const void *given, void *result, const char **reason)
{
    clattn_status status;
    struct conv2d_problem *problem = result;
    clattn_conv2d_desc *desc = &problem->desc;
    memset(problem, 0, sizeof *problem);
    *reason = "desc is NULL, or its size is none that clattn_conv2d_desc ever had";
    TRY(struct_read(desc, sizeof *desc, sizeof *desc, given));
    TRY(check_options(desc, reason));
    TRY(check_layouts(desc, reason));
    TRY(check_sizes(problem, reason));
    status = check_optional(problem, reason);
fail:
    return status;
}

void conv2d_defines(const struct conv2d_problem *problem, struct strbuf *options)
{
    const clattn_conv2d_desc *desc = &problem->desc;
    define_token(options, "X_TYPE", storage_token(desc->x.dtype));
    define_token(options, "W_TYPE", storage_token(desc->weight.dtype));
    define_token(options, "B_TYPE", storage_token(problem->has_bias ? desc->bias.dtype : desc->y.dtype));
    define_token(options, "OPERAND_TYPE", storage_token(problem->has_operand ? desc->operand.dtype : desc->y.dtype));
    define_token(options, "Y_TYPE", storage_token(desc->y.dtype));
}

clattn_status conv2d_args_read(clattn_context *context, const struct conv2d_problem *problem,
                               const clattn_conv2d_args *given, clattn_conv2d_args *args)
{
    clattn_status status;
    struct report *report = &context->device.report;
    const clattn_conv2d_desc *desc = &problem->desc;
    TRY(args_read(report, "clattn_conv2d_args", args, sizeof *args, sizeof *args, given));
    TRY(args_check(report, "explicit_batch", args->explicit_batch, args->reserved));
    TRY(args_length(report, "batch", args->explicit_batch, &args->batch, problem->batch));
    size_t x[4], y[4], operand[4];
    memcpy(x, desc->x.extent, sizeof x);
    memcpy(y, desc->y.extent, sizeof y);
    memcpy(operand, desc->operand.extent, sizeof operand);
    x[0] = y[0] = args->batch;
    operand[0] = size_min(operand[0], args->batch);
    const struct bound_array arrays[] = {
        {&args->x, &desc->x, x, BINDING_READ, "x", true},
        {&args->weight, &desc->weight, desc->weight.extent, BINDING_READ, "weight", true},
        {&args->bias, &desc->bias, desc->bias.extent, BINDING_READ, "bias", problem->has_bias},
        {&args->operand, &desc->operand, operand, BINDING_READ | BINDING_IN_PLACE, "operand", problem->has_operand},
        {&args->y, &desc->y, y, BINDING_WRITE | BINDING_IN_PLACE, "y", true},
    };
    status = conv2d_is_empty(problem, args->batch) ? bindings_absent(context, arrays, COUNT_OF(arrays))
                                                   : bindings_check(context, arrays, COUNT_OF(arrays));
fail:
    return status;
}

/* The rows (0) or columns (1). */
static conv2d_axis axis_of(const struct conv2d_problem *problem, int i)
{
    const clattn_conv2d_desc *desc = &problem->desc;
    return (conv2d_axis){.in = (int)problem->in[i],
                         .out = (int)problem->out[i],
                         .taps = (int)problem->kernel[i],
                         .stride = desc->stride[i],
                         .dilation = desc->dilation[i],
                         .before = desc->padding[i]};
}

void conv2d_fill_args(const struct conv2d_problem *problem, const clattn_conv2d_args *args, conv2d_args *kernel_args)
{
    const clattn_conv2d_desc *desc = &problem->desc;
    memset(kernel_args, 0, sizeof *kernel_args);
    kernel_args->x = array4_of(&desc->x, args->x.offset);
    kernel_args->weight = array4_of(&desc->weight, args->weight.offset);
    kernel_args->y = array4_of(&desc->y, args->y.offset);
    if (problem->has_operand) {
        kernel_args->operand = array4_of(&desc->operand, args->operand.offset);
        kernel_args->operand_use = desc->operand_use == CLATTN_MATMUL_OPERAND_USE_ADD ? 1 : 2;
        if (desc->operand.extent[0] == 1)
            kernel_args->operand.batch = 0;
    }
    if (problem->has_bias) {
        kernel_args->bias_offset = args->bias.offset;
        kernel_args->bias_stride = desc->bias.stride[0];
    }
    kernel_args->has_bias = problem->has_bias;
    kernel_args->down = axis_of(problem, 0);
    kernel_args->across = axis_of(problem, 1);
    kernel_args->batch = (int)args->batch;
    kernel_args->groups = (int)problem->groups;
    kernel_args->in_channels = (int)problem->in_channels;
    kernel_args->out_channels = (int)problem->out_channels;
    kernel_args->activation = (int)desc->activation;
    kernel_args->alpha = desc->alpha;
}
