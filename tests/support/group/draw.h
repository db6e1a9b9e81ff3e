/* Descriptions of a group's attention that are drawn, and how ranks divide and compute them. */
#ifndef TESTS_SUPPORT_GROUP_DRAW_H
#define TESTS_SUPPORT_GROUP_DRAW_H

#include "support/group/parts.h"

/* What makes another kernel, as types, head sizes and masks do, is drawn for a family of descriptions; what does not, as lengths, ranks
 * and positions do, for each of them.  Each DRAWS_OF_FAMILIES descriptions have families of their own. */
enum { DRAWS_OF_FAMILIES = 300, FORWARD_FAMILIES = 10, BACKWARD_FAMILIES = 6 };

#define GROUP_MOST_ITEMS 3

typedef struct group_draw {
    attention_case test;
    group_way way;
    bool backward;
    unsigned gradients; /* backward: bits of query, key, value, mask, bias, vector, slopes and sinks */
    int64_t lists[5][GROUP_MOST_ITEMS + 1]; /* to which the case's lists point */
    char text[420];                         /* all of it, to be read */
} group_draw;

/* Draws description `index`, which depends on it and on random_seed() alone.  A group can compute it.  The draw may not be moved. */
void group_draw_make(group_draw *draw, size_t index);

#endif
