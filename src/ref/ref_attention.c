#include "ref/ref.h"

#include <math.h>

/* Whether query i of (b, h) attends key j; *added is what a float mask adds to the score (0 without). */
static bool attends(const ref_attention_problem *p, int64_t b, int64_t h, int64_t i, int64_t j, float *added)
{
    int64_t at = b * p->mask_batch + h * p->mask_head + i * p->mask_row + j * p->mask_col;

    *added = 0.0f;
    if (p->causal && j > i + p->position)
        return false;
    if (p->mask_kind == REF_MASK_NONE)
        return true;
    if (j >= p->mask_keys)
        return false;
    if (p->mask_kind == REF_MASK_BOOL)
        return ((const uint8_t *)p->mask)[at] != 0;
    *added = ((const float *)p->mask)[at];
    return *added != -INFINITY;
}

static const float *row_of(const ref_view *v, int64_t b, int64_t h, int64_t i)
{
    return v->data + b * v->batch + h * v->head + i * v->row;
}

/* What is not attended is skipped, not multiplied by 0: K and V may hold anything there. */
void ref_attention_row(const ref_attention_problem *p, int64_t b, int64_t h, int64_t i, double *output,
                       double *magnitude, double *lse, double *weights)
{
    const float *query = row_of(&p->query, b, h, i);
    double top = -INFINITY, sum = 0.0;
    bool any = false, nan = false;
    float added;

    for (int64_t j = 0; j < p->key_length; j++) {
        double score = 0.0;
        if (!attends(p, b, h, i, j, &added))
            continue;
        const float *key = row_of(&p->key, b, h / p->group, j);
        for (int64_t d = 0; d < p->d_k; d++)
            score += (double)query[d * p->query.col] * key[d * p->key.col];
        score = score * p->scale + added;
        weights[j] = score;
        any = true;
        nan = nan || isnan(score);
        top = score > top ? score : top;
    }
    for (int64_t j = 0; j < p->key_length; j++) {
        if (!attends(p, b, h, i, j, &added)) {
            weights[j] = 0.0;
            continue;
        }
        weights[j] = nan ? (double)NAN : exp(weights[j] - top);
        sum += weights[j];
    }
    for (int64_t e = 0; e < p->d_v; e++) {
        output[e] = 0.0;
        if (magnitude)
            magnitude[e] = 0.0;
    }
    if (lse)
        *lse = any ? top + log(sum) : (double)-INFINITY;
    for (int64_t j = 0; j < p->key_length; j++) {
        if (!attends(p, b, h, i, j, &added)) {
            weights[j] = isnan(sum) ? (double)NAN : 0.0;
            continue;
        }
        const float *value = row_of(&p->value, b, h / p->group, j);
        weights[j] /= sum;
        for (int64_t e = 0; e < p->d_v; e++) {
            output[e] += weights[j] * value[e * p->value.col];
            if (magnitude)
                magnitude[e] += weights[j] * fabs((double)value[e * p->value.col]);
        }
    }
}

void ref_attention_naive_row(const ref_attention_problem *p, int64_t b, int64_t h, int64_t i, float *output,
                             float *lse, float *weights)
{
    const float *query = row_of(&p->query, b, h, i);
    float top = -INFINITY, sum = 0.0f, added;
    bool any = false;

    for (int64_t j = 0; j < p->key_length; j++) {
        float score = 0.0f;
        if (!attends(p, b, h, i, j, &added))
            continue;
        const float *key = row_of(&p->key, b, h / p->group, j);
        for (int64_t d = 0; d < p->d_k; d++)
            score += query[d * p->query.col] * key[d * p->key.col];
        weights[j] = score * p->scale + added;
        any = true;
        top = weights[j] > top ? weights[j] : top;
    }
    for (int64_t j = 0; j < p->key_length; j++) {
        if (!attends(p, b, h, i, j, &added)) {
            weights[j] = 0.0f;
            continue;
        }
        weights[j] = expf(weights[j] - top);
        sum += weights[j];
    }
    for (int64_t e = 0; e < p->d_v; e++)
        output[e] = 0.0f;
    if (lse)
        *lse = any ? top + logf(sum) : -INFINITY;
    for (int64_t j = 0; j < p->key_length; j++) {
        if (!attends(p, b, h, i, j, &added)) {
            weights[j] = isnan(sum) ? NAN : 0.0f;
            continue;
        }
        const float *value = row_of(&p->value, b, h / p->group, j);
        weights[j] /= sum;
        for (int64_t e = 0; e < p->d_v; e++)
            output[e] += weights[j] * value[e * p->value.col];
    }
}
