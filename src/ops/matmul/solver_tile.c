/* Matrix products on GPU-class devices: a work-group owns a tile of C and walks k through local memory. */
#include "base/size.h"
#include "ops/matmul/engine.h"
#include "program/defines.h"

/* Largest first; matmul/gpu/tile.cl says what each takes of local memory. */
static const struct geometry {
    size_t tile_m, tile_n, tile_k, item_m, item_n;
} geometries[] = {
    {128, 128, 8, 8, 8},
    {64, 64, 8, 8, 4},
    {32, 32, 16, 4, 4},
    {16, 32, 8, 4, 4},
};
#define GEOMETRIES (sizeof geometries / sizeof geometries[0])

static size_t items(const struct geometry *g)
{
    return g->tile_m / g->item_m * (g->tile_n / g->item_n);
}

static bool fits(const struct capabilities *caps, const struct geometry *g)
{
    const clattn_device_info *info = &caps->info;
    size_t x = g->tile_n / g->item_n, y = g->tile_m / g->item_m;
    size_t bytes = 2 * g->tile_k * (g->tile_m + g->tile_n + 8) * sizeof(float);
    return x * y <= info->max_work_group && x <= info->max_work_item[0] && y <= info->max_work_item[1] &&
           bytes <= capabilities_local_room(caps);
}

/* Floats that an item keeps in registers during a step: its sums, the next step's elements, and one k's elements of the tiles. */
static size_t kept_floats(const struct geometry *g)
{
    size_t loads = (g->tile_m + g->tile_n) * g->tile_k / items(g);
    return g->item_m * g->item_n + loads + g->item_n + 4;
}

/* A measure of the time that the product takes.  Each compute unit takes one tile after the other; an item reads
 * item_m + item_n floats of local memory for item_m * item_n products, so that large ones read less for each product. */
static double cost(const clattn_device_info *info, const struct matmul_problem *problem, const struct geometry *g)
{
    double tiles = (double)divide_up(problem->m, g->tile_m) * (double)divide_up(problem->n, g->tile_n) *
                   (double)size_max(problem->batch, 1);
    size_t units = size_max(info->compute_units, 1);
    double turns = tiles < 1e9 ? (double)divide_up((size_t)tiles, units) : tiles / (double)units;
    double reads = (double)(g->item_m + g->item_n) / (double)(g->item_m * g->item_n);
    return turns * (double)(g->tile_m * g->tile_n) * (1 + 4 * reads);
}

/* Whether `other`, which comes later, does better: a slow compiler or a simulator wants the smallest, half of an item's
 * registers are for what the compiler needs besides, and a large tile may leave units without work. */
static bool beats(const clattn_context *context, const struct matmul_problem *problem, const struct geometry *other,
                  const struct geometry *g)
{
    const struct capabilities *caps = &context->device.caps;
    size_t registers = caps->registers ? caps->registers : SIZE_MAX;
    return (caps->quirks & (QUIRK_SLOW_COMPILER | QUIRK_SIMULATOR)) ||
           (kept_floats(g) > registers / 2 && kept_floats(other) < kept_floats(g)) ||
           cost(&caps->info, problem, other) < cost(&caps->info, problem, g);
}

/* The first geometry from `from` on that the device's limits allow and none behind it beats, or GEOMETRIES. */
static size_t choose(const clattn_context *context, const struct matmul_problem *problem, size_t from)
{
    const struct capabilities *caps = &context->device.caps;
    for (size_t i = from; i < GEOMETRIES; i++) {
        bool best = fits(caps, &geometries[i]);
        for (size_t j = i + 1; j < GEOMETRIES && best; j++)
            best = !fits(caps, &geometries[j]) || !beats(context, problem, &geometries[j], &geometries[i]);
        if (best)
            return i;
    }
    return GEOMETRIES;
}

static const char *refuse(const struct offer *offer)
{
    if (choose(offer->context, offer->problem, 0) == GEOMETRIES)
        return "the device's work-groups or local memory are too small";
    const struct matmul_problem *problem = offer->problem;
    const char *reason = refuse_loops(offer->caps, 3 * (double)problem->k + 1000);
    return reason ? reason : refuse_cpu(offer);
}

static clattn_status prepare_geometry(struct matmul_plan *plan, const struct geometry *g)
{
    const size_t local[3] = {g->tile_n / g->item_n, g->tile_m / g->item_m, 1};
    struct strbuf options = {0};
    matmul_defines(plan, false, &options);
    define_int(&options, "TILE_M", (long long)g->tile_m);
    define_int(&options, "TILE_N", (long long)g->tile_n);
    define_int(&options, "TILE_K", (long long)g->tile_k);
    define_int(&options, "ITEM_M", (long long)g->item_m);
    define_int(&options, "ITEM_N", (long long)g->item_n);
    define_int(&options, "A_ALONG_K", plan->problem.a.col == 1);
    define_int(&options, "B_ALONG_K", plan->problem.b.row == 1);
    plan->tile_rows = g->tile_m;
    plan->tile_columns = g->tile_n;
    return matmul_add_tiled_kernel(plan, "matmul/gpu/tile.cl", "matmul_tile", &options, local);
}

/* The geometry whose tile tuning asks for instead of geometries[i]'s; NULL if there is none, or it does not fit. */
static const struct geometry *tune(clattn_plan *base, size_t i)
{
    static const int32_t rows[] = {128, 64, 32, 16, -1}, columns[] = {128, 64, 32, -1};
    size_t tile_m = geometries[i].tile_m, tile_n = geometries[i].tile_n;
    tuning_parameter(&base->tuning, "rows", rows, &tile_m);
    tuning_parameter(&base->tuning, "columns", columns, &tile_n);
    for (size_t j = 0; j < GEOMETRIES; j++)
        if (geometries[j].tile_m == tile_m && geometries[j].tile_n == tile_n)
            return j == i || fits(&base->context->device.caps, &geometries[j]) ? &geometries[j] : NULL;
    return NULL;
}

/* Whether the compiler has spilled registers to memory: on a GPU this kernel has no other private memory. */
static bool spills(const clattn_plan *plan)
{
    return !capabilities_on_cpu(&plan->context->device.caps) && plan->kernels[0].private_bytes > 0;
}

/* A kernel may allow fewer items than the device, or spill: step down until one fits; the smallest may spill. */
static clattn_status prepare(clattn_plan *base)
{
    struct matmul_plan *plan = (struct matmul_plan *)base;
    clattn_status status = CLATTN_ERROR_UNSUPPORTED;
    for (size_t i = choose(base->context, &plan->problem, 0); i < GEOMETRIES;
         i = choose(base->context, &plan->problem, i + 1)) {
        const struct geometry *g = tune(base, i);
        status = g ? prepare_geometry(plan, g) : no_such_tile(base);
        bool last = choose(base->context, &plan->problem, i + 1) == GEOMETRIES;
        if (g != &geometries[i] ||
            (status != CLATTN_ERROR_UNSUPPORTED && (status != CLATTN_SUCCESS || last || !spills(base))))
            break;
        plan_drop_kernels(base);
    }
    return status;
}

const struct solver matmul_tile_solver = {.name = "tile", .efficiency = 0.1, .refuse = refuse, .prepare = prepare};
