/* Verdicts on jobs. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/verdict.h"

job_result result_sized(const char *name, clattn_dtype stored, int rank, const size_t *extent)
{
    job_result made = {
        .name = name, .rule = accuracy_rule_of(stored), .rank = rank, .count = array_count(rank, extent)};

    memcpy(made.extent, extent, (size_t)rank * sizeof *extent);
    made.reference = zeros(made.count);
    made.magnitude = zeros(made.count);
    return made;
}

job_result result_of(const char *name, const test_array *output)
{
    return output->memory ? result_sized(name, output->layout.dtype, output->layout.rank, output->written)
                          : (job_result){0};
}

void result_release(job_result *r)
{
    free(r->reference);
    free(r->magnitude);
    free(r->naive);
    free(r->given);
}

static void release(job_result result[JOB_OUTPUTS])
{
    for (int n = 0; n < JOB_OUTPUTS; n++) {
        result_release(&result[n]);
    }
}

/* Mean of |value − reference|, and in *slack of what float's own rounding explains, over what is finite in both. */
static double mean_error(const job_result *r, const double *value, double *slack)
{
    double total = 0;

    *slack = 0;
    for (size_t i = 0; i < r->count; i++) {
        if (isfinite(r->reference[i]) && isfinite(value[i])) {
            total += fabs(value[i] - r->reference[i]) / (double)r->count;
            *slack += 8 * r->rule.unit * fmax(r->magnitude[i], 0) / (double)r->count;
        }
    }
    return total;
}

static void compare_means(const job_result *r, const double *naive)
{
    double slack, own = mean_error(r, r->given, &slack), other = mean_error(r, naive, &slack);

    if (own > r->rule.mean * other + slack) {
        fail_msg("%s is off by %.3g on average, the naive computation by %.3g", r->name, own, other);
    }
}

void result_judge(const job_result *r)
{
    const double *naive = r->naive ? r->naive : r->reference;
    double limit = 0;
    char where[128] = "";
    size_t bad = accuracy_find(&r->rule, r->count, r->given, r->reference, naive, r->magnitude, &limit);

    if (bad == r->count) {
        for (size_t i = 0; i < r->count && r->exact; i++) {
            assert_true(r->given[i] == r->reference[i]);
        }
        if (r->rule.mean > 0) {
            compare_means(r, naive);
        }
        return;
    }
    for (int d = 0, length = 0; d < r->rank; d++) {
        size_t below = array_count(r->rank - d - 1, r->extent + d + 1);
        length +=
            snprintf(where + length, sizeof where - (size_t)length, "%s%zu", d ? ", " : "", bad / below % r->extent[d]);
    }
    fail_msg("%s[%s] is %.9g, expected %.17g (naive %.9g); off by %.3g, allowed %.3g%s", r->name, where, r->given[bad],
             r->reference[bad], naive[bad], fabs(r->given[bad] - r->reference[bad]), limit,
             r->magnitude[bad] == EXACT_ZERO ? "; must be +0 exactly" : "");
}

static void compare_outputs(const job_checker *checker, const test_job *job, const void *test,
                            job_result result[JOB_OUTPUTS])
{
    for (int n = 0; n < JOB_OUTPUTS; n++) {
        job_result *r = &result[n];
        if (r->name) {
            r->given =
                checker->read ? checker->read(job, test, n, r) : array_dense(&job->output[n], r->rank, r->extent);
            result_judge(r);
        }
    }
}

static void unchanged(const job_result *before, const job_result *after)
{
    for (size_t i = 0; before->name && i < before->count; i++) {
        if (before->reference[i] == after->reference[i] &&
            memcmp(&before->given[i], &after->given[i], sizeof before->given[i]) != 0) {
            fail_msg("%s element %zu changed from %.9g to %.9g with inputs that it does not depend on", before->name, i,
                     before->given[i], after->given[i]);
        }
    }
}

/* Computes the reference before the run, which may overwrite inputs in place. */
static void run_and_judge(const job_checker *checker, test_job *job, const void *test, job_result result[JOB_OUTPUTS])
{
    checker->refer(job, test, result);
    job_run(job, NULL);
    compare_outputs(checker, job, test, result);
}

void job_judge(const job_checker *checker, const test_job *job, const void *test)
{
    job_result result[JOB_OUTPUTS] = {0};

    checker->refer(job, test, result);
    compare_outputs(checker, job, test, result);
    release(result);
}

void job_check(const job_checker *checker, const void *test, const char *solver)
{
    test_job job = {0};
    job_result before[JOB_OUTPUTS] = {0}, after[JOB_OUTPUTS] = {0};

    if (checker->make(&job, test, solver)) {
        run_and_judge(checker, &job, test, before);
        if (checker->inject && checker->inject(&job, test)) {
            job_poison(&job);
            run_and_judge(checker, &job, test, after);
            for (int n = 0; n < JOB_OUTPUTS; n++) {
                unchanged(&before[n], &after[n]);
            }
        }
        release(before);
        release(after);
    }
    job_release(&job);
}
