/* Matrix products of bfloat16 on CPU devices whose processor multiplies them two by two: cl/matmul_cpu.cl with PAIRS. */
#include "base/size.h"
#include "ops/matmul_packed.h"

#define FEW_ROWS 4 /* that wait for memory rather than for arithmetic */

static const char *refuse(const clattn_context *context, const void *data, bool forced)
{
    const struct matmul_problem *problem = data;
    const char *reason = matmul_packed_refuse_pairs(context, problem);
    if (reason || forced)
        return reason;
    if (matmul_rows(problem) <= FEW_ROWS || problem->n <= FEW_ROWS)
        return "of a few rows or columns there is more reading than arithmetic";
    return NULL;
}

static clattn_status prepare(clattn_plan *base)
{
    bool has = base->context->device.caps.fast_bf16;
    return matmul_packed_prepare((struct matmul_plan *)base, has ? FACTORS_PAIRS_X86 : FACTORS_PAIRS);
}

const struct solver matmul_cpu_bf16_solver = {.name = "cpu-bf16", .refuse = refuse,
                                              .prepare = prepare, .only_named = refuse_slow_bf16};
