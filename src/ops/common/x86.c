#include "ops/common/x86.h"

#include "base/os.h"

const char *x86_bf16_only_named(const clattn_context *context)
{
    return context->device.caps.fast_bf16
               ? NULL
               : "no AVX512-BF16 that is faster than fma, or a compiler not known to take it";
}

const char *x86_amx_only_named(const clattn_context *context)
{
    return context->device.caps.amx_bf16 ? NULL : "no AMX for bfloat16, or a compiler not known to take it";
}

bool x86_amx_takes(clattn_dtype dtype)
{
    return dtype == CLATTN_DTYPE_F32 || dtype == CLATTN_DTYPE_F16 || dtype == CLATTN_DTYPE_BF16;
}

clattn_status x86_choose_amx(clattn_plan *plan, bool *has)
{
    *has = plan->context->device.caps.amx_bf16;
    return !*has || os_processor_permit_amx_bf16()
               ? CLATTN_SUCCESS
               : report_error(&plan->context->device.report, CLATTN_ERROR_UNSUPPORTED,
                              "the system does not permit AMX");
}
