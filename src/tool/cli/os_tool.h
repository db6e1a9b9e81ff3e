/* The operating system's functions that the command needs; only os_* files call the system: os_NAME.c POSIX,
 * os_NAME_windows.c Windows.  Paths, arguments and variables are UTF-8 on Windows. */
#ifndef CLATTN_TOOL_CLI_OS_TOOL_H
#define CLATTN_TOOL_CLI_OS_TOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Makes sure that descriptors 0, 1 and 2 are taken, so that no file that is opened later can become "standard
 * output", and that writing to a closed pipe is an error and not a signal. */
void os_prepare_streams(void);

/* Drops what is written to standard output from now on. */
void os_silence_stdout(void);

/* Makes SIGINT, SIGTERM and SIGHUP, unless they are ignored, remove the temporary files of os_file_replace before they end
 * the process.  On Windows it does nothing, because the system removes these files. */
void os_prepare_signals(void);

/* The first of these signals (on Windows SIGINT's) ends nothing from now on: os_interrupted returns its number, which is 0
 * before.  The next one does what it did before. */
void os_defer_signals(void);
int os_interrupted(void);

/* Ends the process as the signal that os_interrupted returns would have done.  Returns if it cannot. */
void os_end_by_signal(void);

bool os_stderr_is_terminal(void);

/* The monotonic time in seconds. */
double os_seconds(void);

/* Lets the thread sleep until that time, by os_seconds. */
void os_sleep_until(double time);

/* Makes the folder unless it is there; false and errno: it cannot be made, or is no folder. */
bool os_make_folder(const char *path);

/* fopen(path, "rb"). */
FILE *os_open_for_reading(const char *path);

typedef enum os_path_kind {
    OS_PATH_MISSING,
    OS_PATH_FILE,
    OS_PATH_FOLDER,
    OS_PATH_OTHER,      /* a device, a pipe, … */
    OS_PATH_UNREACHABLE /* the folder that should hold it is missing or closed to us */
} os_path_kind;

os_path_kind os_look_at(const char *path);

/* Whether writing to one path changes the file at the other: both name one file (spelt differently, or by a link),
 * or one that does not exist yet. */
bool os_same_file(const char *first, const char *second);

/* Whether what is written to that path goes to standard output, under whatever name. */
bool os_is_stdout(const char *path);

/* Makes a new folder in OS_TEMPORARY, readable by this user alone; `path` receives its name. */
#ifdef _WIN32
#define OS_TEMPORARY "the folder for temporary files"
#else
#define OS_TEMPORARY "/tmp"
#endif
bool os_temporary_folder(char *path, size_t bytes);

/* Removes a folder and all that is in it, following no link; false if anything is left. */
bool os_remove_folder(const char *path);

/* Calls `each` for every regular file in `folder` (links are not followed), in no order, with its size and
 * the seconds since 1970 of its last change, until it returns false.  False if the folder cannot be read. */
bool os_list_folder(const char *folder, bool (*each)(void *user, const char *name, uint64_t bytes, int64_t changed),
                    void *user);

bool os_remove_file(const char *folder, const char *name);

/* Makes an environment for a new program: this process's, changed by `settings` ("NAME=VALUE" sets, "NAME" removes; ends
 * with NULL).  The strings are borrowed, the array is the caller's; NULL: no memory.  POSIX's alone, for crash.c. */
char **os_changed_environment(const char *const *settings);

/* Runs this program in a new process, with `arguments` (which follow the program's name and end with NULL) and the
 * environment changed by `settings`.  Blocks until the process ends. `output` receives its stdout, truncated and
 * terminated; with `quiet`, its stderr is dropped.  *exit_status is its own status, or 128 + the signal that ended it (on
 * Windows SIGSEGV for any exception).
 * *seconds runs from just before the start until the process is gone.  False if it could not be started. */
bool os_run_self(const char *const *arguments, const char *const *settings, bool quiet, char *output, size_t bytes,
                 int *exit_status, double *seconds);

#endif
