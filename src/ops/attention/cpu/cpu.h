/* What the solvers for CPU devices share: rows of a work-item, and limits. */
#ifndef CLATTN_OPS_ATTENTION_CPU_CPU_H
#define CLATTN_OPS_ATTENTION_CPU_CPU_H

#include "ops/attention/plan.h"

#define LARGE_BYTES 196608 /* of a block's queries and output: more, and the block is a single vector */

/* The part of a geometry that all of cl/attention/cpu has. */
struct cpu_geometry {
    size_t lanes;    /* numbers in a vector: floats, or doubles in double.c */
    size_t rows;     /* rows of a work-item */
    size_t heads;    /* heads that a work-item interleaves; key heads if `grouped` */
    size_t key_tile; /* keys for each rescaling */
    bool grouped;    /* all query heads of a key head are rows of one block */
};

/* Whether the rows of all query heads of a key head go together, so that few queries fill blocks of `block` rows. */
bool cpu_grouped(const struct attention_problem *problem, size_t block, struct tuning *tuning);

/* Rows that a head, or with `grouped` a key head, has at the most. */
size_t cpu_rows(const struct attention_problem *problem, bool grouped);

/* Work-groups that leave no compute unit idle.  Items that interleave heads are long, and one that starts late shows. */
size_t cpu_work_groups(const struct capabilities *caps, size_t heads);

/* Why no kernel but cl/attention/cpu/double.cl computes the problem, or NULL. */
const char *cpu_refuse(const struct attention_problem *problem);

/* Why a kernel that multiplies bfloat16 (one, or splits of other types) does not compute the problem, or NULL. */
const char *cpu_refuse_bf16_products(const struct attention_problem *problem);

/* Why a block's private memory is too much for a thread's stack, or NULL. */
const char *cpu_refuse_block(const struct cpu_geometry *g, const struct attention_problem *problem);

/* Why the device's limit to loops refuses a kernel, or NULL; `per_key` counts vectors of work for each key. */
const char *cpu_refuse_loops(const struct capabilities *caps, const struct cpu_geometry *g,
                             const struct attention_problem *problem, double per_key);

/* Why weights should not be rounded to bfloat16 unless the caller asks for it, or NULL: of few keys products of floats take hardly
 * longer, and each weight's rounding shows. */
const char *cpu_refuse_few_keys(const struct offer *offer);

/* The work-groups, splits and efficiency of the plan.  `usual` is the efficiency without features that cost much. */
void cpu_plan(struct attention_plan *plan, const struct cpu_geometry *g, size_t wanted, double usual);

/* The -D options that all of these kernels but double.cl share. */
void cpu_defines(const struct attention_plan *plan, const struct cpu_geometry *g, struct strbuf *options);

/* ---- cl/attention/cpu/double.cl, which the solver "cpu" leaves float64 to ---- */

const char *cpu_double_refuse(const struct offer *offer);
clattn_status cpu_double_prepare(struct attention_plan *plan);

/* ---- cl/attention/cpu/decode.cl, which the solver "cpu" leaves problems of few rows to ---- */

bool cpu_decodes(const struct attention_problem *problem, const struct cpu_geometry *g, struct tuning *tuning);
const char *cpu_decode_refuse(const clattn_context *context, const struct attention_problem *problem,
                              const struct cpu_geometry *begun);
clattn_status cpu_decode_prepare(struct attention_plan *plan, const struct cpu_geometry *begun);

#endif
