/* Compares an attention's results with the reference of its whole description. */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "tool/cli/progress.h"
#include "tool/attention/snippets.h"
#include "tool/run/verify.h"

typedef struct comparison {
    const attention_request *request;
    const host_array *results;
    tool_verdict *verdicts;
    ref_attention_problem exact, plain;
    ref_attention_result row, naive;
    double *naive_scores; /* a row's */
    snippets functions;
} comparison;

/* Element of a result at (batch, head, row, column), by its layout. */
static double result_at(const comparison *c, attention_result result, const int64_t index[4])
{
    const clattn_layout *layout = attention_result_layout((clattn_attention_desc *)&c->request->desc, result);
    int64_t at = 0;
    for (int32_t d = 0; d < layout->rank; d++)
        at += index[d] * layout->stride[d];
    return ref_element(c->results[result].tensor.data, layout->dtype, at);
}

/* Whether sums of weights times values may overflow although the result is finite: rule 6 of docs/numerics.md. */
static bool may_overflow(const comparison *c, int64_t e)
{
    double limit = c->request->desc.value.dtype == CLATTN_DTYPE_F64 ? DBL_MAX : (double)FLT_MAX;
    return c->row.largest[e] > limit / (double)c->request->args.key_length;
}

/* `b` is 0 if items are packed, and `at` is then the row among those of all items. */
static void compare_row(const comparison *c, int64_t b, int64_t h, int64_t at)
{
    const ref_attention_result *row = &c->row, *naive = &c->naive;
    clattn_dtype dtype = c->request->desc.output.dtype;
    for (int64_t e = 0; e < (int64_t)c->request->sizes.d_v; e++) {
        double found = result_at(c, RESULT_OUTPUT, (int64_t[]){b, h, at, e});
        if (row->attends && !isfinite(found) && may_overflow(c, e))
            continue;
        if (row->attends)
            verdict_add(&c->verdicts[RESULT_OUTPUT], dtype, found, row->output[e], naive->output[e], row->magnitude[e]);
        else
            verdict_add_zero(&c->verdicts[RESULT_OUTPUT], found);
    }
    const int64_t index[4] = {b, h, at, 0};
    if (c->request->wants[RESULT_LSE])
        verdict_add(&c->verdicts[RESULT_LSE], CLATTN_DTYPE_F32, result_at(c, RESULT_LSE, index), row->lse, naive->lse,
                    1.0 + fabs(row->lse));
    if (c->request->wants[RESULT_ENTROPY])
        verdict_add(&c->verdicts[RESULT_ENTROPY], CLATTN_DTYPE_F32, result_at(c, RESULT_ENTROPY, index), row->entropy,
                    naive->entropy, 1.0 + fabs(row->lse));
}

/* Packed items have no scores. */
static void compare_scores(const comparison *c, int64_t b, int64_t h, int64_t i)
{
    const ref_attention_item item = ref_attention_item_of(&c->exact, b);
    const clattn_host_tensor *scores = &c->results[RESULT_SCORES].tensor;
    int32_t mode = c->request->desc.outputs.scores_mode;
    int64_t keys = (int64_t)scores->extent[3];
    const float *found =
        (const float *)scores->data + ((b * (int64_t)scores->extent[1] + h) * (int64_t)scores->extent[2] + i) * keys;
    for (int64_t j = 0; j < keys; j++) {
        double exact, plain, magnitude;
        if (mode == CLATTN_SCORES_MODE_PROBABILITIES) {
            exact = j < item.keys ? c->row.probabilities[j] : 0.0;
            plain = j < item.keys ? c->naive.probabilities[j] : 0.0;
            magnitude = exact * (1.0 + fabs(c->row.lse));
        } else {
            exact = ref_attention_score(&c->exact, mode, b, h, i, j);
            plain = c->naive_scores[j];
            magnitude = 1.0 + fabs(exact);
        }
        verdict_add(&c->verdicts[RESULT_SCORES], CLATTN_DTYPE_F32, found[j], exact, plain, magnitude);
    }
}

/* Computes a row of the reference, twice if the user's function must have all of its scores first. */
static void compute_row(comparison *c, const ref_attention_problem *reference, int64_t b, int64_t h, int64_t i,
                        ref_attention_result *row)
{
    if (snippets_present(&c->functions)) {
        const ref_attention_item item = ref_attention_item_of(reference, b);
        snippets_collect(&c->functions, &item, b, h, i);
        ref_attention_row(reference, b, h, i, row);
        snippets_apply(&c->functions, &item, b, h, i);
    }
    ref_attention_row(reference, b, h, i, row);
}

static void compare_one(comparison *c, int64_t b, int64_t h, int64_t i)
{
    const ref_attention_item item = ref_attention_item_of(&c->exact, b);
    bool packed = c->exact.data.query_starts != NULL;
    compute_row(c, &c->plain, b, h, i, &c->naive);
    /* Compared before the next row, while the user's function still returns what it made of the naive scores. */
    for (int64_t j = 0; c->request->wants[RESULT_SCORES] && j < (int64_t)c->request->args.key_length; j++)
        c->naive_scores[j] = ref_attention_score(&c->plain, c->request->desc.outputs.scores_mode, b, h, i, j);
    compute_row(c, &c->exact, b, h, i, &c->row);
    compare_row(c, packed ? 0 : b, h, packed ? item.query_row + i : i);
    if (c->request->wants[RESULT_SCORES])
        compare_scores(c, b, h, i);
}

static void compare_all(comparison *c)
{
    const attention_request *request = c->request;
    int64_t heads = (int64_t)request->sizes.heads, rows = (int64_t)request->args.query_length;
    int64_t total = (int64_t)request->args.batch * heads * rows;
    for (int64_t done = 0; done < total; done++) {
        int64_t i = done % rows, h = done / rows % heads, b = done / rows / heads;
        bool packed = c->exact.data.query_starts != NULL;
        if ((!packed || i < ref_attention_item_of(&c->exact, b).queries) && c->functions.status == CLATTN_SUCCESS)
            compare_one(c, b, h, i);
        progress_show((double)(done + 1) / (double)total);
    }
}

int verify_attention(const attention_request *request, const tool_job *job, const host_array results[RESULT_COUNT],
                     tool_verdict verdicts[RESULT_COUNT])
{
    size_t d_v = request->sizes.d_v, keys = request->args.key_length;
    double *scratch = calloc(4 * d_v + 3 * keys, sizeof *scratch);
    comparison c = {.request = request, .results = results, .verdicts = verdicts};
    if (scratch == NULL)
        return complain(TOOL_FAILED, "out of memory for the reference's rows");
    c.exact = attention_reference(request);
    c.row = (ref_attention_result){.output = scratch, .magnitude = scratch + d_v, .probabilities = scratch + 2 * d_v};
    c.naive = (ref_attention_result){.output = scratch + 2 * d_v + keys, .probabilities = scratch + 3 * d_v + keys};
    c.naive_scores = scratch + 3 * d_v + 2 * keys;
    c.row.largest = scratch + 3 * d_v + 3 * keys;
    verdicts[RESULT_OUTPUT].mean = request->desc.scoring.softcap > 0 ? 3.0 : 0.0;
    progress_begin("verifying");
    clattn_status status = snippets_open(&c.functions, request, job);
    if (snippets_present(&c.functions))
        snippets_attach(&c.functions, &c.exact);
    c.plain = c.exact;
    c.plain.narrow = true;
    if (status == CLATTN_SUCCESS)
        compare_all(&c);
    status = c.functions.status;
    snippets_close(&c.functions);
    progress_end();
    free(scratch);
    return device_check(job->device, status, "verifying");
}
