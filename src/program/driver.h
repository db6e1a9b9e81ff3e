/* The driver's compiler: programs from source or from a binary, and the binary of a program. */
#ifndef CLATTN_PROGRAM_DRIVER_H
#define CLATTN_PROGRAM_DRIVER_H

#include "device/device.h"

/* Builds a program.  Returns SUCCESS with *made, or SUCCESS with *failure: the message, for the caller to free, of a
 * build that would fail every time.  Its first line is "FILE did not build: " and the first error.  Other statuses
 * (OUT_OF_MEMORY, OPENCL) may differ at the next try.  `file` is for the message. */
clattn_status driver_build(struct device *device, const char *file, const char *source, const char *options,
                           cl_program *made, char **failure);

/* The log of the program's build, which the caller frees; NULL if there is none. */
char *driver_build_log(const struct device *device, cl_program program);

/* Builds a program from a binary, with driver_build's contract; `file` is the kernel file that the binary came from. */
clattn_status driver_rebuild(struct device *device, const char *file, const uint8_t *binary, size_t bytes,
                             const char *options, cl_program *made, char **failure);

/* Creates and builds *made from the binary; false if the driver refuses it. */
bool driver_load(struct device *device, const uint8_t *binary, size_t bytes, const char *options, cl_program *made);

/* The program's binary for the device, which the caller frees; NULL if there is none. */
uint8_t *driver_read_binary(struct device *device, cl_program program, size_t *bytes);

#endif
