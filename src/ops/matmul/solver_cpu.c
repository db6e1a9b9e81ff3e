/* The three solvers for CPU devices, and which kernels each of them takes:
 *
 *   solver      products of           kernels
 *   cpu         any type              skinny.cl for few rows or columns, else packed.cl
 *   cpu-bf16    bfloat16              packed.cl with pairs, by vdpbf16ps
 *   cpu-amx     bfloat16              amx.cl
 *               float32, float16      bf16x3.cl
 *
 * On a processor without the instructions, OpenCL C stands in for them, and only a caller who names the solver gets it. */
#include "base/try.h"
#include "ops/common/x86.h"
#include "ops/matmul/cpu.h"

static const char *refuse_any(const struct offer *offer)
{
    const char *reason = matmul_packed_refuse(offer);
    return reason ? reason : refuse_all_but_cpu(offer);
}

static clattn_status prepare_any(clattn_plan *base)
{
    struct matmul_plan *plan = (struct matmul_plan *)base;
    return matmul_skinny_takes(plan) ? matmul_skinny_prepare(plan) : matmul_packed_prepare(plan, PACKED_FLOATS);
}

const struct solver matmul_cpu_solver = {
    .name = "cpu", .efficiency = 0.2, .refuse = refuse_any, .prepare = prepare_any};

static clattn_status prepare_bf16(clattn_plan *base)
{
    bool has = base->context->device.caps.fast_bf16;
    return matmul_packed_prepare((struct matmul_plan *)base, has ? PACKED_PAIRS_X86 : PACKED_PAIRS);
}

const struct solver matmul_cpu_bf16_solver = {.name = "cpu-bf16",
                                              .efficiency = 0.2,
                                              .refuse = matmul_pairs_refuse,
                                              .prepare = prepare_bf16,
                                              .only_named = x86_bf16_only_named};

static bool is_bf16(const struct matmul_problem *problem)
{
    return problem->desc.a.dtype == CLATTN_DTYPE_BF16 && problem->desc.b.dtype == CLATTN_DTYPE_BF16;
}

static const char *refuse_amx(const struct offer *offer)
{
    const char *reason = is_bf16(offer->problem) ? matmul_pairs_refuse(offer) : matmul_bf16x3_refuse(offer);
    if (!reason && (offer->caps->quirks & QUIRK_SLOW_COMPILER))
        reason = "this device's compiler is too slow for what stands in for AMX";
    return reason;
}

static clattn_status prepare_amx(clattn_plan *base)
{
    bool has;
    clattn_status status;
    struct matmul_plan *plan = (struct matmul_plan *)base;
    TRY(x86_choose_amx(base, &has));
    status = is_bf16(&plan->problem) ? matmul_amx_prepare(plan, has) : matmul_bf16x3_prepare(plan, has);
fail:
    return status;
}

const struct solver matmul_cpu_amx_solver = {.name = "cpu-amx",
                                             .efficiency = 0.2,
                                             .refuse = refuse_amx,
                                             .prepare = prepare_amx,
                                             .only_named = x86_amx_only_named};
