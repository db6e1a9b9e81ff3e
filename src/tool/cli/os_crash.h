/* The operating system's part of recovering from a driver that kills the process; see crash.h. */
#ifndef CLATTN_TOOL_CLI_OS_CRASH_H
#define CLATTN_TOOL_CLI_OS_CRASH_H

#include <stdbool.h>
#include <stddef.h>

/* The number of the process that started this one. */
long os_parent_id(void);

/* Handles fatal signals (SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP) of any thread until os_crash_end.  If
 * `arguments` is not NULL, a signal makes the process execute this program with these and `environment`, which end with
 * NULL; the two characters at `digits`, which are part of either, become the signal's number.  Otherwise a signal writes
 * `message` to stderr and exits with `exit_status`.  All that is given must live until os_crash_end. */
void os_crash_begin(char **arguments, char **environment, char *digits, const char *message, int exit_status);

/* Ends the handling.  A handler that somebody else has installed meanwhile stays. */
void os_crash_end(void);

/* Calls `each` for everything that the OpenCL loader would load: an .icd file's absolute path, or, with
 * `library`, the name of a library; until it returns false.  False if the loader's folder cannot be read. */
bool os_icd_list(bool (*each)(void *user, const char *path, bool library), void *user);

/* Puts one such entry into `folder` as its `index`-th file. */
bool os_icd_place(const char *folder, size_t index, const char *path, bool library);

/* Makes the loader of this process, which must not have been used yet, look into `folder` only. */
bool os_icd_use(const char *folder);

#endif
