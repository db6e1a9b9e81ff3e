/* Matrix products by AMX: of bfloat16 by cl/matmul/cpu/packed.cl with AMX, where one is float32 or float16 by
 * cl/matmul/cpu/bf16x3.cl; on a processor without it, for who asks by name, the same tiles in OpenCL C. */
#include "base/try.h"
#include "ops/matmul/packed.h"
#include "ops/matmul/bf16x3.h"
#include "ops/common/x86.h"

static bool is_bf16(const struct matmul_problem *problem)
{
    return problem->desc.a.dtype == CLATTN_DTYPE_BF16 && problem->desc.b.dtype == CLATTN_DTYPE_BF16;
}

static const char *refuse(const clattn_context *context, const void *data, bool forced)
{
    const char *reason =
        is_bf16(data) ? matmul_packed_refuse_pairs(context, data, forced) : matmul_parts_refuse(context, data, forced);
    if (!reason && (context->device.caps.quirks & QUIRK_SLOW_COMPILER))
        reason = "this device's compiler is too slow for what stands in for AMX";
    return reason;
}

static clattn_status prepare(clattn_plan *base)
{
    bool has;
    clattn_status status;
    struct matmul_plan *plan = (struct matmul_plan *)base;
    TRY(x86_choose_amx(base, &has));
    status = is_bf16(&plan->problem) ? matmul_packed_prepare(plan, has ? FACTORS_AMX_X86 : FACTORS_AMX)
                                     : matmul_parts_prepare(plan, has);
fail:
    return status;
}

const struct solver matmul_cpu_amx_solver = {
    .name = "cpu-amx", .refuse = refuse, .prepare = prepare, .only_named = x86_amx_only_named};
