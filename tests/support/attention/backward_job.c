#include "support/attention/backward_job.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/verdict.h"

/* ---- the call ---- */

/* Rows of keys that belong to an item, of which the first `keys` are its. */
static size_t key_rows(const attention_case *t, size_t b)
{
    size_t batch, queries, keys;

    attention_lengths(t, &batch, &queries, &keys);
    if (t->list.key_starts) {
        const size_t rows = (size_t)(t->list.key_starts[b + 1] - t->list.key_starts[b]);
        keys = rows < keys ? rows : keys;
    }
    return keys;
}

bool backward_row_index(const attention_case *t, bool is_key, size_t b, size_t h, size_t row, size_t index[3])
{
    const attention_item item = attention_item_of(t, b);

    index[0] = (is_key ? t->list.key_starts : t->list.query_starts) ? 0 : b;
    index[1] = h;
    index[2] = row + (is_key ? item.key_row : item.query_row);
    return row < (is_key ? key_rows(t, b) : item.rows);
}

/* Calls `visit` for each element of an array of rows, with its place in the dense array (batch, heads, rows, width). */
static void each_element(const struct backward_job *j, test_array *array, bool is_key, double *dense,
                         void (*visit)(test_array *array, const size_t *index, double *dense))
{
    const reference_problem *p = &j->dense.problem;
    const size_t heads = is_key ? p->kv_heads : p->heads, rows = is_key ? p->keys : p->queries;
    const size_t width = array->layout.rank == 4 ? array->layout.extent[3] : 1;
    size_t index[4];

    for (size_t b = 0; b < p->batch; b++) {
        for (size_t h = 0; h < heads; h++) {
            for (size_t row = 0; row < rows; row++) {
                for (index[3] = 0; backward_row_index(j->test, is_key, b, h, row, index) && index[3] < width;
                     index[3]++) {
                    visit(array, index, dense ? &dense[((b * heads + h) * rows + row) * width + index[3]] : NULL);
                }
            }
        }
    }
}

static void put(test_array *array, const size_t *index, double *dense)
{
    array_set(array, index, *dense);
    *dense = array_get(array, index);
}

static void get(test_array *array, const size_t *index, double *dense)
{
    *dense = array_get(array, index);
}

static void own(test_array *array, const size_t *index, double *dense)
{
    (void)dense;
    array_own_element(array, index);
}

/* An input of rows that holds what `dense` has, as it is stored. */
static test_array given_rows(struct backward_job *j, clattn_dtype dtype, int rank, size_t width, array_form form,
                             double *dense)
{
    const attention_case *t = j->test;
    const size_t extent[4] = {t->list.query_starts ? 1 : t->dim.batch, t->dim.heads, t->dim.queries, width};
    test_array made = job_array(&j->job, ROLE_INPUT, dtype, rank, extent, form);

    each_element(j, &made, false, dense, put);
    array_upload(&made);
    return made;
}

static test_array made_rows(struct backward_job *j, clattn_dtype dtype, bool is_key, size_t width, array_form form)
{
    const attention_case *t = j->test;
    const size_t query[4] = {t->list.query_starts ? 1 : t->dim.batch, t->dim.heads, t->dim.queries, width};
    const size_t key[4] = {t->list.key_starts ? 1 : t->dim.batch, t->dim.kv_heads, t->dim.keys, width};
    test_array made = job_array(&j->job, ROLE_OUTPUT, dtype, 4, is_key ? key : query, form);
    const size_t none[4] = {0};

    array_own(&made, none);
    each_element(j, &made, is_key, NULL, own);
    return made;
}

/* An output with the extents of an input, of which the enqueue reaches `reach`. */
static test_array made_like(struct backward_job *j, const test_array *input, const size_t *reach)
{
    test_array made = {0};

    if (input->memory) {
        const clattn_layout *layout = &input->layout;
        const clattn_dtype dtype =
            j->test->type.query == CLATTN_DTYPE_F64 && layout->rank != 1 && reach ? CLATTN_DTYPE_F64 : CLATTN_DTYPE_F32;
        size_t extent[CLATTN_MAX_RANK];
        for (int i = 0; i < layout->rank; i++) {
            const size_t limit = reach ? reach[i + 4 - layout->rank] : layout->extent[i];
            extent[i] = layout->extent[i] == 1 || limit > layout->extent[i] ? layout->extent[i] : limit;
        }
        made = job_array(&j->job, ROLE_OUTPUT, dtype, layout->rank, layout->extent, FORM_PADDED);
        array_own(&made, extent);
    }
    return made;
}

static void make_dense(struct backward_job *j)
{
    const attention_case *t = j->test;
    attention_dense_make(&j->dense, &j->job, t);
    const reference_problem *p = &j->dense.problem;
    const size_t rows = p->batch * p->heads * p->queries;
    random_stream stream = random_start(91);

    j->output = zeros(rows * p->d_v);
    j->sums = zeros(rows);
    j->d_output = zeros(rows * p->d_v);
    j->d_lse = zeros(rows);
    j->distance = zeros(rows * p->keys);
    j->queries = calloc(p->batch + 1, sizeof *j->queries);
    assert_non_null(j->queries);
    for (size_t n = 0; n < rows * p->d_v; n++) {
        j->d_output[n] = (double)random_float(&stream, -1, 1);
    }
    for (size_t n = 0; n < rows; n++) {
        j->d_lse[n] = (double)random_float(&stream, -1, 1);
    }
    for (size_t b = 0; b < p->batch; b++) {
        const attention_item item = attention_item_of(t, b);
        j->queries[b] = item.queries;
        for (size_t n = 0; n < p->heads * p->queries * p->keys; n++) {
            const double at = (double)(n / p->keys % p->queries) + (double)item.position;
            j->distance[b * p->heads * p->queries * p->keys + n] = fabs(at - (double)(n % p->keys));
        }
    }
    reference_attention(p, false, &(reference_result){.output = j->output, .lse = j->sums});
    j->given = given_rows(j, t->type.output, 4, p->d_v, t->form.output, j->output);
    j->lse = given_rows(j, CLATTN_DTYPE_F32, 3, 1, t->form.output, j->sums);
    j->given_output = given_rows(j, t->type.output, 4, p->d_v, FORM_PADDED, j->d_output);
    if (t->entropy) { /* here: the loss depends on the log-sum-exp, too */
        j->given_lse = given_rows(j, CLATTN_DTYPE_F32, 3, 1, FORM_PADDED, j->d_lse);
    }
}

static void describe(struct backward_job *j)
{
    const attention_case *t = j->test;
    clattn_attention_desc *desc = &j->desc;
    clattn_attention_args *args = &j->job.args.attention;
    const reference_problem *p = &j->dense.problem;
    const size_t reach[4] = {p->batch, p->heads, p->queries, p->keys};

    const clattn_dtype type = t->type.scores;

    j->query = made_rows(j, type ? type : t->type.query, false, p->d_k, t->form.query);
    j->key = made_rows(j, type ? type : t->type.key, true, p->d_k, t->form.key);
    j->value = made_rows(j, type ? type : t->type.value, true, p->d_v, t->form.value);
    if (t->mask > MASK_BOOL) {
        j->mask = made_like(j, &j->job.input[MASK], reach);
    }
    j->bias = made_like(j, &j->job.input[BIAS], reach);
    j->vector = made_like(j, &j->job.input[VECTOR], NULL);
    j->alibi = made_like(j, &j->job.input[ALIBI], NULL);
    if (t->alibi == 2 && !t->shared_alibi) {
        array_own(&j->alibi, (size_t[]){p->batch, p->heads});
    }
    j->by_sums = t->partial;
    if (t->partial) {
        desc->outputs.partial = 1;
        desc->scoring.sinks = (clattn_layout){0};
        args->scoring.sinks = (clattn_binding){0};
    } else {
        j->sinks = made_like(j, &j->job.input[SINKS], NULL);
    }
    desc->direction = CLATTN_DIRECTION_BACKWARD;
    desc->outputs.entropy = desc->outputs.scores = (clattn_layout){0};
    args->outputs.entropy = args->outputs.scores = (clattn_binding){0};
    array_bind(&j->given, &desc->output, &args->output);
    array_bind(&j->lse, &desc->outputs.lse, &args->outputs.lse);
    array_bind(&j->given_output, &desc->gradients.output, &args->gradients.output);
    array_bind(&j->given_lse, &desc->gradients.lse, &args->gradients.lse);
    array_bind(&j->query, &desc->gradients.query, &args->gradients.query);
    array_bind(&j->key, &desc->gradients.key, &args->gradients.key);
    array_bind(&j->value, &desc->gradients.value, &args->gradients.value);
    array_bind(&j->mask, &desc->gradients.mask, &args->gradients.mask);
    array_bind(&j->bias, &desc->gradients.bias, &args->gradients.bias);
    array_bind(&j->vector, &desc->gradients.vector, &args->gradients.vector);
    array_bind(&j->alibi, &desc->gradients.alibi, &args->gradients.alibi);
    array_bind(&j->sinks, &desc->gradients.sinks, &args->gradients.sinks);
    memset(j->job.output, 0, sizeof j->job.output);
    j->job.output[0] = j->query;
    j->job.output[1] = j->key;
    j->job.output[2] = j->value;
    j->job.output[3] = j->mask;
    j->job.output[4] = j->bias;
    j->job.output[5] = j->vector;
    j->job.output[6] = j->alibi;
    j->job.output[7] = j->sinks;
}

void backward_prepare(struct backward_job *j, const attention_case *test)
{
    memset(j, 0, sizeof *j);
    j->test = test;
    j->desc = attention_prepare(&j->job, test, 1);
    if (test->partial) {
        job_fill(&j->job.input[SINKS], 1, 18, 23, false);
    }
    make_dense(j);
    describe(j);
}

bool backward_has_engine(void)
{
    static const attention_case t = {"", ALL, .dim = {1, 2, 1, 5, 7, 8, 8}, .type = FOUR(CLATTN_DTYPE_BF16)};
    struct backward_job j;

    backward_prepare(&j, &t);
    const clattn_status status = operator_makes(device_context(), &attention_operator, &j.desc, "matrix");
    backward_release(&j);
    return status != CLATTN_ERROR_UNSUPPORTED;
}

bool backward_plan(struct backward_job *j, const char *solver)
{
    return job_plan(&j->job, &attention_operator, &j->desc, solver,
                    device_breaks(solver) ? JOB_REFUSED
                    : j->test->long_loops ? JOB_LOOPS
                                          : JOB_TAKEN);
}

void backward_release(struct backward_job *j)
{
    free(j->queries);
    free(j->output);
    free(j->sums);
    free(j->d_output);
    free(j->d_lse);
    free(j->distance);
    attention_dense_release(&j->dense);
    job_release(&j->job);
}

void backward_run(struct backward_job *j)
{
    const clattn_status status = job_enqueue(&j->job, NULL, 0, NULL, NULL);
    assert_status(device_context(), status, CLATTN_SUCCESS);
    assert_cl(clFinish(clattn_context_queue(device_context())));
}

backward_problem backward_problem_of(const struct backward_job *j)
{
    return (backward_problem){.forward = &j->dense.problem,
                              .output = j->output,
                              .d_output = j->d_output,
                              .d_lse = j->given_lse.memory ? j->d_lse : NULL,
                              .distance = j->test->alibi ? j->distance : NULL,
                              .queries = j->queries,
                              .lse = j->by_sums ? j->sums : NULL,
                              .weights = j->weights};
}

/* ---- the verdict ---- */

backward_result backward_results(const reference_problem *p)
{
    backward_result made;
    for (int n = 0; n < BACKWARD_RESULTS; n++) {
        made.value[n] = zeros(backward_count(p, n));
        made.magnitude[n] = zeros(backward_count(p, n));
    }
    return made;
}

void backward_results_release(backward_result *r)
{
    for (int n = 0; n < BACKWARD_RESULTS; n++) {
        free(r->value[n]);
        free(r->magnitude[n]);
    }
}

/* Sums a dense array of `rank` dimensions up for the extents of `array`, whose dimensions of 1 broadcast and whose missing leading
 * ones do, too. */
static double *reduced(const double *dense, int rank, const size_t *extent, const test_array *array)
{
    double *sum = zeros(array_count(array->layout.rank, array->written));
    const size_t count = array_count(rank, extent);
    size_t index[4] = {0};

    for (size_t n = 0; n < count; n++, array_next(rank, extent, index)) {
        size_t at = 0;
        bool is_inside = true;
        for (int i = 0; i < array->layout.rank; i++) {
            const size_t own_extent = array->written[i], given = index[i + rank - array->layout.rank];
            is_inside = is_inside && (own_extent == 1 || given < own_extent);
            at = at * own_extent + (own_extent == 1 ? 0 : given);
        }
        if (is_inside) {
            sum[at] += dense[n];
        }
    }
    return sum;
}

/* Where the magnitudes are 0 because nothing adds to an element, it must be +0. */
static void mark_zeros(const struct backward_job *j, job_result *r)
{
    for (size_t n = 0; n < r->count && j->dense.problem.scale != 0; n++) {
        r->magnitude[n] = r->magnitude[n] == 0 && r->reference[n] == 0 ? EXACT_ZERO : r->magnitude[n];
    }
}

static void judge_rows(struct backward_job *j, const char *name, test_array *array, bool is_key, int which,
                       const backward_result *wide, const backward_result *narrow)
{
    const reference_problem *p = &j->dense.problem;
    const size_t extent[4] = {p->batch, is_key ? p->kv_heads : p->heads, is_key ? p->keys : p->queries,
                              array->layout.extent[3]};
    if (!array->memory) {
        return;
    }
    job_result r = result_sized(name, array->layout.dtype, 4, extent);

    array_download(array);
    r.rule.unit = p->wide ? DBL_EPSILON : r.rule.unit;
    r.rule.roundings = j->weights ? 2 : 1;
    r.naive = zeros(r.count);
    r.given = zeros(r.count);
    memcpy(r.reference, wide->value[which], r.count * sizeof(double));
    memcpy(r.magnitude, wide->magnitude[which], r.count * sizeof(double));
    memcpy(r.naive, narrow->value[which], r.count * sizeof(double));
    memcpy(r.given, wide->value[which], r.count * sizeof(double));
    each_element(j, array, is_key, r.given, get);
    mark_zeros(j, &r);
    result_judge(&r);
    if (j->weights) { /* the mean is that of numbers as they are stored */
        for (size_t n = 0; n < r.count; n++) {
            r.naive[n] = storage_round(r.rule.stored, r.naive[n]);
        }
        r.rule.mean = 1.5;
        result_judge(&r);
    }
    result_release(&r);
}

static void judge_sum(const struct backward_job *j, const char *name, test_array *array, int rank, const size_t *extent,
                      int which, const backward_result *wide, const backward_result *narrow)
{
    const bool is_wide = j->dense.problem.wide;

    if (!array->memory) {
        return;
    }
    job_result r = result_of(name, array);
    free(r.reference);
    free(r.magnitude);
    array_download(array);
    r.rule.unit = is_wide && array->layout.dtype == CLATTN_DTYPE_F64 ? DBL_EPSILON : r.rule.unit;
    r.reference = reduced(wide->value[which], rank, extent, array);
    r.magnitude = reduced(wide->magnitude[which], rank, extent, array);
    r.naive = reduced(narrow->value[which], rank, extent, array);
    r.given = array_dense(array, r.rank, r.extent);
    mark_zeros(j, &r);
    result_judge(&r);
    result_release(&r);
}

void backward_judge(struct backward_job *j)
{
    const reference_problem *p = &j->dense.problem;
    const backward_problem problem = backward_problem_of(j);
    const size_t pairs[4] = {p->batch, p->heads, p->queries, p->keys}, vector[2] = {p->heads, p->d_k};
    backward_result wide = backward_results(p), narrow = backward_results(p);

    reference_backward(&problem, false, &wide);
    reference_backward(&problem, true, &narrow);
    judge_rows(j, "gradients.query", &j->query, false, BY_QUERY, &wide, &narrow);
    judge_rows(j, "gradients.key", &j->key, true, BY_KEY, &wide, &narrow);
    judge_rows(j, "gradients.value", &j->value, true, BY_VALUE, &wide, &narrow);
    judge_sum(j, "gradients.mask", &j->mask, 4, pairs, BY_PAIR, &wide, &narrow);
    judge_sum(j, "gradients.bias", &j->bias, 4, pairs, BY_PAIR, &wide, &narrow);
    judge_sum(j, "gradients.vector", &j->vector, 2, vector, BY_VECTOR, &wide, &narrow);
    judge_sum(j, "gradients.alibi", &j->alibi, 2, pairs, BY_SLOPE, &wide, &narrow);
    judge_sum(j, "gradients.sinks", &j->sinks, 1, vector, BY_SINK, &wide, &narrow);
    backward_results_release(&wide);
    backward_results_release(&narrow);
}
