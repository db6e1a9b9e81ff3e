/* Planning and launching of cl/matmul/cpu/packed.cl, and what cl/matmul/cpu/amx.cl shares with it. */
#include <math.h>
#include <string.h>

#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/matmul/cpu.h"
#include "program/defines.h"

#define FEW_ROWS 4            /* products of so few rows or columns wait for memory rather than for arithmetic */
#define MOST_SUMS 30          /* vectors of a register tile */
#define NEAR_BYTES (1 << 20)  /* of panels, which an Intel core's second-level cache holds beside the other operand */
#define PREFETCH_DISTANCE 256 /* steps: 1 KiB of float32 */
#define PACK_DEPTH 256        /* steps that a work-group of matmul_pack copies */

const char *matmul_packed_refuse(const struct offer *offer)
{
    const struct matmul_problem *problem = offer->problem;
    size_t packed;
    if (!size_mul(round_up(size_max(problem->m, problem->n), 64), size_max(problem->k, 1) * sizeof(float), &packed) ||
        !size_mul(packed, size_max(problem->batch, 1), &packed))
        return "the packed operand overflows";
    return refuse_loops(offer->caps, 2 * (double)problem->k + 2000);
}

const char *matmul_pairs_refuse(const struct offer *offer)
{
    const struct matmul_problem *problem = offer->problem;
    if (problem->desc.a.dtype != CLATTN_DTYPE_BF16 || problem->desc.b.dtype != CLATTN_DTYPE_BF16)
        return "a and b are not both bfloat16";
    if (problem->a.col != 1 && problem->b.row != 1)
        return "neither a's nor b's elements lie next to each other along k";
    if (!offer->forced && (matmul_rows(problem) <= FEW_ROWS || problem->n <= FEW_ROWS))
        return "of a few rows or columns there is more reading than arithmetic";
    return matmul_packed_refuse(offer);
}

/* How many items of the batch the lane operand has: one if all share it. */
static size_t packed_items(const struct matmul_plan *plan, const struct matmul_problem *problem, size_t batch)
{
    int64_t stride = plan->lanes_along_m ? problem->a.batch : problem->b.batch;
    return stride ? batch : 1;
}

static clattn_status launch(const struct matmul_plan *plan, const struct matmul_problem *problem, struct chain *chain,
                            const clattn_matmul_args *args, matmul_args *given)
{
    const clattn_binding *lanes = plan->lanes_along_m ? &args->a : &args->b;
    const clattn_binding *rows = plan->lanes_along_m ? &args->b : &args->a;
    size_t lane_count = (size_t)(plan->lanes_along_m ? given->m : given->n);
    size_t row_count = (size_t)(plan->lanes_along_m ? given->n : given->m);
    size_t panels = divide_up(lane_count, plan->panel);
    const size_t pack_groups[3] = {panels, divide_up(divide_up((size_t)given->k, plan->k_step), PACK_DEPTH),
                                   packed_items(plan, problem, (size_t)given->batch)};
    const size_t groups[3] = {panels, divide_up(row_count, plan->tile_rows), (size_t)given->batch};
    const clattn_binding *pack_bindings[2] = {lanes, &chain->workspace};
    const clattn_binding *bindings[MATMUL_POINTERS] = {rows, &chain->workspace};
    matmul_bind(plan, problem, args, bindings);
    return matmul_launch_packed(plan, chain, args->prepack, given, pack_bindings, pack_groups, bindings, groups);
}

/* How much padding panels narrower than 6 x 4 vectors must save to be chosen; and how much more a narrower tile's work counts
 * when the operand to be packed is chosen: with less they lost now and then (docs/notes/cost-model.md). */
#define NARROWER 1.1
/* Panels that are packed in advance are so narrow unless that pads more: taller tiles go over them less often
 * (docs/notes/few-rows.md). */
#define NARROWER_PACKED 0.95
#define NARROWER_WORK 1.2

/* A tile and its operands fit the vector registers: 32 of them with 16 lanes, 16 otherwise. */
static struct packed_geometry vector_geometry(const struct capabilities *caps, const struct matmul_problem *problem,
                                              bool lanes_along_m)
{
    if (caps->quirks & (QUIRK_SLOW_COMPILER | QUIRK_SIMULATOR))
        return (struct packed_geometry){4, 4, 1, 2, 64, false, false};
    size_t lane_count = lanes_along_m ? problem->m * (problem->b.batch ? 1 : problem->batch) : problem->n;
    struct packed_geometry g = {caps->lanes, 6, caps->lanes == 16 ? 4 : 2, 8, 512, false, false};
    double narrower = problem->desc.prepack ? NARROWER_PACKED : NARROWER;
    if (lanes_along_m && lane_count <= 16) { /* few rows of A: a panel no wider than they are */
        size_t groups = 8 * size_max(caps->info.compute_units, 1);
        g.lanes = size_min(caps->lanes, lane_count <= 4 ? 4 : lane_count <= 8 ? 8 : 16);
        g.vectors = 1;
        g.rows = 8; /* enough chains for two fma a cycle of four cycles each */
        for (g.tiles = 8; g.tiles > 1 && problem->n < g.rows * g.tiles * groups; g.tiles /= 2)
            ;
        /* The few rows' arithmetic takes about as long as reading the others: both must overlap. */
        g.depth = 4096;
        g.prefetch_rows = problem->b.row == 1 && capabilities_prefetch(caps);
    } else if (caps->lanes == 16 && lane_count <= 32) {
        g.rows = 12;
        g.vectors = 2;
    } else if (caps->lanes == 16 && narrower * (double)round_up(lane_count, 48) <= (double)round_up(lane_count, 64)) {
        g.rows = 8; /* as many sums in narrower panels */
        g.vectors = 3;
    }
    return g;
}

static struct packed_geometry geometry_of(const struct capabilities *caps, const struct matmul_problem *problem,
                                          bool lanes_along_m, bool pairs)
{
    struct packed_geometry g = vector_geometry(caps, problem, lanes_along_m);
    /* An Intel core's third-level cache is far: with this 0.87 to 0.92 of the time, and 0.95 to 1.03 if all panels fit the
     * second-level cache.  On Zen a depth of 256 was 3 % slower than 512; prefetching the panel was not measured there. */
    size_t lane_count = lanes_along_m ? problem->m * (problem->b.batch ? 1 : problem->batch) : problem->n;
    bool far = (double)lane_count * (double)problem->k * sizeof(float) > NEAR_BYTES;
    if (!pairs && g.vectors > 1 && far && capabilities_pocl_on_intel(caps)) {
        g.depth = 128;
        g.prefetch_panel = true;
    }
    return g;
}

void matmul_packed_tune_items(struct tuning *tuning, bool small, struct packed_geometry *g)
{
    static const int32_t tiles[] = {1, 2, 4, 8, 16, -1}, depth[] = {64, 128, 256, 512, 1024, 4096, -1};
    static const int32_t few_tiles[] = {1, 2, -1}, few_depth[] = {32, 64, -1};
    tuning_parameter(tuning, "tiles", small ? few_tiles : tiles, &g->tiles);
    tuning_parameter(tuning, "depth", small ? few_depth : depth, &g->depth);
}

/* What measuring may choose instead: next to nothing on devices with slow compilers, and only 16 lanes with an instruction
 * that has 16. */
static clattn_status tune_geometry(struct matmul_plan *plan, enum packed_steps kind, struct packed_geometry *g)
{
    static const int32_t lanes[] = {4, 8, 16, -1}, rows[] = {4, 6, 8, 12, 14, -1}, vectors[] = {1, 2, 3, 4, -1};
    static const int32_t few_lanes[] = {4, -1}, few_rows[] = {2, 4, -1}, one[] = {1, -1};
    const struct matmul_problem *problem = &plan->problem;
    const struct capabilities *caps = &plan->base.context->device.caps;
    struct tuning *tuning = &plan->base.tuning;
    bool small = caps->quirks & (QUIRK_SLOW_COMPILER | QUIRK_SIMULATOR);
    bool row_unit = (plan->lanes_along_m ? problem->b.row : problem->a.col) == 1;
    matmul_packed_tune_items(tuning, small, g);
    if (kind != PACKED_PAIRS_X86)
        tuning_parameter(tuning, "lanes", small ? few_lanes : lanes, &g->lanes);
    tuning_parameter(tuning, "rows", small ? few_rows : rows, &g->rows);
    tuning_parameter(tuning, "vectors", small ? one : vectors, &g->vectors);
    if (row_unit && capabilities_prefetch(caps) && !small)
        tuning_flag(tuning, "prefetch_rows", &g->prefetch_rows);
    if (capabilities_prefetch(caps) && kind == PACKED_FLOATS)
        tuning_flag(tuning, "prefetch_panel", &g->prefetch_panel);
    if ((!small && g->lanes > caps->lanes) || g->rows * g->vectors > MOST_SUMS)
        return report_error(&plan->base.context->device.report, CLATTN_ERROR_UNSUPPORTED,
                            "a register tile of %zu x %zu vectors of %zu does not fit the registers", g->rows,
                            g->vectors, g->lanes);
    return CLATTN_SUCCESS;
}

static double cost(const struct packed_geometry *g, double row_count, double lane_count, double packing)
{
    double rows = (double)g->rows, panel = (double)(g->lanes * g->vectors), work = g->vectors == 3 ? NARROWER_WORK : 1;
    return work * ceil(row_count / rows) * rows * ceil(lane_count / panel) * panel + packing * lane_count;
}

bool matmul_packed_along_m(const struct matmul_problem *problem, bool pairs, const struct packed_geometry *along_m,
                           const struct packed_geometry *along_n, double packing)
{
    if (pairs && (problem->a.col != 1 || problem->b.row != 1))
        return problem->a.col != 1; /* the row operand is read by pairs of neighbours */
    if (problem->desc.prepack)
        return false;
    double batch = (double)size_max(problem->batch, 1), m = (double)problem->m, n = (double)problem->n;
    /* Items that share b share its panels, and usually are one tall item. */
    double shared = problem->b.batch ? 1 : batch, apart = problem->b.batch ? batch : 1;
    return apart * cost(along_m, n, m * shared, packing) < apart * cost(along_n, m * shared, n, packing);
}

/* Tiles for which an item has sums: more than it has tiles, so that products of few and of many rows share a program. */
#define MOST_TILES 8

clattn_status matmul_packed_add_kernels(struct matmul_plan *plan, const char *file, const char *name, bool optional,
                                        const struct packed_geometry *g, struct strbuf *options)
{
    const struct matmul_problem *problem = &plan->problem;
    bool rounds = optional && !g->prefetch_panel && g->tiles < MOST_TILES &&
                  !(plan->base.context->device.caps.quirks & (QUIRK_SLOW_COMPILER | QUIRK_SIMULATOR));
    plan->panel = g->lanes * g->vectors;
    plan->tile_rows = g->rows * g->tiles;
    matmul_defines(plan, optional, options);
    define_int(options, "TILES", (long long)(rounds ? MOST_TILES : g->tiles));
    define_int(options, "DEPTH", (long long)g->depth);
    define_int(options, "LANES", (long long)g->lanes);
    define_int(options, "PACK_DEPTH", PACK_DEPTH);
    define_int(options, "LANES_ALONG_M", plan->lanes_along_m);
    size_t lane_count = plan->lanes_along_m ? problem->m : problem->n;
    size_t row_count = plan->lanes_along_m ? problem->n : problem->m;
    /* Items folded into one need no more panels than they do apart. */
    size_t items = packed_items(plan, problem, problem->batch), panels = divide_up(lane_count, plan->panel);
    size_t steps = divide_up(problem->k, plan->k_step), row_groups = divide_up(row_count, plan->tile_rows);
    const struct packed_kernel kernels[2] = {
        {"matmul_pack", 2, {items * panels, divide_up(steps, PACK_DEPTH), items}},
        {name, matmul_pointers(plan), {items * panels, problem->batch * row_groups, problem->batch}},
    };
    plan->base.workspace = items * panels * plan->panel * steps * 4;
    plan->launch = launch;
    return matmul_add_packed_kernels(plan, file, options, kernels);
}

/* An element costs about as much to pack as so many elements of tiles cost to multiply (measured on Zen 4, of floats: two
 * cycles). */
#define PACKING 30

clattn_status matmul_packed_prepare(struct matmul_plan *plan, enum packed_steps kind)
{
    const struct matmul_problem *problem = &plan->problem;
    const struct capabilities *caps = &plan->base.context->device.caps;
    bool pairs = kind != PACKED_FLOATS;
    struct packed_geometry along_m = geometry_of(caps, problem, true, pairs);
    struct packed_geometry along_n = geometry_of(caps, problem, false, pairs), g;
    clattn_status status;
    struct strbuf options = {0};
    plan->lanes_along_m = matmul_packed_along_m(problem, pairs, &along_m, &along_n, PACKING);
    if (!pairs || (problem->a.col == 1 && problem->b.row == 1))
        tuning_flag(&plan->base.tuning, "along_m", &plan->lanes_along_m);
    plan->k_step = pairs ? 2 : 1;
    g = plan->lanes_along_m ? along_m : along_n;
    TRY(tune_geometry(plan, kind, &g));
    define_int(&options, "ROWS", (long long)g.rows);
    define_int(&options, "LANE_VECTORS", (long long)g.vectors);
    define_int(&options, "PREFETCH_DISTANCE", g.prefetch_rows ? PREFETCH_DISTANCE : 0);
    define_int(&options, "PREFETCH_PANEL", g.prefetch_panel);
    define_int(&options, "PAIRS", pairs);
    define_int(&options, "X86_BF16", kind == PACKED_PAIRS_X86);
    define_int(&options, "ROW_UNIT", (plan->lanes_along_m ? problem->b.row : problem->a.col) == 1);
    status = matmul_packed_add_kernels(plan, "matmul/cpu/packed.cl", "matmul_cpu", !pairs, &g, &options);
fail:
    return status;
}
