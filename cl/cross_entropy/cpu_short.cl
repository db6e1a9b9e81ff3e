/* Cross-entropy of short rows on CPU devices: formula, arrays and storage as cross_entropy/cross_entropy.h says.
 *
 * The lanes are LANES neighbouring rows, a vector a column, as in softmax/cpu_short.cl.
 *
 * Parameter       meaning                                          allowed
 * LANES           vector width                                     4, 8, 16
 * MOST, WINDOW    as lib/columns.h says: WINDOW is at most a.classes
 * Tested: rows of 1 to MOST classes x LANES 4, 16; X_TYPE x GRADIENT_TYPE F32, F16, BF16; any strides.
 *
 * NDRange: (work-groups of 1 item); an item owns a share of the vectors of neighbouring rows.  Local memory: none.
 * Barriers: none.  Private memory: (MOST + 2 * WINDOW) * LANES floats.  In place is safe: all rows of a vector are read
 * before one is written.
 *
 * A row has at most MOST terms, which are added up in two chains without compensation.
 *
 * Needs OpenCL C 1.2. */
#include "cross_entropy/cross_entropy.h"
#include "lib/columns.h"
#include "lib/gather.h"

DEFINE_LOAD_COLUMNS(load_x, X_TYPE)
#if GRADIENT
DEFINE_STORE_COLUMNS(store_gradient, GRADIENT_TYPE)
#endif

/* row_target of LANES rows. */
typedef struct targets {
    intv label; /* -1: the row does not count */
    floatv instead, weight;
} targets;

INLINE void read_targets(targets *targets, const row_place *row, int count, const cross_entropy_args *a)
{
    int label[LANES];
    float instead[LANES], weight[LANES];

    for (int l = 0; l < LANES; l++) {
        row_target target;
        read_target(&target, row, min(l, count - 1), a);
        label[l] = target.counts ? target.label : -1;
        instead[l] = target.instead;
        weight[l] = target.weight;
    }
    targets->label = VLOAD(0, label);
    targets->instead = VLOAD(0, instead);
    targets->weight = VLOAD(0, weight);
}

/* Writes loss and log-sum-exp of rows whose logits s are, which become terms; returns each row's sum of them. */
INLINE floatv sum_rows(floatv *s, const row_place *row, const targets *targets, int count, const cross_entropy_args *a)
{
    floatv row_max = (floatv)(-INFINITY), x_label = (floatv)(0.0f);
    floatv sums[2] = {(floatv)(0.0f), (floatv)(0.0f)}, spread = (floatv)(0.0f);

    for (int c = 0; c < a->classes; c++) {
        row_max = LARGER_OF(row_max, s[c]);
        x_label = select(x_label, s[c], targets->label == c);
    }
    for (int c = 0; c < a->classes; c++) {
        const floatv below = row_max - s[c];
        if (SMOOTHING)
            spread += below * a->share;
        s[c] = exp_ofv(-below);
        sums[c & 1] += s[c];
    }
    const floatv row_sum = sums[0] + sums[1], log_sum = log(row_sum);
    if (LSE)
        STORE_ROW(F32, row->lse, 0, a->lse.stride[3], count, row_max + log_sum);
    if (LOSS) {
        const floatv loss = log_sum + (a->kept * (row_max - x_label) + spread);
        STORE_ROW(F32, row->loss, 0, a->loss.stride[3], count, select(loss, targets->instead, targets->label < 0));
    }
    return row_sum;
}

ITEM_FUNCTION cross_entropy_rows(ARRAYS, cross_entropy_args a, args_long first, args_long end)
{
    args_long left = 0;
    row_place row = {0};
    for (args_long r = first; r < end;) {
        if (left == 0) { /* neighbours are a stride apart as far as the last dimension goes */
            find_row(&row, r, ARRAYS_GIVEN, &a);
            left = a.extent[3] - (r - r / a.extent[3] * a.extent[3]);
        }
        const int count = (int)min(min(end - r, left), (args_long)LANES);
        floatv s[MOST];
        targets targets;

        read_targets(&targets, &row, count, &a);
        load_x(s, row.x, a.x.stride[3], a.x.col, a.classes, count);
        const floatv inverse = 1.0f / sum_rows(s, &row, &targets, count, &a);
#if GRADIENT
        for (int c = 0; c < a.classes; c++) {
            const floatv found = select(GRADIENT_OF(s[c], inverse, targets.weight, &a),
                                        GRADIENT_OF_LABEL(s[c], inverse, targets.weight, &a), targets.label == c);
            s[c] = select(found, targets.instead, targets.label < 0);
        }
        store_gradient(s, row.gradient, a.gradient.stride[3], a.gradient.col, a.classes, count);
#endif
        r += count;
        left -= count;
        row.x += count * a.x.stride[3];
        row.labels += count * a.labels.stride[3];
        if (WEIGHTS)
            row.weights += count * a.weights.stride[3];
        if (LOSS)
            row.loss += count * a.loss.stride[3];
        if (LSE)
            row.lse += count * a.lse.stride[3];
        if (GRADIENT)
            row.gradient += count * a.gradient.stride[3];
    }
}

GROUP_SIZE(1, 1, 1)
kernel void cross_entropy_cpu_short(ARRAYS, cross_entropy_args a)
{
    if (a.rows == 0)
        return;

    args_long end;
    const args_long first = share_of_group(&a.part, (a.rows + LANES - 1) / LANES, &end) * LANES;
    cross_entropy_rows(ARRAYS_GIVEN, a, first, min(end * LANES, a.rows));
}
