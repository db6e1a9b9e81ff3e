/* Matrix products of bfloat16 on CPU devices whose processor multiplies them two by two: cl/matmul/cpu/packed.cl with PAIRS. */
#include "ops/matmul/packed.h"
#include "ops/common/x86.h"

static const char *refuse(const clattn_context *context, const void *problem, bool forced)
{
    return matmul_packed_refuse_pairs(context, problem, forced);
}

static clattn_status prepare(clattn_plan *base)
{
    bool has = base->context->device.caps.fast_bf16;
    return matmul_packed_prepare((struct matmul_plan *)base, has ? FACTORS_PAIRS_X86 : FACTORS_PAIRS);
}

const struct solver matmul_cpu_bf16_solver = {
    .name = "cpu-bf16", .refuse = refuse, .prepare = prepare, .only_named = x86_bf16_only_named};
