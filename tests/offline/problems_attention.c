/* The problems of attention and of the operators that serve only attention.  A new feature is a bit, a line in
 * attention_plan and a row. */
#include <stddef.h>

#include "problems.h"

/* Options of a row, which always has queries, keys and values. */
enum feature {
    BOOL_MASK = 1 << 0,
    FLOAT_MASK = 1 << 1,
    CAUSAL = 1 << 2,
    LSE = 1 << 3,
    WINDOW = 1 << 4, /* of 1,024 */
    SOFTCAP = 1 << 5,
    ALIBI = 1 << 6,
    SINKS = 1 << 7,
    BIAS = 1 << 8,
    LENGTHS = 1 << 9, /* the number of keys of each item */
    PACKED = 1 << 10,
    PAGED = 1 << 11, /* pages of 16 keys */
    RING = 1 << 12,
    INT8 = 1 << 13, /* keys and values, in groups of 32 */
    INT4 = 1 << 14,
    DROPOUT = 1 << 15,
    SCORES = 1 << 16,
    ENTROPY = 1 << 17,
    ADDITIVE = 1 << 18,
    SNIPPETS = 1 << 19,
    GRADIENTS = 1 << 20, /* instead of the output: by all that there is */
    RAW = 1 << 21,       /* the scores before anything is added */
    BIASED = 1 << 22,
    EXPLICIT = 1 << 23, /* a position and a query length for each item */
    PARTIAL = 1 << 24   /* with GRADIENTS: some of the keys that the log-sum-exp is of */
};

typedef struct attention_row {
    const char *about;
    bool quick;
    const char *solver;
    struct {
        size_t batch, heads, kv_heads, queries, keys, d_k, d_v;
    } dim;
    clattn_dtype dtype; /* of queries, keys, values and output; 0: float32 */
    unsigned with;      /* enum feature */
} attention_row;

/* Self-attention of 2,048 positions in 16 heads of size d. */
#define LONG(d) {1, 16, 16, 2048, 2048, d, d}

static const attention_row attention_rows[] = {
    {"d 32", NOT_QUICK, .dim = LONG(32)},
    {"d 64", QUICK, .dim = LONG(64)},
    {"d 80", NOT_QUICK, .dim = LONG(80)},
    {"d 96", NOT_QUICK, .dim = LONG(96)},
    {"d 128", QUICK, .dim = LONG(128)},
    {"d 256", QUICK, .dim = LONG(256)},
    {"d 33", NOT_QUICK, .dim = LONG(33)},
    {"d 192, d_v 128", NOT_QUICK, .dim = {1, 16, 16, 2048, 2048, 192, 128}},
    {"d 64 causal", QUICK, .dim = LONG(64), .with = CAUSAL},
    {"d 128 causal", NOT_QUICK, .dim = LONG(128), .with = CAUSAL},
    {"gradients, d 64", QUICK, .dim = LONG(64), .with = GRADIENTS | LSE},
    {"gradients, d 128 causal, bias, slopes, sinks", NOT_QUICK, .dim = LONG(128),
     .with = GRADIENTS | LSE | CAUSAL | BIAS | ALIBI | SINKS},
    {"gradients, d 64, some of the keys, dropout", QUICK, .dim = LONG(64), .with = GRADIENTS | LSE | DROPOUT | PARTIAL},
    {"gradients, d 64, score_mod, mask_mod", NOT_QUICK, .dim = LONG(64), .with = GRADIENTS | LSE | SNIPPETS},
    {"gradients, d 128, boolean mask", NOT_QUICK, .dim = LONG(128), .with = GRADIENTS | LSE | BOOL_MASK},
    {"gradients, d 256, boolean mask", NOT_QUICK, .dim = LONG(256), .with = GRADIENTS | LSE | BOOL_MASK},
    {"gradients, d 256 causal", NOT_QUICK, .dim = LONG(256), .with = GRADIENTS | LSE | CAUSAL},
    {"gradients, d 80, bfloat16, grouped heads, softcap, dropout, lengths", NOT_QUICK,
     .dim = {1, 32, 8, 2048, 2048, 80, 80}, .dtype = CLATTN_DTYPE_BF16,
     .with = GRADIENTS | LSE | SOFTCAP | DROPOUT | LENGTHS},
    {"gradients, d 64 by generic", NOT_QUICK, "generic", LONG(64), .with = GRADIENTS | LSE},
    {"gradients, d 64 by cpu", NOT_QUICK, "cpu", LONG(64), .with = GRADIENTS | LSE},
    {"gradients, d 64 by cpu-amx", NOT_QUICK, "cpu-amx", {1, 8, 8, 256, 256, 64, 64}, .with = GRADIENTS | LSE},
    {"d 128 causal, grouped heads", NOT_QUICK, .dim = {1, 32, 8, 2048, 2048, 128, 128}, .with = CAUSAL},
    {"d 256 causal", NOT_QUICK, .dim = LONG(256), .with = CAUSAL},
    {"d 64 boolean mask", NOT_QUICK, .dim = LONG(64), .with = BOOL_MASK},
    {"d 128 boolean mask", NOT_QUICK, .dim = LONG(128), .with = BOOL_MASK},
    {"d 64 float mask", NOT_QUICK, .dim = LONG(64), .with = FLOAT_MASK},
    {"d 128 float mask", NOT_QUICK, .dim = LONG(128), .with = FLOAT_MASK},
    {"d 128 causal, float mask, log-sum-exp", QUICK, .dim = LONG(128), .with = FLOAT_MASK | CAUSAL | LSE},
    {"d 256 causal, boolean mask, log-sum-exp", NOT_QUICK, .dim = LONG(256), .with = BOOL_MASK | CAUSAL | LSE},
    {"d 64, 64 queries", NOT_QUICK, .dim = {1, 16, 16, 64, 2048, 64, 64}},
    {"d 64, 32 queries", NOT_QUICK, .dim = {1, 16, 16, 32, 2048, 64, 64}},
    {"d 64 decode", NOT_QUICK, .dim = {1, 16, 16, 1, 4096, 64, 64}},
    {"d 128 decode, grouped heads", QUICK, .dim = {1, 32, 8, 1, 4096, 128, 128}},
    {"d 256 decode", NOT_QUICK, .dim = {1, 16, 16, 1, 4096, 256, 256}},
    {"d 128 decode", NOT_QUICK, .dim = {1, 16, 16, 1, 4096, 128, 128}},
    {"d 128 decode, float16", NOT_QUICK, .dim = {1, 16, 16, 1, 4096, 128, 128}, .dtype = CLATTN_DTYPE_F16},
    {"d 128 decode, bfloat16, 16 rows, causal", NOT_QUICK, .dim = {1, 32, 8, 4, 4096, 128, 128},
     .dtype = CLATTN_DTYPE_BF16, .with = CAUSAL},
    {"d 64 decode, float16, grouped heads", NOT_QUICK, .dim = {1, 32, 8, 1, 4096, 64, 64}, .dtype = CLATTN_DTYPE_F16},
    {"d 256 decode, float16", NOT_QUICK, .dim = {1, 16, 16, 1, 4096, 256, 256}, .dtype = CLATTN_DTYPE_F16},
    {"d 256 decode, float16, grouped heads", QUICK, .dim = {1, 32, 8, 1, 4096, 256, 256}, .dtype = CLATTN_DTYPE_F16},
    {"d 128 decode, float16, float mask, softcap, ALiBi, sinks", NOT_QUICK, .dim = {1, 32, 8, 1, 4096, 128, 128},
     .dtype = CLATTN_DTYPE_F16, .with = FLOAT_MASK | SOFTCAP | ALIBI | SINKS},
    {"d 96 decode, grouped heads, 2 of them", NOT_QUICK, .dim = {1, 32, 16, 1, 4096, 96, 96}},
    {"d 192", NOT_QUICK, .dim = LONG(192)},
    {"d 512", NOT_QUICK, .dim = {1, 4, 4, 512, 512, 512, 512}},
    {"d 64, float16", QUICK, .dim = LONG(64), .dtype = CLATTN_DTYPE_F16},
    {"d 128 causal, float16", NOT_QUICK, .dim = LONG(128), .dtype = CLATTN_DTYPE_F16, .with = CAUSAL},
    {"d 256, float16", NOT_QUICK, .dim = LONG(256), .dtype = CLATTN_DTYPE_F16},
    {"d 128 causal, bfloat16, log-sum-exp", NOT_QUICK, .dim = LONG(128), .dtype = CLATTN_DTYPE_BF16,
     .with = CAUSAL | LSE},
    {"d 64 in sub-groups", QUICK, "sub-group", .dim = LONG(64)},
    {"d 128 causal, in sub-groups", NOT_QUICK, "sub-group", .dim = LONG(128), .with = CAUSAL},
    {"d 256 in sub-groups", NOT_QUICK, "sub-group", .dim = LONG(256)},
    {"d 64, entropy, in sub-groups", NOT_QUICK, "sub-group", .dim = LONG(64), .with = ENTROPY},
    {"d 128 decode, grouped heads, in sub-groups", QUICK, "sub-group", .dim = {1, 32, 8, 1, 4096, 128, 128}},
    {"d 64 by matrix, bfloat16", QUICK, "matrix", .dim = LONG(64), .dtype = CLATTN_DTYPE_BF16},
    {"d 64 by matrix, float16, causal, log-sum-exp", NOT_QUICK, "matrix", .dim = LONG(64), .dtype = CLATTN_DTYPE_F16,
     .with = CAUSAL | LSE},
    {"d 128 by matrix, float16", NOT_QUICK, "matrix", .dim = LONG(128), .dtype = CLATTN_DTYPE_F16},
    {"d 128 by matrix, bfloat16, causal, window, sinks, lengths", NOT_QUICK, "matrix", .dim = LONG(128),
     .dtype = CLATTN_DTYPE_BF16, .with = CAUSAL | WINDOW | SINKS | LENGTHS},
    {"d 80 by matrix, float16, grouped heads", NOT_QUICK, "matrix", .dim = {1, 32, 8, 2048, 2048, 80, 80},
     .dtype = CLATTN_DTYPE_F16},
    {"gradients, d 64 by matrix, bfloat16, causal", QUICK, "matrix", .dim = LONG(64), .dtype = CLATTN_DTYPE_BF16,
     .with = GRADIENTS | LSE | CAUSAL},
    {"gradients, d 64 by matrix, bfloat16, some of the keys", QUICK, "matrix", .dim = LONG(64),
     .dtype = CLATTN_DTYPE_BF16, .with = GRADIENTS | LSE | CAUSAL | PARTIAL},
    {"gradients, d 128 by matrix, float16, all that changes a score", NOT_QUICK, "matrix", .dim = LONG(128),
     .dtype = CLATTN_DTYPE_F16,
     .with = GRADIENTS | LSE | CAUSAL | WINDOW | FLOAT_MASK | BIAS | ALIBI | SINKS | SOFTCAP | DROPOUT},
    {"d 64 float16, boolean mask", NOT_QUICK, .dim = LONG(64), .dtype = CLATTN_DTYPE_F16, .with = BOOL_MASK},
    {"d 128 window, sinks, float16", NOT_QUICK, .dim = LONG(128), .dtype = CLATTN_DTYPE_F16,
     .with = CAUSAL | WINDOW | SINKS},
    {"d 128 softcap, window, bfloat16", NOT_QUICK, .dim = LONG(128), .dtype = CLATTN_DTYPE_BF16,
     .with = CAUSAL | SOFTCAP | WINDOW},
    {"d 64 ALiBi, lengths", QUICK, .dim = LONG(64), .with = CAUSAL | ALIBI | LENGTHS},
    {"d 64 bias and boolean mask", NOT_QUICK, .dim = LONG(64), .with = BIAS | BOOL_MASK},
    {"d 128 packed sequences, float16", NOT_QUICK, .dim = {8, 16, 16, 512, 512, 128, 128}, .dtype = CLATTN_DTYPE_F16,
     .with = CAUSAL | PACKED},
    {"d 64 dropout", NOT_QUICK, .dim = LONG(64), .with = DROPOUT},
    {"d 64 scores and entropy", NOT_QUICK, .dim = {1, 8, 8, 256, 256, 64, 64}, .with = SCORES | ENTROPY},
    {"d 64 raw scores", NOT_QUICK, .dim = {1, 8, 8, 256, 256, 64, 64}, .with = RAW},
    {"d 64 biased scores, boolean mask, softcap", NOT_QUICK, .dim = {1, 8, 8, 256, 256, 64, 64},
     .with = BIASED | ALIBI | BOOL_MASK | SOFTCAP},
    {"d 64 additive", NOT_QUICK, .dim = {1, 8, 8, 256, 256, 64, 64}, .with = ADDITIVE},
    {"d 64 additive, float16, boolean mask", NOT_QUICK, .dim = {1, 8, 8, 256, 256, 64, 64}, .dtype = CLATTN_DTYPE_F16,
     .with = ADDITIVE | BOOL_MASK},
    {"d 64 float64", NOT_QUICK, .dim = {1, 8, 8, 256, 256, 64, 64}, .dtype = CLATTN_DTYPE_F64, .with = CAUSAL | LSE},
    {"d 64 explicit positions, query lengths", NOT_QUICK, .dim = {4, 16, 16, 512, 2048, 64, 64},
     .with = CAUSAL | EXPLICIT},
    {"d 128 causal, float16, paged, 512 queries", NOT_QUICK, .dim = {1, 32, 8, 512, 8192, 128, 128},
     .dtype = CLATTN_DTYPE_F16, .with = CAUSAL | LENGTHS | PAGED},
    {"d 128 causal, float16, int8 keys and values, 512 queries", NOT_QUICK, .dim = {1, 32, 8, 512, 8192, 128, 128},
     .dtype = CLATTN_DTYPE_F16, .with = CAUSAL | LENGTHS | INT8},
    {"d 128 decode, float16, paged, int8 keys and values", NOT_QUICK, .dim = {8, 32, 8, 1, 8192, 128, 128},
     .dtype = CLATTN_DTYPE_F16, .with = LENGTHS | PAGED | INT8},
    {"d 64 score_mod, mask_mod", NOT_QUICK, .dim = LONG(64), .with = SNIPPETS},
    {"d 128 decode, float16, grouped heads, lengths", QUICK, .dim = {8, 32, 8, 1, 8192, 128, 128},
     .dtype = CLATTN_DTYPE_F16, .with = CAUSAL | LENGTHS},
    {"d 128 decode, float16, paged", NOT_QUICK, .dim = {8, 32, 8, 1, 8192, 128, 128}, .dtype = CLATTN_DTYPE_F16,
     .with = LENGTHS | PAGED},
    {"d 128 decode, float16, ring", NOT_QUICK, .dim = {8, 32, 8, 1, 4096, 128, 128}, .dtype = CLATTN_DTYPE_F16,
     .with = CAUSAL | RING},
    {"d 128 decode, int8 keys and values", NOT_QUICK, .dim = {8, 32, 8, 1, 8192, 128, 128}, .dtype = CLATTN_DTYPE_F16,
     .with = LENGTHS | INT8},
    {"d 128 decode, int4 keys and values", NOT_QUICK, .dim = {8, 32, 8, 1, 8192, 128, 128}, .dtype = CLATTN_DTYPE_F16,
     .with = LENGTHS | INT4},
    {"d 64 by generic", NOT_QUICK, "generic", .dim = LONG(64), .with = FLOAT_MASK | CAUSAL | LSE},
    {"d 64 by cpu", NOT_QUICK, "cpu", .dim = LONG(64), .with = BOOL_MASK | CAUSAL},
    {"d 64 causal, bfloat16 by emulated-mma", NOT_QUICK, "emulated-mma", .dim = LONG(64), .dtype = CLATTN_DTYPE_BF16,
     .with = CAUSAL | LSE},
    {"d 64 causal, bfloat16 by cpu-amx", NOT_QUICK, "cpu-amx", .dim = {1, 8, 8, 256, 256, 64, 64},
     .dtype = CLATTN_DTYPE_BF16, .with = CAUSAL | LSE},
    {"d 128 decode by cpu", NOT_QUICK, "cpu", .dim = {1, 32, 8, 1, 4096, 128, 128}},
    {"d 64 float64 by cpu", NOT_QUICK, "cpu", .dim = {1, 8, 8, 256, 256, 64, 64}, .dtype = CLATTN_DTYPE_F64,
     .with = CAUSAL | LSE},
    {"d 64 scores by cpu", NOT_QUICK, "cpu", .dim = LONG(64), .with = SCORES},
};

static clattn_layout f32(int32_t rank, size_t a, size_t b, size_t c, size_t d)
{
    return clattn_layout_contiguous(CLATTN_DTYPE_F32, rank, (const size_t[]){a, b, c, d});
}

static clattn_layout i32(size_t count)
{
    return clattn_layout_contiguous(CLATTN_DTYPE_I32, 1, &count);
}

/* Describes the arrays of keys and values: plain, packed, paged or quantised. */
static void set_keys(clattn_attention_desc *desc, const attention_row *row, clattn_dtype dtype)
{
    const size_t groups = row->dim.kv_heads;
    size_t batch = row->dim.batch, keys = row->dim.keys;
    if (row->with & PACKED) {
        keys *= batch;
        batch = 1;
    }
    if (row->with & PAGED) {
        desc->cache.kind = CLATTN_CACHE_KIND_PAGED;
        desc->cache.block_table = clattn_layout_contiguous(CLATTN_DTYPE_I32, 2, (const size_t[]){batch, keys / 16});
        batch *= keys / 16;
        keys = 16;
    }
    if (row->with & (INT8 | INT4)) {
        dtype = row->with & INT8 ? CLATTN_DTYPE_I8 : CLATTN_DTYPE_I4;
        desc->cache.key_scale = f32(4, batch, groups, keys, row->dim.d_k / 32);
        desc->cache.value_scale = f32(4, batch, groups, keys, row->dim.d_v / 32);
    }
    desc->key = clattn_layout_bhsd(dtype, batch, groups, keys, row->dim.d_k);
    desc->value = clattn_layout_bhsd(dtype, batch, groups, keys, row->dim.d_v);
}

static void set_masks(clattn_attention_desc *desc, const attention_row *row)
{
    const size_t extent[4] = {row->dim.batch, 1, row->dim.queries, row->dim.keys};
    if (row->with & (BOOL_MASK | FLOAT_MASK))
        desc->mask = clattn_layout_contiguous(row->with & BOOL_MASK ? CLATTN_DTYPE_BOOL : CLATTN_DTYPE_F32, 4, extent);
    if (row->with & BIAS)
        desc->bias = f32(4, 1, row->dim.heads, row->dim.queries, row->dim.keys);
    if (row->with & ALIBI)
        desc->scoring.alibi = f32(1, row->dim.heads, 0, 0, 0);
    if (row->with & SINKS)
        desc->scoring.sinks = f32(1, row->dim.heads, 0, 0, 0);
    if (row->with & LENGTHS)
        desc->lengths.key = i32(row->dim.batch);
    if (row->with & PACKED) {
        desc->lengths.query_starts = desc->lengths.key_starts = i32(row->dim.batch + 1);
        desc->lengths.longest_query = row->dim.queries;
    }
    if (row->with & EXPLICIT)
        desc->lengths.positions = desc->lengths.query = i32(row->dim.batch);
    if (row->with & WINDOW) {
        desc->window.explicit_left = 1;
        desc->window.left = 1024;
    }
}

static bool has_double(clattn_context *context)
{
    clattn_device_info info = {.size = sizeof info};
    return clattn_context_device_info(context, &info) == CLATTN_SUCCESS && info.has_fp64;
}

static clattn_status attention_plan(clattn_context *context, const offline_problem *problem, clattn_plan **plan)
{
    const attention_row *row = problem->row;
    clattn_attention_desc desc = CLATTN_ATTENTION_DESC_INIT;
    const clattn_dtype dtype = row->dtype ? row->dtype : CLATTN_DTYPE_F32;
    const size_t heads = row->dim.heads;
    const size_t batch = row->with & PACKED ? 1 : row->dim.batch;
    const size_t queries = row->with & PACKED ? row->dim.queries * row->dim.batch : row->dim.queries;
    desc.query = clattn_layout_bhsd(dtype, batch, heads, queries, row->dim.d_k);
    desc.output = clattn_layout_bhsd(dtype, batch, heads, queries, row->dim.d_v);
    set_keys(&desc, row, dtype);
    set_masks(&desc, row);
    desc.causal = (row->with & CAUSAL) != 0;
    desc.alignment = row->with & EXPLICIT ? CLATTN_ALIGNMENT_EXPLICIT : CLATTN_ALIGNMENT_BOTTOM_RIGHT;
    desc.scoring.softcap = row->with & SOFTCAP ? 50 : 0;
    desc.dropout.probability = row->with & DROPOUT ? 0.1f : 0;
    if (row->with & RING)
        desc.cache.kind = CLATTN_CACHE_KIND_RING;
    if (row->with & LSE)
        desc.outputs.lse = f32(3, batch, heads, queries, 0);
    if (row->with & ENTROPY)
        desc.outputs.entropy = f32(3, batch, heads, queries, 0);
    if (row->with & (SCORES | RAW | BIASED)) {
        desc.outputs.scores = f32(4, batch, heads, queries, row->dim.keys);
        desc.outputs.scores_mode = row->with & SCORES ? CLATTN_SCORES_MODE_PROBABILITIES
                                   : row->with & RAW  ? CLATTN_SCORES_MODE_RAW
                                                      : CLATTN_SCORES_MODE_BIASED;
    }
    if (row->with & ADDITIVE) {
        desc.scoring.kind = CLATTN_SCORE_ADDITIVE;
        desc.scoring.vector = f32(2, heads, row->dim.d_k, 0, 0);
    }
    if (row->with & GRADIENTS) {
        desc.direction = CLATTN_DIRECTION_BACKWARD;
        desc.gradients.output = desc.output;
        desc.gradients.query = desc.query;
        desc.gradients.key = desc.key;
        desc.gradients.value = desc.value;
        desc.gradients.bias = desc.bias;
        desc.gradients.alibi = desc.scoring.alibi;
        desc.gradients.sinks = desc.scoring.sinks;
        desc.outputs.partial = (row->with & PARTIAL) != 0;
    }
    if (row->with & SNIPPETS) {
        desc.snippets.score_mod =
            "float score_mod(float score, int batch, int head, int query, int key, user_data user)\n"
            "{ return score - 0.5f * (float)abs(query - key); }";
        desc.snippets.mask_mod = "int mask_mod(int batch, int head, int query, int key, user_data user)\n"
                                 "{ return query / 64 == key / 64; }";
        desc.snippets.score_mod_grad =
            "float score_mod_grad(float score, int batch, int head, int query, int key, user_data user)\n"
            "{ return 1.0f; }";
    }
    /* A device without double precision must refuse the problem, and there is nothing to compile. */
    if (dtype == CLATTN_DTYPE_F64 && !has_double(context))
        return clattn_attention_supports(context, &desc, NULL) == CLATTN_ERROR_UNSUPPORTED ? CLATTN_SUCCESS
                                                                                           : CLATTN_ERROR_INTERNAL;
    CREATE(attention, problem, desc, plan);
}

/* ---- merging of partial results ---- */

typedef struct merge_row {
    const char *about;
    bool quick;
    const char *solver;
    size_t parts, d_v;
    clattn_dtype dtype;
    bool sinks;
} merge_row;

static const merge_row merge_rows[] = {
    {"8 parts, d_v 128", QUICK, NULL, 8, 128, CLATTN_DTYPE_F32, false},
    {"8 parts, d_v 128, float16, sinks", NOT_QUICK, NULL, 8, 128, CLATTN_DTYPE_F16, true},
    {"2 parts, d_v 33, bfloat16", NOT_QUICK, NULL, 2, 33, CLATTN_DTYPE_BF16, false},
};

static clattn_status merge_plan(clattn_context *context, const offline_problem *problem, clattn_plan **plan)
{
    const merge_row *row = problem->row;
    clattn_merge_desc desc = CLATTN_MERGE_DESC_INIT;
    const size_t extent[5] = {row->parts, 4, 32, 64, row->d_v};
    desc.partial = clattn_layout_contiguous(CLATTN_DTYPE_F32, 5, extent);
    desc.partial_lse = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, extent);
    desc.output = clattn_layout_contiguous(row->dtype, 4, extent + 1);
    desc.lse = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, extent + 1);
    if (row->sinks)
        desc.sinks = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, extent + 2);
    CREATE(merge, problem, desc, plan);
}

/* ---- rotary position embedding, and appending to a cache ---- */

typedef struct rope_row {
    const char *about;
    bool quick;
    const char *solver;
    clattn_rope_pairing pairing;
    clattn_dtype dtype;
    bool tables;
} rope_row;

static const rope_row rope_rows[] = {
    {"d 128, halves, computed", QUICK, NULL, CLATTN_ROPE_PAIRING_HALVES, CLATTN_DTYPE_F32, false},
    {"d 128, interleaved, computed, float16", NOT_QUICK, NULL, CLATTN_ROPE_PAIRING_INTERLEAVED, CLATTN_DTYPE_F16,
     false},
    {"d 128, halves, tables, bfloat16", NOT_QUICK, NULL, CLATTN_ROPE_PAIRING_HALVES, CLATTN_DTYPE_BF16, true},
    {"d 128, halves, tables by cpu", NOT_QUICK, "cpu", CLATTN_ROPE_PAIRING_HALVES, CLATTN_DTYPE_F32, true},
};

static clattn_status rope_plan(clattn_context *context, const offline_problem *problem, clattn_plan **plan)
{
    const rope_row *row = problem->row;
    clattn_rope_desc desc = CLATTN_ROPE_DESC_INIT;
    desc.pairing = row->pairing;
    desc.x = desc.y = clattn_layout_bhsd(row->dtype, 4, 32, 512, 128);
    desc.offsets = i32(4);
    if (row->tables)
        desc.cos = desc.sin = f32(2, 4096, 64, 0, 0);
    CREATE(rope, problem, desc, plan);
}

typedef struct kv_append_row {
    const char *about;
    bool quick;
    const char *solver;
    clattn_cache_kind cache;
    clattn_dtype dtype; /* of the cache */
    bool rotate;
} kv_append_row;

static const kv_append_row kv_append_rows[] = {
    {"plain, float16", NOT_QUICK, NULL, CLATTN_CACHE_KIND_PLAIN, CLATTN_DTYPE_F16, false},
    {"ring, bfloat16, rotated", NOT_QUICK, NULL, CLATTN_CACHE_KIND_RING, CLATTN_DTYPE_BF16, true},
    {"paged, int8, rotated", QUICK, NULL, CLATTN_CACHE_KIND_PAGED, CLATTN_DTYPE_I8, true},
    {"paged, int4", NOT_QUICK, NULL, CLATTN_CACHE_KIND_PAGED, CLATTN_DTYPE_I4, false},
};

static clattn_status kv_append_plan(clattn_context *context, const offline_problem *problem, clattn_plan **plan)
{
    const kv_append_row *row = problem->row;
    clattn_kv_append_desc desc = CLATTN_KV_APPEND_DESC_INIT;
    const bool paged = row->cache == CLATTN_CACHE_KIND_PAGED;
    const size_t batch = paged ? 1024 : 4, keys = paged ? 16 : 4096;
    desc.cache = row->cache;
    desc.rotate = row->rotate;
    desc.key = desc.value = clattn_layout_bhsd(CLATTN_DTYPE_F32, 4, 8, 16, 128);
    desc.key_cache = desc.value_cache = clattn_layout_bhsd(row->dtype, batch, 8, keys, 128);
    desc.past_lengths = i32(4);
    if (row->dtype == CLATTN_DTYPE_I8 || row->dtype == CLATTN_DTYPE_I4)
        desc.key_scale = desc.value_scale = f32(4, batch, 8, keys, 4);
    if (paged)
        desc.block_table = clattn_layout_contiguous(CLATTN_DTYPE_I32, 2, (const size_t[]){4, 256});
    CREATE(kv_append, problem, desc, plan);
}

/* ---- neighbourhoods ---- */

typedef struct neighbourhood_row {
    const char *about;
    bool quick;
    const char *solver;
    size_t d;
    int32_t window;
    clattn_dtype dtype;
    bool bias, backward;
} neighbourhood_row;

static const neighbourhood_row neighbourhood_rows[] = {
    {"d 32, window 7", QUICK, NULL, 32, 7, CLATTN_DTYPE_F32, false, false},
    {"d 64, window 13, float16, bias", NOT_QUICK, NULL, 64, 13, CLATTN_DTYPE_F16, true, false},
    {"d 147, window 21, bias", NOT_QUICK, NULL, 147, 21, CLATTN_DTYPE_F32, true, false},
    {"d 32, window 7 by generic", NOT_QUICK, "generic", 32, 7, CLATTN_DTYPE_F32, true, false},
    {"d 32, window 7 by cpu", NOT_QUICK, "cpu", 32, 7, CLATTN_DTYPE_F32, true, false},
    {"gradients, d 32, window 7", NOT_QUICK, NULL, 32, 7, CLATTN_DTYPE_F32, true, true},
    {"gradients, d 64, window 13, float16", NOT_QUICK, NULL, 64, 13, CLATTN_DTYPE_F16, false, true},
};

static clattn_status neighbourhood_plan(clattn_context *context, const offline_problem *problem, clattn_plan **plan)
{
    const neighbourhood_row *row = problem->row;
    clattn_neighbourhood_desc desc = CLATTN_NEIGHBOURHOOD_DESC_INIT;
    const size_t extent[5] = {1, 4, 256, 256, row->d};
    desc.query = desc.key = desc.value = desc.output = clattn_layout_contiguous(row->dtype, 5, extent);
    desc.window[0] = desc.window[1] = row->window;
    if (row->bias)
        desc.bias = clattn_layout_contiguous(CLATTN_DTYPE_F32, 4, extent);
    if (row->backward) {
        desc.direction = CLATTN_DIRECTION_BACKWARD;
        desc.gradients.output = desc.gradients.query = desc.gradients.key = desc.gradients.value = desc.output;
        desc.gradients.bias = desc.bias;
        desc.output = (clattn_layout){0};
    }
    CREATE(neighbourhood, problem, desc, plan);
}

void attention_problems_visit(void (*visit)(void *user, const offline_problem *problem), void *user)
{
    VISIT_ROWS(attention)
    VISIT_ROWS(merge)
    VISIT_ROWS(neighbourhood)
    VISIT_ROWS(rope)
    VISIT_ROWS(kv_append)
}
