#include "base/convert.h"
#include "base/size.h"
#include "base/try.h"
#include "ranks/ranks.h"

#define AT_ONCE 512    /* elements */
#define SLICE_FIRST 16 /* elements: slices begin at cache lines */

size_t ranks_slice(const struct ranks *ranks, size_t count)
{
    return round_up(divide_up(count, (size_t)ranks->group.ranks), SLICE_FIRST);
}

/* Adds the ranks' parts in the order of ranks, in float32; the sum takes the place of the first. */
static void add_parts(clattn_dtype dtype, void *parts, size_t slice, size_t ranks)
{
    float sum[AT_ONCE], more[AT_ONCE];
    for (size_t first = 0; first < slice; first += AT_ONCE) {
        const size_t count = size_min(AT_ONCE, slice - first);
        load_elements(dtype, parts, first, count, sum);
        for (size_t rank = 1; rank < ranks; rank++) {
            load_elements(dtype, parts, rank * slice + first, count, more);
            for (size_t i = 0; i < count; i++)
                sum[i] += more[i];
        }
        for (size_t i = 0; i < count; i++)
            store_element(dtype, parts, first + i, sum[i]);
    }
}

clattn_status ranks_sum(struct ranks *ranks, clattn_dtype dtype, void *data, void *parts, size_t slice)
{
    clattn_status status;
    const size_t bytes = slice * clattn_dtype_size(dtype);
    TRY(ranks_swap(ranks, data, false, parts, bytes));
    add_parts(dtype, parts, slice, (size_t)ranks->group.ranks);
    status = ranks_swap(ranks, parts, true, data, bytes);
fail:
    return status;
}
