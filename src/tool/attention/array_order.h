/* In which order the dimensions of the queries', keys', values' and output's files lie: a text with one
 * letter each.
 *
 *   b  batch, h  heads, s  sequence (length), d  head size, once each and in any order; without b or h there
 * is one e  embedding, heads * size, instead of h and d; how many heads is then said apart 3  of a fused
 * array alone: its queries, keys and values; without it, e is (query heads + 2 key heads) * size */
#ifndef CLATTN_TOOL_ATTENTION_ARRAY_ORDER_H
#define CLATTN_TOOL_ATTENTION_ARRAY_ORDER_H

#include <clattn/attention.h>

#include "tool/run/host.h"

/* Whether the text is an order of dimensions, as described above. */
bool order_valid(const char *order, bool fused);

/* The dimension of a file that holds a letter, -1 if none. */
int order_find(const char *order, char letter);

/* A part of an array: heads [first, first + heads) of `all` if the order has e, and number `third` if it has 3. */
typedef struct order_part {
    size_t heads, first, all;
    size_t third;
} order_part;

/* The array's layout as (batch, heads, length, size), and its first element.  Complains about the array's
 * rank, about a dimension of 3 that is another, and about e that is no multiple of the heads. */
int order_view(const host_array *array, const char *order, const order_part *part, clattn_layout *view,
               int64_t *offset);

/* The extents of an array in this order (3 left out); returns its rank. */
int32_t order_extents(const char *order, size_t batch, size_t heads, size_t length, size_t size,
                      size_t extent[CLATTN_MAX_RANK]);

#endif
