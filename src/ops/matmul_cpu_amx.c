/* Matrix products of bfloat16 by AMX: cl/matmul_cpu.cl with AMX.  It has never run on a processor that has it, so it must
 * be asked for by name; elsewhere that gives the same tiles in OpenCL C. */
#include "base/os.h"
#include "ops/matmul_packed.h"

#define LOOPS_A_TILE 300 /* of 32 k, without the instructions */

static const char *refuse(const clattn_context *context, const void *data, bool forced)
{
    const struct matmul_problem *problem = data;
    const char *reason = matmul_packed_refuse_pairs(context, problem);
    if (!reason && !context->device.caps.takes_assembly)
        reason = refuse_loops(&context->device.caps, LOOPS_A_TILE * (1 + (double)problem->k / 32));
    return reason ? reason : refuse_all_but_cpu(&context->device.caps, forced);
}

static const char *only_named(const clattn_context *context)
{
    (void)context;
    return "AMX has never been tried on hardware: ask for it by name";
}

static clattn_status prepare(clattn_plan *base)
{
    bool has = base->context->device.caps.takes_assembly && os_processor_permit_amx_bf16();
    return matmul_packed_prepare((struct matmul_plan *)base, has ? FACTORS_AMX_X86 : FACTORS_AMX);
}

const struct solver matmul_cpu_amx_solver = {.name = "cpu-amx", .refuse = refuse,
                                             .prepare = prepare, .only_named = only_named};
