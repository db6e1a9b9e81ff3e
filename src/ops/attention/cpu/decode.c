/* Attention of few queries on CPU devices: a head's columns across vector lanes. */
#include "base/size.h"
#include "ops/attention/cpu/cpu.h"
#include "ops/common/arrays.h"
#include "program/defines.h"

#define DECODE_ROWS 8     /* rows up to which this kernel beats lanes of which half are full */
#define LARGE_SIZES 16384 /* d_k + d_v above which a tile has LARGE_TILE keys */
#define LARGE_TILE 32
#define STATE_BYTES 16384   /* of the heads that a work-item interleaves */
#define SHORT_RUN 32768     /* bytes of a head's keys, below which a work-item interleaves several heads */
#define DECODE_TILE 256     /* keys for each rescaling */
#define MASKED_TILE 64      /* the same with a mask, whose closed tiles are left out */
#define PREFETCH_BYTES 8192 /* of K or V, between what is read and what is prefetched */

struct geometry {
    struct cpu_geometry cpu;
    size_t interleave; /* keys of a tile that a head takes before the next head's */
    size_t prefetch;   /* keys between one and that which is prefetched with it; 0: no prefetch */
};

static const int32_t tiles[] = {32, 64, 128, 256, 512, -1}, prefetches[] = {0, 16, 32, 64, 128, -1};
static const int32_t spreads[] = {1, 2, 4, 8, 16, 32, -1};

/* A query that many heads share is that of an encoder's pooling, which takes next to no time beside the layers and has the
 * layers' program by lanes. */
static bool pools(const struct attention_problem *problem)
{
    const int64_t *stride = problem->desc.query.stride;
    return problem->query_length == 1 && problem->batch * problem->heads > 1 && !stride[0] && !stride[1];
}

bool cpu_decodes(const struct attention_problem *problem, const struct cpu_geometry *g, struct tuning *tuning)
{
    bool decodes = cpu_rows(problem, g->grouped) <= DECODE_ROWS && !pools(problem);
    if (decodes)
        tuning_flag(tuning, "decode", &decodes);
    return decodes;
}

/* Bytes of keys, one after the other, that a head has before the walk over them jumps. */
static size_t run_of(const struct attention_problem *problem)
{
    const clattn_layout *key = &problem->desc.key;
    int64_t head = key->stride[1], row = key->stride[2];
    size_t step = (size_t)(row < 0 ? -row : row) * clattn_dtype_bits(key->dtype) / 8;
    if (row == 1 && key->stride[3] != 1)
        return problem->d_k * problem->key_length * clattn_dtype_bits(key->dtype) / 8; /* column by column */
    if ((head < 0 ? -head : head) < (row < 0 ? -row : row))
        return problem->d_k * clattn_dtype_bits(key->dtype) / 8;
    return step * (problem->page_size ? problem->page_size : problem->key_length);
}

/* Heads whose rows lie close together are read together, as many as keep their state in the first-level cache and leave
 * enough work-groups, after the keys are split, to occupy the device. */
static size_t interleaved_heads(size_t rows, const struct attention_problem *problem, const struct capabilities *caps)
{
    size_t state = rows * (problem->d_k + problem->d_v + DECODE_TILE) * sizeof(float);
    size_t most = size_min(problem->kv_heads, STATE_BYTES / state), wanted = cpu_work_groups(caps, 2);
    if (run_of(problem) >= SHORT_RUN)
        return 1;
    for (size_t heads = most; heads > 1; heads = divide_up(heads, 2)) {
        size_t groups = problem->batch * divide_up(problem->kv_heads, heads);
        if (groups * attention_splits(problem, groups, wanted) >= wanted)
            return heads;
    }
    return 1;
}

/* At most a head's keys before the next head's: behind them lie rows of other heads, which prefetch their own.  One row
 * leaves the processor time enough to prefetch by itself. */
static size_t prefetch_distance(const struct geometry *g, const struct attention_problem *problem,
                                const struct capabilities *caps)
{
    size_t row = problem->d_k * clattn_dtype_bits(problem->desc.key.dtype) / 8;
    if (g->cpu.rows == 1 || !capabilities_prefetch(caps))
        return 0;
    return size_min(round_up(PREFETCH_BYTES / size_max(row, 1), g->cpu.lanes), g->interleave);
}

/* `begun` has lanes and `grouped`. */
static struct geometry geometry_of(const struct capabilities *caps, const struct attention_problem *problem,
                                   const struct cpu_geometry *begun, struct tuning *tuning)
{
    struct geometry g = {.cpu = *begun};
    g.cpu.rows = size_max(1, cpu_rows(problem, g.cpu.grouped));
    g.cpu.heads = interleaved_heads(g.cpu.rows, problem, caps);
    g.cpu.key_tile = problem->d_k + problem->d_v > LARGE_SIZES ? LARGE_TILE
                     : problem->has[ATTENTION_MASK]            ? MASKED_TILE
                                                               : DECODE_TILE;
    tuning_parameter(tuning, "tile", tiles, &g.cpu.key_tile);
    g.interleave = g.cpu.heads == 1 || problem->page_size % g.cpu.lanes
                       ? g.cpu.key_tile
                       : size_min(g.cpu.key_tile, size_max(g.cpu.lanes, problem->page_size));
    g.prefetch = prefetch_distance(&g, problem, caps);
    if (capabilities_prefetch(caps))
        tuning_parameter(tuning, "prefetch", prefetches, &g.prefetch);
    return g;
}

static const char *refuse_size(const struct capabilities *caps, const struct geometry *g,
                               const struct attention_problem *problem)
{
    const char *reason = cpu_refuse_block(&g->cpu, problem);
    return reason ? reason : cpu_refuse_loops(caps, &g->cpu, problem, 3 * (double)g->cpu.rows);
}

const char *cpu_decode_refuse(const clattn_context *context, const struct attention_problem *problem,
                              const struct cpu_geometry *begun)
{
    const struct capabilities *caps = &context->device.caps;
    const struct geometry g = geometry_of(caps, problem, begun, NULL);
    return refuse_size(caps, &g, problem);
}

/* Why the kernel or the device cannot run the geometry that tuning asked for, or NULL. */
static const char *mismatch(const struct geometry *g, const struct attention_problem *problem,
                            const struct capabilities *caps)
{
    if (g->cpu.key_tile % g->cpu.lanes || g->interleave % g->cpu.lanes || g->prefetch % g->cpu.lanes)
        return "the tile is no multiple of what it consists of";
    return refuse_size(caps, g, problem);
}

clattn_status cpu_decode_prepare(struct attention_plan *plan, const struct cpu_geometry *begun)
{
    static const size_t one[3] = {1, 1, 1};
    const struct capabilities *caps = &plan->base.context->device.caps;
    const struct attention_problem *problem = &plan->problem;
    const struct geometry g = geometry_of(caps, problem, begun, &plan->base.tuning);
    const char *reason = mismatch(&g, problem, caps);
    struct strbuf options = {0};
    if (reason)
        return report_error(&plan->base.context->device.report, CLATTN_ERROR_UNSUPPORTED, "%s", reason);
    attention_begin_geometry(plan);
    size_t units = caps->info.compute_units;
    size_t spread = cpu_work_groups(caps, g.cpu.heads) / size_max(1, units);
    tuning_parameter(&plan->base.tuning, "spread", spreads, &spread);
    cpu_plan(plan, &g.cpu, spread * units, 0.05);
    attention_defines(problem, caps, &options);
    define_int(&options, "LANES", (long long)g.cpu.lanes);
    define_int(&options, "BLOCK", (long long)g.cpu.rows);
    define_int(&options, "HEADS", (long long)g.cpu.heads);
    define_int(&options, "INTERLEAVE", (long long)g.interleave);
    define_int(&options, "PREFETCH_DISTANCE", (long long)g.prefetch);
    cpu_defines(plan, &g.cpu, &options);
    return attention_add_kernel(plan, "attention/cpu/decode.cl", "attention_cpu_decode", &options, one);
}
