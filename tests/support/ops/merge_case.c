/* Merging partials: makes arrays and a plan of a table row, and compares the result with a reference. */
#include <math.h>
#include <stdlib.h>

#include "support/ops/merge_case.h"
#include "support/verdict.h"

enum { PARTIAL, PARTIAL_LSE, SINKS }; /* of job.input */
enum { OUTPUT, LSE };                 /* of job.output */

static size_t partials_of(const merge_case *test)
{
    return test->explicit_lengths ? test->actual_partials : test->partials;
}

/* Fills log-sum-exps with numbers in [−20, 20].  Some partials have attended nothing: their output is NaN and must not
 * be read.  Row (0, 0, 0) has attended nothing at all, and row (0, 0, 1) has a NaN. */
static void fill_partials(test_job *job, const merge_case *test)
{
    size_t index[5] = {0};
    job_fill(&job->input[PARTIAL], 1, test->spread > 0 ? -test->spread : -1, test->spread > 0 ? test->spread : 1,
             false);
    job_fill(&job->input[PARTIAL_LSE], 2, -20, 20, false);
    const size_t *extent = job->input[PARTIAL].layout.extent;
    do {
        const bool first = !index[1] && !index[2], empty = first && !index[3];
        if (empty || (index[0] * 3 + index[1] + index[2] + index[3]) % 7 == 3) {
            array_set(&job->input[PARTIAL_LSE], index, -INFINITY);
            array_set(&job->input[PARTIAL], index, NAN);
        }
        if (first && index[3] == 1 && index[0] + 1 == partials_of(test))
            array_set(&job->input[PARTIAL_LSE], index, NAN);
    } while (array_next(5, extent, index));
    array_upload(&job->input[PARTIAL]);
    array_upload(&job->input[PARTIAL_LSE]);
}

static bool make(test_job *job, const void *which, const char *solver)
{
    const merge_case *test = which;
    clattn_merge_desc desc = CLATTN_MERGE_DESC_INIT;
    clattn_merge_args args = CLATTN_MERGE_ARGS_INIT;
    const size_t extent[5] = {test->partials, test->batch, test->heads, test->queries, test->columns};
    const size_t written[4] = {test->explicit_lengths ? test->actual_batch : test->batch, test->heads,
                               test->explicit_lengths ? test->actual_queries : test->queries, test->columns};

    job->input[PARTIAL] = job_array(job, ROLE_INPUT, CLATTN_DTYPE_F32, 5, extent, test->partial);
    job->input[PARTIAL_LSE] = job_array(job, ROLE_INPUT, CLATTN_DTYPE_F32, 4, extent, test->partial);
    fill_partials(job, test);
    if (test->sinks) {
        job->input[SINKS] = job_array(job, ROLE_INPUT, CLATTN_DTYPE_F32, 1, &extent[2], test->partial);
        job_fill(&job->input[SINKS], 3, -5, 5, false);
        if (test->nan_sink) {
            array_set(&job->input[SINKS], (const size_t[]){0}, NAN);
            array_upload(&job->input[SINKS]);
        }
    }
    job->output[OUTPUT] = job_array(job, ROLE_OUTPUT, test->type, 4, &extent[1], test->output);
    if (test->lse)
        job->output[LSE] = job_array(job, ROLE_OUTPUT, CLATTN_DTYPE_F32, 3, &extent[1], test->output);
    for (int n = OUTPUT; n <= LSE; n++)
        if (job->output[n].memory)
            array_own(&job->output[n], written);

    array_bind(&job->input[PARTIAL], &desc.partial, &args.partial);
    array_bind(&job->input[PARTIAL_LSE], &desc.partial_lse, &args.partial_lse);
    array_bind(&job->input[SINKS], &desc.sinks, &args.sinks);
    array_bind(&job->output[OUTPUT], &desc.output, &args.output);
    array_bind(&job->output[LSE], &desc.lse, &args.lse);
    args.explicit_lengths = test->explicit_lengths;
    args.partials = test->actual_partials;
    args.batch = test->actual_batch;
    args.query_length = test->actual_queries;
    job->args.merge = args;
    return job_plan(job, &merge_operator, &desc, solver, JOB_TAKEN);
}

/* Computes one row in double precision, or with weights and sums in float if `narrow`; returns its log-sum-exp. */
static double merge_row(const test_job *job, const merge_case *test, const size_t *row, bool narrow, double *out,
                        double *magnitude)
{
    const size_t partials = partials_of(test);
    size_t index[5] = {0, row[0], row[1], row[2], 0};
    double row_max = test->sinks ? array_get(&job->input[SINKS], &row[1]) : -INFINITY, row_sum = 0;
    double *weight = zeros(partials);

    for (index[0] = 0; index[0] < partials; index[0]++)
        row_max = fmax(row_max, array_get(&job->input[PARTIAL_LSE], index));
    for (index[0] = 0; index[0] < partials; index[0]++) {
        const double lse = array_get(&job->input[PARTIAL_LSE], index);
        weight[index[0]] = lse == -INFINITY ? 0 : exp(lse - row_max);
        weight[index[0]] = narrow ? (float)weight[index[0]] : weight[index[0]];
        row_sum += weight[index[0]];
    }
    row_sum += test->sinks ? exp(array_get(&job->input[SINKS], &row[1]) - row_max) : 0;
    for (index[4] = 0; index[4] < test->columns; index[4]++) {
        double sum = 0, size = 0;
        for (index[0] = 0; index[0] < partials; index[0]++) {
            if (weight[index[0]] == 0)
                continue;
            const double term = weight[index[0]] / row_sum * array_get(&job->input[PARTIAL], index);
            sum = narrow ? (float)(sum + (float)term) : sum + term;
            size += fabs(term);
        }
        out[index[4]] = isnan(row_sum) ? NAN : sum;
        if (magnitude)
            magnitude[index[4]] = row_sum == 0 ? EXACT_ZERO : size;
    }
    free(weight);
    return row_sum == 0 ? -INFINITY : row_max + log(row_sum);
}

static void refer(const test_job *job, const void *which, job_result *result)
{
    const merge_case *test = which;
    size_t index[4] = {0};

    result[OUTPUT] = result_of("output", &job->output[OUTPUT]);
    result[OUTPUT].naive = zeros(result[OUTPUT].count);
    result[LSE] = result_of("lse", &job->output[LSE]);
    for (size_t row = 0, at = 0; at < result[OUTPUT].count; row++, at += test->columns) {
        double lse = merge_row(job, test, index, false, result[OUTPUT].reference + at, result[OUTPUT].magnitude + at);
        merge_row(job, test, index, true, result[OUTPUT].naive + at, NULL);
        if (test->lse) {
            result[LSE].reference[row] = lse;
            result[LSE].magnitude[row] = 1 + fabs(lse);
        }
        array_next(3, result[OUTPUT].extent, index);
    }
}

static void check(const void *test, const char *solver)
{
    static const job_checker checker = {.make = make, .refer = refer};
    job_check(&checker, test, solver);
}

void merge_add(const merge_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const merge_case *t = &cases[i];

        if (t->levels & level())
            suite_add_case(check, t, "generic", "merge: %s, %zu partials, %zux%zux%zux%zu", t->rule, t->partials,
                           t->batch, t->heads, t->queries, t->columns);
    }
}
