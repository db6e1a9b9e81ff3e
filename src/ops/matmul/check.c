/* The self-check of the matrix product: runs a plan's own kernels on a small product. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/try.h"
#include "ops/common/activation.h"
#include "ops/common/check.h"
#include "ops/matmul/matmul.h"
#include "ref/ref.h"

/* Sizes of the small product, whatever the plan's are: one program serves all.  A plan by a matrix engine has two small
 * products, both larger than a work-group's tile, so that every lane of each sub-group takes part: one whose rows begin
 * anywhere, and one that is read 16 bytes at a time and is deeper than what is prefetched.  The second one's float16 A holds
 * subnormal numbers only, which some engines take for 0. */
#define ROWS 21
#define COLUMNS 70
#define DEPTH 67
#define MATRIX_DEPTH 168
/* Rows and depth of the products that show each activation of a program that serves all of them.  They have COLUMNS, too,
 * which is more than the widest panel, because plain sums of a whole panel go from registers to C. */
#define FEW_ROWS 3
#define FEW_DEPTH 8
/* If a plan by bf16x3 has more k than this, its small product has a second block of k and a second tile of rows. */
#define BF16X3_DEPTH_MOST 512
#define BF16X3_ROWS 37
#define BF16X3_DEPTH 1100
#define WORKSPACE_BYTES ((size_t)1 << 20) /* enough for the small product's packed panels */

enum { A, B, BIAS, SCALE, OPERAND, WORKSPACE, C, ARRAYS };

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

static void make_subnormal(struct check *check)
{
    for (size_t i = 0; i < check->arrays[A].elements; i++)
        ((uint16_t *)check->arrays[A].host)[i] &= 0x83ff;
}

static clattn_status judge(const struct check *check)
{
    clattn_status status = CLATTN_SUCCESS;
    const struct check_array *arrays = check->arrays;
    const struct matmul_problem *small = check->problem;
    const clattn_matmul_desc *desc = &small->desc;
    const size_t n = small->n, widened = arrays[A].elements + arrays[B].elements + arrays[OPERAND].elements + n;
    double *exact = malloc(2 * n * sizeof *exact + (n + widened) * sizeof(float));
    if (!exact)
        return report_error(check->report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a self-check");
    float *plain = (float *)(exact + 2 * n), *scratch = plain + n;
    float *scratch_b = scratch + arrays[A].elements, *scratch_operand = scratch_b + arrays[B].elements;
    ref_matmul_problem reference = {
        .n = (int64_t)small->n,
        .k = (int64_t)small->k,
        .a = {check_floats(&arrays[A], scratch), desc->a.stride[0], desc->a.stride[1]},
        .b = {check_floats(&arrays[B], scratch_b), desc->b.stride[0], desc->b.stride[1]},
        .bias = check_floats(&arrays[BIAS], scratch_operand + arrays[OPERAND].elements),
        .b_scale = arrays[SCALE].host,
        .activation = desc->activation,
        .alpha = (double)desc->alpha,
        .multiply = desc->operand_use == CLATTN_MATMUL_OPERAND_USE_MULTIPLY,
        .operand = {check_floats(&arrays[OPERAND], scratch_operand), desc->operand.stride[0], desc->operand.stride[1]},
    };
    for (int64_t i = 0; i < (int64_t)small->m; i++) {
        ref_matmul_row(&reference, i, exact, exact + n);
        ref_matmul_naive_row(&reference, i, plain);
        TRY(check_row(check, &arrays[C], (const int64_t[3]){0, 0, i}, exact, plain, exact + n));
    }
fail:
    free(exact);
    return status;
}

/* A product that the plan's kernels are told to multiply instead of the plan's own. */
struct small_product {
    size_t m, n, k;
    clattn_activation activation;
    bool bias, operand;
    bool subnormal; /* A's numbers are, and a bias is 0 */
};

static clattn_status check_small(const struct matmul_plan *plan, const struct small_product *product)
{
    const size_t m = product->m, n = product->n, k = product->k;
    const bool subnormal = product->subnormal;
    const clattn_matmul_desc *full = &plan->problem.desc;
    clattn_matmul_desc desc = CLATTN_MATMUL_DESC_INIT;
    struct matmul_problem small;
    clattn_matmul_args args = CLATTN_MATMUL_ARGS_INIT;
    const clattn_layout workspace = clattn_layout_contiguous(CLATTN_DTYPE_U8, 1, (const size_t[1]){WORKSPACE_BYTES});
    const struct check_place places[ARRAYS] = {
        [A] = {"a", &small.desc.a, &args.a, CHECK_NUMBERS},
        [B] = {"b", &small.desc.b, &args.b, CHECK_NUMBERS},
        [BIAS] = {"bias", &small.desc.bias, &args.bias, subnormal ? CHECK_ZEROS : CHECK_NUMBERS},
        [SCALE] = {"b_scale", &small.desc.b_scale, &args.b_scale, CHECK_NUMBERS},
        [OPERAND] = {"operand", &small.desc.operand, &args.operand, CHECK_NUMBERS},
        [WORKSPACE] = {"workspace", &workspace, &args.workspace, CHECK_ZEROS},
        [C] = {"c", &small.desc.c, &args.c, CHECK_NUMBERS},
    };
    desc.a = small_matrix(&full->a, true, m, k);
    desc.b = small_matrix(&full->b, true, k, n);
    desc.c = small_matrix(&full->c, false, m, n);
    if (product->bias) /* an absent array has the type of C (matmul_defines) */
        desc.bias = clattn_layout_contiguous(plan->problem.has_bias ? full->bias.dtype : full->c.dtype, 1, &n);
    if (plan->problem.has_scale)
        desc.b_scale = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, &n);
    if (product->operand) {
        desc.operand = small_matrix(plan->problem.has_operand ? &full->operand : &full->c, true, m, n);
        desc.operand_use = full->operand_use;
    }
    desc.activation = product->activation;
    desc.explicit_alpha = full->explicit_alpha;
    desc.alpha = copysignf(1.25f, full->alpha); /* with the plan's own alpha all results might be 0 */
    const struct check_course course = {places, ARRAYS, C, subnormal ? make_subnormal : NULL, judge, WORKSPACE_BYTES};
    return check_run(&plan->base, &course, &desc, &small, &args);
}

/* Other plans use the program with other activations, with or without a bias and an operand, and then trust it.  So each
 * activation is shown, in turn with both and with neither: without any of them sums go from registers to C. */
static clattn_status check_other_epilogues(const struct matmul_plan *plan)
{
    clattn_status status = CLATTN_SUCCESS;
    struct small_product product = {.m = FEW_ROWS, .n = COLUMNS, .k = FEW_DEPTH};
    for (uint32_t i = 0; activation_name(i); i++) {
        product.activation = (clattn_activation)i;
        product.bias = product.operand = i % 2;
        TRY(check_small(plan, &product));
    }
fail:
    return status;
}

clattn_status matmul_self_check(struct self_check *self)
{
    clattn_status status;
    const clattn_plan *base = self->plan;
    const struct matmul_plan *plan = (const struct matmul_plan *)base;
    struct small_product product = {.m = ROWS,
                                    .n = COLUMNS,
                                    .k = DEPTH,
                                    .activation = plan->problem.desc.activation,
                                    .bias = plan->problem.has_bias,
                                    .operand = plan->problem.has_operand};
    self->unchecked = plan->foreign && !self->always;
    if (self->unchecked)
        return CLATTN_SUCCESS;
    if (plan->foreign) { /* a single row or column decides how CLBlast gets its matrices, so it stays one */
        product.m = size_min(ROWS, plan->problem.m);
        product.n = size_min(COLUMNS, plan->problem.n);
        product.k = size_min(DEPTH, plan->problem.k);
        return check_small(plan, &product);
    }
    const char *kernel = base->kernels[0].name;
    if (strcmp(kernel, "matmul_split") == 0 && plan->problem.k > BF16X3_DEPTH_MOST) {
        product.m = BF16X3_ROWS;
        product.k = BF16X3_DEPTH;
    } else if (strcmp(kernel, "matmul_matrix") == 0 || strcmp(kernel, "matmul_wgmma") == 0) {
        product.m = plan->tile_rows + 5;
        product.n = plan->tile_columns + 6;
        TRY(check_small(plan, &product));
        product.m = plan->tile_rows + 8;
        product.n = plan->tile_columns + 8;
        product.k = MATRIX_DEPTH;
        product.subnormal = plan->problem.desc.a.dtype == CLATTN_DTYPE_F16;
    }
    TRY(check_small(plan, &product));
    if (plan->optional)
        status = check_other_epilogues(plan);
fail:
    return status;
}
