/* Products of bfloat16 by AMX: cl/matmul/cpu/amx.cl. */
#ifndef CLATTN_OPS_MATMUL_AMX_H
#define CLATTN_OPS_MATMUL_AMX_H

#include "ops/matmul/matmul.h"

/* A solver's `prepare`; ops/matmul/packed.h's matmul_pairs_refuse refuses.  By the instructions, or by the OpenCL C that stands
 * in for them. */
clattn_status matmul_amx_prepare(struct matmul_plan *plan, bool instructions);

#endif
