/* Attention's backward direction on CPU devices: five products in one walk over the keys. */
#include <math.h>

#include "base/size.h"
#include "base/try.h"
#include "ops/attention/backward/backward.h"
#include "ops/attention/cpu/cpu.h"
#include "ops/common/arrays.h"
#include "ops/common/x86.h"
#include "program/defines.h"

#define AMX_TILE 32  /* rows, lanes and columns of AMX's tiles */
#define AMX_ROWS 128 /* of a block beside AMX, at most */
#define FILE_NAME "attention/backward/cpu.cl"
#define MOST_BYTES 1048576          /* of a work-item's private memory: half of the second-level cache beside AMX */
#define MOST_SUMS (256.0 * 1048576) /* bytes of the sums of several parts */

struct geometry {
    size_t lanes, vectors, step, key_tile;
    size_t unit; /* columns of which rows have a multiple */
};

enum products { PRODUCTS_FLOAT, PRODUCTS_PAIRS, PRODUCTS_AMX };

static size_t private_bytes(const struct geometry *g, const struct attention_problem *problem)
{
    const size_t d_k = round_up(problem->d_k, g->unit), d_v = round_up(problem->d_v, g->unit);
    const size_t rows = g->vectors * g->lanes, most = size_max(d_k, d_v);
    if (g->unit == AMX_TILE) /* a split number has 6 bytes, and is there beside the float */
        return rows * (16 * (d_k + d_v) + 4 * d_k + 4 * most + 28 * (g->key_tile + g->step)) +
               g->key_tile * (4 * (d_k + d_v) + 6 * most);
    return sizeof(float) * (rows * (3 * d_k + 2 * d_v + 5 * (g->key_tile + g->step)) + g->key_tile * (d_k + d_v));
}

/* The blocks have many queries, which share the time of splitting a tile of keys. */
static struct geometry amx_geometry(const struct capabilities *caps, const struct attention_problem *problem)
{
    const size_t lanes = size_max(caps->lanes, 8);
    struct geometry g = {.lanes = lanes, .vectors = AMX_ROWS / lanes, .step = 1, .key_tile = 64, .unit = AMX_TILE};
    while (g.vectors * lanes > AMX_TILE &&
           (g.vectors * lanes / 2 >= problem->query_length || private_bytes(&g, problem) > MOST_BYTES))
        g.vectors /= 2;
    return g;
}

static struct geometry geometry_of(const struct capabilities *caps, const struct attention_problem *problem,
                                   enum products products)
{
    if (products == PRODUCTS_AMX)
        return amx_geometry(caps, problem);
    const bool small = caps->quirks & (QUIRK_SLOW_COMPILER | QUIRK_SIMULATOR);
    struct geometry g = {.lanes = small ? 4 : caps->lanes, .step = small ? 2 : 6, .key_tile = 48};
    g.unit = g.lanes;
    g.vectors = small ? 1 : g.lanes == 16 ? 4 : 2;
    while (g.vectors > 1 && private_bytes(&g, problem) > MOST_BYTES)
        g.vectors /= 2;
    return g;
}

/* Why no kernel of this file takes the problem, or NULL. */
static const char *refuse_any(const struct offer *offer, enum products products)
{
    const struct attention_problem *problem = offer->problem;
    const bool *gradient = problem->gradient;
    const char *reason = cpu_refuse(problem);
    if (reason)
        return reason;
    if (problem->desc.scoring.kind != CLATTN_SCORE_DOT)
        return "scores are no dot products";
    if (gradient[GRADIENT_MASK] || gradient[GRADIENT_BIAS] || gradient[GRADIENT_ALIBI])
        return "there is a gradient of a mask, bias or slope";
    const struct geometry g = geometry_of(offer->caps, problem, products);
    if (private_bytes(&g, problem) > MOST_BYTES)
        return "a block takes too much memory";
    const double blocks = (double)divide_up(problem->query_length, g.lanes * g.vectors) *
                          (double)(problem->heads / size_max(problem->kv_heads, 1));
    const double turns = blocks * (double)problem->key_length * (double)(problem->d_k + problem->d_v);
    return refuse_loops(offer->caps, fmax(turns, backward_summed(problem)));
}

static const char *refuse(const struct offer *offer)
{
    const char *reason = refuse_any(offer, PRODUCTS_FLOAT);
    return reason ? reason : refuse_all_but_cpu(offer);
}

static const char *refuse_pairs(const struct offer *offer)
{
    const struct attention_problem *problem = offer->problem;
    if (!attention_inputs_are(problem, CLATTN_DTYPE_BF16) || problem->desc.gradients.output.dtype != CLATTN_DTYPE_BF16)
        return "query, key, value and gradients.output are not all bfloat16";
    const char *reason = refuse_any(offer, PRODUCTS_PAIRS);
    if (!reason)
        reason = cpu_refuse_few_keys(offer);
    return reason ? reason : refuse_all_but_cpu(offer);
}

static const char *refuse_amx(const struct offer *offer)
{
    const struct attention_problem *problem = offer->problem;
    const clattn_attention_desc *desc = &problem->desc;
    if (!x86_amx_takes(desc->query.dtype) || !x86_amx_takes(desc->key.dtype) || !x86_amx_takes(desc->value.dtype) ||
        !x86_amx_takes(desc->gradients.output.dtype))
        return "query, key, value or gradients.output is none of float32, float16 and bfloat16";
    if (offer->caps->quirks & (QUIRK_SLOW_COMPILER | QUIRK_SIMULATOR))
        return "this device is too slow for what stands in for AMX";
    const char *reason = refuse_any(offer, PRODUCTS_AMX);
    return reason ? reason : refuse_all_but_cpu(offer);
}

/* No processor with AMX has measured the solver.  Where one finds it faster than the others, x86_amx_only_named takes this function's
 * place. */
static const char *amx_only_named(const clattn_context *context)
{
    (void)context;
    return "no processor with AMX has measured it";
}

static void groups(const struct attention_backward_plan *plan, const struct attention_problem *problem, int kernel,
                   const attention_args *a, size_t count[3])
{
    count[0] = kernel == BACKWARD_ROWS ? plan->splits : 1;
    count[1] = kernel == BACKWARD_ROWS ? problem->kv_heads : (size_t)a->key_length;
    count[2] = (size_t)a->batch * (kernel == BACKWARD_ROWS ? 1 : problem->kv_heads);
}

/* Parts that leave no compute unit idle, of at least a block each; but their sums are not large. */
static size_t splits_of(const struct capabilities *caps, const struct attention_problem *problem, size_t rows)
{
    const size_t heads = size_max(1, problem->batch * problem->kv_heads);
    const size_t blocks = divide_up(problem->query_length, rows) * (problem->heads / size_max(problem->kv_heads, 1));
    const size_t units = caps->info.compute_units;
    if (heads >= 4 * units || heads % units == 0)
        return 1;
    const double sums =
        (double)heads * (double)problem->key_length * (double)(problem->d_k + problem->d_v) * sizeof(float);
    const size_t fit = sums > 0 ? (size_t)(MOST_SUMS / sums) : 1;
    return size_max(1, size_min(size_min(blocks, fit), divide_up(4 * units, heads)));
}

static clattn_status prepare(clattn_plan *base)
{
    clattn_status status;
    static const size_t one[3] = {1, 1, 1};
    struct attention_backward_plan *plan = (struct attention_backward_plan *)base;
    const struct attention_problem *problem = &plan->problem;
    const enum products products = (enum products)base->trying->variant;
    const struct geometry g = geometry_of(&base->context->device.caps, problem, products);
    const bool pairs = products == PRODUCTS_PAIRS, splits = products == PRODUCTS_AMX;
    bool has_amx = false;
    if (splits)
        TRY(x86_choose_amx(base, &has_amx));
    plan->weight_unit = pairs ? storage_epsilon(CLATTN_DTYPE_BF16) / 2 : 0;
    plan->groups = groups;
    plan->lanes = backward_has_keys(problem) ? g.unit : 0;
    plan->splits = splits_of(&base->context->device.caps, problem, g.lanes * g.vectors);
    plan->chunk = 8; /* of the kernels that the generic solver shares, which have no columns */
    plan->base.efficiency = attention_has_snippet(problem) ? 0.05 : 0.2;
    struct strbuf options = {0};
    backward_define(plan, &options);
    define_int(&options, "LANES", (long long)g.lanes);
    define_int(&options, "QUERY_VECTORS", (long long)g.vectors);
    define_int(&options, "KEY_STEP", (long long)g.step);
    define_int(&options, "KEY_TILE", (long long)g.key_tile);
    define_int(&options, "PAIRS", pairs);
    define_int(&options, "X86_BF16", pairs && base->context->device.caps.fast_bf16);
    if (splits) {
        define_int(&options, "SPLIT_FLOATS", 1);
        define_int(&options, "X86_AMX", has_amx);
    }
    TRY(backward_add_walks(plan, FILE_NAME, "attention_backward_cpu", "attention_backward_cpu_keys", &options, one));
    status = backward_finish(plan);
fail:
    return status;
}

const struct solver attention_backward_cpu_solver = {
    .name = "cpu", .refuse = refuse, .prepare = prepare, .variant = PRODUCTS_FLOAT};
const struct solver attention_backward_cpu_bf16_solver = {.name = "cpu-bf16",
                                                          .refuse = refuse_pairs,
                                                          .prepare = prepare,
                                                          .variant = PRODUCTS_PAIRS,
                                                          .only_named = x86_bf16_only_named};
const struct solver attention_backward_cpu_amx_solver = {
    .name = "cpu-amx", .refuse = refuse_amx, .prepare = prepare, .variant = PRODUCTS_AMX, .only_named = amx_only_named};
