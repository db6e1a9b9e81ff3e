/* Attention's backward direction on GPU-class devices: a work-group owns a tile of queries, or of keys, and walks over the others
 * through local memory. */
#include <math.h>

#include "base/size.h"
#include "base/try.h"
#include "ops/attention/backward/backward.h"
#include "ops/common/arrays.h"
#include "program/defines.h"

#define FILE_NAME "attention/backward/tile.cl"
#define MAX_SIZE 512

/* Those behind are taken where one before does worse; cl/attention/gpu/shape.h says what the members are, and tile_q is what a
 * work-group owns. */
static const struct geometry {
    size_t tile_q, tile_k, items_x, items_y, chunk, value_rows;
} geometries[] = {
    {64, 64, 16, 8, 8, 8},  {32, 64, 16, 4, 8, 4},  {32, 32, 8, 8, 8, 8},
    {16, 64, 16, 4, 16, 4}, {32, 64, 16, 8, 16, 8}, {16, 32, 8, 4, 8, 4},
};
#define GEOMETRIES (sizeof geometries / sizeof geometries[0])

static size_t local_bytes(const struct geometry *g, const struct attention_problem *problem)
{
    const size_t own_row = g->tile_q + 4, other_row = g->tile_k + 4;
    const size_t columns = round_up(size_max(problem->d_k, problem->d_v), 4 * g->items_x);
    const size_t stage = size_max(g->chunk * (own_row + other_row), g->value_rows * columns);
    return 4 * (2 * g->tile_k * own_row + 2 * stage + 5 * size_max(g->tile_q, g->tile_k)) + 400;
}

/* Floats that an item keeps from tile to tile or through one: its part of the sums and of the scores. */
static size_t kept_floats(const struct geometry *g, const struct attention_problem *problem)
{
    const size_t d_k = round_up(problem->d_k, 4 * g->items_x), d_v = round_up(problem->d_v, 4 * g->items_x);
    const size_t columns = backward_has_keys(problem) ? d_k + d_v : d_k;
    return g->tile_q / g->items_y * (columns + g->tile_k) / g->items_x;
}

/* Those, and the floats that are on an item's way to local memory. */
static size_t held_floats(const struct geometry *g, const struct attention_problem *problem)
{
    const size_t items = g->items_x * g->items_y, size = size_max(problem->d_k, problem->d_v);
    const size_t chunk = g->chunk * (g->tile_q + g->tile_k) / items;
    return kept_floats(g, problem) + size_max(chunk, g->value_rows * round_up(size, 4 * g->items_x) / items);
}

static bool fits(const struct capabilities *caps, const struct attention_problem *problem, const struct geometry *g)
{
    const clattn_device_info *info = &caps->info;
    return g->items_x * g->items_y <= info->max_work_group && g->items_x <= info->max_work_item[0] &&
           g->items_y <= info->max_work_item[1] && local_bytes(g, problem) <= capabilities_local_room(caps);
}

/* Whether `other`, which comes later, does better: a tile twice as long as all rows wastes half of its work, a slow compiler or a
 * simulator wants the smallest, and half of an item's registers are for what the compiler needs besides. */
static bool beats(const struct capabilities *caps, const struct attention_problem *problem,
                  const struct geometry *other, const struct geometry *g)
{
    const size_t kept = kept_floats(g, problem), registers = caps->registers ? caps->registers : SIZE_MAX;
    const size_t rows = size_max(problem->query_length, problem->key_length);
    return (caps->quirks & (QUIRK_SLOW_COMPILER | QUIRK_SIMULATOR)) ||
           (other->tile_q < g->tile_q && rows <= other->tile_q) ||
           (kept > registers / 2 && held_floats(other, problem) < held_floats(g, problem));
}

/* The first geometry from `from` on that the device's limits allow and none behind it beats, or GEOMETRIES. */
static size_t choose(const struct capabilities *caps, const struct attention_problem *problem, size_t from)
{
    for (size_t i = from; i < GEOMETRIES; i++) {
        bool best = fits(caps, problem, &geometries[i]);
        for (size_t j = i + 1; j < GEOMETRIES && best; j++)
            best = !fits(caps, problem, &geometries[j]) || !beats(caps, problem, &geometries[j], &geometries[i]);
        if (best)
            return i;
    }
    return GEOMETRIES;
}

/* How often an item's loops turn at most; only those over registers count as unrolled. */
static double iterations(const struct geometry *g, const struct attention_problem *problem)
{
    const double items = (double)(g->items_x * g->items_y), tile_q = (double)g->tile_q, tile_k = (double)g->tile_k;
    const double group = (double)(problem->heads / size_max(problem->kv_heads, 1));
    const double columns = (double)(problem->d_k + problem->d_v);
    const double chunk = (double)g->chunk, products = (columns / chunk + 4) * (1 + chunk),
                 pairs = tile_q * tile_k / items * 2 + tile_q;
    const double sums = 2 * (tile_k / (double)g->value_rows + 1) * (1 + (double)g->value_rows);
    const double tile = products + pairs + sums + tile_k / items + (double)g->items_x;
    const double others = group * (double)divide_up(problem->query_length, g->tile_k) + 1;
    const double keys = (double)divide_up(problem->key_length, g->tile_k) + 1;
    return (keys > others ? keys : others) * tile + columns * tile_q + (double)problem->d_v;
}

static const char *refuse(const struct offer *offer)
{
    const struct attention_problem *problem = offer->problem;
    const char *reason = attention_refuse(offer->caps, problem);
    if (reason)
        return reason;
    if (problem->is_double)
        return "the arrays are float64";
    if (problem->desc.scoring.kind != CLATTN_SCORE_DOT)
        return "scores are no dot products";
    if (problem->d_k > MAX_SIZE || problem->d_v > MAX_SIZE)
        return "a head size is above 512";
    if ((reason = attention_refuse_tiles(offer->caps)))
        return reason;
    const size_t chosen = choose(offer->caps, problem, 0);
    if (chosen == GEOMETRIES)
        return "the device's work-groups or local memory are too small";
    reason = refuse_loops(offer->caps, fmax(iterations(&geometries[chosen], problem), backward_summed(problem)));
    return reason ? reason : refuse_cpu(offer);
}

static void groups(const struct attention_backward_plan *plan, const struct attention_problem *problem, int kernel,
                   const attention_args *a, size_t count[3])
{
    const bool is_rows = kernel == BACKWARD_ROWS;
    count[0] = divide_up((size_t)(is_rows ? a->query_length : a->key_length), plan->items);
    count[1] = is_rows ? problem->heads : problem->kv_heads;
    count[2] = (size_t)a->batch;
}

static clattn_status prepare_geometry(struct attention_backward_plan *plan, const struct geometry *g)
{
    const size_t local[3] = {g->items_x, g->items_y, 1};
    struct strbuf options = {0};
    plan->items = g->tile_q;
    backward_define(plan, &options);
    define_int(&options, "TILE_Q", (long long)g->tile_q);
    define_int(&options, "TILE_K", (long long)g->tile_k);
    define_int(&options, "ITEMS_X", (long long)g->items_x);
    define_int(&options, "ITEMS_Y", (long long)g->items_y);
    define_int(&options, "CHUNK", (long long)g->chunk);
    define_int(&options, "VALUE_ROWS", (long long)g->value_rows);
    return backward_add_walks(plan, FILE_NAME, "attention_backward_tile_rows", "attention_backward_tile_keys", &options,
                              local);
}

/* Whether the compiler has put what belongs in registers into memory.  On a GPU these kernels have no other private memory than the
 * words of dropout's generator; what a user's function has is not known. */
static bool spills(const struct attention_backward_plan *plan)
{
    const cl_ulong words = plan->problem.desc.dropout.probability > 0 ? 4 * sizeof(cl_uint) : 0;
    bool found = false;
    for (size_t i = 0; i < plan->base.kernel_count; i++)
        found |= plan->base.kernels[i].private_bytes > words;
    return found && !capabilities_on_cpu(&plan->base.context->device.caps) && !attention_has_snippet(&plan->problem);
}

/* Whether no geometry behind this one fits and holds less. */
static bool holds_least(const struct capabilities *caps, const struct attention_problem *problem, size_t chosen)
{
    for (size_t i = chosen + 1; i < GEOMETRIES; i++)
        if (fits(caps, problem, &geometries[i]) &&
            held_floats(&geometries[i], problem) < held_floats(&geometries[chosen], problem))
            return false;
    return true;
}

/* A kernel may allow fewer items than the device, or spill: step down until one fits; what no other holds less than may spill. */
static clattn_status prepare(clattn_plan *base)
{
    struct attention_backward_plan *plan = (struct attention_backward_plan *)base;
    const struct capabilities *caps = &base->context->device.caps;
    clattn_status status = CLATTN_ERROR_UNSUPPORTED;
    plan->chunk = 8; /* of the kernels that the generic solver shares, which have no columns */
    plan->base.efficiency = attention_has_snippet(&plan->problem) ? 0.05 : 0.1;
    plan->groups = groups;
    plan->splits = 1;
    plan->lanes = 0;
    plan->weight_unit = 0;
    for (size_t i = choose(caps, &plan->problem, 0); i < GEOMETRIES; i = choose(caps, &plan->problem, i + 1)) {
        status = prepare_geometry(plan, &geometries[i]);
        if (status == CLATTN_SUCCESS && (holds_least(caps, &plan->problem, i) || !spills(plan)))
            break;
        if (status != CLATTN_SUCCESS && status != CLATTN_ERROR_UNSUPPORTED)
            break;
        plan_drop_kernels(base);
    }
    return status == CLATTN_SUCCESS ? backward_finish(plan) : status;
}

const struct solver attention_backward_tile_solver = {.name = "tile", .refuse = refuse, .prepare = prepare};
