/* A group of two whose other rank agrees to all, and then sends zeros. */
#ifndef TESTS_SUPPORT_GROUP_OTHER_H
#define TESTS_SUPPORT_GROUP_OTHER_H

#include "clattn/clattn.h"

enum { OTHER_RANKS = 2, OTHER_FLOATS = 4096 };

/* The other rank. */
typedef struct other_rank {
    int started, waited; /* exchanges */
    int fails_at,
        wait_fails; /* the exchange that fails, 1 is the first; 0: none.  Whether it fails in the wait for it. */
    uint64_t sent;  /* a digest of all that it has been sent */
} other_rank;

/* The first rank's group. */
clattn_group other_group(other_rank *other);

#endif
