/* Planning and launching of cl/matmul/cpu/bf16x3.cl. */
#include <math.h>

#include "base/size.h"
#include "ops/matmul/cpu.h"
#include "program/defines.h"
#include "ops/common/x86.h"

#define PANEL 32         /* rows or lanes */
#define SUM_BYTES 4096   /* of a tile of PANEL x PANEL */
#define BLOCK_K 32       /* k of a block of 32 rows or lanes */
#define BLOCK_BYTES 6144 /* of a block's terms */
#define SPLIT_BLOCKS 8   /* blocks that a work-group of matmul_split makes */
/* So many rows pay for splitting very many lanes, and so many lanes for splitting very many rows. */
#define FEWEST_ROWS 120.0
#define FEWEST_LANES 67.0
#define FEWEST_K 48
#define CHECK_BLOCKS \
    3 /* blocks that matmul_self_check's product has at least; the plan's program must be able to take it */

/* Panels of lanes of all items of the batch: one item's if all share them. */
static size_t all_panels(const struct matmul_plan *plan)
{
    const struct matmul_problem *problem = &plan->problem;
    const array4 *lanes = plan->lanes_along_m ? &problem->a : &problem->b;
    return divide_up(plan->lanes_along_m ? problem->m : problem->n, PANEL) * (lanes->batch ? problem->batch : 1);
}

/* Bytes of a panel's terms and peaks. */
static size_t panel_bytes(size_t k)
{
    size_t blocks = divide_up(k, BLOCK_K);
    return blocks * BLOCK_BYTES + divide_up(blocks, SPLIT_BLOCKS) * PANEL * sizeof(cl_uint);
}

/* Whether lanes run along m: if C's rows are neighbours, C is then stored by vectors.  But a b that is packed in advance is
 * the one that is packed. */
static bool along_m(const struct matmul_problem *problem)
{
    return !problem->desc.prepack && problem->c.col != 1 && problem->c.row == 1;
}

/* Whether AMX saves more than splitting the operands costs; with few k a block is mostly 0. */
static bool pays(const struct matmul_problem *problem)
{
    if (problem->k < FEWEST_K)
        return false;
    double rows = (double)matmul_rows(problem), n = (double)problem->n;
    return along_m(problem) ? FEWEST_ROWS / n + FEWEST_LANES / rows < 1 : FEWEST_ROWS / rows + FEWEST_LANES / n < 1;
}

const char *matmul_bf16x3_refuse(const struct offer *offer)
{
    const struct matmul_problem *problem = offer->problem;
    size_t bytes;
    if (!x86_amx_takes(problem->desc.a.dtype) || !x86_amx_takes(problem->desc.b.dtype))
        return "a or b is none of float32, float16 and bfloat16";
    if (!size_mul(panel_bytes(problem->k), divide_up(size_max(problem->m, problem->n), PANEL), &bytes) ||
        !size_mul(bytes, size_max(problem->batch, 1), &bytes))
        return "the terms of an operand overflow";
    if (!offer->forced && !pays(problem))
        return "of few rows, columns or k there is more splitting than arithmetic";
    return refuse_loops(offer->caps, 2 * (double)problem->k + 2000);
}

static clattn_status launch(const struct matmul_plan *plan, const struct matmul_problem *problem, struct chain *chain,
                            const clattn_matmul_args *args, matmul_args *given)
{
    const clattn_binding *lanes = plan->lanes_along_m ? &args->a : &args->b;
    const clattn_binding *rows = plan->lanes_along_m ? &args->b : &args->a;
    size_t panels = divide_up((size_t)(plan->lanes_along_m ? given->m : given->n), PANEL);
    size_t row_count = (size_t)(plan->lanes_along_m ? given->n : given->m);
    bool shared = (plan->lanes_along_m ? given->a.batch : given->b.batch) == 0;
    const size_t split_groups[3] = {panels, divide_up(divide_up((size_t)given->k, BLOCK_K), SPLIT_BLOCKS),
                                    shared ? 1 : (size_t)given->batch};
    const size_t groups[3] = {divide_up(panels, plan->tile_columns / PANEL), divide_up(row_count, plan->tile_rows),
                              (size_t)given->batch};
    const clattn_binding *split_bindings[2] = {lanes, &chain->workspace};
    const clattn_binding *bindings[1 + MATMUL_POINTERS] = {rows, lanes, &chain->workspace};
    matmul_bind(plan, problem, args, bindings + 1);
    return matmul_launch_packed(plan, chain, args->prepack, given, split_bindings, split_groups, bindings, groups);
}

/* An item has `tiles` x `group` tiles of C, and splits `depth` blocks of its rows at a time; `deep`: there may be more. */
struct geometry {
    size_t tiles, group, depth;
    bool deep;
};

static size_t local_bytes(const struct geometry *g)
{
    return g->tiles * g->depth * BLOCK_BYTES + (g->deep ? g->tiles * g->group * SUM_BYTES : 0);
}

/* Nanoseconds that a thread of a Sapphire Rapids takes to multiply a block, to split a block of rows, and to read a block of
 * lanes from the third-level cache, which it must if all lanes are more than NEAR_BYTES; and to start an item. */
#define TIME_PRODUCTS 165.0
#define TIME_SPLIT 300.0
#define TIME_LANES 400.0
#define NEAR_BYTES (1 << 20)
#define TIME_ITEM 2000.0

/* The time until all items are finished, if the threads share them as evenly as possible. */
static double time_of(const struct geometry *g, size_t panels, size_t row_tiles, size_t items, size_t blocks,
                      size_t threads)
{
    double split = (double)g->tiles * TIME_SPLIT;
    double products = (double)(g->tiles * g->group) * TIME_PRODUCTS;
    double lanes = panels * blocks * BLOCK_BYTES > NEAR_BYTES ? (double)g->group * TIME_LANES : 0;
    size_t count = divide_up(panels, g->group) * divide_up(row_tiles, g->tiles) * items;
    double each =
        (double)size_max(blocks, 1) * (split + fmax(products, lanes) + 0.3 * fmin(products, lanes)) + TIME_ITEM;
    return (double)divide_up(count, threads) * each;
}

static struct geometry choose_geometry(const struct capabilities *caps, size_t panels, size_t row_tiles, size_t items,
                                       size_t blocks)
{
    struct geometry best = {1, 1, 2, true};
    size_t threads = size_max(caps->info.compute_units, 1), most = caps->quirks & QUIRK_LOOPS_STOP ? 1 : 16;
    double least = INFINITY;
    if (caps->quirks & (QUIRK_SLOW_COMPILER | QUIRK_SIMULATOR))
        return best;
    for (size_t tiles = 1; tiles <= size_min(most, 8); tiles *= 2)
        for (size_t group = 1; group <= most * 4; group *= 2) {
            struct geometry g = {tiles, group, 16, blocks > 16};
            double time = time_of(&g, panels, row_tiles, items, blocks, threads);
            if (local_bytes(&g) <= caps->info.local_memory * 3 / 4 && time < least) {
                least = time;
                best = g;
            }
        }
    return best;
}

clattn_status matmul_bf16x3_prepare(struct matmul_plan *plan, bool instructions)
{
    static const int32_t tiles[] = {1, 2, 4, 8, -1}, groups[] = {1, 2, 4, 8, 16, 32, 64, -1},
                         depths[] = {2, 4, 8, 16, -1};
    clattn_plan *base = &plan->base;
    const struct matmul_problem *problem = &plan->problem;
    const struct capabilities *caps = &base->context->device.caps;
    struct strbuf options = {0};
    plan->lanes_along_m = along_m(problem);
    tuning_flag(&base->tuning, "along_m", &plan->lanes_along_m);
    size_t panels = divide_up(plan->lanes_along_m ? problem->m : problem->n, PANEL);
    size_t row_tiles = divide_up(plan->lanes_along_m ? problem->n : problem->m, PANEL);
    size_t batch = size_max(problem->batch, 1), blocks = divide_up(problem->k, BLOCK_K);
    struct geometry g = choose_geometry(caps, panels, row_tiles, batch, blocks);
    tuning_parameter(&base->tuning, "tiles", tiles, &g.tiles);
    tuning_parameter(&base->tuning, "group", groups, &g.group);
    tuning_parameter(&base->tuning, "depth", depths, &g.depth);
    g.deep = size_max(blocks, CHECK_BLOCKS) > g.depth;
    if (local_bytes(&g) > caps->info.local_memory)
        return report_error(&base->context->device.report, CLATTN_ERROR_UNSUPPORTED,
                            "tiles=%zu, group=%zu and depth=%zu do not fit the local memory", g.tiles, g.group,
                            g.depth);
    plan->tile_rows = PANEL * g.tiles;
    plan->tile_columns = PANEL * g.group;
    matmul_defines(plan, false, &options);
    define_int(&options, "LANES", (long long)caps->lanes);
    define_int(&options, "TILES", (long long)g.tiles);
    define_int(&options, "GROUP", (long long)g.group);
    define_int(&options, "DEPTH", (long long)g.depth);
    define_int(&options, "DEEP", g.deep);
    define_int(&options, "PREFETCH_PANEL", capabilities_prefetch(caps));
    define_int(&options, "SPLIT_BLOCKS", SPLIT_BLOCKS);
    define_int(&options, "LANES_ALONG_M", plan->lanes_along_m);
    define_int(&options, "X86_AMX", instructions);
    /* Items folded into one have no more panels than they do apart. */
    const struct packed_kernel kernels[2] = {
        {"matmul_split", 2, {batch * panels, divide_up(blocks, SPLIT_BLOCKS), batch}},
        {"matmul_cpu_bf16x3",
         1 + matmul_pointers(plan),
         {batch * panels, batch * divide_up(row_tiles, g.tiles), batch}},
    };
    base->workspace = all_panels(plan) * panel_bytes(problem->k);
    plan->launch = launch;
    return matmul_add_packed_kernels(plan, "matmul/cpu/bf16x3.cl", &options, kernels);
}
