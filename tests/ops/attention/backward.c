/* Attention's backward direction gives the derivatives of its definition, for every feature that has some.
 *
 * The tests' gradients (support/attention/backward.h) are held to differences of the forward reference, and the library's to them, by
 * the accuracy rule. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/attention/backward.h"
#include "support/attention/case.h"
#include "support/verdict.h"

#define F64 CLATTN_DTYPE_F64
#define HALF CLATTN_DTYPE_F16
#define BF CLATTN_DTYPE_BF16

/* ---- the call ---- */

/* The arrays of the backward call beside the forward job's inputs. */
struct backward_job {
    test_job job;
    const attention_case *test;
    attention_dense dense;
    size_t *queries;                                /* of each item */
    double *output, *d_output, *d_lse, *distance;   /* dense */
    test_array given, lse, given_output, given_lse; /* output, its log-sum-exp, and the gradients of both */
    test_array query, key, value, mask, bias, vector, alibi, sinks;
    clattn_attention_desc desc;
    clattn_dtype weights; /* what the solver rounds P and dS to; 0: nothing */
};

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

/* The first three indices of row `row` of head h; false if the item has no such row. */
static bool row_index(const attention_case *t, bool is_key, size_t b, size_t h, size_t row, size_t index[3])
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
                for (index[3] = 0; row_index(j->test, is_key, b, h, row, index) && index[3] < width; index[3]++) {
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
    double *lse = zeros(rows);

    j->output = zeros(rows * p->d_v);
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
    reference_attention(p, false, &(reference_result){.output = j->output, .lse = lse});
    j->given = given_rows(j, t->type.output, 4, p->d_v, t->form.output, j->output);
    j->lse = given_rows(j, CLATTN_DTYPE_F32, 3, 1, t->form.output, lse);
    j->given_output = given_rows(j, t->type.output, 4, p->d_v, FORM_PADDED, j->d_output);
    if (t->entropy) { /* here: the loss depends on the log-sum-exp, too */
        j->given_lse = given_rows(j, CLATTN_DTYPE_F32, 3, 1, FORM_PADDED, j->d_lse);
    }
    free(lse);
}

static void describe(struct backward_job *j)
{
    const attention_case *t = j->test;
    clattn_attention_desc *desc = &j->desc;
    clattn_attention_args *args = &j->job.args.attention;
    const reference_problem *p = &j->dense.problem;
    const size_t reach[4] = {p->batch, p->heads, p->queries, p->keys};

    j->query = made_rows(j, t->type.query, false, p->d_k, t->form.query);
    j->key = made_rows(j, t->type.key, true, p->d_k, t->form.key);
    j->value = made_rows(j, t->type.value, true, p->d_v, t->form.value);
    if (t->mask > MASK_BOOL) {
        j->mask = made_like(j, &j->job.input[MASK], reach);
    }
    j->bias = made_like(j, &j->job.input[BIAS], reach);
    j->vector = made_like(j, &j->job.input[VECTOR], NULL);
    j->alibi = made_like(j, &j->job.input[ALIBI], NULL);
    if (t->alibi == 2 && !t->shared_alibi) {
        array_own(&j->alibi, (size_t[]){p->batch, p->heads});
    }
    j->sinks = made_like(j, &j->job.input[SINKS], NULL);
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
}

static void prepare(struct backward_job *j, const attention_case *test)
{
    memset(j, 0, sizeof *j);
    j->test = test;
    j->desc = attention_prepare(&j->job, test, 1);
    make_dense(j);
    describe(j);
}

static void release(struct backward_job *j)
{
    free(j->queries);
    free(j->output);
    free(j->d_output);
    free(j->d_lse);
    free(j->distance);
    attention_dense_release(&j->dense);
    job_release(&j->job);
}

static backward_problem problem_of(const struct backward_job *j)
{
    return (backward_problem){.forward = &j->dense.problem,
                              .output = j->output,
                              .d_output = j->d_output,
                              .d_lse = j->given_lse.memory ? j->d_lse : NULL,
                              .distance = j->test->alibi ? j->distance : NULL,
                              .queries = j->queries,
                              .weights = j->weights};
}

/* ---- the verdict ---- */

static backward_result results(const reference_problem *p)
{
    backward_result made;
    for (int n = 0; n < BACKWARD_RESULTS; n++) {
        made.value[n] = zeros(backward_count(p, n));
        made.magnitude[n] = zeros(backward_count(p, n));
    }
    return made;
}

static void results_release(backward_result *r)
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
    size_t index[4] = {0}, n = 0;

    do {
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
        n++;
    } while (array_next(rank, extent, index));
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
    job_result r = result_sized(name, array->layout.dtype, 4, extent);

    array_download(array);
    r.rule.unit = p->wide ? DBL_EPSILON : r.rule.unit;
    if (j->weights) {
        r.rule.roundings = 2;
        r.rule.mean = 1.5;
    }
    r.naive = zeros(r.count);
    r.given = zeros(r.count);
    memcpy(r.reference, wide->value[which], r.count * sizeof(double));
    memcpy(r.magnitude, wide->magnitude[which], r.count * sizeof(double));
    memcpy(r.naive, narrow->value[which], r.count * sizeof(double));
    memcpy(r.given, wide->value[which], r.count * sizeof(double));
    each_element(j, array, is_key, r.given, get);
    mark_zeros(j, &r);
    result_judge(&r);
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

static void judge(struct backward_job *j)
{
    const reference_problem *p = &j->dense.problem;
    const backward_problem problem = problem_of(j);
    const size_t pairs[4] = {p->batch, p->heads, p->queries, p->keys}, vector[2] = {p->heads, p->d_k};
    backward_result wide = results(p), narrow = results(p);

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
    results_release(&wide);
    results_release(&narrow);
}

static void run(struct backward_job *j)
{
    const clattn_status status = job_enqueue(&j->job, NULL, 0, NULL, NULL);
    assert_status(device_context(), status, CLATTN_SUCCESS);
    assert_cl(clFinish(clattn_context_queue(device_context())));
}

static void check(const void *test, const char *solver)
{
    struct backward_job j;
    const attention_case *t = test;

    prepare(&j, t);
    const bool is_pairs = strcmp(solver, "cpu-bf16") == 0, is_cpu = is_pairs || strcmp(solver, "cpu") == 0;
    j.weights = is_pairs ? BF : CLATTN_DTYPE_NONE;
    const bool refused = is_cpu ? t->additive || t->mask > MASK_BOOL || t->bias || t->alibi || t->type.query == F64
                                : attention_refuses(t, solver);
    if (job_plan(&j.job, &attention_operator, &j.desc, solver,
                 refused         ? JOB_REFUSED
                 : t->long_loops ? JOB_LOOPS
                                 : JOB_TAKEN)) {
        run(&j);
        judge(&j);
    }
    release(&j);
}

/* ---- the cases; `entropy` stands for a gradient of the log-sum-exp ---- */

#define SMALL .dim = {2, 4, 2, 13, 19, 8, 6}
#define MORE_SIZES .dim = {2, 2, 2, 33, 70, 24, 40}

static const attention_case cases[] = {
    {"plain", ALL, .dim = {1, 2, 1, 5, 7, 8, 8}},
    {"plain", BIG, MORE_SIZES},
    {"log-sum-exp", BIG, SMALL, .entropy = true},
    {"causal", BIG, SMALL, .causal = true, .entropy = true},
    {"causal, bottom right", BIG, SMALL, .causal = true, .alignment = CLATTN_ALIGNMENT_BOTTOM_RIGHT},
    {"leading rows attend nothing", BIG, .dim = {2, 2, 1, 19, 11, 8, 6}, .causal = true,
     .alignment = CLATTN_ALIGNMENT_BOTTOM_RIGHT, .sinks = true, .entropy = true},
    {"window", BIG, SMALL, .windowed = true, .left = 3, .right = 2},
    {"window without a left end", MORE, SMALL, .windowed = true, .left = -1, .right = 2},
    {"boolean mask", BIG, SMALL, .mask = MASK_BOOL},
    {"float mask", ALL, .dim = {2, 2, 1, 5, 7, 8, 8}, .mask = MASK_FLOAT},
    {"float mask for all heads and queries", BIG, SMALL, .mask = MASK_FLOAT, .mask_rank = 4,
     .mask_extent = {2, 1, 1, 19}},
    {"bias for all items", BIG, SMALL, .bias = MASK_FLOAT, .bias_rank = 3, .bias_extent = {4, 13, 19}},
    {"bias for all keys", MORE, SMALL, .bias = MASK_FINITE, .bias_rank = 4, .bias_extent = {2, 4, 13, 1}},
    {"short mask and bias", BIG, SMALL, .mask = MASK_FLOAT, .mask_rank = 1, .mask_extent = {11}, .bias = MASK_FINITE,
     .bias_rank = 2, .bias_extent = {13, 19}},
    {"nothing is attended", BIG, SMALL, .mask = MASK_INF, .entropy = true},
    {"softcap", BIG, SMALL, .softcap = 0.7f},
    {"alibi", BIG, SMALL, .alibi = 1, .causal = true},
    {"alibi of each item", BIG, SMALL, .alibi = 2},
    {"alibi of all items", MORE, SMALL, .alibi = 2, .shared_alibi = true},
    {"sinks", ALL, .dim = {2, 2, 1, 5, 7, 8, 8}, .sinks = true, .entropy = true},
    {"additive", BIG, SMALL, .additive = true},
    {"additive, one vector, a sink", BIG, SMALL, .additive = true, .shared_vector = true, .sinks = true},
    {"dropout", BIG, SMALL, .dropout = 0.3f, .seed = 11, .dropout_offset = 3, .entropy = true},
    {"lengths", BIG, SMALL, .list = {.queries = LIST(13, 4), .keys = LIST(6, 19)}, .sinks = true, .entropy = true},
    {"shorter than the plan", BIG, SMALL, SHORTER(1, 9, 12), .mask = MASK_FLOAT, .alibi = 2},
    {"packed sequences", BIG, .dim = {2, 4, 2, 21, 31, 8, 6},
     .list = {.query_starts = LIST(0, 9, 20), .key_starts = LIST(1, 14, 31)}, .longest = 12, .sinks = true, .alibi = 1,
     .entropy = true},
    {"positions", BIG, SMALL, .causal = true, .alignment = CLATTN_ALIGNMENT_EXPLICIT, .position = 2,
     .list = {.positions = LIST(4, -3)}},
    {"scale 0", MORE, SMALL, .scaled = true},
    {"negative scale", BIG, SMALL, .scaled = true, .scale = -1.5f},
    {"logits near 1e4 and -1e4", BIG, MEDIUM, .scaled = true, .scale = 1, .fill = FILL_HUGE},
    {"strides", BIG, SMALL, .form = {FORM_BSHD, FORM_TRANSPOSED, FORM_MIRRORED, FORM_SPREAD, FORM_PADDED},
     .mask = MASK_FLOAT},
    {"float16", BIG, SMALL, .type = FOUR(HALF), .entropy = true},
    {"bfloat16", BIG, SMALL, .type = FOUR(BF), .causal = true},
    {"bfloat16, plain", ALL, .dim = {1, 2, 1, 5, 7, 8, 8}, .type = FOUR(BF)},
    {"bfloat16, odd sizes", BIG, .dim = {2, 4, 2, 77, 101, 35, 27}, .type = FOUR(BF), .entropy = true, .softcap = 3,
     .windowed = true, .left = 30, .right = 20, .sinks = true},
    {"bfloat16, dropout", MORE, .dim = {1, 2, 1, 130, 64, 32, 64}, .type = FOUR(BF), .dropout = 0.2f, .seed = 9,
     .mask = MASK_BOOL},
    {"float64", BIG, SMALL, .type = FOUR(F64), .entropy = true, .softcap = 2, .alibi = 1, .sinks = true},
    {"float64, mask and dropout", MORE, SMALL,
     .type = {.query = F64, .key = F64, .value = F64, .output = F64, .mask = F64}, .mask = MASK_FLOAT, .dropout = 0.2f,
     .seed = 7},
    {"long heads", MORE, .dim = {1, 2, 1, 7, 9, 300, 1100}, .long_loops = true},
    {"several blocks, grouped heads", BIG, .dim = {2, 4, 2, 150, 131, 16, 24}, .causal = true, .entropy = true},
    {"several blocks, one head", MORE, .dim = {1, 1, 1, 333, 100, 8, 8}, .windowed = true, .left = 40, .right = 9},
    {"heads of one column", MORE, .dim = {1, 2, 1, 7, 9, 1, 1}, .sinks = true},
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
};

static void check_differences(const void *test, const char *unused)
{
    struct backward_job j;
    const attention_case *t = test;
    (void)unused;

    prepare(&j, t);
    const reference_problem *p = &j.dense.problem;
    backward_result r = results(p);
    reference_attention(p, false, &(reference_result){.output = j.output}); /* not as it is stored */
    const backward_problem problem = problem_of(&j);
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
    results_release(&r);
    release(&j);
}

/* ---- the same bits ---- */

static void repeats_give_the_same_bits(void **state)
{
    static const attention_case t = {"",
                                     ALL,
                                     SMALL,
                                     .sinks = true,
                                     .alibi = 1,
                                     .bias = MASK_FLOAT,
                                     .bias_rank = 2,
                                     .bias_extent = {13, 19},
                                     .dropout = 0.2f,
                                     .seed = 3};
    struct backward_job j;
    (void)state;

    prepare(&j, &t);
    assert_true(job_plan(&j.job, &attention_operator, &j.desc, "generic", JOB_TAKEN));
    test_array *const outputs[] = {&j.query, &j.key, &j.value, &j.bias, &j.alibi, &j.sinks};
    unsigned char *first[COUNT_OF(outputs)] = {0};
    const size_t count = by_level(2, 100, 100, 1000);
    for (size_t n = 0; n < count; n++) {
        run(&j);
        for (size_t i = 0; i < COUNT_OF(outputs); i++) {
            const test_memory *memory = outputs[i]->memory;
            const size_t bytes = memory->element_size * memory->count;
            array_download(outputs[i]);
            if (!first[i]) {
                first[i] = malloc(bytes);
                assert_non_null(first[i]);
                memcpy(first[i], memory->host, bytes);
            }
            assert_memory_equal(first[i], memory->host, bytes);
        }
    }
    for (size_t i = 0; i < COUNT_OF(outputs); i++) {
        free(first[i]);
    }
    release(&j);
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

    for (index[3] = 0; row_index(j->test, is_key, b, h, row, index) && index[3] < width; index[3]++) {
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
    prepare(&j, test);
    assert_true(job_plan(&j.job, &attention_operator, &j.desc, solver, JOB_TAKEN));
    run(&j);
    judge(&j);
    test_array *const outputs[] = {&j.query, &j.key, &j.value};
    unsigned char *before[COUNT_OF(outputs)];
    for (size_t i = 0; i < COUNT_OF(outputs); i++) {
        const size_t bytes = outputs[i]->memory->element_size * outputs[i]->memory->count;
        before[i] = malloc(bytes);
        assert_non_null(before[i]);
        memcpy(before[i], outputs[i]->memory->host, bytes);
    }
    spoil_what_does_not_count(&j);
    run(&j);
    for (size_t i = 0; i < COUNT_OF(outputs); i++) {
        array_download(outputs[i]);
        assert_memory_equal(before[i], outputs[i]->memory->host,
                            outputs[i]->memory->element_size * outputs[i]->memory->count);
        free(before[i]);
    }
    release(&j);
}

static const attention_case uncounted[] = {
    {"masked keys", ALL, .dim = {2, 2, 1, 5, 7, 8, 8}, .mask = MASK_BOOL},
    {"masked keys, lengths", BIG, SMALL, .mask = MASK_BOOL, .list = {.queries = LIST(13, 4), .keys = LIST(6, 19)},
     .entropy = true},
    {"causal", BIG, .dim = {2, 2, 1, 90, 131, 8, 8}, .causal = true, .alignment = CLATTN_ALIGNMENT_EXPLICIT,
     .position = -20, .entropy = true},
    {"packed sequences", BIG, .dim = {2, 4, 2, 21, 31, 8, 6},
     .list = {.query_starts = LIST(0, 9, 20), .key_starts = LIST(1, 14, 31), .keys = LIST(9, 17)}, .longest = 12,
     .mask = MASK_BOOL},
};

/* ---- refusals ---- */

static void refusals(void **state)
{
    static const attention_case t = {"", ALL, .dim = {2, 2, 1, 5, 7, 8, 8}, .mask = MASK_BOOL};
    struct backward_job j;
    (void)state;

    prepare(&j, &t);
    const clattn_attention_desc good = j.desc;
    clattn_attention_desc d;
#define ANSWERS(status, change) \
    d = good; \
    change; \
    operator_answers(&attention_operator, &d, CLATTN_##status)
    ANSWERS(SUCCESS, (void)0);
    ANSWERS(ERROR_INVALID_ARGUMENT, d.direction = 2);
    ANSWERS(ERROR_INVALID_ARGUMENT, d.direction = CLATTN_DIRECTION_FORWARD);
    ANSWERS(ERROR_INVALID_ARGUMENT, d.gradients.output = (clattn_layout){0});
    ANSWERS(ERROR_INVALID_ARGUMENT, d.outputs.lse = (clattn_layout){0});
    ANSWERS(ERROR_INVALID_ARGUMENT, d.gradients.query = d.gradients.key = d.gradients.value = (clattn_layout){0});
    ANSWERS(SUCCESS, d.gradients.query = d.gradients.key = (clattn_layout){0});
    ANSWERS(ERROR_INVALID_ARGUMENT, d.outputs.entropy = d.outputs.lse);
    ANSWERS(ERROR_INVALID_ARGUMENT, d.gradients.mask = clattn_layout_bhsd(CLATTN_DTYPE_F32, 2, 2, 5, 7));
    ANSWERS(ERROR_INVALID_LAYOUT, d.gradients.bias = clattn_layout_bhsd(CLATTN_DTYPE_F32, 2, 2, 5, 7));
    ANSWERS(ERROR_INVALID_LAYOUT, d.gradients.key.extent[2] = 6);
    ANSWERS(ERROR_INVALID_LAYOUT, d.gradients.query.stride[3] = 0);
    ANSWERS(ERROR_UNSUPPORTED, d.gradients.query.dtype = CLATTN_DTYPE_F64);
    ANSWERS(ERROR_UNSUPPORTED, d.gradients.output.dtype = CLATTN_DTYPE_I8);
    ANSWERS(ERROR_UNSUPPORTED, d.cache.kind = CLATTN_CACHE_KIND_RING);
    ANSWERS(ERROR_UNSUPPORTED, d.snippets.score_mod =
                                   "float score_mod(float score, int batch, int head, int query, int key, "
                                   "user_data user)\n{\n    return score;\n}\n");
#undef ANSWERS

    assert_true(job_plan(&j.job, &attention_operator, &good, "generic", JOB_TAKEN));
    const clattn_attention_args given = j.job.args.attention;
    clattn_attention_args a;
#define REFUSES(status, change) \
    a = given; \
    change; \
    operator_refuses(&attention_operator, j.job.plan, &a, CLATTN_##status, __FILE__, __LINE__, #change)
    REFUSES(ERROR_INVALID_ARGUMENT, a.gradients.query = (clattn_binding){0});
    REFUSES(ERROR_INVALID_ARGUMENT, a.gradients.sinks = a.gradients.query);
    REFUSES(ERROR_INVALID_ARGUMENT, a.gradients.value = a.gradients.key);
    REFUSES(ERROR_BUFFER_ACCESS, a.gradients.key = a.key);
    REFUSES(ERROR_INVALID_ARGUMENT, a.outputs.lse = (clattn_binding){0});
#undef REFUSES
    release(&j);
}

/* Without query rows the gradients of keys and of what is shared are +0, and the inputs may be unbound. */
static void nothing_to_attend(void **state)
{
    static const attention_case t = {"", ALL, .dim = {2, 2, 1, 5, 7, 8, 8}, .sinks = true, SHORTER(2, 0, 7)};
    struct backward_job j;
    (void)state;

    prepare(&j, &t);
    assert_true(job_plan(&j.job, &attention_operator, &j.desc, "generic", JOB_TAKEN));
    clattn_attention_args *args = &j.job.args.attention;
    args->query = args->key = args->value = args->output = args->outputs.lse = args->scoring.sinks =
        (clattn_binding){0};
    args->gradients.output = (clattn_binding){0};
    run(&j);
    judge(&j);
    release(&j);
}

int main(int argc, char **argv)
{
    static const char *const solvers[] = {"generic", "cpu"};
    for (size_t n = 0; n < COUNT_OF(differences); n++) {
        suite_add_case(check_differences, &differences[n], "", "the tests' gradients by differences: %s",
                       differences[n].rule);
    }
    for (size_t n = 0; n < COUNT_OF(cases); n++) {
        for (size_t i = 0; i < COUNT_OF(solvers) && cases[n].levels & level(); i++) {
            suite_add_case(check, &cases[n], solvers[i], "attention backward %s: %s", solvers[i], cases[n].rule);
        }
        if (cases[n].levels & level() && cases[n].type.query == BF) {
            suite_add_case(check, &cases[n], "cpu-bf16", "attention backward cpu-bf16: %s", cases[n].rule);
        }
    }
    for (size_t n = 0; n < COUNT_OF(uncounted); n++) {
        for (size_t i = 0; i < COUNT_OF(solvers) && uncounted[n].levels & level(); i++) {
            suite_add_case(check_what_does_not_count, &uncounted[n], solvers[i], "what does not count, %s: %s",
                           solvers[i], uncounted[n].rule);
        }
    }
    suite_add(repeats_give_the_same_bits, "repeats give the same bits");
    suite_add(refusals, "refusals");
    suite_add(nothing_to_attend, "nothing to attend");
    return suite_run("attention backward", argc, argv);
}
