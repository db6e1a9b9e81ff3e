#include "ops/common/check.h"

#include <float.h>

#include "base/try.h"
#include "ops/common/arrays.h"
#include "ref/attention.h"

double check_read(const struct check_array *array, int64_t at)
{
    return ref_element(array->host, array->place.layout->dtype, at);
}

const float *check_floats(const struct check_array *array, float *scratch)
{
    return ref_floats(array->host, array->place.layout->dtype, array->elements, scratch);
}

clattn_status check_row(const struct check *check, const struct check_array *array, const int64_t index[3],
                        const double *exact, const float *plain, const double *magnitude)
{
    clattn_status status = CLATTN_SUCCESS;
    const clattn_layout *layout = array->place.layout;
    const int last = layout->rank - 1;
    int64_t first = 0;
    for (int i = 0; i < last; i++)
        first += index[3 - last + i] * layout->stride[i];
    for (int64_t c = 0; c < (int64_t)layout->extent[last]; c++) {
        double value = check_read(array, first + c * layout->stride[last]);
        double slack = check_slack(exact[c], plain ? (double)plain[c] : exact[c], magnitude[c], FLT_EPSILON,
                                   storage_epsilon(layout->dtype));
        TRY(check_element(check->report, check->kernel, array->place.name,
                          (const int64_t[4]){index[0], index[1], index[2], c}, value, exact[c], slack));
    }
fail:
    return status;
}
