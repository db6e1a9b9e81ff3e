/* Neighbourhood attention: makes arrays and a plan of a table row, and compares the result with plain attention in
 * which everything outside the windows is masked. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/ops/neighbourhood_case.h"
#include "support/verdict.h"

static const char *const solvers[] = {"generic", "cpu"};

enum { QUERY, KEY, VALUE, BIAS, OUTPUT_GRADIENT };                    /* of job.input */
enum { OUTPUT, LSE };                                                 /* of job.output, */
enum { QUERY_GRADIENT, KEY_GRADIENT, VALUE_GRADIENT, BIAS_GRADIENT }; /* or backward */

/* What a case's zeros stand for. */
typedef struct sizes {
    size_t batch, heads, kv_heads, d_k, d_v;
    size_t map[2], tile[2];                   /* the description's */
    size_t actual_batch, keys[2], queries[2]; /* the call's */
    int dilation[2];
} sizes;

static size_t or_else(size_t given, size_t otherwise)
{
    return given ? given : otherwise;
}

static sizes sizes_of(const neighbourhood_case *t)
{
    sizes s = {.batch = or_else(t->batch, 1),
               .heads = or_else(t->heads, 1),
               .d_k = or_else(t->d_k, 4),
               .d_v = or_else(t->d_v, 4)};

    s.kv_heads = or_else(t->kv_heads, s.heads);
    s.actual_batch = t->explicit_sizes ? t->actual_batch : s.batch;
    for (int i = 0; i < 2; i++) {
        s.map[i] = t->map[i];
        s.tile[i] = or_else(t->tile[i], t->map[i]);
        s.keys[i] = t->explicit_sizes ? t->actual_map[i] : s.map[i];
        s.queries[i] = t->explicit_sizes ? t->actual_tile[i] : s.tile[i];
        s.dilation[i] = t->dilation[i] ? t->dilation[i] : 1;
    }
    return s;
}

bool neighbourhood_attends(int p, int j, int length, int window, int dilation, bool clip)
{
    int members = 0, mine = 0, its = 0, best = 0;

    if (j % dilation != p % dilation) {
        return false;
    }
    for (int at = p % dilation; at < length; at += dilation, members++) {
        mine = at == p ? members : mine;
        its = at == j ? members : its;
    }
    if (clip) {
        return abs(its - mine) <= window / 2;
    }
    /* The window is the one within the group whose middle is nearest. */
    for (int start = 0; start + window <= members; start++) {
        best = abs(start + window / 2 - mine) < abs(best + window / 2 - mine) ? start : best;
    }
    return its >= best && its < best + window;
}

typedef struct bias_filler {
    random_stream stream;
    bias_kind kind;
} bias_filler;

static double fill_bias(void *context, const size_t *index)
{
    bias_filler *f = context;
    double addend = random_float(&f->stream, -2, 2);
    bool dropped = (index[0] + index[1] + 2 * index[2] + index[3]) % 3 == 1;

    return f->kind == BIAS_NOTHING || (f->kind == BIAS_DROPS && dropped) ? -INFINITY : addend;
}

static void fill_inputs(test_job *job, const neighbourhood_case *t, const sizes *s)
{
    const size_t query[5] = {s->batch, s->heads, s->tile[0], s->tile[1], s->d_k};
    const size_t key[5] = {s->batch, s->kv_heads, s->map[0], s->map[1], s->d_k};
    const size_t value[5] = {s->batch, s->kv_heads, s->map[0], s->map[1], s->d_v};
    const size_t bias[4] = {or_else(t->bias_batch, 1), or_else(t->bias_heads, 1), s->map[0], s->map[1]};
    float spread = t->spread > 0 ? t->spread : 1.5f;

    job->input[QUERY] = job_array(job, ROLE_INPUT, t->q, 5, query, t->form);
    job->input[KEY] = job_array(job, ROLE_INPUT, t->k, 5, key, t->form);
    job->input[VALUE] = job_array(job, ROLE_INPUT, t->v, 5, value, t->form);
    /* Large scores are whole numbers, because only exact ones can be compared. */
    job_fill(&job->input[QUERY], 11, -spread, spread, spread >= 50);
    job_fill(&job->input[KEY], 12, -spread, spread, spread >= 50);
    job_fill(&job->input[VALUE], 13, -2, 2, false);
    if (t->bias != BIAS_NONE) {
        job->input[BIAS] = job_array(job, ROLE_INPUT, CLATTN_DTYPE_F32, 4, bias, t->form);
        array_fill(&job->input[BIAS], fill_bias, &(bias_filler){random_start(14), t->bias});
        array_upload(&job->input[BIAS]);
    }
    if (t->gradients) {
        const size_t output[5] = {s->batch, s->heads, s->tile[0], s->tile[1], s->d_v};
        job->input[OUTPUT_GRADIENT] = job_array(job, ROLE_INPUT, t->o, 5, output, t->form);
        job_fill(&job->input[OUTPUT_GRADIENT], 15, -1, 1, false);
    }
}

/* Makes an output with the elements in `extent`, of which the call writes those in `owned`. */
static void add_output(test_job *job, const neighbourhood_case *t, int n, clattn_dtype type, int rank,
                       const size_t *extent, const size_t *owned)
{
    job->output[n] =
        job_array(job, ROLE_OUTPUT, type, rank, extent, t->form >= FORM_SHARED_FIRST ? FORM_PLAIN : t->form);
    array_own(&job->output[n], owned);
}

static void add_gradients(test_job *job, const neighbourhood_case *t, const sizes *s)
{
    const size_t query[5] = {s->batch, s->heads, s->tile[0], s->tile[1], s->d_k};
    const size_t key[5] = {s->batch, s->kv_heads, s->map[0], s->map[1], s->d_k};
    const size_t value[5] = {s->batch, s->kv_heads, s->map[0], s->map[1], s->d_v};
    const size_t bias[4] = {or_else(t->bias_batch, 1), or_else(t->bias_heads, 1), s->map[0], s->map[1]};
    const size_t queries[5] = {s->actual_batch, s->heads, s->queries[0], s->queries[1], s->d_k};
    const size_t keys[5] = {s->actual_batch, s->kv_heads, s->keys[0], s->keys[1], s->d_k};
    const size_t values[5] = {s->actual_batch, s->kv_heads, s->keys[0], s->keys[1], s->d_v};
    const size_t biases[4] = {bias[0] < s->actual_batch ? bias[0] : s->actual_batch, bias[1], s->keys[0], s->keys[1]};

    if (t->gradients & NEIGHBOURHOOD_DQUERY)
        add_output(job, t, QUERY_GRADIENT, t->dq, 5, query, queries);
    if (t->gradients & NEIGHBOURHOOD_DKEY)
        add_output(job, t, KEY_GRADIENT, t->dk, 5, key, keys);
    if (t->gradients & NEIGHBOURHOOD_DVALUE)
        add_output(job, t, VALUE_GRADIENT, t->dv, 5, value, values);
    if (t->gradients & NEIGHBOURHOOD_DBIAS)
        add_output(job, t, BIAS_GRADIENT, CLATTN_DTYPE_F32, 4, bias, biases);
}

bool neighbourhood_make(test_job *job, const void *which, const char *solver)
{
    const neighbourhood_case *t = which;
    const sizes actual = sizes_of(t), *s = &actual;
    clattn_neighbourhood_desc desc = CLATTN_NEIGHBOURHOOD_DESC_INIT;
    clattn_neighbourhood_args *args = &job->args.neighbourhood;
    const size_t output[5] = {s->batch, s->heads, s->tile[0], s->tile[1], s->d_v};
    const size_t owned[5] = {s->actual_batch, s->heads, s->queries[0], s->queries[1], s->d_v};

    fill_inputs(job, t, s);
    if (t->gradients) {
        desc.direction = CLATTN_DIRECTION_BACKWARD;
        add_gradients(job, t, s);
    } else {
        add_output(job, t, OUTPUT, t->o, 5, output, owned);
        if (t->lse)
            add_output(job, t, LSE, CLATTN_DTYPE_F32, 4, output, owned);
    }
    desc.edge = t->clip ? CLATTN_EDGE_CLIP : CLATTN_EDGE_SHIFT;
    memcpy(desc.window, t->window, sizeof desc.window);
    memcpy(desc.dilation, t->dilation, sizeof desc.dilation);
    desc.explicit_scale = t->scaled;
    desc.scale = t->scale;
    clattn_neighbourhood_args_init(args);
    array_bind(&job->input[QUERY], &desc.query, &args->query);
    array_bind(&job->input[KEY], &desc.key, &args->key);
    array_bind(&job->input[VALUE], &desc.value, &args->value);
    array_bind(&job->input[BIAS], &desc.bias, &args->bias);
    if (t->gradients) {
        array_bind(&job->input[OUTPUT_GRADIENT], &desc.gradients.output, &args->gradients.output);
        array_bind(&job->output[QUERY_GRADIENT], &desc.gradients.query, &args->gradients.query);
        array_bind(&job->output[KEY_GRADIENT], &desc.gradients.key, &args->gradients.key);
        array_bind(&job->output[VALUE_GRADIENT], &desc.gradients.value, &args->gradients.value);
        array_bind(&job->output[BIAS_GRADIENT], &desc.gradients.bias, &args->gradients.bias);
    } else {
        array_bind(&job->output[OUTPUT], &desc.output, &args->output);
        array_bind(&job->output[LSE], &desc.lse, &args->lse);
    }
    args->explicit_sizes = t->explicit_sizes;
    args->batch = t->actual_batch;
    args->query_height = t->actual_tile[0];
    args->query_width = t->actual_tile[1];
    args->key_height = t->actual_map[0];
    args->key_width = t->actual_map[1];
    args->query_y = t->tile_at[0];
    args->query_x = t->tile_at[1];
    return job_plan(job, &neighbourhood_operator, &desc, solver, t->long_loops ? JOB_LOOPS : JOB_TAKEN);
}

/* ---- the verdict ---- */

/* Returns −inf for every pair outside the windows and the bias elsewhere: (batch, heads, queries, keys). */
static double *make_addend(const test_job *job, const neighbourhood_case *t, const sizes *s)
{
    const size_t extent[6] = {s->actual_batch, s->heads, s->queries[0], s->queries[1], s->keys[0], s->keys[1]};
    const test_array *bias = &job->input[BIAS];
    size_t count = array_count(6, extent), at[6] = {0};
    double *addend = zeros(count);

    for (size_t n = 0; n < count; n++) {
        int y = (int)(t->tile_at[0] + at[2]), x = (int)(t->tile_at[1] + at[3]), i = (int)at[4], j = (int)at[5];
        bool inside = neighbourhood_attends(y, i, (int)s->keys[0], t->window[0], s->dilation[0], t->clip) &&
                      neighbourhood_attends(x, j, (int)s->keys[1], t->window[1], s->dilation[1], t->clip);
        const size_t place[4] = {t->bias_batch > 1 ? at[0] : 0, t->bias_heads > 1 ? at[1] : 0, at[4], at[5]};

        addend[n] = !inside ? -INFINITY : bias->memory ? array_get(bias, place) : 0;
        array_next(6, extent, at);
    }
    return addend;
}

/* A number as double or, if `narrow`, as float. */
static double rounded(bool narrow, double x)
{
    return narrow ? (double)(float)x : x;
}

static double product(const double *x, const double *y, size_t size, bool narrow, double *magnitude)
{
    double sum = 0;

    *magnitude = 0;
    for (size_t d = 0; d < size; d++) {
        sum = rounded(narrow, sum + rounded(narrow, x[d] * y[d]));
        *magnitude += fabs(x[d] * y[d]);
    }
    return sum;
}

/* Adds factor * x[d] to sum[d] and its size, times `spread`, to magnitude[d] unless that is NULL. */
static void add_scaled(double *sum, double *magnitude, size_t at, const double *x, size_t size, double factor,
                       bool narrow, double spread)
{
    for (size_t d = 0; d < size; d++) {
        sum[at + d] = rounded(narrow, sum[at + d] + rounded(narrow, factor * x[d]));
        if (magnitude)
            magnitude[at + d] += spread * fabs(x[d]);
    }
}

/* One query of the reference: `p` and `slope` are of its keys, as `size` is: of the scores, then of the slopes. */
typedef struct query_row {
    double *p, *slope, *size[2];
    double mean, mean_size;
} query_row;

static void find_row(const reference_problem *p, size_t at, size_t head, const double *gradient, bool narrow,
                     query_row *r)
{
    double largest = -INFINITY, sum = 0;

    r->mean = r->mean_size = 0;
    for (size_t j = 0; j < p->keys; j++) {
        const double addend = p->addend[at * p->keys + j];
        r->p[j] = -INFINITY;
        if (addend == -INFINITY)
            continue;
        r->p[j] =
            product(p->query + at * p->d_k, p->key + (head * p->keys + j) * p->d_k, p->d_k, narrow, &r->size[0][j]);
        r->p[j] = rounded(narrow, rounded(narrow, p->scale * r->p[j]) + addend);
        r->size[0][j] = fabs(p->scale) * r->size[0][j] + fabs(addend);
        r->slope[j] = product(gradient, p->value + (head * p->keys + j) * p->d_v, p->d_v, narrow, &r->size[1][j]);
        largest = isnan(r->p[j]) || r->p[j] > largest ? r->p[j] : largest;
    }
    for (size_t j = 0; j < p->keys; j++) {
        r->p[j] =
            p->addend[at * p->keys + j] == -INFINITY ? 0 : rounded(narrow, exp(rounded(narrow, r->p[j] - largest)));
        sum = rounded(narrow, sum + r->p[j]);
    }
    for (size_t j = 0; j < p->keys; j++) {
        if (p->addend[at * p->keys + j] == -INFINITY)
            continue;
        r->p[j] = sum == 0 ? 0 : rounded(narrow, r->p[j] / sum);
        r->mean = rounded(narrow, r->mean + rounded(narrow, r->p[j] * r->slope[j]));
        r->mean_size += r->p[j] * r->size[1][j];
    }
}

void neighbourhood_gradient_reference(const reference_problem *p, const double *output_gradient, bool narrow,
                                      const neighbourhood_gradients *result, const neighbourhood_gradients *magnitude)
{
    static const neighbourhood_gradients nothing;
    const neighbourhood_gradients *size = magnitude ? magnitude : &nothing;
    query_row r = {zeros(p->keys), zeros(p->keys), {zeros(p->keys), zeros(p->keys)}, 0, 0};

    for (size_t n = 0; n < p->batch * p->heads * p->queries; n++) {
        const size_t plane = n / p->queries, b = plane / p->heads, h = plane % p->heads;
        const size_t head = b * p->kv_heads + h / (p->heads / p->kv_heads);
        const double *gradient = output_gradient + n * p->d_v;
        find_row(p, n, head, gradient, narrow, &r);
        for (size_t j = 0; j < p->keys; j++) {
            if (p->addend[n * p->keys + j] == -INFINITY)
                continue;
            const size_t key = head * p->keys + j;
            const double step = rounded(narrow, r.p[j] * rounded(narrow, r.slope[j] - r.mean));
            const double spread = 1 + r.size[0][j], factor = rounded(narrow, p->scale * step);
            const double made = r.p[j] * (r.size[1][j] + r.mean_size) * spread;
            add_scaled(result->query, size->query, n * p->d_k, p->key + key * p->d_k, p->d_k, factor, narrow,
                       fabs(p->scale) * made);
            add_scaled(result->key, size->key, key * p->d_k, p->query + n * p->d_k, p->d_k, factor, narrow,
                       fabs(p->scale) * made);
            add_scaled(result->value, size->value, key * p->d_v, gradient, p->d_v, r.p[j], narrow, r.p[j] * spread);
            add_scaled(result->bias, size->bias, plane * p->keys + j, (const double[]){1}, 1, step, narrow, made);
        }
    }
    free(r.p);
    free(r.slope);
    free(r.size[0]);
    free(r.size[1]);
}

/* Adds what (batch, heads, keys) has up to what the bias has of these. */
static void broadcast(const reference_problem *p, const job_result *result, const double *full, double *sums)
{
    for (size_t n = 0; n < p->batch * p->heads * p->keys; n++) {
        const size_t plane = n / p->keys, b = plane / p->heads % result->extent[0];
        sums[(b * result->extent[1] + plane % p->heads % result->extent[1]) * p->keys + n % p->keys] += full[n];
    }
}

static void refer_gradients(const test_job *job, const reference_problem *p, job_result *result)
{
    static const char *const names[] = {"gradients.query", "gradients.key", "gradients.value", "gradients.bias"};
    const size_t counts[] = {p->batch * p->heads * p->queries * p->d_k, p->batch * p->kv_heads * p->keys * p->d_k,
                             p->batch * p->kv_heads * p->keys * p->d_v, p->batch * p->heads * p->keys};
    const test_array *given = &job->input[OUTPUT_GRADIENT];
    size_t extent[5];
    double *all[3][4]; /* exact, naive, magnitude */

    memcpy(extent, given->layout.extent, sizeof extent);
    extent[0] = p->batch;
    extent[2] = job->args.neighbourhood.explicit_sizes ? job->args.neighbourhood.query_height : extent[2];
    extent[3] = job->args.neighbourhood.explicit_sizes ? job->args.neighbourhood.query_width : extent[3];
    double *gradient = array_dense(given, 5, extent);
    for (int i = 0; i < 3; i++)
        for (int n = 0; n < 4; n++)
            all[i][n] = zeros(counts[n]);
    const neighbourhood_gradients exact = {all[0][0], all[0][1], all[0][2], all[0][3]},
                                  naive = {all[1][0], all[1][1], all[1][2], all[1][3]},
                                  magnitude = {all[2][0], all[2][1], all[2][2], all[2][3]};
    neighbourhood_gradient_reference(p, gradient, false, &exact, &magnitude);
    neighbourhood_gradient_reference(p, gradient, true, &naive, NULL);
    for (int n = 0; n < 4; n++) {
        job_result *r = &result[n];
        *r = result_of(names[n], &job->output[n]);
        if (!r->name)
            continue;
        r->naive = zeros(r->count);
        double *to[] = {r->reference, r->naive, r->magnitude};
        for (int i = 0; i < 3; i++) {
            if (n == BIAS_GRADIENT)
                broadcast(p, r, all[i][n], to[i]);
            else
                memcpy(to[i], all[i][n], r->count * sizeof(double));
        }
        for (size_t at = 0; at < r->count; at++)
            if (r->magnitude[at] == 0)
                r->magnitude[at] = EXACT_ZERO;
    }
    for (int i = 0; i < 3; i++)
        for (int n = 0; n < 4; n++)
            free(all[i][n]);
    free(gradient);
}

static void refer_forward(const test_job *job, const reference_problem *p, job_result *result)
{
    job_result *output = &result[OUTPUT], *lse = &result[LSE];

    *output = result_of("output", &job->output[OUTPUT]);
    *lse = result_of("lse", &job->output[LSE]);
    output->naive = zeros(output->count);
    lse->naive = lse->name ? zeros(lse->count) : NULL;
    reference_attention(
        p, false,
        &(reference_result){.output = output->reference, .magnitude = output->magnitude, .lse = lse->reference});
    reference_attention(p, true, &(reference_result){.output = output->naive, .lse = lse->naive});
    for (size_t i = 0; i < lse->count; i++) {
        lse->magnitude[i] = fmax(1, fabs(lse->reference[i]));
    }
}

static void refer(const test_job *job, const void *which, job_result *result)
{
    const neighbourhood_case *t = which;
    const sizes s = sizes_of(t);
    const size_t queries[5] = {s.actual_batch, s.heads, s.queries[0], s.queries[1], s.d_k};
    const size_t keys[5] = {s.actual_batch, s.kv_heads, s.keys[0], s.keys[1], s.d_k};
    const size_t values[5] = {s.actual_batch, s.kv_heads, s.keys[0], s.keys[1], s.d_v};
    double *query = array_dense(&job->input[QUERY], 5, queries), *key = array_dense(&job->input[KEY], 5, keys),
           *value = array_dense(&job->input[VALUE], 5, values), *addend = make_addend(job, t, &s);
    const reference_problem p = {.batch = s.actual_batch,
                                 .heads = s.heads,
                                 .kv_heads = s.kv_heads,
                                 .queries = s.queries[0] * s.queries[1],
                                 .keys = s.keys[0] * s.keys[1],
                                 .d_k = s.d_k,
                                 .d_v = s.d_v,
                                 .scale = t->scaled ? (double)t->scale : 1 / sqrt((double)s.d_k),
                                 .query = query,
                                 .key = key,
                                 .value = value,
                                 .addend = addend};
    if (t->gradients)
        refer_gradients(job, &p, result);
    else
        refer_forward(job, &p, result);
    free(query);
    free(key);
    free(value);
    free(addend);
}

/* Sets all elements of a key to `value`. */
static void set_key(test_array *array, size_t b, size_t h, size_t y, size_t x, double value)
{
    for (size_t d = 0; d < array->layout.extent[4]; d++) {
        array_set(array, (size_t[]){b, h, y, x, d}, value);
    }
}

static bool inject(test_job *job, const void *which)
{
    static const double bad[] = {NAN, INFINITY, -INFINITY, FLT_MAX};
    const neighbourhood_case *t = which;
    const sizes actual = sizes_of(t), *s = &actual;
    bool corner = t->inject == NEIGHBOURHOOD_CORNER;
    size_t y = corner ? s->keys[0] - 1 : s->keys[0] / 2, x = corner ? s->keys[1] - 1 : s->keys[1] / 2;

    for (size_t b = 0; b < s->actual_batch && t->inject == NEIGHBOURHOOD_DROPPED; b++) {
        for (size_t n = 0; n < s->keys[0] * s->keys[1]; n++) {
            const size_t at[4] = {0, 0, n / s->keys[1], n % s->keys[1]};

            if (array_get(&job->input[BIAS], at) == -INFINITY) {
                for (size_t h = 0; h < s->kv_heads; h++) {
                    set_key(&job->input[KEY], b, h, at[2], at[3], bad[n % 4]);
                }
            }
        }
    }
    if (t->inject == NEIGHBOURHOOD_NAN || corner) {
        set_key(&job->input[KEY], 0, 0, y, x, NAN);
        set_key(&job->input[VALUE], 0, 0, y, x, NAN);
    } else if (t->inject == NEIGHBOURHOOD_INF) {
        set_key(&job->input[VALUE], 0, 0, y, x, INFINITY);
    }
    array_upload(&job->input[KEY]);
    array_upload(&job->input[VALUE]);
    return t->inject;
}

static void check(const void *test, const char *solver)
{
    static const job_checker checker = {.make = neighbourhood_make, .refer = refer, .inject = inject};
    job_check(&checker, test, solver);
}

void neighbourhood_add(const neighbourhood_case *cases, size_t count)
{
    for (size_t n = 0; n < COUNT_OF(solvers); n++) {
        for (size_t i = 0; i < count; i++) {
            const neighbourhood_case *t = &cases[i];

            if ((t->levels & level()) && (n == 0 || !t->gradients)) {
                suite_add_case(check, t, solvers[n], "neighbourhood %s%s: %s, %zux%zu, window %dx%d", solvers[n],
                               t->gradients ? " backward" : "", t->rule, t->map[0], t->map[1], t->window[0],
                               t->window[1]);
            }
        }
    }
}
