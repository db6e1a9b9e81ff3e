/* The operating system, as far as the command needs it.  No other file of the command calls it. */
#ifndef CLATTN_TOOL_CLI_OS_TOOL_H
#define CLATTN_TOOL_CLI_OS_TOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Makes sure that descriptors 0, 1 and 2 are taken, so that no file that is opened later can become "standard
 * output", and that writing to a closed pipe is an error and not a signal. */
void os_prepare_streams(void);

bool os_stderr_is_terminal(void);

/* Monotonic time. */
double os_seconds(void);

typedef enum os_path_kind {
    OS_PATH_MISSING,
    OS_PATH_FILE,
    OS_PATH_FOLDER,
    OS_PATH_OTHER,      /* a device, a pipe, … */
    OS_PATH_UNREACHABLE /* the folder that should hold it is missing or closed to us */
} os_path_kind;

os_path_kind os_look_at(const char *path);

/* Whether writing to one path changes what is at the other: one file under two names (spelt otherwise, a
 * link), or one that is still to be made. */
bool os_same_file(const char *first, const char *second);

/* Whether what is written to that path goes to standard output, under whatever name. */
bool os_is_stdout(const char *path);

/* Makes a folder of its own in OS_TEMPORARY, readable by this user alone; `path` receives its name. */
#define OS_TEMPORARY "/tmp"
bool os_temporary_folder(char *path, size_t bytes);

/* Removes a folder and all that is in it, following no link; false if anything is left. */
bool os_remove_folder(const char *path);

/* Calls `each` for every regular file in `folder` (links are not followed), in no order, with its size and
 * the seconds since 1970 of its last change, until it returns false.  False if the folder cannot be read. */
bool os_list_folder(const char *folder, bool (*each)(void *user, const char *name, uint64_t bytes, int64_t changed),
                    void *user);

bool os_remove_file(const char *folder, const char *name);

/* Runs this very program anew, in a new process, with `arguments` (after the program's name, ended by NULL)
 * and the environment changed by `settings` ("NAME=VALUE" sets, "NAME" removes; ended by NULL).  Blocks until
 * it is over.  What it writes to stdout comes back in `output`, truncated and terminated; with `quiet`, what
 * it writes to stderr is dropped.  *exit_status is its own status, or 128 + the signal that ended it.
 * *seconds: from just before it is started until it is gone.  False if it could not be started. */
bool os_run_self(const char *const *arguments, const char *const *settings, bool quiet, char *output, size_t bytes,
                 int *exit_status, double *seconds);

#endif
