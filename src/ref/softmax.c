#include "ref/ref.h"

#include <math.h>

typedef struct row_at {
    int64_t x, mask;
} row_at;

static row_at find_row(const ref_softmax_problem *p, int64_t row)
{
    row_at at = {0, 0};

    for (int n = 3; n >= 0; n--) {
        at.x += row % p->extent[n] * p->stride[n];
        at.mask += row % p->extent[n] * p->mask_stride[n];
        row /= p->extent[n];
    }
    return at;
}

static bool attends(const ref_softmax_problem *p, int64_t row_mask, int64_t column, float *added)
{
    int64_t at = row_mask + column * p->mask_col;

    *added = 0.0f;
    if (p->mask_kind == REF_MASK_NONE)
        return true;
    if (column >= p->mask_columns)
        return false;
    if (p->mask_kind == REF_MASK_BOOL)
        return ((const uint8_t *)p->mask)[at] != 0;
    *added = ((const float *)p->mask)[at];
    return *added != -INFINITY;
}

void ref_softmax_row(const ref_softmax_problem *p, int64_t row, double *y)
{
    row_at at = find_row(p, row);
    double top = -INFINITY, sum = 0.0;
    bool any = false;
    float added;

    for (int64_t c = 0; c < p->columns; c++) {
        if (!attends(p, at.mask, c, &added))
            continue;
        y[c] = (double)p->x[at.x + c * p->col] * p->scale + added;
        any = true;
        top = y[c] > top ? y[c] : top;
    }
    for (int64_t c = 0; c < p->columns; c++) {
        y[c] = attends(p, at.mask, c, &added) ? exp(y[c] - top) : 0.0;
        sum += y[c];
    }
    for (int64_t c = 0; c < p->columns; c++)
        y[c] = any ? y[c] / sum : 0.0;
}

void ref_softmax_naive_row(const ref_softmax_problem *p, int64_t row, float *y)
{
    row_at at = find_row(p, row);
    float top = -INFINITY, sum = 0.0f, added;
    bool any = false;

    for (int64_t c = 0; c < p->columns; c++) {
        if (!attends(p, at.mask, c, &added))
            continue;
        y[c] = p->x[at.x + c * p->col] * p->scale + added;
        any = true;
        top = y[c] > top ? y[c] : top;
    }
    for (int64_t c = 0; c < p->columns; c++) {
        y[c] = attends(p, at.mask, c, &added) ? expf(y[c] - top) : 0.0f;
        sum += y[c];
    }
    for (int64_t c = 0; c < p->columns; c++)
        y[c] = any ? y[c] / sum : 0.0f;
}

void ref_softmax_backward_row(const ref_softmax_problem *p, int64_t row, const float *dy, double *dx, double *magnitude)
{
    row_at at = find_row(p, row);
    const float *y = p->x + at.x;
    double sum = 0.0, absolute = 0.0;
    float added;

    for (int64_t c = 0; c < p->columns; c++) {
        if (!attends(p, at.mask, c, &added))
            continue;
        sum += (double)y[c * p->col] * dy[c];
        absolute += fabs((double)y[c * p->col] * dy[c]);
    }
    for (int64_t c = 0; c < p->columns; c++) {
        const bool attended = attends(p, at.mask, c, &added);
        const double factor = (double)p->scale * y[c * p->col];
        dx[c] = attended ? factor * (dy[c] - sum) : 0.0;
        magnitude[c] = attended ? fabs(factor) * (fabs((double)dy[c]) + absolute) : 0.0;
    }
}

void ref_softmax_backward_naive_row(const ref_softmax_problem *p, int64_t row, const float *dy, float *dx)
{
    row_at at = find_row(p, row);
    const float *y = p->x + at.x;
    float sum = 0.0f, added;

    for (int64_t c = 0; c < p->columns; c++)
        if (attends(p, at.mask, c, &added))
            sum += y[c * p->col] * dy[c];
    for (int64_t c = 0; c < p->columns; c++)
        dx[c] = attends(p, at.mask, c, &added) ? p->scale * y[c * p->col] * (dy[c] - sum) : 0.0f;
}
