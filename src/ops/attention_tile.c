/* Attention on GPU-class devices: a work-group owns a tile of queries and walks the keys through local
 * memory. */
#include "base/size.h"
#include "ops/attention.h"
#include "program/defines.h"

#define MAX_SIZE 256

/* Largest first; the first that fits the device's local memory is taken (attention_tile.cl has the formula).
 */
static const struct geometry {
    size_t tile_q, tile_k, items_x, items_y, chunk, value_rows;
} geometries[] = {
    {128, 64, 16, 16, 16, 8},
    {64, 64, 16, 16, 16, 8},
    {32, 32, 8, 8, 16, 8},
    {16, 32, 8, 4, 16, 8},
};
#define GEOMETRIES (sizeof geometries / sizeof geometries[0])

static size_t local_bytes(const struct geometry *g, const struct attention_problem *problem)
{
    size_t stage = g->chunk * (g->tile_k + 4 + g->tile_q + 4);
    stage = size_max(stage, g->value_rows * round_up(problem->d_v, 4 * g->items_x));
    stage = size_max(stage, g->items_x * (g->tile_q + 4));
    return 4 * (g->tile_k * (g->tile_q + 4) + stage);
}

/* The first geometry from `from` on that the device's limits allow, or GEOMETRIES. */
static size_t choose(const clattn_context *context, const struct attention_problem *problem, size_t from)
{
    const clattn_device_info *info = &context->device.caps.info;
    bool smallest = context->device.caps.quirks & (QUIRK_SLOW_COMPILER | QUIRK_SIMULATOR);
    for (size_t i = from; i < GEOMETRIES; i++) {
        const struct geometry *g = &geometries[i];
        if (g->items_x * g->items_y > info->max_work_group || g->items_x > info->max_work_item[0] ||
            g->items_y > info->max_work_item[1] || local_bytes(g, problem) > info->local_memory)
            continue;
        /* A tile twice as long as all queries wastes half of its work, and a simulator's time. */
        if (i + 1 < GEOMETRIES && (smallest || problem->query_length <= geometries[i + 1].tile_q))
            continue;
        return i;
    }
    return GEOMETRIES;
}

/* At the most; attention_tile.cl says what a tile of keys takes. */
static double iterations(const struct geometry *g, const struct attention_problem *problem)
{
    double chunks = (double)divide_up(problem->d_k, g->chunk), chunk = (double)g->chunk;
    double tiles = (double)divide_up(problem->key_length, g->tile_k);
    return tiles * (chunks * (chunk + chunk / 8 * 4) + (double)g->tile_k * 2 + 64);
}

static const char *refuse(const clattn_context *context, const void *data, bool forced)
{
    const struct attention_problem *problem = data;
    if (problem->d_k > MAX_SIZE || problem->d_v > MAX_SIZE)
        return "a head size is above 256";
    size_t chosen = choose(context, problem, 0);
    if (chosen == GEOMETRIES)
        return "the device's work-groups or local memory are too small";
    if (!capabilities_allow_loops(&context->device.caps, iterations(&geometries[chosen], problem)))
        return LOOPS_REASON;
    if (!forced && capabilities_on_cpu(&context->device.caps))
        return "barriers and local memory are slow on a CPU";
    return NULL;
}

static clattn_status prepare_geometry(struct attention_plan *plan, const struct geometry *g)
{
    const size_t local[3] = {g->items_x, g->items_y, 1};
    struct strbuf options = {0};
    attention_defines(&plan->problem, &plan->base.context->device.caps, &options);
    define_int(&options, "TILE_Q", (long long)g->tile_q);
    define_int(&options, "TILE_K", (long long)g->tile_k);
    define_int(&options, "ITEMS_X", (long long)g->items_x);
    define_int(&options, "ITEMS_Y", (long long)g->items_y);
    define_int(&options, "CHUNK", (long long)g->chunk);
    define_int(&options, "VALUE_ROWS", (long long)g->value_rows);
    plan->queries_per_group = g->tile_q;
    plan->groups = attention_groups_by_queries;
    return attention_add_kernel(plan, "attention_tile.cl", "attention_tile", &options, local);
}

/* A kernel may allow fewer items than the device: step down until one fits. */
static clattn_status prepare(clattn_plan *base)
{
    struct attention_plan *plan = (struct attention_plan *)base;
    clattn_status status = CLATTN_ERROR_UNSUPPORTED;
    for (size_t i = choose(base->context, &plan->problem, 0); i < GEOMETRIES;
         i = choose(base->context, &plan->problem, i + 1)) {
        status = prepare_geometry(plan, &geometries[i]);
        if (status != CLATTN_ERROR_UNSUPPORTED)
            break;
        plan_drop_kernels(base);
    }
    return status;
}

const struct solver attention_tile_solver = {"tile", refuse, prepare};
