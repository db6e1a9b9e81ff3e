/* Attention's backward direction of bfloat16 by a GPU's matrix engine (cl/attention/backward/matrix.cl), and the same kernels with an
 * engine emulated, for tests: only by name.
 *
 * The kernels have run on no GPU, so the planner takes this solver only if the self-check compares them with gradients in double
 * precision on the device itself. */
#include "base/size.h"
#include "base/try.h"
#include "ops/attention/backward/backward.h"
#include "ops/common/arrays.h"
#include "program/defines.h"

#define SIDE 16
#define MOST_COLUMNS 128 /* whose sums an item's registers hold, once for dK and once for dV */

/* Sub-groups of a work-group, each with 16 rows, and the rows of a walk's step; largest first. */
static const struct geometry {
    size_t warps, tile;
} geometries[] = {{4, 32}, {2, 32}, {1, 16}};
#define GEOMETRIES COUNT_OF(geometries)

/* Elements of a row in local memory. */
static size_t width_of(size_t size)
{
    return size <= 16 ? 16 : size <= 32 ? 32 : round_up(size, 64);
}

/* Local memory of the kernel that needs more. */
static size_t local_bytes(const struct attention_problem *problem, const struct geometry *g)
{
    const size_t own = SIDE * g->warps, squares = SIDE * SIDE * sizeof(uint16_t);
    const size_t tiles = (own + g->tile) * (width_of(problem->d_k) + width_of(problem->d_v)) * sizeof(uint16_t);
    const size_t weights = own * g->tile * 2 * sizeof(uint16_t), sums = own * 2 * SIDE * sizeof(float);
    const size_t scratch = g->warps * 2 * squares; /* emulation's */
    return tiles + size_max(weights, weights / 2 + sums) + 3 * size_max(own, g->tile) * sizeof(float) + scratch + 64;
}

/* The first geometry from `from` on that the device's limits allow, or GEOMETRIES; a slow compiler or a simulator wants the smallest. */
static size_t choose(const struct capabilities *caps, const struct attention_problem *problem,
                     enum matrix_engine engine, size_t from)
{
    const size_t lanes = matrix_engine_lanes(engine);
    const bool smallest = caps->quirks & (QUIRK_SLOW_COMPILER | QUIRK_SIMULATOR);
    for (size_t i = smallest ? size_max(from, GEOMETRIES - 1) : from; i < GEOMETRIES; i++) {
        const struct geometry *g = &geometries[i];
        if (lanes * g->warps <= caps->info.max_work_group && lanes <= caps->info.max_work_item[0] &&
            g->warps <= caps->info.max_work_item[1] && local_bytes(problem, g) <= capabilities_local_room(caps))
            return i;
    }
    return GEOMETRIES;
}

static enum matrix_engine engine_of(const struct capabilities *caps, const struct solver *solver)
{
    return solver->variant == MATRIX_NONE ? caps->matrix : (enum matrix_engine)solver->variant;
}

/* What the kernels do not take, or NULL. */
static const char *refuse_problem(const struct offer *offer)
{
    const struct attention_problem *problem = offer->problem;
    const char *reason = attention_refuse(offer->caps, problem);
    if (reason)
        return reason;
    if (!attention_inputs_are(problem, CLATTN_DTYPE_BF16) || problem->desc.gradients.output.dtype != CLATTN_DTYPE_BF16)
        return "query, key, value and gradients.output are not all bfloat16; in float16 small derivatives would vanish";
    if (problem->desc.scoring.kind != CLATTN_SCORE_DOT)
        return "scores are no dot products";
    if (problem->d_k > MOST_COLUMNS || problem->d_v > MOST_COLUMNS)
        return "a head size is above 128";
    if (choose(offer->caps, problem, engine_of(offer->caps, offer->solver), 0) == GEOMETRIES)
        return "the device's work-groups or local memory are too small";
    return NULL;
}

static const char *refuse(const struct offer *offer)
{
    const struct capabilities *caps = offer->caps;
    if (caps->matrix == MATRIX_NONE)
        return caps->no_matrix;
    if (caps->matrix == MATRIX_DPAS8 || caps->matrix == MATRIX_DPAS16)
        return "Intel's engine has too few registers for the sums";
    const char *reason = refuse_problem(offer);
    if (reason || offer->forced)
        return reason;
    if (!offer->context->programs.checks)
        return "the planner takes it only behind the self-check, which is off";
    return NULL;
}

static void groups(const struct attention_backward_plan *plan, const struct attention_problem *problem, int kernel,
                   const attention_args *a, size_t count[3])
{
    const bool is_rows = kernel == BACKWARD_ROWS;
    count[0] = divide_up((size_t)(is_rows ? a->query_length : a->key_length), plan->items);
    count[1] = is_rows ? problem->heads : problem->kv_heads;
    count[2] = (size_t)a->batch;
}

static clattn_status prepare_geometry(struct attention_backward_plan *plan, enum matrix_engine engine,
                                      const struct geometry *g)
{
    clattn_status status;
    static const struct {
        const char *name;
        cl_uint pointers;
    } kernels[] = {[BACKWARD_ROWS] = {"attention_backward_matrix_rows", BACKWARD_ROWS_POINTERS},
                   [BACKWARD_KEYS] = {"attention_backward_matrix_keys", BACKWARD_KEYS_POINTERS}};
    const struct attention_problem *problem = &plan->problem;
    const bool emulated = plan->base.trying->variant != MATRIX_NONE;
    const size_t local[3] = {matrix_engine_lanes(engine), g->warps, 1};
    const bool has_keys = problem->gradient[GRADIENT_KEY] || problem->gradient[GRADIENT_VALUE];
    plan->items = SIDE * g->warps;
    for (int i = BACKWARD_ROWS; i <= (has_keys ? BACKWARD_KEYS : BACKWARD_ROWS); i++) {
        struct strbuf options = {0};
        backward_define(plan, &options);
        define_int(&options, "MATRIX_ENGINE", engine);
        define_int(&options, "MATRIX_EMULATED", emulated);
        define_int(&options, "WARPS", (long long)g->warps);
        define_int(&options, "TILE", (long long)g->tile);
        TRY(backward_add_kernel(plan, i, "attention/backward/matrix.cl", kernels[i].name, kernels[i].pointers, &options,
                                local));
    }
    status = CLATTN_SUCCESS;
fail:
    return status;
}

/* A kernel may allow fewer items than the device: step down until one fits. */
static clattn_status prepare(clattn_plan *base)
{
    clattn_status status = CLATTN_ERROR_UNSUPPORTED;
    struct attention_backward_plan *plan = (struct attention_backward_plan *)base;
    const struct capabilities *caps = &base->context->device.caps;
    const enum matrix_engine engine = engine_of(caps, base->trying);
    const bool emulated = base->trying->variant != MATRIX_NONE;
    plan->weight_unit = storage_epsilon(CLATTN_DTYPE_BF16) / 2;
    plan->groups = groups;
    plan->lanes = 0;
    plan->splits = 1;
    plan->chunk = 8; /* of the kernels that the generic solver shares, which have no columns */
    plan->base.efficiency = emulated ? 0.0001 : 0.05;
    for (size_t i = choose(caps, &plan->problem, engine, 0); i < GEOMETRIES;
         i = choose(caps, &plan->problem, engine, i + 1)) {
        status = prepare_geometry(plan, engine, &geometries[i]);
        if (status != CLATTN_ERROR_UNSUPPORTED)
            break;
        plan_drop_kernels(base);
    }
    TRY(status);
    strbuf_printf(&base->explain, "    %s%s\n", matrix_engine_name(engine), emulated ? ", emulated" : "");
    status = backward_finish(plan);
fail:
    return status;
}

const struct solver attention_backward_matrix_solver = {
    .name = "matrix", .refuse = refuse, .prepare = prepare, .variant = MATRIX_NONE};

/* ---- emulations ---- */

/* The loops of an item: for each square of pairs, products along d_k and d_v twice each, and what is staged. */
static const char *refuse_emulation(const struct offer *offer)
{
    const struct attention_problem *problem = offer->problem;
    const enum matrix_engine engine = (enum matrix_engine)offer->solver->variant;
    const char *reason = refuse_problem(offer);
    if (reason)
        return reason;
    const struct geometry *g = &geometries[choose(offer->caps, problem, engine, 0)];
    const double floats = (double)SIDE * SIDE / matrix_engine_lanes(engine), product = floats * (SIDE + 8);
    const double products = 2 * (double)(divide_up(problem->d_k, SIDE) + divide_up(problem->d_v, SIDE));
    const double columns = (double)(width_of(problem->d_k) + width_of(problem->d_v)) / 8;
    const double staged = (double)g->tile * columns / (double)(matrix_engine_lanes(engine) * g->warps) * 9;
    const double group = (double)(problem->heads / size_max(problem->kv_heads, 1));
    const double tiles =
        (double)divide_up(size_max(problem->key_length, problem->query_length), g->tile) * group + group;
    return refuse_loops(offer->caps,
                        tiles * ((double)(g->tile / SIDE) * (products * product + floats) + staged) + 1000);
}

#define EMULATION(NAME, ENGINE) {.name = NAME, .refuse = refuse_emulation, .prepare = prepare, .variant = ENGINE}
const struct solver attention_backward_emulations[BACKWARD_EMULATIONS] = {
    EMULATION("emulated-mma", MATRIX_MMA),
    EMULATION("emulated-wmma", MATRIX_WMMA),
    EMULATION("emulated-mfma", MATRIX_MFMA),
};
