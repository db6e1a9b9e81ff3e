#include "tool/transcribe/rules.h"

#include <math.h>

static void forbid(float *logits, int32_t from, int32_t to)
{
    for (int32_t i = from; i < to; i++)
        logits[i] = -INFINITY;
}

static float largest(const float *logits, size_t count)
{
    float top = -INFINITY;
    for (size_t i = 0; i < count; i++)
        top = logits[i] > top ? logits[i] : top;
    return top;
}

/* The logarithm of the sum of exponentials; -INFINITY of nothing. */
static double log_sum(const float *logits, size_t count)
{
    const float top = largest(logits, count);
    double sum = 0.0;
    if (!isfinite(top))
        return -INFINITY;
    for (size_t i = 0; i < count; i++)
        sum += (double)expf(logits[i] - top);
    return (double)top + log(sum);
}

/* Applies the rules of timestamps that depend on earlier tokens; returns whether the sum of all timestamps'
 * probabilities has to be compared. */
static bool keep_order(const whisper_tokens *t, const int32_t *generated, size_t count, float *logits)
{
    const int32_t stamps = t->first_timestamp, end = (int32_t)t->count;
    int32_t last = generated[count - 1], before = count > 1 ? generated[count - 2] : last;
    if (last >= stamps && before >= stamps) {
        forbid(logits, stamps, end);
        return false;
    }
    if (last >= stamps) {
        forbid(logits, 0, t->end_of_text);
        forbid(logits, stamps, last);
        return true;
    }
    for (size_t i = count; i-- > 0;)
        if (generated[i] >= stamps) {
            forbid(logits, stamps, generated[i] + 1);
            break;
        }
    return true;
}

void whisper_rules_apply(const whisper_tokens *t, const int32_t *generated, size_t count, float *logits)
{
    const int32_t stamps = t->first_timestamp, end = (int32_t)t->count;
    for (size_t i = 0; i < t->suppressed_count; i++)
        logits[t->suppressed[i]] = -INFINITY;
    for (size_t i = 0; i < t->suppressed_first_count && count == 0; i++)
        logits[t->suppressed_first[i]] = -INFINITY;
    logits[t->no_timestamps] = -INFINITY;
    if (count == 0) {
        forbid(logits, 0, stamps);
        if (stamps + WHISPER_FIRST_MOST + 1 < end)
            forbid(logits, stamps + WHISPER_FIRST_MOST + 1, end);
    } else if (keep_order(t, generated, count, logits)) {
        /* A softmax would subtract the same number from both sides. */
        if (log_sum(logits + stamps, (size_t)(end - stamps)) > (double)largest(logits, (size_t)stamps))
            forbid(logits, 0, stamps);
    }
}

void whisper_log_softmax(float *logits, size_t count)
{
    double all = log_sum(logits, count);
    for (size_t i = 0; i < count && isfinite(all); i++)
        logits[i] = (float)((double)logits[i] - all);
}

double whisper_probability(const float *logits, size_t count, int32_t token)
{
    return exp((double)logits[token] - log_sum(logits, count));
}
