/* Arrays that grow. */
#ifndef CLATTN_BASE_GROW_H
#define CLATTN_BASE_GROW_H

#include <stdlib.h>

/* Makes room in an allocated array (or NULL), of *capacity elements of `bytes` bytes, for one more than `count`.  Returns
 * the array; NULL if memory runs out, and the old array is then unchanged. */
static inline void *array_grow(void *items, size_t *capacity, size_t count, size_t bytes)
{
    if (count < *capacity)
        return items;
    const size_t wanted = *capacity ? 2 * *capacity : 32;
    void *grown = realloc(items, wanted * bytes);
    if (grown)
        *capacity = wanted;
    return grown;
}

#endif
