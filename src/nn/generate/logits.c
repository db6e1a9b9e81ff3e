/* Choosing among logits, on the host and in double precision. */
#include <math.h>
#include <stdlib.h>

#include "nn/generate/generate.h"

size_t logits_largest(const float *logits, size_t count)
{
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < count; i++)
        if (logits[i] > -INFINITY && (best == SIZE_MAX || logits[i] > logits[best]))
            best = i;
    return best;
}

double logits_log_sum(const float *logits, size_t count, double temperature)
{
    const size_t largest = logits_largest(logits, count);
    double sum = 0;
    if (largest == SIZE_MAX)
        return -INFINITY;
    for (size_t i = 0; i < count; i++)
        if (logits[i] > -INFINITY)
            sum += exp(((double)logits[i] - logits[largest]) / temperature);
    return logits[largest] / temperature + log(sum);
}

/* ---- sampling ---- */

/* Sifts order[i] down in a heap whose top is the first largest logit. */
static bool before(const float *logits, size_t a, size_t b)
{
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
}

static void sift(const float *logits, size_t *order, size_t i, size_t count)
{
    for (;;) {
        size_t best = i;
        for (size_t child = 2 * i + 1; child <= 2 * i + 2 && child < count; child++)
            if (before(logits, order[child], order[best]))
                best = child;
        if (best == i)
            return;
        const size_t swapped = order[i];
        order[i] = order[best];
        order[best] = swapped;
        i = best;
    }
}

/* Takes the top off the heap, and puts it after the heap's end. */
static double take(const float *logits, size_t *order, size_t size, double top, double temperature)
{
    const size_t token = order[0];
    order[0] = order[size - 1];
    order[size - 1] = token;
    sift(logits, order, 0, size - 1);
    return exp((logits[token] - top) / temperature);
}

size_t logits_sample(const float *logits, size_t count, double temperature, size_t top_k, double top_p, double number,
                     size_t *order)
{
    size_t left = 0, taken = 0, kept = 0, last = SIZE_MAX;
    for (size_t i = 0; i < count; i++)
        if (logits[i] > -INFINITY)
            order[left++] = i;
    for (size_t i = left / 2; i-- > 0;)
        sift(logits, order, i, left);
    if (!left)
        return SIZE_MAX;
    const double top = logits[order[0]];
    const size_t most = top_k && top_k < left ? top_k : left;
    double all = 0, mass = 0;
    /* The logits come off the heap from the most probable one on, and stay in order after its end: first those that top_k
     * leaves, whose sum top_p is a share of, then as many as that share keeps, of which the number selects one. */
    if (most < left)
        for (; taken < most; taken++)
            all += take(logits, order, left - taken, top, temperature);
    else
        all = exp(logits_log_sum(logits, count, temperature) - top / temperature);
    for (; kept < most && (!kept || mass < top_p * all); kept++) {
        if (kept == taken)
            mass += take(logits, order, left - taken++, top, temperature);
        else
            mass += exp((logits[order[left - 1 - kept]] - top) / temperature);
    }
    double reached = 0;
    for (size_t i = 0; i < kept; i++) {
        last = order[left - 1 - i];
        reached += exp((logits[last] - top) / temperature);
        if (reached > number * mass)
            break;
    }
    return last;
}
