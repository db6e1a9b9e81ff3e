/* Matrix products on CPU devices: one operand packed into panels; of few rows or columns: k across vector lanes, nothing
 * packed. */
#include "base/size.h"
#include "ops/matmul/packed.h"
#include "program/defines.h"

/* ---- few rows or columns: matmul_cpu_skinny ---- */

#define FEW_MOST 8        /* rows or columns */
#define FEW_ELEMENTS 8192 /* of them, if they are more than FEW_LONG: more do not stay in the first-level cache */
#define FEW_LONG 4
#define FEW_BYTES 16384 /* that the first-level cache holds even where their strides are alike; else they are copied, */
#define FEW_DEPTH 1024  /* so much of k at a time; */
#define FEW_AHEAD 512   /* then the streamed rows are left so often that the processor's prefetcher does not keep up */

static bool is_few(size_t rows, size_t k)
{
    return rows <= FEW_LONG || (rows <= FEW_MOST && rows * k <= FEW_ELEMENTS);
}

static bool is_skinny(clattn_plan *base, const struct matmul_problem *problem)
{
    bool few = is_few(matmul_rows(problem), problem->k) || is_few(problem->n, problem->k);
    if (problem->a.col != 1 || problem->b.row != 1)
        return false;
    if (size_min(matmul_rows(problem), problem->n) <= FEW_MOST)
        tuning_flag(&base->tuning, "skinny", &few);
    return few;
}

/* Enough work-groups that one which starts late does not show. */
static clattn_status prepare_skinny(struct matmul_plan *plan)
{
    static const size_t one[3] = {1, 1, 1};
    const struct matmul_problem *problem = &plan->problem;
    const struct capabilities *caps = &plan->base.context->device.caps;
    static const int32_t steps[] = {2, 4, -1}, items[] = {1, 2, 4, 8, 16, -1}, copied[] = {0, 256, 512, 1024, -1};
    bool small = caps->quirks & (QUIRK_SLOW_COMPILER | QUIRK_SIMULATOR), few_a = matmul_rows(problem) <= problem->n;
    bool stream_a = !is_few(matmul_rows(problem), problem->k) && (is_few(problem->n, problem->k) || !few_a);
    size_t few = size_max(1, stream_a ? problem->n : matmul_rows(problem));
    size_t streamed =
        stream_a ? problem->m * size_max(problem->batch, 1) : problem->n * (problem->b.batch ? problem->batch : 1);
    size_t lanes = small ? 4 : caps->lanes, rows = small ? size_min(few, 2) : few;
    size_t tiles = streamed / (lanes * 8 * size_max(caps->info.compute_units, 1));
    struct strbuf options = {0};
    size_t step = rows <= 4 ? 4 : 2, depth = rows > 1 && rows * problem->k * sizeof(float) > FEW_BYTES ? FEW_DEPTH : 0;
    tiles = small ? 1 : size_min(size_max(tiles, 1), 16);
    tuning_parameter(&plan->base.tuning, "step", steps, &step);
    tuning_parameter(&plan->base.tuning, "tiles", items, &tiles);
    tuning_parameter(&plan->base.tuning, "copied", copied, &depth);
    plan->tile_columns = stream_a ? rows : lanes * tiles;
    plan->tile_rows = stream_a ? lanes * tiles : rows;
    matmul_defines(problem, &options);
    define_int(&options, "STREAM_A", stream_a);
    define_int(&options, "LANES", (long long)lanes);
    define_int(&options, "ROWS", (long long)rows);
    define_int(&options, "STEP", (long long)step);
    define_int(&options, "TILES", (long long)tiles);
    define_int(&options, "DEPTH", (long long)depth);
    define_int(&options, "AHEAD", depth && capabilities_prefetch(caps) ? FEW_AHEAD : 0);
    return matmul_add_tiled_kernel(plan, "matmul/cpu/skinny.cl", "matmul_cpu_skinny", &options, one);
}

/* ---- the solver ---- */

static const char *refuse(const clattn_context *context, const void *data, bool forced)
{
    const char *reason = matmul_packed_refuse(context, data);
    return reason ? reason : refuse_all_but_cpu(&context->device.caps, forced);
}

static clattn_status prepare(clattn_plan *base)
{
    struct matmul_plan *plan = (struct matmul_plan *)base;
    return is_skinny(base, &plan->problem) ? prepare_skinny(plan) : matmul_packed_prepare(plan, FACTORS_FLOAT);
}

const struct solver matmul_cpu_solver = {.name = "cpu", .refuse = refuse, .prepare = prepare};
