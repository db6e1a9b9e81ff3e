#include "ref/ref.h"

#include <math.h>

int64_t ref_cache_row(const ref_cache *cache, int64_t past, int64_t count, int64_t i)
{
    int64_t j = past + i, block = j / cache->capacity;

    if (past < 0 || i >= count)
        return -1;
    if (cache->table) {
        int64_t page = block < cache->blocks ? cache->table[block] : -1;
        return page < 0 || page >= cache->pages ? -1 : page * cache->capacity + j % cache->capacity;
    }
    if (cache->ring)
        return i < count - cache->capacity ? -1 : j % cache->capacity;
    return j < cache->capacity ? j : -1;
}

double ref_group_scale(const double *x, int64_t n, int levels)
{
    double top = 0.0;

    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i]))
            return NAN;
        top = fmax(top, fabs(x[i]));
    }
    return top / levels;
}
