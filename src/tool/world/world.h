/* The processes of one command that mpirun has started together: its ranks.  Without mpirun there is one.
 *
 * Rank 0 alone writes to standard output and warns.  A failure that any rank has before the work begins is told by the lowest such rank
 * (world_agree); one that comes later by a rank that has it, which ends the others (world_close). */
#ifndef CLATTN_TOOL_WORLD_WORLD_H
#define CLATTN_TOOL_WORLD_WORLD_H

#include <stdbool.h>

#include <clattn/group.h>

#include "tool/tool.h"

/* A zeroed one is closed. */
typedef struct tool_world {
    clattn_group group; /* of more than one rank, or zeros */
    int32_t rank, ranks;
    int32_t columns; /* neighbours that have a model together (world_divide) */
    clattn_group_grid *grid;
    clattn_group row, column;
    bool agreed;    /* the ranks have agreed that they have failed, */
    int32_t teller; /* and this one tells why */
    void (*release)(clattn_group *group);
    void (*abort)(const clattn_group *group, int32_t status);
} tool_world;

/* Joins the ranks that the environment tells of, with libclattn-mpi.  Returns an exit status, as all below. */
int world_open(tool_world *world);

/* The group, or NULL if there is one rank. */
const clattn_group *world_group(const tool_world *world);

/* Makes each `columns` ranks a row, whose ranks have a model together; 0 means 1, with which there is no grid. */
int world_divide(tool_world *world, size_t columns);

/* The ranks that have the model together with this one, or NULL if it has it alone. */
const clattn_group *world_row(const tool_world *world);

/* The ranks that have the same of a model as this one, a rank of each row, or NULL if there is one row. */
const clattn_group *world_column(const tool_world *world);

/* Among how many rows work is shared out, and the number of this rank's. */
static inline size_t world_workers(const tool_world *world)
{
    return (size_t)(world->ranks / world->columns);
}

static inline size_t world_worker(const tool_world *world)
{
    return (size_t)(world->rank / world->columns);
}

/* Sends bytes to one rank and receives bytes of one; no bytes: does one of both alone.  Blocks. */
int world_exchange(tool_world *world, int32_t to, const void *send, size_t send_bytes, int32_t from, void *receive,
                   size_t receive_bytes);

/* Gives all ranks `bytes` of each, one rank's behind the other's.  Blocks. */
int world_gather(tool_world *world, const void *own, void *all, size_t bytes);

/* Waits for all ranks; `status` is how this one has fared.  Fails on all of them if one has failed. */
int world_agree(tool_world *world, int status);

/* Refuses to go on if a rank has another version, other arguments than for --device, which may be NULL, or another line `more`. */
int world_compare_arguments(tool_world *world, int argc, char **argv, const char *device, const char *more);

/* What the rank takes of a list "A,B,..." of devices, which several ranks get in turn; one has it whole.  NULL stays NULL.  The caller
 * frees it. */
int world_device(const tool_world *world, const char *list, char **device);

/* Leaves the ranks.  If `status` is a failure that they have not agreed upon, it ends them.  Several may fail of the same; those with
 * higher numbers first wait for a moment, in which a lower one ends them. */
void world_close(tool_world *world, int status);

#endif
