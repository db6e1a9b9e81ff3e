/* Attention's other outputs: log-sum-exp, entropy, the scores in four modes, dropout; results that can be merged.
 *
 * Holds: include/clattn/attention.h from lse and scores to dropout and clattn_dropout_keep. */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "support/attention/case.h"

static const attention_case entropies[] = {
    {"entropy", ALL, LITTLE, .entropy = true},
    {"entropy", BIG | TILE, MEDIUM, .entropy = true},
    {"entropy without lse", BIG, MEDIUM, .entropy = true, .no_lse = true},
    {"entropy of equal scores", BIG, MEDIUM, .entropy = true, .fill = FILL_ZERO_QUERY},
    {"entropy of logits near 1e4 and -1e4", ALL, LITTLE, .entropy = true, .scaled = true, .scale = 1,
     .fill = FILL_HUGE},
    {"entropy of logits near 1e4 and -1e4", BIG, MEDIUM, .entropy = true, .scaled = true, .scale = 1,
     .fill = FILL_HUGE},
    {"entropy of logits far apart", BIG, MEDIUM, .entropy = true, .scaled = true, .scale = 1, .fill = FILL_WILD},
    {"entropy, no keys", ALL, LITTLE, .entropy = true, .shorter = true, .actual = {2, 5, 0}},
    {"entropy, NaN key", BIG, MEDIUM, .entropy = true, .inject = INJECT_KEY_NAN},
    {"entropy, sinks, causal, some rows empty", ALL, .dim = {2, 2, 1, 9, 5, 8, 8}, .entropy = true, .sinks = true,
     .causal = true, AT(BOTTOM_RIGHT, 0)},
    {"entropy, sinks, logits near 1e4", BIG, MEDIUM, .entropy = true, .sinks = true, .causal = true,
     AT(BOTTOM_RIGHT, 0), .scaled = true, .scale = 1, .fill = FILL_HUGE},
    {"entropy, mask, dropout", BIG, MEDIUM, .entropy = true, .mask = MASK_BOOL, .dropout = 0.5f,
     .inject = INJECT_MASKED},
};

/* Each mode of scores has the same attention. */
#define ADDENDS \
    .softcap = 2, .scaled = true, .scale = 1.5f, .bias = MASK_FLOAT, .alibi = 1, .causal = true, AT(EXPLICIT, 6), \
    .mask = MASK_BOOL, .list = {.queries = LIST(5, 3), .keys = LIST(4, 9)}
#define MORE_ADDENDS \
    .softcap = 2, .scaled = true, .scale = 1.5f, .bias = MASK_FLOAT, .alibi = 1, .causal = true, AT(EXPLICIT, 40), \
    .mask = MASK_BOOL, .list = {.queries = LIST(35, 20), .keys = LIST(67, 50)}

static const attention_case scores[] = {
    {"raw scores", ALL, LITTLE, ADDENDS, .scores = SCORES_OF(RAW)},
    {"raw scores", BIG, MEDIUM, MORE_ADDENDS, .scores = SCORES_OF(RAW)},
    {"capped scores", ALL, LITTLE, ADDENDS, .scores = SCORES_OF(CAPPED)},
    {"capped scores", BIG, MEDIUM, MORE_ADDENDS, .scores = SCORES_OF(CAPPED), .shorter = true, .actual = {2, 30, 60}},
    {"biased scores", ALL, LITTLE, ADDENDS, .scores = SCORES_OF(BIASED), .inject = INJECT_MASKED},
    {"biased scores", BIG, MEDIUM, MORE_ADDENDS, .scores = SCORES_OF(BIASED), .inject = INJECT_MASKED},
    {"probabilities", ALL, LITTLE, ADDENDS, .scores = SCORES_OF(PROBABILITIES), .inject = INJECT_MASKED},
    {"probabilities", BIG, MEDIUM, MORE_ADDENDS, .scores = SCORES_OF(PROBABILITIES), .inject = INJECT_MASKED},
    {"probabilities, shorter, without lse", ALL, LITTLE, ADDENDS, .scores = SCORES_OF(PROBABILITIES), .no_lse = true,
     .shorter = true, .actual = {2, 3, 7}},
    {"probabilities, shorter, without lse", BIG, MEDIUM, MORE_ADDENDS, .scores = SCORES_OF(PROBABILITIES),
     .no_lse = true, .shorter = true, .actual = {1, 30, 60}},
    {"probabilities of more keys than a work-item writes", BIG, .dim = {1, 2, 1, 35, 1000, 8, 8},
     .scores = SCORES_OF(PROBABILITIES), .causal = true, .alignment = CLATTN_ALIGNMENT_BOTTOM_RIGHT},
    {"probabilities of nothing", ALL, LITTLE, .scores = SCORES_OF(PROBABILITIES), .mask = MASK_FALSE},
    {"probabilities, no keys", ALL, LITTLE, .scores = SCORES_OF(PROBABILITIES), .mask = MASK_BOOL, .shorter = true,
     .actual = {2, 5, 0}},
    {"probabilities, NaN query", BIG, MEDIUM, .scores = SCORES_OF(PROBABILITIES), .mask = MASK_BOOL,
     .inject = INJECT_QUERY_NAN},
    {"probabilities, shorter, NaN query, +0 behind mask and diagonal", BIG, MEDIUM, MORE_ADDENDS,
     .scores = SCORES_OF(PROBABILITIES), .inject = INJECT_QUERY_NAN, .shorter = true, .actual = {2, 30, 60}},
    {"probabilities, NaN key", ALL, LITTLE, ADDENDS, .scores = SCORES_OF(PROBABILITIES), .inject = INJECT_KEY_NAN},
    {"probabilities in float16, before dropout, sinks", BIG, MEDIUM, .scores = SCORES_OF(PROBABILITIES),
     .type.scores = CLATTN_DTYPE_F16, .sinks = true, .dropout = 0.4f},
    {"raw scores in float16, some too large", BIG, MEDIUM, .scores = SCORES_OF(RAW), .type.scores = CLATTN_DTYPE_F16,
     .scaled = true, .scale = 1e-4f, .fill = FILL_LARGE},
    {"biased scores in bfloat16, additive", BIG, MEDIUM, .scores = SCORES_OF(BIASED), .type.scores = CLATTN_DTYPE_BF16,
     .additive = true, .causal = true},
    {"biased scores, float16, paged int8 keys", BIG, .dim = {2, 4, 2, 9, 40, 8, 8}, .scores = SCORES_OF(BIASED),
     .type = {.query = CLATTN_DTYPE_F16, .key = CLATTN_DTYPE_I8, .value = CLATTN_DTYPE_F16}, .key_groups = 2,
     PAGED(41, 4), .list.keys = LIST(33, 40)},
    {"probabilities in float64 state", BIG, MEDIUM, .scores = SCORES_OF(PROBABILITIES), .type = FOUR(CLATTN_DTYPE_F64)},
};

static const attention_case dropouts[] = {
    {"dropout", ALL, LITTLE, .dropout = 0.3f, .seed = 42},
    {"dropout", BIG | TILE, .dim = {2, 4, 2, 131, 201, 8, 8}, .dropout = 0.3f, .seed = 42},
    {"dropout, another offset", BIG, MEDIUM, .dropout = 0.3f, .seed = 42, .dropout_offset = 0xffffffffu},
    {"dropout, another seed", BIG, MEDIUM, .dropout = 0.3f, .seed = UINT64_MAX},
    {"dropout of nearly all", BIG, MEDIUM, .dropout = 1 - FLT_EPSILON / 2, .seed = 1},
    {"dropout of nearly nothing", BIG, MEDIUM, .dropout = FLT_MIN, .seed = 1},
    {"dropout, shorter", BIG, MEDIUM, .dropout = 0.3f, .seed = 42, .shorter = true, .actual = {1, 34, 33},
     .inject = INJECT_MASKED},
    {"dropout, causal, grouped heads", BIG, .dim = {3, 6, 2, 67, 67, 8, 8}, .dropout = 0.3f, .seed = 42, .causal = true,
     .inject = INJECT_MASKED},
    {"dropout, NaN key", BIG, MEDIUM, .dropout = 0.3f, .seed = 42, .inject = INJECT_KEY_NAN},
};

/* ---- the generator ---- */

static void host_dropout(void **state)
{
    random_stream stream = random_start(0xd10);
    size_t kept = 0, count = level() == LEVEL_FULL ? 200000 : 20000;

    (void)state;
    for (size_t n = 0; n < count; n++) {
        uint64_t seed = random_bits(&stream);
        uint32_t offset = (uint32_t)random_bits(&stream), heads = (uint32_t)random_int(&stream, 1, 64);
        uint32_t batch = (uint32_t)random_int(&stream, 0, 1 << 20), head = (uint32_t)random_int(&stream, 0, 63) % heads;
        uint32_t query = (uint32_t)random_int(&stream, 0, INT32_MAX), key = (uint32_t)random_int(&stream, 0, INT32_MAX);
        const uint32_t counter[4] = {key / 4, query, batch * heads + head, offset};
        const uint32_t keys[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
        uint32_t word[4];

        reference_philox(counter, keys, word);
        float dropout = random_float(&stream, 0, 1);
        int expected = word[key % 4] / 4294967296.0 >= (double)dropout;
        assert_int_equal(clattn_dropout_keep(seed, offset, dropout, heads, batch, head, query, key), expected);
        kept += (size_t)clattn_dropout_keep(seed, offset, 0.25f, heads, batch, head, query, key);
    }
    /* The limit is five standard deviations. */
    assert_true(fabs((double)kept / (double)count - 0.75) < 5 * sqrt(0.75 * 0.25 / (double)count));
    /* The words of the paper's first test vector: a probability just below the threshold is kept, and one at the
     * threshold too. */
    assert_int_equal(clattn_dropout_keep(0, 0, 0x1.989fa2p-2f, 1, 0, 0, 0, 0), 1); /* 0x6627e8d5 / 2^32, truncated */
    assert_int_equal(clattn_dropout_keep(0, 0, 0x1.989fa4p-2f, 1, 0, 0, 0, 0), 0);
    assert_int_equal(clattn_dropout_keep(0, 0, 0, 1, 0, 0, 0, 0), 1);
}

/* ---- merging ---- */

/* Merges the output of one part of the keys, weighted by exp(lse), into that of the others. */
static void merge(size_t rows, size_t columns, double *output, double *lse, const double *part, const double *part_lse)
{
    for (size_t i = 0; i < rows; i++) {
        double top = fmax(lse[i], part_lse[i]);
        double old = top == -INFINITY ? 0 : exp(lse[i] - top), new = top == -INFINITY ? 0 : exp(part_lse[i] - top);

        for (size_t d = 0; d < columns; d++) {
            output[i * columns + d] =
                old + new == 0 ? 0 : (old * output[i * columns + d] + new *part[i * columns + d]) / (old + new);
        }
        lse[i] = old + new == 0 ? -INFINITY : top + log(old + new);
    }
}

static const attention_case mergeable[] = {
    {"parts merge, many features", ALL, .dim = {2, 4, 2, 5, 23, 8, 8}, .softcap = 3, .alibi = 1, .causal = true,
     AT(EXPLICIT, 8), .windowed = true, .left = 14, .right = 3},
    {"parts merge", ALL | TILE, .dim = {2, 4, 2, 5, 23, 8, 8}},
};

/* Three parts of the keys, each at its own position, give when merged what all keys give at once. */
static void merging(const void *which, const char *solver)
{
    static const size_t from[] = {0, 4, 15, 23};
    const attention_case *test = which;
    size_t rows = test->dim.batch * test->dim.heads * test->dim.queries, columns = test->dim.d_v;
    size_t extent[4] = {test->dim.batch, test->dim.heads, test->dim.queries, columns};
    test_job job = {0};

    if (!attention_job(&job, test, solver, 1)) {
        job_release(&job);
        return;
    }
    job_run(&job, NULL);
    double *whole = array_dense(&job.output[OUTPUT], 4, extent), *whole_lse = array_dense(&job.output[LSE], 3, extent);
    double *output = calloc(rows * columns, sizeof *output), *lse = malloc(rows * sizeof *lse);
    assert_true(output && lse);
    for (size_t i = 0; i < rows; i++) {
        lse[i] = -INFINITY;
    }
    clattn_attention_args *args = &job.args.attention;
    const clattn_attention_args all = *args;
    for (size_t n = 0; n + 1 < COUNT_OF(from); n++) {
        args->explicit_lengths = 1;
        args->batch = test->dim.batch;
        args->query_length = test->dim.queries;
        args->key_length = from[n + 1] - from[n];
        args->position = all.position - (int64_t)from[n];
        args->key.offset = all.key.offset + (int64_t)from[n] * job.input[KEY].layout.stride[2];
        args->value.offset = all.value.offset + (int64_t)from[n] * job.input[VALUE].layout.stride[2];
        job_run(&job, NULL);
        double *part = array_dense(&job.output[OUTPUT], 4, extent),
               *part_lse = array_dense(&job.output[LSE], 3, extent);
        merge(rows, columns, output, lse, part, part_lse);
        free(part);
        free(part_lse);
    }
    for (size_t i = 0; i < rows; i++) {
        assert_true(lse[i] == whole_lse[i] || fabs(lse[i] - whole_lse[i]) < 4e-6);
        for (size_t d = 0; d < columns; d++) {
            assert_true(fabs(output[i * columns + d] - whole[i * columns + d]) < 4e-6);
        }
    }
    free(whole);
    free(whole_lse);
    free(output);
    free(lse);
    job_release(&job);
}

/* ---- what the outputs' buffers must allow ---- */

static void probabilities_read_lse(void **state)
{
    static const attention_case test = {"", ALL, LITTLE, .scores = SCORES_OF(PROBABILITIES)};
    test_job job = {0};
    cl_int code;

    (void)state;
    assert_true(attention_job(&job, &test, "generic", 1));
    const test_memory *memory = job.output[LSE].memory;
    cl_mem blind = clCreateBuffer(clattn_context_opencl_context(device_context()), CL_MEM_WRITE_ONLY,
                                  memory->count * memory->element_size, NULL, &code);
    assert_cl(code);
    job.args.attention.outputs.lse.buffer = blind;
    assert_status(device_context(), job_enqueue(&job, NULL, 0, NULL, NULL), CLATTN_ERROR_BUFFER_ACCESS);
    device_release_buffer(blind);
    job_release(&job);
}

int main(int argc, char **argv)
{
    attention_add_frugal(entropies, COUNT_OF(entropies));
    attention_add_frugal(scores, COUNT_OF(scores));
    attention_add_frugal(dropouts, COUNT_OF(dropouts));
    suite_add(host_dropout, "dropout: the host's generator");
    attention_add_check(merging, mergeable, COUNT_OF(mergeable));
    suite_add(probabilities_read_lse, "attention: probabilities need a readable lse");
    return suite_run("attention outputs", argc, argv);
}
