/* Multi-head attention in double precision from end to end (rounding between the stages would hide errors of
 * the size that is looked for), and beside it the same in plain float32.
 *
 * Scores are made of rounded projections here, and an error of one epsilon in a term of a score is multiplied
 * by the size of the terms before it reaches a probability.  M therefore counts a probability p as p (1 +
 * max_j |scale| sum_d |q_d k_jd|): the condition of softmax(q K). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "tool/cli/progress.h"
#include "ref/attention.h"
#include "tool/run/verify.h"

/* One projection, twice: y (rows, out) = x (rows, in) wᵀ + bias. */
typedef struct projection {
    double *exact;
    float *plain;
} projection;

typedef struct stages {
    size_t batch, queries, keys, heads, size, inner, d_model, d_context;
    const float *x, *context;
    const float *w_q, *w_k, *w_v, *w_o, *b_q, *b_k, *b_v, *b_o;
    projection q, k, v;       /* (batch, length, inner) */
    projection joined;        /* (queries of one item, inner): the heads' outputs side by side */
    double *joined_magnitude; /* likewise, the M of each */
    projection weights;       /* (keys): one row */
    projection mean;          /* (queries of one item, keys): the mean over heads */
    int64_t mask_stride[4], mask_keys, position;
    ref_mask_kind mask_kind;
    float scale;
} stages;

static bool make_scratch(projection *scratch, size_t rows, size_t columns)
{
    size_t count;
    if (!size_mul(rows, columns, &count))
        return false;
    scratch->exact = calloc(count + 1, sizeof *scratch->exact);
    scratch->plain = calloc(count + 1, sizeof *scratch->plain);
    return scratch->exact != NULL && scratch->plain != NULL;
}

static void free_scratch(projection *scratch)
{
    free(scratch->exact);
    free(scratch->plain);
}

static void project(const float *x, size_t rows, size_t in, const float *w, const float *bias, size_t out,
                    projection *y)
{
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < out; j++) {
            double sum = 0.0;
            float naive = 0.0f;
            for (size_t c = 0; c < in; c++) {
                sum += (double)x[i * in + c] * w[j * in + c];
                naive += x[i * in + c] * w[j * in + c];
            }
            y->exact[i * out + j] = bias != NULL ? sum + bias[j] : sum;
            y->plain[i * out + j] = bias != NULL ? naive + bias[j] : naive;
        }
    }
}

/* Whether query i attends key j, and what a float mask adds. */
static bool attends(const stages *s, const mha_request *request, size_t b, size_t h, size_t i, size_t j, float *added)
{
    *added = 0.0f;
    if (request->causal && (int64_t)j > (int64_t)i + s->position)
        return false;
    if (s->mask_kind == REF_MASK_NONE)
        return true;
    if ((int64_t)j >= s->mask_keys)
        return false;
    int64_t at = (int64_t)b * s->mask_stride[0] + (int64_t)h * s->mask_stride[1] + (int64_t)i * s->mask_stride[2] +
                 (int64_t)j * s->mask_stride[3];
    if (s->mask_kind == REF_MASK_BOOL)
        return ((const uint8_t *)request->mask.tensor.data)[at] != 0;
    *added = ((const float *)request->mask.tensor.data)[at];
    return *added != -INFINITY;
}

/* Probabilities of query i of (b, h) over the keys, into s->weights; returns their condition. */
static double weigh_row(const stages *s, const mha_request *request, size_t b, size_t h, size_t i)
{
    const size_t query = (b * s->queries + i) * s->inner + h * s->size;
    double *p = s->weights.exact, top = -INFINITY, sum = 0.0, largest = 0.0;
    float *naive = s->weights.plain, naive_top = -INFINITY, naive_sum = 0.0f, added;

    for (size_t j = 0; j < s->keys; j++) {
        double score = 0.0, terms = 0.0;
        float plain = 0.0f;
        const size_t key = (b * s->keys + j) * s->inner + h * s->size;
        if (!attends(s, request, b, h, i, j, &added))
            continue;
        for (size_t d = 0; d < s->size; d++) {
            double term = s->q.exact[query + d] * s->k.exact[key + d];
            score += term;
            terms += fabs(term);
            plain += s->q.plain[query + d] * s->k.plain[key + d];
        }
        largest = fmax(largest, terms * fabs((double)s->scale));
        p[j] = score * s->scale + added;
        naive[j] = plain * s->scale + added;
        top = p[j] > top ? p[j] : top;
        naive_top = naive[j] > naive_top ? naive[j] : naive_top;
    }
    for (size_t j = 0; j < s->keys; j++) {
        bool attended = attends(s, request, b, h, i, j, &added);
        p[j] = attended ? exp(p[j] - top) : 0.0;
        naive[j] = attended ? expf(naive[j] - naive_top) : 0.0f;
        sum += p[j];
        naive_sum += naive[j];
    }
    for (size_t j = 0; j < s->keys; j++) {
        /* If nothing is attended the sum is 0; a NaN makes the whole row NaN. */
        p[j] = sum == 0.0 ? 0.0 : p[j] / sum;
        naive[j] = naive_sum == 0.0f ? 0.0f : naive[j] / naive_sum;
    }
    return 1.0 + largest;
}

/* Head h's output for query i of item b, into s->joined. */
static void attend_row(const stages *s, const mha_request *request, size_t b, size_t h, size_t i, double condition)
{
    float added;
    for (size_t d = 0; d < s->size; d++) {
        double sum = 0.0, magnitude = 0.0;
        float naive = 0.0f;
        for (size_t j = 0; j < s->keys; j++) {
            const size_t value = (b * s->keys + j) * s->inner + h * s->size + d;
            if (!attends(s, request, b, h, i, j, &added))
                continue;
            double term = s->weights.exact[j] * s->v.exact[value];
            sum += term;
            magnitude += fabs(term);
            naive += s->weights.plain[j] * s->v.plain[value];
        }
        s->joined.exact[i * s->inner + h * s->size + d] = sum;
        s->joined.plain[i * s->inner + h * s->size + d] = naive;
        s->joined_magnitude[i * s->inner + h * s->size + d] = magnitude * condition;
    }
}

static void compare_weights(const stages *s, const mha_request *request, const host_array *weights, size_t b, size_t h,
                            size_t i, double condition, tool_verdict *verdict)
{
    const size_t row =
        request->weights == CLATTN_WEIGHTS_OUTPUT_AVERAGE ? b * s->queries + i : (b * s->heads + h) * s->queries + i;
    const float *found = weights->tensor.data;
    for (size_t j = 0; j < s->keys; j++) {
        double p = s->weights.exact[j];
        float naive = s->weights.plain[j];
        if (request->weights == CLATTN_WEIGHTS_OUTPUT_AVERAGE) {
            p = s->mean.exact[i * s->keys + j] += p / (double)s->heads;
            naive = s->mean.plain[i * s->keys + j] += naive / (float)s->heads;
            if (h + 1 < s->heads)
                continue;
        }
        verdict_add(verdict, CLATTN_DTYPE_F32, (double)found[row * s->keys + j], p, (double)naive, p * condition);
    }
}

static void compare_output(const stages *s, const host_array *output, size_t b, size_t i, tool_verdict *verdict)
{
    const double *joined = s->joined.exact + i * s->inner, *sizes = s->joined_magnitude + i * s->inner;
    const float *plain = s->joined.plain + i * s->inner, *found = output->tensor.data;
    for (size_t j = 0; j < s->d_model; j++) {
        double bias = s->b_o != NULL ? (double)s->b_o[j] : 0.0, sum = bias, magnitude = fabs(bias);
        float naive = 0.0f;
        for (size_t c = 0; c < s->inner; c++) {
            double term = joined[c] * s->w_o[j * s->inner + c];
            sum += term;
            magnitude += sizes[c] * fabs((double)s->w_o[j * s->inner + c]);
            naive += plain[c] * s->w_o[j * s->inner + c];
        }
        if (s->b_o != NULL)
            naive += s->b_o[j];
        verdict_add(verdict, CLATTN_DTYPE_F32, (double)found[(b * s->queries + i) * s->d_model + j], sum, (double)naive,
                    magnitude);
    }
}

static stages stages_of(const mha_request *request)
{
    const size_t *x = request->x.tensor.extent;
    size_t inner = request->inner;
    stages s = {.batch = x[0],
                .queries = x[1],
                .keys = mha_key_length(request),
                .heads = request->heads,
                .size = inner / request->heads,
                .inner = inner,
                .d_model = x[2]};
    const float *bias = request->b_in.tensor.data, *packed = request->w_in.tensor.data;
    s.x = request->x.tensor.data;
    s.context = host_present(&request->context) ? request->context.tensor.data : s.x;
    s.d_context = host_present(&request->context) ? request->context.tensor.extent[2] : s.d_model;
    s.w_q = packed != NULL ? packed : request->w_q.tensor.data;
    s.w_k = packed != NULL ? packed + inner * s.d_model : request->w_k.tensor.data;
    s.w_v = packed != NULL ? packed + 2 * inner * s.d_model : request->w_v.tensor.data;
    s.w_o = request->w_o.tensor.data;
    s.b_q = bias;
    s.b_k = bias != NULL ? bias + inner : NULL;
    s.b_v = bias != NULL ? bias + 2 * inner : NULL;
    s.b_o = request->b_o.tensor.data;
    s.scale = request->scale.given ? request->scale.value : (float)(1.0 / sqrt((double)s.size));
    s.position = request->align == CLATTN_ALIGNMENT_BOTTOM_RIGHT ? (int64_t)s.keys - (int64_t)s.queries : 0;
    s.mask_kind =
        mask_walk(&request->mask, 4, (size_t[]){s.batch, s.heads, s.queries, s.keys}, s.mask_stride, &s.mask_keys);
    return s;
}

int verify_mha(const mha_request *request, const host_array results[2], tool_verdict verdicts[2])
{
    stages s = stages_of(request);
    bool weighed = host_present(&results[1]);
    int status = TOOL_DONE;
    if (!make_scratch(&s.q, s.batch * s.queries, s.inner) || !make_scratch(&s.k, s.batch * s.keys, s.inner) ||
        !make_scratch(&s.v, s.batch * s.keys, s.inner) || !make_scratch(&s.joined, s.queries, s.inner) ||
        (s.joined_magnitude = calloc(s.queries * s.inner + 1, sizeof *s.joined_magnitude)) == NULL ||
        !make_scratch(&s.weights, 1, s.keys) || !make_scratch(&s.mean, weighed ? s.queries : 0, s.keys)) {
        status = complain(TOOL_FAILED, "out of memory for the reference");
        goto done;
    }
    progress_begin("verifying");
    project(s.x, s.batch * s.queries, s.d_model, s.w_q, s.b_q, s.inner, &s.q);
    project(s.context, s.batch * s.keys, s.d_context, s.w_k, s.b_k, s.inner, &s.k);
    project(s.context, s.batch * s.keys, s.d_context, s.w_v, s.b_v, s.inner, &s.v);
    for (size_t b = 0; b < s.batch; b++) {
        if (weighed) {
            memset(s.mean.exact, 0, s.queries * s.keys * sizeof *s.mean.exact);
            memset(s.mean.plain, 0, s.queries * s.keys * sizeof *s.mean.plain);
        }
        for (size_t i = 0; i < s.queries; i++) {
            double worst = 0.0; /* the largest of the heads so far, which their mean gets */
            for (size_t h = 0; h < s.heads; h++) {
                double condition = weigh_row(&s, request, b, h, i);
                worst = fmax(worst, condition);
                if (weighed)
                    compare_weights(&s, request, &results[1], b, h, i,
                                    request->weights == CLATTN_WEIGHTS_OUTPUT_AVERAGE ? worst : condition,
                                    &verdicts[1]);
                attend_row(&s, request, b, h, i, condition);
            }
            compare_output(&s, &results[0], b, i, &verdicts[0]);
            progress_show((double)(b * s.queries + i + 1) / (double)(s.batch * s.queries));
        }
    }
    progress_end();
done:
    free_scratch(&s.q);
    free_scratch(&s.k);
    free_scratch(&s.v);
    free_scratch(&s.joined);
    free(s.joined_magnitude);
    free_scratch(&s.weights);
    free_scratch(&s.mean);
    return status;
}
