/* Matrix products by a GPU's matrix engines, and by the same kernel with an engine emulated, which is for tests: only a caller
 * who names it gets it.
 *
 * Of the engines only NVIDIA's has run on a GPU, and on one GPU, so the planner takes this solver only if the self-check
 * compares its kernels with the reference on the device itself. */
#include <string.h>

#include "base/size.h"
#include "ops/matmul/engine.h"
#include "program/defines.h"

/* Sub-groups along m and n, squares of 16 x 16 that each owns, depth of a step. */
struct geometry {
    size_t groups_m, groups_n, squares_m, squares_n, depth;
};

/* Largest first.  The squares of a sub-group and what they are made of take most of an item's registers; MFMA's work-groups
 * have at most four sub-groups, and of dpas' registers a square takes 32. */
#define GEOMETRIES 4
static const struct geometry geometries[MATRIX_ENGINES][GEOMETRIES] = {
    [MATRIX_MMA] = {{2, 2, 4, 4, 32}, {2, 2, 2, 2, 32}, {2, 2, 1, 1, 32}, {1, 1, 1, 1, 16}},
    [MATRIX_WMMA] = {{2, 4, 4, 2, 32}, {2, 2, 2, 2, 32}, {2, 2, 1, 1, 32}, {1, 1, 1, 1, 16}},
    [MATRIX_MFMA] = {{2, 2, 4, 4, 32}, {2, 2, 2, 2, 32}, {2, 2, 1, 1, 32}, {1, 1, 1, 1, 16}},
    [MATRIX_DPAS8] = {{4, 4, 1, 1, 16}, {2, 4, 1, 1, 16}, {2, 2, 1, 1, 16}, {1, 1, 1, 1, 16}},
    [MATRIX_DPAS16] = {{4, 4, 2, 1, 16}, {4, 4, 1, 1, 16}, {2, 2, 1, 1, 16}, {1, 1, 1, 1, 16}},
};

#define SIDE 16
#define MOST_STAGES 4

static size_t rows_of(const struct geometry *g)
{
    return SIDE * g->groups_m * g->squares_m;
}

static size_t columns_of(const struct geometry *g)
{
    return SIDE * g->groups_n * g->squares_n;
}

static size_t stage_bytes(const struct geometry *g)
{
    return (rows_of(g) + columns_of(g)) * g->depth * sizeof(uint16_t);
}

/* Local memory in which emulated sub-groups exchange fragments. */
static size_t scratch_bytes(const struct geometry *g, bool emulated)
{
    return emulated ? g->groups_m * g->groups_n * (g->squares_m + g->squares_n) * SIDE * SIDE * sizeof(uint16_t) : 0;
}

/* How many steps' tiles local memory holds, for two work-groups if that is enough; fewer than 2 are too few. */
static size_t stages_of(const struct capabilities *caps, enum matrix_engine engine, const struct geometry *g,
                        bool emulated)
{
    const size_t scratch = scratch_bytes(g, emulated), stage = stage_bytes(g), room = capabilities_local_room(caps);
    size_t both = room / 2 > scratch ? (room / 2 - scratch) / stage : 0,
           one = room > scratch ? (room - scratch) / stage : 0;
    return size_min(both >= 2 ? both : one, engine == MATRIX_MMA ? MOST_STAGES : 2);
}

static bool fits(const struct capabilities *caps, enum matrix_engine engine, const struct geometry *g, bool emulated)
{
    const clattn_device_info *info = &caps->info;
    size_t lanes = matrix_engine_lanes(engine), groups = g->groups_m * g->groups_n;
    return lanes * groups <= info->max_work_group && lanes <= info->max_work_item[0] &&
           groups <= info->max_work_item[1] && stages_of(caps, engine, g, emulated) >= 2;
}

/* The first geometry from `from` on that the device's limits allow and that is no larger than the product or the number of
 * compute units asks for, or GEOMETRIES. */
static size_t choose(const clattn_context *context, const struct matmul_problem *problem, enum matrix_engine engine,
                     bool emulated, size_t from)
{
    const struct capabilities *caps = &context->device.caps;
    bool smallest = context->device.caps.quirks & (QUIRK_SLOW_COMPILER | QUIRK_SIMULATOR);
    for (size_t i = from; i < GEOMETRIES; i++) {
        const struct geometry *g = &geometries[engine][i], *next = g + 1;
        if (!fits(caps, engine, g, emulated))
            continue;
        /* Emulated, the largest takes long to compile, so that only tuning asks for it. */
        if (i + 1 < GEOMETRIES &&
            (smallest || (emulated && i == 0) || (problem->m <= rows_of(next) && problem->n <= columns_of(next))))
            continue;
        double groups = (double)divide_up(problem->m, rows_of(g)) * (double)divide_up(problem->n, columns_of(g)) *
                        (double)problem->batch;
        if (i + 1 < GEOMETRIES && !emulated && groups < caps->info.compute_units)
            continue;
        return i;
    }
    return GEOMETRIES;
}

/* Why neither the engine nor its emulation can take the problem, or NULL. */
static const char *refuse_problem(const clattn_context *context, const struct matmul_problem *problem,
                                  enum matrix_engine engine, bool emulated)
{
    const char *reason = engine_refuse_types(problem);
    if (reason)
        return reason;
    if (choose(context, problem, engine, emulated, 0) == GEOMETRIES)
        return "the device's work-groups or local memory are too small";
    return NULL;
}

static const char *refuse(const struct offer *offer)
{
    const struct capabilities *caps = offer->caps;
    const struct matmul_problem *problem = offer->problem;
    if (caps->matrix == MATRIX_NONE)
        return caps->no_matrix;
    const char *reason = refuse_problem(offer->context, problem, caps->matrix, false);
    if (reason || offer->forced)
        return reason;
    if (caps->matrix == MATRIX_MFMA && problem->desc.a.dtype == CLATTN_DTYPE_F16 && strstr(caps->info.name, "gfx90a"))
        return "this GPU's MFMA takes float16 below 2^-14 for 0";
    if (problem->m < SIDE || problem->n < SIDE)
        return "most of a square of 16 x 16 would be idle";
    if (!offer->context->programs.checks)
        return "the planner takes it only behind the self-check, which is off";
    return NULL;
}

/* Intel's compiler keeps fragments in memory if they are loaded from transposed tiles. */
static bool is_transposed(enum matrix_engine engine, int64_t along_k, int64_t along_mn)
{
    return engine != MATRIX_DPAS8 && engine != MATRIX_DPAS16 && engine_is_transposed(along_k, along_mn);
}

static clattn_status prepare_geometry(struct matmul_plan *plan, enum matrix_engine engine, const struct geometry *g,
                                      bool emulated)
{
    const struct matmul_problem *problem = &plan->problem;
    const struct capabilities *caps = &plan->base.context->device.caps;
    const size_t local[3] = {matrix_engine_lanes(engine), g->groups_m * g->groups_n, 1};
    struct strbuf options = {0};
    matmul_defines(plan, false, &options);
    define_int(&options, "MATRIX_ENGINE", engine);
    define_int(&options, "MATRIX_BF16", problem->desc.a.dtype == CLATTN_DTYPE_BF16);
    define_int(&options, "MATRIX_EMULATED", emulated);
    define_int(&options, "GROUPS_M", (long long)g->groups_m);
    define_int(&options, "GROUPS_N", (long long)g->groups_n);
    define_int(&options, "SQUARES_M", (long long)g->squares_m);
    define_int(&options, "SQUARES_N", (long long)g->squares_n);
    define_int(&options, "TILE_K", (long long)g->depth);
    define_int(&options, "STAGES", (long long)stages_of(caps, engine, g, emulated));
    define_int(&options, "A_TRANSPOSED", is_transposed(engine, problem->a.col, problem->a.row));
    define_int(&options, "B_TRANSPOSED", is_transposed(engine, problem->b.row, problem->b.col));
    plan->tile_rows = rows_of(g);
    plan->tile_columns = columns_of(g);
    return matmul_add_tiled_kernel(plan, "matmul/gpu/matrix.cl", "matmul_matrix", &options, local);
}

/* The geometry whose tile tuning asks for instead of geometries[i]'s; NULL if there is none, or it does not fit. */
static const struct geometry *tune(clattn_plan *base, enum matrix_engine engine, bool emulated, size_t i)
{
    static const int32_t sizes[] = {128, 64, 32, 16, -1};
    const struct geometry *g = geometries[engine];
    size_t rows = rows_of(&g[i]), columns = columns_of(&g[i]);
    tuning_parameter(&base->tuning, "rows", sizes, &rows);
    tuning_parameter(&base->tuning, "columns", sizes, &columns);
    for (size_t j = 0; j < GEOMETRIES; j++)
        if (rows_of(&g[j]) == rows && columns_of(&g[j]) == columns)
            return j == i || fits(&base->context->device.caps, engine, &g[j], emulated) ? &g[j] : NULL;
    return NULL;
}

/* A kernel may allow fewer items than the device: step down until one fits. */
static clattn_status prepare(clattn_plan *base)
{
    const bool emulated = base->trying->variant != MATRIX_NONE;
    const enum matrix_engine engine =
        emulated ? (enum matrix_engine)base->trying->variant : base->context->device.caps.matrix;
    struct matmul_plan *plan = (struct matmul_plan *)base;
    clattn_status status = CLATTN_ERROR_UNSUPPORTED;
    for (size_t i = choose(base->context, &plan->problem, engine, emulated, 0); i < GEOMETRIES;
         i = choose(base->context, &plan->problem, engine, emulated, i + 1)) {
        const struct geometry *g = tune(base, engine, emulated, i);
        status = g ? prepare_geometry(plan, engine, g, emulated) : no_such_tile(base);
        if (status != CLATTN_ERROR_UNSUPPORTED || !g)
            break;
        plan_drop_kernels(base);
    }
    if (status == CLATTN_SUCCESS)
        engine_explain(plan, matrix_engine_name(engine), engine, emulated);
    return status;
}

const struct solver matmul_matrix_solver = {.name = "matrix", .efficiency = 0.1, .refuse = refuse, .prepare = prepare};

/* ---- emulations ---- */

/* The loops of an item for 16 of k: sums of 16 products for its floats, and what it puts into the scratch memory. */
static const char *refuse_emulation(const struct offer *offer)
{
    const clattn_context *context = offer->context;
    const struct matmul_problem *problem = offer->problem;
    const enum matrix_engine engine = (enum matrix_engine)offer->solver->variant;
    const char *reason = refuse_problem(context, problem, engine, true);
    if (reason)
        return reason;
    size_t i = choose(context, problem, engine, true, 0);
    double squares = (double)(geometries[engine][i].squares_m * geometries[engine][i].squares_n);
    double floats = (double)SIDE * SIDE / matrix_engine_lanes(engine);
    return refuse_loops(offer->caps, ((double)problem->k / SIDE + 1) * squares * floats * 24 + 1000);
}

#define EMULATION(NAME, ENGINE) {.name = NAME, .refuse = refuse_emulation, .prepare = prepare, .variant = ENGINE}
const struct solver matmul_matrix_emulations[MATMUL_EMULATIONS] = {
    EMULATION("emulated-mma", MATRIX_MMA),       EMULATION("emulated-wmma", MATRIX_WMMA),
    EMULATION("emulated-mfma", MATRIX_MFMA),     EMULATION("emulated-dpas8", MATRIX_DPAS8),
    EMULATION("emulated-dpas16", MATRIX_DPAS16),
};
