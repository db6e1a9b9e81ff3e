/* Attention's backward direction of float16 or bfloat16 by NVIDIA's matrix engine (cl/attention/backward/matrix.cl), and by the same
 * kernels with the engine emulated, which is for tests: only a caller who names it gets it.
 *
 * The kernels have run on no GPU, so the planner takes this solver only if the self-check compares them with gradients in double
 * precision on the device itself. */
#include <math.h>

#include "base/size.h"
#include "base/try.h"
#include "ops/attention/backward/backward.h"
#include "ops/common/arrays.h"
#include "program/defines.h"

enum { REAL, EMULATED }; /* variants: by the engine itself, or in plain OpenCL C */

#define LANES 32
#define SIDE 16
#define MOST_COLUMNS 128 /* whose sums an item's registers hold */

/* Sub-groups of a work-group, each with 16 rows, and the rows of a walk's step; largest first. */
static const struct geometry {
    size_t warps, tile;
} geometries[] = {{4, 32}, {2, 32}, {1, 16}};
#define GEOMETRIES COUNT_OF(geometries)

/* Elements of a row in local memory. */
static size_t width_of(const struct attention_problem *problem)
{
    const size_t size = size_max(problem->d_k, problem->d_v);
    return size <= 16 ? 16 : size <= 32 ? 32 : round_up(size, 64);
}

/* Local memory of either kernel, at most. */
static size_t local_bytes(const struct attention_problem *problem, const struct geometry *g)
{
    const size_t own = SIDE * g->warps, scratch = g->warps * 2 * SIDE * SIDE * sizeof(uint16_t); /* emulation's */
    const size_t rows = 2 * (own + g->tile) * width_of(problem) * sizeof(uint16_t);
    const size_t pairs = own * g->tile * sizeof(uint16_t) + 2 * own * (g->tile + 4) * sizeof(float);
    return rows + pairs + (LANES * g->warps + 2 * own + 3 * g->tile) * sizeof(float) + scratch + 64;
}

/* The first geometry from `from` on that the device's limits allow, or GEOMETRIES; a slow compiler or a simulator wants the smallest. */
static size_t choose(const struct capabilities *caps, const struct attention_problem *problem, size_t from)
{
    const bool smallest = caps->quirks & (QUIRK_SLOW_COMPILER | QUIRK_SIMULATOR);
    for (size_t i = smallest ? size_max(from, GEOMETRIES - 1) : from; i < GEOMETRIES; i++) {
        const struct geometry *g = &geometries[i];
        if (LANES * g->warps <= caps->info.max_work_group && LANES <= caps->info.max_work_item[0] &&
            g->warps <= caps->info.max_work_item[1] && local_bytes(problem, g) <= capabilities_local_room(caps))
            return i;
    }
    return GEOMETRIES;
}

/* What the kernels do not take, or NULL. */
static const char *refuse_problem(const struct offer *offer)
{
    const struct attention_problem *problem = offer->problem;
    const char *reason = attention_refuse(offer->caps, problem);
    if (reason)
        return reason;
    const clattn_dtype dtype = problem->desc.query.dtype;
    if ((dtype != CLATTN_DTYPE_F16 && dtype != CLATTN_DTYPE_BF16) || !attention_inputs_are(problem, dtype) ||
        problem->desc.gradients.output.dtype != dtype)
        return "query, key, value and gradients.output must all be float16 or all bfloat16";
    if (problem->desc.scoring.kind != CLATTN_SCORE_DOT)
        return "scores are no dot products";
    if (problem->d_k > MOST_COLUMNS || problem->d_v > MOST_COLUMNS)
        return "a head size is above 128";
    if (choose(offer->caps, problem, 0) == GEOMETRIES)
        return "the device's work-groups or local memory are too small";
    return NULL;
}

static const char *refuse(const struct offer *offer)
{
    const struct capabilities *caps = offer->caps;
    if (caps->matrix == MATRIX_NONE)
        return caps->no_matrix;
    if (caps->matrix != MATRIX_MMA)
        return "so far it is written for NVIDIA's engine alone";
    const char *reason = refuse_problem(offer);
    if (reason || offer->forced)
        return reason;
    const struct attention_problem *problem = offer->problem;
    if (problem->query_length < SIDE)
        return "most of a square of 16 x 16 would be idle";
    if (!offer->context->programs.checks)
        return "the planner takes it only behind the self-check, which is off";
    if (attention_has_snippet(problem))
        return "the planner takes it only behind the self-check, which knows no user's functions";
    return NULL;
}

static void groups(const struct attention_backward_plan *plan, const struct attention_problem *problem, int kernel,
                   const attention_args *a, size_t count[3])
{
    const bool is_rows = kernel == BACKWARD_ROWS;
    count[0] = is_rows ? divide_up((size_t)a->query_length, plan->items)
                       : divide_up((size_t)a->key_length, plan->items) *
                             ((size_t)problem->gradient[GRADIENT_KEY] + (size_t)problem->gradient[GRADIENT_VALUE]);
    count[1] = is_rows ? problem->heads : problem->kv_heads;
    count[2] = (size_t)a->batch;
}

static clattn_status prepare_geometry(struct attention_backward_plan *plan, const struct geometry *g)
{
    const struct attention_problem *problem = &plan->problem;
    const size_t local[3] = {LANES, g->warps, 1};
    struct strbuf options = {0};
    plan->items = SIDE * g->warps;
    backward_define(plan, &options);
    define_int(&options, "MATRIX_ENGINE", MATRIX_MMA);
    define_int(&options, "MATRIX_BF16", problem->desc.query.dtype == CLATTN_DTYPE_BF16);
    define_int(&options, "MATRIX_EMULATED", plan->base.trying->variant == EMULATED);
    define_int(&options, "WARPS", (long long)g->warps);
    define_int(&options, "TILE", (long long)g->tile);
    define_int(&options, "WIDTH", (long long)width_of(problem));
    return backward_add_walks(plan, "attention/backward/matrix.cl", "attention_backward_matrix_rows",
                              "attention_backward_matrix_keys", &options, local);
}

/* A kernel may allow fewer items than the device: step down until one fits. */
static clattn_status prepare(clattn_plan *base)
{
    clattn_status status = CLATTN_ERROR_UNSUPPORTED;
    struct attention_backward_plan *plan = (struct attention_backward_plan *)base;
    const struct capabilities *caps = &base->context->device.caps;
    const bool emulated = base->trying->variant == EMULATED;
    plan->weight_unit = storage_epsilon(plan->problem.desc.query.dtype) / 2;
    plan->groups = groups;
    plan->lanes = 0;
    plan->splits = 1;
    plan->chunk = 8; /* of the kernels that the generic solver shares, which have no columns */
    plan->base.efficiency = emulated ? 0.0001 : 0.05;
    for (size_t i = choose(caps, &plan->problem, 0); i < GEOMETRIES; i = choose(caps, &plan->problem, i + 1)) {
        status = prepare_geometry(plan, &geometries[i]);
        if (status != CLATTN_ERROR_UNSUPPORTED)
            break;
        plan_drop_kernels(base);
    }
    TRY(status);
    strbuf_printf(&base->explain, "    %s%s\n", matrix_engine_name(MATRIX_MMA), emulated ? ", emulated" : "");
    status = backward_finish(plan);
fail:
    return status;
}

const struct solver attention_backward_matrix_solver = {
    .name = "matrix", .refuse = refuse, .prepare = prepare, .variant = REAL};

/* ---- the emulation ---- */

/* The loops of an item: for each square of pairs, products along d_k and d_v twice each, and what is staged. */
static const char *refuse_emulation(const struct offer *offer)
{
    const struct attention_problem *problem = offer->problem;
    const char *reason = refuse_problem(offer);
    if (reason)
        return reason;
    const struct geometry *g = &geometries[choose(offer->caps, problem, 0)];
    const double floats = (double)SIDE * SIDE / LANES, product = floats * (SIDE + 8);
    const double products = 2 * (double)(divide_up(problem->d_k, SIDE) + divide_up(problem->d_v, SIDE));
    const double columns = 2 * (double)width_of(problem) / 8;
    const double staged = (double)g->tile * columns / (double)(LANES * g->warps) * 9;
    const double group = (double)(problem->heads / size_max(problem->kv_heads, 1));
    const double tiles =
        (double)divide_up(size_max(problem->key_length, problem->query_length), g->tile) * group + group;
    const double turns = tiles * ((double)(g->tile / SIDE) * (products * product + floats) + staged) + 1000;
    return refuse_loops(offer->caps, fmax(turns, backward_summed(problem)));
}

const struct solver attention_backward_emulated_mma_solver = {
    .name = "emulated-mma", .refuse = refuse_emulation, .prepare = prepare, .variant = EMULATED};
