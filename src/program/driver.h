/* The driver's compiler: programs from source or from a binary, and the binary of a program. */
#ifndef CLATTN_PROGRAM_DRIVER_H
#define CLATTN_PROGRAM_DRIVER_H

#include "device/device.h"
#include "program/source.h"

/* Builds.  SUCCESS with *made, or with *failure: the message of a build that failed for good, for the caller
 * to free; its first line is the first error, of `snippets` (may be NULL) if it is there.  Other statuses
 * (OUT_OF_MEMORY, OPENCL) may be others another time.  `file` is for the message. */
clattn_status driver_build(struct device *device, const char *file, const char *source, const char *options,
                           const struct source_snippets *snippets, cl_program *made, char **failure);

/* The same from a binary; `file` is that whose source it came from. */
clattn_status driver_rebuild(struct device *device, const char *file, const uint8_t *binary, size_t bytes,
                             const char *options, cl_program *made, char **failure);

/* Whether the driver takes the binary. */
bool driver_load(struct device *device, const uint8_t *binary, size_t bytes, const char *options, cl_program *made);

/* The program's binary for the device, which the caller frees; NULL if there is none. */
uint8_t *driver_read_binary(struct device *device, cl_program program, size_t *bytes);

#endif
