#include "support/nn/judge.h"

#include <math.h>

#include "support/harness.h"
#include "support/storage.h"

static void add_error(struct nn_errors *e, double value, double reference)
{
    const double apart = isnan(value) ? INFINITY : fabs(value - reference);
    e->largest = fmax(e->largest, apart);
    e->sum += apart;
}

void nn_judge(nn_judgement *j, clattn_dtype dtype, double ours, double naive, double reference)
{
    add_error(&j->ours, ours, reference);
    add_error(&j->naive, naive, reference);
    j->rounding = fmax(j->rounding, storage_rounding(dtype, reference));
    j->count++;
}

/* The last term allows for the rounding of what is computed in float32. */
void nn_judgement_assert(const nn_judgement *j, const char *what)
{
    const double floats = 1e-5;
    if (!(j->ours.largest <= 2 * j->naive.largest + 2 * j->rounding + floats))
        fail_msg("%s: off by up to %.3g, naively by %.3g, rounding %.3g", what, j->ours.largest, j->naive.largest,
                 j->rounding);
    if (!(j->ours.sum <= 1.5 * j->naive.sum + (double)j->count * floats))
        fail_msg("%s: off by %.3g on average, naively by %.3g", what, j->ours.sum / (double)j->count,
                 j->naive.sum / (double)j->count);
    assert_true(j->count > 0);
    print_message("# %s: %.2g, naively %.2g\n", what, j->ours.largest, j->naive.largest);
}
