/* Matrix products of bfloat16 by AMX: cl/matmul_cpu.cl with AMX; on a processor without it, for who asks by name, the same
 * tiles in OpenCL C. */
#include "base/try.h"
#include "ops/matmul_packed.h"

#define LOOPS_A_TILE 400 /* of 32 k, without the instructions */

static const char *refuse(const clattn_context *context, const void *data, bool forced)
{
    const struct matmul_problem *problem = data;
    const char *reason = matmul_packed_refuse_pairs(context, problem, forced);
    if (!reason && !context->device.caps.amx_bf16)
        reason = refuse_loops(&context->device.caps, LOOPS_A_TILE * (1 + (double)problem->k / 32));
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
