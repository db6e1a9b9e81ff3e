/* Products of float32 by AMX's products of bfloat16, each element split into three parts: cl/matmul/cpu/bf16x3.cl. */
#ifndef CLATTN_OPS_MATMUL_BF16X3_H
#define CLATTN_OPS_MATMUL_BF16X3_H

#include "ops/matmul/matmul.h"

/* Why the kernels cannot take the problem on this device or, unless `forced`, should not, or NULL. */
const char *matmul_bf16x3_refuse(const clattn_context *context, const struct matmul_problem *problem, bool forced);

/* A solver's `prepare`.  By the instructions, or by the OpenCL C that stands in for them. */
clattn_status matmul_bf16x3_prepare(struct matmul_plan *plan, bool instructions);

#endif
