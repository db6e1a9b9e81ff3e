/* Attention on GPU-class devices: a work-group owns a tile of queries and walks the keys through local
 * memory. */
#include "base/size.h"
#include "ops/attention/plan.h"
#include "ops/common/sub_groups.h"
#include "program/defines.h"

#define MAX_SIZE 512
#define SUB_GROUP 8            /* where there is a choice: what accumulates in registers leaves none for an item more */
#define NVIDIA_REGISTERS 65536 /* of a multiprocessor */
#define NVIDIA_NEEDS 48        /* registers that an item needs beside what it keeps: as ptxas 13.0 compiled it; */
#define NVIDIA_NEEDS_MORE 24   /* and if there are parts of keys, scales of integers, additive scores or dropout */
#define CHUNK 8
#define FEW_QUERIES 16 /* up to which the query heads of a key/value head share a work-group */

/* Largest first; cl/attention/gpu/shape.h says what the members are.  `chunk` is that of a whole Q in local memory; else it is
 * CHUNK, for want of registers. */
static const struct geometry {
    size_t tile_q, tile_k, items_x, items_y, chunk, value_rows;
} geometries[] = {
    {64, 64, 16, 8, 16, 8}, {32, 128, 32, 4, 8, 4}, {32, 64, 16, 8, 16, 8},
    {16, 128, 32, 4, 8, 4}, {16, 32, 8, 4, 8, 4},
};
#define GEOMETRIES (sizeof geometries / sizeof geometries[0])

static bool packs_heads(const struct attention_problem *problem)
{
    return problem->query_length <= FEW_QUERIES && problem->heads > problem->kv_heads &&
           problem->desc.scoring.kind == CLATTN_SCORE_DOT;
}

/* Rows of a head, or of a key/value head with all its query heads. */
static size_t rows_of(const struct attention_problem *problem)
{
    return problem->query_length * (packs_heads(problem) ? problem->heads / problem->kv_heads : 1);
}

static size_t local_bytes(const struct geometry *g, const struct attention_problem *problem, bool whole_query)
{
    size_t chunk = whole_query ? g->chunk : CHUNK, query_row = g->tile_q + 4;
    size_t queries = whole_query ? round_up(problem->d_k, chunk) * query_row : 0;
    size_t chunks = 2 * chunk * (g->tile_k + 4 + (whole_query ? 0 : query_row));
    size_t values = g->value_rows * round_up(problem->d_v, 4 * g->items_x);
    size_t stage = size_max(chunks, values + size_max(values, g->items_x * query_row));
    size_t places = problem->desc.cache.kind == CLATTN_CACHE_KIND_PLAIN
                        ? 0
                        : 2u + problem->has[ATTENTION_KEY_SCALE] + problem->has[ATTENTION_VALUE_SCALE];
    size_t state = g->tile_q * g->items_x * (2u + problem->has[ATTENTION_ENTROPY]);
    return 4 * (g->tile_k * query_row + queries + stage + 2 * chunk + state) + 8 * (g->tile_q + g->tile_k * places) +
           16 + 24 + 40;
}

/* How many work-groups with a whole Q a compute unit's local memory holds. */
static size_t whole_groups(const struct capabilities *caps, const struct geometry *g,
                           const struct attention_problem *problem)
{
    return (size_t)caps->local_most / local_bytes(g, problem, true);
}

/* Floats that an item keeps from tile to tile or through one: its part of the output and of the scores, what belongs to
 * its rows, and with a mask the addresses, of 64 bits, of these. */
static size_t kept_floats(const struct geometry *g, const struct attention_problem *problem)
{
    size_t columns = round_up(problem->d_v, 4 * g->items_x) / g->items_x;
    bool addressed = problem->has[ATTENTION_MASK] || problem->has[ATTENTION_BIAS];
    return g->tile_q / g->items_y * (columns + g->tile_k / g->items_x + 1 + (addressed ? 2 : 0));
}

static bool fits(const struct capabilities *caps, const struct attention_problem *problem,
                 const struct sub_groups *groups, const struct geometry *g)
{
    const clattn_device_info *info = &caps->info;
    size_t items = g->items_x * g->items_y;
    return items % groups->size == 0 && items <= info->max_work_group && g->items_x <= info->max_work_item[0] &&
           g->items_y <= info->max_work_item[1] && local_bytes(g, problem, false) <= capabilities_local_room(caps);
}

/* Whether `other`, which comes later, does better: a tile twice as long as all rows wastes half of its work, a slow compiler
 * or a simulator wants the smallest, and half of an item's registers are for what it keeps, the other half for what the
 * compiler needs besides (docs/offline.md has what compilers made of it). */
static bool beats(const clattn_context *context, const struct attention_problem *problem, const struct geometry *other,
                  const struct geometry *g)
{
    const struct capabilities *caps = &context->device.caps;
    size_t kept = kept_floats(g, problem), registers = caps->registers ? caps->registers : SIZE_MAX;
    return (caps->quirks & (QUIRK_SLOW_COMPILER | QUIRK_SIMULATOR)) ||
           (other->tile_q < g->tile_q && rows_of(problem) <= other->tile_q) ||
           (kept > registers / 2 && kept_floats(other, problem) < kept);
}

/* The first geometry from `from` on that the device's limits allow and none behind it beats, or GEOMETRIES. */
static size_t choose(const clattn_context *context, const struct attention_problem *problem,
                     const struct sub_groups *groups, size_t from)
{
    const struct capabilities *caps = &context->device.caps;
    for (size_t i = from; i < GEOMETRIES; i++) {
        bool best = fits(caps, problem, groups, &geometries[i]);
        for (size_t j = i + 1; j < GEOMETRIES && best; j++)
            best = !fits(caps, problem, groups, &geometries[j]) ||
                   !beats(context, problem, &geometries[j], &geometries[i]);
        if (best)
            return i;
    }
    return GEOMETRIES;
}

/* How often an item's loops turn at most; only those over registers count as unrolled. */
static double iterations(const struct geometry *g, const struct attention_problem *problem)
{
    double items = (double)(g->items_x * g->items_y), tile_q = (double)g->tile_q, tile_k = (double)g->tile_k;
    double rows = (double)(g->tile_q / g->items_y), keys = (double)(g->tile_k / g->items_x);
    double chunk = CHUNK, blocks = (double)divide_up(problem->d_v, 4 * g->items_x);
    double staged = 1 + 2 * ((tile_k + tile_q) * chunk / 4 / items + 2) + chunk;
    double value_rows = (double)g->value_rows;
    double value = tile_k / value_rows * (1 + 2 * (value_rows * blocks / (double)g->items_y + 1)) + tile_k;
    double softmax = 2 * rows * (keys + 1) + rows / 4 * (2 * keys + (double)g->items_x) + rows * keys / 4 * 12;
    double tile = (double)divide_up(problem->d_k, CHUNK) * staged + softmax + value + tile_k / items;
    double end = 2 * (double)g->items_x + blocks * tile_q * 4 / (double)g->items_y;
    return (double)(divide_up(problem->key_length, g->tile_k) + 1) * tile + end;
}

/* What the kernel does not take, however it reduces, or NULL. */
static const char *refuse_problem(const clattn_context *context, const struct attention_problem *problem,
                                  const struct sub_groups *groups)
{
    const char *reason = attention_refuse(&context->device.caps, problem);
    if (reason)
        return reason;
    if (problem->is_double)
        return "the arrays are float64";
    if (problem->d_k > MAX_SIZE || problem->d_v > MAX_SIZE)
        return "a head size is above 512";
    if ((reason = attention_refuse_tiles(&context->device.caps)))
        return reason;
    size_t chosen = choose(context, problem, groups, 0);
    if (chosen == GEOMETRIES)
        return "the device's work-groups or local memory are too small";
    return refuse_loops(&context->device.caps, iterations(&geometries[chosen], problem));
}

/* The number of registers that an item is held to on NVIDIA, whose compiler takes what it likes, so that up to four work-groups
 * share a multiprocessor as its local memory allows; 0: as it likes.  The plan's splits are known. */
static size_t register_limit(const struct attention_plan *plan, const struct geometry *g)
{
    const struct capabilities *caps = &plan->base.context->device.caps;
    const struct attention_problem *problem = &plan->problem;
    const bool scaled = problem->has[ATTENTION_KEY_SCALE] || problem->has[ATTENTION_VALUE_SCALE];
    const bool more = scaled || plan->splits > 1 || problem->desc.scoring.kind == CLATTN_SCORE_ADDITIVE ||
                      problem->desc.dropout.probability > 0;
    size_t items = g->items_x * g->items_y;
    size_t needed = kept_floats(g, problem) + NVIDIA_NEEDS + (more ? NVIDIA_NEEDS_MORE : 0);
    if (!capabilities_have(caps, "cl_nv_compiler_options"))
        return 0;
    for (size_t groups = size_min(whole_groups(caps, g, problem), 4); groups > 2; groups--) {
        size_t registers = NVIDIA_REGISTERS / (groups * items) / 8 * 8;
        if (registers < 255 && needed <= registers)
            return registers;
    }
    return 0;
}

static clattn_status prepare_geometry(struct attention_plan *plan, const struct geometry *g,
                                      const struct sub_groups *groups, bool held)
{
    const size_t local[3] = {g->items_x, g->items_y, 1};
    const struct capabilities *caps = &plan->base.context->device.caps;
    const bool packed = packs_heads(&plan->problem);
    const size_t whole = whole_groups(caps, g, &plan->problem);
    struct strbuf options = {0};
    attention_defines(&plan->problem, caps, &options);
    define_int(&options, "TILE_Q", (long long)g->tile_q);
    define_int(&options, "TILE_K", (long long)g->tile_k);
    define_int(&options, "ITEMS_X", (long long)g->items_x);
    define_int(&options, "ITEMS_Y", (long long)g->items_y);
    define_int(&options, "CHUNK", whole > 1 ? (long long)g->chunk : CHUNK);
    define_int(&options, "VALUE_ROWS", (long long)g->value_rows);
    sub_groups_define(groups, &options);
    if (packed)
        define_int(&options, "PACK_HEADS", 1);
    if (whole > 1)
        define_int(&options, "WHOLE_QUERY", 1);
    attention_begin_geometry(plan);
    plan->queries_per_group = packed ? 1 : g->tile_q;
    plan->rows_per_group = g->tile_q;
    plan->key_tile = g->tile_k;
    plan->groups = packed ? attention_groups_by_key_heads : attention_groups_by_queries;
    plan->base.efficiency = 0.1;
    plan->splits = attention_splits(&plan->problem, attention_group_count(plan), 2 * (size_t)caps->info.compute_units);
    if (held && register_limit(plan, g))
        strbuf_printf(&options, " -cl-nv-maxrregcount=%zu", register_limit(plan, g));
    return attention_add_kernel(plan, "attention/gpu/tile.cl", "attention_tile", &options, local);
}

/* Whether the compiler has put what belongs in registers into memory: on a GPU these kernels have no other private
 * memory. */
static bool spills(const clattn_plan *plan)
{
    return !capabilities_on_cpu(&plan->context->device.caps) && plan->kernels[0].private_bytes > 0;
}

/* The geometry of the tile that is given in place of geometries[i]'s; NULL: there is none, or it does not fit. */
static const struct geometry *tune(clattn_plan *base, const struct sub_groups *groups, size_t i)
{
    static const int32_t queries[] = {128, 64, 32, 16, -1}, keys[] = {128, 64, 32, -1};
    const struct attention_problem *problem = &((struct attention_plan *)base)->problem;
    const struct capabilities *caps = &base->context->device.caps;
    size_t tile_q = geometries[i].tile_q, tile_k = geometries[i].tile_k;
    tuning_parameter(&base->tuning, "queries", queries, &tile_q);
    tuning_parameter(&base->tuning, "keys", keys, &tile_k);
    for (size_t j = 0; j < GEOMETRIES; j++)
        if (geometries[j].tile_q == tile_q && geometries[j].tile_k == tile_k)
            return j == i || (fits(caps, problem, groups, &geometries[j]) &&
                              !refuse_loops(caps, iterations(&geometries[j], problem)))
                       ? &geometries[j]
                       : NULL;
    return NULL;
}

static const char *refuse(const struct offer *offer)
{
    const struct sub_groups groups = sub_groups_for(offer->context, offer->solver, SUB_GROUP);
    const char *reason = refuse_sub_groups(offer);
    if (!reason)
        reason = refuse_problem(offer->context, offer->problem, &groups);
    return reason ? reason : refuse_cpu(offer);
}

/* A kernel may allow fewer items than the device, or spill: step down until one fits; the smallest may spill. */
static clattn_status prepare(clattn_plan *base)
{
    const struct sub_groups groups = sub_groups_for(base->context, base->trying, SUB_GROUP);
    struct attention_plan *plan = (struct attention_plan *)base;
    clattn_status status = CLATTN_ERROR_UNSUPPORTED;
    for (size_t i = choose(base->context, &plan->problem, &groups, 0); i < GEOMETRIES;
         i = choose(base->context, &plan->problem, &groups, i + 1)) {
        const struct geometry *g = tune(base, &groups, i);
        if (!g)
            return report_error(&base->context->device.report, CLATTN_ERROR_UNSUPPORTED,
                                "there is no such tile, or it does not fit the device");
        status = prepare_geometry(plan, g, &groups, true);
        if (status == CLATTN_SUCCESS && spills(base) && register_limit(plan, g)) {
            plan_drop_kernels(base);
            status = prepare_geometry(plan, g, &groups, false);
        }
        if (g != &geometries[i])
            break; /* as it was asked for */
        bool last = choose(base->context, &plan->problem, &groups, i + 1) == GEOMETRIES;
        if (status != CLATTN_ERROR_UNSUPPORTED && (status != CLATTN_SUCCESS || last || !spills(base)))
            break;
        plan_drop_kernels(base);
    }
    if (status == CLATTN_SUCCESS)
        sub_groups_explain(&groups, base);
    return status;
}

const struct solver attention_tile_solver = {
    .name = "tile", .refuse = refuse, .prepare = prepare, .variant = REDUCE_LOCAL_MEMORY};
const struct solver attention_sub_group_solver = {
    .name = "sub-group", .refuse = refuse, .prepare = prepare, .variant = REDUCE_SUB_GROUPS};
const struct solver attention_emulated_sub_group_solver = {
    .name = "emulated-sub-group", .refuse = refuse, .prepare = prepare, .variant = REDUCE_EMULATED};
