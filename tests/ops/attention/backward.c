/* Attention's backward direction gives the derivatives of its definition, for every feature that has some.
 *
 * The tests' gradients (support/attention/backward.h) are held to differences of the forward reference, and the library's to them, by
 * the accuracy rule. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/attention/backward_job.h"
#include "support/attention/backward_mods.h"
#include "support/attention/engine_cases.h"

#define F64 CLATTN_DTYPE_F64
#define HALF CLATTN_DTYPE_F16
#define BF CLATTN_DTYPE_BF16

/* What the solver rounds P and dS to. */
static clattn_dtype weights_of(const attention_case *t, const char *solver)
{
    const bool rounds = strcmp(solver, "generic") != 0 && strcmp(solver, "cpu") != 0 && strcmp(solver, "tile") != 0 &&
                        strcmp(solver, "cpu-amx") != 0;
    return rounds ? t->type.query : CLATTN_DTYPE_NONE;
}

static void check(const void *test, const char *solver)
{
    struct backward_job j;
    const attention_case *t = test;

    backward_prepare(&j, t);
    j.weights = weights_of(t, solver);
    const bool is_cpu = strncmp(solver, "cpu", 3) == 0;
    const bool is_tile = strcmp(solver, "tile") == 0;
    const bool is_large = strcmp(solver, "cpu-amx") == 0 && t->dim.d_k + t->dim.d_v > 900;
    const bool refused =
        is_large || (is_cpu ? t->additive || t->mask > MASK_BOOL || t->bias || t->alibi || t->type.query == F64
                            : (is_tile && (t->additive || t->dim.d_v > 512)) || attention_refuses(t, solver));
    if (job_plan(&j.job, &attention_operator, &j.desc, solver,
                 refused         ? JOB_REFUSED
                 : t->long_loops ? JOB_LOOPS
                                 : JOB_TAKEN)) {
        backward_run(&j);
        backward_judge(&j);
    }
    backward_release(&j);
}

/* ---- the cases; `entropy` stands for a gradient of the log-sum-exp, type.scores for the type of gradients of rows ---- */

#define SMALL .dim = {2, 4, 2, 13, 19, 8, 6}
#define BY_ENGINES (BY_EMULATED_MMA | BY_MATRIX)
#define MORE_SIZES .dim = {2, 2, 2, 33, 70, 24, 40}

static const attention_case cases[] = {
    {"plain", ALL, .dim = {1, 2, 1, 5, 7, 8, 8}},
    {"plain", BIG | TILE, MORE_SIZES},
    {"log-sum-exp", BIG, SMALL, .entropy = true},
    {"causal", BIG, SMALL, .causal = true, .entropy = true},
    {"causal, bottom right", BIG, SMALL, .causal = true, .alignment = CLATTN_ALIGNMENT_BOTTOM_RIGHT},
    {"leading rows attend nothing", BIG, .dim = {2, 2, 1, 19, 11, 8, 6}, .causal = true,
     .alignment = CLATTN_ALIGNMENT_BOTTOM_RIGHT, .sinks = true, .entropy = true},
    {"window", BIG | TILE, SMALL, .windowed = true, .left = 3, .right = 2},
    {"window without a left end", MORE, SMALL, .windowed = true, .left = -1, .right = 2},
    {"boolean mask", BIG | TILE, SMALL, .mask = MASK_BOOL},
    {"float mask", ALL | TILE, .dim = {2, 2, 1, 5, 7, 8, 8}, .mask = MASK_FLOAT},
    {"float mask for all heads and queries", BIG, SMALL, .mask = MASK_FLOAT, .mask_rank = 4,
     .mask_extent = {2, 1, 1, 19}},
    {"bias for all items", BIG, SMALL, .bias = MASK_FLOAT, .bias_rank = 3, .bias_extent = {4, 13, 19}},
    {"bias for all keys", MORE, SMALL, .bias = MASK_FINITE, .bias_rank = 4, .bias_extent = {2, 4, 13, 1}},
    {"short mask and bias", BIG, SMALL, .mask = MASK_FLOAT, .mask_rank = 1, .mask_extent = {11}, .bias = MASK_FINITE,
     .bias_rank = 2, .bias_extent = {13, 19}},
    {"nothing is attended", BIG, SMALL, .mask = MASK_INF, .entropy = true},
    {"softcap", BIG | TILE, SMALL, .softcap = 0.7f},
    {"alibi", BIG | TILE, SMALL, .alibi = 1, .causal = true},
    {"alibi of each item", BIG, SMALL, .alibi = 2},
    {"alibi of all items", MORE, SMALL, .alibi = 2, .shared_alibi = true},
    {"sinks", ALL | TILE, .dim = {2, 2, 1, 5, 7, 8, 8}, .sinks = true, .entropy = true},
    {"additive", BIG, SMALL, .additive = true},
    {"additive, one vector, a sink", BIG, SMALL, .additive = true, .shared_vector = true, .sinks = true},
    {"dropout", BIG | TILE, SMALL, .dropout = 0.3f, .seed = 11, .dropout_offset = 3, .entropy = true},
    {"lengths", BIG | TILE, SMALL, .list = {.queries = LIST(13, 4), .keys = LIST(6, 19)}, .sinks = true,
     .entropy = true},
    {"shorter than the plan", BIG, SMALL, SHORTER(1, 9, 12), .mask = MASK_FLOAT, .alibi = 2},
    {"packed sequences", BIG | TILE, .dim = {2, 4, 2, 21, 31, 8, 6},
     .list = {.query_starts = LIST(0, 9, 20), .key_starts = LIST(1, 14, 31)}, .longest = 12, .sinks = true, .alibi = 1,
     .entropy = true},
    {"packed sequences, mask", BIG, .dim = {2, 4, 2, 21, 31, 8, 6},
     .list = {.query_starts = LIST(0, 9, 20), .key_starts = LIST(1, 14, 31)}, .longest = 12, .mask = MASK_BOOL},
    {"equal weights of many keys", MORE | TILE, .dim = {1, 8, 1, 40, 300, 8, 8}, .fill = FILL_ZERO_QUERY},
    {"positions", BIG, SMALL, .causal = true, .alignment = CLATTN_ALIGNMENT_EXPLICIT, .position = 2,
     .list = {.positions = LIST(4, -3)}},
    {"scale 0", MORE, SMALL, .scaled = true},
    {"bfloat16, negative scale, some rows attend the sink alone", MORE, .dim = {2, 2, 1, 19, 11, 8, 6},
     .type = FOUR(BF), .causal = true, .alignment = CLATTN_ALIGNMENT_BOTTOM_RIGHT, .sinks = true, .scaled = true,
     .scale = -1.5f},
    {"negative scale", BIG, SMALL, .scaled = true, .scale = -1.5f, .mask = MASK_BOOL, .list = {.keys = LIST(6, 19)}},
    {"logits near 1e4 and -1e4", BIG, MEDIUM, .scaled = true, .scale = 1, .fill = FILL_HUGE},
    {"strides", BIG | TILE, SMALL, .form = {FORM_BSHD, FORM_TRANSPOSED, FORM_MIRRORED, FORM_SPREAD, FORM_PADDED},
     .mask = MASK_FLOAT},
    {"float16", BIG | TILE, SMALL, .type = FOUR(HALF), .entropy = true},
    {"bfloat16", BIG, SMALL, .type = FOUR(BF), .causal = true},
    {"bfloat16, plain", ALL, .dim = {1, 2, 1, 5, 7, 8, 8}, .type = FOUR(BF)},
    {"bfloat16, odd sizes", BIG | TILE, .dim = {2, 4, 2, 77, 101, 35, 27}, .type = FOUR(BF), .entropy = true,
     .softcap = 3, .windowed = true, .left = 30, .right = 20, .sinks = true},
    {"bfloat16, dropout", MORE, .dim = {1, 2, 1, 130, 64, 32, 64}, .type = FOUR(BF), .dropout = 0.2f, .seed = 9,
     .mask = MASK_BOOL},
    {"bfloat16, all that changes a score", MORE, .dim = {2, 4, 2, 37, 45, 24, 40}, .type = FOUR(BF), .entropy = true,
     .mask = MASK_FLOAT, .bias = MASK_FLOAT, .softcap = 3, .alibi = 1, .sinks = true, .dropout = 0.2f, .seed = 9,
     .causal = true},
    {"bfloat16, strides", MORE, SMALL, .form = {FORM_BSHD, FORM_TRANSPOSED, FORM_MIRRORED, FORM_SPREAD, FORM_PADDED},
     .type = FOUR(BF), .mask = MASK_BOOL},
    {"bfloat16, shorter than the plan, short launches", MORE, .dim = {2, 4, 2, 83, 99, 8, 6}, SHORTER(1, 81, 90),
     .type = FOUR(BF), .max_launch_ms = 1},
    {"bfloat16, head size 129", MORE, .dim = {1, 2, 1, 5, 7, 129, 8}, .type = FOUR(BF), .refused_by = BY_ENGINES},
    {"float16, head size 128", FULL, .dim = {1, 2, 1, 70, 67, 128, 128}, .type = FOUR(HALF), .causal = true},
    {"float16, packed sequences", MORE, .dim = {2, 4, 2, 21, 31, 8, 6}, .type = FOUR(HALF),
     .list = {.query_starts = LIST(0, 9, 20), .key_starts = LIST(1, 14, 31)}, .longest = 12, .sinks = true},
    {"float16, logits near 1e4 and -1e4", MORE, MEDIUM, .type = FOUR(HALF), .scaled = true, .scale = 1,
     .fill = FILL_HUGE},
    {"float64", BIG, SMALL, .type = FOUR(F64), .entropy = true, .softcap = 2, .alibi = 1, .sinks = true},
    {"float64, mask and dropout", MORE, SMALL,
     .type = {.query = F64, .key = F64, .value = F64, .output = F64, .mask = F64}, .mask = MASK_FLOAT, .dropout = 0.2f,
     .seed = 7},
    {"short launches", BIG, MORE_SIZES, .max_launch_ms = 1, .sinks = true},
    {"long heads", MORE, .dim = {1, 2, 1, 7, 9, 300, 1100}, .long_loops = true},
    {"many rows with a sink", MORE, .dim = {1100, 1, 1, 64, 2, 4, 4}, .sinks = true, .long_loops = true},
    {"several blocks, grouped heads", BIG | TILE, .dim = {2, 4, 2, 150, 131, 16, 24}, .causal = true, .entropy = true},
    {"several blocks, one head", MORE, .dim = {1, 1, 1, 333, 100, 8, 8}, .windowed = true, .left = 40, .right = 9},
    {"score_mod, mask_mod", ALL, .dim = {1, 2, 1, 5, 7, 8, 8}, .mod = &backward_bent, .entropy = true},
    {"score_mod by pairs, several blocks", BIG | TILE, .dim = {2, 4, 2, 150, 131, 8, 6}, .mod = &backward_pairs,
     .softcap = 0.9f, .causal = true, .sinks = true, .list = {.queries = LIST(150, 71), .keys = LIST(131, 90)}},
    {"score_mod, all else", BIG, SMALL, .mod = &backward_pairs, .softcap = 0.9f, .causal = true, .mask = MASK_FLOAT,
     .bias = MASK_FINITE, .alibi = 1, .sinks = true, .entropy = true, .dropout = 0.3f, .seed = 4},
    {"score_mod of -inf", BIG, SMALL, .mod = &backward_cut, .entropy = true},
    {"score_mod, infinite derivatives", BIG | TILE, SMALL, .mod = &backward_steep},
    {"score_mod, additive", MORE, SMALL, .mod = &backward_bent, .additive = true},
    {"score_mod, packed sequences", MORE, .dim = {2, 4, 2, 21, 31, 8, 6},
     .list = {.query_starts = LIST(0, 9, 20), .key_starts = LIST(1, 14, 31)}, .longest = 12, .mod = &backward_bent},
    {"score_mod, bfloat16", BIG, .dim = {2, 4, 2, 77, 101, 35, 27}, .type = FOUR(BF), .mod = &backward_bent,
     .softcap = 3},
    {"score_mod, float64 by way of float", MORE, SMALL, .type = FOUR(F64), .mod = &backward_bent, .softcap = 2},
    {"some of the keys", ALL | TILE, .dim = {2, 2, 1, 5, 7, 8, 8}, .sinks = true, .partial = true, .scaled = true,
     .scale = 12, .entropy = true},
    {"some of the keys, several blocks", BIG, MORE_SIZES, .sinks = true, .partial = true, .scaled = true, .scale = 7,
     .causal = true},
    {"some of the keys, additive", BIG, SMALL, .sinks = true, .partial = true, .additive = true, .scaled = true,
     .scale = 20},
    {"some of the keys, bfloat16", BIG, MORE_SIZES, .type = FOUR(BF), .sinks = true, .partial = true, .scaled = true,
     .scale = 7},
    {"some of the keys, float16", MORE | TILE, MORE_SIZES, .type = FOUR(HALF), .sinks = true, .partial = true,
     .scaled = true, .scale = 7, .entropy = true},
    {"heads of one column", MORE, .dim = {1, 2, 1, 7, 9, 1, 1}, .sinks = true},
};

/* What is special to tiles of 32 keys, of 32 columns and of 32 queries, to blocks of 128 queries and to tiles of 64 keys. */
static const attention_case amx_cases[] = {
    {"one tile more", BIG, .dim = {1, 2, 1, 33, 65, 33, 31}, .dropout = 0.2f, .seed = 3, .softcap = 2},
    {"several blocks of all sizes, odd head sizes", BIG, .dim = {1, 2, 2, 300, 129, 5, 37}, .causal = true,
     .alignment = CLATTN_ALIGNMENT_BOTTOM_RIGHT, .entropy = true},
    {"head sizes 129 and 256", MORE, .dim = {1, 1, 1, 70, 67, 129, 256}},
    {"head size 256", MORE, .dim = {1, 1, 1, 130, 97, 256, 256}, .windowed = true, .left = 40, .right = 3},
    {"float16 and bfloat16", MORE, .dim = {1, 2, 1, 40, 70, 24, 40},
     .type = {CLATTN_DTYPE_F32, HALF, BF, CLATTN_DTYPE_F32, .scores = CLATTN_DTYPE_F32}},
    {"products of 3.6e9", MORE, MORE_SIZES, .fill = FILL_LARGE, .scaled = true, .scale = 0x1p-30f},
};

/* ---- the tests' gradients against differences of the forward reference ---- */

/* The loss: dO . O + dlse . lse over the items' rows. */
static double loss(const struct backward_job *j)
{
    const reference_problem *p = &j->dense.problem;
    const size_t rows = p->batch * p->heads * p->queries;
    double *output = zeros(rows * p->d_v), *lse = zeros(rows), sum = 0;

    reference_attention(p, false, &(reference_result){.output = output, .lse = lse});
    for (size_t row = 0; row < rows; row++) {
        if (row % p->queries >= j->queries[row / p->queries / p->heads]) {
            continue;
        }
        for (size_t c = 0; c < p->d_v; c++) {
            sum += j->d_output[row * p->d_v + c] * output[row * p->d_v + c];
        }
        if (j->given_lse.memory && isfinite(lse[row])) {
            sum += j->d_lse[row] * lse[row];
        }
    }
    free(output);
    free(lse);
    return sum;
}

/* Compares `count` derivatives by the numbers at `at` with differences. */
static void differentiate(const struct backward_job *j, const char *name, double *at, const double *derivative,
                          size_t count)
{
    const double step = 1e-5;
    for (size_t n = 0; at && n < count; n++) {
        const double before = at[n];
        if (!isfinite(before)) {
            continue;
        }
        at[n] = before + step;
        const double above = loss(j);
        at[n] = before - step;
        const double slope = (above - loss(j)) / (2 * step);
        at[n] = before;
        if (!(fabs(slope - derivative[n]) < 1e-7 * (1 + fabs(slope)))) {
            fail_msg("%s %zu is %.12g, by differences %.12g", name, n, derivative[n], slope);
        }
    }
}

static const attention_case differences[] = {
    {"everything", ALL, .dim = {2, 2, 1, 3, 4, 3, 2}, .mask = MASK_FLOAT, .bias = MASK_FINITE, .softcap = 0.9f,
     .alibi = 1, .sinks = true, .dropout = 0.3f, .seed = 5, .entropy = true},
    {"additive", ALL, .dim = {2, 2, 1, 3, 4, 3, 2}, .additive = true, .causal = true, .entropy = true},
    {"score_mod", ALL, .dim = {2, 2, 1, 3, 4, 3, 2}, .mod = &backward_pairs, .causal = true, .mask = MASK_FLOAT,
     .bias = MASK_FINITE, .softcap = 0.9f, .alibi = 1, .sinks = true, .dropout = 0.3f, .seed = 5, .entropy = true},
    {"score_mod, mask_mod, additive", ALL, .dim = {2, 2, 1, 3, 4, 3, 2}, .mod = &backward_bent, .additive = true},
    {"score_mod of -inf", ALL, .dim = {2, 2, 1, 3, 4, 3, 2}, .mod = &backward_cut, .entropy = true},
};

static void check_differences(const void *test, const char *unused)
{
    struct backward_job j;
    const attention_case *t = test;
    (void)unused;

    backward_prepare(&j, t);
    const reference_problem *p = &j.dense.problem;
    backward_result r = backward_results(p);
    reference_attention(p, false, &(reference_result){.output = j.output}); /* not as it is stored */
    const backward_problem problem = backward_problem_of(&j);
    reference_backward(&problem, false, &r);
    differentiate(&j, "query", j.dense.query, r.value[BY_QUERY], backward_count(p, BY_QUERY));
    differentiate(&j, "key", j.dense.key, r.value[BY_KEY], backward_count(p, BY_KEY));
    differentiate(&j, "value", j.dense.value, r.value[BY_VALUE], backward_count(p, BY_VALUE));
    differentiate(&j, "bias", j.dense.bias, r.value[BY_PAIR], backward_count(p, BY_PAIR));
    differentiate(&j, "vector", j.dense.vector, r.value[BY_VECTOR], backward_count(p, BY_VECTOR));
    differentiate(&j, "sink", j.dense.sinks, r.value[BY_SINK], backward_count(p, BY_SINK));
    if (t->alibi) { /* by a slope: subtracted is slope * distance */
        const size_t each = p->queries * p->keys;
        for (size_t n = 0; n < p->batch * p->heads; n++) {
            double sum = 0;
            for (size_t i = 0; i < each; i++) {
                sum -= r.value[BY_PAIR][n * each + i] * j.distance[n * each + i];
            }
            assert_true(fabs(sum - r.value[BY_SLOPE][n]) < 1e-12 * (1 + fabs(sum)));
        }
    }
    backward_results_release(&r);
    backward_release(&j);
}

/* ---- what does not count ---- */

/* Whether query i of head h attends key j. */
static bool attends(const reference_problem *p, size_t b, size_t h, size_t i, size_t j)
{
    const size_t at = ((b * p->heads + h) * p->queries + i) * p->keys + j;
    return !(p->addend && p->addend[at] == -INFINITY) && !(p->bias && p->bias[at] == -INFINITY);
}

/* Writes NaN into a row of an input. */
static void spoil(const struct backward_job *j, test_array *array, bool is_key, size_t b, size_t h, size_t row)
{
    const size_t width = array->layout.rank == 4 ? array->layout.extent[3] : 1;
    size_t index[4];

    for (index[3] = 0; backward_row_index(j->test, is_key, b, h, row, index) && index[3] < width; index[3]++) {
        array_set(array, index, NAN);
    }
}

static void spoil_what_does_not_count(struct backward_job *j)
{
    const reference_problem *p = &j->dense.problem;
    const size_t group = p->heads / p->kv_heads;
    test_array *const rows[] = {&j->job.input[QUERY], &j->given_output, &j->given, &j->given_lse};
    test_array *const keys[] = {&j->job.input[KEY], &j->job.input[VALUE]};

    for (size_t b = 0; b < p->batch; b++) {
        for (size_t n = 0; n < p->heads * p->queries; n++) {
            bool counts = false;
            for (size_t k = 0; k < p->keys; k++) {
                counts = counts || attends(p, b, n / p->queries, n % p->queries, k);
            }
            for (size_t i = 0; i < COUNT_OF(rows) && !counts; i++) {
                if (rows[i]->memory) {
                    spoil(j, rows[i], false, b, n / p->queries, n % p->queries);
                }
            }
        }
        for (size_t n = 0; n < p->kv_heads * p->keys; n++) {
            bool counts = false;
            for (size_t i = 0; i < group * p->queries; i++) {
                counts = counts || attends(p, b, n / p->keys * group + i / p->queries, i % p->queries, n % p->keys);
            }
            for (size_t i = 0; i < COUNT_OF(keys) && !counts; i++) {
                spoil(j, keys[i], true, b, n / p->keys, n % p->keys);
            }
        }
    }
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        if (rows[i]->memory) {
            array_upload(rows[i]);
        }
    }
    array_upload(keys[0]);
    array_upload(keys[1]);
}

/* Rows that attend nothing, and keys that none attends, may hold NaN: no bit changes. */
static void check_what_does_not_count(const void *test, const char *solver)
{
    struct backward_job j;
    backward_prepare(&j, test);
    j.weights = weights_of(test, solver);
    if (!backward_plan(&j, solver)) {
        backward_release(&j);
        return;
    }
    backward_run(&j);
    backward_judge(&j);
    test_array *const outputs[] = {&j.query, &j.key, &j.value};
    unsigned char *before[COUNT_OF(outputs)];
    for (size_t i = 0; i < COUNT_OF(outputs); i++) {
        const size_t bytes = outputs[i]->memory->element_size * outputs[i]->memory->count;
        before[i] = malloc(bytes);
        assert_non_null(before[i]);
        memcpy(before[i], outputs[i]->memory->host, bytes);
    }
    spoil_what_does_not_count(&j);
    backward_run(&j);
    for (size_t i = 0; i < COUNT_OF(outputs); i++) {
        array_download(outputs[i]);
        assert_memory_equal(before[i], outputs[i]->memory->host,
                            outputs[i]->memory->element_size * outputs[i]->memory->count);
        free(before[i]);
    }
    backward_release(&j);
}

static const attention_case uncounted[] = {
    {"masked keys", ALL | TILE, .dim = {2, 2, 1, 5, 7, 8, 8}, .mask = MASK_BOOL},
    {"masked keys, softcap", BIG, SMALL, .mask = MASK_BOOL, .softcap = 0.9f},
    {"masked keys, lengths", BIG, SMALL, .mask = MASK_BOOL, .list = {.queries = LIST(13, 4), .keys = LIST(6, 19)},
     .entropy = true},
    {"causal, a sink", BIG, .dim = {2, 2, 1, 90, 131, 8, 8}, .causal = true, .alignment = CLATTN_ALIGNMENT_EXPLICIT,
     .position = -20, .sinks = true},
    {"causal", BIG | TILE, .dim = {2, 2, 1, 90, 131, 8, 8}, .causal = true, .alignment = CLATTN_ALIGNMENT_EXPLICIT,
     .position = -20, .entropy = true},
    {"packed sequences", BIG | TILE, .dim = {2, 4, 2, 21, 31, 8, 6},
     .list = {.query_starts = LIST(0, 9, 20), .key_starts = LIST(1, 14, 31), .keys = LIST(9, 17)}, .longest = 12,
     .mask = MASK_BOOL},
    {"masked keys, lengths, bfloat16", BIG, SMALL, .type = FOUR(BF), .mask = MASK_BOOL,
     .list = {.queries = LIST(13, 4), .keys = LIST(6, 19)}, .entropy = true},
    {"masked keys, float16", MORE, SMALL, .type = FOUR(HALF), .mask = MASK_BOOL},
    {"causal, a sink, bfloat16", MORE, .dim = {2, 2, 1, 90, 131, 8, 8}, .type = FOUR(BF), .causal = true,
     .alignment = CLATTN_ALIGNMENT_EXPLICIT, .position = -20, .sinks = true},
};

/* ---- small derivatives ---- */

/* Derivatives by an output of float16 that are below its normal numbers: what is made of them for a product keeps the exponents of
 * float32, which bfloat16 has, too. */
static void small_derivatives(void **state)
{
    static const attention_case t = {"", ALL, .dim = {1, 2, 1, 19, 37, 8, 8},
                                     .type = {HALF, HALF, HALF, HALF, .scores = CLATTN_DTYPE_F32}};
    struct backward_job j;
    size_t index[4] = {0};
    (void)state;

    backward_prepare(&j, &t);
    j.weights = BF;
    for (size_t n = 0; n < t.dim.heads * t.dim.queries * t.dim.d_v; n++) {
        j.d_output[n] = ldexp(nearbyint(j.d_output[n] * 128), -24);
        array_set(&j.given_output, index, j.d_output[n]);
        array_next(4, j.given_output.layout.extent, index);
    }
    array_upload(&j.given_output);
    assert_true(job_plan(&j.job, &attention_operator, &j.desc, "emulated-mma", JOB_TAKEN));
    backward_run(&j);
    backward_judge(&j);
    backward_release(&j);
}

/* Whether the case is one for matrix engines. */
static bool is_short(const attention_case *t)
{
    return t->type.query == BF || t->type.query == HALF;
}

/* Whether a level leaves a case out for a solver whose kernels take seconds to compile on a CPU: below the level small it has the
 * smallest cases, and those of several blocks that are marked. */
static bool passes_by(const attention_case *t, const char *solver)
{
    const bool is_tile = strcmp(solver, "tile") == 0, is_marked = (t->levels & TILE) != 0;
    if (strcmp(solver, "generic") == 0 || (strncmp(solver, "cpu", 3) == 0 && strcmp(solver, "cpu-amx") != 0)) {
        return false;
    }
    return level() == LEVEL_QUICK ? !(t->levels & LEVEL_TINY) && !(is_marked && t->dim.queries > 64)
                                  : is_tile && level() == LEVEL_SMALL && !is_marked;
}

int main(int argc, char **argv)
{
    static const char *const solvers[] = {"generic", "cpu", "tile"}, *const engines[] = {"emulated-mma", "matrix"};
    const size_t engine_count = backward_has_engine() ? 2 : 1;
    const bool with_amx = !emulates_amx_too_slowly();
    for (size_t n = 0; n < COUNT_OF(differences); n++) {
        suite_add_case(check_differences, &differences[n], "", "the tests' gradients by differences: %s",
                       differences[n].rule);
    }
    for (size_t n = 0; n < COUNT_OF(cases); n++) {
        for (size_t i = 0; i < COUNT_OF(solvers) && cases[n].levels & level(); i++) {
            if (passes_by(&cases[n], solvers[i])) {
                continue;
            }
            suite_add_case(check, &cases[n], solvers[i], "attention backward %s: %s", solvers[i], cases[n].rule);
        }
        if (cases[n].levels & level() && cases[n].type.query == BF) {
            suite_add_case(check, &cases[n], "cpu-bf16", "attention backward cpu-bf16: %s", cases[n].rule);
        }
        if (with_amx && cases[n].levels & level() && !passes_by(&cases[n], "cpu-amx")) {
            suite_add_case(check, &cases[n], "cpu-amx", "attention backward cpu-amx: %s", cases[n].rule);
        }
        for (size_t i = 0; i < engine_count && cases[n].levels & level() && is_short(&cases[n]); i++) {
            if (passes_by(&cases[n], engines[i])) {
                continue;
            }
            suite_add_case(check, &cases[n], engines[i], "attention backward %s: %s", engines[i], cases[n].rule);
        }
    }
    for (size_t n = 0; n < COUNT_OF(amx_cases) && with_amx; n++) {
        if (amx_cases[n].levels & level()) {
            suite_add_case(check, &amx_cases[n], "cpu-amx", "attention backward cpu-amx: %s", amx_cases[n].rule);
        }
    }
    for (size_t n = 0; n < COUNT_OF(uncounted); n++) {
        if (with_amx && uncounted[n].levels & level() && !passes_by(&uncounted[n], "cpu-amx")) {
            suite_add_case(check_what_does_not_count, &uncounted[n], "cpu-amx", "what does not count, cpu-amx: %s",
                           uncounted[n].rule);
        }
        for (size_t i = 0; i < COUNT_OF(solvers) && uncounted[n].levels & level(); i++) {
            if (passes_by(&uncounted[n], solvers[i])) {
                continue;
            }
            suite_add_case(check_what_does_not_count, &uncounted[n], solvers[i], "what does not count, %s: %s",
                           solvers[i], uncounted[n].rule);
        }
        for (size_t i = 0; i < engine_count && uncounted[n].levels & level() && is_short(&uncounted[n]); i++) {
            if (passes_by(&uncounted[n], engines[i])) {
                continue;
            }
            suite_add_case(check_what_does_not_count, &uncounted[n], engines[i], "what does not count, %s: %s",
                           engines[i], uncounted[n].rule);
        }
    }
    suite_add(small_derivatives, "attention backward emulated-mma: small derivatives of float16");
    return suite_run("attention backward", argc, argv);
}
