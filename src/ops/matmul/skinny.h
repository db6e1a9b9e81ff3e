/* Products of few rows or few columns, k across vector lanes, nothing packed: cl/matmul/cpu/skinny.cl. */
#ifndef CLATTN_OPS_MATMUL_SKINNY_H
#define CLATTN_OPS_MATMUL_SKINNY_H

#include "ops/matmul/matmul.h"

/* Whether the kernel can take the problem and is better than packing an operand; measuring may say otherwise. */
bool matmul_skinny_takes(struct matmul_plan *plan);

/* A solver's `prepare`. */
clattn_status matmul_skinny_prepare(struct matmul_plan *plan);

#endif
