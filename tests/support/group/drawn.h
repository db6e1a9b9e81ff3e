/* A drawn description's whole, and the ranks' parts. */
#ifndef TESTS_SUPPORT_GROUP_DRAWN_H
#define TESTS_SUPPORT_GROUP_DRAWN_H

#include "support/group/draw.h"

typedef struct drawn {
    const group_draw *draw;
    test_job forward;
    clattn_attention_desc desc;
    struct backward_job backward;
    group_part parts[GROUP_MOST_RANKS];
} drawn;

/* Makes the whole's arrays, and those of the parts. */
void drawn_prepare(drawn *w, const group_draw *d, uint64_t salt);
void drawn_make_parts(drawn *w);

/* The whole's job. */
test_job *drawn_whole(drawn *w);

/* Puts the results of the parts into the whole, and releases the parts. */
void drawn_give_parts(drawn *w);

/* Compares the whole's results with the reference. */
void drawn_judge(drawn *w);
void drawn_release(drawn *w);

#endif
