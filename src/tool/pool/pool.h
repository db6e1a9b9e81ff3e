/* The devices that share a command's work: the one that --device names, or several, as "0,1".
 *
 * The work has parts that do not depend on each other.  Each device takes another one as soon as it is done with the one before,
 * and computes it in a thread of its own, with its own context; one device alone computes them in the calling thread. */
#ifndef CLATTN_TOOL_POOL_POOL_H
#define CLATTN_TOOL_POOL_POOL_H

#include "tool/cli/report.h"
#include "tool/run/device.h"

#define POOL_MOST 16 /* devices */

typedef struct pool_member {
    tool_device device;
    size_t parts;         /* that it has computed */
    double size, seconds; /* their sizes, and how long they have taken */
} pool_member;

/* A zeroed one is closed. */
typedef struct tool_pool {
    pool_member member[POOL_MOST];
    size_t count;
} tool_pool;

/* Functions return an exit status, and are called on several threads at a time, on one for each device. */
typedef struct pool_work {
    /* Makes what a part needs on a device, such as plans; its time does not count. */
    int (*prepare)(void *user, size_t device, size_t part);
    /* Computes it; where there are several devices, waits until it is done. */
    int (*run)(void *user, size_t device, size_t part);
    void *user;
    const double *size; /* of each part, the largest first: its time is about in proportion */
    size_t parts;
} pool_work;

/* Opens the devices of a list of indices, or the one that `spec` names otherwise.  Messages begin with `command`.  Returns an exit
 * status, as all below; the caller closes the pool in any case. */
int pool_open(const char *command, const char *spec, tool_pool *pool);
void pool_close(tool_pool *pool);

/* Computes all parts.  A device takes none that the others together would be done with sooner, as far as
 * parts of this call and of those before have told.  The first failure ends it. */
int pool_run(tool_pool *pool, const pool_work *work);

/* Adds the devices' names and how many parts each has computed, if there are several. */
void pool_report(const tool_pool *pool, tool_report *report);

/* Adds the devices' names and a number for each. */
void pool_report_numbers(const tool_pool *pool, tool_report *report, const char *name, const size_t *numbers);

#endif
