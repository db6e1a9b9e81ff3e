/* The self-check of the matrix product: runs a plan's own kernels on a small product. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/matmul/matmul.h"
#include "plan/self_check.h"
#include "ref/attention.h"
#include "ref/ref.h"

/* Sizes of the small product.  A plan by a matrix engine has two small products, both larger than a work-group's tile, so that
 * every lane of each sub-group takes part: one whose rows begin anywhere, and one that is read 16 bytes at a time and is
 * deeper than what is prefetched.  The second one's float16 A holds subnormal numbers only, which some engines take for 0. */
#define ROWS 21
#define COLUMNS 70
#define DEPTH 67
#define MATRIX_DEPTH 168
/* If a plan by bf16x3 has more k than this, its small product has a second block of k and a second tile of rows. */
#define BF16X3_DEPTH_MOST 512
#define BF16X3_ROWS 37
#define BF16X3_DEPTH 1100
#define WORKSPACE_BYTES ((size_t)1 << 20) /* enough for the small product's packed panels */

enum { A, B, C, BIAS, SCALE, OPERAND, WORKSPACE, ARRAYS };

struct matmul_check {
    struct matmul_problem small, original;
    size_t m, n, k;
    bool subnormal;
    clattn_matmul_args args;
    struct check_array arrays[ARRAYS];
};

/* A matrix of the small product whose neighbours lie as the large one's do: along rows, along columns, or neither.  A single
 * row or column may have both, and then an operand has both here too: its elements overlap. */
static clattn_layout small_matrix(const clattn_layout *full, bool is_operand, size_t rows, size_t columns)
{
    int last = full->rank - 1;
    clattn_layout layout = clattn_layout_contiguous(full->dtype, 2, (const size_t[2]){rows, columns});
    if (full->stride[last] == 1 && full->stride[last - 1] == 1 && is_operand)
        layout.stride[0] = 1;
    if (full->stride[last] == 1)
        return layout;
    layout.stride[0] = full->stride[last - 1] == 1 ? 1 : 2 * (int64_t)columns;
    layout.stride[1] = full->stride[last - 1] == 1 ? (int64_t)rows : 2;
    return layout;
}

static clattn_status make(void *data, clattn_context *context)
{
    clattn_status status;
    struct matmul_check *check = data;
    const clattn_matmul_desc *full = &check->original.desc;
    const size_t m = check->m, n = check->n, k = check->k; /* whatever the plan's are: one program serves all */
    clattn_matmul_desc desc = CLATTN_MATMUL_DESC_INIT;
    const char *reason;
    desc.a = small_matrix(&full->a, true, m, k);
    desc.b = small_matrix(&full->b, true, k, n);
    desc.c = small_matrix(&full->c, false, m, n);
    if (check->original.has_bias)
        desc.bias = clattn_layout_contiguous(full->bias.dtype, 1, &n);
    if (check->original.has_scale)
        desc.b_scale = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, &n);
    if (check->original.has_operand)
        desc.operand = small_matrix(&full->operand, true, m, n);
    desc.operand_use = full->operand_use;
    desc.activation = full->activation;
    desc.explicit_alpha = full->explicit_alpha;
    desc.alpha = copysignf(1.25f, full->alpha); /* with the plan's own alpha all results might be 0 */
    TRY(matmul_problem_read(&desc, &check->small, &reason));
    const struct check_place places[WORKSPACE] = {
        [A] = {&desc.a, &check->args.a, CHECK_NUMBERS},
        [B] = {&desc.b, &check->args.b, CHECK_NUMBERS},
        [C] = {&desc.c, &check->args.c, CHECK_NUMBERS},
        [BIAS] = {&desc.bias, &check->args.bias, check->subnormal ? CHECK_ZEROS : CHECK_NUMBERS},
        [SCALE] = {&desc.b_scale, &check->args.b_scale, CHECK_NUMBERS},
        [OPERAND] = {&desc.operand, &check->args.operand, CHECK_NUMBERS},
    };
    TRY(check_arrays_make(context, places, WORKSPACE, check->arrays));
    for (size_t i = 0; i < check->arrays[A].elements && check->subnormal; i++)
        ((uint16_t *)check->arrays[A].host)[i] &= 0x83ff;
    TRY(check_arrays_upload(context, places, WORKSPACE, check->arrays));
    TRY(check_workspace(context, WORKSPACE_BYTES, &check->arrays[WORKSPACE], &check->args.workspace));
fail:
    return status;
}

/* An operand's or the bias's elements as floats. */
static const float *floats(const struct matmul_check *check, int which, const clattn_layout *layout, float *room)
{
    return ref_floats(check->arrays[which].host, layout->dtype, check->arrays[which].elements, room);
}

static clattn_status judge(void *data, struct report *report, const char *kernel)
{
    clattn_status status = CLATTN_SUCCESS;
    const struct matmul_check *check = data;
    const struct check_array *arrays = check->arrays;
    const clattn_matmul_desc *desc = &check->small.desc;
    const size_t widened = arrays[A].elements + arrays[B].elements + arrays[OPERAND].elements + check->n;
    double *exact = malloc(2 * check->n * sizeof *exact + (check->n + widened) * sizeof(float));
    if (!exact)
        return report_error(report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a self-check");
    float *plain = (float *)(exact + 2 * check->n), *room = plain + check->n;
    float *room_b = room + arrays[A].elements, *room_operand = room_b + arrays[B].elements;
    const double unit = storage_epsilon(desc->c.dtype);
    ref_matmul_problem reference = {
        .batch = 1,
        .m = (int64_t)check->small.m,
        .n = (int64_t)check->small.n,
        .k = (int64_t)check->small.k,
        .a = {floats(check, A, &desc->a, room), 0, 0, desc->a.stride[0], desc->a.stride[1]},
        .b = {floats(check, B, &desc->b, room_b), 0, 0, desc->b.stride[0], desc->b.stride[1]},
        .bias = floats(check, BIAS, &desc->bias, room_operand + check->arrays[OPERAND].elements),
        .bias_col = 1,
        .b_scale = check->arrays[SCALE].host,
        .scale_col = 1,
        .activated = desc->activation,
        .activation = desc->activation,
        .alpha = (double)desc->alpha,
        .multiply = desc->operand_use == CLATTN_MATMUL_OPERAND_USE_MULTIPLY,
        .operand = {floats(check, OPERAND, &desc->operand, room_operand), 0, 0, desc->operand.stride[0],
                    desc->operand.stride[1]},
    };
    for (int64_t i = 0; i < reference.m; i++) {
        ref_matmul_row(&reference, 0, i, exact, exact + check->n);
        ref_matmul_naive_row(&reference, 0, i, plain);
        for (int64_t j = 0; j < reference.n; j++) {
            double value =
                ref_element(check->arrays[C].host, desc->c.dtype, i * desc->c.stride[0] + j * desc->c.stride[1]);
            double slack = check_slack(exact[j], plain[j], exact[check->n + (size_t)j], FLT_EPSILON, unit);
            TRY(check_element(report, kernel, "c", (const int64_t[4]){0, 0, i, j}, value, exact[j], slack));
        }
    }
fail:
    free(exact);
    return status;
}

static clattn_status check_small(const struct matmul_plan *plan, size_t m, size_t n, size_t k, bool subnormal)
{
    struct matmul_check check = {
        .original = plan->problem, .m = m, .n = n, .k = k, .subnormal = subnormal, .args = CLATTN_MATMUL_ARGS_INIT};
    const struct check_course course = {&check.small, &check.args, check.arrays,   ARRAYS, C, 1,
                                        make,         judge,       WORKSPACE_BYTES};
    return check_run(&plan->base, &course, &check);
}

clattn_status matmul_self_check(struct self_check *self)
{
    const clattn_plan *base = self->plan;
    const struct matmul_plan *plan = (const struct matmul_plan *)base;
    self->unchecked = plan->foreign && !self->always;
    if (self->unchecked)
        return CLATTN_SUCCESS;
    if (plan->foreign) /* a single row or column decides how CLBlast gets its matrices, so it stays one */
        return check_small(plan, size_min(ROWS, plan->problem.m), size_min(COLUMNS, plan->problem.n),
                           size_min(DEPTH, plan->problem.k), false);
    const char *kernel = base->kernels[0].name;
    if (strcmp(kernel, "matmul_split") == 0 && plan->problem.k > BF16X3_DEPTH_MOST)
        return check_small(plan, BF16X3_ROWS, COLUMNS, BF16X3_DEPTH, false);
    if (strcmp(kernel, "matmul_matrix") != 0 && strcmp(kernel, "matmul_wgmma") != 0)
        return check_small(plan, ROWS, COLUMNS, DEPTH, false);
    clattn_status status = check_small(plan, plan->tile_rows + 5, plan->tile_columns + 6, DEPTH, false);
    if (status == CLATTN_SUCCESS)
        status = check_small(plan, plan->tile_rows + 8, plan->tile_columns + 8, MATRIX_DEPTH,
                             plan->problem.desc.a.dtype == CLATTN_DTYPE_F16);
    return status;
}
