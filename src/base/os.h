/* What the library asks of the operating system.  Implemented in os_*.c, the only files that call it. */
#ifndef CLATTN_BASE_OS_H
#define CLATTN_BASE_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* This process's number; changes in the child of a fork. */
long os_process_id(void);

/* Whether this processor has AVX512-BF16 and AVX512-VL, the system keeps their registers, and vdpbf16ps does more products
 * in a second than fma: AMD's does (measured on a Zen 5), Intel's not (Sapphire Rapids: 238 GFLOP/s where fma reaches
 * 480). */
bool os_processor_has_fast_bf16(void);

/* Whether this processor has AMX-BF16 and AVX512-BF16, and the system keeps their registers for a process that asks. */
bool os_processor_has_amx_bf16(void);

/* Asks for that (Linux: arch_prctl), for this process from now on; false if it is refused. */
bool os_processor_permit_amx_bf16(void);

/* A variable of the environment; NULL if unset, empty, or in a setuid process. */
const char *os_environment(const char *name);

/* A shared library that is never unloaded (drivers keep threads), and a symbol of it; NULL if there is none.
 */
void *os_library_open(const char *name);
void *os_library_symbol(void *library, const char *name);

/* A whole regular file of at most `limit` bytes, with a NUL added after it; the caller frees *data.  False if
 * it is missing, larger, no regular file, or unreadable. */
bool os_read_file(const char *path, size_t limit, char **data, size_t *bytes);

/* A private folder: made (with its parents' missing last level) if need be, mode 0700, owned by this user,
 * not writable by others, no symbolic link.  Returns a handle, or -1 with a static *reason. */
int os_private_folder_open(const char *path, const char **reason);
void os_private_folder_close(int folder);

/* A file in such a folder, under the same suspicion; false on any trouble. */
bool os_private_file_read(int folder, const char *name, size_t limit, uint8_t **data, size_t *bytes);

/* Written under a random name, synced, renamed: a reader sees the old file, the new one or none. */
bool os_private_file_write(int folder, const char *name, const void *data, size_t bytes);

void os_private_file_remove(int folder, const char *name);

#endif
