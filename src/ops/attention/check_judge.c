#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/attention/check.h"
#include "ref/attention.h"
#include "ref/ref.h"

#define ROWS 12

/* A row by the reference, and by the naive computation in float. */
struct rows {
    ref_attention_problem reference, naive;
    ref_attention_result exact, plain;
    double *scratch;
};

ref_attention_data attention_check_data(const struct attention_check *check)
{
    const struct check_array *a = check->array;
    return (ref_attention_data){
        .query = a[CHECK_QUERY].host,
        .key = a[CHECK_KEY].host,
        .value = a[CHECK_VALUE].host,
        .mask = a[ATTENTION_MASK].host,
        .bias = a[ATTENTION_BIAS].host,
        .alibi = a[ATTENTION_ALIBI].host,
        .sinks = a[ATTENTION_SINKS].host,
        .vector = a[ATTENTION_VECTOR].host,
        .query_lengths = a[ATTENTION_QUERY_LENGTHS].host,
        .key_lengths = a[ATTENTION_KEY_LENGTHS].host,
        .positions = a[ATTENTION_POSITIONS].host,
        .query_starts = a[ATTENTION_QUERY_STARTS].host,
        .key_starts = a[ATTENTION_KEY_STARTS].host,
        .block_table = a[ATTENTION_BLOCK_TABLE].host,
        .key_scale = a[ATTENTION_KEY_SCALE].host,
        .value_scale = a[ATTENTION_VALUE_SCALE].host,
    };
}

static double unit_of(clattn_dtype dtype)
{
    return dtype == CLATTN_DTYPE_F64 ? DBL_EPSILON : storage_epsilon(dtype);
}

static double read_at(const struct attention_check *check, size_t slot, const clattn_layout *layout, int64_t b,
                      int64_t h, int64_t i, int64_t e)
{
    int64_t at = b * layout->stride[0] + h * layout->stride[1] + i * layout->stride[2] +
                 (layout->rank > 3 ? e * layout->stride[3] : 0);
    return ref_element(check->array[slot].host, layout->dtype, at);
}

/* Element `at` of what the partials, their log-sum-exps and the lent log-sum-exp are in the workspace. */
static const float *workspace_of(const struct attention_check *check, size_t at)
{
    return (const float *)check->array[CHECK_WORKSPACE].host + at;
}

static size_t row_count(const struct attention_check *check)
{
    return check->small.batch * check->small.heads * check->small.query_length;
}

/* The log-sum-exp that the probabilities are made from, where nobody else asked for it. */
static double lent_lse(const struct attention_check *check, const struct attention_plan *plan, int64_t b, int64_t h,
                       int64_t i)
{
    size_t parts = plan->splits > 1 ? plan->splits : 0;
    return *workspace_of(check,
                         row_count(check) * parts * (check->small.d_v + 1) + attention_check_row(check, b, h, i));
}

/* A merged row against the partials that it was made from. */
static clattn_status judge_merge(const struct attention_check *check, const struct attention_plan *plan,
                                 double *scratch, int64_t b, int64_t h, int64_t i)
{
    clattn_status status = CLATTN_SUCCESS;
    const struct attention_problem *small = &check->small;
    const clattn_attention_desc *desc = &small->desc;
    struct report *report = &plan->base.context->device.report;
    const char *kernel = plan->base.kernels[1].name;
    size_t rows = row_count(check), row = attention_check_row(check, b, h, i);
    double *exact = scratch, *magnitude = scratch + small->d_v, lse, value;
    ref_merge_problem reference = {
        .partials = (int64_t)plan->splits,
        .columns = (int64_t)small->d_v,
        .partial = workspace_of(check, row * small->d_v),
        .lse = workspace_of(check, rows * plan->splits * small->d_v + row),
        .part = (int64_t)(rows * small->d_v),
        .part_lse = (int64_t)rows,
        .sink = small->has[ATTENTION_SINKS]
                    ? (const float *)check->array[ATTENTION_SINKS].host + h * desc->scoring.sinks.stride[0]
                    : NULL,
    };
    ref_merge_row(&reference, exact, magnitude, &lse);
    for (int64_t e = 0; e < reference.columns; e++) {
        value = read_at(check, CHECK_OUTPUT, &desc->output, b, h, i, e);
        TRY(check_element(report, kernel, "output", (const int64_t[4]){b, h, i, e}, value, exact[e],
                          check_slack(exact[e], exact[e], magnitude[e], FLT_EPSILON, unit_of(desc->output.dtype))));
    }
    if (!small->has[ATTENTION_LSE] && !plan->lends_lse)
        return CLATTN_SUCCESS;
    value = plan->lends_lse ? lent_lse(check, plan, b, h, i)
                            : read_at(check, ATTENTION_LSE, &desc->outputs.lse, b, h, i, 0);
    status = check_element(report, kernel, "lse", (const int64_t[4]){b, h, i, 0}, value, lse,
                           check_slack(lse, lse, 1 + fabs(lse), FLT_EPSILON, FLT_EPSILON));
fail:
    return status;
}

/* Output, lse and entropy of a row, whose exact and naive values are there. */
static clattn_status judge_row(const struct attention_check *check, const struct rows *rows,
                               const struct attention_plan *plan, int64_t b, int64_t h, int64_t i)
{
    clattn_status status = CLATTN_SUCCESS;
    struct report *report = &plan->base.context->device.report;
    const char *kernel = plan->base.kernels[0].name;
    const clattn_attention_desc *desc = &check->small.desc;
    const ref_attention_item item = ref_attention_item_of(&rows->reference, b);
    const bool packed = check->small.packed_queries;
    int64_t at_b = packed ? 0 : b, at_i = i + item.query_row;
    double state_unit = check->small.is_double ? DBL_EPSILON : FLT_EPSILON;
    if (packed && i >= item.queries)
        return CLATTN_SUCCESS;
    for (int64_t e = 0; e < (int64_t)check->small.d_v; e++) {
        double value = read_at(check, CHECK_OUTPUT, &desc->output, at_b, h, at_i, e), exact = rows->exact.output[e];
        double slack = check_slack(exact, rows->plain.output[e], rows->exact.magnitude[e] + fabs(exact), state_unit,
                                   unit_of(desc->output.dtype)) +
                       plan->weight_unit * rows->exact.magnitude[e];
        TRY(check_element(report, kernel, "output", (const int64_t[4]){b, h, i, e}, value, exact, slack));
    }
    const struct {
        enum attention_array array;
        double exact, plain;
    } results[] = {{ATTENTION_LSE, rows->exact.lse, rows->plain.lse},
                   {ATTENTION_ENTROPY, rows->exact.entropy, rows->plain.entropy}};
    for (size_t n = 0; n < 2; n++) {
        bool lent = results[n].array == ATTENTION_LSE && plan->lends_lse;
        if (!check->small.has[results[n].array] && !lent)
            continue;
        double value =
            lent ? lent_lse(check, plan, b, h, i)
                 : read_at(check, results[n].array, attention_layout(desc, results[n].array), at_b, h, at_i, 0);
        double magnitude = 1 + fabs(results[n].exact) + fabs(rows->exact.lse);
        TRY(check_element(report, kernel, attention_arrays[results[n].array].name, (const int64_t[4]){b, h, i, 0},
                          value, results[n].exact,
                          check_slack(results[n].exact, results[n].plain, magnitude, FLT_EPSILON, FLT_EPSILON)));
    }
fail:
    return status;
}

static clattn_status judge_scores(const struct attention_check *check, const struct rows *rows, struct report *report,
                                  const char *kernel, int64_t b, int64_t h, int64_t i)
{
    clattn_status status = CLATTN_SUCCESS;
    const clattn_attention_desc *desc = &check->small.desc;
    const ref_attention_item item = ref_attention_item_of(&rows->reference, b);
    for (int64_t j = 0; check->small.has[ATTENTION_SCORES] && j < (int64_t)check->args.key_length; j++) {
        bool is_probability = desc->outputs.scores_mode == CLATTN_SCORES_MODE_PROBABILITIES;
        double value = read_at(check, ATTENTION_SCORES, &desc->outputs.scores, b, h, i, j), exact = 0, plain = 0;
        double magnitude = 1;
        if (!is_probability) {
            exact = ref_attention_score(&rows->reference, desc->outputs.scores_mode, b, h, i, j);
            plain = ref_attention_score(&rows->naive, desc->outputs.scores_mode, b, h, i, j);
            magnitude += fabs(exact);
        } else if (j < item.keys) {
            exact = rows->exact.probabilities[j];
            plain = rows->plain.probabilities[j];
            magnitude += fabs(rows->exact.lse);
        }
        TRY(check_element(report, kernel, "scores", (const int64_t[4]){b, h, i, j}, value, exact,
                          check_slack(exact, plain, magnitude, FLT_EPSILON, unit_of(desc->outputs.scores.dtype))));
    }
fail:
    return status;
}

clattn_status attention_check_judge(const struct attention_check *check, const struct attention_plan *plan,
                                    size_t *blamed)
{
    struct report *report = &plan->base.context->device.report;
    const struct attention_problem *small = &check->small;
    size_t all = row_count(check), step = divide_up(all, ROWS), last = plan->base.kernel_count - 1;
    struct rows rows = {.reference = {.desc = &small->desc, .args = &check->args, .data = attention_check_data(check)}};
    clattn_status status = CLATTN_SUCCESS;
    rows.naive = rows.reference;
    rows.naive.narrow = true;
    rows.scratch = calloc(3 * small->d_v + 2 * (size_t)check->args.key_length + 1, sizeof *rows.scratch);
    if (!rows.scratch)
        return report_error(report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a self-check");
    rows.exact.output = rows.scratch;
    rows.exact.magnitude = rows.scratch + small->d_v;
    rows.plain.output = rows.scratch + 2 * small->d_v;
    rows.exact.probabilities = rows.scratch + 3 * small->d_v;
    rows.plain.probabilities = rows.exact.probabilities + check->args.key_length;
    step += step % 2 == 0; /* so that odd and even rows, heads and items all have their turn */
    for (size_t row = 0; row < all && status == CLATTN_SUCCESS; row += step) {
        int64_t i = (int64_t)(row % small->query_length), rest = (int64_t)(row / small->query_length);
        int64_t h = rest % (int64_t)small->heads, b = rest / (int64_t)small->heads;
        ref_attention_row(&rows.reference, b, h, i, &rows.exact);
        ref_attention_row(&rows.naive, b, h, i, &rows.plain);
        status = judge_row(check, &rows, plan, b, h, i);
        if (status == CLATTN_ERROR_MISCOMPILED && plan->splits > 1)
            *blamed = judge_merge(check, plan, rows.scratch, b, h, i) != CLATTN_SUCCESS;
        if (status != CLATTN_SUCCESS)
            break;
        status = judge_scores(check, &rows, report, plan->base.kernels[last].name, b, h, i);
        if (status == CLATTN_ERROR_MISCOMPILED)
            *blamed = last;
    }
    free(rows.scratch);
    return status;
}
