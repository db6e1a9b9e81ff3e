/* Planning of cl/matmul/cpu/skinny.cl. */
#include "ops/matmul/cpu.h"

#include "base/size.h"
#include "program/defines.h"

#define MOST_ROWS 8        /* rows or columns that count as few, */
#define MOST_ELEMENTS 8192 /* if so many elements of theirs, which stay in the first-level cache, are not exceeded; */
#define ALWAYS_FEW 4       /* so many rows are few whatever their length */
/* Streamed elements that a third-level cache holds: arithmetic counts then, and not reading. */
#define CACHED_STREAM (1 << 21)
#define SIXTEEN_REGISTERS_ROWS \
    5 /* of a register tile then, if there are no 32 registers; more rows are several tiles */
#define CACHED_BYTES \
    16384 /* of few rows that the first-level cache holds even if their strides are alike; more are copied, */
#define COPY_DEPTH 1024 /* so much of k at a time */
/* k, if the few rows are copied: then the streamed rows are left so often that the processor's prefetcher does not keep up. */
#define PREFETCH_DISTANCE 512
#define MOST_TILES 16 /* of an item, which is told how many it has: all have the same program */

/* Whether register tiles are to be small: there are 16 registers, and the streamed rows come from caches. */
static bool is_tight(const struct capabilities *caps, size_t streamed, size_t k)
{
    return caps->lanes < 16 && k > 0 && streamed <= CACHED_STREAM / k;
}

/* Twice as many rows are few if packing them, which is a launch of its own, would show, and their lanes' sums do not. */
static bool is_few(const struct capabilities *caps, size_t rows, size_t streamed, size_t k)
{
    if (rows <= MOST_ROWS)
        return rows <= ALWAYS_FEW || rows * k <= MOST_ELEMENTS;
    return rows <= 2 * MOST_ROWS && k >= 512 && rows * k <= 2 * MOST_ELEMENTS && is_tight(caps, streamed, k);
}

bool matmul_skinny_takes(struct matmul_plan *plan)
{
    const struct matmul_problem *problem = &plan->problem;
    const struct capabilities *caps = &plan->base.context->device.caps;
    size_t rows = matmul_rows(problem);
    bool few = is_few(caps, rows, problem->n, problem->k) || is_few(caps, problem->n, rows, problem->k);
    if (problem->a.col != 1 || problem->b.row != 1)
        return false;
    /* Panels are read in one go, and so in half of the time; but those of int8 are four times as large as it. */
    if (problem->desc.prepack && !problem->has_scale)
        return false;
    if (size_min(rows, problem->n) <= 2 * MOST_ROWS)
        tuning_flag(&plan->base.tuning, "skinny", &few);
    return few;
}

clattn_status matmul_skinny_prepare(struct matmul_plan *plan)
{
    static const size_t one[3] = {1, 1, 1};
    const struct matmul_problem *problem = &plan->problem;
    const struct capabilities *caps = &plan->base.context->device.caps;
    static const int32_t steps[] = {2, 4, -1}, items[] = {1, 2, 4, 8, 16, -1}, copied[] = {0, 256, 512, 1024, -1};
    size_t m = matmul_rows(problem), n = problem->n, k = problem->k;
    bool small = caps->quirks & (QUIRK_SLOW_COMPILER | QUIRK_SIMULATOR);
    bool stream_a = !is_few(caps, m, n, k) && (is_few(caps, n, m, k) || m > n);
    bool tight = is_tight(caps, stream_a ? m : n, k);
    size_t few = size_max(1, stream_a ? n : m), most = small ? 2 : tight ? SIXTEEN_REGISTERS_ROWS : MOST_ROWS;
    size_t streamed =
        stream_a ? problem->m * size_max(problem->batch, 1) : problem->n * (problem->b.batch ? problem->batch : 1);
    size_t lanes = small ? 4 : caps->lanes, rows = divide_up(few, divide_up(few, most));
    size_t tiles = streamed / (lanes * 8 * size_max(caps->info.compute_units, 1));
    struct strbuf options = {0};
    size_t step = rows <= (tight ? 2 : 4) ? 4 : 2;
    size_t depth = rows > 1 && rows * k * sizeof(float) > CACHED_BYTES ? COPY_DEPTH : 0;
    /* Enough work-groups that one which starts late does not show. */
    tiles = small ? 1 : size_min(size_max(tiles, 1), MOST_TILES);
    tuning_parameter(&plan->base.tuning, "step", steps, &step);
    tuning_parameter(&plan->base.tuning, "tiles", items, &tiles);
    tuning_parameter(&plan->base.tuning, "copied", copied, &depth);
    plan->tile_columns = stream_a ? INT32_MAX : lanes * tiles; /* an item has all of the few */
    plan->tile_rows = stream_a ? lanes * tiles : INT32_MAX;
    plan->item_rows = lanes * tiles;
    matmul_defines(plan, true, &options);
    define_int(&options, "STREAM_A", stream_a);
    define_int(&options, "LANES", (long long)lanes);
    define_int(&options, "ROWS", (long long)rows);
    define_int(&options, "STEP", (long long)step);
    define_int(&options, "TILES", small ? 1 : MOST_TILES);
    define_int(&options, "DEPTH", (long long)depth);
    define_int(&options, "PREFETCH_DISTANCE", depth && capabilities_prefetch(caps) ? PREFETCH_DISTANCE : 0);
    return matmul_add_tiled_kernel(plan, "matmul/cpu/skinny.cl", "matmul_cpu_skinny", &options, one);
}
