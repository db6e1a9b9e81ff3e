#include "tool/attention/array_order.h"

#include <stdio.h>
#include <string.h>

bool order_valid(const char *order, bool fused)
{
    size_t seen[128] = {0}, length = strlen(order);
    if (length < 2 || length > CLATTN_MAX_RANK)
        return false;
    for (const char *c = order; *c != '\0'; c++)
        if (strchr(fused ? "bhsde3" : "bhsde", *c) == NULL || seen[(unsigned char)*c]++ > 0)
            return false;
    bool split = seen['d'] == 1 && seen['e'] == 0, joined = seen['e'] == 1 && seen['d'] == 0 && seen['h'] == 0;
    return seen['s'] == 1 && (split || joined) && (!fused || seen['3'] == 1 || joined);
}

int order_find(const char *order, char letter)
{
    const char *found = strchr(order, letter);
    return found != NULL ? (int)(found - order) : -1;
}

/* "(batch, heads, length, size)" */
static void spell(const char *order, char *text, size_t bytes)
{
    static const char *const words[] = {"batch", "heads", "length", "size", "heads * size", "3"};
    size_t used = (size_t)snprintf(text, bytes, "(");
    for (const char *c = order; *c != '\0' && used < bytes; c++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", c == order ? "" : ", ",
                                 words[order_find("bhsde3", *c)]);
    if (used < bytes)
        snprintf(text + used, bytes - used, ")");
}

static int check_shape(const host_array *array, const char *order, const order_part *part)
{
    char expected[96];
    int third = order_find(order, '3'), joined = order_find(order, 'e');
    spell(order, expected, sizeof expected);
    int status = host_expect_rank(array, (int32_t)strlen(order), expected);
    if (status != TOOL_DONE)
        return status;
    if (third >= 0 && array->tensor.extent[third] != 3)
        return complain(TOOL_BAD_INPUT, "%s: shape %s, dimension %d is %zu, expected 3: queries, keys and values",
                        array->name, shape_of(&array->tensor).text, third, array->tensor.extent[third]);
    if (joined >= 0 && array->tensor.extent[joined] % part->all != 0)
        return complain(TOOL_BAD_INPUT, "%s: shape %s, dimension %d is %zu, expected a multiple of the %zu heads",
                        array->name, shape_of(&array->tensor).text, joined, array->tensor.extent[joined], part->all);
    return TOOL_DONE;
}

int order_view(const host_array *array, const char *order, const order_part *part, clattn_layout *view, int64_t *offset)
{
    int status = check_shape(array, order, part);
    if (status != TOOL_DONE)
        return status;
    uint64_t stride = 1, first = 0; /* wrap on overflow: the library then finds extents that no memory holds */
    *view = (clattn_layout){.dtype = array->tensor.dtype, .rank = 4, .extent = {1, 1, 1, 1}};
    for (int dimension = (int)strlen(order) - 1; dimension >= 0; dimension--) {
        size_t extent = array->tensor.extent[dimension];
        int place = order_find("bhsd", order[dimension]);
        if (place >= 0) {
            view->extent[place] = extent;
            view->stride[place] = (int64_t)stride;
        } else if (order[dimension] == '3') {
            first += part->third * stride;
        } else {
            size_t size = extent / part->all;
            view->extent[1] = part->heads;
            view->extent[3] = size;
            view->stride[1] = (int64_t)(stride * size);
            view->stride[3] = (int64_t)stride;
            first += part->first * size * stride;
        }
        stride *= extent;
    }
    *offset = (int64_t)first;
    return TOOL_DONE;
}

int32_t order_extents(const char *order, size_t batch, size_t heads, size_t length, size_t size,
                      size_t extent[CLATTN_MAX_RANK])
{
    const size_t extents[] = {batch, heads, length, size, heads * size};
    int32_t rank = 0;
    for (const char *c = order; *c != '\0'; c++)
        if (*c != '3')
            extent[rank++] = extents[order_find("bhsde", *c)];
    return rank;
}
