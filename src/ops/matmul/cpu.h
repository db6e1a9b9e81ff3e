/* The kernels of the solvers for CPU devices: packed.cl, amx.cl, bf16x3.cl and skinny.cl in cl/matmul/cpu. */
#ifndef CLATTN_OPS_MATMUL_CPU_H
#define CLATTN_OPS_MATMUL_CPU_H

#include "ops/matmul/matmul.h"

/* ---- packed.cl: one operand is packed into panels across vector lanes, the elements of the other are broadcast from where
 * they lie; amx.cl packs in the same way ---- */

/* Why the kernels cannot take the problem on this device, or NULL. */
const char *matmul_packed_refuse(const struct offer *offer);
/* Why the kernels cannot multiply pairs of bfloat16 of the problem or, unless it is forced, should not, or NULL. */
const char *matmul_pairs_refuse(const struct offer *offer);

/* What a step of k is: a float, or a pair of bfloat16, multiplied by vdpbf16ps or by the OpenCL C that stands in for it. */
enum packed_steps { PACKED_FLOATS, PACKED_PAIRS_X86, PACKED_PAIRS };

/* A solver's `prepare`.  Packs the operand that is cheaper to pack or, of pairs, the one that leaves an operand whose k are
 * neighbours. */
clattn_status matmul_packed_prepare(struct matmul_plan *plan, enum packed_steps kind);

/* A register tile of `rows` x `vectors` accumulators of `lanes` floats; an item has `tiles` of them and goes over `depth` steps
 * of k in one before the next. */
struct packed_geometry {
    size_t lanes, rows, vectors, tiles, depth;
    bool prefetch_rows, prefetch_panel;
};

/* Whether to pack a rather than b, given each choice's geometry.  An element costs as much to pack as `packing` elements of
 * tiles cost to multiply. */
bool matmul_packed_along_m(const struct matmul_problem *problem, bool pairs, const struct packed_geometry *along_m,
                           const struct packed_geometry *along_n, double packing);

void matmul_packed_tune_items(struct tuning *tuning, bool small, struct packed_geometry *g);

/* Adds matmul_pack and the product `name` of a file.  plan->lanes_along_m and plan->k_step are set; `optional` is
 * matmul_defines's; `options` has what only this file is given, and is cleared. */
clattn_status matmul_packed_add_kernels(struct matmul_plan *plan, const char *file, const char *name, bool optional,
                                        const struct packed_geometry *g, struct strbuf *options);

/* ---- amx.cl: products of bfloat16 by AMX ---- */

/* A solver's `prepare`; matmul_pairs_refuse refuses.  By the instructions, or by the OpenCL C that stands in for them. */
clattn_status matmul_amx_prepare(struct matmul_plan *plan, bool instructions);

/* ---- bf16x3.cl: products of float32 by AMX's products of bfloat16, each element split into three terms ---- */

/* Why the kernels cannot take the problem on this device or, unless it is forced, should not, or NULL. */
const char *matmul_bf16x3_refuse(const struct offer *offer);

/* A solver's `prepare`.  By the instructions, or by the OpenCL C that stands in for them. */
clattn_status matmul_bf16x3_prepare(struct matmul_plan *plan, bool instructions);

/* ---- skinny.cl: products of few rows or few columns, k across vector lanes, nothing packed ---- */

/* Whether the kernel can take the problem and is better than packing an operand; measuring may say otherwise. */
bool matmul_skinny_takes(struct matmul_plan *plan);

/* A solver's `prepare`. */
clattn_status matmul_skinny_prepare(struct matmul_plan *plan);

#endif
