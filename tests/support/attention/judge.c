/* Attention problems: the reference, the verdict, and what must not change when inputs that do not count do. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/attention/case.h"

#define RESULTS 4 /* OUTPUT, LSE, ENTROPY, SCORES */

static const char *const names[RESULTS] = {"output", "lse", "entropy", "scores"};

/* One result, dense: the reference, its magnitude for the accuracy rule, the naive computation, what the device gave. */
typedef struct result {
    double *reference, *magnitude, *naive, *given;
    size_t count;
} result;

typedef struct verdict {
    size_t batch, heads, queries, keys, d_v;
    attention_dense dense;
    result of[RESULTS];
} verdict;

static void verdict_release(verdict *v)
{
    for (int n = 0; n < RESULTS; n++) {
        free(v->of[n].reference);
        free(v->of[n].magnitude);
        free(v->of[n].naive);
        free(v->of[n].given);
    }
    attention_dense_release(&v->dense);
}

static double *doubles(size_t count)
{
    double *made = calloc(count + 1, sizeof *made);
    assert_non_null(made);
    return made;
}

static result make_result(size_t count)
{
    return (result){doubles(count), doubles(count), doubles(count), NULL, count};
}

/* Where the reference leaves what the mode asks for. */
static double **scores_of(reference_result *r, int mode)
{
    return mode == CLATTN_SCORES_MODE_RAW      ? &r->raw
           : mode == CLATTN_SCORES_MODE_CAPPED ? &r->capped
           : mode == CLATTN_SCORES_MODE_BIASED ? &r->biased
                                               : &r->weights;
}

static void compute(verdict *v, const attention_case *test)
{
    result *output = &v->of[OUTPUT], *lse = &v->of[LSE], *entropy = &v->of[ENTROPY], *scores = &v->of[SCORES];
    reference_result wide = {.output = output->reference,
                             .magnitude = output->magnitude,
                             .lse = lse->reference,
                             .entropy = entropy->reference};
    reference_result narrow = {.output = output->naive, .lse = lse->naive, .entropy = entropy->naive};
    double *unused = doubles(scores->count);

    if (test->scores) {
        int mode = test->scores - 1;
        *scores_of(&wide, mode) = scores->reference;
        *scores_of(&narrow, mode) = scores->naive;
        *(mode == CLATTN_SCORES_MODE_PROBABILITIES ? &wide.weights_magnitude : &wide.scores_magnitude) =
            scores->magnitude;
        narrow.weights_magnitude = unused;
    }
    reference_attention(&v->dense.problem, false, &wide);
    reference_attention(&v->dense.problem, true, &narrow);
    free(unused);
}

/* What the scores' magnitudes are beyond the products that the reference has summed up, and what lies beyond an item's
 * lengths. */
static void finish_scores(verdict *v, const attention_case *test)
{
    result *scores = &v->of[SCORES];
    int mode = test->scores - 1;

    for (size_t at = 0; at < scores->count; at++) {
        size_t row = at / v->keys, j = at % v->keys, i = row % v->queries;
        attention_item item = attention_item_of(test, row / v->queries / v->heads);
        double lse = v->of[LSE].reference[row];

        if (mode == CLATTN_SCORES_MODE_PROBABILITIES) { /* exp(s − lse), with lse rounded to float */
            scores->magnitude[at] *= scores->magnitude[at] > 0 && isfinite(lse) ? 1 + fabs(lse) : 1;
        } else if (mode == CLATTN_SCORES_MODE_BIASED) {
            scores->magnitude[at] += 1 + (isfinite(scores->reference[at]) ? fabs(scores->reference[at]) : 0) +
                                     (test->alibi ? v->dense.alibi[at] : 0);
        } else if (i >= item.queries || j >= item.keys) {
            scores->reference[at] = scores->naive[at] = 0;
            scores->magnitude[at] = EXACT_ZERO;
        }
    }
}

/* The rows that the device has written, or the expected ones if there are none. */
static double *given_rows(const test_job *job, const attention_case *test, int which, const verdict *v, size_t width)
{
    double *given = doubles(v->of[which].count);
    size_t at = 0, index[4];

    for (size_t row = 0; row < v->of[which].count / width; row++) {
        size_t b = row / v->queries / v->heads, h = row / v->queries % v->heads, i = row % v->queries;
        bool there = attention_row_index(job, test, false, b, h, i, index);
        for (index[3] = 0; index[3] < width; index[3]++, at++) {
            given[at] = there ? array_get(&job->output[which], index) : v->of[which].reference[at];
        }
    }
    return given;
}

static bool is_short(clattn_dtype dtype)
{
    return dtype == CLATTN_DTYPE_F16 || dtype == CLATTN_DTYPE_BF16;
}

/* The rule for the output: that of 16-bit storage if the values (and so the probabilities) or the output have it. */
static accuracy_rule output_rule(const attention_case *test, const verdict *v)
{
    accuracy_rule rule = {.stored = test->type.output ? test->type.output : CLATTN_DTYPE_F32,
                          .unit = v->dense.problem.wide ? DBL_EPSILON : (double)FLT_EPSILON};

    if (is_short(test->type.output) || is_short(test->type.value)) {
        rule.roundings = 2;
        rule.mean = test->softcap > 0 ? 3 : 1.5;
    }
    return rule;
}

static void compare(const test_job *job, const attention_case *test, verdict *v)
{
    const accuracy_rule single = {.stored = CLATTN_DTYPE_F32, .unit = (double)FLT_EPSILON};
    accuracy_rule rule = output_rule(test, v);
    size_t extent[4] = {v->batch, v->heads, v->queries, v->d_v}, scores[4] = {v->batch, v->heads, v->queries, v->keys};

    for (size_t n = 0; n < v->of[OUTPUT].count && rule.roundings; n++) {
        v->of[OUTPUT].naive[n] = storage_round(rule.stored, v->of[OUTPUT].naive[n]);
    }
    for (int n = LSE; n <= ENTROPY; n++) {
        for (size_t i = 0; i < v->of[n].count; i++) {
            v->of[n].magnitude[i] = isfinite(v->of[n].reference[i]) ? fmax(1, fabs(v->of[n].reference[i])) : 1;
        }
    }
    for (int n = OUTPUT; n <= ENTROPY; n++) {
        if (job->output[n].memory) {
            v->of[n].given = given_rows(job, test, n, v, n == OUTPUT ? v->d_v : 1);
            accuracy_check_by(n == OUTPUT ? &rule : &single, names[n], n == OUTPUT ? 4 : 3, extent, v->of[n].given,
                              v->of[n].reference, v->of[n].naive, v->of[n].magnitude);
        }
    }
    if (test->scores) {
        rule = single;
        rule.stored = test->type.scores ? test->type.scores : CLATTN_DTYPE_F32;
        finish_scores(v, test);
        v->of[SCORES].given = array_dense(&job->output[SCORES], 4, scores);
        accuracy_check_by(&rule, names[SCORES], 4, scores, v->of[SCORES].given, v->of[SCORES].reference,
                          v->of[SCORES].naive, v->of[SCORES].magnitude);
    }
}

/* Computes the reference of what the inputs hold now, compares the outputs with it and keeps both. */
static void judge(verdict *v, const test_job *job, const attention_case *test)
{
    memset(v, 0, sizeof *v);
    attention_dense_make(&v->dense, job, test);
    v->batch = v->dense.problem.batch;
    v->heads = v->dense.problem.heads;
    v->queries = v->dense.problem.queries;
    v->keys = v->dense.problem.keys;
    v->d_v = v->dense.problem.d_v;
    size_t rows = v->batch * v->heads * v->queries;
    v->of[OUTPUT] = make_result(rows * v->d_v);
    v->of[LSE] = make_result(rows);
    v->of[ENTROPY] = make_result(rows);
    v->of[SCORES] = make_result(test->scores ? rows * v->keys : 0);
    compute(v, test);
    compare(job, test, v);
}

void attention_judge(const test_job *job, const attention_case *test)
{
    verdict v;

    judge(&v, job, test);
    verdict_release(&v);
}

/* ---- injections ---- */

/* Whether query head h attends key j of item b with any query. */
static bool head_attends(const verdict *v, size_t b, size_t h, size_t j)
{
    for (size_t i = 0; i < v->queries; i++) {
        size_t at = ((b * v->heads + h) * v->queries + i) * v->keys + j;
        if (v->dense.addend[at] != -INFINITY && (!v->dense.bias || v->dense.bias[at] != -INFINITY)) {
            return true;
        }
    }
    return false;
}

/* Whether the row counts: a query within its item's lengths, a value too, a key if some query of its group attends it. */
static bool row_counts(const attention_case *test, const verdict *v, int which, size_t b, size_t h, size_t row)
{
    size_t group = v->heads / v->dense.problem.kv_heads;

    if (which == QUERY) {
        return row < attention_item_of(test, b).queries;
    }
    for (size_t head = h * group; head < (h + 1) * group && (which == KEY || which == KEY_SCALE); head++) {
        if (head_attends(v, b, head, row)) {
            return true;
        }
    }
    return which == VALUE || which == VALUE_SCALE;
}

/* Marks the places of the array's elements that count. */
static bool *mark_places(const test_job *job, const attention_case *test, const verdict *v, int which)
{
    const test_array *array = &job->input[which];
    bool *used = calloc(array_places(array) + 1, sizeof *used);
    bool is_key = which != QUERY;
    size_t index[4], heads = is_key ? v->dense.problem.kv_heads : v->heads;

    assert_non_null(used);
    for (size_t b = 0; b < v->batch; b++) {
        for (size_t h = 0; h < heads; h++) {
            for (size_t row = 0; row < (is_key ? v->keys : v->queries); row++) {
                if (!attention_row_index(job, test, is_key, b, h, row, index) ||
                    !row_counts(test, v, which, b, h, row)) {
                    continue;
                }
                for (index[3] = 0; index[3] < array->layout.extent[3]; index[3]++) {
                    used[array_place(array, index)] = true;
                }
            }
        }
    }
    return used;
}

/* Spoils what cannot matter: elements beyond the actual lengths, and keys that nothing attends. */
static void spoil(test_job *job, const attention_case *test, const verdict *before)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY, FLT_MAX};
    static const int arrays[] = {QUERY, KEY, VALUE, KEY_SCALE, VALUE_SCALE};

    for (size_t a = 0; a < COUNT_OF(arrays); a++) {
        test_array *array = &job->input[arrays[a]];
        bool quantised = (arrays[a] == KEY && test->key_groups) || (arrays[a] == VALUE && test->value_groups);
        size_t index[CLATTN_MAX_RANK] = {0}, n = 0;

        if (!array->memory || quantised) {
            continue;
        }
        bool *used = mark_places(job, test, before, arrays[a]);
        do {
            if (!used[array_place(array, index)]) {
                array_set(array, index, bad[n++ % COUNT_OF(bad)]);
            }
        } while (array_next(4, array->layout.extent, index));
        free(used);
    }
}

static void inject(test_job *job, const attention_case *test, const verdict *before)
{
    static const struct {
        int which;
        double value;
    } what[] = {
        [INJECT_KEY_NAN] = {KEY, NAN},           [INJECT_KEY_INF] = {KEY, INFINITY}, [INJECT_VALUE_NAN] = {VALUE, NAN},
        [INJECT_VALUE_INF] = {VALUE, -INFINITY}, [INJECT_QUERY_NAN] = {QUERY, NAN},  [INJECT_MASK_NAN] = {MASK, NAN},
        [INJECT_MASK_INF] = {MASK, INFINITY},    [INJECT_BIAS_NAN] = {BIAS, NAN},    [INJECT_SINK_NAN] = {SINKS, NAN}};

    if (test->inject == INJECT_MASKED) {
        spoil(job, test, before);
    } else {
        int which = what[test->inject].which;
        const clattn_layout *layout = &job->input[which].layout;
        size_t index[CLATTN_MAX_RANK] = {0}, last = layout->extent[layout->rank - 1];

        /* The middle of the length, the last of the head size; of a mask the middle key. */
        index[layout->rank - 1] = which == MASK || which == BIAS ? last / 2 : which == SINKS ? 0 : last - 1;
        if (which <= VALUE) {
            index[2] = layout->extent[2] / 2;
        }
        array_set(&job->input[which], index, what[test->inject].value);
    }
    for (size_t n = 0; n < COUNT_OF(job->input); n++) {
        if (job->input[n].memory) {
            array_upload(&job->input[n]);
        }
    }
}

static void run_again(test_job *job, const attention_case *test, const verdict *before)
{
    verdict after;

    inject(job, test, before);
    for (int n = 0; n < RESULTS; n++) {
        if (job->output[n].memory) {
            array_poison(&job->output[n]);
        }
    }
    job_run(job, NULL);
    judge(&after, job, test);
    for (int n = 0; n < RESULTS; n++) {
        if (before->of[n].given) {
            accuracy_unchanged(names[n], before->of[n].count, before->of[n].reference, before->of[n].given,
                               after.of[n].reference, after.of[n].given);
        }
    }
    verdict_release(&after);
}

void attention_check(const void *which, const char *solver)
{
    const attention_case *test = which;
    test_job job = {0};

    if (attention_job(&job, test, solver, 1)) {
        verdict before;

        job_run(&job, NULL);
        judge(&before, &job, test);
        if (test->inject != INJECT_NOTHING) {
            run_again(&job, test, &before);
        }
        verdict_release(&before);
    }
    job_release(&job);
}
