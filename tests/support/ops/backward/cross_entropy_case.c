/* Cross-entropy problems: makes arrays and a plan of a table row, and compares the results with a reference. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/ops/backward/cross_entropy_case.h"
#include "support/verdict.h"

const char *const cross_entropy_solvers[CROSS_ENTROPY_SOLVERS] = {"generic", "cpu", "tile", "emulated-sub-group"};

enum { X, LABELS, WEIGHTS }; /* of job.input */

#define IGNORED_BY_DEFAULT (-100)

static unsigned outputs_of(const cross_entropy_case *t)
{
    return t->outputs ? t->outputs : CROSS_ENTROPY_EVERY;
}

static int64_t ignored_by(const cross_entropy_case *t)
{
    return t->pad ? 0 : IGNORED_BY_DEFAULT;
}

typedef struct label_filler {
    random_stream stream;
    const cross_entropy_case *test;
} label_filler;

static double fill_label(void *context, const size_t *index)
{
    label_filler *f = context;
    const cross_entropy_case *t = f->test;
    const int classes = (int)t->extent[t->rank - 1], kind = random_int(&f->stream, 0, 7);
    const int label = random_int(&f->stream, 0, classes - 1);
    /* The last one is a class in its lower 32 bits. */
    const double none[] = {-1, classes, INT32_MIN, INT32_MAX, t->label_type == CLATTN_DTYPE_I64 ? 4294967296.0 : -7};

    (void)index;
    if (t->wrong && kind < 2)
        return (double)ignored_by(t);
    return t->wrong && kind == 2 ? none[random_int(&f->stream, 0, 4)] : label;
}

static double fill_ascending(void *context, const size_t *index)
{
    const cross_entropy_case *t = context;
    return (double)t->spread * (double)index[t->rank - 1] / (double)t->extent[t->rank - 1];
}

bool cross_entropy_job(test_job *job, const cross_entropy_case *t, const char *solver)
{
    clattn_cross_entropy_desc desc = CLATTN_CROSS_ENTROPY_DESC_INIT;
    clattn_cross_entropy_args args = CLATTN_CROSS_ENTROPY_ARGS_INIT;
    const float spread = t->spread > 0 ? t->spread : 4;
    const int outer = t->rank - 1;
    const unsigned outputs = outputs_of(t);
    size_t written[CLATTN_MAX_RANK];
    int count = 0;

    memcpy(written, t->extent, sizeof written);
    written[0] = t->explicit_batch ? t->batch : written[0];
    job->input[X] = job_array(job, t->in_place ? ROLE_IN_PLACE : ROLE_INPUT, t->x_type, t->rank, t->extent, t->x);
    job_fill(&job->input[X], 1, -spread, spread, false);
    if (t->ascending) {
        cross_entropy_case copy = *t;
        array_fill(&job->input[X], fill_ascending, &copy);
        array_upload(&job->input[X]);
    }
    job->input[LABELS] =
        job_array(job, ROLE_INPUT, t->label_type ? t->label_type : CLATTN_DTYPE_I32, outer, t->extent, t->rows);
    array_fill(&job->input[LABELS], fill_label, &(label_filler){random_start(2), t});
    array_upload(&job->input[LABELS]);
    if (t->weights) {
        job->input[WEIGHTS] = job_array(job, ROLE_INPUT, CLATTN_DTYPE_F32, outer, t->extent, t->rows);
        job_fill(&job->input[WEIGHTS], 3, -2, 2, false);
    }
    if (outputs & CROSS_ENTROPY_GRADIENT) {
        test_array made = t->in_place ? job->input[X]
                                      : job_array(job, ROLE_OUTPUT, t->gradient_type, t->rank, t->extent, t->gradient);
        array_own(&made, written);
        array_bind(&made, &desc.gradients.x, &args.gradients.x);
        job->output[count++] = made;
    }
    for (unsigned which_sum = CROSS_ENTROPY_LOSS; which_sum <= CROSS_ENTROPY_LSE; which_sum *= 2) {
        if (outputs & which_sum) {
            test_array made = job_array(job, ROLE_OUTPUT, CLATTN_DTYPE_F32, outer, t->extent, t->rows);
            array_own(&made, written);
            array_bind(&made, which_sum == CROSS_ENTROPY_LOSS ? &desc.loss : &desc.lse,
                       which_sum == CROSS_ENTROPY_LOSS ? &args.loss : &args.lse);
            job->output[count++] = made;
        }
    }
    desc.explicit_ignored = t->pad;
    desc.ignored = t->pad ? 0 : 3; /* without the flag it is not looked at */
    desc.smoothing = t->smoothing;
    array_bind(&job->input[X], &desc.x, &args.x);
    array_bind(&job->input[LABELS], &desc.labels, &args.labels);
    array_bind(&job->input[WEIGHTS], &desc.row_weights, &args.row_weights);
    args.explicit_scale = t->scale != 0;
    args.scale = t->scale;
    args.explicit_batch = t->explicit_batch;
    args.batch = t->batch;
    job->args.cross_entropy = args;
    return job_plan(job, &cross_entropy_operator, &desc, solver, t->long_loops ? JOB_LOOPS : JOB_TAKEN);
}

static bool make(test_job *job, const void *test, const char *solver)
{
    return cross_entropy_job(job, test, solver);
}

/* ---- the verdict ---- */

double cross_entropy_loss(size_t classes, const double *x, size_t label, double smoothing, bool naive, double *lse,
                          double *gradient)
{
#define ROUNDED(value) (naive ? (double)(float)(value) : (value))
    double top = -INFINITY, sum = 0, all = 0;

    for (size_t c = 0; c < classes; c++) {
        top = fmax(top, x[c]);
    }
    for (size_t c = 0; c < classes; c++) {
        sum = ROUNDED(sum + ROUNDED(exp(ROUNDED(x[c] - top))));
    }
    const double log_sum = ROUNDED(log(sum)), share = smoothing / (double)classes;
    for (size_t c = 0; c < classes && smoothing > 0; c++) {
        all = ROUNDED(all + ROUNDED(ROUNDED(x[c] - top) - log_sum));
    }
    for (size_t c = 0; c < classes && gradient; c++) {
        const double probability = ROUNDED(ROUNDED(exp(ROUNDED(x[c] - top))) / sum);
        gradient[c] = ROUNDED(probability - (c == label ? 1 - smoothing : 0) - share);
    }
    *lse = ROUNDED(top + log_sum);
    return ROUNDED(-(1 - smoothing) * ROUNDED(ROUNDED(x[label] - top) - log_sum) - share * all);
#undef ROUNDED
}

/* How large the terms of a row's loss are; a relative error of the sum of exponentials is an absolute one of its
 * logarithm, of which there is 1. */
static double size_of_loss(size_t classes, const double *x, size_t label, double smoothing, double lse)
{
    double top = -INFINITY, all = 0;

    for (size_t c = 0; c < classes; c++) {
        top = fmax(top, x[c]);
    }
    for (size_t c = 0; c < classes && smoothing > 0; c++) {
        all += smoothing / (double)classes * (top - x[c]);
    }
    return 1 + fabs(lse - top) + (1 - smoothing) * (top - x[label]) + all;
}

/* Computes the results of row `row`, whose logits are x. */
static void refer_row(const test_job *job, const cross_entropy_case *t, size_t row, const size_t *index,
                      const double *x, job_result *const found[3])
{
    const size_t classes = t->extent[t->rank - 1], at = row * classes;
    const double smoothing = t->smoothing;
    const double label = array_get(&job->input[LABELS], index);
    const bool ignored = label == (double)ignored_by(t), none = label < 0 || label >= (double)classes;
    const size_t column = ignored || none ? 0 : (size_t)label;
    const double scale = t->scale != 0 ? t->scale : 1;
    const double weight = t->weights ? (double)(float)(scale * array_get(&job->input[WEIGHTS], index)) : scale;
    double *gradient[2] = {zeros(classes), zeros(classes)}, lse[2], loss[2];

    for (int naive = 0; naive < 2; naive++) {
        loss[naive] = cross_entropy_loss(classes, x, column, smoothing, naive, &lse[naive], gradient[naive]);
        for (size_t c = 0; c < classes; c++) {
            gradient[naive][c] *= weight;
        }
    }
    if (found[0]) {
        found[0]->reference[row] = ignored ? 0 : none ? (double)NAN : loss[0];
        found[0]->naive[row] = ignored || none ? found[0]->reference[row] : loss[1];
        found[0]->magnitude[row] = ignored ? EXACT_ZERO : size_of_loss(classes, x, column, smoothing, lse[0]);
    }
    if (found[1]) {
        found[1]->reference[row] = lse[0];
        found[1]->naive[row] = lse[1];
        found[1]->magnitude[row] = fabs(lse[0]) + size_of_loss(classes, x, column, 0, lse[0]);
    }
    for (size_t c = 0; c < classes && found[2]; c++) {
        const double kept = c == column ? 1 - smoothing : 0, share = smoothing / (double)classes;
        found[2]->reference[at + c] = ignored ? 0 : none ? (double)NAN : gradient[0][c];
        found[2]->naive[at + c] = ignored || none ? found[2]->reference[at + c] : gradient[1][c];
        found[2]->magnitude[at + c] =
            ignored ? EXACT_ZERO : fabs(weight) * (gradient[0][c] / weight + 2 * kept + 2 * share);
    }
    free(gradient[0]);
    free(gradient[1]);
}

static void refer(const test_job *job, const void *which, job_result *result)
{
    static const char *const names[] = {"loss", "lse", "gradients.x"};
    const cross_entropy_case *t = which;
    const unsigned outputs = outputs_of(t);
    const size_t classes = t->extent[t->rank - 1];
    size_t extent[CLATTN_MAX_RANK], index[CLATTN_MAX_RANK] = {0}, row = 0;
    job_result *found[3] = {NULL, NULL, NULL};
    int count = 0;

    for (int i = 0; i < 3; i++) { /* the gradient is the first output */
        const int n = (i + 2) % 3;
        if (outputs & (1u << n)) {
            found[n] = &result[count];
            result[count] = result_of(names[n], &job->output[count]);
            result[count].naive = zeros(result[count].count);
            count++;
        }
    }
    if (found[2]) {
        found[2]->rule.least = FLT_MIN;
    }
    memcpy(extent, t->extent, sizeof extent);
    extent[0] = t->explicit_batch ? t->batch : extent[0];
    if (array_count(t->rank, extent) == 0) {
        return;
    }
    double *x = array_dense(&job->input[X], t->rank, extent);
    do {
        refer_row(job, t, row, index, x + row * classes, found);
        row++;
    } while (array_next(t->rank - 1, extent, index));
    free(x);
}

static bool inject(test_job *job, const void *which)
{
    const cross_entropy_case *t = which;
    const size_t classes = t->extent[t->rank - 1];
    size_t index[CLATTN_MAX_RANK] = {0}, i = 0;

    if (!t->inject) {
        return false;
    }
    do {
        const double label = array_get(&job->input[LABELS], index);
        const bool first = i < classes, middle = i == classes / 2;
        const bool unused = (t->explicit_batch && index[0] >= t->batch) || label == (double)ignored_by(t);
        const bool here[] = {
            [CROSS_ENTROPY_PUT_NAN] = middle,    [CROSS_ENTROPY_PUT_INF] = middle,
            [CROSS_ENTROPY_PUT_LESS] = middle,   [CROSS_ENTROPY_PUT_UNLIKELY] = first && (double)i == label,
            [CROSS_ENTROPY_PUT_EMPTY] = first,   [CROSS_ENTROPY_PUT_LATE] = i + 1 < classes,
            [CROSS_ENTROPY_PUT_UNUSED] = unused,
        };
        if (here[t->inject]) {
            const double value = t->inject == CROSS_ENTROPY_PUT_NAN || t->inject == CROSS_ENTROPY_PUT_UNUSED
                                     ? (double)NAN
                                     : (double)INFINITY;
            array_set(&job->input[X], index,
                      t->inject >= CROSS_ENTROPY_PUT_LESS && t->inject <= CROSS_ENTROPY_PUT_LATE ? -value : value);
        }
        i++;
    } while (array_next(t->rank, t->extent, index));
    array_upload(&job->input[X]);
    return true;
}

static void check(const void *test, const char *solver)
{
    static const job_checker checker = {.make = make, .refer = refer, .inject = inject};
    job_check(&checker, test, solver);
}

void cross_entropy_add(const cross_entropy_case *cases, size_t count)
{
    for (int n = 0; n < CROSS_ENTROPY_SOLVERS; n++) {
        for (size_t i = 0; i < count; i++) {
            const cross_entropy_case *t = &cases[i];
            if (t->levels & level()) {
                suite_add_case(check, t, cross_entropy_solvers[n], "cross_entropy %s: %s, rank %d, %zu classes",
                               cross_entropy_solvers[n], t->rule, t->rank, t->extent[t->rank - 1]);
            }
        }
    }
}
