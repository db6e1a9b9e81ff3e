#include "ops/common/dimensions.h"

#include <string.h>

#include "base/size.h"
#include "ops/common/arrays.h"

static uint64_t magnitude(const struct dimension *dimension)
{
    int64_t stride = dimension->stride[0];
    return stride < 0 ? -(uint64_t)stride : (uint64_t)stride;
}

int dimensions_insert(struct dimension *dimensions, int count, struct dimension added)
{
    int at = count;
    for (; at > 0 && magnitude(&dimensions[at - 1]) < magnitude(&added); at--)
        dimensions[at] = dimensions[at - 1];
    dimensions[at] = added;
    return count + 1;
}

/* Whether the inner dimension fills the steps of the outer one without a gap, in every array. */
static bool are_one(const struct dimension *outer, const struct dimension *inner)
{
    bool one = inner->extent <= LENGTH_LIMIT / outer->extent;
    for (int n = 0; n < DIMENSION_ARRAYS; n++) {
        int64_t span;
        one = one && int64_mul(inner->stride[n], (int64_t)inner->extent, &span) && span == outer->stride[n];
    }
    return one;
}

int dimensions_join(struct dimension *dimensions, int count)
{
    for (int i = count - 1; i > 0; i--) {
        struct dimension *outer = &dimensions[i - 1], *inner = &dimensions[i];
        if (!are_one(outer, inner))
            continue;
        inner->extent *= outer->extent;
        memmove(outer, inner, (size_t)(count - i) * sizeof *inner);
        count--;
    }
    return count;
}
