/* Grids of ranks: a row or a column is a group whose ranks have other numbers in the whole group. */
#include <stdlib.h>

#include "ranks/ranks.h"

/* Rank i of the line is rank first + i * step of the whole group. */
struct line {
    const clattn_group *whole;
    int32_t first, step, ranks, rank;
};

struct clattn_group_grid {
    clattn_group whole;
    struct line row, column;
};

static clattn_status exchange(void *user, const clattn_group_exchange *given, void **request,
                              char message[CLATTN_GROUP_MESSAGE])
{
    const struct line *line = user;
    clattn_group_exchange whole = *given;
    whole.to = line->first + given->to * line->step;
    whole.from = line->first + given->from * line->step;
    return line->whole->exchange(line->whole->user, &whole, request, message);
}

int32_t ranks_number(const struct ranks *ranks, int32_t rank)
{
    for (const clattn_group *group = &ranks->group; group->exchange == exchange;) {
        const struct line *line = group->user;
        rank = line->first + rank * line->step;
        group = line->whole;
    }
    return rank;
}

static clattn_status wait(void *user, void *request, char message[CLATTN_GROUP_MESSAGE])
{
    const struct line *line = user;
    return line->whole->wait(line->whole->user, request, message);
}

static clattn_status give(struct line *line, clattn_group *group)
{
    clattn_group_init(group);
    group->rank = line->rank;
    group->ranks = line->ranks;
    group->user = line;
    group->exchange = exchange;
    group->wait = wait;
    return CLATTN_SUCCESS;
}

clattn_status clattn_group_grid_create(const clattn_group *group, int32_t columns, clattn_group_grid **result)
{
    struct ranks ranks;
    if (!result)
        return report_error(NULL, CLATTN_ERROR_INVALID_ARGUMENT, "grid is NULL");
    *result = NULL;
    clattn_status status = ranks_read(&ranks, NULL, group);
    if (status != CLATTN_SUCCESS)
        return status;
    const int32_t rank = ranks.group.rank, count = ranks.group.ranks;
    if (columns < 1 || count % columns)
        return report_error(NULL, CLATTN_ERROR_INVALID_ARGUMENT, "%d columns do not divide %d ranks", (int)columns,
                            (int)count);
    clattn_group_grid *grid = calloc(1, sizeof *grid);
    if (!grid)
        return report_error(NULL, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a grid");
    grid->whole = ranks.group;
    grid->row = (struct line){&grid->whole, rank / columns * columns, 1, columns, rank % columns};
    grid->column = (struct line){&grid->whole, rank % columns, columns, count / columns, rank / columns};
    *result = grid;
    return CLATTN_SUCCESS;
}

clattn_status clattn_group_grid_row(clattn_group_grid *grid, clattn_group *group)
{
    return grid && group ? give(&grid->row, group)
                         : report_error(NULL, CLATTN_ERROR_INVALID_ARGUMENT, "grid or group is NULL");
}

clattn_status clattn_group_grid_column(clattn_group_grid *grid, clattn_group *group)
{
    return grid && group ? give(&grid->column, group)
                         : report_error(NULL, CLATTN_ERROR_INVALID_ARGUMENT, "grid or group is NULL");
}

void clattn_group_grid_release(clattn_group_grid **grid)
{
    if (!grid)
        return;
    free(*grid);
    *grid = NULL;
}
