#include "support/group/split.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/harness.h"

clattn_parameter split_find(const training_world *w, const char *name)
{
    for (size_t i = 0;; i++) {
        size_t count;
        const clattn_parameter p = training_parameter(w, i, &count);
        if (!strcmp(p.name, name))
            return p;
    }
}

double split_apart(const clattn_parameter *part, const clattn_parameter *whole, double *mean)
{
    float *found = training_read_ordered(part, part->value), *expected = training_read_ordered(whole, whole->value);
    const size_t columns = part->layout.rank > 1 ? part->layout.extent[1] : 1,
                 stride = whole->layout.rank > 1 ? whole->layout.extent[1] : 1;
    double apart = 0, sum = 0;
    assert_int_equal(part->layout.rank, whole->layout.rank);
    for (int32_t i = 0; i < part->layout.rank; i++)
        assert_int_equal(part->whole[i], whole->layout.extent[i]);
    assert_int_equal(whole->first[0] + whole->first[1], 0);
    if (part->layout.rank == 3)
        assert_int_equal(columns, stride);
    const size_t inner = part->layout.rank == 3 ? part->layout.extent[2] : 1;
    for (size_t row = 0; row < part->layout.extent[0]; row++)
        for (size_t i = 0; i < columns * inner; i++) {
            const size_t at = (part->first[0] + row) * stride * inner + part->first[1] + i;
            const double one = fabs((double)found[row * columns * inner + i] - (double)expected[at]);
            apart = fmax(apart, one);
            sum += one;
        }
    *mean = sum / (double)(part->layout.extent[0] * columns * inner);
    free(found);
    free(expected);
    return apart;
}
