/* Attention of float16 or bfloat16 by NVIDIA's matrix engine (cl/attention/gpu/matrix.cl), and the same kernel with the engine
 * emulated, for tests: only by name.
 *
 * The engine has run on one GPU, by one driver, so the planner takes this solver only if the self-check compares its kernels
 * with the reference on the device itself. */
#include "base/size.h"
#include "ops/common/arrays.h"
#include "ops/attention/plan.h"
#include "program/defines.h"

enum { REAL, EMULATED }; /* variants: by the engine itself, or in plain OpenCL C */

#define LANES 32
#define SIDE 16
#define MAX_SIZE 256
#define SCALE_MIN 1e-30f
#define SCALE_MAX 1e30f

/* Sub-groups of a work-group, squares of 16 queries that each owns, keys of a tile; largest first. */
static const struct geometry {
    size_t warps, squares, tile_k;
} geometries[] = {{4, 2, 64}, {4, 2, 32}, {4, 1, 32}, {2, 1, 32}, {1, 1, 16}};
#define GEOMETRIES (sizeof geometries / sizeof geometries[0])

static size_t rows_of(const struct geometry *g)
{
    return SIDE * g->warps * g->squares;
}

/* Elements of a row in local memory. */
static size_t width_of(const struct attention_problem *problem)
{
    size_t size = size_max(problem->d_k, problem->d_v);
    return size > 128 ? 256 : size > 64 ? 128 : 64;
}

/* Whether so many work-groups fit the local memory of a compute unit, and one the device's other limits; an item has registers
 * for 256 columns of one square's output. */
static bool fits(const struct capabilities *caps, const struct attention_problem *problem, const struct geometry *g,
                 size_t groups)
{
    const clattn_device_info *info = &caps->info;
    size_t scratch = g->warps * (g->squares + 1) * SIDE * SIDE * sizeof(uint16_t) + sizeof(uint32_t); /* emulation's */
    size_t bytes = (rows_of(g) + 4 * g->tile_k) * width_of(problem) * sizeof(uint16_t) + scratch + 64;
    return g->squares * width_of(problem) <= 256 && LANES * g->warps <= info->max_work_group &&
           LANES <= info->max_work_item[0] && g->warps <= info->max_work_item[1] &&
           bytes <= capabilities_local_room(caps) / groups;
}

/* The first geometry from `from` on of which a compute unit holds two work-groups, so that one's exponentials hide behind the
 * other's products, or else the first that the device's limits allow; a slow compiler or a simulator wants the smallest. */
static size_t choose(const clattn_context *context, const struct attention_problem *problem, size_t from)
{
    const struct capabilities *caps = &context->device.caps;
    bool smallest = caps->quirks & (QUIRK_SLOW_COMPILER | QUIRK_SIMULATOR);
    for (size_t groups = 2; groups > 0; groups--)
        for (size_t i = smallest ? size_max(from, GEOMETRIES - 1) : from; i < GEOMETRIES; i++)
            if (fits(caps, problem, &geometries[i], groups))
                return i;
    return GEOMETRIES;
}

/* What the kernel does not take, or NULL. */
static const char *refuse_problem(const clattn_context *context, const struct attention_problem *problem)
{
    const clattn_attention_desc *desc = &problem->desc;
    const struct capabilities *caps = &context->device.caps;
    const char *reason = attention_refuse(caps, problem);
    static const enum attention_array foreign[] = {ATTENTION_MASK,      ATTENTION_BIAS,   ATTENTION_ALIBI,
                                                   ATTENTION_ENTROPY,   ATTENTION_SCORES, ATTENTION_QUERY_STARTS,
                                                   ATTENTION_KEY_STARTS};
    if (reason)
        return reason;
    if (desc->query.dtype != desc->key.dtype || desc->query.dtype != desc->value.dtype ||
        (desc->query.dtype != CLATTN_DTYPE_F16 && desc->query.dtype != CLATTN_DTYPE_BF16))
        return "query, key and value must all be float16 or all bfloat16";
    if (problem->d_k > MAX_SIZE || problem->d_v > MAX_SIZE)
        return "a head size is above 256";
    if (desc->cache.kind != CLATTN_CACHE_KIND_PLAIN)
        return "the cache is a ring or paged";
    if (desc->scoring.kind != CLATTN_SCORE_DOT || desc->scoring.softcap > 0 || attention_has_snippet(problem) ||
        desc->dropout.probability > 0)
        return "a score is more than a scaled product, or dropout is asked for";
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++)
        if (problem->has[foreign[i]])
            return "masks, biases, slopes, entropy, scores and packed sequences belong to other solvers";
    if (!(problem->scale >= SCALE_MIN && problem->scale <= SCALE_MAX))
        return "the scale is not positive, or extreme";
    if (choose(context, problem, 0) == GEOMETRIES)
        return "the device's work-groups or local memory are too small";
    return NULL;
}

static clattn_status prepare_geometry(struct attention_plan *plan, const struct geometry *g, bool emulated)
{
    const struct attention_problem *problem = &plan->problem;
    const size_t local[3] = {LANES, g->warps, 1};
    struct strbuf options = {0};
    attention_defines(problem, &plan->base.context->device.caps, &options);
    define_int(&options, "MATRIX_ENGINE", 1);
    define_int(&options, "MATRIX_BF16", problem->desc.query.dtype == CLATTN_DTYPE_BF16);
    define_int(&options, "MATRIX_EMULATED", emulated);
    define_int(&options, "WARPS", (long long)g->warps);
    define_int(&options, "SQUARES_Q", (long long)g->squares);
    define_int(&options, "TILE_K", (long long)g->tile_k);
    define_int(&options, "WIDTH", (long long)width_of(problem));
    plan->queries_per_group = plan->rows_per_group = rows_of(g);
    plan->groups = attention_groups_by_queries;
    plan->base.efficiency = emulated ? 0.0001 : 0.1;
    attention_begin_geometry(plan);
    plan->weight_unit = storage_epsilon(problem->desc.query.dtype) / 2;
    return attention_add_kernel(plan, "attention/gpu/matrix.cl", "attention_matrix", &options, local);
}

/* A kernel may allow fewer items than the device: step down until one fits. */
static clattn_status prepare(clattn_plan *base)
{
    const bool emulated = base->trying->variant == EMULATED;
    struct attention_plan *plan = (struct attention_plan *)base;
    clattn_status status = CLATTN_ERROR_UNSUPPORTED;
    for (size_t i = choose(base->context, &plan->problem, 0); i < GEOMETRIES;
         i = choose(base->context, &plan->problem, i + 1)) {
        status = prepare_geometry(plan, &geometries[i], emulated);
        if (status != CLATTN_ERROR_UNSUPPORTED)
            break;
        plan_drop_kernels(base);
    }
    if (status == CLATTN_SUCCESS)
        strbuf_printf(&base->explain, "    %s%s\n", matrix_engine_name(MATRIX_MMA), emulated ? ", emulated" : "");
    return status;
}

static const char *refuse(const struct offer *offer)
{
    const struct capabilities *caps = offer->caps;
    const struct attention_problem *problem = offer->problem;
    if (caps->matrix == MATRIX_NONE)
        return caps->no_matrix;
    if (caps->matrix != MATRIX_MMA)
        return "so far it is written for NVIDIA's engine alone";
    const char *reason = refuse_problem(offer->context, problem);
    if (reason || offer->forced)
        return reason;
    if (problem->query_length < SIDE)
        return "most of a square of 16 x 16 would be idle";
    if (!offer->context->programs.checks)
        return "the planner takes it only behind the self-check, which is off";
    return NULL;
}

const struct solver attention_matrix_solver = {.name = "matrix", .refuse = refuse, .prepare = prepare, .variant = REAL};

/* ---- the emulation ---- */

/* The loops of an item for a tile of keys: of each square's product with 16 of the depth or of the columns, sums of 16
 * for its 8 floats and what it exchanges. */
static double iterations(const struct attention_problem *problem, const struct geometry *g)
{
    double width = (double)width_of(problem), tiles = (double)divide_up(problem->key_length, g->tile_k) + 1;
    double squares = (double)(g->tile_k / SIDE),
           depths = (double)(divide_up(problem->d_k, SIDE) + divide_up(problem->d_v, SIDE));
    double staged = 2 * (double)g->tile_k * width / 8 / (double)(LANES * g->warps) * 9;
    return tiles * (squares * (depths * 180 + 32) + staged) + 1000;
}

static const char *refuse_emulation(const struct offer *offer)
{
    const struct attention_problem *problem = offer->problem;
    const char *reason = refuse_problem(offer->context, problem);
    return reason ? reason
                  : refuse_loops(offer->caps, iterations(problem, &geometries[choose(offer->context, problem, 0)]));
}

const struct solver attention_emulated_mma_solver = {
    .name = "emulated-mma", .refuse = refuse_emulation, .prepare = prepare, .variant = EMULATED};
