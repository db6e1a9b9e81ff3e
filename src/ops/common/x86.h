/* What the solvers for x86 processors share: AVX512-BF16's and AMX's instructions, and where they are worth having. */
#ifndef CLATTN_OPS_COMMON_X86_H
#define CLATTN_OPS_COMMON_X86_H

#include "plan/plan.h"

/* An `only_named` for kernels by vdpbf16ps, and one for those by AMX. */
const char *x86_bf16_only_named(const clattn_context *context);
const char *x86_amx_only_named(const clattn_context *context);

/* Whether an element of that type is a sum of at most three bfloat16, which AMX multiplies (cl/lib/bf16x3.h). */
bool x86_amx_takes(clattn_dtype dtype);

/* Whether a kernel gets AMX's instructions, or else what stands in for them.  If the device has them, the system is asked
 * for permission to use them, and may refuse. */
clattn_status x86_choose_amx(clattn_plan *plan, bool *has);

#endif
