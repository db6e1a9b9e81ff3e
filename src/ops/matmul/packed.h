/* Products by cl/matmul/cpu/packed.cl: one operand packed into panels across vector lanes, the other broadcast from where it
 * lies. */
#ifndef CLATTN_OPS_MATMUL_PACKED_H
#define CLATTN_OPS_MATMUL_PACKED_H

#include "ops/matmul/matmul.h"

/* Why the kernels cannot take the problem on this device at all, or NULL; and the same of pairs of bfloat16, or, unless
 * `forced`, why they should not. */
const char *matmul_packed_refuse(const clattn_context *context, const struct matmul_problem *problem);
const char *matmul_packed_refuse_pairs(const clattn_context *context, const struct matmul_problem *problem,
                                       bool forced);

/* How products are made: of floats, or of two bfloat16 by an instruction or by what it does in OpenCL C; the instruction
 * is vdpbf16ps or AMX's. */
enum matmul_factors { FACTORS_FLOAT, FACTORS_PAIRS_X86, FACTORS_PAIRS, FACTORS_AMX_X86, FACTORS_AMX };

/* Which operand is packed is the cheaper one's choice, or, of pairs, the only one's that leaves an operand with
 * neighbouring k. A solver's `prepare`. */
clattn_status matmul_packed_prepare(struct matmul_plan *plan, enum matmul_factors factors);

#endif
