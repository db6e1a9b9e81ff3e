/* Matrix products on GPU-class devices: a work-group owns a tile of C and walks k through local memory. */
#include "base/size.h"
#include "ops/matmul.h"
#include "program/defines.h"

/* Largest first; matmul_tile.cl says what each takes of local memory. */
static const struct geometry {
    size_t tile_m, tile_n, tile_k, item_m, item_n;
} geometries[] = {
    {128, 128, 16, 8, 8},
    {64, 64, 16, 4, 4},
    {32, 32, 16, 4, 4},
    {16, 32, 8, 4, 4},
};
#define GEOMETRIES (sizeof geometries / sizeof geometries[0])

static bool fits(const clattn_device_info *info, const struct geometry *g)
{
    size_t x = g->tile_n / g->item_n, y = g->tile_m / g->item_m;
    size_t bytes = g->tile_k * (g->tile_m + g->tile_n + 8) * sizeof(float);
    return x * y <= info->max_work_group && x <= info->max_work_item[0] && y <= info->max_work_item[1] &&
           bytes <= info->local_memory;
}

/* The first geometry from `from` on that the device's limits allow, or GEOMETRIES. */
static size_t choose(const clattn_context *context, const struct matmul_problem *problem, size_t from)
{
    const clattn_device_info *info = &context->device.caps.info;
    bool smallest = context->device.caps.quirks & (QUIRK_SLOW_COMPILER | QUIRK_SIMULATOR);
    for (size_t i = from; i < GEOMETRIES; i++) {
        const struct geometry *g = &geometries[i];
        if (!fits(info, g))
            continue;
        /* A product that the next smaller tile covers leaves this one mostly idle. */
        if (i + 1 < GEOMETRIES &&
            (smallest || (problem->m <= geometries[i + 1].tile_m && problem->n <= geometries[i + 1].tile_n)))
            continue;
        return i;
    }
    return GEOMETRIES;
}

static const char *refuse(const clattn_context *context, const void *data, bool forced)
{
    if (choose(context, data, 0) == GEOMETRIES)
        return "the device's work-groups or local memory are too small";
    const struct matmul_problem *problem = data;
    const char *reason = refuse_loops(&context->device.caps, 3 * (double)problem->k + 1000);
    return reason ? reason : refuse_cpu(&context->device.caps, forced);
}

static clattn_status prepare_geometry(struct matmul_plan *plan, const struct geometry *g)
{
    const size_t local[3] = {g->tile_n / g->item_n, g->tile_m / g->item_m, 1};
    struct strbuf options = {0};
    matmul_defines(&plan->problem, &options);
    define_int(&options, "TILE_M", (long long)g->tile_m);
    define_int(&options, "TILE_N", (long long)g->tile_n);
    define_int(&options, "TILE_K", (long long)g->tile_k);
    define_int(&options, "ITEM_M", (long long)g->item_m);
    define_int(&options, "ITEM_N", (long long)g->item_n);
    plan->tile_rows = g->tile_m;
    plan->tile_columns = g->tile_n;
    return matmul_add_tiled_kernel(plan, "matmul_tile.cl", "matmul_tile", &options, local);
}

/* The geometry of the tile that is given in place of geometries[i]'s; NULL: there is none, or it does not fit. */
static const struct geometry *tune(clattn_plan *base, size_t i)
{
    static const int32_t rows[] = {128, 64, 32, 16, -1}, columns[] = {128, 64, 32, -1};
    size_t tile_m = geometries[i].tile_m, tile_n = geometries[i].tile_n;
    tuning_parameter(&base->tuning, "rows", rows, &tile_m);
    tuning_parameter(&base->tuning, "columns", columns, &tile_n);
    for (size_t j = 0; j < GEOMETRIES; j++)
        if (geometries[j].tile_m == tile_m && geometries[j].tile_n == tile_n)
            return j == i || fits(&base->context->device.caps.info, &geometries[j]) ? &geometries[j] : NULL;
    return NULL;
}

/* A kernel may allow fewer items than the device: step down until one fits. */
static clattn_status prepare(clattn_plan *base)
{
    struct matmul_plan *plan = (struct matmul_plan *)base;
    clattn_status status = CLATTN_ERROR_UNSUPPORTED;
    for (size_t i = choose(base->context, &plan->problem, 0); i < GEOMETRIES;
         i = choose(base->context, &plan->problem, i + 1)) {
        const struct geometry *g = tune(base, i);
        status = g ? prepare_geometry(plan, g)
                   : report_error(&base->context->device.report, CLATTN_ERROR_UNSUPPORTED,
                                  "there is no such tile, or it does not fit the device");
        if (status != CLATTN_ERROR_UNSUPPORTED || g != &geometries[i])
            break;
        plan_drop_kernels(base);
    }
    return status;
}

const struct solver matmul_tile_solver = {"tile", refuse, prepare};
