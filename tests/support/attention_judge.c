/* Attention problems: the reference, the verdict, and what must not change when inputs that do not count do. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention_case.h"

/* Reference, naive computation and what the device gave, dense. */
typedef struct verdict {
    size_t batch, heads, queries, d_v;
    double *addend;
    double *output, *magnitude, *lse, *lse_magnitude;
    double *naive_output, *naive_lse;
    double *given_output, *given_lse;
} verdict;

static void verdict_release(verdict *v)
{
    double *all[] = {v->addend, v->output, v->magnitude, v->lse, v->lse_magnitude, v->naive_output,
                     v->naive_lse, v->given_output, v->given_lse};
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        free(all[i]);
    }
}

static double *doubles(size_t count)
{
    double *made = calloc(count + 1, sizeof *made);
    assert_non_null(made);
    return made;
}

/* Computes the reference of what the inputs hold now, compares the outputs with it and keeps both. */
static verdict judge(const test_job *job, const attention_case *test)
{
    verdict v = {.heads = test->dim.heads, .d_v = test->dim.d_v};
    reference_problem p = {.heads = test->dim.heads, .kv_heads = test->dim.kv_heads, .d_k = test->dim.d_k,
                           .d_v = test->dim.d_v,
                           .scale = test->scaled ? test->scale : 1 / sqrt((double)test->dim.d_k)};
    attention_lengths(test, &p.batch, &p.queries, &p.keys);
    v.batch = p.batch;
    v.queries = p.queries;
    int64_t position = test->alignment == CLATTN_ALIGN_TOP_LEFT ? 0
                     : test->alignment == CLATTN_ALIGN_EXPLICIT ? test->position
                     : (int64_t)p.keys - (int64_t)p.queries;
    size_t rows = p.batch * p.heads * p.queries;
    double *query = array_dense(&job->input[QUERY], 4, (size_t[]){p.batch, p.heads, p.queries, p.d_k});
    double *key = array_dense(&job->input[KEY], 4, (size_t[]){p.batch, p.kv_heads, p.keys, p.d_k});
    double *value = array_dense(&job->input[VALUE], 4, (size_t[]){p.batch, p.kv_heads, p.keys, p.d_v});

    p.query = query;
    p.key = key;
    p.value = value;
    p.addend = v.addend = reference_addend(&job->input[MASK], test->causal, position, p.batch, p.heads,
                                           p.queries, p.keys);
    v.output = doubles(rows * p.d_v);
    v.magnitude = doubles(rows * p.d_v);
    v.naive_output = doubles(rows * p.d_v);
    v.lse = doubles(rows);
    v.lse_magnitude = doubles(rows);
    v.naive_lse = doubles(rows);
    reference_attention(&p, false, &(reference_result){v.output, v.magnitude, v.lse, NULL, NULL});
    reference_attention(&p, true, &(reference_result){v.naive_output, NULL, v.naive_lse, NULL, NULL});

    size_t extent[4] = {p.batch, p.heads, p.queries, p.d_v};
    v.given_output = array_dense(&job->output[OUTPUT], 4, extent);
    accuracy_check("output", 4, extent, v.given_output, v.output, v.naive_output, v.magnitude);
    if (job->output[LSE].memory) {
        for (size_t i = 0; i < rows; i++) {
            v.lse_magnitude[i] = fmax(1, fabs(v.lse[i]));
        }
        v.given_lse = array_dense(&job->output[LSE], 3, extent);
        accuracy_check("lse", 3, extent, v.given_lse, v.lse, v.naive_lse, v.lse_magnitude);
    }
    free(query);
    free(key);
    free(value);
    return v;
}

/* ---- injections ---- */

/* Whether some query of the key/value head attends key j. */
static bool key_attended(const attention_case *test, const verdict *before, size_t b, size_t g, size_t j,
                         size_t keys)
{
    size_t group = test->dim.heads / test->dim.kv_heads;

    for (size_t h = g * group; h < (g + 1) * group; h++) {
        for (size_t i = 0; i < before->queries; i++) {
            size_t row = (b * before->heads + h) * before->queries + i;
            if (!before->addend || before->addend[row * keys + j] != -INFINITY) {
                return true;
            }
        }
    }
    return false;
}

/* Spoils what can not matter: elements beyond the actual lengths, and K where nothing attends it. */
static void spoil(test_job *job, const attention_case *test, const verdict *before)
{
    size_t batch, queries, keys;

    attention_lengths(test, &batch, &queries, &keys);
    for (int which = QUERY; which <= VALUE; which++) {
        test_array *array = &job->input[which];
        size_t rows = which == QUERY ? queries : keys, n = 0;
        const size_t *extent = array->layout.extent;

        for (size_t b = 0; b < extent[0]; b++) {
            for (size_t h = 0; h < extent[1]; h++) {
                for (size_t i = 0; i < extent[2]; i++) {
                    bool idle = b >= batch || i >= rows
                             || (which == KEY && !key_attended(test, before, b, h, i, keys));
                    for (size_t d = 0; d < extent[3] && idle; d++) {
                        static const float bad[] = {NAN, INFINITY, -INFINITY, FLT_MAX};
                        size_t index[4] = {b, h, i, d};
                        array_set(array, index, bad[n++ % COUNT_OF(bad)]);
                    }
                }
            }
        }
    }
}

static void inject(test_job *job, const attention_case *test, const verdict *before)
{
    static const struct {
        int which;
        double value;
    } what[] = {[INJECT_KEY_NAN] = {KEY, NAN}, [INJECT_KEY_INF] = {KEY, INFINITY},
                [INJECT_VALUE_NAN] = {VALUE, NAN}, [INJECT_VALUE_INF] = {VALUE, -INFINITY},
                [INJECT_QUERY_NAN] = {QUERY, NAN}, [INJECT_MASK_NAN] = {MASK, NAN},
                [INJECT_MASK_INF] = {MASK, INFINITY}};

    if (test->inject == INJECT_MASKED) {
        spoil(job, test, before);
    } else {
        test_array *array = &job->input[what[test->inject].which];
        const clattn_layout *layout = &array->layout;
        size_t index[CLATTN_MAX_RANK] = {0};

        /* The middle of the length, the last of the head size; of a mask the middle key. */
        index[layout->rank - 1] = array == &job->input[MASK] ? layout->extent[layout->rank - 1] / 2
                                                             : layout->extent[layout->rank - 1] - 1;
        if (array != &job->input[MASK]) {
            index[2] = layout->extent[2] / 2;
        }
        array_set(array, index, what[test->inject].value);
    }
    for (int which = QUERY; which <= MASK; which++) {
        if (job->input[which].memory) {
            array_upload(&job->input[which]);
        }
    }
}

void attention_check(const void *which, const char *solver)
{
    const attention_case *test = which;
    test_job job = {0};

    if (attention_job(&job, test, solver, 1)) {
        job_run(&job, NULL);
        verdict before = judge(&job, test);
        if (test->inject != INJECT_NOTHING) {
            inject(&job, test, &before);
            array_poison(&job.output[OUTPUT]);
            job_run(&job, NULL);
            verdict after = judge(&job, test);
            size_t rows = before.batch * before.heads * before.queries;
            accuracy_unchanged("output", rows * before.d_v, before.output, before.given_output, after.output,
                            after.given_output);
            if (before.given_lse) {
                accuracy_unchanged("lse", rows, before.lse, before.given_lse, after.lse, after.given_lse);
            }
            verdict_release(&after);
        }
        verdict_release(&before);
    }
    job_release(&job);
}
