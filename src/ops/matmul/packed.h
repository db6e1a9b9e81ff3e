/* Products by cl/matmul/cpu/packed.cl: one operand is packed into panels across vector lanes, the elements of the other are
 * broadcast from where they lie.  cl/matmul/cpu/amx.cl packs in the same way. */
#ifndef CLATTN_OPS_MATMUL_PACKED_H
#define CLATTN_OPS_MATMUL_PACKED_H

#include "ops/matmul/matmul.h"

/* Why the kernels cannot take the problem on this device, or NULL. */
const char *matmul_packed_refuse(const clattn_context *context, const struct matmul_problem *problem);
/* Why the kernels cannot multiply pairs of bfloat16 of the problem or, unless `forced`, should not, or NULL. */
const char *matmul_pairs_refuse(const clattn_context *context, const struct matmul_problem *problem, bool forced);

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

/* Adds matmul_pack and the product `name` of a file.  plan->lanes_along_m and plan->k_step are set; `options` has what only
 * this file is given, and is cleared. */
clattn_status matmul_packed_add_kernels(struct matmul_plan *plan, const char *file, const char *name,
                                        const struct packed_geometry *g, struct strbuf *options);

#endif
