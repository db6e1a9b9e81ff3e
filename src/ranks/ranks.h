/* What the ranks of a group do together, whatever it is that they compute. */
#ifndef CLATTN_RANKS_RANKS_H
#define CLATTN_RANKS_RANKS_H

#include <stdbool.h>

#include "base/report.h"
#include "clattn/group.h"

#define RANKS_AGREED 4096 /* bytes of text, a line for each value, its NUL included */

struct ranks {
    clattn_group group;
    struct report *report;
    bool failed;    /* the group has, and is given no new exchange */
    size_t started; /* exchanges so far */
};

/* Copies an application's group, once it has been checked. */
clattn_status ranks_read(struct ranks *ranks, struct report *report, const clattn_group *group);

/* The number that messages have for a rank: of a row or a column that in the whole group, which its exchanges' messages have, too. */
int32_t ranks_number(const struct ranks *ranks, int32_t rank);

/* Refuses to go on if the group has failed. */
clattn_status ranks_check(const struct ranks *ranks);

/* Starts an exchange, and waits for it. */
clattn_status ranks_start(struct ranks *ranks, const clattn_group_exchange *exchange, void **request);
clattn_status ranks_finish(struct ranks *ranks, void *request);

/* A part of `out` for each rank goes to it, and parts come to `in`: `bytes` each, or the same to all (`shared`).  `requests` has room for
 * as many as there are ranks. */
clattn_status ranks_swap_start(struct ranks *ranks, const void *out, bool shared, void *in, size_t bytes,
                               void **requests);
clattn_status ranks_swap_finish(struct ranks *ranks, void **requests);

/* Starts that and waits for it. */
clattn_status ranks_swap(struct ranks *ranks, const void *out, bool shared, void *in, size_t bytes);

/* The first of `whole` things that rank `rank` has; those of the next rank follow.  No two ranks' counts differ by more than 1. */
static inline size_t ranks_first(const struct ranks *ranks, size_t whole, size_t rank)
{
    return whole * rank / (size_t)ranks->group.ranks;
}

/* The elements of a rank's slice of an array of `count`, which the slices of all ranks fill up. */
size_t ranks_slice(const struct ranks *ranks, size_t count);

/* Makes an array of a slice for each rank the sum of all ranks' arrays, whose bits are the same on all of them.  `parts` has room for
 * another such array. */
clattn_status ranks_sum(struct ranks *ranks, clattn_dtype dtype, void *data, void *parts, size_t slice);

/* Compares `own`, lines of NAME=VALUE, with those of the rank before, and names the first line in which they differ.  A rank that
 * refuses its own (`refused`) sends why, and compares nothing. */
clattn_status ranks_agree(struct ranks *ranks, const char own[RANKS_AGREED], bool refused);

/* Tells all ranks whether this one has its `what`, and waits for theirs. */
clattn_status ranks_all_ready(struct ranks *ranks, clattn_status own, const char *what);

#endif
