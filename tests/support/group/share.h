/* A share of an attention that has everything, of a group of two. */
#ifndef TESTS_SUPPORT_GROUP_SHARE_H
#define TESTS_SUPPORT_GROUP_SHARE_H

#include <stdbool.h>

#include "support/group/other.h"

typedef struct share_way {
    clattn_group_mode mode;
    bool backward;
    bool packed; /* one item, that has not all rows */
} share_way;

/* Makes a share, whose share_way is `given`, runs it twice, and reads the results, OTHER_FLOATS with zeros behind them. */
clattn_status share_run(clattn_context *context, const void *given, other_rank *other, float *results);

#endif
