/* The tests' own attention: every feature by its definition, one row at a time, sharing nothing with the library.
 *
 * The same code gives the reference and the naive computation.  Rounding the long double result of one addition,
 * product or quotient of floats to float gives exactly what float arithmetic does, so "narrow" only adds roundings; for
 * float64 it rounds to double, where long double is the wider type. */
#include <math.h>
#include <stdlib.h>

#include "support/harness.h"

typedef long double real;

/* One query on its way: the scores, then exponentials, then probabilities of its attended keys. */
typedef struct row_work {
    const reference_problem *p;
    const reference_result *result;
    bool narrow;
    size_t b, h, i, row;
    real *score;
    size_t *which; /* the keys that they belong to */
    size_t count;
    real maximum, sum; /* the sink's share included */
} row_work;

static real rounded(const row_work *w, real x)
{
    return !w->narrow ? x : w->p->wide ? (real)(double)x : (real)(float)x;
}

static real scaled_score(const row_work *w, const double *query, const double *key, real *magnitude)
{
    const reference_problem *p = w->p;
    const double *vector = p->vector ? p->vector + w->h * p->d_k : NULL;
    real scale = rounded(w, p->scale), sum = 0;

    *magnitude = 0;
    for (size_t d = 0; d < p->d_k; d++) {
        real q = query[d], k = rounded(w, key[d]);
        real term = vector ? rounded(w, vector[d] * rounded(w, tanhl(rounded(w, q + k)))) : rounded(w, q * k);
        sum = rounded(w, sum + term);
        *magnitude += fabsl(scale * term);
    }
    return rounded(w, scale * sum);
}

static real capped_score(const row_work *w, real s)
{
    real cap = w->p->softcap;
    return cap > 0 ? rounded(w, cap * rounded(w, tanhl(rounded(w, s / cap)))) : s;
}

static real biased_score(const row_work *w, real s, size_t j)
{
    const reference_problem *p = w->p;
    size_t at = w->row * p->keys + j;

    if (p->modify) {
        s = rounded(w, p->modify(p->context, (double)s, &(reference_pair){w->b, w->h, w->i, j}));
    }
    s = p->bias ? rounded(w, s + p->bias[at]) : s;
    s = p->alibi ? rounded(w, s - rounded(w, p->alibi[at])) : s;
    return p->addend ? rounded(w, s + p->addend[at]) : s;
}

static void keep(double *where, size_t at, real value)
{
    if (where) {
        where[at] = (double)value;
    }
}

/* The scores of a query, compacted to its attended keys. */
static void score_row(row_work *w)
{
    const reference_problem *p = w->p;
    const double *key = p->key + (w->b * p->kv_heads + w->h / (p->heads / p->kv_heads)) * p->keys * p->d_k;
    bool all = w->result->raw || w->result->capped || w->result->biased;

    w->count = 0;
    for (size_t j = 0; j < p->keys; j++) {
        size_t at = w->row * p->keys + j;
        bool attended = !(p->addend && p->addend[at] == -INFINITY) && !(p->bias && p->bias[at] == -INFINITY);
        real magnitude;

        if (!attended && !all) {
            continue;
        }
        real raw = scaled_score(w, p->query + w->row * p->d_k, key + j * p->d_k, &magnitude);
        real capped = capped_score(w, raw), biased = attended ? biased_score(w, capped, j) : -(real)INFINITY;

        keep(w->result->raw, at, raw);
        keep(w->result->capped, at, capped);
        keep(w->result->biased, at, biased);
        keep(w->result->scores_magnitude, at, magnitude);
        if (attended) {
            w->score[w->count] = biased;
            w->which[w->count++] = j;
        }
    }
}

/* Scores to exp(score − maximum); a NaN is met again in the sum. */
static void exponentiate_row(row_work *w)
{
    const double *sinks = w->p->sinks;
    real sink = sinks ? sinks[w->h] : -(real)INFINITY;

    w->maximum = sink;
    for (size_t n = 0; n < w->count; n++) {
        w->maximum = w->score[n] > w->maximum ? w->score[n] : w->maximum;
    }
    w->sum = sink != -INFINITY ? rounded(w, expl(rounded(w, sink - w->maximum))) : 0;
    for (size_t n = 0; n < w->count; n++) {
        w->score[n] = rounded(w, expl(rounded(w, w->score[n] - w->maximum)));
        w->sum = rounded(w, w->sum + w->score[n]);
    }
}

static void weigh_row(row_work *w)
{
    const reference_result *result = w->result;
    size_t first = w->row * w->p->keys;
    real entropy = 0;

    for (size_t j = 0; j < w->p->keys && result->weights; j++) {
        result->weights[first + j] = 0;
        result->weights_magnitude[first + j] = EXACT_ZERO;
    }
    for (size_t n = 0; n < w->count; n++) {
        real p = rounded(w, w->score[n] / w->sum);

        entropy = rounded(w, entropy - (p == 0 ? 0 : rounded(w, p * rounded(w, logl(p)))));
        w->score[n] = p;
        if (result->weights) {
            result->weights[first + w->which[n]] = (double)p;
            result->weights_magnitude[first + w->which[n]] = (double)p;
        }
    }
    keep(result->entropy, w->row, entropy);
}

static void drop_row(row_work *w)
{
    const reference_problem *p = w->p;
    real factor = rounded(w, 1 / (1 - (real)p->dropout));

    for (size_t n = 0; n < w->count && p->kept; n++) {
        bool kept = p->kept[w->row * p->keys + w->which[n]];
        w->score[n] = kept ? rounded(w, w->score[n] * factor) : 0;
    }
    for (size_t n = 0; n < w->count && w->narrow && p->weights; n++) {
        w->score[n] = storage_round(p->weights, (double)w->score[n]);
    }
}

static void output_row(const row_work *w)
{
    const reference_problem *p = w->p;
    const double *value = p->value + (w->b * p->kv_heads + w->h / (p->heads / p->kv_heads)) * p->keys * p->d_v;

    for (size_t d = 0; d < p->d_v; d++) {
        real output = isnan(w->sum) ? NAN : 0, magnitude = 0;

        for (size_t n = 0; n < w->count; n++) {
            real v = rounded(w, value[w->which[n] * p->d_v + d]);
            if (p->kept && w->score[n] == 0) {
                continue;
            }
            output = rounded(w, output + rounded(w, w->score[n] * v));
            magnitude += w->score[n] * fabsl(v);
        }
        keep(w->result->output, w->row * p->d_v + d, output);
        keep(w->result->magnitude, w->row * p->d_v + d, w->count ? magnitude : EXACT_ZERO);
    }
}

void reference_attention(const reference_problem *p, bool narrow, const reference_result *result)
{
    row_work w = {.p = p,
                  .result = result,
                  .narrow = narrow,
                  .score = malloc((p->keys + 1) * sizeof *w.score),
                  .which = malloc((p->keys + 1) * sizeof *w.which)};

    assert_true(w.score && w.which);
    for (w.b = 0; w.b < p->batch; w.b++) {
        for (w.h = 0; w.h < p->heads; w.h++) {
            for (w.i = 0; w.i < p->queries; w.i++) {
                w.row = (w.b * p->heads + w.h) * p->queries + w.i;
                score_row(&w);
                exponentiate_row(&w);
                keep(result->lse, w.row,
                     w.sum == 0 ? -(real)INFINITY : rounded(&w, w.maximum + rounded(&w, logl(w.sum))));
                weigh_row(&w);
                drop_row(&w);
                if (result->output) {
                    output_row(&w);
                }
            }
        }
    }
    free(w.score);
    free(w.which);
}
