/* Attention on CPU devices with queries across vector lanes, products of float or of bfloat16 pairs; few queries are left
 * to cl/attention/cpu/decode.cl, float64 to cl/attention/cpu/double.cl. */
#include "base/size.h"
#include "ops/attention/cpu/cpu.h"
#include "ops/common/arrays.h"
#include "ops/common/x86.h"
#include "program/defines.h"

struct geometry {
    struct cpu_geometry cpu;
    size_t vectors; /* of queries in a work-item */
    size_t step;    /* keys, or output columns, of a register tile */
    size_t unroll;  /* of the innermost loops */
};

/* How K and V are multiplied: as floats, or as bfloat16 pairs by an instruction or by what does the same in OpenCL C. */
enum products { PRODUCTS_FLOAT, PRODUCTS_BF16_X86, PRODUCTS_BF16 };

static const int32_t vectors[] = {1, 2, 4, -1}, steps[] = {4, 6, 8, -1}, tiles[] = {24, 48, 96, 144, 192, 288, -1};
static const int32_t unrolls[] = {1, 4, -1}, small_tiles[] = {24, 48, 96, -1};

static bool is_small(const struct capabilities *caps)
{
    return caps->quirks & (QUIRK_SLOW_COMPILER | QUIRK_SIMULATOR);
}

/* What a problem of many rows and one of few have in common. */
static struct cpu_geometry begin_geometry(const struct capabilities *caps, const struct attention_problem *problem,
                                          struct tuning *tuning)
{
    struct cpu_geometry g = {.lanes = is_small(caps) ? 4 : caps->lanes, .heads = 1};
    g.grouped = cpu_grouped(problem, g.lanes, tuning);
    return g;
}

/* 48 to 192 keys a tile tie on Zen 4 and 5.  With 48 a tile of float scores and of values stays in the first-level cache,
 * which an Intel core shows (docs/notes/kernels-attention.md); fewer keys than 96 are one tile. */
static size_t tile_of(const struct attention_problem *problem, bool on_intel)
{
    return problem->d_k + problem->d_v > 512 || (on_intel && problem->key_length > 96) ? 48 : 96;
}

/* Measured on Zen 4 and 5: 4 vectors x 6 for long sequences; for short ones, and if four would leave compute units idle,
 * 2 x 8, or a single vector if two would be too many.  A tile is a multiple of every step.  Large heads get fewer queries
 * and keys, so that a block stays within 256 KiB. */
static struct geometry geometry_of(const struct capabilities *caps, const struct attention_problem *problem,
                                   const struct cpu_geometry *begun, bool pairs, struct tuning *tuning)
{
    size_t sizes = problem->d_k + problem->d_v;
    bool large = sizes > 512;
    bool on_intel = !pairs && capabilities_pocl_on_intel(caps); /* measured with floats, and only there */
    size_t lanes = begun->lanes, rows = cpu_rows(problem, begun->grouped);
    struct geometry g = {.cpu = *begun, .vectors = lanes == 16 ? 4 : 2, .step = 6, .unroll = 1};
    g.cpu.key_tile = tile_of(problem, on_intel);
    if (is_small(caps)) {
        g.vectors = 1;
        g.step = 2;
        g.cpu.rows = lanes;
        tuning_parameter(tuning, "tile", small_tiles, &g.cpu.key_tile);
        return g;
    }
    size_t heads = problem->batch * (g.cpu.grouped ? problem->kv_heads : problem->heads);
    size_t units = caps->info.compute_units;
    /* On Intel 4 x 6, which loads less for a multiply-add, takes 0.86 to 0.95 of 2 x 8's time if it is as full. */
    bool full = on_intel && round_up(rows, 4 * lanes) == round_up(rows, 2 * lanes);
    if ((rows < 32 * lanes && !full) || heads * divide_up(rows, lanes * g.vectors) < 4 * units) {
        bool two = lanes == 16 && rows > lanes && heads * divide_up(rows, 2 * lanes) >= 2 * units;
        g.vectors = two ? 2 : 1;
        g.step = lanes == 16 ? 8 : 6;
    } else if (large && g.vectors > 2) {
        g.vectors = 2;
    }
    if (g.vectors * lanes * sizes * sizeof(float) > LARGE_BYTES)
        g.vectors = 1;
    tuning_parameter(tuning, "vectors", vectors, &g.vectors);
    tuning_parameter(tuning, "step", steps, &g.step);
    tuning_parameter(tuning, "tile", tiles, &g.cpu.key_tile);
    g.unroll = on_intel ? 4 : 1; /* 0.90 to 0.97 of the time there */
    if (!pairs)
        tuning_parameter(tuning, "unroll", unrolls, &g.unroll);
    g.cpu.rows = g.vectors * lanes;
    return g;
}

static const char *refuse_size(const struct capabilities *caps, const struct geometry *g,
                               const struct attention_problem *problem)
{
    const char *reason = cpu_refuse_block(&g->cpu, problem);
    return reason ? reason
                  : cpu_refuse_loops(caps, &g->cpu, problem, (double)(problem->d_k + problem->d_v) / (double)g->step);
}

/* Why the kernel or the device cannot run the geometry that tuning asked for, or NULL. */
static const char *mismatch(const struct geometry *g, const struct attention_problem *problem,
                            const struct capabilities *caps)
{
    if (g->cpu.key_tile % g->step)
        return "the tile is no multiple of what it consists of";
    return refuse_size(caps, g, problem);
}

static clattn_status prepare_by(struct attention_plan *plan, const struct cpu_geometry *begun, enum products products)
{
    static const size_t one[3] = {1, 1, 1};
    const struct capabilities *caps = &plan->base.context->device.caps;
    const struct attention_problem *problem = &plan->problem;
    const bool pairs = products != PRODUCTS_FLOAT;
    const struct geometry g = geometry_of(caps, problem, begun, pairs, &plan->base.tuning);
    const char *reason = mismatch(&g, problem, caps);
    struct strbuf options = {0};
    if (reason)
        return report_error(&plan->base.context->device.report, CLATTN_ERROR_UNSUPPORTED, "%s", reason);
    attention_begin_geometry(plan);
    plan->weight_unit = pairs ? storage_epsilon(CLATTN_DTYPE_BF16) / 2 : 0;
    cpu_plan(plan, &g.cpu, cpu_work_groups(caps, 1), g.vectors == 1 || g.step == 8 ? 0.2 : 0.4);
    attention_defines(problem, caps, &options);
    define_int(&options, "LANES", (long long)g.cpu.lanes);
    define_int(&options, "QUERY_VECTORS", (long long)g.vectors);
    define_int(&options, "KEY_STEP", (long long)g.step);
    define_int(&options, "COLUMN_STEP", (long long)g.step);
    define_int(&options, "UNROLL", (long long)g.unroll);
    define_int(&options, "PREFETCHES", capabilities_prefetch(caps));
    define_int(&options, "PAIRS", pairs);
    define_int(&options, "X86_BF16", products == PRODUCTS_BF16_X86);
    cpu_defines(plan, &g.cpu, &options);
    return attention_add_kernel(plan, "attention/cpu/lanes.cl", "attention_cpu", &options, one);
}

/* ---- float ---- */

static const char *refuse(const struct offer *offer)
{
    const struct attention_problem *problem = offer->problem;
    const struct capabilities *caps = offer->caps;
    if (problem->is_double)
        return cpu_double_refuse(offer);
    const char *reason = cpu_refuse(problem);
    if (reason)
        return reason;
    const struct cpu_geometry begun = begin_geometry(caps, problem, NULL);
    if (cpu_decodes(problem, &begun, NULL)) {
        reason = cpu_decode_refuse(offer->context, problem, &begun);
    } else {
        const struct geometry g = geometry_of(caps, problem, &begun, false, NULL);
        reason = refuse_size(caps, &g, problem);
    }
    return reason ? reason : refuse_all_but_cpu(offer);
}

static clattn_status prepare(clattn_plan *base)
{
    struct attention_plan *plan = (struct attention_plan *)base;
    if (plan->problem.is_double)
        return cpu_double_prepare(plan);
    const struct cpu_geometry begun = begin_geometry(&base->context->device.caps, &plan->problem, &base->tuning);
    return cpu_decodes(&plan->problem, &begun, &base->tuning) ? cpu_decode_prepare(plan, &begun)
                                                              : prepare_by(plan, &begun, PRODUCTS_FLOAT);
}

const struct solver attention_cpu_solver = {.name = "cpu", .refuse = refuse, .prepare = prepare};

/* ---- bfloat16 pairs ---- */

static const char *refuse_pairs(const struct offer *offer)
{
    const struct attention_problem *problem = offer->problem;
    const struct capabilities *caps = offer->caps;
    if (!attention_inputs_are(problem, CLATTN_DTYPE_BF16))
        return "query, key and value are not all bfloat16";
    const char *reason = cpu_refuse_bf16_products(problem);
    if (!reason)
        reason = cpu_refuse(problem);
    if (reason)
        return reason;
    const struct cpu_geometry begun = begin_geometry(caps, problem, NULL);
    if (cpu_decodes(problem, &begun, NULL))
        return "few queries wait for memory, not for arithmetic";
    reason = cpu_refuse_few_keys(offer);
    if (reason)
        return reason;
    const struct geometry g = geometry_of(caps, problem, &begun, true, NULL);
    reason = refuse_size(caps, &g, problem);
    return reason ? reason : refuse_all_but_cpu(offer);
}

static clattn_status prepare_pairs(clattn_plan *base)
{
    struct attention_plan *plan = (struct attention_plan *)base;
    const struct capabilities *caps = &base->context->device.caps;
    const struct cpu_geometry begun = begin_geometry(caps, &plan->problem, &base->tuning);
    return prepare_by(plan, &begun, caps->fast_bf16 ? PRODUCTS_BF16_X86 : PRODUCTS_BF16);
}

const struct solver attention_cpu_bf16_solver = {
    .name = "cpu-bf16", .refuse = refuse_pairs, .prepare = prepare_pairs, .only_named = x86_bf16_only_named};
