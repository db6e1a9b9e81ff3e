/* Planning of cl/matmul/cpu/amx.cl; its kernels are launched as cl/matmul/cpu/packed.cl's are. */
#include "ops/matmul/cpu.h"

#include "base/size.h"
#include "program/defines.h"

#define SQUARE 32 /* rows and lanes of a tile of sums */
/* Bytes of rows that an item multiplies: they stay in the second-level cache for the next item. */
#define ITEM_BYTES (1 << 20)
/* An element costs as much to pack as so many elements of tiles cost to multiply (measured on a Sapphire Rapids). */
#define PACKING 130

/* Items are as tall as possible, since a panel takes long to come from memory beside its products. */
static struct packed_geometry geometry_of(const struct capabilities *caps, const struct matmul_problem *problem,
                                          bool lanes_along_m)
{
    size_t row_count = lanes_along_m ? problem->n : problem->m, lane_count = lanes_along_m ? problem->m : problem->n;
    size_t panels = divide_up(lane_count, SQUARE) * size_max(problem->batch, 1);
    size_t groups = 8 * (size_t)caps->info.compute_units, tile_bytes = SQUARE * size_max(problem->k, 1) * 2;
    size_t tiles = caps->quirks & QUIRK_LOOPS_STOP ? 1 : 16, lanes = caps->lanes;
    while (tiles > 1 && (tiles * tile_bytes > ITEM_BYTES || panels * divide_up(row_count, SQUARE * tiles) < groups))
        tiles /= 2;
    return (struct packed_geometry){lanes, SQUARE, SQUARE / lanes, tiles, 256, false, false};
}

clattn_status matmul_amx_prepare(struct matmul_plan *plan, bool instructions)
{
    const struct matmul_problem *problem = &plan->problem;
    const struct capabilities *caps = &plan->base.context->device.caps;
    struct packed_geometry along_m = geometry_of(caps, problem, true), along_n = geometry_of(caps, problem, false), g;
    struct strbuf options = {0};
    plan->lanes_along_m = matmul_packed_along_m(problem, true, &along_m, &along_n, PACKING);
    if (problem->a.col == 1 && problem->b.row == 1)
        tuning_flag(&plan->base.tuning, "along_m", &plan->lanes_along_m);
    plan->k_step = 2;
    g = plan->lanes_along_m ? along_m : along_n;
    matmul_packed_tune_items(&plan->base.tuning, caps->quirks & (QUIRK_SLOW_COMPILER | QUIRK_SIMULATOR), &g);
    define_int(&options, "X86_AMX", instructions);
    define_int(&options, "X86_BF16", instructions);
    return matmul_packed_add_kernels(plan, "matmul/cpu/amx.cl", "matmul_cpu_amx", false, &g, &options);
}
