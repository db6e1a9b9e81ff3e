/* Ranks of a grid that train models that they have together, a thread each. */
#ifndef TESTS_SUPPORT_GROUP_GRID_H
#define TESTS_SUPPORT_GROUP_GRID_H

#include "support/group/team.h"

/* What a rank does in a step; the ranks of a row have the model together, and those of a column have the same part of it. */
typedef struct grid_rank {
    team_rank *rank;
    clattn_group row, column;
    clattn_group_grid *grid;
    clattn_plan *plan;
    clattn_training_args args;
    clattn_status status;
} grid_rank;

/* A grid of ranks that train: a row for each item of a step, and `columns` that have the model together. */
typedef struct grid_team {
    team t;
    int columns;
    grid_rank rank[TEAM_MOST_RANKS];
} grid_team;

/* All ranks do it at once, and succeed. */
void grid_do(grid_rank *ranks, int count, int (*action)(void *));

/* What a thread does for its rank, a `grid_rank`: makes model, trainer and plan; computes gradients; moves the parameters. */
int grid_make(void *user);
int grid_compute(void *user);
int grid_move(void *user);

void grid_open(grid_team *g, const training_case *test, int rows, int columns, float dropout, int32_t recompute);
void grid_close(grid_team *g);

/* A step of all ranks; the losses of a row's items are the same bits on its ranks. */
void grid_step(grid_team *g, int64_t number);

#endif
