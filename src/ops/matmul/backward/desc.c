/* Reads and checks the description of a matrix product's gradients. */
#include <string.h>

#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/matmul/backward/backward.h"

/* A layout of rank 2 or 3 with all three dimensions. */
static clattn_layout with_batch(const clattn_layout *layout)
{
    clattn_layout made = {.dtype = layout->dtype, .rank = 3, .extent = {1}};
    const int missing = 3 - layout->rank;
    for (int i = missing; i < 3; i++) {
        made.extent[i] = layout->extent[i - missing];
        made.stride[i] = layout->stride[i - missing];
    }
    return made;
}

/* Checks a gradient of (batch, rows, columns), whose batch may be missing if it is 1, and gives it all three dimensions. */
static clattn_status read_gradient(clattn_layout *layout, const struct layout_words *words, const size_t extent[3],
                                   const char *shape, const char **reason)
{
    clattn_status status;
    if (layout_is_none(layout)) {
        layout_normalise(layout);
        return CLATTN_SUCCESS;
    }
    TRY(layout_check(layout, LAYOUT_OUTPUT, words, reason));
    REQUIRE(dtype_is_storage(layout->dtype), CLATTN_ERROR_UNSUPPORTED, "gradients are float32, float16 or bfloat16");
    REQUIRE(layout->rank == 2 || layout->rank == 3, CLATTN_ERROR_INVALID_LAYOUT, shape);
    *layout = with_batch(layout);
    REQUIRE(!memcmp(layout->extent, extent, 3 * sizeof *extent), CLATTN_ERROR_INVALID_LAYOUT, shape);
fail:
    return status;
}

static clattn_status read_bias_gradient(const struct matmul_problem *forward, clattn_layout *layout,
                                        const char **reason)
{
    clattn_status status = CLATTN_SUCCESS;
    layout_normalise(layout);
    if (layout_is_none(layout))
        return CLATTN_SUCCESS;
    REQUIRE(forward->has_bias, CLATTN_ERROR_INVALID_ARGUMENT, "gradients.bias, and there is no bias");
    TRY(layout_check(layout, LAYOUT_OUTPUT, LAYOUT_OF("gradients.bias"), reason));
    REQUIRE(dtype_is_storage(layout->dtype), CLATTN_ERROR_UNSUPPORTED, "gradients are float32, float16 or bfloat16");
    REQUIRE(layout->rank == 1 && layout->extent[0] == forward->n, CLATTN_ERROR_INVALID_LAYOUT,
            "gradients.bias is not (n)");
fail:
    return status;
}

static clattn_status read_gradients(struct matmul_backward_problem *problem, const char **reason)
{
    clattn_status status;
    struct matmul_problem *forward = &problem->forward;
    clattn_matmul_desc *desc = &forward->desc;
    const size_t batch = forward->batch, m = forward->m, n = forward->n, k = forward->k;
    TRY(read_gradient(&desc->gradients.a, LAYOUT_OF("gradients.a"), (const size_t[3]){batch, m, k},
                      "a and its gradient differ in extents", reason));
    TRY(read_gradient(&desc->gradients.b, LAYOUT_OF("gradients.b"),
                      (const size_t[3]){problem->b_shared ? 1 : batch, k, n},
                      "gradients.b is (batch, k, n), or (k, n) or (1, k, n) if all items share b", reason));
    TRY(read_bias_gradient(forward, &desc->gradients.bias, reason));
    REQUIRE(layout_is_none(&desc->gradients.operand) || forward->has_operand, CLATTN_ERROR_INVALID_ARGUMENT,
            "gradients.operand, and there is no operand");
    status = read_gradient(&desc->gradients.operand, LAYOUT_OF("gradients.operand"),
                           (const size_t[3]){problem->operand_shared ? 1 : batch, m, n},
                           "gradients.operand is (batch, m, n), or (m, n) or (1, m, n) if all items share the operand",
                           reason);
fail:
    return status;
}

clattn_status matmul_backward_problem_read(const void *given, void *result, const char **reason)
{
    clattn_status status;
    struct matmul_backward_problem *problem = result;
    struct matmul_problem *forward = &problem->forward;
    clattn_matmul_desc *desc = &forward->desc;
    memset(problem, 0, sizeof *problem);
    TRY(matmul_desc_read(given, forward, reason));
    REQUIRE(layout_is_none(&desc->c), CLATTN_ERROR_INVALID_ARGUMENT, "c is for CLATTN_DIRECTION_FORWARD");
    desc->c = desc->gradients.c;
    TRY(matmul_arrays_read(forward, LAYOUT_INPUT, LAYOUT_OF("gradients.c"), reason));
    desc->gradients.c = desc->c;
    REQUIRE(!forward->has_scale, CLATTN_ERROR_UNSUPPORTED, "a product by an int8 b has no gradients");
    problem->b_shared = !forward->b.batch;
    problem->operand_shared = forward->has_operand && !forward->operand.batch;
    TRY(read_gradients(problem, reason));
    const bool of_sums = !layout_is_none(&desc->gradients.a) || !layout_is_none(&desc->gradients.b) ||
                         !layout_is_none(&desc->gradients.bias);
    const bool of_operand = !layout_is_none(&desc->gradients.operand);
    REQUIRE(of_sums || of_operand, CLATTN_ERROR_INVALID_ARGUMENT, "no gradient is asked for");
    problem->multiplies = forward->has_operand && desc->operand_use == CLATTN_MATMUL_OPERAND_USE_MULTIPLY;
    problem->writes_sums = of_sums && (desc->activation || problem->multiplies);
    problem->reads_sums = (problem->writes_sums && desc->activation) || (of_operand && problem->multiplies);
    problem->sums = with_batch(&desc->gradients.c);
    if (problem->writes_sums)
        problem->sums = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, problem->sums.extent);
fail:
    return status;
}
