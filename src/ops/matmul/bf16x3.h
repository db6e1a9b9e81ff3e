/* Products of float32 by AMX's of bfloat16, each element in three parts: cl/matmul_cpu_parts.cl. */
#ifndef CLATTN_OPS_MATMUL_BF16X3_H
#define CLATTN_OPS_MATMUL_BF16X3_H

#include "ops/matmul/matmul.h"

/* Why the kernels cannot take the problem on this device or, unless `forced`, should not, or NULL. */
const char *matmul_parts_refuse(const clattn_context *context, const struct matmul_problem *problem, bool forced);

/* By the instructions, or by what stands in for them. */
clattn_status matmul_parts_prepare(struct matmul_plan *plan, bool instructions);

#endif
