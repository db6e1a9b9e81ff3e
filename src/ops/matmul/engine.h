/* What the solvers by GPUs' matrix engines share, and the one of plain tiles. */
#ifndef CLATTN_OPS_MATMUL_ENGINE_H
#define CLATTN_OPS_MATMUL_ENGINE_H

#include "ops/matmul/matmul.h"

/* Why no engine takes the storage types, or NULL. */
static inline const char *engine_refuse_types(const struct matmul_problem *problem)
{
    clattn_dtype a = problem->desc.a.dtype, b = problem->desc.b.dtype;
    if (a != b || (a != CLATTN_DTYPE_F16 && a != CLATTN_DTYPE_BF16))
        return "a and b must both be float16 or both bfloat16";
    return NULL;
}

/* Whether an operand's neighbours in memory are neighbours along m or n, and not along k; by its strides. */
static inline bool engine_is_transposed(int64_t along_k, int64_t along_mn)
{
    return along_mn == 1 && along_k != 1;
}

/* `name` is that of the engine's instruction. */
static inline void engine_explain(struct matmul_plan *plan, const char *name, enum matrix_engine engine, bool emulated)
{
    strbuf_printf(&plan->base.explain, "    %s%s, tiles of %zu x %zu%s\n", name, emulated ? ", emulated" : "",
                  plan->tile_rows, plan->tile_columns,
                  matrix_engine_has_run(engine) ? "" : "; this engine has never run on real hardware");
}

/* Tuning has asked for a tile that a solver does not have, or that the device cannot hold. */
static inline clattn_status no_such_tile(const clattn_plan *plan)
{
    return report_error(&plan->context->device.report, CLATTN_ERROR_UNSUPPORTED,
                        "there is no such tile, or it does not fit the device");
}

#endif
