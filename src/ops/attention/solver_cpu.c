/* Attention on CPU devices, one work-item a work-group: queries across vector lanes, or for few queries the columns. */
#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/attention/attention.h"
#include "program/defines.h"
#include "ops/common/x86.h"

#define MAX_SIZE 512
#define BLOCK_BYTES 393216 /* of a work-item's rows, at the most */
#define STATE_BYTES 16384  /* of the heads that a work-item of attention_cpu_decode takes in turn */
#define SHORT_RUN 32768    /* bytes of a head's keys, below which it takes several */
#define DECODE_TILE 256    /* its keys for each rescaling, */
#define AHEAD_BYTES 8192   /* of K or V, from what is read to what is asked for */
#define MASKED_TILE 64     /* and with a mask, whose closed tiles it leaves out */
#define AMX_BYTES 1048576  /* of a work-item of attention_cpu_amx: half of the second-level cache beside AMX */
#define PARTS_BYTES 655360 /* and of these its blocks in parts */
#define AMX_BLOCK 32       /* attention_cpu_amx's rows of a block */
#define PARTS_ROWS 128     /* of a key head, for which splitting its keys in parts begins to pay, */
#define PARTS_KEYS 96      /* and how many of these, */
#define PARTS_SIZES 48     /* and columns of K and V together: each is filled up to 32 */
#define DECODE_ROWS 8      /* of attention_cpu_decode, with which it beats lanes of which half are full */

/* `vectors` of queries an item, `step` keys or output columns of a register tile, `tile` keys for each rescaling. */
struct geometry {
    size_t lanes, vectors, step, tile;
    bool grouped;            /* all query heads of a key head are rows of one block */
    bool decode;             /* few rows: attention_cpu_decode */
    size_t rows;             /* of a work-item */
    size_t blocks, gathered; /* attention_cpu_amx's blocks of AMX_BLOCK rows, and its keys in tiles */
    size_t heads;  /* that a work-item takes in turn, key heads with `grouped`; more than 1 with `decode` alone */
    size_t turn;   /* keys of a turn */
    size_t ahead;  /* keys from one to the one whose memory is asked for with it; 0: none */
    size_t unroll; /* steps of the innermost loops that are one turn */
};

/* Rows that a head, or with `grouped` a key head, has at the most. */
static size_t rows_of(const struct geometry *g, const struct attention_problem *problem)
{
    return problem->query_length * (g->grouped ? problem->heads / problem->kv_heads : 1);
}

/* How many leave no compute unit idle; items that take heads in turn are long, and one that starts late shows. */
static size_t work_groups(const struct capabilities *caps, size_t heads)
{
    return (heads > 1 ? 8 : 2) * (size_t)caps->info.compute_units;
}

/* Bytes of keys, one after the other, that a head has before the walk over them jumps. */
static size_t run_of(const struct attention_problem *problem)
{
    const clattn_layout *key = &problem->desc.key;
    int64_t head = key->stride[1], row = key->stride[2];
    size_t step = (size_t)(row < 0 ? -row : row) * clattn_dtype_bits(key->dtype) / 8;
    if ((head < 0 ? -head : head) < (row < 0 ? -row : row))
        return problem->d_k * clattn_dtype_bits(key->dtype) / 8;
    return step * (problem->page_size ? problem->page_size : problem->key_length);
}

/* Heads' rows that lie close together are read together, as far as the heads' state stays in the first-level cache and
 * the keys can be split into enough parts to occupy the device. */
static size_t heads_in_turn(const struct geometry *g, const struct attention_problem *problem,
                            const struct capabilities *caps)
{
    size_t state = g->rows * (problem->d_k + problem->d_v + DECODE_TILE) * sizeof(float);
    size_t most = size_min(problem->kv_heads, STATE_BYTES / state), wanted = work_groups(caps, 2);
    if (run_of(problem) >= SHORT_RUN || problem->desc.launch.max_ms)
        return 1;
    for (size_t heads = most; heads > 1; heads = divide_up(heads, 2)) {
        size_t groups = problem->batch * divide_up(problem->kv_heads, heads);
        if (groups * attention_splits(problem, groups, wanted) >= wanted)
            return heads;
    }
    return 1;
}

/* A turn at the most: behind it lie other heads' rows, which have asked for themselves.  One row leaves the processor time
 * enough to look ahead by itself. */
static size_t keys_ahead(const struct geometry *g, const struct attention_problem *problem,
                         const struct capabilities *caps)
{
    size_t row = problem->d_k * clattn_dtype_bits(problem->desc.key.dtype) / 8;
    if (g->rows == 1 || !capabilities_prefetch(caps))
        return 0;
    return size_min(round_up(AHEAD_BYTES / size_max(row, 1), g->lanes), g->turn);
}

/* What may be measured in place of the choices below; a tile is a multiple of what it consists of. */
static const int32_t decode_tiles[] = {32, 64, 128, 256, 512, -1}, aheads[] = {0, 16, 32, 64, 128, -1};
static const int32_t vectors[] = {1, 2, 4, -1}, steps[] = {4, 6, 8, -1}, tiles[] = {24, 48, 96, 144, 192, 288, -1};
static const int32_t unrolls[] = {1, 4, -1};
static const int32_t small_tiles[] = {24, 48, 96, -1}, spreads[] = {1, 2, 4, 8, 16, 32, -1};

/* 48 to 192 keys a tile tie on Zen 4 and 5.  With 48 a tile of float scores and of values stays in the first-level cache,
 * which an Intel core shows (docs/notes/kernels-attention.md); fewer keys than 96 are one tile. */
static size_t tile_of(const struct attention_problem *problem, bool on_intel)
{
    return problem->d_k + problem->d_v > 512 || (on_intel && problem->key_length > 96) ? 48 : 96;
}

/* Measured on Zen 4 and 5: 4 vectors x 6 for long sequences; for short ones, and where four would
 * leave compute units idle, 2 x 8, or a single vector where two would be too many.  A tile is a multiple of every
 * step.  Large heads get fewer queries and keys, so that a block stays within 256 KiB. */
static struct geometry geometry_of(const clattn_context *context, const struct attention_problem *problem, bool pairs,
                                   struct tuning *tuning)
{
    const struct capabilities *caps = &context->device.caps;
    bool small = caps->quirks & (QUIRK_SLOW_COMPILER | QUIRK_SIMULATOR), large = problem->d_k + problem->d_v > 512;
    bool on_intel = !pairs && capabilities_pocl_on_intel(caps); /* measured with floats, and only there */
    size_t lanes = small ? 4 : caps->lanes;
    struct geometry g = {.lanes = lanes, .vectors = lanes == 16 ? 4 : 2, .step = 6, .heads = 1, .unroll = 1};
    g.tile = tile_of(problem, on_intel);
    g.grouped = problem->heads > problem->kv_heads && problem->query_length < 8 * lanes;
    if (problem->heads > problem->kv_heads)
        tuning_flag(tuning, "grouped", &g.grouped);
    size_t rows = rows_of(&g, problem);
    g.decode = rows <= DECODE_ROWS;
    if (g.decode)
        tuning_flag(tuning, "decode", &g.decode);
    if (g.decode) {
        g.rows = size_max(1, rows);
        g.heads = heads_in_turn(&g, problem, caps);
        g.tile = problem->has[ATTENTION_MASK] ? MASKED_TILE : DECODE_TILE;
        tuning_parameter(tuning, "tile", decode_tiles, &g.tile);
        g.turn =
            g.heads == 1 || problem->page_size % lanes ? g.tile : size_min(g.tile, size_max(lanes, problem->page_size));
        g.ahead = keys_ahead(&g, problem, caps);
        if (capabilities_prefetch(caps))
            tuning_parameter(tuning, "ahead", aheads, &g.ahead);
        return g;
    }
    if (small) {
        g.vectors = 1;
        g.step = 2;
        g.rows = lanes;
        tuning_parameter(tuning, "tile", small_tiles, &g.tile);
        return g;
    }
    size_t heads = problem->batch * (g.grouped ? problem->kv_heads : problem->heads), units = caps->info.compute_units;
    /* On Intel 4 x 6, which loads less for a multiply-add, takes 0.86 to 0.95 of 2 x 8's time where as full. */
    bool full = on_intel && round_up(rows, 4 * lanes) == round_up(rows, 2 * lanes);
    if ((rows < 32 * lanes && !full) || heads * divide_up(rows, lanes * g.vectors) < 4 * units) {
        bool two = lanes == 16 && rows > lanes && heads * divide_up(rows, 2 * lanes) >= 2 * units;
        g.vectors = two ? 2 : 1;
        g.step = lanes == 16 ? 8 : 6;
    } else if (large && g.vectors > 2) {
        g.vectors = 2;
    }
    tuning_parameter(tuning, "vectors", vectors, &g.vectors);
    tuning_parameter(tuning, "step", steps, &g.step);
    tuning_parameter(tuning, "tile", tiles, &g.tile);
    g.unroll = on_intel ? 4 : 1; /* 0.90 to 0.97 of the time there */
    if (!pairs)
        tuning_parameter(tuning, "unroll", unrolls, &g.unroll);
    g.rows = g.vectors * lanes;
    return g;
}

/* At the most; the kernels' loops, nothing unrolled but the register tiles. */
static double iterations(const struct geometry *g, const struct attention_problem *problem)
{
    const clattn_attention_desc *desc = &problem->desc;
    double sizes = (double)(problem->d_k + problem->d_v), lanes = (double)g->lanes, rows = (double)g->rows;
    double key = sizes / lanes + 10 + (g->decode ? 3 * rows : sizes / (double)g->step);
    if (desc->scoring.kind == CLATTN_SCORE_ADDITIVE)
        key += (double)problem->d_k;
    if (*problem->score_mod || *problem->mask_mod)
        key += rows;
    if (problem->has[ATTENTION_MASK])
        key += rows;
    if (desc->dropout.probability > 0)
        key += 12;
    return (double)g->heads * ((double)problem->key_length * key + 8 * sizes * rows / lanes + 4 * rows + 8 * sizes);
}

static const int32_t amx_tiles[] = {32, 64, 96, 128, 192, 256, 512, -1}, amx_blocks[] = {1, 2, 4, 8, 16, 32, -1};
static const int32_t amx_gathered[] = {128, 256, 512, 1024, 2048, -1};

static bool all_are(const clattn_attention_desc *desc, clattn_dtype dtype)
{
    return desc->query.dtype == dtype && desc->key.dtype == dtype && desc->value.dtype == dtype;
}

/* What is not bfloat16 alone is multiplied in parts. */
static bool in_parts(const struct attention_problem *problem)
{
    return !all_are(&problem->desc, CLATTN_DTYPE_BF16);
}

/* Of a work-item's blocks of queries, and of its tile of keys, too. */
static size_t blocks_bytes(const struct geometry *g, const struct attention_problem *problem)
{
    size_t d_k = round_up(problem->d_k, AMX_BLOCK), d_v = round_up(problem->d_v, AMX_BLOCK);
    return g->blocks * AMX_BLOCK * ((in_parts(problem) ? 6 : 2) * d_k + 4 * d_v);
}

static size_t amx_bytes(const struct geometry *g, const struct attention_problem *problem)
{
    size_t d_k = round_up(problem->d_k, AMX_BLOCK), d_v = round_up(problem->d_v, AMX_BLOCK);
    size_t unit = in_parts(problem) ? 6 : 2, weight = in_parts(problem) ? 10 : 4;
    return blocks_bytes(g, problem) + g->gathered * unit * (d_k + d_v) + g->tile * weight * AMX_BLOCK;
}

/* attention_cpu_amx's.  What a tile of keys needs stays in the first-level cache: of large heads it takes fewer keys. */
static struct geometry geometry_of_amx(const clattn_context *context, const struct attention_problem *problem,
                                       struct tuning *tuning)
{
    const struct capabilities *caps = &context->device.caps;
    struct geometry g = {.lanes = size_max(caps->lanes, 8), .step = 1, .tile = 64, .heads = 1, .blocks = 16};
    g.gathered = 1024;
    g.grouped = problem->heads > problem->kv_heads && problem->query_length < 8 * AMX_BLOCK;
    if (problem->heads > problem->kv_heads)
        tuning_flag(tuning, "grouped", &g.grouped);
    g.vectors = AMX_BLOCK / g.lanes;
    if (problem->d_k + problem->d_v <= 128 && !in_parts(problem))
        g.tile = 128;
    if (in_parts(problem)) { /* splitting keys takes longer than bringing them into tiles */
        g.blocks = 32;
        while (g.blocks > 1 && blocks_bytes(&g, problem) > PARTS_BYTES)
            g.blocks /= 2;
    }
    size_t heads = problem->batch * (g.grouped ? problem->kv_heads : problem->heads);
    size_t wanted = 4 * (size_t)caps->info.compute_units, blocks = divide_up(rows_of(&g, problem), AMX_BLOCK);
    while (g.blocks > 1 && (g.blocks / 2 >= blocks || heads * divide_up(blocks, g.blocks) < wanted))
        g.blocks /= 2;
    while (g.gathered > g.tile && (g.gathered / 2 >= problem->key_length || amx_bytes(&g, problem) > AMX_BYTES))
        g.gathered /= 2;
    while (g.blocks > 1 && amx_bytes(&g, problem) > AMX_BYTES)
        g.blocks /= 2;
    tuning_parameter(tuning, "tile", amx_tiles, &g.tile);
    tuning_parameter(tuning, "blocks", amx_blocks, &g.blocks);
    tuning_parameter(tuning, "gathered", amx_gathered, &g.gathered);
    g.rows = g.blocks * AMX_BLOCK;
    return g;
}

/* What of a geometry that was given the kernels do not take, or the device. */
static const char *mismatch(const struct geometry *g, const struct attention_problem *problem,
                            const struct capabilities *caps)
{
    size_t sizes = problem->d_k + problem->d_v + g->tile;
    if (g->decode ? g->tile % g->lanes || g->turn % g->lanes || g->ahead % g->lanes : g->tile % g->step != 0)
        return "the tile is no multiple of what it consists of";
    if (g->blocks && g->gathered % g->tile != 0)
        return "the keys that are gathered are no multiple of the tile";
    if (g->blocks ? amx_bytes(g, problem) > 2 * AMX_BYTES : g->rows * g->heads * sizes * sizeof(float) > BLOCK_BYTES)
        return "a block takes too much memory";
    return refuse_loops(caps, iterations(g, problem));
}

static const char *refuse(const clattn_context *context, const void *data, bool forced)
{
    const struct attention_problem *problem = data;
    if (problem->is_double)
        return "float64 is the generic solver's";
    if (problem->d_k > MAX_SIZE || problem->d_v > MAX_SIZE)
        return "a head size is above 512";
    struct geometry g = geometry_of(context, problem, false, NULL);
    const char *reason = refuse_loops(&context->device.caps, iterations(&g, problem));
    return reason ? reason : refuse_all_but_cpu(&context->device.caps, forced);
}

/* A block's rows are those of all query heads of a key head that the launch has. */
static void grouped_blocks(const struct attention_plan *plan, const attention_args *a, size_t groups[3])
{
    size_t group = plan->problem.heads / plan->problem.kv_heads;
    size_t first = (size_t)a->first_head / group;
    size_t last = ((size_t)a->first_head + (size_t)a->launch_heads - 1) / group;
    size_t heads = size_min(group, (size_t)a->launch_heads);
    groups[0] = divide_up((size_t)a->launch_queries * heads, plan->rows_per_group);
    groups[1] = divide_up(last - first + 1, plan->heads_per_group);
    groups[2] = (size_t)a->batch;
}

static void single_blocks(const struct attention_plan *plan, const attention_args *a, size_t groups[3])
{
    attention_groups_by_queries(plan, a, groups);
    groups[1] = divide_up(groups[1], plan->heads_per_group);
}

/* Of float, or, where Q, K and V are bfloat16, of two of these by an instruction or by what it does in OpenCL C. */
enum products { PRODUCTS_FLOAT, PRODUCTS_PAIRS_X86, PRODUCTS_PAIRS, PRODUCTS_AMX_X86, PRODUCTS_AMX };

static bool is_amx(enum products products)
{
    return products == PRODUCTS_AMX_X86 || products == PRODUCTS_AMX;
}

static clattn_status prepare_by(clattn_plan *base, enum products products)
{
    static const size_t one[3] = {1, 1, 1};
    struct attention_plan *plan = (struct attention_plan *)base;
    const struct attention_problem *problem = &plan->problem;
    struct geometry g = is_amx(products)
                            ? geometry_of_amx(base->context, problem, &base->tuning)
                            : geometry_of(base->context, problem, products != PRODUCTS_FLOAT, &base->tuning);
    const char *reason = products != PRODUCTS_FLOAT && g.decode ? "few queries are not multiplied by pairs"
                                                                : mismatch(&g, problem, &base->context->device.caps);
    struct strbuf options = {0};
    if (reason)
        return report_error(&base->context->device.report, CLATTN_ERROR_UNSUPPORTED, "%s", reason);
    attention_defines(problem, &base->context->device.caps, &options);
    define_int(&options, "LANES", (long long)g.lanes);
    if (g.decode) {
        define_int(&options, "BLOCK", (long long)g.rows);
        define_int(&options, "HEADS", (long long)g.heads);
        define_int(&options, "TURN", (long long)g.turn);
        define_int(&options, "AHEAD", (long long)g.ahead);
    } else if (is_amx(products)) {
        define_int(&options, "BLOCKS", (long long)g.blocks);
        define_int(&options, "GATHERED", (long long)g.gathered);
        define_int(&options, "X86_AMX", products == PRODUCTS_AMX_X86);
        define_int(&options, "BY_PARTS", in_parts(problem));
        define_int(&options, "PREFETCHES", capabilities_prefetch(&base->context->device.caps));
    } else {
        define_int(&options, "QUERY_VECTORS", (long long)g.vectors);
        define_int(&options, "KEY_STEP", (long long)g.step);
        define_int(&options, "COLUMN_STEP", (long long)g.step);
        define_int(&options, "UNROLL", (long long)g.unroll);
        define_int(&options, "PREFETCHES", capabilities_prefetch(&base->context->device.caps));
        define_int(&options, "PAIRS", products != PRODUCTS_FLOAT);
        define_int(&options, "X86_BF16", products == PRODUCTS_PAIRS_X86);
    }
    define_int(&options, "KEY_TILE", (long long)g.tile);
    define_int(&options, "GROUPED", g.grouped);
    define_int(&options, "UNIT_STRIDE", problem->desc.key.stride[3] == 1 && problem->desc.value.stride[3] == 1);
    plan->rows_per_group = plan->queries_per_group = g.rows;
    plan->heads_per_group = g.heads;
    plan->key_tile = g.tile;
    plan->weight_unit = products == PRODUCTS_FLOAT || in_parts(problem) ? 0 : storage_epsilon(CLATTN_DTYPE_BF16) / 2;
    plan->groups = g.grouped ? grouped_blocks : single_blocks;
    if (g.grouped)
        plan->queries_per_group = size_max(1, g.rows / (problem->heads / problem->kv_heads));
    plan->efficiency = problem->desc.scoring.kind == CLATTN_SCORE_ADDITIVE                      ? 0.02
                       : *problem->score_mod || *problem->mask_mod                              ? 0.05
                       : g.decode                                                               ? 0.05
                       : problem->desc.dropout.probability > 0 || g.vectors == 1 || g.step == 8 ? 0.2
                                                                                                : 0.4;
    size_t wanted = work_groups(&base->context->device.caps, g.heads);
    if (g.decode) {
        size_t spread = wanted / size_max(1, base->context->device.caps.info.compute_units);
        tuning_parameter(&base->tuning, "spread", spreads, &spread);
        wanted = spread * base->context->device.caps.info.compute_units;
    }
    plan->splits = attention_splits(problem, attention_group_count(plan), wanted);
    return is_amx(products) ? attention_add_kernel(plan, "attention/cpu/amx.cl", "attention_cpu_amx", &options, one)
           : g.decode ? attention_add_kernel(plan, "attention/cpu/decode.cl", "attention_cpu_decode", &options, one)
                      : attention_add_kernel(plan, "attention/cpu/lanes.cl", "attention_cpu", &options, one);
}

static clattn_status prepare(clattn_plan *base)
{
    return prepare_by(base, PRODUCTS_FLOAT);
}

const struct solver attention_cpu_solver = {.name = "cpu", .refuse = refuse, .prepare = prepare};

/* ---- the same by pairs of bfloat16 ---- */

/* Why a problem whose types they take is not for kernels that multiply bfloat16, or NULL. */
static const char *mismatch_of_pairs(const clattn_context *context, const struct attention_problem *problem)
{
    const clattn_attention_desc *desc = &problem->desc;
    if (desc->scoring.kind != CLATTN_SCORE_DOT)
        return "scores are no dot products";
    if (desc->key.stride[3] != 1 || desc->value.stride[3] != 1)
        return "the elements of a key or of a value are not neighbours";
    const char *reason = refuse(context, problem, true);
    if (reason)
        return reason;
    if (geometry_of(context, problem, true, NULL).decode)
        return "few queries wait for memory, not for arithmetic";
    return NULL;
}

static const char *refuse_pairs(const clattn_context *context, const void *problem, bool forced)
{
    if (!all_are(&((const struct attention_problem *)problem)->desc, CLATTN_DTYPE_BF16))
        return "query, key and value are not all bfloat16";
    const char *reason = mismatch_of_pairs(context, problem);
    return reason ? reason : refuse_all_but_cpu(&context->device.caps, forced);
}

static clattn_status prepare_pairs(clattn_plan *base)
{
    return prepare_by(base, base->context->device.caps.fast_bf16 ? PRODUCTS_PAIRS_X86 : PRODUCTS_PAIRS);
}

const struct solver attention_cpu_bf16_solver = {
    .name = "cpu-bf16", .refuse = refuse_pairs, .prepare = prepare_pairs, .only_named = x86_bf16_only_named};

/* ---- the same by AMX ---- */

static const char *refuse_amx(const clattn_context *context, const void *data, bool forced)
{
    const struct attention_problem *problem = data;
    const struct capabilities *caps = &context->device.caps;
    if (!x86_amx_takes(problem->desc.query.dtype) || !x86_amx_takes(problem->desc.key.dtype) ||
        !x86_amx_takes(problem->desc.value.dtype))
        return "query, key or value is none of float32, float16 and bfloat16";
    const char *reason = mismatch_of_pairs(context, problem);
    if (!reason && (caps->quirks & (QUIRK_SLOW_COMPILER | QUIRK_SIMULATOR)))
        reason = "this device is too slow for what stands in for AMX";
    size_t rows = problem->query_length * (problem->heads / size_max(problem->kv_heads, 1));
    if (!reason && !forced && in_parts(problem) &&
        (rows < PARTS_ROWS || problem->key_length < PARTS_KEYS || problem->d_k + problem->d_v < PARTS_SIZES))
        reason = "of so few queries, keys or columns there is more splitting than arithmetic";
    return reason ? reason : refuse_all_but_cpu(caps, forced);
}

static clattn_status prepare_amx(clattn_plan *base)
{
    bool has;
    clattn_status status;
    TRY(x86_choose_amx(base, &has));
    status = prepare_by(base, has ? PRODUCTS_AMX_X86 : PRODUCTS_AMX);
fail:
    return status;
}

const struct solver attention_cpu_amx_solver = {
    .name = "cpu-amx", .refuse = refuse_amx, .prepare = prepare_amx, .only_named = x86_amx_only_named};
