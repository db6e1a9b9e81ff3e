/* Recovery from an OpenCL driver whose library kills the process when it is loaded or asked for its devices.
 *
 * A healthy machine pays for two sets of signal handlers and nothing else: the driver is loaded in this process.  If
 * loading raises a fatal signal, the process executes this program again with the same arguments and CLATTN_AFTER_CRASH
 * in the environment.  The new process first runs a child for each of the loader's .icd files, which CLATTN_PROBE makes load
 * that driver alone; it leaves out the drivers that kill their child, and goes on with the others.
 *
 * Both variables hold the number of the process that set them, and count only in that process after its execve, and in its
 * child: nobody else's are taken, and none in a setuid process. */
#ifndef CLATTN_TOOL_CLI_CRASH_H
#define CLATTN_TOOL_CLI_CRASH_H

#include "tool/tool.h"

/* Does what the two variables say, if they are set.  Call it first in main, whose argv must live as long as the process;
 * exit with its status unless that is TOOL_DONE.  *finished says that nothing else is to be done. */
int crash_start(char **argv, bool *finished);

/* Call these before and after the code that first makes the OpenCL loader load its drivers. */
void crash_guard_begin(void);
void crash_guard_end(void);

/* The drivers that were left out, a line each: NULL for an index outside. */
const char *crash_skipped(size_t index);

#endif
