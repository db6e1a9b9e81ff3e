/* Ranks that train together, a thread each, for the tests of training by groups. */
#ifndef TESTS_SUPPORT_GROUP_TEAM_H
#define TESTS_SUPPORT_GROUP_TEAM_H

#include "support/core/threads.h"
#include "support/nn/training_case.h"

enum { TEAM_MOST_RANKS = 4, TEAM_UPDATES = 3 };

/* A rank, and what a thread does for it: makes its trainer, or moves the parameters. */
typedef struct team_rank {
    training_world w;
    clattn_group group;
    cl_command_queue queue;
    clattn_update_args update;
    clattn_status status;
    char message[512];
} team_rank;

typedef struct team {
    int ranks;
    clattn_group_local *local;
    team_rank rank[TEAM_MOST_RANKS];
} team;

/* What a thread does for its rank, a `team_rank`. */
int team_make(void *user);
int team_move(void *user);

/* All ranks do it at once. */
void team_do(team *t, int (*action)(void *));
void team_assert(const team *t, clattn_status expected);

/* Makes the ranks' models and no trainers. */
void team_open_models(team *t, const training_case *test, int ranks, uint32_t timeout_ms);
void team_open(team *t, const training_case *test, int ranks);
void team_close(team *t);

clattn_update_args team_update_args(int64_t number);

/* Computes the gradients of a rank's items: every `ranks`-th, or one that does not count. */
void team_compute(team *t, int rank, uint64_t seed);

/* All ranks compute and move the parameters. */
void team_step(team *t, int64_t number);

/* Those after TEAM_UPDATES updates of a group, whose ranks have the same. */
float *team_after_updates(const training_case *test, int ranks, size_t *count);

#endif
