/* Matrix products of bfloat16 by AMX: cl/matmul_cpu.cl with AMX; on a processor without it, for who asks by name, the same
 * tiles in OpenCL C. */
#include "base/try.h"
#include "ops/matmul_packed.h"

static const char *refuse(const clattn_context *context, const void *data, bool forced)
{
    const char *reason = matmul_packed_refuse_pairs(context, data, forced);
    if (!reason && (context->device.caps.quirks & QUIRK_SLOW_COMPILER))
        reason = "this device's compiler is too slow for what stands in for AMX";
    return reason;
}

static clattn_status prepare(clattn_plan *base)
{
    bool has;
    clattn_status status;
    TRY(choose_amx(base, &has));
    status = matmul_packed_prepare((struct matmul_plan *)base, has ? FACTORS_AMX_X86 : FACTORS_AMX);
fail:
    return status;
}

const struct solver matmul_cpu_amx_solver = {.name = "cpu-amx", .refuse = refuse,
                                             .prepare = prepare, .only_named = refuse_emulated_amx};
