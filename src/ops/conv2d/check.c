/* The self-check of 2-D convolution: a plan's own kernels on small pictures, against the reference. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/try.h"
#include "ops/common/activation.h"
#include "ops/common/check.h"
#include "ops/conv2d/conv2d.h"
#include "ref/ref.h"

#define WORKSPACE_BYTES ((size_t)1 << 20) /* enough for the small problem's packed panels */

enum { X, WEIGHT, BIAS, OPERAND, WORKSPACE, Y, ARRAYS };

static clattn_status judge(const struct check *check)
{
    clattn_status status = CLATTN_SUCCESS;
    const struct conv2d_problem *small = check->problem;
    const clattn_conv2d_desc *desc = &small->desc;
    const struct check_array *arrays = check->arrays;
    const size_t columns = small->out[1];
    const size_t widened =
        arrays[X].elements + arrays[WEIGHT].elements + arrays[BIAS].elements + arrays[OPERAND].elements;
    double *exact = malloc(2 * columns * sizeof *exact + (columns + widened) * sizeof(float));
    if (!exact)
        return report_error(check->report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a self-check");
    float *plain = (float *)(exact + 2 * columns), *x = plain + columns, *weight = x + arrays[X].elements;
    float *bias = weight + arrays[WEIGHT].elements, *operand = bias + arrays[BIAS].elements;
    ref_conv2d_problem reference = {.columns = (int64_t)columns,
                                    .in_channels = (int64_t)small->in_channels,
                                    .out_channels = (int64_t)small->out_channels,
                                    .x = check_floats(&arrays[X], x),
                                    .weight = check_floats(&arrays[WEIGHT], weight),
                                    .bias = check_floats(&arrays[BIAS], bias),
                                    .activation = desc->activation,
                                    .alpha = (double)desc->alpha,
                                    .multiply = desc->operand_use == CLATTN_MATMUL_OPERAND_USE_MULTIPLY,
                                    .operand = check_floats(&arrays[OPERAND], operand)};
    for (int i = 0; i < 2; i++) {
        reference.in[i] = (int64_t)small->in[i];
        reference.kernel[i] = (int64_t)small->kernel[i];
        reference.stride[i] = desc->stride[i];
        reference.dilation[i] = desc->dilation[i];
        reference.before[i] = desc->padding[i];
    }
    memcpy(reference.x_stride, desc->x.stride, sizeof reference.x_stride);
    memcpy(reference.weight_stride, desc->weight.stride, sizeof reference.weight_stride);
    memcpy(reference.operand_stride, desc->operand.stride, sizeof reference.operand_stride);
    for (int64_t o = 0; o < (int64_t)desc->y.extent[1]; o++)
        for (int64_t i = 0; i < (int64_t)small->out[0]; i++) {
            ref_conv2d_row(&reference, 0, o, i, exact, exact + columns);
            ref_conv2d_naive_row(&reference, 0, o, i, plain);
            TRY(check_row(check, &arrays[Y], (const int64_t[3]){0, o, i}, exact, plain, exact + columns));
        }
fail:
    free(exact);
    return status;
}

/* The layout (1, channels, height, width), whose channels are neighbours in memory if `last`. */
static clattn_layout picture(clattn_dtype dtype, bool last, size_t outer, size_t channels, size_t height, size_t width)
{
    clattn_layout layout = clattn_layout_contiguous(dtype, 4, (const size_t[4]){outer, channels, height, width});
    if (last) {
        layout.stride[1] = 1;
        layout.stride[3] = (int64_t)channels;
        layout.stride[2] = (int64_t)(width * channels);
    }
    return layout;
}

/* Runs a small convolution that has more output channels than a panel, and more columns than lanes.  One program serves
 * all activations and orders of memory, so each activation is shown, in turn with both optional arrays and with neither. */
static clattn_status check_small(const struct conv2d_plan *plan, clattn_activation activation, bool last, bool more)
{
    const struct conv2d_problem *problem = &plan->problem;
    const clattn_conv2d_desc *full = &problem->desc;
    const bool depthwise = conv2d_is_depthwise(problem);
    const size_t groups = depthwise ? plan->panel + 3 : 2, in = depthwise ? 1 : 3,
                 out = depthwise ? 1 : plan->panel + 3;
    const size_t columns = plan->lanes + 1, channels = groups * out;
    clattn_conv2d_desc desc = CLATTN_CONV2D_DESC_INIT;
    struct conv2d_problem small;
    clattn_conv2d_args args = CLATTN_CONV2D_ARGS_INIT;
    const clattn_layout workspace = clattn_layout_contiguous(CLATTN_DTYPE_U8, 1, (const size_t[1]){WORKSPACE_BYTES});
    const struct check_place places[ARRAYS] = {
        [X] = {"x", &small.desc.x, &args.x, CHECK_NUMBERS},
        [WEIGHT] = {"weight", &small.desc.weight, &args.weight, CHECK_NUMBERS},
        [BIAS] = {"bias", &small.desc.bias, &args.bias, CHECK_NUMBERS},
        [OPERAND] = {"operand", &small.desc.operand, &args.operand, CHECK_NUMBERS},
        [WORKSPACE] = {"workspace", &workspace, &args.workspace, CHECK_ZEROS},
        [Y] = {"y", &small.desc.y, &args.y, CHECK_NUMBERS},
    };
    const struct check_course course = {places, ARRAYS, Y, NULL, judge, WORKSPACE_BYTES};
    const clattn_dtype type = full->y.dtype;
    desc.groups = (int32_t)groups;
    desc.stride[0] = desc.dilation[1] = 2;
    desc.padding[0] = desc.padding[1] = 1;
    /* 3 x 2 taps and a stride of 2 make two rows of the four that the padded picture has */
    desc.x = picture(full->x.dtype, last, 1, groups * in, 4, columns + 1);
    desc.weight = picture(full->weight.dtype, last, channels, in, 3, 2);
    desc.y = picture(type, last, 1, channels, 2, columns);
    if (more) {
        desc.bias = clattn_layout_contiguous(problem->has_bias ? full->bias.dtype : type, 1, &channels);
        desc.operand = picture(problem->has_operand ? full->operand.dtype : type, last, 1, channels, 2, columns);
        desc.operand_use = last ? CLATTN_MATMUL_OPERAND_USE_ADD : CLATTN_MATMUL_OPERAND_USE_MULTIPLY;
    }
    desc.activation = activation;
    desc.explicit_alpha = full->explicit_alpha;
    desc.alpha = copysignf(1.25f, full->alpha); /* with the plan's own alpha all results might be 0 */
    return check_run(&plan->base, &course, &desc, &small, &args);
}

clattn_status conv2d_self_check(struct self_check *self)
{
    clattn_status status = CLATTN_SUCCESS;
    const struct conv2d_plan *plan = (const struct conv2d_plan *)self->plan;
    for (uint32_t i = 0; activation_name(i); i++)
        TRY(check_small(plan, (clattn_activation)i, i % 4 >= 2, i % 2));
fail:
    return status;
}
