/* The library's calls to the operating system.  Only os_* files, which implement them, call the system: os_NAME.c is
 * POSIX's, os/os_NAME_windows.c is Windows'.  Paths and texts are UTF-8 on Windows. */
#ifndef CLATTN_BASE_OS_H
#define CLATTN_BASE_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/strbuf.h"

/* This process's number; changes in the child of a fork. */
long os_process_id(void);

/* Blocks the calling thread's signals, but for those that its own faults raise: they are other threads' to handle. */
void os_thread_block_signals(void);

/* The time in nanoseconds since a fixed date. */
uint64_t os_time(void);

/* Whether this processor has AVX512-BF16 and AVX512-VL, the system saves their registers, and vdpbf16ps does more
 * products in a second than fma.  It does on AMD's processors (measured on a Zen 5) and not on Intel's (Sapphire
 * Rapids: 238 GFLOP/s, and 480 with fma). */
bool os_processor_has_fast_bf16(void);

/* Whether this processor has AMX-BF16 and AVX512-BF16, and the system saves their registers for a process that asks
 * for it. */
bool os_processor_has_amx_bf16(void);

/* Asks the system to save AMX registers (Linux: arch_prctl) for this process from now on; false if it refuses. */
bool os_processor_permit_amx_bf16(void);

/* A variable of the environment; NULL if unset, empty, or in a setuid process (on Windows also if it has 4,096 bytes or
 * more).  The string lives until the thread's next call. */
const char *os_environment(const char *name);

/* Appends the path of the folder that holds this user's caches.  False, with a static *reason, if there is none. */
bool os_user_cache(struct strbuf *path, const char **reason);

/* Opens a shared library that is never unloaded (drivers leave threads running in it), and finds a symbol of a
 * library; NULL if there is none. */
void *os_library_open(const char *name);
void *os_library_symbol(void *library, const char *name);

/* Reads a whole regular file of at most `limit` bytes and adds a NUL; the caller frees *data.  False if the file is
 * missing, larger, not regular, or unreadable. */
bool os_read_file(const char *path, size_t limit, char **data, size_t *bytes);

/* Opens a private folder: mode 0700, owned by this user, not writable by others, not a symbolic link (on
 * Windows: an access list to the same effect, no reparse point).  Missing folders of the path are made.  Returns a
 * handle, or -1 with a static *reason. */
int os_private_folder_open(const char *path, const char **reason);
void os_private_folder_close(int folder);

/* Reads a file in a private folder if it, too, belongs to this user and others may not write to it; false on any
 * trouble.  Then errno is ENOENT if there is no such file or it is not to be trusted, and another number if it could not be
 * read or is larger. */
bool os_private_file_read(int folder, const char *name, size_t limit, uint8_t **data, size_t *bytes);

/* Writes a file under a random name, syncs it and renames it: a reader sees the old file, the new one or none. */
bool os_private_file_write(int folder, const char *name, const void *data, size_t bytes);

/* Waits until the names in the folder are on the disk, if its file system has such a call: what has been written
 * stays even if power fails. */
void os_private_folder_sync(int folder);

/* Removes what processes that were killed in os_private_file_write more than `seconds` ago have left. */
void os_private_folder_sweep(int folder, int64_t seconds);

void os_private_file_remove(int folder, const char *name);

#endif
