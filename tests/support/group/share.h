/* A share of an attention that has everything, of a group whose other rank agrees to all, and then sends zeros. */
#ifndef TESTS_SUPPORT_GROUP_SHARE_H
#define TESTS_SUPPORT_GROUP_SHARE_H

#include <stdbool.h>

#include "clattn/clattn.h"

enum { SHARE_FLOATS = 4096 };

/* The other rank. */
typedef struct share_other {
    int started, waited; /* exchanges */
    int fails_at,
        wait_fails; /* the exchange that fails, 1 is the first; 0: none.  Whether it fails in the wait for it. */
    uint64_t sent;  /* a digest of all that it has been sent */
} share_other;

typedef struct share_way {
    clattn_group_mode mode;
    bool backward;
    bool packed; /* one item, that has not all rows */
} share_way;

/* Makes a share, runs it twice, and reads the results, SHARE_FLOATS with zeros behind them. */
clattn_status share_run(clattn_context *context, const share_way *way, share_other *other, float *results);

#endif
