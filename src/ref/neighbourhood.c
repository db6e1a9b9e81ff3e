#include "ref/ref.h"

#include <math.h>

bool ref_neighbour(int p, int j, int length, int window, int dilation, bool clip)
{
    int t = p / dilation, u = j / dilation, members = (length - p % dilation + dilation - 1) / dilation;
    int first = t - window / 2;

    if (!clip)
        first = first < 0 ? 0 : first > members - window ? members - window : first;
    return p % dilation == j % dilation && u >= first && u < first + window;
}

/* The sum of x[d] * y[d], and of the sizes. */
static double product(const float *x, const float *y, int64_t size, double *magnitude)
{
    double sum = 0;
    *magnitude = 0;
    for (int64_t d = 0; d < size; d++) {
        sum += (double)x[d] * (double)y[d];
        *magnitude += fabs((double)x[d] * (double)y[d]);
    }
    return sum;
}

/* Fills a query's probabilities, the slopes dP, and what they are made of; returns the sum of p dP. */
static double find_row(const ref_neighbourhood_problem *p, int query, double *probability, double *slope,
                       double *score_size, double *slope_size)
{
    const int map = p->height * p->width, width = p->width;
    double largest = -INFINITY, sum = 0, mean = 0;
    for (int k = 0; k < map; k++) {
        const float bias = p->bias ? p->bias[k] : 0.0f;
        const bool attended =
            bias != -INFINITY &&
            ref_neighbour(query / width, k / width, p->height, p->window[0], p->dilation[0], p->clip) &&
            ref_neighbour(query % width, k % width, width, p->window[1], p->dilation[1], p->clip);
        probability[k] = -INFINITY;
        slope[k] = slope_size[k] = score_size[k] = 0;
        if (!attended)
            continue;
        probability[k] = p->scale * product(p->query + query * p->d_k, p->key + k * p->d_k, p->d_k, &score_size[k]);
        probability[k] += (double)bias;
        score_size[k] = fabs(p->scale) * score_size[k] + fabs((double)bias);
        slope[k] = product(p->output_gradient + query * p->d_v, p->value + k * p->d_v, p->d_v, &slope_size[k]);
        largest = fmax(largest, probability[k]);
    }
    for (int k = 0; k < map; k++)
        sum += probability[k] == -INFINITY ? 0 : exp(probability[k] - largest);
    for (int k = 0; k < map; k++) {
        probability[k] = probability[k] == -INFINITY ? 0 : exp(probability[k] - largest) / sum;
        mean += probability[k] * slope[k];
    }
    return mean;
}

void ref_neighbourhood_backward(const ref_neighbourhood_problem *p, double *row,
                                const ref_neighbourhood_gradients *exact, const ref_neighbourhood_gradients *magnitude)
{
    const int map = p->height * p->width;
    double *probability = row, *slope = row + map, *score_size = row + 2 * map, *slope_size = row + 3 * map;
    for (int q = 0; q < map; q++) {
        const double mean = find_row(p, q, probability, slope, score_size, slope_size);
        double mean_size = 0;
        for (int k = 0; k < map; k++)
            mean_size += probability[k] * slope_size[k];
        for (int k = 0; k < map; k++) {
            if (probability[k] == 0)
                continue;
            const double step = probability[k] * (slope[k] - mean), spread = 1 + score_size[k];
            const double size = probability[k] * (slope_size[k] + mean_size) * spread;
            exact->bias[k] += step;
            magnitude->bias[k] += size;
            for (int64_t d = 0; d < p->d_k; d++) {
                const double x = (double)p->query[q * p->d_k + d], y = (double)p->key[k * p->d_k + d];
                exact->query[q * p->d_k + d] += p->scale * step * y;
                exact->key[k * p->d_k + d] += p->scale * step * x;
                magnitude->query[q * p->d_k + d] += fabs(p->scale * y) * size;
                magnitude->key[k * p->d_k + d] += fabs(p->scale * x) * size;
            }
            for (int64_t d = 0; d < p->d_v; d++) {
                const double term = probability[k] * (double)p->output_gradient[q * p->d_v + d];
                exact->value[k * p->d_v + d] += term;
                magnitude->value[k * p->d_v + d] += fabs(term) * spread;
            }
        }
    }
}
