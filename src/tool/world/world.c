#include "tool/world/world.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <clattn/version.h>

#include "base/os.h"
#include "base/size.h"
#include "base/strbuf.h"
#include "base/text/lines.h"
#include "tool/cli/os_tool.h"
#include "tool/run/device.h"

#ifdef __APPLE__
#define LIBRARY "libclattn-mpi.0.dylib"
#else
#define LIBRARY "libclattn-mpi.so.0"
#endif
/* A rank may compile, make a vocabulary or wait for standard input for hours while others wait; mpirun sees those that have ended. */
#define TIME_OUT_MS UINT32_MAX

/* ---- joining ---- */

/* How many ranks mpirun has started: as Open MPI says it, and as MPICH does. */
static long started(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *value = getenv(names[i]);
        if (value != NULL)
            return strtol(value, NULL, 10);
    }
    return 1;
}

static int join(tool_world *world)
{
    clattn_status (*make)(uint32_t, clattn_group *) = NULL;
    void *library = os_library_open(LIBRARY);
    if (library != NULL) { /* the standard has no other way from a pointer to a function */
        *(void **)&make = os_library_symbol(library, "clattn_group_mpi_world");
        *(void **)&world->release = os_library_symbol(library, "clattn_group_mpi_world_release");
        *(void **)&world->abort = os_library_symbol(library, "clattn_group_mpi_abort");
    }
    if (make == NULL || world->release == NULL || world->abort == NULL)
        return complain(TOOL_FAILED, "mpirun has started several ranks, and there is no %s (-Dmpi=enabled)", LIBRARY);
    const clattn_status status = make(TIME_OUT_MS, &world->group);
    return status == CLATTN_SUCCESS
               ? TOOL_DONE
               : complain(TOOL_FAILED, "joining the other ranks: %s", clattn_status_string(status));
}

int world_open(tool_world *world)
{
    *world = (tool_world){.ranks = 1, .columns = 1};
    if (started() < 2)
        return TOOL_DONE;
    const int status = join(world);
    if (status != TOOL_DONE)
        return status;
    const int32_t found = world->group.ranks;
    if (found != started()) { /* each would be the first of one, and all would write the same files */
        world->release(&world->group);
        return complain(TOOL_FAILED, "mpirun has started %ld ranks, and %s finds %d: it was built with another MPI",
                        started(), LIBRARY, (int)found);
    }
    world->rank = world->group.rank;
    world->ranks = found;
    complain_as_rank(world->rank);
    complain_hold();
    if (world->rank > 0)
        os_silence_stdout();
    return status;
}

const clattn_group *world_group(const tool_world *world)
{
    return world->ranks > 1 ? &world->group : NULL;
}

int world_divide(tool_world *world, size_t columns)
{
    if (columns < 2)
        return TOOL_DONE;
    if ((size_t)world->ranks % columns != 0)
        return complain(TOOL_BAD_INPUT, "--tensor-parallel %zu is not valid with %d %s, expected a divisor of that",
                        columns, (int)world->ranks, world->ranks > 1 ? "ranks" : "rank (mpirun starts several)");
    clattn_status status = clattn_group_grid_create(&world->group, (int32_t)columns, &world->grid);
    if (status == CLATTN_SUCCESS)
        status = clattn_group_grid_row(world->grid, &world->row);
    if (status == CLATTN_SUCCESS)
        status = clattn_group_grid_column(world->grid, &world->column);
    if (status != CLATTN_SUCCESS)
        return complain(TOOL_FAILED, "a grid of ranks: %s", clattn_status_string(status));
    world->columns = (int32_t)columns;
    return TOOL_DONE;
}

const clattn_group *world_row(const tool_world *world)
{
    return world->columns > 1 ? &world->row : NULL;
}

const clattn_group *world_column(const tool_world *world)
{
    if (world->columns < 2)
        return world_group(world);
    return world->columns < world->ranks ? &world->column : NULL;
}

/* ---- exchanges ---- */

int world_exchange(tool_world *world, int32_t to, const void *send, size_t send_bytes, int32_t from, void *receive,
                   size_t receive_bytes)
{
    const clattn_group *group = &world->group;
    const clattn_group_exchange exchange = {send, send_bytes, to, from, receive, receive_bytes};
    char message[CLATTN_GROUP_MESSAGE] = "";
    void *request = NULL;
    clattn_status status = group->exchange(group->user, &exchange, &request, message);
    if (status == CLATTN_SUCCESS)
        status = group->wait(group->user, request, message);
    return status == CLATTN_SUCCESS ? TOOL_DONE : complain(TOOL_FAILED, "%s", message);
}

int world_gather(tool_world *world, const void *own, void *all, size_t bytes)
{
    int status = TOOL_DONE;
    memcpy((char *)all + (size_t)world->rank * bytes, own, bytes);
    for (int32_t i = 1; i < world->ranks; i++) {
        const int32_t to = (world->rank + i) % world->ranks, from = (world->rank + world->ranks - i) % world->ranks;
        TOOL_TRY(world_exchange(world, to, own, bytes, from, (char *)all + (size_t)from * bytes, bytes));
    }
fail:
    return status;
}

/* ---- what ranks agree about ---- */

int world_agree(tool_world *world, int own)
{
    int status = own;
    if (world->ranks < 2)
        return status;
    const int32_t code = own;
    int32_t *codes = calloc((size_t)world->ranks, sizeof *codes);
    if (codes == NULL)
        return complain(TOOL_FAILED, "no memory for the ranks");
    TOOL_TRY(world_gather(world, &code, codes, sizeof code));
    for (int32_t i = world->ranks; i-- > 0;)
        if (codes[i] != TOOL_DONE) {
            status = codes[i];
            world->agreed = true;
            world->teller = i;
        }
fail:
    free(codes);
    return status;
}

/* Complains about the first line in which two ranks differ. */
static int disagree(const char *own, int32_t other, const char *its)
{
    skip_equal_lines(&own, &its);
    return complain(TOOL_BAD_INPUT, "has '%.*s', and rank %d has '%.*s'", (int)line_length(own), own, (int)other,
                    (int)line_length(its), its);
}

/* Compares lines with those of the rank before. */
static int compare(tool_world *world, const struct strbuf *own)
{
    const int32_t before = (world->rank + world->ranks - 1) % world->ranks, after = (world->rank + 1) % world->ranks;
    const uint64_t bytes = own->length + 1;
    uint64_t its_bytes = 0;
    char *its = NULL;
    int status;
    TOOL_TRY(world_exchange(world, after, &bytes, sizeof bytes, before, &its_bytes, sizeof its_bytes));
    its = its_bytes > 0 && its_bytes <= SIZE_MAX ? malloc((size_t)its_bytes) : NULL;
    if (its == NULL)
        return complain(TOOL_FAILED, "no memory for the arguments");
    TOOL_TRY(world_exchange(world, after, own->text, (size_t)bytes, before, its, (size_t)its_bytes));
    its[its_bytes - 1] = '\0';
    if (strcmp(own->text, its) != 0)
        status = disagree(own->text, before, its);
fail:
    free(its);
    return status;
}

/* Whether `part`, which may be NULL, is the end of an argument. */
static bool ends_with(const char *argument, const char *part)
{
    for (;; argument++) {
        if (argument == part)
            return true;
        if (*argument == '\0')
            return false;
    }
}

int world_compare_arguments(tool_world *world, int argc, char **argv, const char *device, const char *more)
{
    struct strbuf lines = {0};
    if (world->ranks < 2)
        return TOOL_DONE;
    strbuf_printf(&lines, "clattn %s\n", clattn_version_string());
    for (int i = 0; i < argc; i++)
        if (!ends_with(argv[i], device))
            strbuf_printf(&lines, "%s\n", argv[i]);
    strbuf_printf(&lines, "%s\n", more);
    const int status = lines.failed ? complain(TOOL_FAILED, "no memory for the arguments") : compare(world, &lines);
    strbuf_clear(&lines);
    return status;
}

int world_device(const tool_world *world, const char *list, char **device)
{
    const char *begin = list;
    size_t entries = 1;
    *device = NULL;
    if (list == NULL)
        return TOOL_DONE;
    for (const char *at = list; world->ranks > 1 && *at != '\0'; at++)
        entries += *at == ',';
    for (size_t left = (size_t)world->rank % entries; left > 0; left--)
        begin = strchr(begin, ',') + 1;
    const size_t bytes = entries > 1 ? strcspn(begin, ",") : strlen(begin);
    *device = calloc(bytes + 1, 1);
    if (*device == NULL)
        return complain(TOOL_FAILED, "no memory for the device's name");
    memcpy(*device, begin, bytes);
    return TOOL_DONE;
}

/* ---- leaving ---- */

/* Waits in case a lower rank has failed, too, and ends this one; false if it is about to (a command may survive the first signal). */
static bool may_speak(const tool_world *world)
{
    const double step = 0.2, most = 2; /* seconds, for a rank and for all */
    const int before = os_interrupted();
    os_sleep_until(os_seconds() + fmin(world->rank * step, most));
    return os_interrupted() == before;
}

void world_close(tool_world *world, int status)
{
    if (world->ranks < 2)
        return;
    const bool failed = status != TOOL_DONE && status != TOOL_HELPED;
    complain_deliver(world->agreed ? world->teller == world->rank : !failed || may_speak(world));
    if (world->rank > 0)
        device_drop_warnings();
    if (failed && !world->agreed) {
        fflush(stdout);
        world->abort(&world->group, status);
    }
    clattn_group_grid_release(&world->grid);
    world->release(&world->group);
    *world = (tool_world){.ranks = 1, .columns = 1};
}
