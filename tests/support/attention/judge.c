/* Attention problems: the reference, the verdict, and what must not change when inputs that do not count do. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/attention/case.h"
#include "support/verdict.h"

/* Where the reference leaves what the mode asks for. */
static double **scores_of(reference_result *r, int mode)
{
    return mode == CLATTN_SCORES_MODE_RAW      ? &r->raw
           : mode == CLATTN_SCORES_MODE_CAPPED ? &r->capped
           : mode == CLATTN_SCORES_MODE_BIASED ? &r->biased
                                               : &r->weights;
}

static void compute(const reference_problem *problem, const attention_case *test, const job_result *result)
{
    const job_result *output = &result[OUTPUT], *lse = &result[LSE], *entropy = &result[ENTROPY],
                     *scores = &result[SCORES];
    reference_result wide = {.output = output->reference,
                             .magnitude = output->magnitude,
                             .lse = lse->reference,
                             .entropy = entropy->reference};
    reference_result narrow = {.output = output->naive, .lse = lse->naive, .entropy = entropy->naive};
    double *unused = zeros(scores->count);

    if (test->scores) {
        int mode = test->scores - 1;
        *scores_of(&wide, mode) = scores->reference;
        *scores_of(&narrow, mode) = scores->naive;
        *(mode == CLATTN_SCORES_MODE_PROBABILITIES ? &wide.weights_magnitude : &wide.scores_magnitude) =
            scores->magnitude;
        narrow.weights_magnitude = unused;
    }
    reference_attention(problem, false, &wide);
    reference_attention(problem, true, &narrow);
    free(unused);
}

/* What the scores' magnitudes are beyond the products that the reference has summed up, and what lies beyond an item's
 * lengths. */
static void finish_scores(const attention_dense *dense, const attention_case *test, const job_result *result)
{
    const job_result *scores = &result[SCORES];
    const reference_problem *p = &dense->problem;
    int mode = test->scores - 1;

    for (size_t at = 0; at < scores->count; at++) {
        size_t row = at / p->keys, j = at % p->keys, i = row % p->queries;
        attention_item item = attention_item_of(test, row / p->queries / p->heads);
        double lse = result[LSE].reference[row];

        if (mode == CLATTN_SCORES_MODE_PROBABILITIES) { /* exp(s − lse), with lse rounded to float */
            scores->magnitude[at] *= scores->magnitude[at] > 0 && isfinite(lse) ? 1 + fabs(lse) : 1;
        } else if (mode == CLATTN_SCORES_MODE_BIASED) {
            scores->magnitude[at] += 1 + (isfinite(scores->reference[at]) ? fabs(scores->reference[at]) : 0) +
                                     (test->alibi ? dense->alibi[at] : 0);
        } else if (i >= item.queries || j >= item.keys) {
            scores->reference[at] = scores->naive[at] = 0;
            scores->magnitude[at] = EXACT_ZERO;
        }
    }
}

/* The rows that the device has written, or the expected ones if there are none. */
static double *read_rows(const test_job *job, const void *test, int which, const job_result *r)
{
    size_t index[4], width = which == OUTPUT ? r->extent[3] : 1, at = 0;

    if (which == SCORES) {
        return array_dense(&job->output[SCORES], r->rank, r->extent);
    }
    double *given = zeros(r->count);
    for (size_t row = 0; row < r->count / width; row++) {
        size_t b = row / r->extent[2] / r->extent[1], h = row / r->extent[2] % r->extent[1], i = row % r->extent[2];
        bool there = attention_row_index(job, test, false, b, h, i, index);
        for (index[3] = 0; index[3] < width; index[3]++, at++) {
            given[at] = there ? array_get(&job->output[which], index) : r->reference[at];
        }
    }
    return given;
}

static bool is_short(clattn_dtype dtype)
{
    return dtype == CLATTN_DTYPE_F16 || dtype == CLATTN_DTYPE_BF16;
}

/* The rule for the output: that of 16-bit storage if the values (and so the probabilities) or the output have it. */
static accuracy_rule output_rule(const attention_case *test, bool wide)
{
    accuracy_rule rule = accuracy_rule_of(test->type.output ? test->type.output : CLATTN_DTYPE_F32);

    rule.unit = wide ? DBL_EPSILON : rule.unit;
    if (is_short(test->type.output) || is_short(test->type.value)) {
        rule.roundings = 2;
        rule.mean = test->softcap > 0 ? 3 : 1.5;
    }
    return rule;
}

static void refer(const test_job *job, const void *which, job_result *result)
{
    const attention_case *test = which;
    attention_dense dense;

    attention_dense_make(&dense, job, test);
    const reference_problem *p = &dense.problem;
    const size_t rows[4] = {p->batch, p->heads, p->queries, p->d_v};
    const size_t scores[4] = {p->batch, p->heads, p->queries, test->scores ? p->keys : 0};
    job_result *output = &result[OUTPUT];
    *output = result_sized("output", CLATTN_DTYPE_F32, 4, rows);
    output->rule = output_rule(test, p->wide);
    result[LSE] = result_sized(test->no_lse ? NULL : "lse", CLATTN_DTYPE_F32, 3, rows);
    result[ENTROPY] = result_sized(test->entropy ? "entropy" : NULL, CLATTN_DTYPE_F32, 3, rows);
    result[SCORES] = result_sized(test->scores ? "scores" : NULL, job->output[SCORES].layout.dtype, 4, scores);
    for (int n = OUTPUT; n <= SCORES; n++) {
        result[n].naive = zeros(result[n].count);
    }
    compute(p, test, result);
    for (size_t n = 0; n < output->count && output->rule.roundings > 0; n++) {
        output->naive[n] = storage_round(output->rule.stored, output->naive[n]);
    }
    for (int n = LSE; n <= ENTROPY; n++) {
        for (size_t i = 0; i < result[n].count; i++) {
            result[n].magnitude[i] = isfinite(result[n].reference[i]) ? fmax(1, fabs(result[n].reference[i])) : 1;
        }
    }
    if (test->scores) {
        finish_scores(&dense, test, result);
    }
    attention_dense_release(&dense);
}

/* ---- injections ---- */

/* Whether query head h attends key j of item b with any query. */
static bool head_attends(const attention_dense *dense, size_t b, size_t h, size_t j)
{
    const reference_problem *p = &dense->problem;

    for (size_t i = 0; i < p->queries; i++) {
        size_t at = ((b * p->heads + h) * p->queries + i) * p->keys + j;
        if (dense->addend[at] != -INFINITY && (!dense->bias || dense->bias[at] != -INFINITY)) {
            return true;
        }
    }
    return false;
}

/* Whether the row counts: a query within its item's lengths, a value too, a key if some query of its group attends it. */
static bool row_counts(const attention_case *test, const attention_dense *dense, int which, size_t b, size_t h,
                       size_t row)
{
    size_t group = dense->problem.heads / dense->problem.kv_heads;

    if (which == QUERY) {
        return row < attention_item_of(test, b).queries;
    }
    for (size_t head = h * group; head < (h + 1) * group && (which == KEY || which == KEY_SCALE); head++) {
        if (head_attends(dense, b, head, row)) {
            return true;
        }
    }
    return which == VALUE || which == VALUE_SCALE;
}

/* Marks the places of the array's elements that count. */
static bool *mark_places(const test_job *job, const attention_case *test, const attention_dense *dense, int which)
{
    const test_array *array = &job->input[which];
    const reference_problem *p = &dense->problem;
    bool *used = calloc(array_places(array) + 1, sizeof *used);
    bool is_key = which != QUERY;
    size_t index[4], heads = is_key ? p->kv_heads : p->heads;

    assert_non_null(used);
    for (size_t b = 0; b < p->batch; b++) {
        for (size_t h = 0; h < heads; h++) {
            for (size_t row = 0; row < (is_key ? p->keys : p->queries); row++) {
                if (!attention_row_index(job, test, is_key, b, h, row, index) ||
                    !row_counts(test, dense, which, b, h, row)) {
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
static void spoil(test_job *job, const attention_case *test)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY, FLT_MAX};
    static const int arrays[] = {QUERY, KEY, VALUE, KEY_SCALE, VALUE_SCALE};
    attention_dense dense;

    attention_dense_make(&dense, job, test);
    for (size_t a = 0; a < COUNT_OF(arrays); a++) {
        test_array *array = &job->input[arrays[a]];
        bool quantised = (arrays[a] == KEY && test->key_groups) || (arrays[a] == VALUE && test->value_groups);
        size_t index[CLATTN_MAX_RANK] = {0}, n = 0;

        if (!array->memory || quantised) {
            continue;
        }
        bool *used = mark_places(job, test, &dense, arrays[a]);
        do {
            if (!used[array_place(array, index)]) {
                array_set(array, index, bad[n++ % COUNT_OF(bad)]);
            }
        } while (array_next(4, array->layout.extent, index));
        free(used);
    }
    attention_dense_release(&dense);
}

bool attention_inject(test_job *job, const void *asked)
{
    const attention_case *test = asked;
    static const struct {
        int which;
        double value;
    } what[] = {
        [INJECT_KEY_NAN] = {KEY, NAN},           [INJECT_KEY_INF] = {KEY, INFINITY}, [INJECT_VALUE_NAN] = {VALUE, NAN},
        [INJECT_VALUE_INF] = {VALUE, -INFINITY}, [INJECT_QUERY_NAN] = {QUERY, NAN},  [INJECT_MASK_NAN] = {MASK, NAN},
        [INJECT_MASK_INF] = {MASK, INFINITY},    [INJECT_BIAS_NAN] = {BIAS, NAN},    [INJECT_SINK_NAN] = {SINKS, NAN}};

    if (test->inject == INJECT_NOTHING) {
        return false;
    }
    if (test->inject == INJECT_MASKED) {
        spoil(job, test);
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
    return true;
}

static bool make(test_job *job, const void *test, const char *solver)
{
    return attention_job(job, test, solver, 1);
}

static const job_checker checker = {.make = make, .refer = refer, .read = read_rows, .inject = attention_inject};

void attention_judge(const test_job *job, const attention_case *test)
{
    job_judge(&checker, job, test);
}

void attention_check(const void *test, const char *solver)
{
    job_check(&checker, test, solver);
}
