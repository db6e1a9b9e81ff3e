#include "support/attention/backward.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/storage.h"

typedef long double real;

/* One row of one head on its way. */
typedef struct row_work {
    const backward_problem *problem;
    const reference_problem *p;
    const backward_result *result;
    bool narrow;
    size_t b, h, g, i, row; /* g: the key's head */
    const double *weights, *capped, *lse;
    real *product, *product_magnitude; /* of each key: keep * dO . V */
    real delta, delta_magnitude;
} row_work;

static real rounded(const row_work *w, real x)
{
    return !w->narrow ? x : w->p->wide ? (real)(double)x : (real)(float)x;
}

/* P or dS as a product takes it. */
static real stored(const row_work *w, real x)
{
    return w->narrow && w->problem->weights ? (real)storage_round(w->problem->weights, (double)x) : x;
}

static void add(const row_work *w, int which, size_t at, real x, real magnitude)
{
    double *value = &w->result->value[which][at];
    *value = (double)rounded(w, *value + rounded(w, x));
    w->result->magnitude[which][at] += (double)magnitude;
}

size_t backward_count(const reference_problem *p, int which)
{
    const size_t keys = p->batch * p->kv_heads * p->keys, rows = p->batch * p->heads * p->queries;
    const size_t counts[] = {rows * p->d_k,     keys * p->d_k,       keys * p->d_v, rows * p->keys,
                             p->heads * p->d_k, p->batch * p->heads, p->heads};
    return counts[which];
}

static bool attended(const row_work *w, size_t j)
{
    const size_t at = w->row * w->p->keys + j;
    return !(w->p->addend && w->p->addend[at] == -INFINITY) && !(w->p->bias && w->p->bias[at] == -INFINITY);
}

/* keep * dO . V of each key, and delta. */
static void make_products(row_work *w)
{
    const reference_problem *p = w->p;
    const double *d_output = w->problem->d_output + w->row * p->d_v, *output = w->problem->output + w->row * p->d_v;
    const real factor = rounded(w, 1 / (1 - (real)p->dropout));
    real plain = 0;

    w->delta = w->delta_magnitude = 0;
    for (size_t c = 0; c < p->d_v; c++) {
        w->delta += (real)d_output[c] * output[c];
        w->delta_magnitude += fabsl((real)d_output[c] * output[c]);
    }
    for (size_t j = 0; j < p->keys; j++) {
        const double *value = p->value + ((w->b * p->kv_heads + w->g) * p->keys + j) * p->d_v;
        w->product[j] = w->product_magnitude[j] = 0;
        if (!attended(w, j) || (p->kept && !p->kept[w->row * p->keys + j])) {
            continue;
        }
        for (size_t c = 0; c < p->d_v; c++) {
            w->product[j] = rounded(w, w->product[j] + rounded(w, (real)d_output[c] * value[c]));
            w->product_magnitude[j] += fabsl((real)d_output[c] * value[c]);
        }
        if (p->kept) {
            w->product[j] = rounded(w, factor * w->product[j]);
            w->product_magnitude[j] *= factor;
        }
        plain = rounded(w, plain + rounded(w, w->weights[w->row * p->keys + j] * w->product[j]));
    }
    w->delta = !w->narrow ? w->delta : w->problem->lse ? rounded(w, w->delta) : plain;
    if (w->problem->d_lse) {
        w->delta = rounded(w, w->delta - w->problem->d_lse[w->row]);
        w->delta_magnitude += fabs(w->problem->d_lse[w->row]);
    }
}

static void add_operands(const row_work *w, size_t j, real g, real magnitude)
{
    const reference_problem *p = w->p;
    const size_t q = w->row * p->d_k, k = ((w->b * p->kv_heads + w->g) * p->keys + j) * p->d_k;
    for (size_t d = 0; d < p->d_k; d++) {
        real by_query = p->key[k + d], by_key = p->query[q + d];
        if (p->vector) {
            const real t = rounded(w, tanhl((real)p->query[q + d] + p->key[k + d]));
            by_query = by_key = rounded(w, p->vector[w->h * p->d_k + d] * rounded(w, 1 - t * t));
            add(w, BY_VECTOR, w->h * p->d_k + d, g * t, magnitude * fabsl(t));
        }
        /* 1 - t^2 cancels where t is near 1. */
        const real floor = p->vector ? fabs(p->vector[w->h * p->d_k + d]) : 0;
        add(w, BY_QUERY, q + d, g * by_query, magnitude * (fabsl(by_query) + floor));
        add(w, BY_KEY, k + d, g * by_key, magnitude * (fabsl(by_key) + floor));
    }
}

/* The derivative of a pair's score by the score after softcap: 0 where a user's function gives -inf. */
static real derivative(const row_work *w, size_t j)
{
    const reference_problem *p = w->p;
    const reference_pair pair = {w->b, w->h, w->i, j};
    const double capped = w->capped[w->row * p->keys + j];

    if (!p->derive) {
        return 1;
    }
    return p->modify(p->context, capped, &pair) == -INFINITY ? 0 : rounded(w, p->derive(p->context, capped, &pair));
}

static void backward_row(row_work *w)
{
    const reference_problem *p = w->p;
    const size_t v = (w->b * p->kv_heads + w->g) * p->keys * p->d_v;
    const real factor = rounded(w, 1 / (1 - (real)p->dropout));

    make_products(w);
    for (size_t j = 0; j < p->keys; j++) {
        const size_t at = w->row * p->keys + j;
        if (!attended(w, j)) {
            continue;
        }
        const real weight = w->weights[at];
        const real ds = rounded(w, weight * rounded(w, w->product[j] - w->delta));
        const real magnitude = weight * (w->product_magnitude[j] + w->delta_magnitude);
        const real share = p->softcap > 0 ? w->capped[at] / p->softcap : 0;
        const real slope = rounded(w, 1 - rounded(w, share * share)), scale = rounded(w, p->scale);
        const real by_capped = derivative(w, j),
                   g = rounded(w, stored(w, rounded(w, rounded(w, ds * by_capped) * slope)));
        const bool kept = !p->kept || p->kept[at];
        add(w, BY_PAIR, at, ds, magnitude);
        if (w->problem->distance) {
            add(w, BY_SLOPE, w->b * p->heads + w->h, -ds * w->problem->distance[at],
                magnitude * w->problem->distance[at]);
        }
        add_operands(w, j, rounded(w, scale * g), magnitude * fabsl(scale * by_capped));
        for (size_t c = 0; c < p->d_v && kept; c++) {
            const real term =
                rounded(w, stored(w, weight) * (p->kept ? factor : 1)) * w->problem->d_output[w->row * p->d_v + c];
            add(w, BY_VALUE, v + j * p->d_v + c, term, fabsl(term));
        }
    }
    if (p->sinks && w->lse[w->row] != -INFINITY) {
        const real sink = expl((real)p->sinks[w->h] - w->lse[w->row]);
        add(w, BY_SINK, w->h, -sink * w->delta, sink * (1 + fabs(w->lse[w->row])) * w->delta_magnitude);
    }
}

/* The weights of a row by its given log-sum-exp. */
static void weigh_by_lse(const row_work *w, const double *scores, double *weights)
{
    const double lse = w->problem->lse[w->row];
    for (size_t j = 0; j < w->p->keys; j++) {
        const size_t at = w->row * w->p->keys + j;
        weights[at] = attended(w, j) && lse != -INFINITY ? (double)rounded(w, expl(rounded(w, scores[at] - lse))) : 0;
    }
}

void reference_backward(const backward_problem *problem, bool narrow, const backward_result *result)
{
    const reference_problem *p = problem->forward;
    reference_problem forward = *p;
    const size_t rows = p->batch * p->heads * p->queries, pairs = rows * p->keys;
    double *weights = zeros(pairs), *unused = zeros(pairs), *capped = zeros(pairs), *lse = zeros(rows);
    double *scores = zeros(pairs);
    row_work w = {.problem = problem,
                  .p = p,
                  .result = result,
                  .narrow = narrow,
                  .weights = weights,
                  .capped = capped,
                  .lse = lse,
                  .product = calloc(p->keys + 1, sizeof(real)),
                  .product_magnitude = calloc(p->keys + 1, sizeof(real))};

    assert_true(w.product && w.product_magnitude);
    forward.weights = CLATTN_DTYPE_NONE;
    forward.kept = NULL;
    forward.dropout = 0;
    reference_attention(
        &forward, narrow,
        &(reference_result){
            .weights = weights, .weights_magnitude = unused, .capped = capped, .biased = scores, .lse = lse});
    for (w.b = 0; w.b < p->batch; w.b++) {
        for (w.h = 0; w.h < p->heads; w.h++) {
            for (w.i = 0; w.i < problem->queries[w.b]; w.i++) {
                w.g = w.h / (p->heads / p->kv_heads);
                w.row = (w.b * p->heads + w.h) * p->queries + w.i;
                if (narrow && problem->lse) {
                    weigh_by_lse(&w, scores, weights);
                }
                backward_row(&w);
            }
        }
    }
    free(weights);
    free(unused);
    free(capped);
    free(scores);
    free(lse);
    free(w.product);
    free(w.product_magnitude);
}
