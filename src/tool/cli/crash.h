/* Surviving an OpenCL driver whose library kills the process when it is loaded or asked for its devices.
 *
 * A healthy machine pays two sets of signal handlers and nothing else: the driver is loaded here, directly.
 * If that raises a fatal signal, the process becomes this program run anew with the same arguments and
 * --after-crash before them.  That one first lets a child load each of the loader's .icd files alone, passes
 * over those that kill it, and goes on with the others. */
#ifndef CLATTN_TOOL_CLI_CRASH_H
#define CLATTN_TOOL_CLI_CRASH_H

#include "tool/tool.h"

/* Handles the internal first argument, if it is there: *argc and *argv then lack it.  Call it first in main;
 * on any status but TOOL_DONE exit with it.  *finished: it was all that there is to do. */
int crash_start(int *argc, char ***argv, bool *finished);

/* Around whatever first makes the OpenCL loader load its drivers. */
void crash_guard_begin(void);
void crash_guard_end(void);

/* The drivers passed over, a line each: NULL for an index outside. */
const char *crash_skipped(size_t index);

#endif
