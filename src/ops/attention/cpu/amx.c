/* Attention on CPU devices by AMX, of bfloat16 or of splits of float32 and float16 into bfloat16. */
#include "base/size.h"
#include "base/try.h"
#include "ops/attention/cpu/cpu.h"
#include "ops/common/arrays.h"
#include "ops/common/x86.h"
#include "program/defines.h"

#define AMX_BLOCK 32       /* rows of a block */
#define MAX_SIZE 512       /* d_k and d_v */
#define AMX_BYTES 1048576  /* of a work-item: half of the second-level cache beside AMX */
#define SPLIT_BYTES 655360 /* of these, for blocks of split floats */
#define SPLIT_ROWS 128     /* rows of a key head for which splitting its keys begins to pay, */
#define SPLIT_KEYS 96      /* keys, */
#define SPLIT_SIZES 48     /* and columns of K and V together: each is filled up to 32 */

struct geometry {
    struct cpu_geometry cpu;
    size_t blocks;   /* of AMX_BLOCK rows in a work-item */
    size_t gathered; /* keys that are brought into tiles at a time */
};

static const int32_t tiles[] = {32, 64, 96, 128, 192, 256, 512, -1}, block_counts[] = {1, 2, 4, 8, 16, 32, -1};
static const int32_t gathered_keys[] = {128, 256, 512, 1024, 2048, -1};

/* Whether each number is split into bfloat16: unless all are bfloat16 already. */
static bool splits_floats(const struct attention_problem *problem)
{
    return !attention_inputs_are(problem, CLATTN_DTYPE_BF16);
}

/* Bytes of a work-item's blocks of queries. */
static size_t block_bytes(const struct geometry *g, const struct attention_problem *problem)
{
    size_t d_k = round_up(problem->d_k, AMX_BLOCK), d_v = round_up(problem->d_v, AMX_BLOCK);
    return g->blocks * AMX_BLOCK * ((splits_floats(problem) ? 6 : 2) * d_k + 4 * d_v);
}

/* Bytes of a work-item's blocks and of its keys. */
static size_t item_bytes(const struct geometry *g, const struct attention_problem *problem)
{
    size_t d_k = round_up(problem->d_k, AMX_BLOCK), d_v = round_up(problem->d_v, AMX_BLOCK);
    size_t unit = splits_floats(problem) ? 6 : 2, weight = splits_floats(problem) ? 10 : 4;
    return block_bytes(g, problem) + g->gathered * unit * (d_k + d_v) + g->cpu.key_tile * weight * AMX_BLOCK;
}

/* What a tile of keys needs stays in the first-level cache, so large heads get tiles of fewer keys. */
static struct geometry geometry_of(const struct capabilities *caps, const struct attention_problem *problem,
                                   struct tuning *tuning)
{
    struct geometry g = {
        .cpu = {.lanes = size_max(caps->lanes, 8), .key_tile = 64, .heads = 1}, .blocks = 16, .gathered = 1024};
    size_t *tile = &g.cpu.key_tile;
    g.cpu.grouped = cpu_grouped(problem, AMX_BLOCK, tuning);
    if (problem->d_k + problem->d_v <= 128 && !splits_floats(problem))
        *tile = 128;
    if (splits_floats(problem)) { /* splitting keys takes longer than bringing them into tiles */
        g.blocks = 32;
        while (g.blocks > 1 && block_bytes(&g, problem) > SPLIT_BYTES)
            g.blocks /= 2;
    }
    size_t heads = problem->batch * (g.cpu.grouped ? problem->kv_heads : problem->heads);
    size_t wanted = 4 * (size_t)caps->info.compute_units;
    size_t blocks = divide_up(cpu_rows(problem, g.cpu.grouped), AMX_BLOCK);
    while (g.blocks > 1 && (g.blocks / 2 >= blocks || heads * divide_up(blocks, g.blocks) < wanted))
        g.blocks /= 2;
    while (g.gathered > *tile && (g.gathered / 2 >= problem->key_length || item_bytes(&g, problem) > AMX_BYTES))
        g.gathered /= 2;
    while (g.blocks > 1 && item_bytes(&g, problem) > AMX_BYTES)
        g.blocks /= 2;
    tuning_parameter(tuning, "tile", tiles, tile);
    tuning_parameter(tuning, "blocks", block_counts, &g.blocks);
    tuning_parameter(tuning, "gathered", gathered_keys, &g.gathered);
    g.cpu.rows = g.blocks * AMX_BLOCK;
    return g;
}

/* Why the kernel or the device cannot run the geometry, or NULL. */
static const char *mismatch(const struct geometry *g, const struct attention_problem *problem,
                            const struct capabilities *caps)
{
    if (g->gathered % g->cpu.key_tile != 0)
        return "the keys that are gathered are no multiple of the tile";
    if (item_bytes(g, problem) > 2 * AMX_BYTES)
        return "a block takes too much memory";
    return cpu_refuse_loops(caps, &g->cpu, problem, (double)(problem->d_k + problem->d_v));
}

static const char *refuse(const struct offer *offer)
{
    const struct attention_problem *problem = offer->problem;
    const struct capabilities *caps = offer->caps;
    if (!x86_amx_takes(problem->desc.query.dtype) || !x86_amx_takes(problem->desc.key.dtype) ||
        !x86_amx_takes(problem->desc.value.dtype))
        return "query, key or value is none of float32, float16 and bfloat16";
    const char *reason = cpu_refuse_bf16_products(problem);
    if (!reason)
        reason = cpu_refuse(problem);
    if (!reason && (problem->d_k > MAX_SIZE || problem->d_v > MAX_SIZE))
        reason = "a head size is above 512";
    if (!reason && (caps->quirks & (QUIRK_SLOW_COMPILER | QUIRK_SIMULATOR)))
        reason = "this device is too slow for what stands in for AMX";
    if (reason)
        return reason;
    const struct cpu_geometry begun = {.lanes = caps->lanes, .grouped = cpu_grouped(problem, caps->lanes, NULL)};
    if (cpu_decodes(problem, &begun, NULL))
        return "few queries wait for memory, not for arithmetic";
    reason = splits_floats(problem) ? NULL : cpu_refuse_few_keys(offer);
    if (reason)
        return reason;
    size_t rows = problem->query_length * (problem->heads / size_max(problem->kv_heads, 1));
    if (!offer->forced && splits_floats(problem) &&
        (rows < SPLIT_ROWS || problem->key_length < SPLIT_KEYS || problem->d_k + problem->d_v < SPLIT_SIZES))
        return "of so few queries, keys or columns there is more splitting than arithmetic";
    const struct geometry g = geometry_of(caps, problem, NULL);
    reason = mismatch(&g, problem, caps);
    return reason ? reason : refuse_all_but_cpu(offer);
}

static clattn_status prepare(clattn_plan *base)
{
    static const size_t one[3] = {1, 1, 1};
    clattn_status status;
    struct attention_plan *plan = (struct attention_plan *)base;
    const struct attention_problem *problem = &plan->problem;
    const struct capabilities *caps = &base->context->device.caps;
    struct strbuf options = {0};
    bool has_amx;
    attention_begin_geometry(plan);
    TRY(x86_choose_amx(base, &has_amx));
    const struct geometry g = geometry_of(caps, problem, &base->tuning);
    const char *reason = mismatch(&g, problem, caps);
    if (reason)
        return report_error(&base->context->device.report, CLATTN_ERROR_UNSUPPORTED, "%s", reason);
    plan->weight_unit = splits_floats(problem) ? 0 : storage_epsilon(CLATTN_DTYPE_BF16) / 2;
    cpu_plan(plan, &g.cpu, cpu_work_groups(caps, 1), 0.4);
    attention_defines(problem, caps, &options);
    define_int(&options, "LANES", (long long)g.cpu.lanes);
    define_int(&options, "BLOCKS", (long long)g.blocks);
    define_int(&options, "GATHERED", (long long)g.gathered);
    define_int(&options, "X86_AMX", has_amx);
    define_int(&options, "SPLIT_FLOATS", splits_floats(problem));
    define_int(&options, "PREFETCHES", capabilities_prefetch(caps));
    cpu_defines(plan, &g.cpu, &options);
    status = attention_add_kernel(plan, "attention/cpu/amx.cl", "attention_cpu_amx", &options, one);
fail:
    return status;
}

const struct solver attention_cpu_amx_solver = {
    .name = "cpu-amx", .refuse = refuse, .prepare = prepare, .only_named = x86_amx_only_named};
