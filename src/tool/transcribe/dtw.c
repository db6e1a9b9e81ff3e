#include "tool/transcribe/dtw.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WIDTH_MOST 31
#define ALIGN_WIDTH 7

static void insert_sorted(float *sorted, size_t count, float value)
{
    size_t at = count;
    for (; at > 0 && sorted[at - 1] > value; at--)
        sorted[at] = sorted[at - 1];
    sorted[at] = value;
}

void median_filter(const float *from, size_t rows, size_t columns, size_t width, float *to)
{
    ptrdiff_t half = (ptrdiff_t)width / 2, last = (ptrdiff_t)columns - 1;
    if (last < half || width > WIDTH_MOST) {
        memcpy(to, from, rows * columns * sizeof *to);
        return;
    }
    for (size_t r = 0; r < rows; r++)
        for (ptrdiff_t c = 0; c <= last; c++) {
            float sorted[WIDTH_MOST];
            for (ptrdiff_t k = -half; k <= half; k++) {
                ptrdiff_t at = c + k < 0 ? -(c + k) : c + k;
                at = at > last ? 2 * last - at : at;
                insert_sorted(sorted, (size_t)(k + half), from[r * columns + (size_t)at]);
            }
            to[r * columns + (size_t)c] = sorted[half];
        }
}

/* The step by which a place was reached. */
enum { FROM_BOTH, FROM_ROW, FROM_COLUMN };

bool dtw_rows(const float *matrix, size_t rows, size_t columns, size_t *first)
{
    unsigned char *came = malloc(rows * columns);
    float *sum = malloc(2 * rows * sizeof *sum); /* the sums of this column and of the one before it */
    if (came == NULL || sum == NULL) {
        free(came);
        free(sum);
        return false;
    }
    float *now = sum, *before = sum + rows;
    for (size_t c = 0; c < columns; c++) {
        for (size_t r = 0; r < rows; r++) {
            float both = r > 0 && c > 0 ? before[r - 1] : -INFINITY, row = r > 0 ? now[r - 1] : -INFINITY;
            float column = c > 0 ? before[r] : -INFINITY, best = column;
            unsigned char way = FROM_COLUMN;
            if (r == 0 && c == 0) {
                best = 0.0f;
            } else if (both > row && both > column) {
                best = both;
                way = FROM_BOTH;
            } else if (row > both && row > column) {
                best = row;
                way = FROM_ROW;
            }
            now[r] = best + matrix[r * columns + c];
            came[r * columns + c] = way;
        }
        float *other = now;
        now = before;
        before = other;
    }
    size_t r = rows - 1, c = columns - 1;
    first[r] = c;
    while (r > 0 || c > 0) {
        unsigned char way = r == 0 ? FROM_COLUMN : c == 0 ? FROM_ROW : came[r * columns + c];
        r -= way != FROM_COLUMN;
        c -= way != FROM_ROW;
        first[r] = c;
    }
    free(came);
    free(sum);
    return true;
}

/* Normalises each row over its first `frames` frames, into (tokens, frames). */
static void trim(const float *from, size_t tokens, size_t stride, size_t frames, float *to)
{
    for (size_t t = 0; t < tokens; t++) {
        double sum = 0.0;
        for (size_t f = 0; f < frames; f++)
            sum += (double)from[t * stride + f];
        for (size_t f = 0; f < frames; f++)
            to[t * frames + f] = sum > 0.0 ? (float)((double)from[t * stride + f] / sum) : 1.0f / (float)frames;
    }
}

static void standardise(float *values, size_t tokens, size_t frames)
{
    for (size_t f = 0; f < frames; f++) {
        double sum = 0.0, squares = 0.0;
        for (size_t t = 0; t < tokens; t++)
            sum += (double)values[t * frames + f];
        double mean = sum / (double)tokens;
        for (size_t t = 0; t < tokens; t++) {
            double off = (double)values[t * frames + f] - mean;
            squares += off * off;
        }
        double scale = squares > 0.0 ? 1.0 / sqrt(squares / (double)tokens) : 0.0;
        for (size_t t = 0; t < tokens; t++)
            values[t * frames + f] = (float)(((double)values[t * frames + f] - mean) * scale);
    }
}

bool align_tokens(const float *probabilities, size_t heads, size_t tokens, size_t stride, size_t frames, size_t skip,
                  size_t rows, size_t *first)
{
    size_t plane = tokens * frames;
    float *memory = calloc(3 * plane, sizeof *memory);
    if (memory == NULL)
        return false;
    float *values = memory, *smooth = memory + plane, *mean = memory + 2 * plane;
    for (size_t h = 0; h < heads; h++) {
        trim(probabilities + h * tokens * stride, tokens, stride, frames, values);
        standardise(values, tokens, frames);
        median_filter(values, tokens, frames, ALIGN_WIDTH, smooth);
        for (size_t i = 0; i < plane; i++)
            mean[i] += smooth[i] / (float)heads;
    }
    bool done = dtw_rows(mean + skip * frames, rows, frames, first);
    free(memory);
    return done;
}
