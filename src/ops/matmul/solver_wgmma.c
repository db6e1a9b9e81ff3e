/* Matrix products by Hopper's wgmma, and by the same kernel with wgmma emulated, which is for tests: only a caller who names
 * it gets it.
 *
 * It has run on one GPU, by one driver, whose text it changes, so the planner takes it only if the self-check compares its
 * kernel with the reference on the device itself.  program/ptx_splice.h says how the instruction comes into the program. */
#include "base/size.h"
#include "ops/matmul/engine.h"
#include "program/defines.h"
#include "program/ptx_splice.h"

enum { REAL, EMULATED }; /* variants: by the instruction itself, or in plain OpenCL C */

#define LANES 128
#define ROWS 64 /* of a product */

/* Warpgroups, each with 64 rows of the tile, its columns, depth of a step. */
struct geometry {
    size_t warpgroups, columns, depth;
};

/* Largest first.  The largest has 64 sums an item, so that a multiprocessor's registers hold two work-groups of 256 items, and
 * its local memory three steps of each. */
static const struct geometry geometries[] = {{2, 128, 64}, {1, 128, 64}, {1, 64, 64}, {1, 32, 64}, {1, 16, 16}};
#define GEOMETRIES (sizeof geometries / sizeof geometries[0])
#define MOST_STAGES 4

static size_t rows_of(const struct geometry *g)
{
    return ROWS * g->warpgroups;
}

/* As many as let two work-groups share local memory, if those are enough. */
static size_t stages_of(const struct capabilities *caps, const struct geometry *g)
{
    size_t stage = (rows_of(g) + g->columns) * g->depth * sizeof(uint16_t);
    size_t room = capabilities_local_room(caps), most = room / 2 / stage;
    return size_min(most >= 2 ? most : room / stage, MOST_STAGES);
}

static bool fits(const struct capabilities *caps, const struct geometry *g)
{
    const clattn_device_info *info = &caps->info;
    return LANES * g->warpgroups <= info->max_work_group && LANES <= info->max_work_item[0] &&
           g->warpgroups <= info->max_work_item[1] && stages_of(caps, g) >= 2;
}

/* The first geometry from `from` on that the device's limits allow and that is no larger than the product or the number of
 * compute units asks for, or GEOMETRIES. */
static size_t choose(const clattn_context *context, const struct matmul_problem *problem, bool emulated, size_t from)
{
    const struct capabilities *caps = &context->device.caps;
    bool smallest = context->device.caps.quirks & (QUIRK_SLOW_COMPILER | QUIRK_SIMULATOR);
    for (size_t i = from; i < GEOMETRIES; i++) {
        const struct geometry *g = &geometries[i], *next = g + 1;
        double groups = (double)divide_up(problem->m, rows_of(g)) * (double)divide_up(problem->n, g->columns) *
                        (double)problem->batch;
        bool last = i + 1 == GEOMETRIES;
        if (!fits(caps, g) || (!last && (smallest || (problem->m <= rows_of(next) && problem->n <= next->columns) ||
                                         (!emulated && groups < caps->info.compute_units))))
            continue;
        return i;
    }
    return GEOMETRIES;
}

static const char *refuse_problem(const clattn_context *context, const struct matmul_problem *problem, bool emulated)
{
    const char *reason = engine_refuse_types(problem);
    if (reason)
        return reason;
    if (choose(context, problem, emulated, 0) == GEOMETRIES)
        return "the device's work-groups or local memory are too small";
    return NULL;
}

static const char *refuse(const struct offer *offer)
{
    const struct matmul_problem *problem = offer->problem;
    if (!offer->caps->wgmma)
        return offer->caps->no_wgmma;
    const char *reason = refuse_problem(offer->context, problem, false);
    if (reason || offer->forced)
        return reason;
    if (problem->m < ROWS || problem->n < 16)
        return "some of a product's 64 rows and 16 columns would be idle";
    if (!offer->context->programs.checks)
        return "the planner takes it only behind the self-check, which is off";
    return NULL;
}

static clattn_status prepare_geometry(struct matmul_plan *plan, const struct geometry *g, bool emulated)
{
    const struct matmul_problem *problem = &plan->problem;
    const size_t local[3] = {LANES, g->warpgroups, 1};
    struct strbuf options = {0};
    matmul_defines(plan, false, &options);
    define_int(&options, "MATRIX_ENGINE", MATRIX_MMA);
    define_int(&options, "MATRIX_BF16", problem->desc.a.dtype == CLATTN_DTYPE_BF16);
    define_int(&options, "MATRIX_EMULATED", emulated);
    define_int(&options, PTX_SPLICE_OPTION, !emulated);
    define_int(&options, "WARPGROUPS", (long long)g->warpgroups);
    define_int(&options, "WGMMA_N", (long long)g->columns);
    define_int(&options, "TILE_K", (long long)g->depth);
    define_int(&options, "STAGES", (long long)stages_of(&plan->base.context->device.caps, g));
    define_int(&options, "A_TRANSPOSED", engine_is_transposed(problem->a.col, problem->a.row));
    define_int(&options, "B_TRANSPOSED", engine_is_transposed(problem->b.row, problem->b.col));
    plan->tile_rows = rows_of(g);
    plan->tile_columns = g->columns;
    return matmul_add_tiled_kernel(plan, "matmul/gpu/wgmma.cl", "matmul_wgmma", &options, local);
}

/* The geometry whose tile tuning asks for instead of geometries[i]'s; NULL if there is none, or it does not fit. */
static const struct geometry *tune(clattn_plan *base, size_t i)
{
    static const int32_t all_rows[] = {128, 64, -1}, all_columns[] = {128, 64, 32, 16, -1};
    size_t rows = rows_of(&geometries[i]), columns = geometries[i].columns;
    tuning_parameter(&base->tuning, "rows", all_rows, &rows);
    tuning_parameter(&base->tuning, "columns", all_columns, &columns);
    for (size_t j = 0; j < GEOMETRIES; j++)
        if (rows_of(&geometries[j]) == rows && geometries[j].columns == columns)
            return fits(&base->context->device.caps, &geometries[j]) ? &geometries[j] : NULL;
    return NULL;
}

/* A kernel may allow fewer items than the device: step down until one fits. */
static clattn_status prepare(clattn_plan *base)
{
    const bool emulated = base->trying->variant == EMULATED;
    struct matmul_plan *plan = (struct matmul_plan *)base;
    clattn_status status = CLATTN_ERROR_UNSUPPORTED;
    for (size_t i = choose(base->context, &plan->problem, emulated, 0); i < GEOMETRIES;
         i = choose(base->context, &plan->problem, emulated, i + 1)) {
        const struct geometry *g = tune(base, i);
        status = g ? prepare_geometry(plan, g, emulated) : no_such_tile(base);
        if (status != CLATTN_ERROR_UNSUPPORTED || !g)
            break;
        plan_drop_kernels(base);
    }
    if (status == CLATTN_SUCCESS)
        engine_explain(plan, "NVIDIA's wgmma", MATRIX_MMA, emulated);
    return status;
}

const struct solver matmul_wgmma_solver = {
    .name = "wgmma", .efficiency = 0.1, .refuse = refuse, .prepare = prepare, .variant = REAL};

/* Refuses if the loops of an item, over its sums for each 16 of k, are too long for the device. */
static const char *refuse_emulation(const struct offer *offer)
{
    const struct matmul_problem *problem = offer->problem;
    const char *reason = refuse_problem(offer->context, problem, true);
    if (reason)
        return reason;
    double sums = (double)geometries[choose(offer->context, problem, true, 0)].columns / 2;
    return refuse_loops(offer->caps, ((double)problem->k / 16 + 1) * sums * 24 + 1000);
}

const struct solver matmul_wgmma_emulation = {
    .name = "emulated-wgmma", .refuse = refuse_emulation, .prepare = prepare, .variant = EMULATED};
